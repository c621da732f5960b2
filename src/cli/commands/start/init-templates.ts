/**
 * init-templates — the first configuration, in each format that `respool init` can write, and a
 * receiver to try it with. Pure.
 *
 * All configurations say the same: one route to a receiver on this machine, and a policy that does
 * not give up soon.
 */

/** The forms `init` can write. */
export const FORMATS = ['ts', 'mjs', 'json', 'yaml'] as const;

/** One of them. */
export type Format = (typeof FORMATS)[number];

/** The JSON Schema that editors check a configuration by, as the package is installed. */
const SCHEMA = './node_modules/respool/respool.schema.json';

/** The text of a configuration whose receiver listens on this port. */
export function configText(format: Format, port: number): string {
  return TEXTS[format](`http://127.0.0.1:${port}/`);
}

const TEXTS: Readonly<Record<Format, (url: string) => string>> = {
  ts: (url) => `import { defineConfig, exponential } from 'respool';
import { http } from 'respool/deliver';

export default defineConfig({
  // Where messages are kept: SQLite in this folder. Also: 'file:./respool'.
  store: 'sqlite:./respool',

  policies: {
    // Waits 5 s, 10 s, 20 s ... up to 6 h, 20 attempts: npx respool policy explain default
    default: exponential({ first: '5s', max: '6h', attempts: 20 }),
  },

  routes: [
    {
      // Which messages: * is one word, # any number of them. The first match wins.
      topic: 'order.*',
      deliver: http({
        // Change this to your endpoint.
        url: '${url}',
        // Addresses that are not public must be named. Take this out with the receiver.
        allow: ['127.0.0.1'],
        // Signs requests as Standard Webhooks: secret: process.env.HOOK_SECRET,
      }),
      // How many requests run at once.
      concurrency: 10,
    },
  ],
});
`,
  mjs: (url) => `/** @type {import('respool').Config} */
export default {
  // Where messages are kept: SQLite in this folder. Also: 'file:./respool'.
  store: 'sqlite:./respool',

  policies: {
    // Waits 5 s, 10 s, 20 s ... up to 6 h, 20 attempts: npx respool policy explain default
    default: { exponential: { first: '5s', max: '6h', attempts: 20 } },
  },

  routes: [
    {
      // Which messages: * is one word, # any number of them. The first match wins.
      topic: 'order.*',
      deliver: {
        http: {
          // Change this to your endpoint.
          url: '${url}',
          // Addresses that are not public must be named. Take this out with the receiver.
          allow: ['127.0.0.1'],
          // Signs requests as Standard Webhooks: secret: process.env.HOOK_SECRET,
        },
      },
      // How many requests run at once.
      concurrency: 10,
    },
  ],
};
`,
  json: (url) => `${JSON.stringify(dataOf(url), null, 2)}\n`,
  yaml: (url) => `# yaml-language-server: $schema=${SCHEMA}
# Where messages are kept: SQLite in this folder. Also: file:./respool
store: sqlite:./respool

policies:
  # Waits 5 s, 10 s, 20 s ... up to 6 h, 20 attempts: npx respool policy explain default
  default:
    exponential: { first: 5s, max: 6h, attempts: 20 }

routes:
  # Which messages: * is one word, # any number of them. The first match wins.
  - topic: order.*
    deliver:
      http:
        # Change this to your endpoint.
        url: ${url}
        # Addresses that are not public must be named. Take this out with the receiver.
        allow: [127.0.0.1]
        # Signs requests as Standard Webhooks; the value comes from the environment or from .env:
        # secret: \${HOOK_SECRET}
    # How many requests run at once.
    concurrency: 10
`,
};

function dataOf(url: string): unknown {
  return {
    $schema: SCHEMA,
    store: 'sqlite:./respool',
    policies: { default: { exponential: { first: '5s', max: '6h', attempts: 20 } } },
    routes: [
      { topic: 'order.*', deliver: { http: { url, allow: ['127.0.0.1'] } }, concurrency: 10 },
    ],
  };
}

// A small receiver in plain Node, for the first messages of a newcomer.

/** The program, listening on this port of the machine itself. */
export function receiverText(port: number): string {
  return `// A receiver to try respool with: prints what it gets and answers by what the body says.
// Start it with: node receiver.mjs [port]
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const port = Number(process.argv[2] ?? ${port});

const server = createServer(async (request, response) => {
  const body = await text(request);
  const attempt = Number(request.headers['respool-attempt']);
  const status = answer(body, attempt);
  console.log(\`attempt \${attempt}: \${body} -> \${status}\`);
  response.writeHead(status).end();
});

function answer(body, attempt) {
  if (body.includes('gone')) return 410; // no retry: it bounces
  if (body.includes('busy') && attempt < 3) return 503; // deferred, then tried again
  return 200; // delivered
}

server.on('error', (error) => {
  const inUse = \`port \${port} is in use; take another: node receiver.mjs PORT\`;
  console.error(error.code === 'EADDRINUSE' ? inUse : error.message);
  process.exitCode = 1;
});

server.listen(port, '127.0.0.1', () => {
  console.log(\`receiver on http://127.0.0.1:\${server.address().port}\`);
});
`;
}

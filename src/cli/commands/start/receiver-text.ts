/** receiver-text — a small receiver in plain Node, for the first messages of a newcomer. */

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

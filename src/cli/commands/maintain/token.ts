/**
 * token — creates a token for the service, or prints the SHA-256 of one. Nothing is written down
 * here.
 */

import { createHash, randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { ROLES } from '../../../config/schema/items.ts';
import { CommandError } from '../../exit-codes.ts';
import type { Out } from '../../ui/output.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';

const PREFIX = 'rsp_';
const TOKEN_BYTES = 32;
const NAME_PATTERN = /^[A-Za-z0-9._@-]{1,64}$/;
/** What the service takes as a token: config/schema/keys.ts. */
const TOKEN_PATTERN = /^[\x21-\x7e]{1,512}$/;
const INPUT_MAX_BYTES = 1_024;

const NAME = {
  flags: '--name <name>',
  description: 'the name of its bearer, shown in the audit record',
};
const ROLE = {
  flags: '--role <role>',
  description: 'what its bearer may do: post messages, read, operate, or everything',
  choices: ROLES,
};

const create: CommandSpec = {
  name: 'create',
  summary: 'create a token',
  group: 'Maintain',
  description:
    'Generates a random token and prints it, only once. The configuration needs only its ' +
    'SHA-256; the line for it is printed on stderr.',
  options: [NAME, ROLE],
  examples: [
    {
      line: 'respool token create --name shop --role post',
      does: 'a token that can post messages and nothing else',
    },
  ],
  run: async ({ options, out }) => {
    const { name, role } = nameAndRole(options);
    const token = `${PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`;
    const sha256 = sha256Of(token);
    if (out.json) await out.object({ id: name, role, token, sha256 });
    else await out.line(token);
    noteLine(out, { name, role, sha256 });
    out.note('Keep the token itself where its bearer finds it, as RESPOOL_TOKEN. It is not shown');
    out.note('again.');
    return undefined;
  },
};

const hash: CommandSpec = {
  name: 'hash',
  summary: 'the SHA-256 of a token that is read from stdin',
  group: 'Maintain',
  description:
    'Reads a token from stdin and prints its SHA-256, for serve.tokens. A token is never ' +
    'taken from the command line, because every user of the machine can read that.',
  options: [NAME, ROLE],
  examples: [
    { line: 'respool token hash < token.txt', does: 'the SHA-256 of the token in a file' },
  ],
  run: async ({ options, io, out }) => {
    if (io.isTTY('stdin')) out.note('Paste the token, then Enter and Ctrl-D:');
    const sha256 = sha256Of(await readToken(io.stdin));
    const isNamed = options.text('name') !== undefined || options.text('role') !== undefined;
    const named = isNamed ? nameAndRole(options) : undefined;
    if (out.json) await out.object({ id: named?.name ?? sha256, role: named?.role, sha256 });
    else await out.line(sha256);
    if (named !== undefined) noteLine(out, { ...named, sha256 });
    return undefined;
  },
};

/** `respool token create|hash` */
export const tokenCommand: CommandSpec = {
  name: 'token',
  summary: 'create a token for the service',
  group: 'Maintain',
  description: 'Generates tokens for the service. A configuration holds only their SHA-256.',
  subcommands: [create, hash],
};

function nameAndRole(options: CommandContext['options']): { name: string; role: string } {
  const name = options.text('name');
  const role = options.text('role');
  if (name === undefined || role === undefined) {
    throw new CommandError(
      'usage.invalid',
      'a token needs a name and a role: --name shop --role post; see: respool token create --help',
    );
  }
  if (!NAME_PATTERN.test(name)) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${name}" as --name: allowed is 1 to 64 of A-Z a-z 0-9 . _ @ -`,
    );
  }
  return { name, role };
}

/**
 * The line for the configuration, in a form that TypeScript, JSON and YAML all take. Exactly one
 * line of stderr has the word sha256, because scripts search for it, as in
 * docs/how-to/secure-the-service.md.
 */
function noteLine(out: Out, entry: Readonly<Record<string, string>>): void {
  const pairs = Object.entries(entry).map(([key, value]) => `"${key}": "${safe(value)}"`);
  out.note('The line for serve.tokens of the configuration:');
  out.note(`  { ${pairs.join(', ')} }`);
  // Says "hash", not "sha256": scripts search the output for "sha256".
  if (entry['role'] === 'admin') {
    out.note(
      'If it is the only token, serve.token takes its hash: docs/how-to/secure-the-service.md',
    );
  }
}

function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

async function readToken(stdin: Readable): Promise<string> {
  let bytes = Buffer.alloc(0);
  for await (const piece of stdin) {
    bytes = Buffer.concat([bytes, Buffer.from(piece as Uint8Array)]);
    if (bytes.byteLength > INPUT_MAX_BYTES) break;
  }
  const text = bytes.toString('utf8').replace(/\r?\n$/, '');
  if (TOKEN_PATTERN.test(text)) return text;
  // What was given may be most of a token: it is not shown.
  throw new CommandError(
    'usage.invalid',
    'cannot use the input as a token: allowed is one line of 1 to 512 visible ASCII ' +
      'characters',
  );
}

/**
 * cat — prints the body of a message. Raw to a file or pipe; to a terminal only what is safe to
 * look at, unless `--raw` asks for the bytes.
 *
 * Also `respool outbox cat`: outbox/messages.ts.
 */

import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { wholeIds } from '../../id-prefix.ts';
import { idBatches, type MakeWhole } from '../../select-messages.ts';
import type { Out } from '../../ui/output.ts';
import { idProgress } from '../../ui/progress.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';

/** How much of a body a terminal shows. Also in the description below. */
const SHOWN_MAX_BYTES = 64 * 2 ** 10;
/** The largest body that `--json` puts into one line. */
const JSON_MAX_BYTES = 16 * 2 ** 20;
const HEX_COLUMNS = 16;

/** `respool cat` */
export const catCommand: CommandSpec = {
  name: 'cat',
  summary: "print a message's body",
  group: 'Messages',
  description:
    'Writes the bytes as they are to a file or pipe. A terminal shows text without control ' +
    'characters, or hex, up to 64 KiB; --raw writes the bytes there too.',
  arguments: [
    {
      name: '<id...>',
      description:
        'messages, one body after the other; also by the beginning of an id; - reads stdin',
    },
  ],
  options: [{ flags: '--raw', description: 'write the bytes unchanged, even to a terminal' }],
  examples: [
    {
      line: 'respool cat 0198f0c2-8a3e-7c41-9d2b-5f60718293a4 > body.json',
      does: 'saves the body in a file',
    },
  ],
  role: 'read',
  run: async (context) => {
    let code: ExitCode = EXIT.done;
    let printed = 0;
    const bar = idProgress(context);
    try {
      const whole: MakeWhole = async (typed) =>
        wholeIds(typed, {
          ...context,
          operator: (await context.session()).operator,
          isActing: false,
        });
      for await (const { ids, bad } of idBatches(context.args, context.io, whole)) {
        for (const id of ids) {
          await printBody(context, id);
          printed += 1;
          bar.show(printed);
        }
        if (bad.length > 0) bar.clear();
        for (const { why } of bad) context.out.warn(why);
        if (bad.length > 0) code = EXIT.refused;
      }
    } finally {
      bar.clear();
    }
    return code;
  },
};

async function printBody({ session, io, options, out }: CommandContext, id: string): Promise<void> {
  const { operator } = await session();
  const body = await operator.body(id);
  if (out.json) await out.object(await jsonOf(id, body));
  else if (options.flag('raw') || !io.isTTY('stdout')) {
    for await (const piece of body) await out.write(piece);
  } else await showBody(out, body);
}

async function jsonOf(id: string, body: AsyncIterable<Uint8Array>): Promise<object> {
  const { bytes, isCut } = await head(body, JSON_MAX_BYTES);
  if (isCut) {
    throw new CommandError(
      'usage.invalid',
      `cannot print the body of message "${id}" as JSON: it is larger than ${JSON_MAX_BYTES} ` +
        'bytes; leave --json away and write it to a file',
    );
  }
  const text = textOfBytes(bytes, false);
  return text === undefined
    ? { id, encoding: 'base64', body: bytes.toString('base64') }
    : { id, encoding: 'utf8', body: text };
}

async function showBody(out: Out, body: AsyncIterable<Uint8Array>): Promise<void> {
  const { bytes, isCut } = await head(body, SHOWN_MAX_BYTES);
  const text = textOfBytes(bytes, isCut);
  const shown = text === undefined ? hexOf(bytes) : safe(text, { multiline: true });
  if (shown !== '') await out.line(shown.replace(/\n$/, ''));
  if (isCut) out.note(`cut after ${SHOWN_MAX_BYTES} bytes; write it to a file to see the rest`);
}

async function head(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<{ bytes: Buffer; isCut: boolean }> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of body) {
    pieces.push(piece);
    size += piece.byteLength;
    if (size > maxBytes) break;
  }
  return { bytes: Buffer.concat(pieces).subarray(0, maxBytes), isCut: size > maxBytes };
}

/** The bytes as text, or undefined when they are none. */
function textOfBytes(bytes: Buffer, isCut: boolean): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    // The cut may have gone through a character: then its beginning is left out.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, {
      stream: isCut,
    });
  } catch {
    return undefined;
  }
}

function hexOf(bytes: Buffer): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += HEX_COLUMNS) {
    const row = bytes.subarray(at, at + HEX_COLUMNS);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const text = [...row].map((byte) => (byte >= 0x20 && byte < 0x7f ? byte : 0x2e));
    const shown = String.fromCharCode(...text);
    lines.push(`${at.toString(16).padStart(8, '0')}  ${hex.padEnd(HEX_COLUMNS * 3)} ${shown}`);
  }
  return lines.join('\n');
}

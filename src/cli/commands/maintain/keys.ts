/**
 * keys — `keys generate` prints a new encryption key and stores nothing; `rekey` re-encrypts
 * stored bodies and entries with the key that the configuration names now.
 */

import { endedBy, EXIT, type ExitCode } from '../../exit-codes.ts';
import { stopOnSignal } from '../../lifetime.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { ask } from '../../ui/confirm.ts';
import type { Out } from '../../ui/output.ts';
import { COUNTING, createProgress, during } from '../../ui/progress.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { RekeyProgress } from '../../../spool/rekey.ts';

const generate: CommandSpec = {
  name: 'generate',
  summary: 'generate a key',
  group: 'Maintain',
  description:
    'Generates a random key of 32 bytes and prints it in base64, only once. How to use it ' +
    'is printed on stderr. Without the key, encrypted data is lost: keep a copy elsewhere.',
  examples: [
    { line: '(umask 077; respool keys generate > k1.key)', does: 'a key in a file of your own' },
  ],
  run: async ({ out }) => {
    const { generateKey } = await import('../../../transforms/index.ts');
    const key = generateKey();
    if (out.json) await out.object({ key });
    else await out.line(key);
    out.note(
      'Keep it as a variable or in a file that only the service can read, and name its place:',
    );
    out.note('  transforms: [zstd, { encrypt: { keys: { k1: "env:SPOOL_KEY" } } }]');
    out.note('To change keys, add the new one, set primary to its id, and run: respool rekey');
    out.note('Without the key, encrypted data is lost: keep a copy elsewhere.');
    return undefined;
  },
};

/** `respool keys generate` */
export const keysCommand: CommandSpec = {
  name: 'keys',
  summary: 'generate a key for the encryption of bodies',
  group: 'Maintain',
  description:
    'Generates keys for encrypt and seal. A configuration says where the keys are stored.',
  subcommands: [generate],
};

/** Maximum number of messages with an unreadable body that are named. */
const TROUBLES_SHOWN_MAX = 10;

const SEAL_NOTE =
  'The audit record and pauses keep the key of the seal that they were written with: the old ' +
  'one stays needed until they are trimmed and resumed.';

/** `respool rekey` */
export const rekeyCommand: CommandSpec = {
  name: 'rekey',
  summary: 're-encrypt stored data with the configured keys',
  group: 'Maintain',
  description:
    'Counts the bodies and sealed entries that are not encrypted as new ones would be: with ' +
    'another key or cipher, not at all although they should be, or although they should ' +
    'not. Asks, then re-encrypts them as configured while deliveries continue. It can be ' +
    'stopped and run again. When it has finished, no stored body needs the old key. Exits ' +
    'with 1 when some are left.',
  options: [
    { flags: '--yes', description: 'do not ask' },
    { flags: '--dry-run', description: 'only count, change nothing' },
  ],
  examples: [
    { line: 'respool rekey --dry-run', does: 'how many would be re-encrypted' },
    { line: 'respool rekey --yes', does: 're-encrypts them, with a progress bar on a terminal' },
  ],
  role: 'admin',
  run: async (context) => {
    const { options, out } = context;
    const { operator } = await context.session();
    const { count } = await during(context, COUNTING, () => operator.rekey({ dryRun: true }));
    if (options.flag('dryRun')) {
      if (out.json) await out.object({ action: 'rekey', count, dryRun: true });
      else await out.line(`would rekey ${messages(count)}`);
      return EXIT.done;
    }
    if (count === 0) {
      if (out.json) await out.object({ action: 'rekey', ...NOTHING });
      else await out.line('everything is encrypted as it should be; nothing to do');
      return EXIT.done;
    }
    await ask(context, `rekey ${messages(count)}?`);
    const code = await tell(out, await runRekey(context, count));
    if ((await context.session()).isSealed) out.note(SEAL_NOTE);
    return code;
  },
};

const NOTHING: RekeyProgress = { count: 0, done: 0, left: 0, unreadable: 0, troubles: [] };

async function runRekey(
  { session, io, out }: CommandContext,
  counted: number,
): Promise<RekeyProgress> {
  const { operator } = await session();
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  let last: RekeyProgress = { ...NOTHING, count: counted, left: counted };
  const onProgress = (progress: RekeyProgress): void => {
    last = progress;
    bar.show(progress.count - progress.left, progress.count);
  };
  try {
    return await operator.rekey({ signal: stop.signal, onProgress });
  } catch (error) {
    const stoppedBy = stop.by();
    if (stoppedBy === undefined) throw error;
    const { done, count } = last;
    const text = ` after ${numberText(done)} of ${messages(count)}; run it again for the rest`;
    throw endedBy(stoppedBy, text);
  } finally {
    stop.off();
    bar.clear();
  }
}

async function tell(out: Out, progress: RekeyProgress): Promise<ExitCode> {
  const { done, left, unreadable, troubles } = progress;
  const end = left + unreadable > 0 ? EXIT.refused : EXIT.done;
  if (out.json) {
    await out.object({ action: 'rekey', ...progress });
    return end;
  }
  for (const { id, text } of troubles.slice(0, TROUBLES_SHOWN_MAX)) {
    out.note(`${safe(id)}: ${safe(text)}`);
  }
  const parts = [`rekeyed ${numberText(done)}`];
  if (left > 0) parts.push(`left ${numberText(left)} that were being delivered: run it again`);
  const isLocked = troubles.length > 0 && troubles.every(({ code }) => code === 'key.unavailable');
  const todo = isLocked ? 'add their keys, and run it again' : 'see respool check';
  if (unreadable > 0) parts.push(`cannot read ${numberText(unreadable)}: ${todo}`);
  await out.line(parts.join(', '));
  return end;
}

function messages(count: number): string {
  return count === 1 ? '1 message' : `${numberText(count)} messages`;
}

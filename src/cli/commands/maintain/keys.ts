/** keys — make a key for encryption. Nothing is written down here. */

import type { CommandSpec } from '../../spec.ts';

const generate: CommandSpec = {
  name: 'generate',
  summary: 'make a key',
  group: 'Looking after',
  description:
    'Makes a random key of 32 bytes and prints it in base64, this one time. How to use it is ' +
    'printed on stderr. What is encrypted with a key is lost with it: keep a copy elsewhere.',
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
    out.note('What is encrypted with a key is lost with it: keep a copy elsewhere.');
    return undefined;
  },
};

/** `respool keys generate` */
export const keys: CommandSpec = {
  name: 'keys',
  summary: 'make a key for the encryption of bodies',
  group: 'Looking after',
  description: 'Makes keys for encrypt and seal. A configuration names the places of keys.',
  subcommands: [generate],
};

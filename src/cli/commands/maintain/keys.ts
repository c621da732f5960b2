/** keys — generate a key for encryption. Nothing is written down here. */

import type { CommandSpec } from '../../spec.ts';

const generate: CommandSpec = {
  name: 'generate',
  summary: 'generate a key',
  group: 'Maintain',
  description:
    'Makes a random key of 32 bytes and prints it in base64, this one time. How to use it is ' +
    'printed on stderr. Without its key, encrypted data is lost: keep a copy of the key elsewhere.',
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
    out.note('Without its key, encrypted data is lost: keep a copy of the key elsewhere.');
    return undefined;
  },
};

/** `respool keys generate` */
export const keys: CommandSpec = {
  name: 'keys',
  summary: 'generate a key for the encryption of bodies',
  group: 'Maintain',
  description: 'Makes keys for encrypt and seal. A configuration names the places of keys.',
  subcommands: [generate],
};

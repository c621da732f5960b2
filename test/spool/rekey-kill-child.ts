/**
 * rekey-kill-child — rekeys a spool on SQLite and files from key to key without an end, and prints a
 * letter for each message; its parent kills it somewhere in between.
 */
import { createSpool } from 'respool';
import { encrypt } from 'respool/transforms';

const [path = ''] = process.argv.slice(2);
const keys = { k1: Buffer.alloc(32, 1), k2: Buffer.alloc(32, 2) };

for (let turn = 0; ; turn += 1) {
  const primary = turn % 2 === 0 ? 'k2' : 'k1';
  const spool = createSpool({ path, transforms: [encrypt({ keys, primary })] });
  await spool.operator({ by: 'ops' }).rekey({ onProgress: () => process.stdout.write('.') });
  await spool.stop();
}

/** Run as a program by lifetime-lock.test.ts: takes the lock, leaves a word, and lives on. */

import { takeLifetimeLock } from '../../../src/stores/shared/lifetime-lock.ts';

const lock = await takeLifetimeLock(process.argv[2] ?? '');
await lock?.note('here');
// Whoever listens to its parent lives until the parent lets go.
process.on('message', () => undefined);
process.send?.(lock === undefined ? 'refused' : 'taken');

/** Opens the store in the folder it is given, says so, and holds it until it is killed. */
import { filesystem } from 'respool/stores/filesystem';
import { SAMPLE_AT, sampleEntries } from 'respool/testkit';

const store = filesystem({ path: process.argv[2] ?? '' });
await store.open();
await store.insert(sampleEntries(3, 'm'));
await store.claim({
  lane: 'delivery',
  states: ['incoming'],
  max: 2,
  now: SAMPLE_AT,
  leaseMs: 3_600_000,
  holder: `${store.instance}:1`,
});
process.stdout.write(`open ${store.instance}\n`);
// Keeps the process alive; the store itself does not while it rests.
process.stdin.resume();

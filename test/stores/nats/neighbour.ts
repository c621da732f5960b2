/** A process of its own that claims and removes what it can, and tells what it was told. */

import { nats } from 'respool/stores/nats';
import { systemClock } from '../../time.ts';

const [url = '', bucket = ''] = process.argv.slice(2);
const store = nats({ url, bucket });
await store.open();
process.send?.({ ready: store.instance });
let claims = 0;
process.on('message', () => void work());

async function work(): Promise<void> {
  for (;;) {
    claims += 1;
    const taken = await store.claim({
      lane: 'delivery',
      states: ['incoming', 'active'],
      max: 7,
      now: systemClock.now(),
      leaseMs: 60_000,
      holder: `${store.instance}:${claims}`,
    });
    if (taken.length === 0) break;
    const results = await store.commit(
      taken.map(({ envelope: { id }, status: { revision, holder = '' } }) => ({
        id,
        revision,
        holder,
        to: 'remove' as const,
      })),
    );
    const done = taken.flatMap(({ envelope }, at) => (results[at] === 'done' ? envelope.id : []));
    process.send?.({ done });
  }
  await store.close();
  process.send?.({ over: true });
  process.disconnect();
}

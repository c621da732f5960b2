/** When a relay looks at its table: when it is told, when something is due, and hardly ever else. */
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { createOutbox } from 'respool/outbox';
import type { Clock } from 'respool';
import { countQueries, ground, idsOf, isClaim, told } from './relay-ground.ts';
import { systemClock } from '../time.ts';

/** The longest rest of a store between two looks. */
const LOOK_MAX_MS = 1_000;

withService('postgres', () => {
  withService('rabbitmq', () => {
    describe('a relay', () => {
      test('that has nothing to do asks next to nothing, and no claim', async () => {
        const looks = rareLooks();
        const place = await ground({ clock: looks.clock });
        const { emit, relay, broker } = place;
        const counted = countQueries(place);
        const one = relay();
        await one.start();
        // Something to wait for.
        await emit(1, { eta: '1h' });
        await expect.poll(() => counted.texts.some(isClaim)).toBe(true);
        await looks.begun(2);
        counted.texts.length = 0;
        await looks.begun(5);
        // A look each second, and what the emit may have caused.
        expect(counted.texts.filter(isClaim)).toHaveLength(0);
        expect(counted.texts.length).toBeLessThanOrEqual(8);
        expect(broker.messages).toHaveLength(0);
        await one.stop();
      });

      test('sends at the time of a message, not at the next look', async () => {
        const { emit, relay, broker } = await ground();
        const one = relay({ poll: '1h' });
        await one.start();
        const began = performance.now();
        const [id = ''] = await emit(1, { eta: '1500ms' });
        expect(idsOf(await broker.arrived(1))).toEqual([id]);
        expect(performance.now() - began).toBeGreaterThanOrEqual(1_450);
        await one.stop();
      });

      test('is woken by wake() of its outbox, and by NOTIFY in another process', async () => {
        const looks = rareLooks();
        const { clock } = looks;
        const place = await ground({ listens: true, clock });
        const { emit, relay, broker, outbox, pool, schema } = place;
        // Knows of no relay, as one in another process: only the server can tell them.
        const apart = createOutbox({ pool, schema });
        const one = relay({ poll: '1h' });
        await one.start();
        // From here on it looks no more: what is not told to it stays where it is.
        looks.end();
        await looks.begun(1);
        for (const teller of [outbox, apart]) {
          for (let round = 1; round <= 5; round += 1) {
            const isIdle = { running: 0, settling: 0, waiting: 0 };
            await expect.poll(() => one.load).toMatchObject(isIdle);
            const count = broker.messages.length;
            await emit(1);
            await teller.wake();
            await broker.arrived(count + 1);
          }
        }
        await apart.close();
        await one.stop();
      });

      test('finds what nobody told of', async () => {
        const { emit, relay, broker } = await ground();
        const one = relay({ poll: '1h' });
        const delivered = told(one, 'delivered');
        await one.start();
        const [id = ''] = await emit(1);
        expect(idsOf(await broker.arrived(1))).toEqual([id]);
        await delivered;
        await one.stop();
      });
    });
  });
});

/** A clock that knows of the looks of an idle store: as rare as they get, each second. */
function rareLooks(): {
  readonly clock: Clock;
  /** Resolves when so many have been ordered. */
  begun(count: number): Promise<void>;
  /** Those that are ordered from now on do not come. */
  end(): void;
} {
  let [ordered, isEnded] = [0, false];
  const after: Clock['after'] = (ms, call) => {
    if (ms !== LOOK_MAX_MS) return systemClock.after(ms, call);
    ordered += 1;
    return isEnded ? () => undefined : systemClock.after(ms, call);
  };
  return {
    clock: { ...systemClock, after },
    begun: (count) => expect.poll(() => ordered).toBeGreaterThanOrEqual(count),
    end: () => {
      isEnded = true;
    },
  };
}

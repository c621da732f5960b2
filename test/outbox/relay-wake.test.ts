/** When a relay looks at its table: when it is told, when something is due, and hardly ever else. */
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { createOutbox } from 'respool/outbox';
import { countQueries, ground, idsOf, isClaim, quiet, told } from './relay-ground.ts';

withService('postgres', () => {
  withService('rabbitmq', () => {
    describe('a relay', () => {
      test('that has nothing to do asks next to nothing, and no claim', async () => {
        const place = await ground();
        const { emit, relay, broker } = place;
        const counted = countQueries(place);
        const one = relay();
        await one.start();
        // Something to wait for.
        await emit(1, { eta: '1h' });
        await expect.poll(() => counted.texts.some(isClaim)).toBe(true);
        await quiet(1_500);
        counted.texts.length = 0;
        await quiet(3_000);
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
        const { emit, relay, broker, outbox, pool, schema } = await ground({ listens: true });
        // Knows of no relay, as one in another process: only the server can tell them.
        const apart = createOutbox({ pool, schema });
        const one = relay({ poll: '1h' });
        await one.start();
        // Long enough that looks have become as rare as they get.
        await quiet(3_500);
        for (const teller of [outbox, apart]) {
          const medianMs = async (): Promise<number> => {
            const tookMs: number[] = [];
            for (let round = 1; round <= 11; round += 1) {
              const count = broker.messages.length;
              await emit(1);
              const began = performance.now();
              await teller.wake();
              await broker.arrived(count + 1);
              tookMs.push(performance.now() - began);
            }
            return tookMs.toSorted((a, b) => a - b)[5] ?? Number.NaN;
          };
          // A look alone comes every second by then, so it would take half of that on average.
          // Several tries, as a busy machine may need that long, too.
          await expect.poll(medianMs).toBeLessThan(250);
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

/** On a broker, the due time of a deferral is when its wait queue gives the message back. */
import { expect, test } from 'vitest';
import { type EventOf, exponential, fixed, type RetryPolicy } from 'respool';
import { perAttempt, perDelay, shared } from 'respool/rabbit';
import { consume, Hands, ownName, Tray } from './ground.ts';
import { systemClock } from '../time.ts';

const MESSAGES = 5;
const ATTEMPTS = 3;

interface Arrival {
  readonly id: string;
  readonly attempt: number;
  readonly at: number;
}

const styles = {
  shared: (queue: string) => shared({ prefix: queue }),
  'per delay': () => perDelay(),
  'per delay by exchange': (queue: string) => perDelay({ by: 'exchange', exchange: queue }),
  'per attempt': () => perAttempt(),
};
const policies: Readonly<Record<string, RetryPolicy>> = {
  'a delay of its own queue': fixed('200ms', { attempts: ATTEMPTS }),
  'growing delays': exponential({ first: '100ms', max: '2s', attempts: ATTEMPTS, jitter: 0 }),
  'delays with jitter': exponential({ first: '150ms', max: '2s', attempts: ATTEMPTS, jitter: 0.5 }),
};

const cases = Object.keys(styles).flatMap((style) =>
  Object.keys(policies).map((policy) => [style, policy] as const),
);

test.each(cases)('%s, %s: no attempt begins before the told time', async (style, name) => {
  const queue = ownName('due');
  const topology = styles[style as keyof typeof styles](queue);
  const policy = policies[name] as RetryPolicy;
  const arrivals = new Tray<Arrival>();
  const told = new Tray<EventOf<'deferred'>>();
  const consumer = await consume(
    { queue, topology, policy },
    ({ id, attempt }) => {
      arrivals.add({ id, attempt, at: systemClock.now() });
      throw new Error('not yet');
    },
    { isStarted: false },
  );
  consumer.on('deferred', (event) => told.add(event));
  await consumer.start();
  const hands = await Hands.open();
  for (let at = 0; at < MESSAGES; at += 1) {
    await hands.publish('', queue, {}, { messageId: `m-${at}` });
  }
  await arrivals.until(MESSAGES * ATTEMPTS);
  const deferrals = await told.until(MESSAGES * (ATTEMPTS - 1));
  for (const { id, attempt, at, dueAt } of deferrals) {
    const tried = arrivals.items.find((one) => one.id === id && one.attempt === attempt);
    const next = arrivals.items.find((one) => one.id === id && one.attempt === attempt + 1);
    expect(next?.at).toBeGreaterThanOrEqual(dueAt);
    // What was told is the length of a wait queue that there is, from the end of the attempt on.
    const waits = consumer.plan.waitsMs.map((waitMs) => dueAt - waitMs);
    expect(waits.some((from) => from >= (tried?.at ?? 0) && from <= at)).toBe(true);
  }
});

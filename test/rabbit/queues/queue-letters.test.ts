/** A dead queue behind the door: looking, taking, and giving back in order. */

import { describe, expect, test } from 'vitest';
import { createQueueLetters, perDelay } from 'respool/rabbit';
import type { Caution, Letter } from '../../../src/ports/dead-letters.ts';
import { service, withService } from '../../services/index.ts';
import { orderOf } from '../admin/setup.ts';
import { until } from '../until.ts';
import {
  bodiesOf,
  lettersOf,
  named,
  REMOVE,
  SEND,
  settleAll,
  setup,
  TYPES,
} from './queue-letters-ground.ts';

describe('options', () => {
  const url = 'amqp://localhost';
  test.each<[string, object, RegExp]>([
    ['an unknown name', { url, queue: 'q', ques: 1 }, /no option "ques"/],
    ['no queue', { url, queue: '' }, /"queue"/],
    ['another kind', { url, queue: 'q', kind: 'archived' }, /dead \| parked/],
    ['no limit', { url, queue: 'q', lookMax: 0 }, /"lookMax"/],
    ['no parked queue', { url, queue: 'q', parkedQueue: '' }, /"parkedQueue"/],
    ['no broker', { queue: 'q' }, /either "url" or "connection"/],
  ])('are refused: %s', (_, options, text) => {
    expect(() => createQueueLetters(options as never)).toThrow(text);
  });

  test('a hand that holds nothing is refused', () => {
    const door = createQueueLetters({ url, queue: 'q' });
    expect(() => door.take({ isWanted: () => true, inHand: 0 })).toThrow(/"inHand"/);
    expect(() => door.take({ isWanted: () => true, inHand: 1_001 })).toThrow(/1000/);
  });

  test('a door has the name of its queue', () => {
    expect(createQueueLetters({ url, queue: 'orders.dlq' }).name).toBe('queue "orders.dlq"');
  });
});

withService('rabbitmq', () => {
  describe.each(TYPES)('a %s queue', (type) => {
    test('keeps its order through looks that end early, loops that are left, and sends', async () => {
      const ground = await setup(type);
      const bodies = named(600);
      await ground.put(bodies);
      const door = ground.open();
      for (const max of [600, 7, 450, 1]) await lettersOf(door, { max });
      for (const last of [3, 60, 599]) {
        for await (const { letter } of door.take({ isWanted: () => true, inHand: 1_000 })) {
          if (letter.id === bodies[last]) break;
        }
      }
      await settleAll(door, SEND, ({ id }) => id === bodies[70] || id === bodies[599]);
      const rest = bodies.filter((_, at) => at !== 70 && at !== 599);
      expect((await lettersOf(door)).map(({ id }) => id)).toEqual(rest);
      expect(bodiesOf(await ground.lying(ground.queue, 598))).toEqual(rest);
      expect(bodiesOf(await ground.lying(ground.home, 2))).toEqual([bodies[70], bodies[599]]);
    });

    test('of 2,000 is gone through to its end, looking and taking', async () => {
      const ground = await setup(type);
      await ground.put(named(2_000));
      const door = ground.open();
      expect(await lettersOf(door)).toHaveLength(2_000);
      const settling: Promise<{ readonly kind: string }>[] = [];
      for await (const taken of door.take({ isWanted: () => true })) {
        settling.push(door.settle(taken, SEND));
      }
      const kinds = (await Promise.all(settling)).map(({ kind }) => kind);
      expect(new Set(kinds)).toEqual(new Set(['done']));
      expect(bodiesOf(await ground.lying(ground.home, 2_000))).toEqual(named(2_000));
      expect(await door.count()).toBe(0);
    });

    test('has letters without ids, which are told apart and keep theirs from then on', async () => {
      const ground = await setup(type);
      const { hands, queue, home } = ground;
      const headers = { 'respool-queue': home };
      for (const body of ['a', 'b', 'a']) {
        await hands.publish('', queue, Buffer.from(body), { headers });
      }
      const door = ground.open();
      const ids = (await lettersOf(door)).map(({ id }) => id);
      expect(ids[0]).toBe(ids[2]);
      expect(new Set(ids).size).toBe(2);
      expect((await lettersOf(door)).map(({ id }) => id)).toEqual(ids);
      await settleAll(door, SEND);
      const sent = await ground.lying(home, 3);
      expect(sent.map(({ properties }) => properties.messageId)).toEqual(ids);
    });

    test('has two copies of one message, each of which is settled by itself', async () => {
      const ground = await setup(type);
      await ground.put(['a', 'a', 'b']);
      const door = ground.open();
      const keys = (await lettersOf(door)).map(({ key }) => key);
      expect(keys[0]).toBe(keys[1]);
      let seen = 0;
      for await (const taken of door.take({ isWanted: ({ id }) => id === 'a' })) {
        seen += 1;
        if (seen === 1) expect(await door.settle(taken, REMOVE)).toEqual({ kind: 'done' });
      }
      expect(seen).toBe(2);
      expect((await lettersOf(door)).map(({ id }) => id)).toEqual(['a', 'b']);
    });
  });

  test('a body is there until the next letter is asked for, and is a copy', async () => {
    const ground = await setup();
    await ground.put(['a', 'b']);
    const loop = ground.open().look()[Symbol.asyncIterator]();
    const { value: first } = await loop.next();
    const body = await first.body();
    body[0] = 0;
    expect(Buffer.from(await first.body()).toString()).toBe('a');
    const { value: second } = await loop.next();
    await expect(first.body()).rejects.toMatchObject({ code: 'body.missing' });
    expect(Buffer.from(await second.body()).toString()).toBe('b');
    await loop.return?.();
    expect(bodiesOf(await ground.lying(ground.queue, 2))).toEqual(['a', 'b']);
  });

  test('a queue that somebody works on is refused, and free when that one is done', async () => {
    const ground = await setup();
    await ground.put(['a']);
    const [door, other] = [ground.open(), ground.open({ url: await service('rabbitmq') })];
    for await (const taken of door.take({ isWanted: () => true })) {
      const refused = settleAll(other, SEND);
      await expect(refused).rejects.toMatchObject({
        code: 'move.refused',
        message: expect.stringMatching(/another look, sweep or replay works on it/),
      });
      await expect(other.look()[Symbol.asyncIterator]().next()).rejects.toMatchObject({
        code: 'move.refused',
        message: expect.stringMatching(/cannot look at the queue .* another look, sweep/),
      });
      await door.settle(taken, { kind: 'leave' });
    }
    expect(await settleAll(other, SEND)).toEqual([{ kind: 'done' }]);
  });

  test('whoever holds messages is noticed, with a consumer and without', async () => {
    const ground = await setup();
    await ground.put(['a', 'b']);
    const door = ground.open({ management: ground.management });
    expect(await door.isAlone()).toBe(true);
    const { channel } = ground.hands;
    const { consumerTag } = await channel.consume(ground.queue, () => undefined);
    expect(await door.isAlone()).toBe(false);
    await channel.cancel(consumerTag);
    // Held by a channel, and no consumer any more.
    expect(await door.isAlone()).toBe(false);
  });

  test('a queue that is not there is named', async () => {
    const ground = await setup();
    const door = ground.open({ queue: `${ground.home}.none`, isTrusted: true });
    const missing = expect.stringMatching(/no queue "t-home-.*\.none"/);
    await expect(door.count()).rejects.toMatchObject({ message: missing });
    await expect(lettersOf(door)).rejects.toThrow();
  });

  test('a look that cannot begin leaves the queue free for others', async () => {
    const ground = await setup();
    const options = { queue: `${ground.queue}.late`, isTrusted: true };
    await expect(lettersOf(ground.open(options))).rejects.toThrow(/there is no queue/);
    await ground.declare(options.queue);
    expect(await lettersOf(ground.open(options))).toEqual([]);
  });

  test('the kind goes by the option, by the plan, and by the name', async () => {
    const ground = await setup();
    const plan = perDelay().plan(orderOf(ground.home));
    const { queue, parked } = ground;
    await ground.put(['a']);
    await ground.declare(parked);
    await ground.hands.publish('', parked, 'x');
    const kindOf = async (options: Parameters<typeof ground.open>[0]) =>
      (await lettersOf(ground.open(options)))[0]?.kind;
    expect(await kindOf({ queue })).toBe('dead');
    expect(await kindOf({ queue, plans: [plan] })).toBe('dead');
    expect(await kindOf({ queue: parked })).toBe('parked');
    expect(await kindOf({ queue: parked, plans: [plan] })).toBe('parked');
    expect(await kindOf({ queue, kind: 'parked' })).toBe('parked');
  });

  test('a look goes as far as the door allows, unless it says so itself', async () => {
    const ground = await setup();
    await ground.put(['a', 'b', 'c']);
    const door = ground.open({ lookMax: 2 });
    expect(await lettersOf(door)).toHaveLength(2);
    expect(await lettersOf(door, { max: 3 })).toHaveLength(3);
    // Those that do not fit count, too.
    expect(await lettersOf(door, { query: { ids: ['c'] } })).toEqual([]);
  });

  test('what looking costs is told once, before the first look', async () => {
    const ground = await setup('quorum');
    await ground.put(['a']);
    const told: Caution[] = [];
    const door = ground.open({ onCaution: (caution) => told.push(caution) });
    const caution = await door.caution();
    expect(caution).toMatchObject({ kind: 'counted' });
    expect(told).toEqual([]);
    await lettersOf(door);
    await lettersOf(door);
    expect(told).toEqual([caution]);
  });

  test('a queue that drops what is looked at too often is not looked at', async () => {
    const ground = await setup('quorum');
    const queue = await ground.declare(`${ground.home}.limited`, { 'x-delivery-limit': 3 });
    await ground.hands.publish('', queue, 'x', { messageId: 'x' });
    const door = ground.open({ queue });
    await expect(lettersOf(door)).rejects.toMatchObject({ code: 'move.refused' });
    await expect(settleAll(door, SEND)).rejects.toMatchObject({ code: 'move.refused' });
    expect(await door.count()).toBe(1);
  });

  test('without the management API a queue is looked at only by who is trusted', async () => {
    const ground = await setup('quorum');
    await ground.put(['a']);
    const blind = { management: undefined };
    await expect(lettersOf(ground.open(blind))).rejects.toMatchObject({ code: 'move.refused' });
    expect(await lettersOf(ground.open({ ...blind, isTrusted: true }))).toHaveLength(1);
  });

  test('since tells what came back, by this replay and these ids, and leaves it', async () => {
    const ground = await setup();
    const door = ground.open();
    expect(await door.since('r1', ['a'])).toEqual({ failed: [], delivered: [] });
    await ground.put(['a', 'b'], { headers: { 'respool-replay': 'r1' } });
    await ground.put(['c'], { headers: { 'respool-replay': 'r2' } });
    expect(await door.since('r1', ['a', 'c', 'x'])).toEqual({
      failed: [{ id: 'a', code: 'unknown', reason: '' }],
      delivered: [],
    });
    expect(await door.since('r1', [])).toEqual({ failed: [], delivered: [] });
    expect(bodiesOf(await ground.lying(ground.queue, 3))).toEqual(['a', 'b', 'c']);
  });

  test('since says how many letters are beyond the limit of one look', async () => {
    const ground = await setup();
    await ground.put(['a', 'b', 'c'], { headers: { 'respool-replay': 'r1' } });
    const door = ground.open({ lookMax: 2 });
    const since = await door.since('r1', ['b', 'c']);
    expect(since).toMatchObject({ failed: [{ id: 'b' }], unseen: 1 });
    // Nothing else is asked for.
    expect(await door.since('r1', ['a', 'b'])).not.toHaveProperty('unseen');
  });

  test('since says how many letters it did not reach when a look ends before its end', async () => {
    const ground = await setup('classic');
    const queue = await ground.declare(`${ground.home}.single`, {
      'x-single-active-consumer': true,
    });
    // Another consumer is active, and takes one of three: nothing comes to us.
    const channel = await ground.hands.connection.createChannel();
    await channel.prefetch(1);
    await channel.consume(queue, () => undefined);
    for (const id of ['a', 'b', 'c']) await ground.hands.publish('', queue, id, { messageId: id });
    await expect.poll(() => ground.hands.depth(queue)).toBe(2);
    expect(await ground.open({ queue }).since('r1', ['b'])).toMatchObject({ unseen: 2 });
    await channel.close();
  });

  test('since is refused while another look has all letters in hand', async () => {
    const ground = await setup('quorum');
    await ground.put(['a', 'b'], { headers: { 'respool-replay': 'r1' } });
    const looking = ground.open().look()[Symbol.asyncIterator]();
    await looking.next();
    const door = ground.open();
    await expect.poll(() => door.count()).toBe(0);
    await expect(door.since('r1', ['a'])).rejects.toMatchObject({ code: 'move.refused' });
    await looking.return?.();
    await expect
      .poll(() => door.since('r1', ['a']))
      .toMatchObject({ failed: [{ id: 'a' }], delivered: [] });
  });

  test('since tells of each letter of one id that came back, as often as it is asked for', async () => {
    const ground = await setup();
    const marked = { headers: { 'respool-replay': 'r1' }, messageId: 'a' };
    await ground.put(['one', 'two', 'three'], marked);
    const door = ground.open();
    const idsOf = async (ids: readonly string[]) =>
      (await door.since('r1', ids)).failed.map(({ id }) => id);
    expect(await idsOf(['a', 'a', 'a', 'a', 'b'])).toEqual(['a', 'a', 'a']);
    expect(await idsOf(['a', 'a'])).toEqual(['a', 'a']);
  });

  test('a letter tells whether the broker delivered it before', async () => {
    const ground = await setup();
    await ground.put(['a']);
    const door = ground.open();
    const looks = [await lettersOf(door), await lettersOf(door)];
    expect(looks.flat().map(({ isRedelivered }) => isRedelivered)).toEqual([false, true]);
  });

  test('waitingAt tells what no consumer has taken, and who could', async () => {
    const ground = await setup();
    const { home, hands } = ground;
    const door = ground.open();
    const name = `queue "${home}"`;
    const routes = [{ kind: 'queue', exchange: '', key: home }] as const;
    await hands.publish('', home, Buffer.from('a'));
    expect(await door.waitingAt?.(routes)).toEqual([{ name, ready: 1, consumers: 0 }]);
    const channel = await hands.connection.createChannel();
    const taken = Promise.withResolvers<void>();
    const { consumerTag } = await channel.consume(home, (message) => {
      if (message !== null) channel.ack(message);
      taken.resolve();
    });
    await taken.promise;
    await expect.poll(() => door.waitingAt?.(routes)).toEqual([{ name, ready: 0, consumers: 1 }]);
    await channel.cancel(consumerTag);
    expect(await door.waitingAt?.(routes)).toEqual([{ name, ready: 0, consumers: 0 }]);
    const missing = [{ kind: 'queue', exchange: '', key: `${home}.none` }] as const;
    expect(await door.waitingAt?.(missing)).toBeUndefined();
    const elsewhere = [{ kind: 'queue', exchange: 'shop', key: home }] as const;
    expect(await door.waitingAt?.(elsewhere)).toBeUndefined();
  });

  test('waitingAt tells on request what consumers hold, where the management API does', async () => {
    const ground = await setup();
    const { home, hands } = ground;
    const routes = [{ kind: 'queue', exchange: '', key: home }] as const;
    await Promise.all(['a', 'b'].map((body) => hands.publish('', home, Buffer.from(body))));
    // Takes both, and never answers.
    const channel = await hands.connection.createChannel();
    await channel.consume(home, () => undefined);
    const door = ground.open();
    await expect
      .poll(() => door.waitingAt?.(routes, { isFull: true }))
      .toMatchObject([{ ready: 0, unacked: 2 }]);
    const blind = ground.open({ management: undefined, isTrusted: true });
    const [state] = (await blind.waitingAt?.(routes, { isFull: true })) ?? [];
    expect([state?.ready, state?.unacked]).toEqual([0, undefined]);
    await channel.close();
  });

  test.each(TYPES)(
    'since can be asked in the middle of a pass through a %s queue',
    async (type) => {
      const ground = await setup(type);
      const bodies = named(300);
      await ground.put(bodies);
      const door = ground.open();
      const again = bodies.slice(0, 20);
      const sent: string[] = [];
      let since: unknown;
      // A pass may end early: it is over when one brings nothing.
      for (let brought = 1; brought > 0; ) {
        brought = 0;
        const isWanted = ({ replays }: Letter): boolean => replays === 0;
        for await (const taken of door.take({ isWanted, inHand: 10 })) {
          brought += 1;
          expect(await door.settle(taken, SEND)).toEqual({ kind: 'done' });
          sent.push(taken.letter.id);
          if (sent.length !== 20) continue;
          await ground.put(again, { headers: { 'respool-replay': 'r1', 'respool-replays': 1 } });
          since = await door.since('r1', bodies);
        }
      }
      expect(since).toEqual({
        failed: again.map((id) => ({ id, code: 'unknown', reason: '' })),
        delivered: [],
      });
      expect(sent.toSorted()).toEqual(bodies);
      expect(bodiesOf(await ground.lying(ground.queue, 20))).toEqual(again);
    },
  );

  test('a door that is closed gives back what is in hand, and frees the queue', async () => {
    const ground = await setup();
    await ground.put(['a', 'b']);
    const [door, other] = [ground.open(), ground.open()];
    const loop = door.take({ isWanted: () => true })[Symbol.asyncIterator]();
    const { value: taken } = await loop.next();
    await door.close();
    expect(await door.settle(taken, REMOVE)).not.toEqual({ kind: 'done' });
    await until(async () => ((await other.count()) === 2 ? true : undefined));
    expect(await settleAll(other, REMOVE)).toHaveLength(2);
  });
});

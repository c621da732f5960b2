/** What becomes of letters of a queue: where they go, and what their copies tell. */

import { expect, test } from 'vitest';
import { goqueue, perDelay } from 'respool/rabbit';
import type { LetterRoute } from '../../../src/ports/dead-letters.ts';
import { userOf } from '../../../src/rabbit/connection/connection.ts';
import { service, withService } from '../../services/index.ts';
import { ownName } from '../ground.ts';
import { orderOf } from '../admin/setup.ts';
import {
  bodiesOf,
  lettersOf,
  named,
  PARK,
  SEND,
  settleAll,
  setup,
} from './queue-letters-ground.ts';
import { systemClock } from '../../time.ts';

withService('rabbitmq', () => {
  test('what is sent has fresh attempts, marks, its first road, and nothing of the broker', async () => {
    const ground = await setup();
    const { home } = ground;
    const headers = {
      'respool-attempts': 9,
      'respool-replays': 1,
      'respool-ended': 'dead',
      'respool-ended-code': 'x',
      'x-death': [
        {
          queue: home,
          reason: 'rejected',
          count: 1,
          exchange: 'shop',
          'routing-keys': ['order.new'],
        },
      ],
      mine: 'kept',
      CC: ['nowhere'],
    };
    await ground.put(['a'], {
      headers,
      priority: 3,
      userId: userOf(await service('rabbitmq')),
      correlationId: 'c1',
    });
    const door = ground.open();
    expect(await settleAll(door, SEND)).toEqual([{ kind: 'done' }]);
    const [sent] = await ground.lying(home, 1);
    const { headers: after, ...properties } = sent?.properties ?? {};
    expect(after).toMatchObject({
      mine: 'kept',
      'respool-attempts': 0,
      'respool-replays': 2,
      'respool-replay': 'r1',
      'respool-replayed-at': expect.any(Number),
      'respool-exchange': 'shop',
      'respool-routing-key': 'order.new',
      'respool-queue': home,
      'respool-user-id': expect.any(String),
    });
    for (const name of ['x-death', 'respool-ended', 'respool-ended-code', 'CC']) {
      expect(after).not.toHaveProperty(name);
    }
    expect(properties).toMatchObject({
      messageId: 'a',
      priority: 3,
      correlationId: 'c1',
      deliveryMode: 2,
      userId: undefined,
      expiration: undefined,
    });
  });

  test('a repair changes what it names, and cannot forge the marks', async () => {
    const ground = await setup();
    await ground.put(['a'], {
      contentType: 'text/plain',
      headers: { keep: 1, drop: 2, none: null },
    });
    const change = {
      body: Buffer.from('b'),
      contentType: 'text/csv',
      headers: { drop: null, add: 'x', 'respool-replays': '0' },
    };
    expect(await settleAll(ground.open(), { ...SEND, change })).toEqual([{ kind: 'done' }]);
    const [sent] = await ground.lying(ground.home, 1);
    expect(sent?.content.toString()).toBe('b');
    expect(sent?.properties.contentType).toBe('text/csv');
    expect(sent?.properties.headers).toMatchObject({
      keep: 1,
      none: null,
      add: 'x',
      'respool-replays': 1,
    });
    expect(sent?.properties.headers).not.toHaveProperty('drop');
  });

  test('a life that is over begins anew with a replay, and one that is not goes on', async () => {
    const ground = await setup();
    const clock = { ...systemClock, now: () => 10_000 };
    await ground.put(['old'], {
      headers: { 'respool-first-at': 1_000, 'respool-expires-after-ms': 500 },
    });
    await ground.put(['young'], {
      headers: { 'respool-first-at': 9_000, 'respool-expires-after-ms': 60_000 },
    });
    await settleAll(ground.open({ clock }), SEND);
    const [old, young] = await ground.lying(ground.home, 2);
    expect(old?.properties.headers).not.toHaveProperty('respool-expires-after-ms');
    expect(young?.properties.headers).toMatchObject({ 'respool-expires-after-ms': 60_000 });
  });

  test('a letter goes through an exchange where that is asked for', async () => {
    const ground = await setup();
    const { hands, home } = ground;
    const other = await ground.declare(`${home}.other`);
    const to: LetterRoute = { kind: 'queue', exchange: 'amq.direct', key: other };
    await hands.channel.bindQueue(other, 'amq.direct', other);
    await ground.put(['a']);
    expect(await settleAll(ground.open(), { ...SEND, to })).toEqual([{ kind: 'done' }]);
    expect(bodiesOf(await ground.lying(other, 1))).toEqual(['a']);
  });

  test('what has nowhere to go is told why, and stays', async () => {
    const ground = await setup();
    const { hands, queue } = ground;
    await hands.publish('', queue, 'x', { messageId: 'unroutable' });
    const nowhere = ownName('nowhere');
    const full = await ground.declare(`${ground.home}.full`, {
      'x-queue-type': 'classic',
      'x-max-length': 0,
      'x-overflow': 'reject-publish',
    });
    const table: readonly (readonly [LetterRoute | undefined, string, RegExp])[] = [
      [undefined, 'route.unknown', /is unknown/],
      [{ kind: 'topic', topic: 'mail' }, 'route.invalid', /the topic "mail"/],
      [{ kind: 'queue', exchange: '', key: queue }, 'route.invalid', /the queue it is in/],
      [{ kind: 'queue', exchange: '', key: nowhere }, 'broker.unroutable', /no queue takes it/],
      [{ kind: 'queue', exchange: nowhere, key: 'k' }, 'broker.unroutable', /no exchange/],
      [{ kind: 'queue', exchange: '', key: full }, 'broker.unconfirmed', /refused it/],
    ];
    const door = ground.open();
    for (const [to, code, reason] of table) {
      const verdict = to === undefined ? SEND : { ...SEND, to };
      const [settled] = await settleAll(door, verdict);
      expect(settled).toEqual({ kind: 'failed', code, reason: expect.stringMatching(reason) });
    }
    expect(await lettersOf(door)).toMatchObject([{ id: 'unroutable' }]);
  });

  test('what is too large for the broker is told so, and stays', async () => {
    const ground = await setup();
    await ground.put(['a', 'b']);
    const change = { headers: { large: 'x'.repeat(200_000) } };
    const door = ground.open();
    const settled = await settleAll(door, { ...SEND, change }, ({ id }) => id === 'a');
    expect(settled).toMatchObject([{ kind: 'failed', code: 'message.invalid' }]);
    expect((await lettersOf(door)).map(({ id }) => id)).toEqual(['a', 'b']);
    expect(await settleAll(door, SEND)).toEqual([{ kind: 'done' }, { kind: 'done' }]);
  });

  test('what is parked tells why, when and by whom, and counts on', async () => {
    const ground = await setup();
    const { parked, home } = ground;
    await ground.put(named(3), { headers: { 'respool-replays': 3, 'respool-attempts': 2 } });
    const clock = { ...systemClock, now: () => 77_000 };
    const settled = await settleAll(ground.open({ clock }), PARK);
    expect(settled).toEqual([{ kind: 'done' }, { kind: 'done' }, { kind: 'done' }]);
    const found = await ground.lying(parked, 3);
    expect(bodiesOf(found)).toEqual(named(3));
    expect(found[0]?.properties.headers).toMatchObject({
      'respool-ended': 'parked',
      'respool-ended-code': 'replay.limit',
      'respool-ended-reason': 'enough',
      'respool-ended-by': 'me',
      'respool-ended-at': 77_000,
      'respool-replays': 3,
      'respool-attempts': 2,
    });
    const [letter] = await lettersOf(ground.open({ queue: parked }));
    expect(letter).toMatchObject({ kind: 'parked', code: 'replay.limit', reason: 'enough' });
    expect(letter?.home).toEqual({ kind: 'queue', exchange: '', key: home });
    expect((await ground.management.queue(parked))?.type).toBe('quorum');
  });

  test('a parked letter whose home nobody knows does not take a dead queue for it', async () => {
    const ground = await setup();
    const { hands, queue, parked } = ground;
    await hands.publish('', queue, 'x', { messageId: 'x' });
    expect(await settleAll(ground.open(), PARK)).toEqual([{ kind: 'done' }]);
    expect(await lettersOf(ground.open({ queue: parked }))).toMatchObject([{ home: undefined }]);
  });

  test('messages are parked where the option or the plan says, and stay where they are parked', async () => {
    const ground = await setup();
    const { home, queue } = ground;
    const special = await ground.declare(`${home}.special`);
    await ground.put(['a']);
    await settleAll(ground.open({ parkedQueue: special }), PARK);
    expect(await ground.lying(special, 1)).toHaveLength(1);
    const foreign = await ground.declare(`${home}.graveyard`);
    await ground.hands.publish('', foreign, 'x', { messageId: 'b' });
    const plan = { ...perDelay().plan(orderOf(home)), dead: { exchange: '', key: foreign } };
    await settleAll(ground.open({ queue: foreign, plans: [plan] }), PARK);
    expect(await ground.lying(ground.parked, 1)).toHaveLength(1);
    // A name that says nothing gets an ending.
    await ground.hands.publish('', special, 'x', { messageId: 'c' });
    const more = await ground.declare(`${special}.parked`);
    await settleAll(ground.open({ queue: special }), PARK);
    expect(await ground.lying(more, 2)).toHaveLength(2);
    expect(await settleAll(ground.open({ queue: more }), PARK)).toHaveLength(2);
    expect(await ground.lying(more, 2)).toHaveLength(2);
    expect(await ground.lying(queue, 0)).toHaveLength(0);
  });

  test('the past is read and written as another system does', async () => {
    const ground = await setup();
    const { wire } = goqueue();
    await ground.put(['a'], { headers: { 'goqueue-retry-count': 4 } });
    const door = ground.open({ wire });
    expect(await lettersOf(door)).toMatchObject([{ attempts: 4 }]);
    await settleAll(door, SEND);
    const [sent] = await ground.lying(ground.home, 1);
    expect(sent?.properties.headers).toMatchObject({ 'goqueue-retry-count': 0 });
  });

  test('a letter is settled once; what its loop has left behind is not in hand', async () => {
    const ground = await setup();
    await ground.put(['a', 'b']);
    const door = ground.open();
    const seen = [];
    for await (const taken of door.take({ isWanted: () => true })) {
      seen.push(taken);
      if (taken.letter.id !== 'a') continue;
      expect(await door.settle(taken, SEND)).toEqual({ kind: 'done' });
      expect(await door.settle(taken, SEND)).toEqual({ kind: 'gone' });
    }
    const [, second] = seen;
    if (second === undefined) throw new Error('the second was not taken');
    const late = await door.settle(second, SEND);
    expect(late).toMatchObject({ kind: 'failed', code: 'move.refused' });
    expect(bodiesOf(await ground.lying(ground.queue, 1))).toEqual(['b']);
    expect(await ground.lying(ground.home, 1)).toHaveLength(1);
  });
});

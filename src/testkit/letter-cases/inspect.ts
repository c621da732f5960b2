/**
 * inspect — reading dead letters: each once, oldest first, and nothing is changed by it.
 */

import assert from 'node:assert/strict';
import type { LetterQuery } from '../../ports/dead-letters.ts';
import { assertLying, idOf, letterIds, type LetterCase, lying, samplesOf } from './shared.ts';

export const lookCases: readonly LetterCase[] = [
  {
    name: 'an empty place has nothing to look at and nothing to take',
    async run({ letters }) {
      assert.equal(await letters.count(), 0);
      assert.deepEqual(await lying(letters), []);
      for await (const { letter } of letters.take({ isWanted: () => true })) {
        assert.fail(`took "${letter.id}" out of nothing`);
      }
    },
  },
  {
    name: 'a place has a name for people, and says what looking costs',
    async run({ letters }) {
      assert.notEqual(letters.name, '');
      const { kind } = await letters.caution();
      assert.ok(kind === 'free' || kind === 'counted', 'the suite needs a place that can be read');
    },
  },
  {
    name: 'a letter tells its id, topic, code, reason, kind and size',
    async run({ letters, put }) {
      await put([
        {
          id: 'one',
          topic: 'mail.send',
          code: 'smtp.550',
          reason: 'no such user',
          headers: { colour: 'blue' },
          body: Uint8Array.of(9, 8, 7, 6),
        },
      ]);
      const [letter] = await assertLying(letters, ['one']);
      assert.ok(letter !== undefined);
      assert.equal(letter.topic, 'mail.send');
      assert.equal(letter.code, 'smtp.550');
      assert.equal(letter.reason, 'no such user');
      assert.equal(letter.kind, 'dead');
      assert.equal(letter.size, 4);
      assert.equal(letter.headers['colour'], 'blue');
      assert.equal(letter.replays, 0);
      assert.equal(letter.replayedBy, undefined);
      assert.ok(letter.home !== undefined, 'it knows its home');
      assert.ok(letter.key !== '' && letter.group !== '' && letter.place !== '');
    },
  },
  {
    name: 'looking again and again changes nothing: the same letters, keys and order',
    async run({ letters, put }) {
      const samples = samplesOf(20);
      await put(samples);
      const first = await assertLying(letters, letterIds(samples));
      for (let look = 0; look < 10; look += 1) {
        const again = await assertLying(letters, letterIds(samples));
        assert.deepEqual(
          again.map(({ key, deaths, attempts, replays }) => ({ key, deaths, attempts, replays })),
          first.map(({ key, deaths, attempts, replays }) => ({ key, deaths, attempts, replays })),
        );
      }
      assert.equal(new Set(first.map(({ key }) => key)).size, samples.length, 'keys tell apart');
    },
  },
  {
    name: 'another process sees the same letters under the same keys',
    needs: 'canShare',
    async run({ letters, put, second }) {
      const samples = samplesOf(5);
      await put(samples);
      const here = await assertLying(letters, letterIds(samples));
      const there = await assertLying(await second(), letterIds(samples));
      assert.deepEqual(
        there.map(({ key }) => key),
        here.map(({ key }) => key),
      );
    },
  },
  {
    name: 'a query finds by ids, topic, code, group, text and header',
    async run({ letters, put }) {
      await put([
        { id: 'a', topic: 'mail.send', code: 'smtp.550', reason: 'no such user' },
        { id: 'b', topic: 'mail.copy', code: 'smtp.451', reason: 'try again later' },
        { id: 'c', topic: 'bill.pay', code: 'http.500', reason: 'oh', headers: { tenant: 'x' } },
      ]);
      const all = await assertLying(letters, ['a', 'b', 'c']);
      const group = all[1]?.group ?? '';
      const table: readonly (readonly [LetterQuery, readonly string[]])[] = [
        [{ ids: ['a', 'c', 'nobody'] }, ['a', 'c']],
        [{ topic: 'mail.*' }, ['a', 'b']],
        [{ topic: 'bill.pay' }, ['c']],
        [{ code: 'smtp.451' }, ['b']],
        [{ group }, ['b']],
        [{ text: 'such user' }, ['a']],
        [{ header: { name: 'tenant' } }, ['c']],
        [{ header: { name: 'tenant', value: 'y' } }, []],
        [{ topic: 'mail.*', code: 'smtp.550' }, ['a']],
        [{ kinds: ['parked'] }, []],
      ];
      for (const [query, ids] of table) {
        assert.deepEqual(letterIds(await lying(letters, query)), ids, JSON.stringify(query));
      }
    },
  },
  {
    name: 'a body can be read while its letter lies open, byte for byte',
    async run({ letters, put }) {
      const everyByte = Uint8Array.from({ length: 256 }, (_, at) => at);
      const large = new Uint8Array(100_000).map((_, at) => at % 251);
      const bodies = [new Uint8Array(), everyByte, large];
      await put(bodies.map((body, at) => ({ id: idOf(at), body })));
      let at = 0;
      for await (const open of letters.look()) {
        assert.ok(Buffer.from(await open.body()).equals(bodies[at] ?? Buffer.of(0)), `body ${at}`);
        at += 1;
      }
      assert.equal(at, bodies.length);
    },
  },
  {
    name: 'a look ends at its limit, and whoever leaves one early changes nothing',
    async run({ letters, put }) {
      const samples = samplesOf(10);
      await put(samples);
      const seen: string[] = [];
      for await (const { letter } of letters.look({ max: 4 })) seen.push(letter.id);
      assert.deepEqual(seen, letterIds(samples.slice(0, 4)));
      for await (const { letter } of letters.look()) if (letter.id === idOf(2)) break;
      await assertLying(letters, letterIds(samples));
    },
  },
  {
    name: 'a place can be closed twice',
    async run({ letters, put }) {
      await put(samplesOf(1));
      await assertLying(letters, [idOf(0)]);
      await letters.close();
      await letters.close();
    },
  },
];

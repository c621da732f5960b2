/** records — small durable facts: logs that only grow at one end, maps with compare-and-swap. */

import assert from 'node:assert/strict';
import type { LogRecord } from '../../ports/record-store.ts';
import type { EntryCase } from './shared.ts';

const VALUES: readonly unknown[] = [
  { actor: 'ada', ids: ['a', 'b'], nested: { deep: [1, 2.5, -3, null, true, false, ''] } },
  [],
  {},
  'text with ünïcödé 🌍 and "quotes"',
  0,
  false,
  null,
];

const valuesOf = (records: readonly LogRecord[]) => records.map(({ record }) => record);

function assertRefused(answer: PromiseSettledResult<unknown> | undefined, code: string): void {
  assert.equal(answer?.status, 'rejected');
  assert.equal((answer.reason as { readonly code?: unknown }).code, code);
}

export const recordCases: readonly EntryCase[] = [
  {
    name: 'appended records are read back as they were, oldest first',
    async run({ store: { records } }) {
      for (const value of VALUES) await records.append('audit', value);
      assert.deepEqual(valuesOf(await records.read('audit', 0, 100)), VALUES);
    },
  },
  {
    name: 'an append tells the sequence its record is read under, growing from record to record',
    async run({ store: { records } }) {
      const told: number[] = [];
      for (let n = 0; n < 5; n += 1) told.push(await records.append('audit', n));
      const read = await records.read('audit', 0, 100);
      assert.deepEqual(
        read.map(({ sequence }) => sequence),
        told,
      );
      assert.ok(told.every((sequence, index) => sequence > (told[index - 1] ?? 0)));
    },
  },
  {
    name: 'appends at the same time are all kept, each under a sequence of its own',
    async run({ store: { records } }) {
      const numbers = Array.from({ length: 50 }, (_, index) => index);
      const told = await Promise.all(numbers.map((n) => records.append('audit', n)));
      assert.equal(new Set(told).size, 50);
      const read = await records.read('audit', 0, 100);
      for (const { sequence, record } of read) assert.equal(told[record as number], sequence);
      assert.equal(read.length, 50);
    },
  },
  {
    name: 'a log is read in parts, each after the last',
    async run({ store: { records } }) {
      for (let n = 0; n < 10; n += 1) await records.append('audit', n);
      const seen: unknown[] = [];
      let after = 0;
      for (;;) {
        const part = await records.read('audit', after, 3);
        assert.ok(part.length <= 3);
        if (part.length === 0) break;
        seen.push(...valuesOf(part));
        after = part.at(-1)?.sequence ?? after;
      }
      assert.deepEqual(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    },
  },
  {
    name: 'a trim forgets records up to and including its sequence, no others',
    async run({ store: { records } }) {
      const told: number[] = [];
      for (let n = 0; n < 5; n += 1) told.push(await records.append('audit', n));
      await records.trim('audit', told[2] ?? 0);
      assert.deepEqual(valuesOf(await records.read('audit', 0, 100)), [3, 4]);
      await records.trim('audit', 0);
      assert.deepEqual(valuesOf(await records.read('audit', 0, 100)), [3, 4]);
    },
  },
  {
    name: 'a sequence is not used again after everything was trimmed',
    async run({ store: { records } }) {
      const last = await records.append('audit', 'old');
      await records.trim('audit', last);
      assert.ok((await records.append('audit', 'new')) > last);
      assert.deepEqual(valuesOf(await records.read('audit', last, 100)), ['new']);
    },
  },
  {
    name: 'a sequence is not used again after everything was trimmed and the store reopened',
    needs: ['reopen'],
    async run({ store, reopen }) {
      const last = await store.records.append('audit', 'old');
      await store.records.trim('audit', last);
      const { records } = await reopen();
      assert.ok((await records.append('audit', 'new')) > last);
    },
  },
  {
    name: 'logs of different kinds do not see each other',
    async run({ store: { records } }) {
      await records.append('audit', 1);
      const other = await records.append('audit.x', 2);
      await records.append('Audit', 3);
      await records.trim('audit.x', other);
      assert.deepEqual(valuesOf(await records.read('audit', 0, 100)), [1]);
      assert.deepEqual(valuesOf(await records.read('audit.x', 0, 100)), []);
      assert.deepEqual(valuesOf(await records.read('Audit', 0, 100)), [3]);
      assert.deepEqual(valuesOf(await records.read('none', 0, 100)), []);
    },
  },
  {
    name: 'a value is put, read back, replaced and removed',
    async run({ store: { records } }) {
      assert.equal(await records.get('pause', 'k'), undefined);
      assert.equal(await records.put('pause', 'k', { by: 'ada' }), 'done');
      const first = await records.get('pause', 'k');
      assert.deepEqual(first, { key: 'k', value: { by: 'ada' }, revision: 1 });
      assert.equal(await records.put('pause', 'k', { by: 'bob' }), 'done');
      const second = await records.get('pause', 'k');
      assert.deepEqual(second, { key: 'k', value: { by: 'bob' }, revision: 2 });
      await records.remove('pause', 'k');
      assert.equal(await records.get('pause', 'k'), undefined);
    },
  },
  {
    name: 'every kind of value is kept in a map as it was',
    async run({ store: { records } }) {
      for (const [index, value] of VALUES.entries()) await records.put('v', `k${index}`, value);
      for (const [index, value] of VALUES.entries()) {
        assert.deepEqual((await records.get('v', `k${index}`))?.value, value);
      }
    },
  },
  {
    name: 'a put with a revision is done only if it is the present one',
    async run({ store: { records } }) {
      await records.put('pause', 'k', 1);
      assert.equal(await records.put('pause', 'k', 2, 0), 'stale');
      assert.equal(await records.put('pause', 'k', 2, 2), 'stale');
      assert.equal(await records.put('pause', 'k', 2, 1), 'done');
      assert.equal(await records.put('pause', 'k', 3, 1), 'stale');
      assert.deepEqual(await records.get('pause', 'k'), { key: 'k', value: 2, revision: 2 });
    },
  },
  {
    name: 'a put with revision 0 is done only if there is nothing yet',
    async run({ store: { records } }) {
      assert.equal(await records.put('pause', 'k', 1, 1), 'stale');
      assert.equal(await records.put('pause', 'k', 1, 0), 'done');
      assert.equal(await records.put('pause', 'k', 2, 0), 'stale');
      await records.remove('pause', 'k');
      assert.equal(await records.put('pause', 'k', 3, 0), 'done');
      assert.equal((await records.get('pause', 'k'))?.value, 3);
    },
  },
  {
    name: 'of many puts of one revision at once one is done and the others are stale',
    async run({ store: { records } }) {
      const puts = Array.from({ length: 10 }, (_, n) => records.put('pause', 'k', n, 0));
      const results = await Promise.all(puts);
      assert.equal(results.filter((result) => result === 'done').length, 1);
      assert.equal((await records.get('pause', 'k'))?.value, results.indexOf('done'));
    },
  },
  {
    name: 'a list holds all values of a kind, by key, and of no other kind',
    async run({ store: { records } }) {
      for (const key of ['b', 'a', 'Z', 'c']) await records.put('pause', key, `value ${key}`);
      await records.put('pause.x', 'q', 1);
      await records.append('pause', 'a log of the same kind');
      const found = (await records.list('pause')).map(({ key, value }) => [key, value]);
      assert.deepEqual(found, [
        ['Z', 'value Z'],
        ['a', 'value a'],
        ['b', 'value b'],
        ['c', 'value c'],
      ]);
      assert.deepEqual(await records.list('none'), []);
    },
  },
  {
    name: 'keys may hold any printable text, up to 255 characters',
    async run({ store: { records } }) {
      const keys = [
        'mail.*',
        '../etc',
        'a/b',
        'ünï 🌍',
        '%_',
        "it's",
        'x'.repeat(255),
        '.',
        ' ',
        '世',
      ];
      for (const key of keys) assert.equal(await records.put('k', key, key, 0), 'done');
      for (const key of keys) assert.equal((await records.get('k', key))?.value, key);
      assert.equal((await records.list('k')).length, keys.length);
      for (const key of keys) await records.remove('k', key);
      assert.deepEqual(await records.list('k'), []);
    },
  },
  {
    name: 'a kind or key that is empty, too long or not printable is refused by every call',
    async run({ store: { records } }) {
      for (const name of ['', 'x'.repeat(256), 'two\nlines', 'half \ud800']) {
        const calls = [
          records.append(name, 1),
          records.read(name, 0, 1),
          records.trim(name, 1),
          records.list(name),
          ...[
            [name, 'k'],
            ['v', name],
          ].flatMap(([kind = '', key = '']) => [
            records.put(kind, key, 1),
            records.get(kind, key),
            records.remove(kind, key),
          ]),
        ];
        for (const answer of await Promise.allSettled(calls))
          assertRefused(answer, 'message.invalid');
      }
      assert.deepEqual(await records.list('v'), []);
    },
  },
  {
    name: 'more than 1,000 records, or fewer than one, are not read at once',
    async run({ store: { records } }) {
      await records.append('audit', 1);
      for (const max of [0, -1, 1.5, 1_001, Number.NaN]) {
        const [answer] = await Promise.allSettled([records.read('audit', 0, max)]);
        assertRefused(answer, 'config.invalid');
      }
      assert.deepEqual(valuesOf(await records.read('audit', 0, 1_000)), [1]);
    },
  },
  {
    name: 'what JSON does not have is kept as null',
    async run({ store: { records } }) {
      for (const value of [undefined, () => 1]) {
        await records.append('audit', value);
        await records.put('v', 'k', value);
        assert.deepEqual(await records.list('v'), [await records.get('v', 'k')]);
        assert.equal((await records.get('v', 'k'))?.value, null);
      }
      assert.deepEqual(valuesOf(await records.read('audit', 0, 10)), [null, null]);
    },
  },
  {
    name: 'removing a key that is not there is no error',
    async run({ store: { records } }) {
      await records.remove('pause', 'nobody');
      assert.deepEqual(await records.list('pause'), []);
    },
  },
  {
    name: 'changing a value after it was put or read does not change what is stored',
    async run({ store: { records } }) {
      const value = { list: [1] };
      await records.put('v', 'k', value);
      await records.append('v', value);
      value.list.push(2);
      const read = (await records.get('v', 'k'))?.value as { list: number[] };
      read.list.push(3);
      assert.deepEqual((await records.get('v', 'k'))?.value, { list: [1] });
      assert.deepEqual(valuesOf(await records.read('v', 0, 10)), [{ list: [1] }]);
    },
  },
  {
    name: 'records survive closing and opening',
    needs: ['reopen'],
    async run({ store, reopen }) {
      await store.records.append('audit', { n: 1 });
      await store.records.put('pause', 'k', { by: 'ada' });
      await store.records.put('pause', 'k', { by: 'bob' });
      const { records } = await reopen();
      assert.deepEqual(valuesOf(await records.read('audit', 0, 10)), [{ n: 1 }]);
      const expected = { key: 'k', value: { by: 'bob' }, revision: 2 };
      assert.deepEqual(await records.get('pause', 'k'), expected);
    },
  },
  {
    name: 'a put from two processes on one revision is done once',
    needs: ['share'],
    async run({ store, second }) {
      const other = await second();
      const puts = [store.records.put('p', 'k', 1, 0), other.records.put('p', 'k', 2, 0)];
      assert.deepEqual((await Promise.all(puts)).sort(), ['done', 'stale']);
      const kept = (await store.records.get('p', 'k'))?.value;
      assert.equal((await other.records.get('p', 'k'))?.value, kept);
    },
  },
];

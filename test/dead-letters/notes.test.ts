/** notes — what people know about a group, on record with who said it and when. */
import { expect, test } from 'vitest';
import { forgetNote, noteGroup, notesOf } from 'respool/dead-letters';
import type { Operator } from 'respool/operator';
import { NOTE_MAX_CHARS, noteOf } from '../../src/dead-letters/groups.ts';
import { setup } from '../spool/setup.ts';

const GROUP = '0123456789a';

async function operatorOf(): Promise<Operator> {
  const { spool } = await setup();
  return spool.operator({ by: 'ada' });
}

test('a note is kept with who wrote it and when, and the next takes its place', async () => {
  const operator = await operatorOf();
  expect(await noteOf(operator, GROUP)).toBeUndefined();
  const note = await noteGroup(operator, { group: GROUP, text: ' vendor is told ', at: 7 });
  expect(note).toEqual({ group: GROUP, text: 'vendor is told', by: 'ada', at: 7 });
  await noteGroup(operator, { group: GROUP, text: 'fixed', at: 8 });
  expect(await noteOf(operator, GROUP)).toMatchObject({ text: 'fixed', at: 8 });
  expect([...(await notesOf(operator)).keys()]).toEqual([GROUP]);
});

test('writing and forgetting are on the audit record, before they are done', async () => {
  const operator = await operatorOf();
  const order: string[] = [];
  const watched = {
    by: 'ada',
    recordAction: async (action: string) => void order.push(action),
    records: {
      ...operator.records,
      put: async () => {
        order.push('put');
        return 'done' as const;
      },
      remove: async () => void order.push('remove'),
      get: async () => ({ key: GROUP, value: {}, revision: 1 }),
    },
  };
  await noteGroup(watched, { group: GROUP, text: 'x', at: 1 });
  expect(await forgetNote(watched, GROUP)).toBe(true);
  expect(order).toEqual(['dlq.note', 'put', 'dlq.forgetNote', 'remove']);
});

test('what has no note is not forgotten, and not audited', async () => {
  const operator = await operatorOf();
  expect(await forgetNote(operator, GROUP)).toBe(false);
  expect(await operator.audit()).toEqual([]);
});

test.each(['', '  ', 'x'.repeat(NOTE_MAX_CHARS + 1), '\ud800'])(
  'refuses the note %j',
  async (text) => {
    const operator = await operatorOf();
    await expect(noteGroup(operator, { group: GROUP, text, at: 1 })).rejects.toMatchObject({
      code: 'message.invalid',
    });
    expect(await operator.audit()).toEqual([]);
  },
);

test.each(['', 'short', 'UPPERCASE01', '../../etc/p'])('refuses the group %j', async (group) => {
  const operator = await operatorOf();
  await expect(noteGroup(operator, { group, text: 'x', at: 1 })).rejects.toThrow(/11 of 0-9 a-z/);
  await expect(forgetNote(operator, group)).rejects.toMatchObject({ code: 'message.invalid' });
});

test('there are at most 10,000 groups with a note', async () => {
  const operator = await operatorOf();
  const full = Array.from({ length: 10_000 }, (_, at) => ({
    key: `${at}`,
    value: {},
    revision: 1,
  }));
  const crowded = { ...operator, records: { ...operator.records, list: async () => full } };
  await expect(noteGroup(crowded, { group: GROUP, text: 'x', at: 1 })).rejects.toMatchObject({
    code: 'limit.exceeded',
  });
  await noteGroup(operator, { group: GROUP, text: 'x', at: 1 });
  await noteGroup(crowded, { group: GROUP, text: 'changed', at: 2 });
  expect(await noteOf(operator, GROUP)).toMatchObject({ text: 'changed' });
});

test('what somebody else wrote in the place of a note is none, and does no harm', async () => {
  const operator = await operatorOf();
  const odd = [null, 'text', 7, {}, { text: 7, by: 'ada', at: 1 }, { text: 'x', by: {}, at: 1 }];
  for (const value of [...odd, { text: 'x', by: 'ada', at: 'then' }]) {
    await operator.records.put('dlq.notes', GROUP, value);
    expect(await noteOf(operator, GROUP)).toBeUndefined();
    expect([...(await notesOf(operator))]).toEqual([]);
  }
  expect(await forgetNote(operator, GROUP)).toBe(true);
});

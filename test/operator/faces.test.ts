/** The two faces of a spool: few members on the data plane, one interface on the control plane. */
import { createSpool } from 'respool';
import { connectOperator } from 'respool/web';
import { expect, test } from 'vitest';
import { internalsOf } from '../../src/spool/internals.ts';

const MEMBERS_MAX = 18;

test('a spool has few public members', () => {
  const prototype: object = Object.getPrototypeOf(createSpool()) as object;
  const members = Reflect.ownKeys(prototype).filter((name) => name !== 'constructor');
  expect(members.length, members.map(String).join(' ')).toBeLessThanOrEqual(MEMBERS_MAX);
  expect(Object.keys(createSpool())).toEqual([]);
});

test('an operator over a spool has emit, and otherwise the members of one over HTTP', () => {
  const near = Object.keys(createSpool().operator({ by: 'ann' }));
  const far = Object.keys(connectOperator({ url: 'http://127.0.0.1:1', by: 'ann' }));
  expect(near.filter((name) => name !== 'emit').toSorted()).toEqual(far.toSorted());
});

test.each([undefined, '', 7])('an operator needs a name, and %o is none', (by) => {
  expect(() => createSpool().operator({ by: by as string })).toThrow('cannot use');
});

test('what is no spool of this package has no internals', () => {
  expect(() => internalsOf({})).toThrow('createSpool()');
});

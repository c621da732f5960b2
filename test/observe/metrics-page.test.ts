/** docs/reference/metrics.md has every metric that is registered, and no other. */
import { createMetrics, type MetricsOptions } from 'respool/observe';
import { expect, test, vi } from 'vitest';
import { Families, type FamilyShape } from '../../src/observe/metrics/families.ts';
import { readPage, tableUnder, wordOf } from '../docs/pages.ts';
import { rejection } from '../spool/setup.ts';

const PAGE = readPage('docs/reference/metrics.md');
const TYPES = ['counter', 'gauge', 'histogram'] as const;
const SECTIONS = [
  'Messages',
  'Times',
  'States',
  'Engine',
  'Stores',
  'Alerts',
  'RabbitMQ',
  'Outbox',
  'Dead letters',
];

/** Name, type and labels of everything that is registered, as the page writes them. */
async function registered(options: MetricsOptions = {}): Promise<string[]> {
  const rows: string[] = [];
  const spies = TYPES.map((type) => vi.spyOn(Families.prototype, type));
  const metrics = await createMetrics(options);
  metrics.close();
  for (const [at, spy] of spies.entries()) {
    for (const [{ name, prefix = 'respool', labels = [] }] of spy.mock.calls as [FamilyShape][]) {
      const full = prefix === '' ? name : `${prefix}_${name}`;
      rows.push([full, TYPES[at], labels.map((label) => `\`${label}\``).join(' ')].join(' | '));
    }
    spy.mockRestore();
  }
  return rows.toSorted();
}

function written(heading: string): string[] {
  // A section may have a table of options besides.
  const rows = tableUnder(PAGE, heading).filter(([, type = '']) => isType(type));
  return rows.map(([name, type, labels, tells]) => {
    expect([name, tells?.length]).not.toEqual([name, 0]);
    return [wordOf(name), type, labels].join(' | ');
  });
}

function isType(word: string): boolean {
  return TYPES.some((type) => type === word);
}

test('metrics.md lists every metric with its type and its labels, and no other', async () => {
  expect(SECTIONS.flatMap(written).toSorted()).toEqual(await registered());
});

test('metrics.md lists the names of other systems in the same way', async () => {
  const ours = new Set(await registered());
  const all = await registered({ aliases: ['goqueue', 'outbox'] });
  const others = all.filter((row) => !ours.has(row));
  expect(others.length).toBeGreaterThan(0);
  expect(written('Names of other systems').toSorted()).toEqual(others);
});

test('metrics.md lists every option of createMetrics, and all that it returns', async () => {
  const listed = tableUnder(PAGE, 'Options of createMetrics').map(([name]) => wordOf(name));
  const { message } = await rejection(createMetrics({ nothing: 1 } as MetricsOptions));
  const known = /known are (.+)$/.exec(message)?.[1]?.split(', ') ?? [];
  expect(known.length).toBeGreaterThan(5);
  const members = ['registry', 'watch', 'watchConsumer', 'watchPublisher', 'watchRelay'];
  const rest = ['sweep', 'text', 'close'];
  const names = listed.map((name) => name.replace(/\(.*$/, ''));
  expect(names).toEqual([...known, ...members, ...rest]);
});

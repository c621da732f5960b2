/** docs/reference/rabbit.md says what the code says: every option, every header, and why not more. */
import { createConnection, createConsumer, createPublisher } from 'respool/rabbit';
import { describe, expect, test } from 'vitest';
import { HEADER } from '../../src/rabbit/message-history.ts';
import { readPage, tableUnder } from './pages.ts';

const page = readPage('docs/reference/rabbit.md');

/** All words in backticks of the first cells under a heading. */
function named(heading: string): string[] {
  return tableUnder(page, heading).flatMap(([cell = '']) =>
    [...cell.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word),
  );
}

/** What a door says when it is given an option that does not exist. */
function known(ask: () => unknown): string[] {
  try {
    ask();
  } catch (error) {
    return /known are (.+)$/.exec((error as Error).message)?.[1]?.split(', ') ?? [];
  }
  return [];
}

const wrong = { nonsense: 1 } as object;
const DOORS: readonly (readonly [string, () => unknown])[] = [
  ['createConsumer', () => createConsumer({ queue: 'q', ...wrong }, () => undefined)],
  ['createPublisher', () => createPublisher(wrong)],
  ['createConnection', () => createConnection({ url: 'amqp://localhost', ...wrong })],
];

describe('docs/reference/rabbit.md', () => {
  test.each(DOORS)('lists every option of %s', (name, ask) => {
    const listed = named(`Options of ${name}`);
    expect(listed.length).toBeGreaterThan(5);
    expect(listed.toSorted()).toEqual(known(ask).toSorted());
  });

  test('lists every header of ours', () => {
    const routing = ['wait-for', 'return-to'];
    const listed = named('Headers').filter((name) => !routing.includes(name));
    expect(listed.toSorted()).toEqual(Object.values(HEADER).toSorted());
  });

  test('says why other ways to wait are not used', () => {
    const from = page.text.indexOf('## What is not used, and why');
    const said = page.text.slice(from).toLowerCase();
    for (const word of ['delayed-message plugin', 'sleeping', 'pools of message objects', '4.3']) {
      expect(said).toContain(word);
    }
  });
});

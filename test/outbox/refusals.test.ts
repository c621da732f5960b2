/** refusals — what no relay could send is refused by the emit, where somebody hears of it. */

import { expect, test } from 'vitest';
import type { EmitOptions } from 'respool/outbox';
import { openSqliteOutbox } from './core-setup.ts';

async function emitting() {
  const { database, outbox, entries } = await openSqliteOutbox();
  const emit = (routingKey: string, body: unknown = 1, options: EmitOptions = {}) =>
    outbox.transaction(() => outbox.emit(database, routingKey, body, options));
  return { emit, entries };
}

function headersOf(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`h${at}`, 'x']));
}

test('a content type that AMQP has no room for is refused', async () => {
  const { emit, entries } = await emitting();
  const of = (text: string) => ({ headers: { 'content-type': text } });
  emit('a', 'x', of(`text/${'x'.repeat(250)}`));
  expect(() => emit('a', 'x', of(`text/${'x'.repeat(251)}`))).toThrow(
    'cannot emit with a "content-type" of 256 bytes: allowed are 255',
  );
  expect(() => emit('a', 'x', { headers: { 'Content-Type': 'é'.repeat(128) } })).toThrow(
    'of 256 bytes',
  );
  expect(await entries()).toHaveLength(1);
});

test('headers that RabbitMQ reads as lists of routing keys are refused', async () => {
  const { emit } = await emitting();
  for (const name of ['CC', 'BCC']) {
    expect(() => emit('a', 1, { headers: { [name]: 'b' } })).toThrow(
      `cannot use "b" as header "${name}": allowed is a list of routing keys, and headers of an ` +
        'outbox are texts; emit once for each routing key',
    );
  }
  expect(emit('a', 1, { headers: { cc: 'b' } }).duplicate).toBe(false);
});

test('the count of headers that is refused is that of the caller, less those an outbox adds', async () => {
  const { emit, entries } = await emitting();
  emit('a', 1, { headers: headersOf(62) });
  emit('a', 1, { headers: { ...headersOf(62), 'content-type': 'application/json' } });
  const [entry] = await entries();
  expect(Object.keys(entry?.envelope.headers ?? {})).toHaveLength(64);
  expect(() => emit('a', 1, { headers: headersOf(63) })).toThrow(
    'cannot emit with 63 headers: allowed are 62; with those an outbox adds, a message has up to 64',
  );
  expect(() =>
    emit('a', 1, { headers: { ...headersOf(63), 'content-type': 'application/json' } }),
  ).toThrow('cannot emit with 64 headers: allowed are 63');
});

test('what is wrong is called as the caller calls it', async () => {
  const { emit } = await emitting();
  for (const key of ['', 'no spaces', 'größe', 'a..b', '*.new']) {
    expect(() => emit(key)).toThrow(
      `cannot use "${key}" as routing key: allowed is words of A-Z a-z 0-9 _ - joined by . : /`,
    );
  }
  expect(() => emit('a', () => 1)).toThrow(
    'cannot emit this value as body: allowed is text, bytes or a JSON value',
  );
  expect(() => emit('a', new Blob(['x']))).toThrow('cannot emit a stream');
});

test('a message that is over at once is refused', async () => {
  const { emit } = await emitting();
  for (const expires of [0, '0']) {
    expect(() => emit('a', 1, { expires })).toThrow('as "expires": allowed is 1ms to');
  }
  expect(emit('a', 1, { expires: 1 }).duplicate).toBe(false);
});

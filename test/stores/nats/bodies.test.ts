/** What the body store leaves behind when it dies, what it finds again, and who else can read it. */

import { jetstream } from '@nats-io/jetstream';
import { Objm } from '@nats-io/obj';
import type { Msg } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { natsBodies } from 'respool/stores/nats';
import type { BodyStore } from 'respool';
import { withService } from '../../services/index.ts';
import { faultyOptions } from './faulty-connection.ts';
import { bucketName, openBodies, plainConnection } from './setup.ts';
import { systemClock } from '../../time.ts';

async function* pieces(...sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  for (const [at, size] of sizes.entries()) yield new Uint8Array(size).fill(at + 1);
}

async function refsOf(bodies: BodyStore, before = systemClock.now() + 60_000) {
  const refs: string[] = [];
  for await (const { ref } of bodies.refs(before)) refs.push(ref);
  return refs.sort();
}

async function messagesIn(url: string, bucket: string): Promise<number> {
  const connection = await plainConnection(url);
  const answer = await connection.request(`$JS.API.STREAM.INFO.OBJ_${bucket}`);
  return answer.json<{ state: { messages: number } }>().state.messages;
}

async function sizeOf(body: AsyncIterable<Uint8Array>): Promise<number> {
  let size = 0;
  for await (const chunk of body) size += chunk.length;
  return size;
}

/** A body whose writer died before the last step, beside a whole one. */
async function withHalfWritten(url: string) {
  const bucket = bucketName();
  const bodies = await openBodies({ url, bucket });
  await bodies.put('whole', pieces(300_000));
  const faulty = await faultyOptions(url, (subject) =>
    subject.startsWith('$O.') && subject.includes('.M.') ? 'swallowed' : 'sent',
  );
  const dying = natsBodies({ ...faulty, bucket });
  await dying.open();
  return { bucket, bodies, dying };
}

withService('nats', (url) => {
  test('chunks of a body whose writer died are found and removed', async () => {
    const { bucket, bodies } = await withHalfWritten(url());
    const connection = await plainConnection(url());
    const word = Buffer.from('half').toString('base64url');
    await connection.request(`$O.${bucket}.C.${word}.abc`, new Uint8Array(1_000));
    await connection.request(`$O.${bucket}.C.${word}.abc`, new Uint8Array(1_000));
    await expect(sizeOf(bodies.get('half'))).rejects.toMatchObject({ code: 'body.missing' });
    expect(await refsOf(bodies)).toEqual(['half', 'whole']);
    expect(await refsOf(bodies, systemClock.now() - 60_000)).toEqual([]);
    await bodies.remove(['half']);
    expect(await refsOf(bodies)).toEqual(['whole']);
    expect(await sizeOf(bodies.get('whole'))).toBe(300_000);
    await bodies.remove(['whole']);
    expect(await messagesIn(url(), bucket)).toBe(0);
  });

  test('chunks that a lost second writer left beside a whole body are swept out', async () => {
    const { bucket, bodies } = await withHalfWritten(url());
    const before = await messagesIn(url(), bucket);
    const connection = await plainConnection(url());
    const word = Buffer.from('whole').toString('base64url');
    await connection.request(`$O.${bucket}.C.${word}.other`, new Uint8Array(1_000));
    expect(await refsOf(bodies)).toEqual(['whole']);
    expect(await messagesIn(url(), bucket)).toBe(before);
    expect(await sizeOf(bodies.get('whole'))).toBe(300_000);
  });

  test('a list of bodies reads a page at a time, and misses none that is removed meanwhile', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket });
    const connection = await plainConnection(url());
    const names = Array.from({ length: 700 }, (_, at) => `b-${String(at).padStart(3, '0')}`);
    const halves = names.filter((_, at) => at % 7 === 0);
    const wholes = names.filter((_, at) => at % 7 !== 0);
    // One before all others: it is whole within the first page, however the rest is mixed.
    const [first = '', ...rest] = wholes;
    await bodies.put(first, pieces(10));
    await Promise.all(rest.map((name) => bodies.put(name, pieces(10))));
    for (const name of halves) {
      const word = Buffer.from(name).toString('base64url');
      await connection.request(`$O.${bucket}.C.${word}.abc`, new Uint8Array(10));
    }
    let received = 0;
    const counting = new Proxy(connection, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name !== 'subscribe') return typeof value === 'function' ? value.bind(target) : value;
        return (subject: string, options: { callback: (error: Error | null, m: Msg) => void }) =>
          target.subscribe(subject, {
            callback: (error, message) => {
              if (message.subject.startsWith('$O.')) received += 1;
              options.callback(error, message);
            },
          });
      },
    });
    const reader = natsBodies({ connection: counting, bucket });
    await reader.open();
    const seen: string[] = [];
    const receivedBefore: number[] = [];
    for await (const { ref } of reader.refs(systemClock.now() + 60_000)) {
      receivedBefore.push(received);
      seen.push(ref);
      await reader.remove([ref]);
    }
    expect(seen.toSorted()).toEqual(names);
    expect(receivedBefore[0]).toBeLessThanOrEqual(500);
    expect(received).toBeGreaterThan(1_000);
    await reader.close();
    expect(await messagesIn(url(), bucket)).toBe(0);
  });

  test('a body whose writer is still at it is not listed as left behind', async () => {
    const { bucket, bodies } = await withHalfWritten(url());
    const connection = await plainConnection(url());
    const word = Buffer.from('half').toString('base64url');
    await connection.request(`$O.${bucket}.C.${word}.abc`, new Uint8Array(1_000));
    expect(await refsOf(bodies, systemClock.now() - 5_000)).toEqual([]);
    expect(await messagesIn(url(), bucket)).toBe(5);
  });

  test('a put whose last step is of unknown outcome is told as unavailable', async () => {
    const { bodies, dying } = await withHalfWritten(url());
    const trouble = dying.put('half', pieces(1_000));
    await expect(trouble).rejects.toMatchObject({ code: 'store.unavailable' });
    await dying.close();
    expect(await refsOf(bodies)).toEqual(['whole']);
  });

  test('a body with a chunk that is lost or changed is corrupt', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket });
    await bodies.put('a', pieces(400_000));
    const connection = await plainConnection(url());
    await connection.request(
      `$JS.API.STREAM.MSG.DELETE.OBJ_${bucket}`,
      JSON.stringify({ seq: 2, no_erase: true }),
    );
    await expect(sizeOf(bodies.get('a'))).rejects.toMatchObject({ code: 'body.corrupt' });
  });

  test('other tools for object stores read our bodies', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket });
    await bodies.put('some/ref', pieces(1_000, 200_000));
    const connection = await plainConnection(url());
    const objects = await new Objm(jetstream(connection)).open(bucket);
    const bytes = await objects.getBlob('some/ref');
    expect(bytes).toHaveLength(201_000);
    expect(bytes?.[1_500]).toBe(2);
  });
});

/** The marker of a body whose message has ended: who sees it, how long it stays, when there is none. */

import { randomBytes } from 'node:crypto';
import { jetstream } from '@nats-io/jetstream';
import { Objm } from '@nats-io/obj';
import { headers } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import type { BodyStore, Clock } from 'respool';
import { MARKER_KEPT_MS, MARKERS_KEPT_AFTER_OPEN_MS } from '../../../src/stores/nats/body-store.ts';
import { withService } from '../../services/index.ts';
import { bucketName, openBodies, plainConnection } from './setup.ts';
import { systemClock } from '../../time.ts';

async function* bytesOf(size: number): AsyncGenerator<Uint8Array> {
  yield randomBytes(size);
}

async function refsOf(bodies: BodyStore): Promise<readonly string[]> {
  const refs: string[] = [];
  for await (const { ref } of bodies.refs(systemClock.now() + 60_000)) refs.push(ref);
  return refs.sort();
}

/** The clock of the machine, set forward by hand. */
class ShiftedClock implements Clock {
  byMs = 0;
  after(ms: number, call: () => void): () => void {
    return systemClock.after(ms, call);
  }
  soon(call: () => void): void {
    systemClock.soon(call);
  }
  now(): number {
    return systemClock.now() + this.byMs;
  }
  monotonic(): number {
    return systemClock.monotonic() + this.byMs;
  }
}

withService('nats', (url) => {
  async function streamOf(bucket: string) {
    const connection = await plainConnection(url());
    const messages = async (): Promise<number> => {
      const answer = await connection.request(`$JS.API.STREAM.INFO.OBJ_${bucket}`);
      return answer.json<{ state: { messages: number } }>().state.messages;
    };
    return { connection, messages };
  }

  test('one message stays of a body, and other tools see a deleted object', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket });
    const { connection, messages } = await streamOf(bucket);
    await bodies.put('a', bytesOf(300_000));
    await bodies.remove(['a'], 'removed');
    expect(await messages()).toBe(1);
    const objects = await new Objm(jetstream(connection)).open(bucket);
    expect(await objects.get('a')).toBeNull();
    expect(await objects.info('a')).toMatchObject({ deleted: true });
  });

  test('an object that another tool deleted is no proof of a settled message', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket });
    const { connection } = await streamOf(bucket);
    await bodies.put('a', bytesOf(1_000));
    const objects = await new Objm(jetstream(connection)).open(bucket);
    await objects.delete('a');
    expect(await bodies.wasSettled?.('a')).toBeUndefined();
  });

  test('a marker goes after an hour, not right after a process has opened the bucket', async () => {
    const bucket = bucketName();
    const clock = new ShiftedClock();
    const bodies = await openBodies({ url: url(), bucket, clock });
    const { messages } = await streamOf(bucket);
    await bodies.put('a', bytesOf(1_000));
    await bodies.put('b', bytesOf(1_000));
    await bodies.remove(['a'], 'removed');
    clock.byMs = MARKER_KEPT_MS - 60_000;
    expect(await refsOf(bodies)).toEqual(['b']);
    expect(await bodies.wasSettled?.('a')).toBe('removed');
    clock.byMs = MARKER_KEPT_MS + 60_000;
    const late = await openBodies({ url: url(), bucket, clock });
    expect(await refsOf(late)).toEqual(['b']);
    expect(await bodies.wasSettled?.('a')).toBe('removed');
    clock.byMs += MARKERS_KEPT_AFTER_OPEN_MS;
    expect(await refsOf(late)).toEqual(['b']);
    expect(await bodies.wasSettled?.('a')).toBeUndefined();
    expect(await messages()).toBe(2);
  });

  test('what a killed server brings back beside a marker is removed, the marker stays', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket });
    const { connection, messages } = await streamOf(bucket);
    await bodies.put('a', bytesOf(1_000));
    const subject = `$O.${bucket}.M.YQ==`;
    const found = await connection.request(`$JS.API.DIRECT.GET.OBJ_${bucket}.${subject}`);
    await bodies.remove(['a'], 'delivered');
    const marker = await connection.request(`$JS.API.DIRECT.GET.OBJ_${bucket}.${subject}`);
    // As after a restart that forgot both removals: chunk, object, marker.
    await connection.request(`$JS.API.STREAM.PURGE.OBJ_${bucket}`);
    await connection.request(`$O.${bucket}.C.YQ.x`, new Uint8Array(1_000));
    await connection.request(subject, found.data);
    const kept = headers();
    kept.set('Rs-Settled', marker.headers?.get('Rs-Settled') ?? '');
    await connection.request(subject, marker.data, { headers: kept, timeout: 20_000 });
    expect(await messages()).toBe(3);
    expect(await refsOf(bodies)).toEqual(['a']);
    expect(await bodies.wasSettled?.('a')).toBe('delivered');
    await bodies.remove(['a']);
    expect(await refsOf(bodies)).toEqual([]);
    expect(await bodies.wasSettled?.('a')).toBe('delivered');
    expect(await messages()).toBe(1);
  });

  test('in a full bucket a body is removed without a marker', async () => {
    const bucket = bucketName();
    const bodies = await openBodies({ url: url(), bucket, maxBytes: 2 ** 20 });
    const { connection } = await streamOf(bucket);
    await bodies.put('a', bytesOf(50_000));
    // Up to the last byte: smaller messages fit where larger ones do not.
    for (let size = 524_288; size >= 1; ) {
      const answer = await connection.request(`$O.${bucket}.C.eA.y`, new Uint8Array(size));
      if (answer.json<{ error?: object }>().error !== undefined) size = Math.floor(size / 2);
    }
    await bodies.remove(['a'], 'removed');
    expect(await bodies.wasSettled?.('a')).toBeUndefined();
    await bodies.put('b', bytesOf(10_000));
    expect(await refsOf(bodies)).toContain('b');
  });
});

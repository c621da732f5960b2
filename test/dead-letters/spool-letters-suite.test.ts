/** A spool as a place of dead letters, by the suite: in memory, on disk, and through a service. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type BodyStore, createSpool, type EntryStore, PermanentError, type Spool } from 'respool';
import type { Operator } from 'respool/operator';
import { filesystemBodies } from 'respool/stores/filesystem';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { sqlite } from 'respool/stores/sqlite';
import {
  deadLettersSuite,
  type FaultyStore,
  faultyStore,
  type LetterArrival,
  type LetterSample,
  type LettersUnderTest,
} from 'respool/testkit';
import { describe } from 'vitest';
import { createSpoolLetters } from 'respool/dead-letters';
import { connectOperator } from 'respool/web';
import { internalsOf } from '../../src/spool/internals.ts';
import { createServiceOperator } from '../../src/spool/operator/spool-operator.ts';
import { createService } from '../../src/web/server/service.ts';
import { AMQP_HEADER, REPLAY_HEADER } from '../../src/core/reserved-headers.ts';
import { all, bytesOf } from '../spool/setup.ts';
import { runSuite } from '../suite.ts';
import { SETTINGS } from '../web/setup.ts';

const TOPIC = 'suite.letter';
const OTHER = 'suite.elsewhere';

interface Ground {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  readonly clear?: () => Promise<void>;
}

async function make(ground: Ground, isFar: boolean): Promise<LettersUnderTest> {
  const store: FaultyStore = faultyStore(ground.entries);
  const spool = createSpool({ entries: store, bodies: ground.bodies });
  const near = spool.operator({ by: 'suite' });
  const { operator, stop } = isFar ? await served(spool) : { operator: near, stop: undefined };
  const arrivedAt = (isOther: boolean) => async () => {
    const entries = await all(spool.list({ state: 'incoming' }));
    const there = entries.filter(({ envelope }) => (envelope.topic === OTHER) === isOther);
    return Promise.all(there.map(async ({ envelope: { id } }) => arrivalOf(spool, id)));
  };
  return {
    letters: createSpoolLetters(operator),
    put: async (samples) => {
      for (const sample of samples) await giveUp(spool, sample);
    },
    arrived: arrivedAt(false),
    parked: async () =>
      (await all(spool.list({ state: 'hold' }))).map(({ envelope }) => envelope.id),
    second: async () => createSpoolLetters(near),
    failAgain: async (ids) => {
      for (const id of ids) await spool.process(id, failWith('suite.again', 'once more'));
    },
    deliver: async (ids) => {
      for (const id of ids) await spool.process(id, () => undefined);
    },
    breakDown: async () => {
      store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
    },
    recover: async () => {
      store.faults.plan = () => 'ok';
    },
    elsewhere: async () => ({
      route: { kind: 'topic', topic: OTHER },
      arrived: arrivedAt(true),
    }),
    dispose: async () => {
      await stop?.();
      await spool.stop();
      await ground.clear?.();
    },
  };
}

/** The operator of a service over the spool. */
async function served(
  spool: Spool,
): Promise<{ readonly operator: Operator; readonly stop: () => Promise<void> }> {
  const service = createService({
    operator: (by) => createServiceOperator(internalsOf(spool), { by }),
    settings: SETTINGS,
    bodyMaxBytes: 1_000_000,
    isReady: () => true,
    version: '1.2.3',
  });
  const { url } = await service.listen();
  const stop = async (): Promise<void> => {
    service.beginStop();
    await service.stop();
  };
  return { operator: connectOperator({ url, by: 'suite' }), stop };
}

async function giveUp(spool: Spool, sample: LetterSample): Promise<void> {
  const { id, topic = TOPIC, code = 'suite.failed', reason = 'it did not work' } = sample;
  const { headers = {}, body = Uint8Array.of(1, 2, 3), isUnroutable = false } = sample;
  // What came from a queue goes back there: no topic is its home.
  const mark = isUnroutable ? { [AMQP_HEADER]: '{}' } : {};
  await spool.enqueue({ id, topic, headers: { ...headers, ...mark }, body });
  await spool.process(id, failWith(code, reason));
}

function failWith(code: string, reason: string): () => never {
  return () => {
    throw new PermanentError(code, reason);
  };
}

async function arrivalOf(spool: Spool, id: string): Promise<LetterArrival> {
  const entry = await spool.get(id);
  const { headers = {} } = entry?.envelope ?? {};
  return {
    id,
    headers,
    body: await bytesOf(await spool.body(id)),
    contentType: headers['content-type'],
    replays: entry?.status.replays ?? -1,
    replay: headers[REPLAY_HEADER],
  };
}

const CAN = {
  canShare: true,
  canFailAgain: true,
  canTellDelivered: true,
  canBreak: true,
  canBeUnroutable: true,
  canSendElsewhere: true,
  hasContentType: true,
} as const;

async function inMemory(): Promise<Ground> {
  const shared = createMemoryData();
  return { entries: memory({ shared }), bodies: memoryBodies({ shared }) };
}

async function onDisk(): Promise<Ground> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-letters-'));
  return {
    entries: sqlite({ path: folder }),
    bodies: filesystemBodies({ path: path.join(folder, 'bodies') }),
    clear: () => rm(folder, { recursive: true }),
  };
}

describe('dead letters of a spool', () => {
  const suiteOf = (ground: () => Promise<Ground>, isFar = false) =>
    deadLettersSuite(async () => make(await ground(), isFar), CAN);
  runSuite('in memory', suiteOf(inMemory));
  runSuite('on disk', suiteOf(onDisk));
  runSuite('in memory, through a service', suiteOf(inMemory, true));
  runSuite('on disk, through a service', suiteOf(onDisk, true));
});

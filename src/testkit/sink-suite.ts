/**
 * sink-suite — the contract of a sink in full, one case per promise.
 *
 * Every sink of this package passes it against the real thing; so should yours. Each case gets a
 * fresh sink from the maker and disposes of it.
 */

import assert from 'node:assert/strict';
import { show } from '../core/errors.ts';
import type { OutgoingMessage, Sink } from '../ports/sink.ts';
import { SAMPLE_AT } from './samples.ts';
import type { SuiteCase } from './suite.ts';

/** What the other side has of a parcel. */
export type Arrival = Pick<OutgoingMessage, 'id' | 'topic' | 'headers' | 'body'>;

/** A fresh, empty sink and what the suite may do with the other side of it. */
export interface SinkUnderTest {
  readonly sink: Sink;
  /** What arrived so far, oldest first; waits until there are as many. */
  readonly arrived: (count: number) => Promise<readonly Arrival[]>;
  /** Makes the other side unreachable; needed for `canBreak`. */
  readonly breakDown?: () => Promise<void>;
  /** Lets it be reached again; needed for `canBreak`. */
  readonly recover?: () => Promise<void>;
  /** Makes of a parcel one that the other side refuses; needed for `canRefuse`. */
  readonly refusable?: (parcel: OutgoingMessage) => OutgoingMessage;
  /** Closes everything that was opened and removes the data. */
  readonly dispose: () => Promise<void>;
}

/** Makes a sink for one case. */
export type SinkMaker = () => Promise<SinkUnderTest>;

/** Which of the optional parts of the suite fit this sink. */
export interface SinkAbilities {
  /** The other side can be made unreachable, and be fixed. */
  readonly canBreak: boolean;
  /** There are parcels that the other side refuses. */
  readonly canRefuse: boolean;
  /** The other side keeps the order of one send. */
  readonly keepsOrder: boolean;
  /** The largest body of the cases, in bytes; default 1 MiB. */
  readonly largeBytes?: number;
}

interface World extends Required<Omit<SinkUnderTest, 'dispose'>> {
  readonly largeBytes: number;
}

interface SinkCase {
  readonly name: string;
  readonly needs?: keyof SinkAbilities;
  readonly run: (world: World) => Promise<void>;
}

const LARGE_BYTES: number = 1024 * 1024;
const MANY = 200;

/** The cases this sink has to pass, by what it can be asked. */
export function sinkSuite(make: SinkMaker, can: SinkAbilities): readonly SuiteCase[] {
  return CASES.filter(({ needs }) => needs === undefined || can[needs] === true).map(
    ({ name, run }) => ({
      name,
      async run() {
        const { dispose, ...under } = await make();
        const missing = (way: string) => () =>
          assert.fail(`the maker promised "${way}" and does not give it`);
        try {
          await run({
            breakDown: missing('breakDown'),
            recover: missing('recover'),
            refusable: missing('refusable'),
            ...under,
            largeBytes: can.largeBytes ?? LARGE_BYTES,
          });
        } finally {
          await dispose();
        }
      },
    }),
  );
}

const CASES: readonly SinkCase[] = [
  {
    name: 'what is confirmed has arrived, with its id, topic, headers and body',
    async run({ sink, arrived }) {
      const parcel = parcelOf(1, { headers: { 'x-one': 'a', two: 'ü' } });
      assert.deepEqual(await sink.send([parcel]), ['confirmed']);
      const [arrival, ...others] = await arrived(1);
      assertArrived(arrival, parcel);
      assert.equal(others.length, 0, 'one parcel arrived several times');
    },
  },
  {
    name: 'there is one answer for every parcel, in their order',
    async run({ sink, arrived }) {
      const parcels = parcelsOf(MANY);
      assertConfirmed(await sink.send(parcels), MANY);
      assert.deepEqual(idsOf(await arrived(MANY)).sort(), idsOf(parcels).sort());
    },
  },
  {
    name: 'an empty list is answered by an empty list',
    async run({ sink }) {
      assert.deepEqual(await sink.send([]), []);
    },
  },
  {
    name: 'parcels of one send arrive in order',
    needs: 'keepsOrder',
    async run({ sink, arrived }) {
      const parcels = parcelsOf(MANY);
      assertConfirmed(await sink.send(parcels), MANY);
      assert.deepEqual(idsOf(await arrived(MANY)), idsOf(parcels));
    },
  },
  {
    name: 'sends that are on their way at the same time are all answered',
    async run({ sink, arrived }) {
      const parcels = parcelsOf(50);
      const answers = await Promise.all(parcels.map((parcel) => sink.send([parcel])));
      assertConfirmed(answers.flat(), parcels.length);
      assert.deepEqual(idsOf(await arrived(50)).sort(), idsOf(parcels).sort());
    },
  },
  {
    name: 'bodies arrive byte for byte: empty, every byte there is, and large',
    async run({ sink, arrived, largeBytes }) {
      const everyByte = Uint8Array.from({ length: 256 }, (_, at) => at);
      const large = new Uint8Array(largeBytes).map((_, at) => at % 251);
      const bodies = [new Uint8Array(), everyByte, large];
      const parcels = bodies.map((body, at) => parcelOf(at, { body }));
      assertConfirmed(await sink.send(parcels), parcels.length);
      const arrivals = new Map((await arrived(3)).map((arrival) => [arrival.id, arrival]));
      for (const parcel of parcels) assertArrived(arrivals.get(parcel.id), parcel);
    },
  },
  {
    name: 'a parcel that is sent again is confirmed again, under the same id',
    async run({ sink, arrived }) {
      const parcel = parcelOf(1);
      assertConfirmed(await sink.send([parcel]), 1);
      assertConfirmed(await sink.send([parcel]), 1);
      const ids = new Set(idsOf(await arrived(1)));
      assert.deepEqual([...ids], [parcel.id]);
    },
  },
  {
    name: 'a refused parcel is answered by a failure, and those beside it are confirmed',
    needs: 'canRefuse',
    async run({ sink, arrived, refusable }) {
      const [first, second, third] = parcelsOf(3) as [
        OutgoingMessage,
        OutgoingMessage,
        OutgoingMessage,
      ];
      const answers = await sink.send([first, refusable(second), third]);
      assert.equal(answers.length, 3);
      assert.equal(answers[0], 'confirmed');
      assertFailed(answers[1]);
      assert.equal(answers[2], 'confirmed');
      assert.deepEqual(idsOf(await arrived(2)).sort(), idsOf([first, third]).sort());
    },
  },
  {
    name: 'while the other side is gone, parcels are answered by transient failures',
    needs: 'canBreak',
    async run({ sink, arrived, breakDown, recover }) {
      const [before, during, after] = parcelsOf(3) as [
        OutgoingMessage,
        OutgoingMessage,
        OutgoingMessage,
      ];
      assertConfirmed(await sink.send([before]), 1);
      await breakDown();
      const [answer, ...others] = await sink.send([during]);
      assert.equal(others.length, 0);
      assertFailed(answer);
      assert.equal(answer.permanence, 'transient', 'it is not known yet to be final');
      await recover();
      await untilConfirmed(sink, after);
      const ids = idsOf(await arrived(2));
      assert.ok(ids.includes(before.id), 'what was confirmed before is gone');
      assert.ok(ids.includes(after.id), 'what was confirmed after is not there');
    },
  },
  {
    name: 'close waits for what is on its way',
    async run({ sink, arrived }) {
      const parcels = parcelsOf(20);
      const sending = sink.send(parcels);
      await sink.close();
      const answers = await sending;
      assert.equal(answers.length, parcels.length);
      const confirmed = parcels.filter((_, at) => answers[at] === 'confirmed');
      assert.equal(confirmed.length, parcels.length, 'close did not wait for the answers');
      assert.deepEqual(idsOf(await arrived(20)).sort(), idsOf(parcels).sort());
    },
  },
  {
    name: 'a sink can be closed twice, and confirms nothing afterwards',
    async run({ sink }) {
      await sink.close();
      await sink.close();
      const answers: readonly unknown[] = await sink.send([parcelOf(1)]).catch(() => []);
      assert.ok(!answers.includes('confirmed'), 'a closed sink confirmed a parcel');
    },
  },
];

/** How often a fixed side is tried; each try may wait for it as long as the sink does. */
const RECOVERY_TRIES = 50;

async function untilConfirmed(sink: Sink, parcel: OutgoingMessage): Promise<void> {
  for (let tries = 0; tries < RECOVERY_TRIES; tries += 1) {
    const [answer] = await sink.send([parcel]);
    if (answer === 'confirmed') return;
  }
  assert.fail(`not confirmed after ${RECOVERY_TRIES} tries, though the other side has recovered`);
}

function parcelOf(at: number, parts: Partial<OutgoingMessage> = {}): OutgoingMessage {
  return {
    id: `parcel-${String(at).padStart(5, '0')}`,
    topic: 'suite.parcel',
    headers: {},
    body: Uint8Array.of(at % 256),
    enqueuedAt: SAMPLE_AT,
    ...parts,
  };
}

function parcelsOf(count: number): OutgoingMessage[] {
  return Array.from({ length: count }, (_, at) => parcelOf(at));
}

function idsOf(parcels: readonly { readonly id: string }[]): string[] {
  return parcels.map(({ id }) => id);
}

type Answer = Awaited<ReturnType<Sink['send']>>[number];

function assertConfirmed(answers: readonly Answer[], count: number): void {
  assert.equal(answers.length, count, 'not one answer for each');
  for (const answer of answers) assert.equal(answer, 'confirmed');
}

function assertFailed(answer: Answer | undefined): asserts answer is Exclude<Answer, 'confirmed'> {
  assert.ok(typeof answer === 'object', `answered ${show(answer)}, not a failure`);
  assert.ok(['transient', 'permanent'].includes(answer.permanence));
  assert.ok(answer.code !== '' && answer.reason !== '', 'a failure says why');
}

/** The other side may have headers of its own besides. */
function assertArrived(arrival: Arrival | undefined, parcel: OutgoingMessage): void {
  assert.ok(arrival !== undefined, `parcel "${parcel.id}" did not arrive`);
  assert.equal(arrival.id, parcel.id);
  assert.equal(arrival.topic, parcel.topic);
  for (const [name, value] of Object.entries(parcel.headers)) {
    assert.equal(arrival.headers[name], value, `header "${name}"`);
  }
  assert.ok(Buffer.from(arrival.body).equals(parcel.body), `the body of "${parcel.id}" differs`);
}

/**
 * producer — publishes planned messages with confirms, and notes in the ledger what it knows of
 * each: `ok` when it was confirmed, `unknown` when it may or may not be there. It lives beside the
 * ledger and is never killed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { isRespoolError } from 'respool';
import type { Publisher } from 'respool/rabbit';
import type { Chance } from '../../torture/chance.ts';
import type { Ledger } from '../../torture/ledger.ts';
import { bodyOf, type Plan, type Planned, sha256 } from '../../torture/plans.ts';

const PLANS: ReadonlyMap<Plan, number> = new Map([
  ['ok', 50],
  ['retry', 25],
  ['postpone', 10],
  ['permanent', 10],
  ['hold', 5],
]);
const SIZES: ReadonlyMap<number, number> = new Map([
  [0, 10],
  [200, 60],
  [4_096, 25],
  [200_000, 5],
]);
/** Before the same message is tried again. */
const AGAIN_MS = 50;
const PACE_MS = 10;

export interface ProducerParts {
  readonly publisher: Publisher;
  readonly ledger: Ledger;
  readonly chance: Chance;
  readonly queue: string;
}

export class Producer {
  /** Publishes whose outcome was unknown: each may have left a message of its own. */
  unknown = 0;
  readonly #parts: ProducerParts;
  readonly #running: Promise<void>[] = [];
  #count = 0;
  #isFinishing = false;

  constructor(parts: ProducerParts) {
    this.#parts = parts;
  }

  /** Produces by chance until `finish`. */
  start(lanes = 2): void {
    for (let lane = 0; lane < lanes; lane += 1) this.#running.push(this.#run());
  }

  async finish(): Promise<void> {
    this.#isFinishing = true;
    await Promise.all(this.#running);
  }

  /** One message; resolves when it is confirmed, however often it takes. */
  async produce(plan?: Plan): Promise<string> {
    const { publisher, ledger, queue } = this.#parts;
    const message = this.#next(plan);
    const { key, size } = message;
    const noted = { ...message, outcome: 'open', wasUnknown: false, removal: 'none' } as const;
    ledger.messages.set(key, noted);
    const headers = { plan: message.plan };
    for (;;) {
      try {
        await publisher.publish({ id: key, key: queue, headers, body: bodyOf(key, size) });
        const wasUnknown = ledger.messages.get(key)?.wasUnknown === true;
        ledger.messages.set(key, { ...noted, wasUnknown, outcome: 'ok' });
        return key;
      } catch (error) {
        const isUnknown = isRespoolError(error, 'broker.unconfirmed');
        if (!isUnknown && !isRespoolError(error, 'broker.unavailable')) throw error;
        if (isUnknown) {
          this.unknown += 1;
          ledger.messages.set(key, { ...noted, outcome: 'unknown', wasUnknown: true });
        }
        await sleep(AGAIN_MS);
      }
    }
  }

  async #run(): Promise<void> {
    while (!this.#isFinishing) {
      await this.produce();
      await sleep(this.#parts.chance.between(0, PACE_MS * 2));
    }
  }

  #next(plan: Plan | undefined): Planned {
    const { chance } = this.#parts;
    this.#count += 1;
    const key = `m${this.#count}`;
    const size = chance.weighed(SIZES);
    const chosen = plan ?? chance.weighed(PLANS);
    return { key, plan: chosen, size, sha256: sha256(bodyOf(key, size)), hasOwnId: true };
  }
}

/**
 * full — lets a small disk run full under a spool, and gives the room back.
 *
 *   enqueue until refused ─▶ everything accepted is there ─▶ deliver on the full disk as far as it
 *   goes ─▶ room again ─▶ enqueue more ─▶ everything accepted is delivered, once
 */
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fixed, isRespoolError, type Spool } from 'respool';
import { inFolder } from './folder.ts';
import { withSmallDisk } from './image.ts';
import { inspect } from './inspect.ts';
import { type Place, spoolAt } from './places.ts';
import { bodyOf, sha256 } from './plans.ts';

/** What came of it. */
export interface FullResult {
  readonly place: Place;
  readonly accepted: number;
  readonly refused: number;
  readonly complaints: readonly string[];
}

const DISK_BYTES = 8 * 2 ** 20;
/** Given back after the disk is full. */
const BALLAST_BYTES = 3 * 2 ** 20;
const SIZES = [900, 30_000, 0, 6_000];
/** Enqueues after the first refusal: some may still fit, none may be lost. */
const MORE = 40;
const OPTIONS = { policies: { default: fixed('10ms', { attempts: 50 }) }, concurrency: 4 };

/** Fills the disk under a spool that only takes, delivers what goes, then gives room back. */
export function full(place: Place): Promise<FullResult> {
  return inFolder((folder) =>
    withSmallDisk(folder, DISK_BYTES, async (disk) => {
      const path = join(disk, 'spool');
      const ballast = join(disk, 'ballast');
      await writeFile(ballast, Buffer.alloc(BALLAST_BYTES, 1));
      const run = new FullRun(place, path);
      await run.fill();
      await run.lookWhileFull();
      const delivered = await run.deliver();
      await rm(ballast);
      await run.goOn(delivered);
      const { accepted, refused, complaints } = run;
      return { place, accepted: accepted.size, refused, complaints };
    }),
  );
}

class FullRun {
  readonly accepted = new Set<string>();
  readonly complaints: string[] = [];
  refused = 0;
  readonly #spool: Spool;
  readonly #place: Place;
  readonly #path: string;
  /** What the body of each message hashes to. */
  readonly #hashes = new Map<string, string>();
  readonly #delivered = new Map<string, number>();
  #count = 0;

  constructor(place: Place, path: string) {
    this.#place = place;
    this.#path = path;
    this.#spool = spoolAt(place, path, OPTIONS);
  }

  async fill(): Promise<void> {
    while (this.refused === 0 && this.#count < 10_000) await this.#enqueue();
    for (let more = 0; more < MORE; more += 1) await this.#enqueue();
    if (this.refused === 0) this.complaints.push('the disk never ran full');
  }

  async lookWhileFull(): Promise<void> {
    const found = new Set<string>();
    for await (const { envelope } of this.#spool.list()) {
      const key = envelope.headers['key'] ?? '';
      found.add(key);
      if (!this.accepted.has(key)) this.complaints.push(`${key} was refused and is there`);
    }
    for (const key of this.accepted) {
      if (!found.has(key)) this.complaints.push(`${key} was accepted and is gone`);
    }
  }

  /**
   * Begins to deliver while there is no room, and returns when that has gone as far as it will.
   * What it returns resolves when everything is delivered.
   */
  async deliver(): Promise<() => Promise<void>> {
    const isAll = (): boolean => this.#delivered.size >= this.accepted.size;
    let onDelivered = (): void => undefined;
    const all = (): Promise<void> =>
      new Promise((resolve) => {
        onDelivered = () => {
          if (isAll()) resolve();
        };
        onDelivered();
      });
    this.#spool.on('delivered', () => onDelivered());
    const trouble = new Promise((resolve) => this.#spool.on('trouble', resolve));
    this.#spool.handle('fill', async (delivery) => {
      const key = delivery.headers['key'] ?? '';
      const isRight = sha256(await delivery.body()) === this.#hashes.get(key);
      if (!isRight) this.complaints.push(`${key} was delivered with another body`);
      this.#delivered.set(key, (this.#delivered.get(key) ?? 0) + 1);
    });
    await this.#spool.start();
    await Promise.race([all(), trouble]);
    return all;
  }

  /** Room again, in the same process: new messages are taken, and all are delivered. */
  async goOn(delivered: () => Promise<void>): Promise<void> {
    const refused = this.refused;
    for (let more = 0; more < MORE; more += 1) await this.#enqueue();
    if (this.refused > refused) this.complaints.push('refused although there is room again');
    await delivered();
    await this.#spool.stop();
    for (const [key, times] of this.#delivered) {
      if (times > 1) this.complaints.push(`${key} was delivered ${times} times`);
    }
    const { entries, corrupt, findings } = await inspect(this.#place, this.#path);
    for (const { key, state } of entries) this.complaints.push(`${key} is left in ${state}`);
    this.complaints.push(...corrupt, ...findings.map(({ text }) => text));
  }

  async #enqueue(): Promise<void> {
    this.#count += 1;
    const key = `m${this.#count}`;
    const body = bodyOf(key, SIZES[this.#count % SIZES.length] ?? 0);
    this.#hashes.set(key, sha256(body));
    try {
      await this.#spool.enqueue({ topic: 'fill', headers: { key }, body });
      this.accepted.add(key);
    } catch (error) {
      this.refused += 1;
      if (isRespoolError(error, 'store.full')) return;
      const said = isRespoolError(error) ? `${error.code}: ${error.message}` : String(error);
      this.complaints.push(`${key} was refused with ${said}`);
    }
  }
}

/**
 * corruption — damages what a spool has put down, while it is closed, and lets it deliver the rest.
 *
 * Promise under test: other bytes than were accepted are never delivered; what is damaged is held or
 * put aside and can be seen; its neighbours do not notice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fixed, type SpoolOptions } from 'respool';
import { type Chance, createChance } from './chance.ts';
import { damageEntry, damageBody, type Harm, HARMS } from './damage.ts';
import { inFolder } from './folder.ts';
import { inspect } from './inspect.ts';
import { type Place, spoolAt } from './places.ts';
import { bodyOf, sha256 } from './plans.ts';

/** What came of it. */
export interface CorruptionResult {
  readonly place: Place;
  readonly seed: number;
  readonly damaged: number;
  readonly messages: number;
  /** Damaged messages that were held or put aside. */
  readonly noticed: number;
  readonly complaints: readonly string[];
}

/** Messages by key: those with an `s` have their body in the body store. */
const KEYS: readonly string[] = Array.from({ length: 24 }, (_, at) =>
  at % 2 === 0 ? `m${at}` : `s${at}`,
);
const DAMAGED_MAX = 5;
const OPTIONS: SpoolOptions = { policies: { default: fixed('5ms', { attempts: 3 }) } };

/** Damages some messages and delivers the others. */
export function corruption(place: Place, seed: number): Promise<CorruptionResult> {
  return inFolder(async (path) => {
    const chance = createChance(seed);
    await layDownAll(place, path);
    const harmed = await harmSome(place, path, chance);
    const { delivered, complaints } = await deliverAll(place, path);
    const { entries, corrupt } = await inspectDamaged(place, path);
    for (const key of KEYS) {
      const times = delivered.get(key) ?? 0;
      const harm = harmed.get(key);
      if (times > 1) complaints.push(`${key} was delivered ${times} times`);
      if (harm === undefined && times === 0)
        complaints.push(`${key} was not damaged, nor delivered`);
      if (harm === undefined || times > 0) continue;
      const isHeld = entries.get(key) === 'hold';
      const isAside = corrupt.some((text) => text.startsWith(`${key} `));
      if (!isHeld && !isAside) {
        complaints.push(`${key} (${harm}) is ${entries.get(key) ?? 'gone, and nobody says why'}`);
      }
    }
    const noticed = [...harmed.keys()].filter((key) => !delivered.has(key)).length;
    return {
      place,
      seed,
      damaged: harmed.size,
      messages: KEYS.length,
      noticed,
      complaints: complaints.map((text) => `${place}, seed ${seed}: ${text}`),
    };
  });
}

function sizeOf(key: string): number {
  return key.startsWith('s') ? 24_000 : 600;
}

async function layDownAll(place: Place, path: string): Promise<void> {
  const spool = spoolAt(place, path, OPTIONS);
  for (const key of KEYS) {
    await spool.enqueue({ id: key, topic: 'c', headers: { key }, body: bodyOf(key, sizeOf(key)) });
  }
  await spool.stop();
}

async function harmSome(
  place: Place,
  path: string,
  chance: Chance,
): Promise<ReadonlyMap<string, Harm>> {
  const harmed = new Map<string, Harm>();
  const count = chance.between(1, DAMAGED_MAX);
  while (harmed.size < count) {
    const key = KEYS[chance.between(0, KEYS.length - 1)] ?? 'm0';
    if (harmed.has(key)) continue;
    const harm = HARMS[chance.between(0, HARMS.length - 1)] ?? 'flip';
    const isBody = key.startsWith('s') && chance.happens(0.5);
    harmed.set(key, harm);
    if (isBody) await damageBody(path, key, harm, chance);
    else await damageEntry(place, path, key, harm, chance);
  }
  return harmed;
}

async function deliverAll(
  place: Place,
  path: string,
): Promise<{ readonly delivered: ReadonlyMap<string, number>; readonly complaints: string[] }> {
  const spool = spoolAt(place, path, OPTIONS);
  const delivered = new Map<string, number>();
  const complaints: string[] = [];
  spool.handle('#', async (delivery) => {
    const key = delivery.headers['key'] ?? '';
    const hash = sha256(await delivery.body());
    if (hash !== sha256(bodyOf(key, sizeOf(key)))) complaints.push(`${key} was delivered wrong`);
    delivered.set(key, (delivered.get(key) ?? 0) + 1);
  });
  await spool.start();
  const isQuiet = async (): Promise<boolean> => {
    const { incoming, active, deferred } = await spool.count();
    return incoming + active + deferred === 0;
  };
  while (!(await isQuiet())) await sleep(5);
  // The caretaker must get along with what is damaged too.
  await spool.operator({ by: 'ops' }).cleanUp();
  await spool.stop();
  return { delivered, complaints };
}

/** States by key, and what cannot be read; `check` looks at damaged bodies too. */
async function inspectDamaged(
  place: Place,
  path: string,
): Promise<{ readonly entries: ReadonlyMap<string, string>; readonly corrupt: readonly string[] }> {
  const { entries, corrupt } = await inspect(place, path, { options: OPTIONS, bodies: 'none' });
  return { entries: new Map(entries.map(({ key, state }) => [key, state])), corrupt };
}

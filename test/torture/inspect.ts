/**
 * inspect — opens a spool after a fault, as a fresh process would, and says what is in it.
 */
import { type Finding, isRespoolError, type Spool, type SpoolOptions } from 'respool';
import { type Found, NOT_DUE } from './checker.ts';
import { type Place, spoolAt } from './places.ts';
import { sha256 } from './plans.ts';

/** An entry, as far as tests ask. */
export interface Seen extends Found {
  readonly id: string;
  readonly revision: number;
  readonly attempts: number;
}

/** What a spool holds. */
export interface Sight {
  readonly entries: readonly Seen[];
  /** What cannot be read as an entry. */
  readonly corrupt: readonly string[];
  /** What `check` found wrong, bodies without entry apart: a crash may leave those. */
  readonly findings: readonly Finding[];
  /** Bodies without entry. */
  readonly orphans: number;
  /** How long it took to open the stores. */
  readonly openMs: number;
}

const HALF_AN_HOUR_MS = 1_800_000;

/** How to look. */
export interface Looking {
  /** Whether what `check` can repair is repaired; default false. */
  readonly repair?: boolean;
  readonly options?: SpoolOptions;
  /** `none`: bodies are known to be damaged, and not read; default `all`. */
  readonly bodies?: 'all' | 'none';
}

/** Looks into the spool in this folder. */
export async function inspect(
  place: Place,
  path: string,
  { repair = false, options = {}, bodies = 'all' }: Looking = {},
): Promise<Sight> {
  const spool = spoolAt(place, path, options);
  const beganAt = performance.now();
  try {
    await spool.get('none');
    const openMs = performance.now() - beganAt;
    const { corrupt } = await spool.page({ limit: 1 });
    const entries: Seen[] = [];
    for await (const { envelope, status } of spool.list()) {
      const { id, headers, body } = envelope;
      const { state, dueAt, revision, attempts, because } = status;
      const isFar = dueAt !== null && dueAt > Date.now() + HALF_AN_HOUR_MS;
      const code = isFar && state !== 'archived' ? NOT_DUE : because?.code;
      entries.push({
        key: headers['key'] ?? id,
        id,
        state,
        revision,
        attempts,
        ...(code === undefined ? {} : { code }),
        ...(body.place === 'none' || bodies === 'none' ? {} : { sha256: await hashOf(spool, id) }),
      });
    }
    const { findings } = await spool.operator({ by: 'ops' }).check({ repair });
    const orphans = findings.filter(({ kind }) => kind === 'body.orphan');
    return {
      entries,
      corrupt: corrupt.map(({ id, where, reason }) => `${id ?? '?'} at ${where}: ${reason}`),
      findings: findings.filter(({ kind }) => kind !== 'body.orphan'),
      orphans: orphans.length,
      openMs,
    };
  } finally {
    await spool.stop();
  }
}

/** Where two looks differ, in words; the second must find what the first one left. */
export function differences(first: Sight, second: Sight): string[] {
  const [before, after] = [textsOf(first), textsOf(second)];
  return [
    ...before.filter((text) => !after.includes(text)).map((text) => `only at first: ${text}`),
    ...after.filter((text) => !before.includes(text)).map((text) => `only later: ${text}`),
  ];
}

function textsOf({ entries }: Sight): string[] {
  return entries.map(
    ({ key, id, state, revision, attempts, sha256: hash }) =>
      `${key} ${id} ${state} r${revision} a${attempts} ${hash ?? 'no body'}`,
  );
}

/** The hash of a body; of one that cannot be read, why not, which equals no hash. */
async function hashOf(spool: Spool, id: string): Promise<string> {
  const parts: Uint8Array[] = [];
  try {
    for await (const part of await spool.body(id)) parts.push(part);
  } catch (error) {
    if (isRespoolError(error)) return error.code;
    throw error;
  }
  return sha256(Buffer.concat(parts));
}

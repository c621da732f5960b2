/**
 * check — is the store consistent? Entries without body, bodies without entry, what cannot be
 * decoded, impossible leases. With repair: held, removed after the grace period, made due.
 */

import type { Millis } from '../core/duration.ts';
import type { Entry } from '../core/entry.ts';
import { assert, isRespoolError, textOf } from '../core/errors.ts';
import { PAGE_MAX } from '../core/limits.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { EntryStore, UnreadEntry } from '../ports/entry-store.ts';
import { setReadWindow } from '../system/memory.ts';
import { endingOf, isDamaged, readBody } from './body.ts';
import { isOrphan } from './caretaker.ts';
import type { Chain } from './chain.ts';
import { audit } from './actions.ts';
import type { Runtime } from './runtime.ts';

/**
 * Why a body cannot be read: it is damaged, or we lack what it takes (LASTING_BODY_ERRORS of
 * engine/attempt.ts), or do so for now.
 */
const UNREADABLE = [
  'body.missing',
  'body.corrupt',
  'key.unavailable',
  'transform.missing',
  'peer.missing',
  'store.unavailable',
] as const;
type Unreadable = (typeof UNREADABLE)[number];

/** One thing that is not as it should be. */
export interface Finding {
  readonly kind: Unreadable | 'body.orphan' | 'entry.corrupt' | 'lease';
  /** The message, where there is one. */
  readonly id?: string;
  /** The body's ref, or where the damage lies. */
  readonly where: string;
  readonly text: string;
  /** What was done about it, when repair was asked for and possible; or that it is held already. */
  readonly repaired?: string;
}

/** What `check` found. */
export interface CheckReport {
  readonly entries: number;
  readonly bodies: number;
  readonly findings: readonly Finding[];
}

/** How far a check is: messages first, then bodies, whose number shows only as they come. */
export interface CheckProgress {
  readonly seen: number;
  readonly total: number;
}

/** How a store is checked. */
export interface CheckOptions {
  /** Also repairs what can be repaired; default false. */
  readonly repair?: boolean;
  /** Called with the progress after each message and each body. */
  readonly onProgress?: (progress: CheckProgress) => void;
}

/** What `check` needs and may do. */
interface CheckArguments {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
  readonly chain: Chain;
  readonly now: () => Millis;
  readonly wentBackAt: () => Millis | undefined;
  readonly leaseMs: number;
  readonly orphanGraceMs: number;
  readonly repair: boolean;
  /** Hears how far it is, after each message and each body. */
  readonly onProgress?: ((progress: CheckProgress) => void) | undefined;
  /** Puts a repair on record; resolves when it may be done. */
  readonly record: (repair: {
    readonly ids: readonly string[];
    readonly details: object;
  }) => Promise<void>;
}

/** Maximum number of findings in one report. Also in docs/reference/limits.md. */
const FINDINGS_MAX = 10_000;

/** Looks through every entry and every body; reads every stored body once. */
export async function check(parts: CheckArguments): Promise<CheckReport> {
  const findings: Finding[] = [];
  const report = (finding: Finding): void => {
    if (findings.length < FINDINGS_MAX) findings.push(finding);
  };
  const { onProgress } = parts;
  const expected = onProgress === undefined ? 0 : await countOf(parts.entries);
  let entries = 0;
  let after: string | undefined;
  do {
    const page = await parts.entries.list({
      limit: PAGE_MAX,
      ...(after === undefined ? {} : { after }),
    });
    for (const damage of page.corrupt) report(damaged(damage));
    for (const entry of page.entries) {
      entries += 1;
      const finding = (await bodyFinding(parts, entry)) ?? (await leaseFinding(parts, entry));
      if (finding !== undefined) report(finding);
      onProgress?.({ seen: entries, total: Math.max(expected, entries) });
    }
    after = page.next;
  } while (after !== undefined);
  let bodies = 0;
  for await (const { ref, writtenAt } of parts.bodies.refs(Number.MAX_SAFE_INTEGER)) {
    bodies += 1;
    const finding = await orphanFinding(parts, ref, writtenAt);
    if (finding !== undefined) report(finding);
    onProgress?.({ seen: entries + bodies, total: entries + bodies });
  }
  return { entries, bodies, findings };
}

async function countOf(entries: EntryStore): Promise<number> {
  const rows = await entries.tally('state', {});
  return rows.reduce((sum, { count }) => sum + count, 0);
}

function damaged({ id, where, reason, code }: UnreadEntry): Finding {
  // An entry that is whole, but under a seal whose key is not at hand, is not damaged.
  const kind = UNREADABLE.find((one) => one === code) ?? 'entry.corrupt';
  return { kind, where, text: reason, ...(id === undefined ? {} : { id }) };
}

async function bodyFinding(parts: CheckArguments, listed: Entry): Promise<Finding | undefined> {
  const { id, body } = listed.envelope;
  if (!isDamaged(listed.envelope) && body.place === 'none') return undefined;
  // Lists come without inline bytes, and the entry may have moved on since.
  const entry = await read(parts, id);
  if (entry === undefined || 'kind' in entry) return entry;
  // Delivered since it was listed, and kept without its body.
  if (!isDamaged(entry.envelope) && entry.envelope.body.place === 'none') return undefined;
  try {
    // Read to its end for the verification that comes with the last part.
    let bytes = 0;
    const stream = readBody(entry, parts);
    setReadWindow(stream, 0);
    for await (const part of stream) bytes += part.byteLength;
    assert(bytes === body.size, `the verified body of "${id}" has another size`);
    return undefined;
  } catch (error) {
    const kind = UNREADABLE.find((code) => isRespoolError(error, code));
    if (kind === undefined) throw error;
    // Taken and finished between the two looks: then there is nothing to find.
    if ((await parts.entries.get(id))?.status.revision !== entry.status.revision) return undefined;
    const where = isDamaged(entry.envelope) ? id : body.ref;
    const found = { kind, id, where, text: textOf(error) };
    // Nothing is wrong with the message: with the key, or the transform, it can be delivered.
    const isDamage = kind === 'body.missing' || kind === 'body.corrupt';
    if (!isDamage) return found;
    return { ...found, ...(await holdIfIdle(parts, entry, kind, textOf(error))) };
  }
}

/** The entry, or that it is damaged: a list does not read as much of it as this does. */
async function read({ entries }: CheckArguments, id: string): Promise<Entry | Finding | undefined> {
  try {
    return await entries.get(id);
  } catch (error) {
    if (!isRespoolError(error, 'store.corrupt')) throw error;
    return { kind: 'entry.corrupt', id, where: id, text: textOf(error) };
  }
}

async function leaseFinding(parts: CheckArguments, entry: Entry): Promise<Finding | undefined> {
  const { status, envelope } = entry;
  const { id } = envelope;
  const { holder, claimedFrom: _claimedFrom, ...rest } = status;
  const now = parts.now();
  const next = { revision: status.revision + 1, updatedAt: now };
  if (status.state !== 'active') {
    if (holder === undefined) return undefined;
    const text = `it is in ${status.state} and yet has a holder`;
    const finding = { kind: 'lease' as const, id, where: id, text };
    return repairedBy(parts, entry, finding, { ...rest, ...next }, 'its holder was removed');
  }
  const isBeyond = status.dueAt === null || status.dueAt > now + 10 * parts.leaseMs;
  if (!isBeyond) return undefined;
  const text = 'its lease never ends, or ends much later than any lease does';
  const finding = { kind: 'lease' as const, id, where: id, text };
  const to = { ...status, ...next, dueAt: now };
  return repairedBy(parts, entry, finding, to, 'its lease was ended');
}

async function repairedBy(
  parts: CheckArguments,
  entry: Entry,
  finding: Finding,
  to: Entry['status'],
  repaired: string,
): Promise<Finding> {
  if (!parts.repair) return finding;
  await parts.record({ ids: [entry.envelope.id], details: { kind: finding.kind, repaired } });
  const [answer] = await parts.entries.commit([guarded(entry, to)]);
  return answer === 'done' ? { ...finding, repaired } : finding;
}

async function orphanFinding(
  parts: CheckArguments,
  ref: string,
  writtenAt: Millis,
): Promise<Finding | undefined> {
  if (!(await isOrphan(parts.entries, ref))) return undefined;
  const text = 'a body without entry: its enqueue did not finish, or its removal was interrupted';
  const finding = { kind: 'body.orphan' as const, where: ref, text };
  // A young one may belong to an enqueue that is still going on.
  if (!parts.repair || parts.now() - writtenAt < parts.orphanGraceMs) return finding;
  if (!(await isOrphan(parts.entries, ref))) return undefined;
  const repaired = 'it was removed';
  await parts.record({ ids: [], details: { kind: finding.kind, where: ref, repaired } });
  await parts.bodies.remove([ref]);
  return { ...finding, repaired };
}

async function holdIfIdle(
  parts: CheckArguments,
  entry: Entry,
  code: string,
  text: string,
): Promise<{ repaired?: string }> {
  const { status } = entry;
  // It is held already: the next check need not report it again.
  if (status.state === 'hold') return { repaired: 'it is held' };
  if (!parts.repair || status.state === 'active') return {};
  // It has ended before: its next attempt finds that out and ends it again.
  const isMissing = code === 'body.missing' && status.dueAt !== null;
  if (isMissing && (await endingOf(parts.bodies, entry.envelope)) !== undefined) return {};
  if (status.ending === 'delivered') return forgetBody(parts, entry, code);
  const now = parts.now();
  const repaired = 'it was held';
  await parts.record({ ids: [entry.envelope.id], details: { kind: code, repaired } });
  const [answer] = await parts.entries.commit([
    guarded(entry, {
      ...status,
      state: 'hold',
      revision: status.revision + 1,
      dueAt: null,
      because: { code, text, by: 'check' },
      updatedAt: now,
    }),
  ]);
  return answer === 'done' ? { repaired } : {};
}

/** A delivered message needs no body any more: held, it would block the others of its order key. */
async function forgetBody(
  parts: CheckArguments,
  entry: Entry,
  code: string,
): Promise<{ repaired?: string }> {
  const { envelope, status } = entry;
  const repaired = 'it was delivered before; its body is recorded as not kept';
  await parts.record({ ids: [envelope.id], details: { kind: code, repaired } });
  const to = { ...status, revision: status.revision + 1, updatedAt: parts.now() };
  const body = { ...GONE, ...envelope.body, place: 'none' as const };
  const change = { ...guarded(entry, to), envelope: { ...envelope, body } };
  const [answer] = await parts.entries.commit([change]);
  return answer === 'done' ? { repaired } : {};
}

/** What is recorded of a body whose record cannot be read. */
const GONE: Entry['envelope']['body'] = {
  ref: '',
  place: 'none',
  size: 0,
  storedSize: 0,
  digest: '',
  encodings: [],
};

function guarded(entry: Entry, to: Entry['status']): Parameters<EntryStore['commit']>[0][number] {
  const { envelope, status } = entry;
  return {
    id: envelope.id,
    revision: status.revision,
    to,
    ...(status.holder === undefined ? {} : { holder: status.holder }),
  };
}

/** Checks a whole spool; what it repairs is in the audit record. */
export async function checkAll(
  runtime: Runtime,
  by: string,
  { repair = false, onProgress }: CheckOptions = {},
): Promise<CheckReport> {
  await runtime.ready();
  const { entries, bodies, chain, now, wentBackAt, settings } = runtime;
  const record: CheckArguments['record'] = ({ ids, details }) =>
    audit(runtime, { by, action: 'check', ids, details: { ...details } });
  const parts = { entries, bodies, chain, now, wentBackAt, repair, record, onProgress };
  return check({ ...settings, ...parts });
}

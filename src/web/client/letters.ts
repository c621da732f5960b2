/**
 * letters — dead letters through a service: replays, kept copies, lines of the audit record
 * and records. Bodies go in Base64 within JSON, which bounds them.
 */

import { isRespoolError, RespoolError } from '../../core/errors.ts';
import { checkRecordKind, ID_PATTERN } from '../../core/limits.ts';
import type { Operator } from '../../spool/operator/operator.ts';
import type { KeptCopy } from '../../ports/dead-letters.ts';
import type { KeyedRecord, LogRecord, RecordStore } from '../../ports/record-store.ts';
import type { ActionResult } from '../../spool/actions.ts';
import type { ReplayOrder } from '../../spool/replay.ts';
import * as forms from './answers.ts';
import type { ServiceClient } from './http.ts';

/** A body that is changed or kept through a service has no more; a service takes 16 MiB of JSON. */
const BODY_MAX_BYTES = 12_000_000;
/** Copies, and bytes of their bodies, in one request; a single one may be longer. */
const BATCH_MAX = 500;
const BATCH_MAX_BYTES = 4_194_304;

/** The part of an operator that is about dead letters. */
export function letters(
  client: ServiceClient,
): Pick<Operator, 'keep' | 'recordAction' | 'records' | 'replay' | 'tellSweep'> {
  return {
    replay: async (ids, order) =>
      byIds(client, ids, { path: '/v1/replay', json: orderJson(order) }),
    keep: (copies) => sendCopies(client, copies),
    recordAction: async (action, details) => {
      const json = { action, details };
      await client.ask('/v1/audit', forms.okForm, { method: 'POST', json });
    },
    records: recordsOf(client),
    tellSweep: async (json) => {
      await client.ask('/v1/sweeps', forms.okForm, { method: 'POST', json });
    },
  };
}

function orderJson({ change, ...order }: ReplayOrder): object {
  if (change === undefined) return order;
  const { body, ...rest } = change;
  if (body === undefined) return { ...order, change: rest };
  return { ...order, change: { ...rest, bodyBase64: base64Of(body) } };
}

async function sendCopies(client: ServiceClient, copies: readonly KeptCopy[]): Promise<void> {
  const all = copies.map(({ body, ...copy }) => ({ ...copy, bodyBase64: base64Of(body) }));
  let from = 0;
  while (from < all.length) {
    let end = from + 1;
    let bytes = copies[from]?.body.byteLength ?? 0;
    while (end < all.length && end - from < BATCH_MAX) {
      bytes += copies[end]?.body.byteLength ?? 0;
      if (bytes > BATCH_MAX_BYTES) break;
      end += 1;
    }
    const json = { copies: all.slice(from, end) };
    const done = from;
    const asking = client.ask('/v1/copies', forms.okForm, { method: 'POST', json });
    await asking.catch((error: unknown) => {
      throw inParts(error, done, `of ${all.length} copies were kept before`);
    });
    from = end;
  }
}

function base64Of(body: Uint8Array): string {
  if (body.byteLength > BODY_MAX_BYTES) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot send a body of ${body.byteLength} bytes to a service in JSON: allowed are ` +
        `${BODY_MAX_BYTES}; do it at the store itself`,
    );
  }
  return Buffer.from(body).toString('base64');
}

const anything: forms.AnswerForm<unknown> = (value) => value;

const logForm = forms.fields<{ records: LogRecord[]; next?: number }>({
  records: forms.listForm(
    forms.fields<LogRecord>({ sequence: forms.numberForm, record: anything }),
  ),
  next: forms.optional(forms.numberForm),
});
const mapForm = forms.fields<{ values: KeyedRecord[]; next?: string }>({
  values: forms.listForm(
    forms.fields<KeyedRecord>({ key: forms.textForm, value: anything, revision: forms.numberForm }),
  ),
  next: forms.optional(forms.textForm),
});
const sequenceForm = forms.fields<{ sequence: number }>({ sequence: forms.numberForm });

function recordsOf(client: ServiceClient): RecordStore {
  const values = (kind: string): string => `${pathOf(kind)}/values`;
  return {
    append: async (kind, record) => {
      const sending = { method: 'POST', json: { record } } as const;
      return (await client.ask(pathOf(kind), sequenceForm, sending)).sequence;
    },
    read: (kind, after, max) => readLog(client, kind, after, max),
    trim: async (kind, upTo) => {
      const query = new URLSearchParams({ upTo: String(upTo) });
      await client.ask(pathOf(kind), forms.okForm, { method: 'DELETE', query });
    },
    put: async (kind, key, value, revision) => {
      const sending = { method: 'POST', json: { key, value, revision } } as const;
      return (await client.ask(values(kind), forms.doneOrStaleForm, sending)).result;
    },
    get: async (kind, key) => {
      const query = new URLSearchParams({ key });
      return (await client.ask(values(kind), mapForm, { query })).values[0];
    },
    list: async (kind) => {
      const found: KeyedRecord[] = [];
      let after: string | undefined;
      do {
        const query = new URLSearchParams(after === undefined ? {} : { after });
        const page = await client.ask(values(kind), mapForm, { query });
        found.push(...page.values);
        after = page.next;
      } while (after !== undefined);
      return found;
    },
    remove: async (kind, key) => {
      const query = new URLSearchParams({ key });
      await client.ask(values(kind), forms.okForm, { method: 'DELETE', query });
    },
  };
}

/** As many as were asked for, however many answers they come in. */
async function readLog(
  client: ServiceClient,
  kind: string,
  after: number,
  max: number,
): Promise<readonly LogRecord[]> {
  const found: LogRecord[] = [];
  let from: number | undefined = after;
  while (from !== undefined && found.length < max) {
    const query = new URLSearchParams({ after: String(from), max: String(max - found.length) });
    const page: { records: LogRecord[]; next?: number } = await client.ask(pathOf(kind), logForm, {
      query,
    });
    found.push(...page.records);
    from = page.next;
  }
  return found;
}

function pathOf(kind: string): string {
  checkRecordKind(kind);
  return `/v1/records/${encodeURIComponent(kind)}`;
}

// An action on messages by their ids, in as many requests as it takes.

/** Ids in one request, at the most. */
const IDS_MAX = 5_000;

/** What became of each, in their order; `json` is what goes with the ids. */
export async function byIds(
  client: ServiceClient,
  ids: readonly string[],
  { path, json: about }: { readonly path: string; readonly json: object },
): Promise<ActionResult[]> {
  const results = new Map<string, ActionResult>();
  const possible = ids.filter((id) => ID_PATTERN.test(id));
  for (let from = 0; from < possible.length; from += IDS_MAX) {
    const some = possible.slice(from, from + IDS_MAX);
    const json = { ...about, ids: some };
    const asking = client.ask(path, forms.resultsForm, { method: 'POST', json });
    const answer = await asking.catch((error: unknown) => {
      throw inParts(error, from, `of ${possible.length} messages were done before`);
    });
    for (const result of answer.results) results.set(result.id, result);
    const missing = some.find((id) => !results.has(id));
    if (missing !== undefined) throw client.strange(`no result for the message "${missing}"`);
  }
  // What cannot be an id is no reason to refuse the others.
  return ids.map((id) => results.get(id) ?? { id, result: 'unknown' });
}

/** The same error; what was done before it happened must not be lost with it. */
export function inParts(error: unknown, done: number, what: string): unknown {
  if (done === 0 || !isRespoolError(error)) return error;
  return new RespoolError(error.code, `${error.message}; ${done} ${what}`, { cause: error });
}

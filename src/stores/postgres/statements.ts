/**
 * statements — every SQL statement of the store, for people: with a title, and with its parameters
 * as variables of psql, ready to paste. `respool doctor --sql` prints them.
 *
 * Nothing is written down twice: each text is recorded from the code that sends it, over a
 * connection that answers nothing. No server is asked. The tables themselves: postgresSchema().
 */

import type { BodyInfo, Entry, Envelope, Status } from '../../core/entry.ts';
import { PRIORITY_DEFAULT } from '../../core/limits.ts';
import type { Change, ClaimRequest } from '../../ports/entry-store.ts';
import type { Clock } from '../../ports/clock.ts';
import { stateKeyOf } from '../shared/sql-row.ts';
import { bodySql } from './body-store.ts';
import { boundOf, claimSql, nextDueSql, type Scan } from './claim-sql.ts';

import { Claims, DueLowerBounds } from './claim.ts';
import { changeRow, Changes } from './commit.ts';
import {
  type QueryRequest,
  CONFIRM_SQL,
  NOW_SQL,
  type Server,
  type TransactionWork,
} from './connection.ts';
import { Tallies } from './count.ts';
import { lazyWriteSql, readDurability } from './durability.ts';
import { insertWithin } from './insert-within.ts';
import { Inserts, newRow, ownersSql, Receipts, sweepReceipts } from './insert.ts';
import { Lists } from './list.ts';
import { lookSql, WriteTracker } from './notify.ts';
import { type Names, namesOf } from './options.ts';
import { findKeyHeads, OrderKeys } from './order-keys.ts';
import { createRecordStore } from './records.ts';
import { type Bind, textArray } from './row.ts';
import { sentPage } from './sent-partitions.ts';

export { INDEX_ONLY_SQL } from './claim-sql.ts';

/** A statement with a name for each of its parameters. */
export interface PostgresStatement {
  readonly title: string;
  /** In which parameters are variables of psql: `:'name'`. */
  readonly sql: string;
  /** A sample value for each parameter. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** All statements of a store with these tables. */
export async function postgresStatements(
  options: { readonly schema?: string | undefined; readonly tables?: string | undefined } = {},
): Promise<readonly PostgresStatement[]> {
  const names = namesOf(options.schema ?? 'respool', options.tables ?? '');
  const list = new StatementList();
  await listInserts(list, names);
  listClaims(list, names);
  await listClaimHelpers(list, names);
  await listCommits(list, names);
  await listReads(list, names);
  await listRecords(list, names);
  listBodies(list, names);
  await listServer(list, names);
  return list.all;
}

/** As a script for psql. */
export function statementText({ title, sql, parameters }: PostgresStatement): string {
  const settings = Object.entries(parameters).map(
    ([name, value]) => `\\set ${name} '${value.replaceAll(/[\\']/g, '\\$&')}'\n`,
  );
  return `-- ${title}\n${settings.join('')}${wrapped(sql)};\n`;
}

const LINE_MAX = 100;
/** Where a line of SQL may break: behind a comma, or before a word that begins a part. */
const BREAKS =
  /(?<=,) | (?=(?:AND|FROM|WHERE|WHEN|ELSE|LEFT JOIN|ORDER BY|CROSS JOIN|UNION ALL)\b)/g;

/** Long lines as several, further to the right. */
function wrapped(sql: string): string {
  return sql.split('\n').map(wrappedLine).join('\n');
}

function wrappedLine(line: string): string {
  if (line.length <= LINE_MAX) return line;
  const [indent = ''] = /^ */.exec(line) ?? [];
  const lines: string[] = [];
  for (const part of line.split(BREAKS)) {
    const last = lines.at(-1);
    if (last === undefined) lines.push(part);
    else if (last.length + part.length < LINE_MAX) lines[lines.length - 1] = `${last} ${part}`;
    else lines.push(`${indent}    ${part}`);
  }
  return lines.join('\n');
}

// Samples: what the statements are recorded with.

const AT = 1_700_000_000_000;
const HOLDER = 'node/claim';

const BODY: BodyInfo = {
  ref: 'b1',
  place: 'store',
  size: 3,
  storedSize: 3,
  digest: `sha256:${'0'.repeat(64)}`,
  encodings: [],
};

function envelopeOf(id: string, more: Partial<Envelope> = {}): Envelope {
  const fixed = { id, topic: 'a.b', headers: {}, enqueuedAt: AT, priority: PRIORITY_DEFAULT };
  return { ...fixed, body: BODY, ...more };
}

function statusOf(more: Partial<Status> = {}): Status {
  const counts = { revision: 1, attempts: 0, postponed: 0, lost: 0, replays: 0, notices: 0 };
  const fixed = { state: 'incoming', lane: 'delivery', policy: null } as const;
  return { ...fixed, ...counts, dueAt: AT, history: [], notes: {}, updatedAt: AT, ...more };
}

function entryOf(id: string, more: Partial<Envelope> = {}): Entry {
  return { envelope: envelopeOf(id, more), status: statusOf() };
}

const CLAIM: ClaimRequest = {
  lane: 'delivery',
  states: ['incoming'],
  topics: [
    { pattern: 'paused.#', take: false },
    { pattern: '#', take: true },
  ],
  exceptDestinations: ['full'],
  max: 100,
  now: AT,
  leaseMs: 60_000,
  holder: HOLDER,
};

// The list, and how texts come into it.

/** Names for parameters that the text itself gives none. */
type ParameterNames = readonly string[];

class StatementList {
  readonly all: PostgresStatement[] = [];
  readonly #known = new Set<string>();

  add(title: string, text: string, values: readonly unknown[] = [], input: ParameterNames = []) {
    if (this.#known.has(text)) return;
    this.#known.add(text);
    const parameters: Record<string, string> = {};
    const names = parameterNames(text, values.length, input);
    const shown = values.map((value, at) => {
      if (value === null || value === undefined) return 'NULL';
      const name = freeName(parameters, names[at] ?? '', valueText(value));
      parameters[name] = valueText(value);
      return `:'${name}'`;
    });
    const sql = text.replaceAll(/\$(\d+)/g, (_, number) => shown[Number(number) - 1] ?? 'NULL');
    this.all.push({ title, sql, parameters });
  }

  /** Text in which `bind` named the values. */
  addBound(title: string, write: (bind: Bind) => string): void {
    const parameters: Record<string, string> = {};
    const text = write((value, type, name = 'value') => {
      if (value === null) return `NULL::${type}`;
      const shown = valueText(value);
      const free = freeName(parameters, name, shown);
      parameters[free] = shown;
      return `:'${free}'::${type}`;
    });
    this.all.push({ title, sql: text, parameters });
  }

  /** Everything that some work sends; several statements are numbered. */
  async record(
    title: string,
    work: (ask: QueryRequest) => Promise<unknown>,
    { given = [], answer = () => [] }: RecordOptions = {},
  ): Promise<void> {
    const sent: [string, readonly unknown[]][] = [];
    await work((text, values = []) => {
      sent.push([text, values]);
      return Promise.resolve(answer(text));
    });
    const own = sent.filter(([text]) => !TRANSACTION.test(text) && !this.#known.has(text));
    for (const [at, [text, values]] of own.entries()) {
      const step = own.length > 1 ? `${title}, step ${at + 1}` : title;
      this.add(step, text, values, given);
    }
  }
}

interface RecordOptions {
  readonly given?: ParameterNames;
  /** What the connection answers. */
  readonly answer?: (text: string) => unknown[][];
}

const TRANSACTION = /^(?:BEGIN|COMMIT)\b/;

/** A name that stands for this value alone. */
function freeName(byName: Readonly<Record<string, string>>, name: string, value: string): string {
  for (let number = 1; ; number += 1) {
    const free = number === 1 ? name : `${name}_${number}`;
    if (byName[free] === undefined || byName[free] === value) return free;
  }
}

/** By what is given, by the column a parameter stands for, or by what it is compared with. */
function parameterNames(text: string, count: number, value: ParameterNames): string[] {
  const names: string[] = [...value];
  for (const [, list = '', columns = ''] of text.matchAll(
    /unnest\(([^()]*)\)(?: WITH ORDINALITY)? AS \w+\(([^)]*)\)/g,
  )) {
    const placeholders = [...list.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number));
    for (const [at, column] of columns.split(', ').entries()) {
      const number = placeholders[at];
      if (number !== undefined) names[number - 1] ??= column;
    }
  }
  for (const [, number, column] of text.matchAll(/\$(\d+)::[\w[\]]+ AS (\w+)/g)) {
    if (column !== undefined) names[Number(number) - 1] ??= column;
  }
  for (const [, number] of text.matchAll(/ ~ \$(\d+)/g)) {
    names[Number(number) - 1] ??= 'topic_pattern';
  }
  const compared = /(\w+) (?:=|<>|<=|>=|<|>) (?:ANY\()?\$(\d+)/g;
  for (const [, column, number] of text.matchAll(compared)) {
    if (column !== undefined) names[Number(number) - 1] ??= column;
  }
  return Array.from({ length: count }, (_, at) => names[at] ?? `p${at + 1}`);
}

function valueText(value: unknown): string {
  return value instanceof Uint8Array ? `\\x${Buffer.from(value).toString('hex')}` : String(value);
}

/** A server that runs work on the given connection, and a clock that stands still. */
function serverOf(ask: QueryRequest): Server {
  return { run: <T>(_: string, work: TransactionWork<T>) => work(ask, false) } as unknown as Server;
}

const CLOCK: Clock = {
  now: () => AT,
  monotonic: () => 0,
  after: () => () => undefined,
  soon: () => undefined,
};

// The statements, by what they are for.

async function listInserts(list: StatementList, names: Names): Promise<void> {
  const inserts = new Inserts(names, 'node', false);
  const rows = [newRow(entryOf('m1')), newRow(entryOf('m2', { priority: 1 }))];
  const given = ['contents'];
  await list.record(
    'Insert a batch, with its receipt',
    (ask) => inserts.insert(ask, rows, { receipt: 1 }),
    { given },
  );
  const ordered = [newRow(entryOf('m1', { orderKey: 'k' }))];
  await list.record(
    'Insert a batch with order keys',
    (ask) => inserts.insert(ask, ordered, { receipt: 1 }),
    { given },
  );
  await list.record(
    'Insert a batch again whose answer was lost',
    (ask) => inserts.insert(ask, rows, { receipt: 1, isUnknown: true }),
    { given: ['node', 'number', 'results'] },
  );
  list.add(
    'Find the entries whose duplicates were refused',
    ownersSql(names),
    [textArray(['m1']), textArray(['key'])],
    ['ids', 'dedupe_keys'],
  );
  const transaction = async (ask: QueryRequest) => {
    const query = async (text: string, values: unknown[]) => {
      await ask(text, values);
      return { rows: [{ before: '1', now: null, id: null }] };
    };
    await insertWithin(names, { query }, [entryOf('m1')], { doing: 'insert' });
  };
  await list.record("Insert in the caller's transaction", transaction, { given });
  await list.record(
    'Remove receipts that were answered',
    async (ask) => {
      const receipts = new Receipts(serverOf(ask), names, 'node');
      await receipts.answered(receipts.next());
      await receipts.end();
    },
    { given: ['node', 'numbers'] },
  );
  await list.record('Remove receipts of processes that died', (ask) => sweepReceipts(ask, names));
}

const SCANS: readonly (readonly [scan: Scan, isOrdered: boolean, title: string])[] = [
  ['filtered', false, 'filtered scan'],
  ['bounded', false, 'bounded scan'],
  ['passing', false, 'passing over due rows, where there are more flows than these'],
  ['by-flow', false, 'by flow, after a bounded scan that found too little'],
  ['few-flows', false, 'by flow, where their number is not known'],
  ['due-flows', false, 'by flow with something due, where there are many others'],
  ['head', true, 'head scan, in a store with order keys'],
  ['bounded', true, 'bounded scan that puts rows behind others of their order key'],
  ['passing', true, 'passing over due rows, in a store with order keys'],
  ['by-flow', true, 'by flow, in a store with order keys'],
  ['few-flows', true, 'by flow, where their number is not known, in a store with order keys'],
  ['due-flows', true, 'by flow with something due, in a store with order keys'],
];

function listClaims(list: StatementList, names: Names): void {
  const mode = { slots: [stateKeyOf('incoming', 'delivery')], lowerBoundSql: () => '' };
  const bound = boundOf(CLAIM.max, false);
  for (const [scan, isOrdered, title] of SCANS) {
    list.addBound(
      `Claim: ${title}`,
      (bind) => claimSql(names, CLAIM, { ...mode, scan, isOrdered, bind, bound }).text,
    );
  }
  list.addBound('Claim: by id', (bind) => {
    const request = { ...CLAIM, ids: ['m1', 'm2'] };
    return claimSql(names, request, { ...mode, scan: 'bounded', isOrdered: false, bind, bound: 0 })
      .text;
  });
  for (const [scan, title] of [
    ['bounded', 'bounded scan'],
    ['passing', 'passing over due rows'],
    ['by-flow', 'by flow'],
    ['few-flows', 'by flow, where their number is not known'],
    ['due-flows', 'by flow with something due'],
  ] as const) {
    for (const isOrdered of [false, true]) {
      const where = isOrdered ? ', in a store with order keys' : '';
      list.addBound(
        `Look for the next due time: ${title}${where}`,
        (bind) => nextDueSql(names, CLAIM, { ...mode, scan, isOrdered, bind, now: () => AT }).text,
      );
    }
  }
}

async function listClaimHelpers(list: StatementList, names: Names): Promise<void> {
  const claims = new Claims(names, CLOCK);
  await list.record('Find what a claim without an answer has claimed', (ask) =>
    claims.claim(ask, { ...CLAIM, max: 0 }, true),
  );
  await list.record('Find where live rows begin, beside dead ones', async (ask) => {
    const bounds = new DueLowerBounds(names, CLOCK);
    bounds.noteClaim(AT, CLAIM.leaseMs);
    bounds.noteLook(1_000);
    bounds.noteLook(1_000);
    await bounds.raise(ask);
  });
  const orderKeys = new OrderKeys(names);
  await list.record('Find whether there are order keys', (ask) => orderKeys.learn(ask));
  orderKeys.noteClaim(AT);
  await list.record('Release the next row of order keys', (ask) => orderKeys.letGo(ask, ['k']), {
    given: ['order_keys', 'last_claim_at'],
  });
  const looked = ['accounted_for', 'is_waiting'];
  list.add('Look for what other processes wrote', lookSql(names), [1, true], looked);
}

function changeOf(id: string, more: Partial<Change> = {}) {
  const change = { id, revision: 2, holder: HOLDER, to: statusOf({ revision: 3 }), ...more };
  return changeRow(change, true);
}

async function listCommits(list: StatementList, names: Names): Promise<void> {
  const writes = new WriteTracker(names, CLOCK);
  const changesOf = (keepsSent: boolean, isOrdered = false): Changes => {
    const orderKeys = new OrderKeys(names);
    if (isOrdered) orderKeys.note();
    return new Changes(names, { isForced: false, keepsSent, orderKeys, writes });
  };
  const record = (title: string, changes: Changes, ...rows: ReturnType<typeof changeRow>[]) =>
    list.record(title, (ask) => changes.change(ask, rows, false, new Set()));
  const plain = changesOf(false);
  const removal = changeOf('m1', { to: 'remove' });
  const update = changeOf('m2');
  await record('Commit: update entries', plain, update);
  await record('Commit: remove entries', plain, removal);
  await record(
    'Commit: remove entries with their bodies',
    plain,
    changeOf('m1', { to: 'remove', bodyRef: 'b1' }),
  );
  await record(
    'Commit: update and remove, in a store with order keys',
    changesOf(false, true),
    update,
    removal,
  );
  await record('Commit: change an envelope', plain, changeOf('m1', { envelope: envelopeOf('m1') }));
  await record(
    'Commit: change envelopes that let go of inline bodies',
    plain,
    changeOf('m1', { envelope: envelopeOf('m1') }),
    changeOf('m2', { envelope: envelopeOf('m2') }),
  );
  const sent = statusOf({ state: 'archived', ending: 'delivered', dueAt: null, revision: 3 });
  // As commit.ts writes its statements: a move that has left one behind, and any change at all.
  const answer = (text: string) => (text.includes('moved AS') ? [[0]] : []);
  await list.record(
    'Commit: move delivered entries to "sent"',
    (ask) => changesOf(true).change(ask, [changeOf('m1', { to: sent })], false, new Set()),
    { answer },
  );
  await list.record(
    'Commit: look whether a try without an answer was done',
    (ask) => changesOf(false).change(ask, [update], true, new Set()),
    { given: ['ids'], answer: (text) => (text.startsWith('WITH') ? [[0]] : []) },
  );
  await list.record('Move damaged entries to quarantine', (ask) =>
    plain.quarantine(ask, [{ seq: 1, id: 'm1', reason: 'no JSON' }]),
  );
}

async function listReads(list: StatementList, names: Names): Promise<void> {
  const lists = new Lists(names);
  await list.record('Get an entry', (ask) => lists.get(ask, 'm1'));
  await list.record('List entries by id', (ask) => lists.list(ask, { limit: 100 }));
  await list.record('List failed entries of a topic by due time', (ask) =>
    lists.list(ask, { limit: 100, states: ['deferred'], topic: 'a.*', order: 'dueAt' }),
  );
  await list.record('List archived entries up to a due time', (ask) =>
    lists.list(ask, { limit: 100, states: ['archived'], dueBefore: AT, order: 'dueAt' }),
  );
  const tallies = new Tallies(names, CLOCK);
  await list.record('Count by state', (ask) => tallies.tally(ask, 'state', {}));
  await list.record('Count by topic', (ask) => tallies.tally(ask, 'topic', { destination: 'd' }));
  await list.record(
    'Count by reading, for headers and texts',
    (ask) => tallies.tally(ask, 'topic', { text: 'timeout' }),
    { given: ['after_id'] },
  );
  await list.record('List the first rows of order keys', (ask) => findKeyHeads(ask, names, 100), {
    given: ['max'],
  });
  await list.record('Page of the table "sent"', (ask) =>
    sentPage(ask, names, { topic: 'a.b', limit: 100 }),
  );
}

async function listRecords(list: StatementList, names: Names): Promise<void> {
  const record = (title: string, parameterNames: ParameterNames, work: RecordWork) =>
    list.record(
      title,
      async (ask) => {
        const use = () => serverOf(ask);
        const host = { use, names, newToken: () => 'token', onWrite: () => undefined };
        await work(createRecordStore(host));
      },
      { given: parameterNames },
    );
  const written = ['kind', 'key', 'value', 'token', 'revision'];
  await record('Records: append', ['kind', 'token', 'record'], (store) => store.append('log', {}));
  await record('Records: read a log', ['kind', 'after', 'max'], (store) =>
    store.read('log', 0, 10),
  );
  await record('Records: trim a log', ['kind', 'up_to'], (store) => store.trim('log', 1));
  await record('Records: put', written, (store) => store.put('map', 'k', {}));
  await record('Records: put a new one', written, (store) => store.put('map', 'k', {}, 0));
  await record('Records: replace one', written, (store) => store.put('map', 'k', {}, 1));
  await record('Records: get', [], (store) => store.get('map', 'k'));
  await record('Records: list', [], (store) => store.list('map'));
  await record('Records: remove', [], (store) => store.remove('map', 'k'));
}

type RecordWork = (store: ReturnType<typeof createRecordStore>) => Promise<unknown>;

function listBodies(list: StatementList, names: Names): void {
  const sql = bodySql(names, false);
  const chunk = Uint8Array.of(1, 2, 3);
  const add = (title: string, text: string, parameters: Record<string, unknown>): void =>
    list.add(`Bodies: ${title}`, text, Object.values(parameters), Object.keys(parameters));
  const one = { ref: 'b1', token: 't1' };
  const many = { refs: '{b1}', tokens: '{t1}' };
  add('put small ones', sql.put, { ...many, starts: '{1}', sizes: '{3}', contents: chunk });
  add('which small ones are ours', sql.allMine, many);
  add('look whether there is one', sql.exists, { ref: 'b1' });
  add('begin', sql.begin, one);
  add('look whether ours was begun', sql.mine, one);
  add('write a chunk', sql.chunk, { ...one, at: 0, bytes: chunk });
  add('finish', sql.finish, { ...one, size: 3, chunks: 1 });
  add('look whether ours was finished', sql.finished, one);
  add('remove half a body', sql.dropHalf, one);
  add('remove', sql.remove, { refs: '{b1}' });
  add('read the first chunk', sql.first, { ref: 'b1' });
  add('read a chunk', sql.read, { ref: 'b1', at: 262_144 });
  add('list', sql.refs, { after: '', written_before: AT, max: 1_000 });
}

async function listServer(list: StatementList, names: Names): Promise<void> {
  const sql = lazyWriteSql(names, false);
  list.add('Make lazy writes durable, and look whether the server crashed', sql.sync);
  list.add('Leave a mark that a crash of the server removes', sql.mark, ['mark'], ['mark']);
  list.add('Commit that waits for disk and standbys', CONFIRM_SQL);
  list.add("Ask for the server's time", NOW_SQL);
  await list.record('Ask what a commit is worth', async (ask) => {
    await readDurability(async (text) => {
      await ask(text);
      return [['on', 'on', 'on', '', 'UTF8']];
    });
  });
}

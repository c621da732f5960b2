/**
 * id-prefix — ids given by a unique prefix, or by both ends as tables show them: `01a1e06c-024e`
 * or, of several created in the same moment, `01a1e06c-024e…cc9c`.
 *
 * An id that is there wins over ids that begin with it. A beginning that fits several is refused
 * with them, before anything is done. Commands that change messages take the beginning of an id
 * that Respool made only: of ids like `order-1` and `order-10` the first is whole, and once it is
 * gone it must not mean the second.
 *
 * Costs one question for all ids that are not whole, and one more for each beginning: a range of
 * the index of ids where the store has one.
 */

import type { Operator } from '../spool/operator/operator.ts';
import { isRespoolError } from '../core/errors.ts';
import { checkId, ID_PATTERN } from '../core/limits.ts';
import { CommandError } from './exit-codes.ts';
import type { Out } from './ui/output.ts';
import { safe } from '../observe/logs/safe-text.ts';

/** Minimum length of an id prefix, in characters. Also in docs/reference/cli.md. */
const ID_PREFIX_MIN = 4;
/** Ids that are named when a beginning fits several. */
const CANDIDATES_MAX = 5;
/** Pages that are gone through for ids with the same beginning; 10,000 ids. */
const PAGES_MAX = 20;
const PAGE_MAX = 500;
/** As Respool makes them. */
const MADE_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** What the ids are for. */
interface IdUse {
  readonly operator: Pick<Operator, 'get' | 'page'>;
  readonly out: Pick<Out, 'note'>;
  /** Whether the messages are changed. */
  readonly isActing: boolean;
}

/** Whether Respool made this id. */
export function isMadeId(id: string): boolean {
  return MADE_ID.test(id);
}

/** How a typed id begins and ends; refuses what no id can be. */
export function checkTyped(typed: string): string {
  const { prefix, suffix } = endsOf(typed);
  if (suffix !== '' && !/^[0-9a-z_-]{1,64}$/.test(suffix)) checkId(typed);
  checkId(prefix);
  return typed;
}

function endsOf(typed: string): { readonly prefix: string; readonly suffix: string } {
  const [prefix = '', ...rest] = typed.split(/…|\.\.\./);
  return { prefix, suffix: rest.join('') };
}

/** The full ids. A prefix without a match is returned as it is, and fails as an unknown id. */
export async function wholeIds(texts: readonly string[], use: IdUse): Promise<readonly string[]> {
  if (texts.every(isMadeId)) return texts;
  const there = await idsThere(
    texts.filter((id) => !isMadeId(id) && ID_PATTERN.test(id)),
    use,
  );
  const whole = new Set<string>();
  for (const id of texts) {
    const isWhole = isMadeId(id) || there.has(id);
    whole.add(isWhole ? id : await wholeId(id, use));
  }
  return [...whole];
}

/** The same for letters: an id of a broker may be any text, and is taken as it is. */
export async function wholeLetterIds(
  texts: readonly string[],
  use: IdUse,
): Promise<readonly string[]> {
  const isOfSpool = (id: string): boolean => ID_PATTERN.test(endsOf(id).prefix);
  const whole = await wholeIds(texts.filter(isOfSpool), use);
  return [...whole, ...texts.filter((id) => !isOfSpool(id))];
}

/**
 * Finds whole ids where they can only be gone through, as those of a queue, and of replays: what
 * may be meant is noted as it goes by, and decided at the end.
 */
export class TypedIds {
  readonly #typed: readonly Typed[];
  readonly #whole: ReadonlySet<string>;
  readonly #exact = new Set<string>();

  /** `whole` are ids that are not to be taken for the beginning of others. */
  constructor(typed: readonly string[], whole: readonly string[] = []) {
    const others = typed.filter((text) => !isMadeId(text));
    this.#typed = others.map((text) => ({ text, ...endsOf(text), found: new Set<string>() }));
    this.#whole = new Set([...whole, ...typed.filter(isMadeId)]);
  }

  /** How to look for them: by their ids where all are known, otherwise by what may be meant. */
  get search(): { readonly ids: readonly string[] } | { readonly mayBe: (id: string) => boolean } {
    return this.#typed.length === 0 ? { ids: [...this.#whole] } : { mayBe: (id) => this.notes(id) };
  }

  /** Whether this id may be meant; it is remembered. */
  notes(id: string): boolean {
    let mayBe = this.#whole.has(id);
    for (const typed of this.#typed) {
      if (typed.text === id) this.#exact.add(id);
      else if (!beginsAs(id, typed) || typed.found.size > CANDIDATES_MAX) continue;
      else typed.found.add(id);
      mayBe = true;
    }
    return mayBe;
  }

  /** The ids that are meant; a typed one that fits none is left as it is. */
  wholeIds({ out, isActing }: Omit<IdUse, 'operator'>): readonly string[] {
    const whole = new Set(this.#whole);
    for (const { text, found } of this.#typed) {
      const isWhole = this.#exact.has(text) || found.size === 0;
      whole.add(isWhole ? text : onlyOf(text, [...found], { out, isActing }));
    }
    return [...whole];
  }
}

/** What was typed for an id, and the ids that it may stand for. */
interface Typed {
  readonly text: string;
  readonly prefix: string;
  readonly suffix: string;
  readonly found: Set<string>;
}

function beginsAs(id: string, { prefix, suffix }: Typed): boolean {
  return prefix.length >= ID_PREFIX_MIN && id.startsWith(prefix) && id.endsWith(suffix);
}

/** Refuses a beginning that fits several, with those it fits. */
function severalFit(prefix: string, ids: readonly string[]): CommandError {
  const shown = ids
    .toSorted()
    .slice(0, CANDIDATES_MAX)
    .map((id) => safe(id))
    .join(', ');
  const more = ids.length > CANDIDATES_MAX ? ' and more' : '';
  return new CommandError(
    'usage.invalid',
    `"${safe(prefix)}" is the beginning of several ids: ${shown}${more}; give more characters ` +
      'of the one you mean',
  );
}

async function wholeId(typed: string, use: IdUse): Promise<string> {
  const { prefix } = endsOf(typed);
  if (prefix.length < ID_PREFIX_MIN) {
    use.out.note(`to give an id by its beginning, give ${ID_PREFIX_MIN} characters of it or more`);
    return typed;
  }
  return onlyOf(typed, await candidatesOf(typed, use), use);
}

/** The one id that is meant by the beginning of it; that itself if it must not mean one. */
function onlyOf(
  typed: string,
  ids: readonly string[],
  { out, isActing }: Omit<IdUse, 'operator'>,
): string {
  const [first, ...others] = ids;
  if (first === undefined) return typed;
  if (others.length > 0) throw severalFit(typed, ids);
  if (!isActing || isMadeId(first)) return first;
  out.note(
    `"${safe(first)}" is like that; to change it, give its whole id: Respool did not make it`,
  );
  return typed;
}

/** Ids with this beginning and end; at most one more than are named. */
async function candidatesOf(typed: string, { operator }: IdUse): Promise<readonly string[]> {
  const { prefix, suffix } = endsOf(typed);
  const found: string[] = [];
  let after: string | undefined;
  for (let pages = 0; pages < PAGES_MAX; pages += 1) {
    const page = await operator.page({
      idPrefix: prefix,
      limit: suffix === '' ? CANDIDATES_MAX + 1 : PAGE_MAX,
      ...(after === undefined ? {} : { after }),
    });
    const ids = page.entries.map(({ envelope }) => envelope.id);
    found.push(...ids.filter((id) => id.endsWith(suffix)));
    after = page.next;
    if (after === undefined || found.length > CANDIDATES_MAX) {
      return found.slice(0, CANDIDATES_MAX + 1);
    }
  }
  // Others that end so may come behind those that were looked at.
  throw new CommandError(
    'usage.invalid',
    `more than ${PAGES_MAX * PAGE_MAX} ids begin with "${safe(prefix)}"; give more of the ` +
      'beginning, or the whole id',
  );
}

async function idsThere(ids: readonly string[], { operator }: IdUse): Promise<ReadonlySet<string>> {
  const [only] = ids;
  if (only === undefined) return new Set();
  if (ids.length > 1) {
    const { entries, corrupt } = await operator.page({ ids: [...new Set(ids)], limit: ids.length });
    const damaged = corrupt.flatMap(({ id }) => (id === undefined ? [] : [id]));
    return new Set([...entries.map(({ envelope }) => envelope.id), ...damaged]);
  }
  try {
    return new Set((await operator.get(only)) === undefined ? [] : [only]);
  } catch (error) {
    // A damaged entry matches as well: reading it reports the damage.
    if (isRespoolError(error, 'store.corrupt')) return new Set([only]);
    throw error;
  }
}

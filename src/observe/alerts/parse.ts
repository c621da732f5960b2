/**
 * parse — the text of a rule, such as `bounce rate of mail.# > 5 % for 5m`, as a condition.
 *
 *   measure [state] [of topic or "queue"] [over span] (> >= < <= value | down) [over span]
 *     [for span]
 *
 * Written by hand, for what it says of mistakes: the place, what stands there, what is allowed.
 * `printCondition` of condition.ts writes what is read here: change both.
 *
 * Called by config/load/alerts.ts, and for conditions on record by evaluate.ts.
 */

import { DAY_MS, durationMs, SECOND_MS } from '../../core/duration.ts';
import { isRespoolError, RespoolError, show } from '../../core/errors.ts';
import { checkTopicPattern } from '../../core/limits.ts';
import {
  BYTES,
  type Comparison,
  type Condition,
  type Measure,
  type MeasureName,
  OVER_DEFAULT_MS,
  STATE_WORDS,
  type MeasureTarget,
  type Unit,
} from './condition.ts';

/** A condition has this many characters at most. Also in docs/reference/alerts.md. */
const TEXT_MAX_CHARS = 500;
/** Both also in docs/reference/alerts.md (limits). */
const FOR_MAX_MS: number = 30 * DAY_MS;
const OVER_MAX_MS: number = DAY_MS;
/** The name of a queue of RabbitMQ has this many bytes at most. */
const QUEUE_MAX_BYTES = 255;

const COMPARISONS: readonly string[] = ['>', '>=', '<', '<='];

/** Parses a condition; `config.invalid` if it is not one. */
export function parseCondition(text: unknown): Condition {
  if (typeof text !== 'string' || text.length > TEXT_MAX_CHARS) {
    throw new RespoolError(
      'config.invalid',
      `cannot read ${show(text)} as a condition: allowed is a text of up to ${TEXT_MAX_CHARS} ` +
        'characters, such as "bounce rate > 5 % for 5m"',
    );
  }
  return new Reader(text).condition();
}

interface Word {
  readonly text: string;
  /** Where it begins, from 1. */
  readonly at: number;
  readonly isQuoted: boolean;
}

/** How a measure is read, and what it is compared with. */
interface Shape {
  readonly units: readonly Unit[];
  readonly of?: 'topic' | 'queue' | 'drain';
  readonly hasState?: true;
  readonly isRate?: true;
  /** The name of the queue follows without `of`. */
  readonly queue?: 'needed' | 'maybe';
}

const SHAPES: Readonly<Record<MeasureName, Shape>> = {
  'bounce rate': { units: ['percent'], of: 'topic', isRate: true },
  'failure rate': { units: ['percent'], of: 'topic', isRate: true },
  count: { units: ['count'], of: 'topic', hasState: true },
  oldest: { units: ['ms'], of: 'topic', hasState: true },
  'dead queue': { units: ['count'], queue: 'maybe' },
  queue: { units: ['count'], queue: 'needed' },
  'outbox lag': { units: ['ms'] },
  'outbox backlog': { units: ['count'] },
  disk: { units: ['percent', 'bytes'] },
  store: { units: ['down'] },
  consumer: { units: ['down'], of: 'queue' },
  relay: { units: ['down'] },
  'time to full': { units: ['ms'] },
  'time to drain': { units: ['ms'], of: 'drain' },
};

/** Other words for the same. */
const SYNONYMS: Readonly<Record<string, MeasureName>> = { messages: 'count' };
const NAMES = [...Object.keys(SHAPES), ...Object.keys(SYNONYMS)];

class Reader {
  readonly #text: string;
  readonly #words: readonly Word[];
  #next = 0;

  constructor(text: string) {
    this.#text = text;
    this.#words = this.#split();
  }

  condition(): Condition {
    const name = this.#name();
    const shape = SHAPES[name];
    const state = shape.hasState === true ? this.#state() : undefined;
    const own = shape.queue === undefined ? undefined : this.#ownQueue(shape.queue === 'needed');
    const of = this.#takes('of') ? this.#target(name, shape) : own;
    let overMs = this.#over(shape);
    const compared = shape.units[0] === 'down' ? this.#down() : this.#compared(shape);
    overMs ??= this.#over(shape);
    const forMs = this.#takes('for') ? this.#span('for', FOR_MAX_MS) : 0;
    const rest = this.#words[this.#next];
    if (rest !== undefined) {
      const over = shape.isRate === true ? '"over" with a span, ' : '';
      throw this.#wrong(rest, `${over}"for" with a span such as 5m, or the end`);
    }
    const window = shape.isRate === true ? { overMs: overMs ?? OVER_DEFAULT_MS } : {};
    const measure: Measure = {
      name,
      ...(state === undefined ? {} : { state }),
      ...(of === undefined ? {} : { of }),
      ...window,
    };
    return { measure, ...compared, forMs };
  }

  /** The longest name that the text begins with. */
  #name(): MeasureName {
    const fits = NAMES.filter((name) => {
      const words = name.split(' ');
      return words.every((word, at) => this.#is(word, this.#words[this.#next + at]));
    });
    const found = fits.toSorted((a, b) => b.length - a.length)[0];
    if (found === undefined) throw this.#wrong(this.#words[0], NAMES.join(' | '));
    this.#next += found.split(' ').length;
    return SYNONYMS[found] ?? (found as MeasureName);
  }

  #state(): Measure['state'] {
    const word = this.#words[this.#next];
    const known = word === undefined || word.isQuoted ? '' : word.text.toLowerCase();
    if (!Object.hasOwn(STATE_WORDS, known)) {
      throw this.#wrong(word, Object.keys(STATE_WORDS).join(' | '));
    }
    this.#next += 1;
    return STATE_WORDS[known];
  }

  #ownQueue(isNeeded: boolean): MeasureTarget | undefined {
    const word = this.#words[this.#next];
    const isName = word !== undefined && (word.isQuoted || !COMPARISONS.includes(word.text));
    if (isName) return this.#queue();
    if (isNeeded) throw this.#wrong(word, 'the name of a queue, such as "orders"');
    return undefined;
  }

  #target(name: MeasureName, { of }: Shape): MeasureTarget {
    const word = this.#words[this.#next];
    if (of === undefined) {
      const before = this.#words[this.#next - 1];
      throw this.#wrong(before, `a comparison: ${name} is of one thing only`);
    }
    if (of === 'queue') return this.#queue();
    if (of === 'drain') {
      if (!this.#is('outbox', word)) return this.#queue();
      this.#next += 1;
      return { kind: 'outbox' };
    }
    try {
      const pattern = checkTopicPattern(word?.text);
      this.#next += 1;
      return { kind: 'topic', pattern };
    } catch {
      throw this.#wrong(word, 'a topic: words with dots, * for one word, # for any number');
    }
  }

  #queue(): MeasureTarget {
    const word = this.#words[this.#next];
    const bytes = Buffer.byteLength(word?.text ?? '');
    if (word === undefined || bytes === 0 || bytes > QUEUE_MAX_BYTES) {
      throw this.#wrong(word, `the name of a queue of 1 to ${QUEUE_MAX_BYTES} bytes`);
    }
    this.#next += 1;
    return { kind: 'queue', queue: word.text };
  }

  #over(shape: Shape): number | undefined {
    if (shape.isRate !== true || !this.#takes('over')) return undefined;
    return this.#span('over', OVER_MAX_MS);
  }

  #down(): Pick<Condition, 'comparison' | 'value' | 'unit'> {
    if (!this.#takes('down')) throw this.#wrong(this.#words[this.#next], 'down');
    return { comparison: '>', value: 0, unit: 'down' };
  }

  #compared({ units, of }: Shape): Pick<Condition, 'comparison' | 'value' | 'unit'> {
    const word = this.#words[this.#next];
    if (word === undefined || word.isQuoted || !COMPARISONS.includes(word.text)) {
      const target = of === undefined ? '' : ', or "of" before it';
      throw this.#wrong(word, `${COMPARISONS.join(' | ')}${target}`);
    }
    this.#next += 1;
    const first = this.#words[this.#next];
    const text = this.#upToKeyword();
    for (const unit of units) {
      const value = valueOf(text, unit);
      if (value !== undefined) return { comparison: word.text as Comparison, value, unit };
    }
    const allowed = units.map((unit) => VALUES[unit]).join(', or ');
    throw this.#wrong(first, allowed, text);
  }

  /** Words as they stand, up to one that begins something else. */
  #upToKeyword(): string {
    const texts: string[] = [];
    for (;;) {
      const word = this.#words[this.#next];
      if (word === undefined || this.#endsValue(word)) break;
      texts.push(word.text);
      this.#next += 1;
    }
    return texts.join(' ');
  }

  #endsValue(word: Word): boolean {
    const isComparison = !word.isQuoted && COMPARISONS.includes(word.text);
    return isComparison || this.#is('for', word) || this.#is('over', word);
  }

  #span(what: 'for' | 'over', maxMs: number): number {
    const first = this.#words[this.#next];
    const text = this.#upToKeyword();
    const ms = spanOf(text);
    if (ms !== undefined && ms >= SECOND_MS && ms <= maxMs) return ms;
    const most = `${maxMs / DAY_MS}d`;
    throw this.#wrong(first, `a span of 1s to ${most} after "${what}", such as 5m or 1h30m`, text);
  }

  #takes(keyword: string): boolean {
    if (!this.#is(keyword, this.#words[this.#next])) return false;
    this.#next += 1;
    return true;
  }

  #is(keyword: string, word: Word | undefined): boolean {
    return word !== undefined && !word.isQuoted && word.text.toLowerCase() === keyword;
  }

  #split(): readonly Word[] {
    const words: Word[] = [];
    for (const found of this.#text.matchAll(WORD)) {
      const [whole, quoted] = found;
      const at = found.index + 1;
      if (whole === '"') {
        throw this.#wrong({ text: '"', at, isQuoted: false }, 'a second " at the end of a name');
      }
      words.push({ text: quoted ?? whole, at, isQuoted: quoted !== undefined });
    }
    return words;
  }

  #wrong(word: Word | undefined, allowed: string, shown = word?.text ?? ''): RespoolError {
    const where =
      word === undefined
        ? `something is missing at its end`
        : `at character ${word.at}, ${show(shown)} cannot stand there`;
    return new RespoolError(
      'config.invalid',
      `cannot read the condition ${show(this.#text)}: ${where}; allowed is ${allowed}`,
    );
  }
}

/** A name in quotes, a comparison, or anything up to the next of these or a blank. */
const WORD = /"([^"]*)"|[<>]=?|[^\s"<>]+|"/g;

const VALUES: Readonly<Record<Unit, string>> = {
  percent: 'a percentage from 0 to 100 with its sign, such as 5 %',
  count: 'a whole number, such as 100',
  ms: 'a span, such as 30s or 2h',
  bytes: `a size, such as 2 GiB (${Object.keys(BYTES).join(', ')})`,
  down: 'down',
};

/** What the text means in this unit; undefined: nothing. */
function valueOf(text: string, unit: Unit): number | undefined {
  switch (unit) {
    case 'percent': {
      const [, digits] = /^(\d{1,3}(?:\.\d{1,6})?) ?%$/.exec(text) ?? [];
      const value = digits === undefined ? Number.NaN : Number(digits);
      return value <= 100 ? value : undefined;
    }
    case 'count':
      return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
    case 'ms':
      return spanOf(text);
    case 'bytes': {
      const [, digits, name = ''] = /^(\d{1,9}(?:\.\d{1,3})?) ?([A-Za-z]+)$/.exec(text) ?? [];
      if (digits === undefined || !Object.hasOwn(BYTES, name)) return undefined;
      return Math.round(Number(digits) * (BYTES[name] ?? 1));
    }
    default:
      return undefined;
  }
}

function spanOf(text: string): number | undefined {
  try {
    return durationMs(text, 'span');
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    return undefined;
  }
}

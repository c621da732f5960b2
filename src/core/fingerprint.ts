/**
 * fingerprint — a short hash for failures that are alike.
 *
 * Ids, numbers, addresses and quoted parts of the reason become placeholders, so that a thousand
 * time-outs of a thousand messages count as one group. In JSON, words are kept, because everything
 * that distinguishes one cause from another is quoted there. Pure and stable: fingerprints are
 * stored and compared across processes and versions, so a change here splits existing groups.
 */

/** Maximum number of cached fingerprints: thousands of messages mostly fail for a few reasons. */
const CACHE_MAX = 256;
/** Longer texts are not cached. */
const CACHED_MAX_CHARS = 1_200;
const cache = new Map<string, string>();

/** An 11-character word over code and normalised reason. */
export function fingerprint(code: string, reason: string): string {
  const key = `${code}\n${reason}`;
  if (key.length > CACHED_MAX_CHARS) return wordOf(code, reason);
  const before = cache.get(key);
  if (before !== undefined) return before;
  const word = wordOf(code, reason);
  if (cache.size >= CACHE_MAX) cache.clear();
  cache.set(key, word);
  return word;
}

function wordOf(code: string, reason: string): string {
  return hash53(`${code}\n${normalise(reason)}`)
    .toString(36)
    .padStart(11, '0');
}

/** The reason, with everything that differs from message to message replaced by a placeholder. */
export function normalise(reason: string): string {
  return jsonParts(reason)
    .map(({ text, isJson }) => (isJson ? withoutIds(normaliseJson(text)) : normalisePlain(text)))
    .join('')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

function normalisePlain(text: string): string {
  return withoutIds(text)
    .replaceAll(/"[^"]{0,200}"|'[^']{0,200}'/g, '<text>')
    .replaceAll(/\d+/g, '<n>');
}

function withoutIds(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>')
    .replaceAll(/[^\s@<>"']{1,64}@[^\s@<>"']{1,255}/g, '<address>')
    .replaceAll(/\b[0-9a-f]{16,}\b/g, '<hex>');
}

// cyrb53: not for secrets, but 53 bits without a dependency in a room that has none; groups number
// in the thousands, so a clash is a one-in-a-billion matter and merges two groups, nothing more.
function hash53(text: string): number {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    high = Math.imul(high ^ unit, 2654435761);
    low = Math.imul(low ^ unit, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return 4294967296 * (2097151 & low) + (high >>> 0);
}

// JSON in the reason of a failure, as receivers answer it: the words are kept,
// and what differs from message to message is taken out. Pure.
//
//   shop answered 402: {"error":{"message":"card was stolen","request_id":"req_8fJk2Lm"}}
//   └─ plain ────────┘ └─ JSON: words kept, the value of "request_id" and the like taken out ─┘
//
// It may be cut at the end, be written with single quotes, or be quoted itself ({\"error\":…).

/** A part of a reason. */
interface Part {
  readonly text: string;
  readonly isJson: boolean;
}

/** An object or list whose first member is quoted, an object or list, or a value before others. */
const BEGIN = /[{[]\s*(?=\\{0,3}["']|[{[]|(?:-?\d[\d.]{0,20}|true|false|null)\s?,)/g;
/** What an HTTP answer begins with whose body is a text alone. */
const BEFORE_TEXT = /^[^"'{[]{1,300} \d{3}[^"'{[]{0,300}: (?=")/;

/** A reason as plain parts and parts in JSON; without any JSON it is one plain part. */
function jsonParts(reason: string): Part[] {
  const head = BEFORE_TEXT.exec(reason)?.[0] ?? '';
  STRING.lastIndex = head.length;
  if (head !== '' && STRING.test(reason) && STRING.lastIndex === reason.length) {
    const text = reason.slice(head.length);
    return [
      { text: head, isJson: false },
      { text, isJson: true },
    ];
  }
  const parts: Part[] = [];
  let from = 0;
  BEGIN.lastIndex = 0;
  for (let found = BEGIN.exec(reason); found !== null; found = BEGIN.exec(reason)) {
    const { end, isJson } = endOf(reason, found.index);
    BEGIN.lastIndex = end;
    if (!isJson) continue;
    parts.push({ text: reason.slice(from, found.index), isJson: false });
    parts.push({ text: reason.slice(found.index, end), isJson: true });
    from = end;
  }
  return [...parts, { text: reason.slice(from), isJson: false }];
}

/** A string with its quotes; escaped quotes are inside, except where all quotes are escaped. */
const STRING = /(\\{0,3})(["'])((?:\\.|(?!\2)[^\\])*?)(?:\1\2|…?$)/y;

/** Where brackets end that begin here, at the latest with the text; with strings it is JSON. */
function endOf(text: string, begin: number): { readonly end: number; readonly isJson: boolean } {
  let depth = 0;
  let strings = 0;
  let at = begin;
  while (at < text.length) {
    const character = text[at] ?? '';
    if (character === '{' || character === '[') depth += 1;
    if (character === '}' || character === ']') depth -= 1;
    at += 1;
    if (depth === 0) break;
    STRING.lastIndex = at;
    const string = STRING.exec(text);
    if (string === null) continue;
    strings += 1;
    at = STRING.lastIndex;
  }
  return { end: at, isJson: strings > 0 };
}

/** Names whose values differ from message to message: request_id, requestId. */
const VARIABLE_NAMES = [
  /(?:^|[_.-])(?:ids?|uuid|guid|token|nonce|etag|cursor|signature|timestamp)$/,
  /[a-z](?:I[dD]s?|Uuid|UUID|Token|Timestamp)$/,
];
/** Names of texts that are never the cause. */
const TRACE_NAME = /(?:^|[_.-])(?:trace|stack|stacktrace)$|[a-z](?:Trace|StackTrace)$/;
/** Names whose digits belong to the cause: code, error_code, errorCode, status. */
const CODE_NAME =
  /^(?:(?:error|err|decline|status|reason|result|sub)[_-]?)?(?:code|type|reason|status)s?$/i;
const ERROR_NAME = /^(?:errno|errors?|error_subcode)$/i;
/** A value of a code: E1001, AUTH-4011, 42P01. */
const CODE = /^[\w.:-]{1,32}$/;
/** Objects whose members are named after the fields they complain about. */
const FIELDS_NAME = /^(?:errors|violations|field_?errors|fields|messages)$/i;
/** Two words in a row, as no id has them. */
const SENTENCE = /(?:^|\s)[\p{L}'’]+[,:;]?\s+[\p{L}'’]+(?:[\s.,:;!]|$)/u;
/** Single words with which receivers refuse a field. */
const REFUSAL =
  /(?:^|[_-])(?:missing|invalid|required|unknown|blank|empty|expired|revoked|denied|found)$/i;

/** An object or a list around a value, and the name it has. */
interface Frame {
  readonly bracket: string;
  readonly name: string | undefined;
}

/** What a value in JSON is replaced by, depending on its name and on what is around it. */
function valueOf(name: string | undefined, value: string, frames: readonly Frame[]): string {
  if (name === undefined) return `"${wordsOf(value)}"`;
  if (TRACE_NAME.test(name)) return '<value>';
  if (isCodeName(name) && CODE.test(value)) return `"${withoutLongIds(value)}"`;
  const isVariable = VARIABLE_NAMES.some((pattern) => pattern.test(name));
  if (isVariable && !isComplaint(name, value, frames)) return '<value>';
  return `"${wordsOf(value)}"`;
}

function isCodeName(name: string): boolean {
  return CODE_NAME.test(name) || ERROR_NAME.test(name);
}

/** Whether a value complains about the field instead of being its value. */
function isComplaint(name: string, value: string, frames: readonly Frame[]): boolean {
  if (SENTENCE.test(value) || REFUSAL.test(value)) return true;
  const [around, beyond] = [frames.at(-1), frames.at(-2)];
  // {"order_id":["blank"]}, unlike {"order_ids":["abc"]}.
  if (around?.bracket === '[' && !/ids$/i.test(name)) return true;
  const object = around?.bracket === '[' ? beyond : around;
  return object?.name !== undefined && FIELDS_NAME.test(object.name);
}

/** JSON without layout and without the values that vary; words stay. */
function normaliseJson(json: string): string {
  let words = '';
  let bare = '';
  let at = 0;
  let name: string | undefined;
  const frames: Frame[] = [];
  const flush = (): void => {
    words +=
      name !== undefined && isCodeName(name)
        ? bare
        : bare.replaceAll(EXPONENT, '<n>').replaceAll(NUMBER, '<n>');
    bare = '';
  };
  while (at < json.length) {
    STRING.lastIndex = at;
    const string = STRING.exec(json);
    if (string === null) {
      const character = json[at] ?? '';
      if (character.trim() !== '') bare += character;
      if ('{[}]'.includes(character)) {
        flush();
        if (character === '{' || character === '[') {
          frames.push({
            bracket: character,
            name: frames.at(-1)?.bracket === '[' ? undefined : name,
          });
        } else frames.pop();
        if (character !== '[') name = undefined;
      }
      at += 1;
      continue;
    }
    flush();
    at = STRING.lastIndex;
    const value = string[3] ?? '';
    if (isFollowedByColon(json, at)) {
      name = value;
      words += `"${value.replaceAll(NUMBER, '<n>')}"`;
    } else words += valueOf(name, isWhole(string) ? value : withoutLastWord(value), frames);
  }
  flush();
  return words;
}

/** Whether a string has both its quotes. */
function isWhole([all, , quote = '"']: RegExpExecArray): boolean {
  return all.length > 1 && all.endsWith(quote);
}

function isFollowedByColon(text: string, at: number): boolean {
  return /^\\{0,3}\s*:/.test(text.slice(at, at + 8));
}

/** A text that was cut may end within a word. */
function withoutLastWord(text: string): string {
  return text.replace(/\S*$/, '');
}

const NUMBER = /-?\d+(?:[.,]\d+)*/g;
/** 3e10, 1.5E-7 */
const EXPONENT = /(?<![\w.])-?\d{1,20}(?:\.\d{1,20})?e[+-]?\d{1,3}(?!\w)/gi;
const TIME =
  /\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:z|utc|[+-]\d\d:?\d\d))?)?/gi;
const HTTP_TIME = /\b[a-z]{3}, \d{1,2} [a-z]{3} \d{4} [\d:]{5,8} (?:gmt|utc|[+-]\d{4})/gi;
const MONTH =
  '(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|' +
  'sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)';
const DAY = String.raw`\d{1,2}(?:st|nd|rd|th)?`;
/** Jan 2, 2026; 2 January 2026; 02-Jan-2026 */
const DATE = new RegExp(
  String.raw`\b(?:${MONTH}\.? ${DAY},?|${DAY}[ -]${MONTH}\.?,?)[ -]\d{4}\b`,
  'gi',
);
/** 3:15 PM, 10:15:07 a.m. */
const CLOCK = /\b\d{1,2}:\d\d(?::\d\d)? ?(?:[ap]m\b|[ap]\.m\.)/gi;
const QUERY = /(\bhttps?:\/\/[^\s?#"'<>]{1,500})[?#][^\s"'<>]{0,2000}/gi;
const IPV6 = /(?<![\w:])(?:[\da-f]{0,4}:){2,7}[\da-f]{0,4}(?![\w:])/gi;
/** Letters and digits in turn, as random ids have them: cus_NffrFeUfNV2Hib, 3MmlLr. */
const RANDOM =
  /(?<![a-z\d])(?=[a-z\d]{6})(?:[a-z]*\d+[a-z]+\d|[a-z]+\d+[a-z]|\d+[a-z]{4})[a-z\d]*/gi;
/** Long runs with at least a digit: base64, tokens, hashes. */
const BLOB =
  /(?<![\w+/=-])(?=[\w+/-]{0,200}\d)(?=[\w+-]{0,200}[A-Z]|[a-z\d]{24})[\w+-]{20,}={0,2}/g;

/** A value without e-mail addresses, times, ids, IPv6 addresses and what follows a URL's path. */
function wordsOf(text: string): string {
  return text
    .replaceAll(EMAIL, '<address>')
    .replaceAll(TIME, '<time>')
    .replaceAll(HTTP_TIME, '<time>')
    .replaceAll(DATE, '<time>')
    .replaceAll(CLOCK, '<time>')
    .replaceAll(QUERY, '$1?<query>')
    .replaceAll(UUID, '<id>')
    .replaceAll(HEX, '<id>')
    .replaceAll(IPV6, '<address>')
    .replaceAll(BLOB, '<id>')
    .replaceAll(RANDOM, '<id>')
    .replaceAll(EXPONENT, '<n>')
    .replaceAll(NUMBER, '<n>');
}

/** A code without times, UUIDs and long numbers, which belong to no code. */
function withoutLongIds(text: string): string {
  return text
    .replaceAll(TIME, '<time>')
    .replaceAll(UUID, '<id>')
    .replaceAll(/\d{11,}/g, '<n>');
}

/** n.b. Replaced before all others: without its digits an address is no longer recognised. */
const EMAIL = /[^\s@<>"']{1,64}@[^\s@<>"']{1,255}/g;
const HEX = /\b[\da-f]{16,}\b/gi;
const UUID = /[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}/gi;

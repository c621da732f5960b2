/**
 * table — rows under headings, without lines, cut to the width of the terminal, or to COLUMNS
 * where stdout is not a terminal. The column a table is read for, such as the reason of a
 * failure, keeps its width longest; see Column. Ids are shown in their shortest unique form.
 *
 * Drawn without a library: those that draw tables take all rows at once, so a table of many
 * thousand rows could not come in pages, and leave the choice of what to cut to us anyway.
 *
 * Cells are safe text already (observe/logs/safe-text.ts): no control characters, no escapes.
 */

import { isMadeId } from '../id-prefix.ts';
import type { Out } from './output.ts';

/** One column. */
export interface Column {
  readonly head: string;
  readonly align?: 'left' | 'right';
  /** Cut before other text when the terminal is too narrow, the last such column first. */
  readonly isFlexible?: true;
  /** What the table is read for, such as a reason: below 40 columns cut last (`fitted`). */
  readonly isReason?: true;
  /** A shorter form of a cell, taken when the terminal is too narrow for all cells in full. */
  readonly shorter?: (cell: string) => string;
  /** Left out where the terminal is too narrow for the reason, the last such column first. */
  readonly isOptional?: true;
  /** Ids: on a terminal in their shortest unique form. */
  readonly isId?: true;
  /** Colours a cell, after it was cut. */
  readonly paint?: (out: Out, cell: string) => string;
}

/** The gap between two columns. */
const GAP = 2;
/** Minimum width of a column that is cut. */
const NARROWEST = 8;
/** Width of the reason below which optional columns are left out. */
const REASON_ROOM = 24;
/** Width to which the reason is cut before any other column is. */
const REASON_WISH = 40;
/** Width to which other text, such as codes, is cut before the reason gives up more. */
const TEXT_ROOM = 12;

/** The table as text, without a line end at its end. */
export function tableOf(
  out: Out,
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
): string {
  return pagedTable(out, columns)(rows);
}

/** A table that comes in pages: its heading once, its widths from the first page. */
export function pagedTable(
  out: Out,
  columns: readonly Column[],
): (rows: readonly (readonly string[])[]) => string {
  let places: readonly Placed[] | undefined;
  let form: Form | undefined;
  const lineOf = (row: readonly string[], fixed: readonly Placed[], isHead: boolean): string => {
    const cells = fixed.map(({ at, column, width, fullWidth }) => {
      const cell = row[at] ?? '';
      const isToFit = out.columns !== undefined && (column.isFlexible || width < fullWidth);
      // Wider than on the first page: an id is never cut, it only stands out of its column.
      const shown = isToFit ? cut(cell, width) : cell;
      const blanks = ' '.repeat(Math.max(0, width - widthOf(shown)));
      const painted = isHead ? out.style('bold', shown) : (column.paint?.(out, shown) ?? shown);
      return column.align === 'right' ? `${blanks}${painted}` : `${painted}${blanks}`;
    });
    return cells.join(' '.repeat(GAP)).trimEnd();
  };
  return (value) => {
    const whole = withShortIds(columns, value, out.columns);
    form ??= formOf(columns, whole, out.columns);
    const rows = whole.map(form);
    const heads = columns.map(({ head }) => head);
    const isFirst = places === undefined;
    const fixed = (places ??= fitted(columns, rows, out.columns));
    const lines = rows.map((row) => lineOf(row, fixed, false));
    return (isFirst ? [lineOf(heads, fixed, true), ...lines] : lines).join('\n');
  };
}

/** Whole ids are for programs and for --wide: on a terminal they take the room of the reason. */
function withShortIds(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  available: number | undefined,
): readonly (readonly string[])[] {
  const at = columns.findIndex(({ isId }) => isId === true);
  if (at === -1 || available === undefined) return rows;
  const short = shortIds(rows.map((row) => row[at] ?? ''));
  return rows.map((row, index) => row.with(at, short[index] ?? ''));
}

/** Makes of a row the one that is shown: as it is, or with `shorter` cells. */
type Form = (row: readonly string[]) => readonly string[];

function formOf(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  available: number | undefined,
): Form {
  const isWhole = available === undefined || total(widthsOf(columns, rows)) <= available;
  if (isWhole) return (row) => row;
  return (row) => row.map((cell, at) => columns[at]?.shorter?.(cell) ?? cell);
}

function widthsOf(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
): readonly number[] {
  return columns.map(({ head }, at) =>
    rows.reduce((widest, row) => Math.max(widest, widthOf(row[at] ?? '')), widthOf(head)),
  );
}

/** Text that stays readable without its end; numbers and ids do not. */
function isCut({ align, isId }: Column): boolean {
  return align !== 'right' && isId !== true;
}

/** A column that is shown, and how wide. */
interface Placed {
  readonly at: number;
  readonly column: Column;
  /** What its cells take uncut. */
  readonly fullWidth: number;
  width: number;
}

function fitted(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  available: number | undefined,
): readonly Placed[] {
  const widths = widthsOf(columns, rows);
  let places = columns.map((column, at): Placed => {
    const width = widths[at] ?? 0;
    return { at, column, width, fullWidth: width };
  });
  if (available === undefined) return places;
  const isTooNarrow = (): boolean => total(places.map(leastOf)) > available;
  while (isTooNarrow()) {
    const last = places.findLast(({ column }) => column.isOptional === true);
    if (last === undefined) break;
    places = places.filter((place) => place !== last);
  }
  let over = total(places.map(({ width }) => width)) - available;
  const narrow = (some: readonly Placed[], least: number): void => {
    for (const place of some) {
      const narrower = Math.min(place.width, Math.max(least, place.width - Math.max(0, over)));
      over -= place.width - narrower;
      place.width = narrower;
    }
  };
  const cuttable = places.filter(({ column }) => isCut(column)).reverse();
  const reasons = cuttable.filter(({ column }) => column.isReason === true);
  const texts = cuttable.filter(({ column }) => column.isReason !== true);
  narrow(reasons, REASON_WISH);
  narrow(
    texts.filter(({ column }) => column.isFlexible === true),
    NARROWEST,
  );
  narrow(texts, TEXT_ROOM);
  narrow(reasons, NARROWEST);
  narrow(texts, NARROWEST);
  return places;
}

/** The least that a column should have. */
function leastOf({ column, width }: Placed): number {
  if (column.isFlexible !== true) return width;
  return Math.min(width, column.isReason === true ? REASON_ROOM : NARROWEST);
}

function total(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width + GAP, -GAP);
}

/** Of an id that Respool made: its time, in milliseconds. What is shown is read by id-prefix.ts. */
const MOMENT_CHARS = 13;
/** The random end of one; a few more where these are alike. */
const END_CHARS = 4;
/** The longest id of a user's own that is shown whole; of a longer one its head and its end. */
const OWN_MAX_CHARS = 24;
const OWN_HEAD_CHARS = 15;

/** The ids in their short form, in their order; equal ones alike. */
export function shortIds(ids: readonly string[]): readonly string[] {
  const all = [...new Set(ids)];
  const moments = new Map<string, number>();
  for (const id of all) {
    const head = id.slice(0, MOMENT_CHARS);
    moments.set(head, (moments.get(head) ?? 0) + 1);
  }
  const short = (id: string, endChars: number): string => {
    if (!isMadeId(id)) {
      if (id.length <= OWN_MAX_CHARS) return id;
      return `${id.slice(0, OWN_HEAD_CHARS)}…${id.slice(-2 * endChars)}`;
    }
    const head = id.slice(0, MOMENT_CHARS);
    return moments.get(head) === 1 ? head : `${head}…${id.slice(-endChars)}`;
  };
  for (let endChars = END_CHARS; endChars <= 2 * END_CHARS; endChars += 1) {
    if (new Set(all.map((id) => short(id, endChars))).size === all.length) {
      return ids.map((id) => short(id, endChars));
    }
  }
  // Same prefix and suffix: only the full id is unique.
  return ids;
}

const PLAIN = /^[\u0020-\u007e]*$/;
const NO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;
const PICTURE = /\p{Emoji_Presentation}|\p{Regional_Indicator}|\ufe0f/u;

/** First and last of the ranges that East Asian terminals show in two columns. */
const WIDE: readonly (readonly [number, number])[] = [
  [0x11_00, 0x11_5f],
  [0x2e_80, 0x30_3e],
  [0x30_41, 0x33_ff],
  [0x34_00, 0x4d_bf],
  [0x4e_00, 0xa4_cf],
  [0xa9_60, 0xa9_7f],
  [0xac_00, 0xd7_a3],
  [0xf9_00, 0xfa_ff],
  [0xfe_30, 0xfe_6f],
  [0xff_00, 0xff_60],
  [0xff_e0, 0xff_e6],
  [0x1_f3_00, 0x1_f6_4f],
  [0x1_f9_00, 0x1_f9_ff],
  [0x2_00_00, 0x3_ff_fd],
];

/** How many columns a text takes. */
export function widthOf(text: string): number {
  if (PLAIN.test(text)) return text.length;
  let columns = 0;
  for (const { segment } of graphemesOf(text)) columns += widthOfGrapheme(segment);
  return columns;
}

/** The text in at most this many columns, with `…` where it was cut. */
export function cut(text: string, columns: number): string {
  if (columns < 1) return '';
  // Longer than any line can be: not worth measuring to its end.
  const head = text.slice(0, columns * LONGEST_GRAPHEME);
  if (head.length === text.length && widthOf(text) <= columns) return text;
  let taken = '';
  let used = 0;
  for (const { segment } of graphemesOf(head)) {
    used += widthOfGrapheme(segment);
    if (used > columns - 1) break;
    taken += segment;
  }
  return `${taken}…`;
}

/** In UTF-16 units, generously: a family of five with skin tones. */
const LONGEST_GRAPHEME = 20;

let segmenter: Intl.Segmenter | undefined;

/** Made at its first use: it costs 9 ms, and most output is plain. */
function graphemesOf(text: string): Iterable<Intl.SegmentData> {
  segmenter ??= new Intl.Segmenter(undefined, { granularity: 'grapheme' });
  return segmenter.segment(text);
}

function widthOfGrapheme(grapheme: string): number {
  if (NO_WIDTH.test(grapheme)) return 0;
  if (PICTURE.test(grapheme)) return 2;
  const code = grapheme.codePointAt(0) ?? 0;
  return WIDE.some(([first, last]) => code >= first && code <= last) ? 2 : 1;
}

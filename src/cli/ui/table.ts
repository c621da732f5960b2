/**
 * table — rows under headings, without lines, cut to the terminal, or to COLUMNS where stdout is
 * none. What a table is read for, such as the reason of a failure, has the room; see Column.
 *
 * Cells are safe text already (observe/logs/safe-text.ts).
 */

import type { Out } from './output.ts';
import { shortIds } from './short-ids.ts';
import { cut, widthOf } from './width.ts';

/** One column. */
export interface Column {
  readonly head: string;
  readonly align?: 'left' | 'right';
  /** Cut when the terminal is too narrow, the last such column first. */
  readonly isFlexible?: true;
  /** What the table is read for, such as a reason: cut last, and others make room for it. */
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
export async function tableOf(
  out: Out,
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
): Promise<string> {
  const { drawTable } = await import('./draw-table.ts');
  const whole = withShortIds(columns, rows, out.columns);
  const form = formOf(columns, whole, out.columns);
  const shown = whole.map(form);
  const places = fitted(columns, shown, out.columns);
  const heads = places.map(({ column, width }) => out.style('bold', cut(column.head, width)));
  const cells = shown.map((row) =>
    places.map(({ at, column, width }) => {
      const cell = cut(row[at] ?? '', width);
      return column.paint?.(out, cell) ?? cell;
    }),
  );
  const aligns = places.map(({ column }) => column.align ?? 'left');
  return drawTable([heads, ...cells], aligns, GAP);
}

/**
 * A table that comes in pages: its heading once, its widths from the first page. Draws with less
 * than a library does, for tables of many thousand rows.
 */
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
  return (given) => {
    const whole = withShortIds(columns, given, out.columns);
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

/** A row, perhaps in shorter words. */
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

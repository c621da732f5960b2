/**
 * table — rows under headings, without lines, cut to the terminal where there is one.
 *
 * Cells are safe text already (safe.ts).
 */

import type { Out } from './out.ts';
import { shortIds } from './short-ids.ts';
import { cut, widthOf } from './width.ts';

/** One column. */
export interface Column {
  readonly head: string;
  readonly align?: 'left' | 'right';
  /** Cut when the terminal is too narrow, the last such column first. */
  readonly isFlexible?: true;
  /** Why something is as it is: cut after all others, and others make room for it. */
  readonly isReason?: true;
  /** Left out where the terminal is too narrow for the reason, the last such column first. */
  readonly isOptional?: true;
  /** Ids: on a terminal in their shortest unique form. */
  readonly isId?: true;
  /** Colours a cell, after it was cut. */
  readonly paint?: (out: Out, cell: string) => string;
}

/** The gap between two columns. */
const GAP = 2;
/** No flexible column becomes narrower than this. */
const NARROWEST = 8;
/** So much room the reason has before columns are left out. */
const REASON_ROOM = 24;

/** The table as text, without a line end at its end. */
export async function tableOf(
  out: Out,
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
): Promise<string> {
  const { drawTable } = await import('./draw-table.ts');
  const shown = withShortIds(columns, rows, out.columns);
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
  const lineOf = (row: readonly string[], fixed: readonly Placed[], isHead: boolean): string => {
    const cells = fixed.map(({ at, column, width }) => {
      const cell = row[at] ?? '';
      // Wider than on the first page: an id is never cut, it only stands out of its column.
      const shown =
        column.isFlexible === true && out.columns !== undefined ? cut(cell, width) : cell;
      const blanks = ' '.repeat(Math.max(0, width - widthOf(shown)));
      const painted = isHead ? out.style('bold', shown) : (column.paint?.(out, shown) ?? shown);
      return column.align === 'right' ? `${blanks}${painted}` : `${painted}${blanks}`;
    });
    return cells.join(' '.repeat(GAP)).trimEnd();
  };
  return (given) => {
    const rows = withShortIds(columns, given, out.columns);
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

/** A column that is shown, and how wide. */
interface Placed {
  readonly at: number;
  readonly column: Column;
  width: number;
}

function fitted(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  available: number | undefined,
): readonly Placed[] {
  let places = columns.map((column, at): Placed => {
    const cells = rows.map((row) => widthOf(row[at] ?? ''));
    return { at, column, width: cells.reduce((a, b) => Math.max(a, b), widthOf(column.head)) };
  });
  if (available === undefined) return places;
  const isTooNarrow = (): boolean => total(places.map(leastOf)) > available;
  while (isTooNarrow()) {
    const last = places.findLast(({ column }) => column.isOptional === true);
    if (last === undefined) break;
    places = places.filter((place) => place !== last);
  }
  let over = total(places.map(({ width }) => width)) - available;
  const flexible = places.filter(({ column }) => column.isFlexible === true).reverse();
  const reasons = flexible.filter(({ column }) => column.isReason === true);
  const others = flexible.filter(({ column }) => column.isReason !== true);
  const narrow = (some: readonly Placed[], least: number): void => {
    for (const place of some) {
      const narrower = Math.min(place.width, Math.max(least, place.width - Math.max(0, over)));
      over -= place.width - narrower;
      place.width = narrower;
    }
  };
  // The reason gives what it has beyond its room, then the others what they can, then it again.
  narrow(reasons, REASON_ROOM);
  narrow(others, NARROWEST);
  narrow(reasons, NARROWEST);
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

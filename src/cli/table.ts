/**
 * table — rows under headings, without lines, cut to the terminal where there is one.
 *
 * Cells are safe text already (safe.ts).
 */

import type { Out } from './out.ts';
import { cut, widthOf } from './width.ts';

/** One column. */
export interface Column {
  readonly head: string;
  readonly align?: 'left' | 'right';
  /** Cut when the terminal is too narrow, the last such column first. */
  readonly isFlexible?: true;
  /** Colours a cell, after it was cut. */
  readonly paint?: (out: Out, cell: string) => string;
}

/** The gap between two columns. */
const GAP = 2;
/** No flexible column becomes narrower than this. */
const NARROWEST = 8;

/** The table as text, without a line end at its end. */
export async function tableOf(
  out: Out,
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
): Promise<string> {
  const { drawTable } = await import('./draw-table.ts');
  const widths = fitted(columns, rows, out.columns);
  const heads = columns.map(({ head }, at) => out.style('bold', cut(head, widths[at] ?? 0)));
  const cells = rows.map((row) =>
    row.map((cell, at) => {
      const shown = cut(cell, widths[at] ?? 0);
      return columns[at]?.paint?.(out, shown) ?? shown;
    }),
  );
  const aligns = columns.map(({ align = 'left' }) => align);
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
  let widths: readonly number[] | undefined;
  const lineOf = (row: readonly string[], fixed: readonly number[], isHead: boolean): string => {
    const cells = columns.map((column, at) => {
      const width = fixed[at] ?? 0;
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
  return (rows) => {
    const heads = columns.map(({ head }) => head);
    const isFirst = widths === undefined;
    const fixed = (widths ??= fitted(columns, rows, out.columns));
    const lines = rows.map((row) => lineOf(row, fixed, false));
    return (isFirst ? [lineOf(heads, fixed, true), ...lines] : lines).join('\n');
  };
}

function fitted(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  available: number | undefined,
): number[] {
  const widths = columns.map(({ head }, at) =>
    rows.reduce((widest, row) => Math.max(widest, widthOf(row[at] ?? '')), widthOf(head)),
  );
  if (available === undefined) return widths;
  let over = widths.reduce((sum, width) => sum + width + GAP, -GAP) - available;
  for (const [at, column] of [...columns.entries()].reverse()) {
    if (over <= 0 || column.isFlexible !== true) continue;
    const narrower = Math.min(widths[at] ?? 0, Math.max(NARROWEST, (widths[at] ?? 0) - over));
    over -= (widths[at] ?? 0) - narrower;
    widths[at] = narrower;
  }
  return widths;
}

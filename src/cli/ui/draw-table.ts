/**
 * draw-table — draws a table with cli-table3. A separate file, because not every command prints a
 * table. A file of its own: not every command draws tables.
 */

import Table from 'cli-table3';

/** The rows as lines, without borders and without blanks at their ends. */
export function drawTable(
  rows: readonly (readonly string[])[],
  aligns: readonly ('left' | 'right')[],
  gap: number,
): string {
  const table = new Table({
    chars: NO_LINES,
    colAligns: [...aligns],
    style: { 'padding-left': 0, 'padding-right': gap, head: [], border: [], compact: true },
  });
  for (const row of rows) table.push([...row]);
  const lines = table.toString().split('\n');
  return lines.map((line) => line.trimEnd()).join('\n');
}

const NO_LINES = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: '',
};

/** verdict — the one page that a torture run ends with. */

/** One line of the page. */
export interface Row {
  readonly suite: string;
  readonly place: string;
  /** Kills, cuts, pauses, points: how often something was done to the spool. */
  readonly faults: number;
  readonly messages: number;
  readonly lost: number;
  readonly duplicated: number;
  /** As many duplicates were allowed. */
  readonly bound: number;
  readonly unexpected: number;
  readonly corrupt: number;
  /** The longest time to open the stores again; null where nothing was reopened. */
  readonly worstRecoveryMs: number | null;
  readonly complaints: readonly string[];
  /** Why it was not run, if it was not. */
  readonly skipped?: string;
}

const HEAD: readonly string[] = [
  'suite',
  'store',
  'faults',
  'messages',
  'lost',
  'duplicated (bound)',
  'unexpected',
  'corrupt',
  'recovery',
  'verdict',
];
/** Complaints on the page; the first ones tell most. */
const COMPLAINTS_MAX = 25;

/** The page as text. */
export function verdictPage(
  rows: readonly Row[],
  about: { readonly [name: string]: string },
): string {
  const cells = [HEAD, ...rows.map(cellsOf)];
  const widths = HEAD.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const lines = cells.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  const complaints = rows.flatMap(({ suite, place, complaints: found }) =>
    found.map((text) => `  ${suite} ${place}: ${text}`),
  );
  const hidden = complaints.length - COMPLAINTS_MAX;
  return [
    `respool torture: ${Object.entries(about)
      .map(([name, text]) => `${name} ${text}`)
      .join(', ')}`,
    '',
    ...lines,
    '',
    ...complaints.slice(0, COMPLAINTS_MAX),
    ...(hidden > 0 ? [`  and ${hidden} more`] : []),
    isClean(rows) ? 'no promise was broken' : `${complaints.length} violations`,
  ].join('\n');
}

/** Whether nothing is wrong; what was skipped is not wrong. */
export function isClean(rows: readonly Row[]): boolean {
  return rows.every(({ complaints }) => complaints.length === 0);
}

function cellsOf(row: Row): readonly string[] {
  if (row.skipped !== undefined) {
    return [row.suite, row.place, ...HEAD.slice(3).map(() => '-'), `skipped: ${row.skipped}`];
  }
  return [
    row.suite,
    row.place,
    String(row.faults),
    String(row.messages),
    String(row.lost),
    `${row.duplicated} (${row.bound})`,
    String(row.unexpected),
    String(row.corrupt),
    row.worstRecoveryMs === null ? '-' : `${row.worstRecoveryMs} ms`,
    row.complaints.length === 0 ? 'ok' : 'VIOLATED',
  ];
}

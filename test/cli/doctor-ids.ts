/** doctor-ids — the ids of findings that docs/reference/doctor.md lists, and who fits them. */
import { readPage, tableUnder, wordOf } from '../docs/pages.ts';

/** The rows of the page: an id with its places, and the levels it can have. */
export const DOCUMENTED: readonly { readonly id: string; readonly levels: readonly string[] }[] =
  tableUnder(readPage('docs/reference/doctor.md'), 'Ids').map(([id, levels = '']) => ({
    id: wordOf(id),
    levels: levels.split(', '),
  }));

/** Whether a finding is one of those that the page lists. */
export function isDocumented(id: string, level: string): boolean {
  return DOCUMENTED.some((row) => patternOf(row.id).test(id) && row.levels.includes(level));
}

function patternOf(id: string): RegExp {
  const escaped = id.replaceAll(/[.[\]]/g, String.raw`\$&`);
  return new RegExp(
    `^${escaped
      .replaceAll('<part>', '(?:entries|bodies)')
      .replaceAll('<name>', '[^.]+')
      .replaceAll(String.raw`\[n\]`, String.raw`\[\d+\]`)}$`,
  );
}

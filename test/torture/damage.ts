/**
 * damage — harms the files and rows of a spool that is closed, as a failing disk or a clumsy hand
 * would.
 */
import { readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import type { Chance } from './chance.ts';
import type { Place } from './places.ts';

/** A way to do harm. `stranger` puts another message's content in its place. */
export type Harm = 'flip' | 'cut' | 'zero' | 'empty' | 'gone' | 'stranger';

export const HARMS: readonly Harm[] = ['flip', 'cut', 'zero', 'empty', 'gone', 'stranger'];

/** Harms the file of a body that is kept beside its entry. */
export async function damageBody(
  path: string,
  key: string,
  harm: Harm,
  chance: Chance,
): Promise<void> {
  const folder = join(path, 'bodies');
  const isOf = (name: string): boolean => name.startsWith(`${key}-`);
  await damageFile(
    folder,
    { isOf, isOther: (name) => /^s\d+-/.test(name) && !isOf(name) },
    harm,
    chance,
  );
}

/** Harms an entry: its file, or its row. */
export async function damageEntry(
  place: Place,
  path: string,
  key: string,
  harm: Harm,
  chance: Chance,
): Promise<void> {
  if (place !== 'filesystem') {
    damageRow(join(path, 'respool.db'), key, harm, chance);
    return;
  }
  const isOf = (name: string): boolean => name.startsWith(`${key},r`);
  const isOther = (name: string): boolean => /^[ms]\d+,r/.test(name) && !isOf(name);
  // A file that was taken away cannot be told from one that was never there: not our case.
  const kind = harm === 'gone' ? 'zero' : harm;
  await damageFile(join(path, 'entries', 'incoming'), { isOf, isOther }, kind, chance);
}

async function damageFile(
  folder: string,
  names: { isOf(name: string): boolean; isOther(name: string): boolean },
  harm: Harm,
  chance: Chance,
): Promise<void> {
  const all = await readdir(folder, { recursive: true });
  const base = (file: string): string => file.slice(file.lastIndexOf('/') + 1);
  const own = all.find((file) => names.isOf(base(file)));
  const other = all.find((file) => names.isOther(base(file)));
  if (own === undefined || other === undefined) throw new Error(`nothing to damage in ${folder}`);
  const file = join(folder, own);
  const bytes = await readFile(file);
  const at = chance.between(0, bytes.length - 1);
  switch (harm) {
    case 'flip':
      return writeFile(file, flipped(bytes, at, chance));
    case 'cut':
      return truncate(file, at);
    case 'zero':
      return writeFile(file, bytes.fill(0, at));
    case 'empty':
      return truncate(file, 0);
    case 'gone':
      return rm(file);
    default:
      return writeFile(file, await readFile(join(folder, other)));
  }
}

function damageRow(file: string, key: string, harm: Harm, chance: Chance): void {
  const database = new Database(file);
  try {
    const seq = database.prepare('SELECT seq FROM entries WHERE id = ?').pluck().get(key);
    const row = database.prepare('SELECT envelope, body FROM contents WHERE seq = ?').get(seq) as {
      readonly envelope: string;
      readonly body: Buffer | null;
    };
    const set = (column: string, value: unknown): void => {
      database.prepare(`UPDATE contents SET ${column} = ? WHERE seq = ?`).run(value, seq);
    };
    const { envelope, body } = row;
    const hasBody = body !== null && body.length > 0;
    switch (harm) {
      case 'flip':
        // The body where it rides with the entry; else the text, in a way that cannot be read.
        if (hasBody) set('body', flipped(body, chance.between(0, body.length - 1), chance));
        else set('envelope', envelope.replace('{', '['));
        return;
      case 'cut':
        set('envelope', envelope.slice(0, chance.between(0, envelope.length - 1)));
        return;
      case 'zero':
        if (hasBody) set('body', Buffer.alloc(body.length));
        else set('envelope', '');
        return;
      case 'empty':
        if (hasBody) set('body', Buffer.alloc(0));
        else set('envelope', '{}');
        return;
      case 'gone':
        database.prepare('DELETE FROM contents WHERE seq = ?').run(seq);
        return;
      default:
        set('envelope', otherEnvelope(database, key));
    }
  } finally {
    database.close();
  }
}

function otherEnvelope(database: Database.Database, key: string): unknown {
  return database
    .prepare('SELECT envelope FROM contents JOIN entries USING (seq) WHERE id <> ? LIMIT 1')
    .pluck()
    .get(key);
}

function flipped(bytes: Buffer, at: number, chance: Chance): Buffer {
  const copy = Buffer.from(bytes);
  copy.writeUInt8(copy.readUInt8(at) ^ (1 << chance.between(0, 7)), at);
  return copy;
}

/** database — a database of its own for programs whose tables have names that others use, too. */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { service } from '../services/index.ts';

/** Where it is, and the way to remove it with everything in it. */
export interface Database {
  readonly url: string;
  readonly remove: () => Promise<void>;
}

/** Makes one at the server that the tests share. */
export async function makeDatabase(): Promise<Database> {
  const shared = await service('postgres');
  const name = `docs_${randomBytes(6).toString('hex')}`;
  const ask = async (text: string): Promise<void> => {
    const client = new pg.Client({ connectionString: shared });
    await client.connect();
    try {
      await client.query(text);
    } finally {
      await client.end();
    }
  };
  await ask(`CREATE DATABASE ${name}`);
  const url = new URL(shared);
  url.pathname = `/${name}`;
  return { url: url.href, remove: () => ask(`DROP DATABASE ${name} WITH (FORCE)`) };
}

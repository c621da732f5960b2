/** statements — what `respool doctor --sql` prints is what the server understands. */
import { expect, test } from 'vitest';
import {
  type PostgresStatement,
  postgresStatements,
  statementText,
} from '../../../src/stores/postgres/statements.ts';
import { withService } from '../../services/index.ts';
import { newSchema, openClient, openStore } from './setup.ts';

/** The text as psql sends it: with the values of its variables. */
function asSent({ sql, parameters }: PostgresStatement): string {
  return sql.replaceAll(/:'(\w+)'/g, (_, name: string) => {
    const value = parameters[name];
    if (value === undefined) throw new Error(`"${name}" has no value in:\n${sql}`);
    return `'${value.replaceAll("'", "''")}'`;
  });
}

test('every statement has a title of its own, and every parameter a name that says something', async () => {
  const statements = await postgresStatements();
  const titles = statements.map(({ title }) => title);
  expect(new Set(titles).size).toBe(titles.length);
  for (const { title, sql, parameters } of statements) {
    expect(sql, title).not.toMatch(/\$\d/);
    expect(
      Object.keys(parameters).filter((name) => /^p\d+$/.test(name)),
      `${title}:\n${sql}`,
    ).toEqual([]);
  }
});

test('there are statements for every kind of work, in the schema that was asked for', async () => {
  const statements = await postgresStatements({ schema: 'mail', tables: 'out_' });
  const titles = statements.map(({ title }) => title);
  const kinds = ['Insert', 'Claim', 'Look for the next due', 'Commit', 'Get', 'List', 'Count'];
  for (const kind of [...kinds, 'Records', 'Bodies']) {
    expect(
      titles.some((title) => title.startsWith(kind)),
      kind,
    ).toBe(true);
  }
  const tables = statements.filter(({ sql }) => sql.includes('"mail"."out_'));
  expect(tables.length).toBeGreaterThan(40);
  expect(statements.filter(({ sql }) => sql.includes('"respool"'))).toEqual([]);
});

test('a text sets the variables of psql before it uses them', () => {
  const sql = "SELECT :'a'";
  expect(statementText({ title: 'One', sql, parameters: { a: String.raw`it's \x` } })).toBe(
    String.raw`-- One
\set a 'it\'s \\x'
SELECT :'a';
`,
  );
});

withService('postgres', () => {
  test('the server plans each statement over the tables of a store', async () => {
    const schema = newSchema();
    await openStore({ schema });
    const client = await openClient();
    for (const statement of await postgresStatements({ schema })) {
      const text = asSent(statement);
      const planned = await client.query(`EXPLAIN ${text}`).then(
        ({ rows }) => rows.length,
        (error: unknown) => {
          throw new Error(`${statement.title}: ${String(error)}\n${text}`);
        },
      );
      expect(planned, statement.title).toBeGreaterThan(0);
    }
  });
});

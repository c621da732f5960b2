/** `respool outbox`: tables, lists, actions and numbers of an outbox in a real database. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import Sqlite from 'better-sqlite3';
import { failure } from 'respool';
import { createOutbox } from 'respool/outbox';
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { outboxShell, TTY } from './outbox-place.ts';
import { setup } from './setup.ts';

const RELAY = ['outbox', 'relay', '--store', 'sqlite:./app.db'];
const CANARY = 'c4nary-Zm9vYmFyYmF6cXV4';

/** An id as a table on a terminal shows it, where no other was made at the same moment. */
function shortOf(id: string): string {
  return id.slice(0, '01a1e06c-024e'.length);
}

withService('postgres', () => {
  describe('outbox init', () => {
    test('makes the tables, and does nothing where they are', async () => {
      const shell = await outboxShell({ isMade: false });
      const first = await shell.outbox(['init']);
      expect(first).toMatchObject({ code: 0, stderr: '' });
      expect(first.stdout).toMatch(/^the outbox is ready in postgres:\/\/[^@]+ \(schema cli_/);
      const [id = ''] = await shell.emit([{ routingKey: 'a', body: 1 }]);
      const again = await shell.outbox(['init', '--json']);
      expect(again.objects()).toMatchObject([{ schema: shell.schema, ready: true }]);
      expect((await shell.outbox(['list', '--json'])).objects()).toMatchObject([{ id }]);
    });

    test('may be run by several at once', async () => {
      const shell = await outboxShell({ isMade: false });
      const ran = await Promise.all([1, 2, 3].map(() => shell.outbox(['init'])));
      expect(ran.map(({ code, stderr }) => [code, stderr])).toEqual([
        [0, ''],
        [0, ''],
        [0, ''],
      ]);
    });

    test('takes names that the tables begin with', async () => {
      const shell = await outboxShell();
      expect((await shell.outbox(['init', '--tables', 'mail_'])).code).toBe(0);
      const { rows } = await shell.pool.query<{ name: string }>(
        "SELECT to_regclass($1 || '.mail_entries')::text AS name",
        [shell.schema],
      );
      expect(rows[0]?.name).toContain('mail_entries');
      await shell.emit([{ routingKey: 'a' }]);
      expect((await shell.outbox(['list', '--tables', 'mail_'])).stderr).toContain('no message');
    });

    test('nothing else makes tables: others say what to do, and end with 3', async () => {
      const shell = await outboxShell({ isMade: false });
      for (const words of [['list'], ['stats'], ['show', 'x'], ['retry', 'ALL', '--yes']]) {
        const ran = await shell.outbox(words);
        expect(ran.code).toBe(3);
        expect(ran.stderr).toContain('respool outbox init');
      }
      const { rows } = await shell.pool.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [
        shell.schema,
      ]);
      expect(rows).toEqual([]);
    });
  });

  describe('outbox sql', () => {
    test('prints what init would run, and that makes an outbox', async () => {
      const shell = await outboxShell({ isMade: false });
      const { stdout, code } = await shell.outbox(['sql']);
      expect(code).toBe(0);
      expect(stdout).toContain(`CREATE SCHEMA IF NOT EXISTS "${shell.schema}"`);
      await shell.pool.query(stdout);
      await shell.emit([{ routingKey: 'a' }]);
      const listed = await shell.outbox(['list', '--json']);
      expect(listed.objects()).toMatchObject([{ envelope: { topic: 'a' } }]);
      const [object] = (await shell.outbox(['sql', '--json'])).objects();
      expect(object).toEqual({ sql: stdout });
    });

    test('prints what init would run on tables of a version', async () => {
      const { cli } = await setup();
      for (const store of ['postgres://127.0.0.1:1/x', 'sqlite:./app.db']) {
        const { stdout, code } = await cli(['outbox', 'sql', '--from', '1', '--store', store]);
        expect(code).toBe(0);
        expect(stdout).toMatch(/ALTER TABLE .*entries/);
        expect(stdout).not.toMatch(/CREATE TABLE .*_?entries/);
      }
    });

    test('asks no database', async () => {
      const shell = await setup();
      const nowhere = ['--store', 'postgres://127.0.0.1:1/x'];
      const { stdout } = await shell.cli(['outbox', 'sql', ...nowhere]);
      expect(stdout).toContain('CREATE SCHEMA IF NOT EXISTS "outbox"');
    });
  });

  describe('outbox list and show', () => {
    test('show messages by routing key, state and order, and one in full', async () => {
      const shell = await outboxShell();
      const [first = '', second = ''] = await shell.emit([
        { routingKey: 'order.created', body: { n: 1 }, key: 'customer-7' },
        { routingKey: 'user.created', body: 'x', eta: '1h' },
      ]);
      const listed = await shell.outbox(['list', '--topic', 'order.*', '--wide'], TTY);
      expect(listed.stdout).toMatch(new RegExp(`${first} +incoming +order\\.created`));
      expect(listed.stdout).not.toContain(second);
      const all = await shell.outbox(['list', '--json', '--order', 'dueAt', '--desc']);
      expect(all.objects().map(({ id }) => id)).toEqual([second, first]);
      const shown = await shell.outbox(['show', first], TTY);
      expect(shown.stdout).toContain('order.created');
      expect(shown.stdout).toMatch(/order key +customer-7/);
      expect(shown.stdout).not.toContain('not before');
      const later = await shell.outbox(['show', second], TTY);
      expect(later.stdout).toMatch(/not before +.*in (?:59m|1h)/);
      const none = await shell.outbox(['show', 'no-such-one']);
      expect(none.code).toBe(1);
      expect(none.stderr).toContain('there is no message "no-such-one"; see: respool outbox list');
    });
  });

  describe('outbox retry, hold and remove', () => {
    test('do to messages what their namesakes do, with an audit record', async () => {
      const shell = await outboxShell();
      const [id = ''] = await shell.emit([{ routingKey: 'a', eta: '1h' }, { routingKey: 'b' }]);
      const stateOf = async () => {
        const [found] = (await shell.outbox(['show', id, '--json'])).objects();
        return (found as { status: { state: string } }).status.state;
      };
      const held = await shell.outbox(['hold', id, '--reason', 'wait a while']);
      expect(held).toMatchObject({ code: 0, stdout: 'held 1\n' });
      expect(await stateOf()).toBe('hold');
      expect((await shell.outbox(['retry', id])).stdout).toBe('retried 1\n');
      expect(await stateOf()).toBe('incoming');
      expect((await shell.outbox(['remove', '--topic', 'a', '--yes'])).stdout).toBe('removed 1\n');
      expect(await stateOf()).toBe('archived');
      const asked = await shell.outbox(['remove', 'ALL', '--hard']);
      expect(asked.code).toBe(4);
      const dry = await shell.outbox(['remove', 'ALL', '--hard', '--dry-run', '--json']);
      expect(dry.objects()).toEqual([{ action: 'remove', count: 2, dryRun: true }]);
      const gone = await shell.outbox(['remove', 'ALL', '--hard', '--yes']);
      expect(gone.stdout).toBe('removed for good 2\n');
      const { rows } = await shell.pool.query<{ record: string }>(
        `SELECT record FROM ${shell.schema}.logs ORDER BY sequence`,
      );
      expect(rows.length).toBeGreaterThanOrEqual(4);
      expect(rows[0]?.record).toContain('tester@cli');
    });
  });

  describe('outbox stats', () => {
    test('tells what waits, since when, and what is due', async () => {
      const shell = await outboxShell();
      const ids = await shell.emit([
        { routingKey: 'a' },
        { routingKey: 'b' },
        { routingKey: 'c', eta: '1h' },
        { routingKey: 'd' },
        { routingKey: 'e' },
      ]);
      await shell.outbox(['hold', ids[3] ?? '']);
      await shell.outbox(['remove', ids[4] ?? '']);
      const [told] = (await shell.outbox(['stats', '--json'])).objects();
      expect(told).toMatchObject({
        schema: shell.schema,
        pending: 3,
        due: 2,
        active: 0,
        later: 1,
        deferred: 1,
        held: 1,
        dead: 0,
        kept: 1,
        stuck: [],
      });
      expect(told?.['oldestAgeMs']).toBeGreaterThanOrEqual(0);
      const { stdout } = await shell.outbox(['stats'], TTY);
      expect(stdout).toMatch(/pending +3 +/);
      expect(stdout).toMatch(/ due +2\n +on their way +0\n +later +1\n/);
      expect(stdout).toMatch(/^deferred +1 of the pending, the oldest /m);
      expect(stdout).toMatch(/held +1 +/);
      // The one that was removed: nothing was sent.
      expect(stdout).toMatch(/sent or removed, kept +1 +/);
      // Due at once: on a busy machine a moment ago.
      expect(stdout).toMatch(/next due +(?:now|[\d.]+m?s ago)/);
    });

    test('names a key that is stuck, and removing its first message lets the next one go', async () => {
      const shell = await outboxShell();
      const [head = '', ...behind] = await shell.emit(
        [1, 2, 3].map((n) => ({ routingKey: 'order.paid', body: n, key: 'customer-7' })),
      );
      await shell.emit([{ routingKey: 'order.paid', key: 'customer-8' }]);
      await shell.outbox(['hold', head, '--reason', 'card is blocked']);
      const { stdout } = await shell.outbox(['stats'], TTY);
      expect(stdout).toMatch(new RegExp(`customer-7 +2 +${shortOf(head)} +hold .*card is blocked`));
      expect(stdout).not.toContain('customer-8');
      expect(stdout).toContain(`respool outbox remove ${head}`);
      const [told] = (await shell.outbox(['stats', '--json'])).objects();
      expect(told?.['stuck']).toMatchObject([
        { orderKey: 'customer-7', id: head, state: 'hold', behind: 2 },
      ]);
      expect((await shell.outbox(['remove', head])).code).toBe(0);
      const [after] = (await shell.outbox(['stats', '--json'])).objects();
      expect(after?.['stuck']).toEqual([]);
      const [next] = (await shell.outbox(['show', behind[0] ?? '', '--json'])).objects();
      const { dueAt } = (next as { status: { dueAt: number } }).status;
      expect(dueAt).toBeLessThanOrEqual(after?.['at'] as number);
    });
  });

  describe('outbox stats, while the target is away', () => {
    test('advises no action at a message that only waits for it', async () => {
      const shell = await outboxShell();
      const [held = '', , waiting = ''] = await shell.emit(
        ['k', 'k', 'l', 'l'].map((key) => ({ routingKey: 'a', key })),
      );
      const outbox = createOutbox({ pool: shell.pool, schema: shell.schema });
      const gone = failure('transient', 'broker.unavailable', 'there is no connection');
      const to = {
        name: 'gone',
        send: async (parcels: readonly unknown[]) => parcels.map(() => gone),
        close: async () => undefined,
      };
      const relay = outbox.relay({ to });
      await shell.outbox(['hold', held]);
      const deferred = new Promise((resolve) => relay.on('deferred', resolve));
      await relay.start();
      await deferred;
      await relay.stop();
      await outbox.close();
      const { stdout } = await shell.outbox(['stats'], TTY);
      expect(stdout).toContain('the target does not answer');
      expect(stdout).not.toContain(`remove ${waiting}`);
      expect(stdout).toContain(`remove ${held}`);
      await shell.outbox(['release', held]);
      const after = await shell.outbox(['stats'], TTY);
      expect(after.stdout).toContain('the target does not answer');
      expect(after.stdout).not.toContain('respool outbox');
    });
  });

  describe('outbox stats, of many keys', () => {
    test('names a stuck key however many keys that go are before it', async () => {
      const shell = await outboxShell();
      await shell.emit(
        Array.from({ length: 1_040 }, (_, at) => ({ routingKey: 'a', key: `k${at >> 1}` })),
      );
      const [head = ''] = await shell.emit([
        { routingKey: 'a', key: 'late' },
        { routingKey: 'a', key: 'late' },
      ]);
      await shell.outbox(['hold', head]);
      const [told] = (await shell.outbox(['stats', '--json'])).objects();
      expect(told?.['stuck']).toMatchObject([{ orderKey: 'late', id: head, state: 'hold' }]);
    });

    test('names a key whose first message is overdue, since no relay sends it', async () => {
      const shell = await outboxShell();
      const [head = ''] = await shell.emit([
        { routingKey: 'nobody.sends', key: 'k' },
        { routingKey: 'a', key: 'k' },
      ]);
      const entries = `${shell.schema}.entries`;
      const stuck = async () => {
        const [told] = (await shell.outbox(['stats', '--json'])).objects();
        return told?.['stuck'];
      };
      await shell.pool.query(`UPDATE ${entries} SET due_at = due_at - 4 * 60000`);
      expect(await stuck()).toEqual([]);
      await shell.pool.query(`UPDATE ${entries} SET due_at = due_at - 2 * 60000`);
      expect(await stuck()).toMatchObject([
        { orderKey: 'k', id: head, state: 'incoming', behind: 1 },
      ]);
      expect((await shell.outbox(['stats'], TTY)).stdout).toMatch(
        new RegExp(`k +1 +${shortOf(head)} +incoming`),
      );
    });
  });

  describe('which outbox', () => {
    test('is that of the configuration, a flag goes before it', async () => {
      const shell = await outboxShell();
      const [id = ''] = await shell.emit([{ routingKey: 'a' }]);
      await shell.configure();
      const listed = await shell.cli(['outbox', 'list', '--json']);
      expect(listed.objects()).toMatchObject([{ id }]);
      const other = await shell.cli(['outbox', 'list', '--schema', 'nobody_made_it']);
      expect(other.code).toBe(3);
      expect(other.stderr).toContain('"nobody_made_it"');
    });

    test('two in one database do not see each other', async () => {
      const [one, two] = [await outboxShell(), await outboxShell()];
      await one.emit([{ routingKey: 'a' }]);
      expect((await one.outbox(['list', '--json'])).objects()).toHaveLength(1);
      expect((await two.outbox(['list', '--json'])).objects()).toEqual([]);
    });

    test('whoever may only use tables looks and steers, and may not make any', async () => {
      const shell = await outboxShell();
      const [id = ''] = await shell.emit([{ routingKey: 'a' }]);
      const { pool, schema } = shell;
      const role = `${schema}_role`;
      await pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'r3stricted-word'`);
      await pool.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
      const all = 'SELECT, INSERT, UPDATE, DELETE';
      await pool.query(`GRANT ${all} ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
      await pool.query(`GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA ${schema} TO ${role}`);
      const url = new URL(shell.url);
      [url.username, url.password] = [role, 'r3stricted-word'];
      const store = ['--store', url.href, '--schema', schema];
      try {
        const held = await shell.cli(['outbox', 'hold', id, ...store]);
        expect(held).toMatchObject({ code: 0, stdout: 'held 1\n', stderr: '' });
        expect((await shell.cli(['outbox', 'init', ...store])).code).toBe(0);
        const other = ['--store', url.href, '--schema', `${schema}_2`];
        const refused = await shell.cli(['outbox', 'init', ...other]);
        expect(refused.code).not.toBe(0);
        expect(refused.stderr).toContain('permission denied');
        expect(refused.stderr).not.toContain('r3stricted-word');
      } finally {
        await pool.query(`DROP OWNED BY ${role}`);
        await pool.query(`DROP ROLE ${role}`);
      }
    });
  });
});

describe('an outbox in SQLite', () => {
  test('is made by init, and its messages are listed, held and removed', async () => {
    const shell = await setup();
    const store = ['--store', 'sqlite:./app.db'];
    const file = path.join(shell.folder, 'app.db');
    const early = await shell.cli(['outbox', 'list', ...store]);
    expect(early.code).toBe(3);
    expect(early.stderr).toContain('there is no database in');
    expect(existsSync(file)).toBe(false);
    const { stdout: sql } = await shell.cli(['outbox', 'sql', ...store]);
    expect(sql).toContain('outbox_entries');
    expect(existsSync(file)).toBe(false);
    const made = await shell.cli(['outbox', 'init', ...store]);
    expect(made).toMatchObject({ code: 0, stdout: `the outbox is ready in sqlite:${file}\n` });
    const database = new Sqlite(file);
    const own = createOutbox({ database });
    const { id } = own.transaction((tx) => own.emit(tx, 'order.created', { n: 1 }));
    await own.close();
    database.close();
    const listed = await shell.cli(['outbox', 'list', '--json', ...store]);
    expect(listed.objects()).toMatchObject([{ id, envelope: { topic: 'order.created' } }]);
    expect((await shell.cli(['outbox', 'hold', id, ...store])).stdout).toBe('held 1\n');
    const [told] = (await shell.cli(['outbox', 'stats', '--json', ...store])).objects();
    expect(told).toMatchObject({ store: `sqlite:${file}`, held: 1, pending: 0 });
    expect((await shell.cli(['outbox', 'remove', id, '--hard', '--yes', ...store])).code).toBe(0);
    const sent = await shell.cli(['outbox', 'list', '--sent', ...store]);
    expect(sent.code).toBe(2);
    expect(sent.stderr).toContain('--state archived');
  });
});

describe('wrong usage', () => {
  test.each([
    [['outbox', 'list'], 'there is no outbox to work on'],
    [['outbox', 'list', '--schema', 'x'], '"outbox.store"'],
    [['outbox', 'stats', '--url', 'http://127.0.0.1:1'], 'name that with --store'],
    [['outbox', 'sql', '--from', 'x', '--store', 'postgres://h/d'], 'allowed is a whole number'],
    [['outbox', 'sql', '--from', '2', '--store', 'postgres://h/d'], 'a whole number 0 to 1'],
    [['outbox', 'list', '--store', 'memory:'], 'postgres://… or sqlite:FILE'],
    [['outbox', 'list', '--store', 'mysql://x'], 'postgres://host/shop or sqlite:./app.db'],
    [['outbox', 'list', '--store', 'mysql://x'], 'from --store\n'],
    [[...RELAY, '--http', 'http://127.0.0.1'], 'the configuration: "outbox.relay.to.http" with'],
    [[...RELAY, '--http', 'http://127.0.0.1'], 'from --http\n'],
    [[...RELAY, '--spool', '--clean-up', 'x'], 'from --clean-up\n'],
    [['outbox', 'list', '--state', 'held'], '(did you mean "hold"?)'],
    [['outbox', 'list', '--state', 'dead'], '(did you mean "bounce"?)'],
    [['outbox', 'list', '--state', 'archive'], '(did you mean "archived"?)'],
    [['outbox', 'init', '--store', 'postgres://h/d', '--schema', 'A'], '"outbox.schema"'],
    [['outbox', 'init', '--store', 'sqlite:a.db', '--schema', 'x'], 'it is of PostgreSQL'],
    [['outbox'], 'name a command: init, sql, relay, stats, list'],
  ])('%j is refused with 2', async (words, text) => {
    const { cli } = await setup();
    const ran = await cli(words);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain(text);
  });

  test('errors of a server that is away show no password', async () => {
    const { cli } = await setup();
    const store = `postgres://app:${CANARY}@127.0.0.1:1/x?connect_timeout=1`;
    const ran = await cli(['outbox', 'list', '--verbose', '--store', store]);
    expect(ran.code).not.toBe(0);
    expect(ran.stdout + ran.stderr).not.toContain(CANARY);
  });
});

/** outbox-place — a schema of its own for the outbox of a test, gone after it; and messages in it. */
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import { createOutbox, type EmitMessage } from 'respool/outbox';
import { onTestFinished } from 'vitest';
import { service } from '../services/index.ts';
import { type CallOptions, type Ran, type Running, setup, type Shell } from './setup.ts';

/** A shell, and a schema at the real server. */
export interface OutboxShell extends Shell {
  readonly url: string;
  readonly schema: string;
  /** The flags that lead there. */
  readonly flags: readonly string[];
  readonly pool: pg.Pool;
  /** `respool outbox …` on this schema, without a configuration. */
  readonly outbox: (words: readonly string[], options?: CallOptions) => Promise<Ran>;
  readonly emit: (messages: readonly EmitMessage[]) => Promise<string[]>;
  /** Writes a configuration whose outbox is this one. */
  readonly configure: (outbox?: object, more?: object) => Promise<void>;
}

export const TTY = { tty: ['stdout'], columns: 200, env: { NO_COLOR: '1' } } as const;

/** Without `isMade` there are no tables yet. */
export async function outboxShell({ isMade = true } = {}): Promise<OutboxShell> {
  const shell = await setup();
  const url = await service('postgres');
  const schema = `cli_${randomBytes(6).toString('hex')}`;
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  onTestFinished(async () => {
    await pool.query('SET client_min_messages = warning');
    await pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    await pool.end();
  });
  const own = createOutbox({ pool, schema });
  if (isMade) await own.migrate();
  const flags = ['--store', url, '--schema', schema];
  return {
    ...shell,
    url,
    schema,
    flags,
    pool,
    outbox: ([name = '', ...words], options) =>
      shell.cli(['outbox', name, ...flags, ...words], options),
    emit: async (messages) => {
      const emitted = await own.transaction((tx) => own.emitMany(tx, messages));
      return emitted.map(({ id }) => id);
    },
    configure: (outbox = {}, more = {}) => {
      const whole = { ...more, outbox: { store: url, schema, ...outbox } };
      return writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(whole));
    },
  };
}

/** A call that ends with the test, if not before. */
export function started(shell: Shell, words: readonly string[]): Running {
  const running = shell.start(words, TTY);
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  return running;
}

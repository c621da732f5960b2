/**
 * open-outbox — from a configuration to an outbox and its relay. No server is connected yet; a
 * database of SQLite is opened.
 */

import { existsSync } from 'node:fs';
import { assert, RespoolError } from '../../core/errors.ts';
import type { SqlOptions } from '../../outbox/options.ts';
import { createOutbox } from '../../outbox/outbox.ts';
import type { Relay } from '../../outbox/relay.ts';
import { spoolSink } from '../../outbox/spool-sink.ts';
import type { RelayOptions, RelayTarget } from '../../outbox/types.ts';
import type { Sink } from '../../ports/sink.ts';
import { needAmqplib } from '../../rabbit/connection/connection.ts';
import type { Spool } from '../../spool/spool.ts';
import type { PostgresStore } from '../../stores/postgres/entry-store.ts';
import { loadSqlite, type SqliteDatabase } from '../../stores/shared/client.ts';
import { tlsOfRabbit } from '../load/brokers.ts';
import { checkHandlers, closeHandlers, tracingOf } from './handlers.ts';
import type { LoadedConfig } from '../load/load-config.ts';
import {
  describeTarget,
  type EffectiveOutbox,
  type EffectiveRelay,
  type EffectiveTarget,
} from '../load/outbox.ts';

/** What of an outbox the command line needs, whatever database it is in. */
interface OpenOutbox {
  /** Makes its tables, or brings them up to date. */
  migrate(): Promise<void> | void;
  /** The same as SQL, for an empty database or tables of the version `from`. */
  sql(options?: SqlOptions): string;
  readonly spool: Spool;
  relay(options: RelayOptions): Relay;
  close(): Promise<void>;
}

/** Where an outbox is, as it may be shown. */
export interface OutboxInfo {
  /** The database, without user and password. */
  readonly store: string;
  readonly schema?: string;
  readonly tables?: string;
}

/** An outbox made from a configuration. */
export interface ConfiguredOutbox {
  readonly outbox: OpenOutbox;
  readonly info: OutboxInfo;
  /** Opens what reads messages that were sent and are kept in parts; PostgreSQL only. */
  readonly openSent?: () => Promise<SentReader>;
  readonly close: () => Promise<void>;
}

/** Reads what was sent. */
interface SentReader {
  readonly page: PostgresStore['sentPage'];
  readonly close: () => Promise<void>;
}

/** How it is made. */
export interface OpenOutboxOptions {
  /** What is done about a file of SQLite that is not there; default: it is refused. */
  readonly file?: 'make' | 'none' | undefined;
  /** Whether its relays write spans where the configuration says so; default false. */
  readonly isTraced?: boolean | undefined;
}

/** Makes the outbox of a configuration. */
export async function createConfiguredOutbox(
  loaded: LoadedConfig,
  effective: EffectiveOutbox,
  { file, isTraced = false }: OpenOutboxOptions = {},
): Promise<ConfiguredOutbox> {
  const { place, schema, tables, listenUrl, expires, policies } = effective;
  const { backoffs } = loaded.config;
  const base = {
    policies,
    ...(tables === undefined ? {} : { tables }),
    ...(expires === undefined ? {} : { expires }),
    ...(backoffs === undefined ? {} : { backoffs }),
    ...(isTraced ? await tracingOf(loaded.config) : {}),
  };
  const info = {
    store: place.address,
    ...(schema === undefined ? {} : { schema }),
    ...(tables === undefined ? {} : { tables }),
  };
  if (place.kind === 'postgres') {
    const outbox = createOutbox({
      ...base,
      url: place.url,
      ...(schema === undefined ? {} : { schema }),
      ...(listenUrl === undefined ? {} : { listenUrl }),
    });
    const openSent = (): Promise<SentReader> => openReader(place.url, schema, tables);
    return { outbox, info, openSent, close: () => outbox.close() };
  }
  const database = await openFile(place.file, file);
  const outbox = createOutbox({ ...base, database });
  const close = async (): Promise<void> => {
    try {
      await outbox.close();
    } finally {
      database.close();
    }
  };
  return { outbox, info, close };
}

async function openReader(
  url: string,
  schema: string | undefined,
  tables: string | undefined,
): Promise<SentReader> {
  const { postgres } = await import('../../stores/postgres/entry-store.ts');
  const store = postgres({
    url,
    migrate: false,
    connections: 1,
    ...(schema === undefined ? {} : { schema }),
    ...(tables === undefined ? {} : { tables }),
  });
  await store.open();
  return { page: (query) => store.sentPage(query), close: () => store.close() };
}

/** A look must not leave a file behind: it would hide that this is the wrong folder. */
async function openFile(file: string, how: OpenOutboxOptions['file']): Promise<SqliteDatabase> {
  const open = await loadSqlite();
  if (how === 'none') return open(':memory:');
  if (how === undefined && !existsSync(file)) {
    throw new RespoolError(
      'store.unavailable',
      `there is no database in "${file}"; name it with --store or "outbox.store", or make it: ` +
        'respool outbox init',
    );
  }
  return open(file);
}

/** A relay as it may be shown. */
export interface RelayInfo extends OutboxInfo {
  readonly to: Readonly<Record<string, unknown>>;
  readonly batch: number;
  readonly concurrency: number;
  readonly cleanUp: EffectiveRelay['cleanUp'];
  readonly topics: readonly string[];
}

/** A relay made from a configuration. */
export interface ConfiguredRelay {
  readonly relay: Relay;
  readonly info: RelayInfo;
  /** Lets go of its target and of the outbox, after the relay was stopped. */
  readonly close: () => Promise<void>;
}

/** The same, with where it takes its messages from. */
export interface OpenRelay extends ConfiguredRelay {
  readonly outbox: OpenOutbox;
}

/** What a relay of a configuration stands on. */
export interface RelayContext {
  /** The spool of the same configuration, for a relay that sends there. */
  readonly spool: () => Promise<Spool>;
}

/** Makes the relay of a configuration; what it and its target miss is said here. */
export async function createConfiguredRelay(
  loaded: LoadedConfig,
  { spool }: RelayContext,
): Promise<OpenRelay> {
  const { outbox: effective, middleware = [] } = loaded.config;
  assert(effective?.relay !== undefined, 'the configuration has no relay');
  const { target, to: _to, ...options } = effective.relay;
  const { to, close: closeTarget } = await openTarget(target, loaded, spool);
  const { outbox, info, close } = await createConfiguredOutbox(loaded, effective, {
    isTraced: true,
  });
  const relay = outbox.relay({ ...options, to, middleware });
  return {
    relay,
    outbox,
    info: { ...info, ...options, to: shownTarget(target, loaded) },
    close: async () => {
      try {
        await closeTarget();
      } finally {
        await close();
      }
    },
  };
}

function shownTarget(target: EffectiveTarget, { redact }: LoadedConfig): RelayInfo['to'] {
  return redact(describeTarget(target)) as RelayInfo['to'];
}

interface OpenTarget {
  readonly to: RelayTarget;
  readonly close: () => Promise<void>;
}

async function openTarget(
  target: EffectiveTarget,
  { config }: LoadedConfig,
  spool: RelayContext['spool'],
): Promise<OpenTarget> {
  switch (target.kind) {
    case 'amqp': {
      const { url, exchange } = target;
      await needAmqplib();
      const tls = await tlsOfRabbit(config.rabbit);
      const nothing = (): Promise<void> => Promise.resolve();
      const to = { amqp: url, exchange, ...(tls === undefined ? {} : { tls }) };
      return { to, close: nothing };
    }
    case 'spool':
      return closing(spoolSink(await spool()));
    case 'sink':
      return closing(target.sink);
    default: {
      const handlers = [{ deliver: target.deliver }];
      checkHandlers('outbox.relay.to', handlers);
      return { to: { deliver: target.deliver }, close: () => closeHandlers(handlers) };
    }
  }
}

function closing(sink: Sink): OpenTarget {
  return { to: sink, close: () => sink.close() };
}

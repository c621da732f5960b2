/**
 * written — what is written from the tables of options: interfaces, tables of pages, and the JSON
 * Schema of a configuration.
 *
 * Pure. scripts/options.ts writes the files, test/docs/option-tables.test.ts compares them.
 */
import type { Option, OptionTable } from '../../src/core/option-table.ts';
import { environmentName, isScalar, KEYS } from '../../src/config/schema/keys.ts';
import * as items from '../../src/config/schema/items.ts';
import { CONFIG_KEYS, EXCHANGE_TARGET_KEYS, RELAY_KEYS } from '../../src/config/schema/options.ts';
import { CATEGORY_OPTIONS } from '../../src/core/category.ts';
import { POLICY_TABLES } from '../../src/core/policy.ts';
import { REPLAY_OPTIONS } from '../../src/dead-letters/replay/plan.ts';
import { EXEC_OPTIONS } from '../../src/deliver/exec/exec.ts';
import { HTTP_OPTIONS } from '../../src/deliver/http/options.ts';
import { CIRCUIT_BREAKER_OPTIONS } from '../../src/middleware/circuit-breaker.ts';
import { GUARD_OPTIONS } from '../../src/middleware/guard.ts';
import { HEALTH_GATE_OPTIONS } from '../../src/middleware/health-gate.ts';
import { IN_BATCHES_OPTIONS } from '../../src/middleware/in-batches.ts';
import { LOGGING_OPTIONS } from '../../src/middleware/logging.ts';
import { RATE_LIMIT_OPTIONS } from '../../src/middleware/rate-limit.ts';
import { RETRY_BUDGET_OPTIONS } from '../../src/middleware/retry-budget.ts';
import { HEALTH_OPTIONS } from '../../src/observe/health.ts';
import { PRETTY_OPTIONS } from '../../src/observe/logs/pretty.ts';
import * as watched from '../../src/observe/metrics/options.ts';
import {
  OPEN_TELEMETRY_API_OPTIONS,
  OPEN_TELEMETRY_OPTIONS,
} from '../../src/observe/tracing/open-telemetry.ts';
import {
  OUTBOX_DATABASES,
  CREATE_OUTBOX_OPTIONS,
  POSTGRES_OUTBOX_OPTIONS,
} from '../../src/outbox/options.ts';
import { INBOX_OPTIONS } from '../../src/outbox/inbox.ts';
import { LISTEN_OPTIONS } from '../../src/outbox/listen.ts';
import { ONCE_OPTIONS } from '../../src/outbox/once.ts';
import { SPOOL_SINK_OPTIONS } from '../../src/outbox/spool-sink.ts';
import { RELAY_OPTIONS } from '../../src/outbox/types.ts';
import { CONNECTION_OPTIONS, TLS_OPTIONS } from '../../src/rabbit/connection/connection.ts';
import { COMPAT_TABLES, CONSUMER_OPTIONS } from '../../src/rabbit/consume/options.ts';
import { MANAGEMENT_OPTIONS } from '../../src/rabbit/management/http.ts';
import { MIGRATE_OPTIONS } from '../../src/rabbit/migrate/migrate.ts';
import { PUBLISHER_OPTIONS } from '../../src/rabbit/publish/options.ts';
import { SINK_OPTIONS } from '../../src/rabbit/publish/sink.ts';
import { DRAIN_OPTIONS } from '../../src/rabbit/queues/drain.ts';
import { LETTERS_OPTIONS } from '../../src/rabbit/queues/options.ts';
import { SWEEP_OPTIONS, SWEEP_QUEUES_OPTIONS } from '../../src/rabbit/queues/sweep.ts';
import { TOPOLOGY_OPTIONS } from '../../src/rabbit/topology/declare.ts';
import { BINDING_OPTIONS } from '../../src/rabbit/topology/model.ts';
import { STYLE_TABLES } from '../../src/rabbit/topology/styles.ts';
import { FORWARD_OPTIONS } from '../../src/engine/forward.ts';
import { GROUP_OPTIONS } from '../../src/dead-letters/groups.ts';
import { BOUNCE_OPTIONS, HANDLE_OPTIONS } from '../../src/spool/handle.ts';
import { SPOOL_OPTIONS } from '../../src/spool/options.ts';
import {
  FILESYSTEM_BODY_OPTIONS,
  FILESYSTEM_OPTIONS,
} from '../../src/stores/filesystem/options.ts';
import { MEMORY_OPTIONS } from '../../src/stores/memory/options.ts';
import {
  NATS_BODY_OPTIONS,
  NATS_ENTRY_OPTIONS,
  NATS_OPTIONS,
} from '../../src/stores/nats/options.ts';
import { POSTGRES_OPTIONS } from '../../src/stores/postgres/options.ts';
import { S3_OPTIONS } from '../../src/stores/s3/options.ts';
import { SQLITE_ONCE_OPTIONS } from '../../src/stores/sqlite/once.ts';
import { SQLITE_OPTIONS } from '../../src/stores/sqlite/options.ts';
import {
  COMPRESS_OPTIONS,
  DECRYPT_OPTIONS,
  ENCRYPT_OPTIONS,
  SEAL_OPTIONS,
} from '../../src/transforms/options.ts';
import { defaultText, rowOf, rowsOf, typeOf, withInterface, withTable } from './print.ts';
import { configSchema } from './schema.ts';

/** An interface, and the table that its members are written from. */
interface WrittenInterface {
  readonly file: string;
  readonly name: string;
  readonly table: OptionTable;
}

/** The options of a group, or of any table that is known to have them. */
function group(table: OptionTable, name: string): OptionTable {
  const option = table[name];
  if (option?.kind !== 'group') throw new Error(`"${name}" is no group of options`);
  return option.options;
}

const DEFINE_CONFIG = 'src/config/schema/define-config.ts';

/** Interfaces of a configuration by their names. */
const CONFIG_TABLES: Readonly<Record<string, OptionTable>> = {
  Config: CONFIG_KEYS,
  MetricsConfig: group(CONFIG_KEYS, 'metrics'),
  TracingConfig: group(CONFIG_KEYS, 'tracing'),
  RabbitConfig: group(CONFIG_KEYS, 'rabbit'),
  ConsumerConfig: items.CONSUMER_KEYS,
  OutboxConfig: group(CONFIG_KEYS, 'outbox'),
  RelayConfig: RELAY_KEYS,
  ExchangeTarget: EXCHANGE_TARGET_KEYS,
  DeadLettersConfig: group(CONFIG_KEYS, 'deadLetters'),
  ServeConfig: group(CONFIG_KEYS, 'serve'),
  TokenConfig: items.TOKEN_KEYS,
  AlertsConfig: group(CONFIG_KEYS, 'alerts'),
  AlertRuleConfig: items.ALERT_RULE_KEYS,
  LogConfig: group(CONFIG_KEYS, 'log'),
  RouteConfig: items.ROUTE_KEYS,
};

/** A table without the options that an interface inherits. */
function without(table: OptionTable, names: readonly string[]): OptionTable {
  return Object.fromEntries(Object.entries(table).filter(([name]) => !names.includes(name)));
}

/** What every consumer inherits from `ConnectionChoice`. */
const CHOICE = ['url', 'connection', 'tls', 'name', 'clock', 'dice'];
const CONSUMER_FILE = 'src/rabbit/consume/options.ts';
const CONNECTION_FILE = 'src/rabbit/connection/connection.ts';
const STYLES_FILE = 'src/rabbit/topology/styles.ts';
const REPORTS_FILE = 'src/rabbit/admin/reports.ts';
const PUBLISHER_FILE = 'src/rabbit/publish/options.ts';
const FILESYSTEM_FILE = 'src/stores/filesystem/options.ts';
const METRICS_FILE = 'src/observe/metrics/options.ts';
const TRACING_FILE = 'src/observe/tracing/open-telemetry.ts';
const TRANSFORMS_FILE = 'src/transforms/options.ts';
const MEMORY_FILE = 'src/stores/memory/options.ts';
const NATS_FILE = 'src/stores/nats/options.ts';

const MIDDLEWARE: readonly (readonly [file: string, name: string, table: OptionTable])[] = [
  ['circuit-breaker', 'CircuitBreakerOptions', CIRCUIT_BREAKER_OPTIONS],
  ['guard', 'GuardOptions', GUARD_OPTIONS],
  ['health-gate', 'HealthGateOptions', HEALTH_GATE_OPTIONS],
  ['in-batches', 'InBatchesOptions', IN_BATCHES_OPTIONS],
  ['logging', 'LoggingOptions', LOGGING_OPTIONS],
  ['rate-limit', 'RateLimitOptions', RATE_LIMIT_OPTIONS],
  ['retry-budget', 'RetryBudgetOptions', RETRY_BUDGET_OPTIONS],
];

const POLICY_FILE = 'src/core/policy.ts';
const POLICY_COMMON = POLICY_TABLES.postfix;
const OF_EVERY_POLICY = Object.keys(POLICY_COMMON);

const INTERFACES: readonly WrittenInterface[] = [
  { file: 'src/core/category.ts', name: 'CategoryRule', table: CATEGORY_OPTIONS },
  { file: 'src/rabbit/topology/model.ts', name: 'UserBinding', table: BINDING_OPTIONS },
  {
    file: 'src/dead-letters/rules/types.ts',
    name: 'ReplayRuleConfig',
    table: items.REPLAY_RULE_KEYS,
  },
  { file: POLICY_FILE, name: 'PolicyOptions', table: POLICY_COMMON },
  {
    file: POLICY_FILE,
    name: 'LinearOptions',
    table: without(POLICY_TABLES.linear, OF_EVERY_POLICY),
  },
  {
    file: POLICY_FILE,
    name: 'ExponentialOptions',
    table: without(POLICY_TABLES.exponential, OF_EVERY_POLICY),
  },
  ...MIDDLEWARE.map(([file, name, table]) => ({ file: `src/middleware/${file}.ts`, name, table })),
  ...Object.entries(CONFIG_TABLES).map(([name, table]) => ({ file: DEFINE_CONFIG, name, table })),
  { file: 'src/spool/options.ts', name: 'SpoolOptions', table: SPOOL_OPTIONS },
  { file: 'src/spool/handle.ts', name: 'BounceOptions', table: BOUNCE_OPTIONS },
  {
    file: 'src/spool/handle.ts',
    name: 'HandleOptions',
    table: without(HANDLE_OPTIONS, Object.keys(BOUNCE_OPTIONS)),
  },
  { file: 'src/engine/forward.ts', name: 'ForwardOptions', table: FORWARD_OPTIONS },
  { file: 'src/dead-letters/groups.ts', name: 'GroupOptions', table: GROUP_OPTIONS },
  { file: 'src/stores/sqlite/once.ts', name: 'SqliteOnceOptions', table: SQLITE_ONCE_OPTIONS },
  { file: MEMORY_FILE, name: 'MemoryOptions', table: without(MEMORY_OPTIONS, ['clock']) },
  { file: MEMORY_FILE, name: 'MemoryBodiesOptions', table: without(MEMORY_OPTIONS, ['shared']) },
  { file: FILESYSTEM_FILE, name: 'FilesystemOptions', table: FILESYSTEM_OPTIONS },
  { file: FILESYSTEM_FILE, name: 'FilesystemBodiesOptions', table: FILESYSTEM_BODY_OPTIONS },
  { file: 'src/stores/sqlite/options.ts', name: 'SqliteOptions', table: SQLITE_OPTIONS },
  { file: 'src/stores/postgres/options.ts', name: 'PostgresOptions', table: POSTGRES_OPTIONS },
  { file: NATS_FILE, name: 'NatsOptions', table: NATS_OPTIONS },
  { file: NATS_FILE, name: 'NatsEntryOptions', table: NATS_ENTRY_OPTIONS },
  { file: NATS_FILE, name: 'NatsBodyOptions', table: NATS_BODY_OPTIONS },
  { file: 'src/stores/s3/options.ts', name: 'S3Options', table: S3_OPTIONS },
  { file: 'src/deliver/http/options.ts', name: 'HttpOptions', table: HTTP_OPTIONS },
  { file: STYLES_FILE, name: 'SharedOptions', table: STYLE_TABLES.shared },
  { file: STYLES_FILE, name: 'PerDelayOptions', table: STYLE_TABLES.perDelay },
  { file: 'src/rabbit/compat/goqueue.ts', name: 'GoqueueOptions', table: COMPAT_TABLES.goqueue },
  { file: 'src/rabbit/compat/spring.ts', name: 'SpringOptions', table: COMPAT_TABLES.spring },
  { file: 'src/rabbit/compat/outbox.ts', name: 'OutboxCompatOptions', table: COMPAT_TABLES.outbox },
  { file: 'src/rabbit/topology/declare.ts', name: 'ApplyOptions', table: TOPOLOGY_OPTIONS },
  {
    file: CONSUMER_FILE,
    name: 'QueueDeclareOptions',
    table: group(CONSUMER_OPTIONS, 'queueOptions'),
  },
  {
    file: 'src/observe/logs/pretty.ts',
    name: 'PrettyOptions',
    table: without(PRETTY_OPTIONS, ['names']),
  },
  { file: CONSUMER_FILE, name: 'ConsumerOptions', table: without(CONSUMER_OPTIONS, CHOICE) },
  { file: CONNECTION_FILE, name: 'ConnectionOptions', table: CONNECTION_OPTIONS },
  { file: CONNECTION_FILE, name: 'TlsOptions', table: TLS_OPTIONS },
  {
    file: 'src/rabbit/queues/options.ts',
    name: 'QueueLettersOptions',
    table: LETTERS_OPTIONS,
  },
  { file: REPORTS_FILE, name: 'DrainOptions', table: DRAIN_OPTIONS },
  { file: REPORTS_FILE, name: 'MigrateOptions', table: MIGRATE_OPTIONS },
  {
    file: 'src/rabbit/management/http.ts',
    name: 'ManagementOptions',
    table: MANAGEMENT_OPTIONS,
  },
  { file: PUBLISHER_FILE, name: 'PublisherOptions', table: PUBLISHER_OPTIONS },
  { file: 'src/rabbit/publish/sink.ts', name: 'RabbitSinkOptions', table: SINK_OPTIONS },
  { file: 'src/rabbit/queues/sweep.ts', name: 'SweepSettings', table: SWEEP_OPTIONS },
  { file: 'src/rabbit/queues/sweep.ts', name: 'SweepOptions', table: SWEEP_QUEUES_OPTIONS },
  { file: 'src/spool/operator/replays.ts', name: 'ReplayOptions', table: REPLAY_OPTIONS },
  { file: 'src/outbox/options.ts', name: 'OutboxBase', table: CREATE_OUTBOX_OPTIONS },
  { file: 'src/outbox/options.ts', name: 'PostgresOutboxBase', table: POSTGRES_OUTBOX_OPTIONS },
  { file: 'src/outbox/types.ts', name: 'RelayOptions', table: RELAY_OPTIONS },
  { file: 'src/outbox/inbox.ts', name: 'InboxPlace', table: INBOX_OPTIONS },
  {
    file: 'src/outbox/once.ts',
    name: 'OnceOptions',
    table: without(ONCE_OPTIONS, Object.keys(INBOX_OPTIONS)),
  },
  { file: 'src/outbox/listen.ts', name: 'ListenOptions', table: LISTEN_OPTIONS },
  { file: 'src/outbox/spool-sink.ts', name: 'SpoolSinkOptions', table: SPOOL_SINK_OPTIONS },
  { file: 'src/deliver/exec/exec.ts', name: 'ExecOptions', table: EXEC_OPTIONS },
  { file: METRICS_FILE, name: 'MetricsOptions', table: watched.METRICS_OPTIONS },
  { file: METRICS_FILE, name: 'WatchOptions', table: watched.WATCH_OPTIONS },
  { file: METRICS_FILE, name: 'WatchConsumerOptions', table: watched.WATCH_CONSUMER_OPTIONS },
  { file: METRICS_FILE, name: 'WatchPublisherOptions', table: watched.WATCH_PUBLISHER_OPTIONS },
  { file: METRICS_FILE, name: 'WatchRelayOptions', table: watched.WATCH_RELAY_OPTIONS },
  { file: 'src/observe/health.ts', name: 'HealthOptions', table: HEALTH_OPTIONS },
  { file: TRACING_FILE, name: 'OpenTelemetryOptions', table: OPEN_TELEMETRY_OPTIONS },
  { file: TRACING_FILE, name: 'OpenTelemetryApiOptions', table: OPEN_TELEMETRY_API_OPTIONS },
  { file: TRANSFORMS_FILE, name: 'CompressOptions', table: COMPRESS_OPTIONS },
  { file: TRANSFORMS_FILE, name: 'EncryptOptions', table: ENCRYPT_OPTIONS },
  { file: TRANSFORMS_FILE, name: 'DecryptOptions', table: DECRYPT_OPTIONS },
  { file: TRANSFORMS_FILE, name: 'SealOptions', table: SEAL_OPTIONS },
];

/** Every table, by the name of the interface that is written from it, or of its function. */
export const TABLES: Readonly<Record<string, OptionTable>> = {
  ...Object.fromEntries(INTERFACES.map(({ name, table }) => [name, table])),
  ...POLICY_TABLES,
  ConsumerOptions: CONSUMER_OPTIONS,
  OutboxDatabases: OUTBOX_DATABASES,
};

/** A table of a page, by the heading above it. */
interface WrittenPage {
  readonly file: string;
  readonly heading: string;
  readonly head: readonly string[];
  readonly rows: readonly string[];
}

function optionsPage(file: string, heading: string, table: OptionTable): WrittenPage {
  return { file, heading, head: ['Option', 'Type', 'Default', 'Meaning'], rows: rowsOf(table) };
}

/** The options of several functions: each once, with the functions that take it. */
function familyPage(
  file: string,
  heading: string,
  tables: Readonly<Record<string, OptionTable>>,
): WrittenPage {
  const all: OptionTable = Object.assign({}, ...Object.values(tables));
  const rows = Object.entries(all).map(([name, option]) => {
    const takers = Object.keys(tables).filter((one) => tables[one]?.[name] !== undefined);
    const of = takers.map((one) => `\`${one}\``).join(', ');
    return rowOf([`\`${name}\``, of, typeOf(option), defaultText(option), option.about]);
  });
  return { file, heading, head: ['Option', 'Of', 'Type', 'Default', 'Meaning'], rows };
}

function keysPage(heading: string, table: OptionTable): WrittenPage {
  return {
    ...optionsPage(CONFIG_PAGE, heading, table),
    head: ['Key', 'Type', 'Default', 'Meaning'],
  };
}

const OPTIONS_PAGE = 'docs/reference/options.md';
const RABBIT_PAGE = 'docs/reference/rabbit.md';
const CONFIG_PAGE = 'docs/reference/config.md';
const LETTERS_PAGE = 'docs/reference/dead-letters.md';

const PAGES: readonly WrittenPage[] = [
  {
    file: CONFIG_PAGE,
    heading: 'Keys',
    head: ['Key', 'Type', 'Default', 'Environment', 'Flag', 'Meaning'],
    rows: KEYS.map((key) =>
      rowOf([
        `\`${key.key}\``,
        key.type,
        keyDefault(key.key),
        isScalar(key) ? `\`${environmentName(key.key)}\`` : '',
        key.flag === undefined ? '' : `\`${key.flag}\``,
        key.about,
      ]),
    ),
  },
  keysPage('Routes', items.ROUTE_KEYS),
  keysPage('Consumers', items.CONSUMER_KEYS),
  keysPage('Dead letters', items.REPLAY_RULE_KEYS),
  keysPage('Alerts', items.ALERT_RULE_KEYS),
  optionsPage(OPTIONS_PAGE, 'createSpool', SPOOL_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'retention', group(SPOOL_OPTIONS, 'retention')),
  optionsPage(OPTIONS_PAGE, 'limits', group(SPOOL_OPTIONS, 'limits')),
  optionsPage(OPTIONS_PAGE, 'caretaker', group(SPOOL_OPTIONS, 'caretaker')),
  optionsPage(OPTIONS_PAGE, 'handle', HANDLE_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'onBounce', BOUNCE_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'sqlite', SQLITE_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'once', SQLITE_ONCE_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'filesystem', FILESYSTEM_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'filesystemBodies', FILESYSTEM_BODY_OPTIONS),
  optionsPage(OPTIONS_PAGE, 'memory', MEMORY_OPTIONS),
  familyPage(OPTIONS_PAGE, 'policies', POLICY_TABLES),
  familyPage(RABBIT_PAGE, 'Options of styles', STYLE_TABLES),
  familyPage(RABBIT_PAGE, 'Options of other systems', COMPAT_TABLES),
  optionsPage(RABBIT_PAGE, 'queueOptions', group(CONSUMER_OPTIONS, 'queueOptions')),
  optionsPage('docs/reference/logs.md', 'prettyLogger', PRETTY_OPTIONS),
  optionsPage('docs/reference/stores/postgres.md', 'Options', POSTGRES_OPTIONS),
  optionsPage('docs/reference/stores/nats.md', 'Options', {
    ...NATS_OPTIONS,
    ...NATS_ENTRY_OPTIONS,
    ...NATS_BODY_OPTIONS,
  }),
  optionsPage('docs/reference/stores/s3.md', 'Options', S3_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of createConsumer', CONSUMER_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of createPublisher', PUBLISHER_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of createConnection', CONNECTION_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of createManagement', MANAGEMENT_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of drainQueue', DRAIN_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of migrateTopology', MIGRATE_OPTIONS),
  optionsPage(RABBIT_PAGE, 'Options of rabbitSink', SINK_OPTIONS),
  optionsPage(LETTERS_PAGE, 'Options of createQueueLetters', LETTERS_OPTIONS),
  optionsPage(LETTERS_PAGE, 'Options of groupsOf', GROUP_OPTIONS),
  optionsPage('docs/how-to/write-a-source-or-sink.md', 'Options of forward', FORWARD_OPTIONS),
  optionsPage(LETTERS_PAGE, 'Options of a sweep', { ...SWEEP_QUEUES_OPTIONS, ...SWEEP_OPTIONS }),
  optionsPage(LETTERS_PAGE, 'Options of a replay', REPLAY_OPTIONS),
  optionsPage('docs/reference/outbox.md', 'Options of createOutbox', {
    ...OUTBOX_DATABASES,
    ...POSTGRES_OUTBOX_OPTIONS,
    ...CREATE_OUTBOX_OPTIONS,
  }),
  optionsPage('docs/reference/outbox.md', 'Options of relay', RELAY_OPTIONS),
  optionsPage('docs/reference/outbox.md', 'spoolSink', SPOOL_SINK_OPTIONS),
  optionsPage('docs/reference/outbox.md', 'Options of once', ONCE_OPTIONS),
  optionsPage('docs/reference/outbox.md', 'Options of listen', LISTEN_OPTIONS),
  optionsPage('docs/reference/metrics.md', 'Options of createMetrics', watched.METRICS_OPTIONS),
  optionsPage('docs/reference/metrics.md', 'Options of watch', watched.WATCH_OPTIONS),
  optionsPage('docs/reference/health.md', 'Options of health', HEALTH_OPTIONS),
  optionsPage('docs/how-to/deliver-over-http.md', 'Options', HTTP_OPTIONS),
  optionsPage('docs/how-to/run-a-command.md', 'Options', EXEC_OPTIONS),
];

function keyDefault(key: string): string {
  if (key === 'entries' || key === 'bodies') return 'see `store`';
  let option: Option | undefined;
  for (const word of key.split('.')) {
    option = (option?.kind === 'group' ? option.options : CONFIG_KEYS)[word];
  }
  if (option === undefined) throw new Error(`there is no key "${key}"`);
  const text = defaultText(option);
  return text === 'required' ? 'none' : text;
}

/** The file of the JSON Schema, as the package ships it. */
const SCHEMA_FILE = 'respool.schema.json';

/** Every file that is written, in the form it should have; `read` gives the one it has. */
export function writtenFiles(read: (file: string) => string): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  const change = (file: string, by: (text: string) => string): void => {
    files.set(file, by(files.get(file) ?? read(file)));
  };
  for (const { file, name, table } of INTERFACES) {
    change(file, (text) => withInterface(text, name, table));
  }
  for (const { file, heading, ...table } of PAGES) {
    change(file, (text) => withTable(text, heading, table));
  }
  files.set(SCHEMA_FILE, `${JSON.stringify(configSchema(), null, 2)}\n`);
  return files;
}

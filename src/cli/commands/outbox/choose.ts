/**
 * choose — which outbox a command of `respool outbox` is about, that of the configuration or one
 * that options name, and its relay; and the session over it, where every command of a spool works.
 */

import { RELAY_OPTIONS } from '../../../outbox/types.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { EffectiveOutbox } from '../../../config/load/outbox.ts';
import type {
  ConfiguredOutbox,
  OpenOutboxOptions,
  OutboxInfo,
} from '../../../config/open/open-outbox.ts';
import { isRespoolError, RespoolError } from '../../../core/errors.ts';
import { rangeOf } from '../../../core/option-table.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import { CommandError } from '../../exit-codes.ts';
import { flagOf } from '../../options.ts';
import { byOf, type Session } from '../../session.ts';
import type { CommandContext, OptionSpec } from '../../spec.ts';

/** Which outbox it is, for the help of every command over one. */
export const OUTBOX_PLACE: string =
  'The outbox is that of "outbox" in the configuration, or --store (postgres://… or ' +
  'sqlite:./app.db) with --schema or --tables.';

/** What every command over an outbox takes; `--store` is every command's, and its database here. */
export const OUTBOX_OPTIONS: readonly OptionSpec[] = [
  { flags: '--schema <name>', description: 'the schema of its tables; default outbox' },
  { flags: '--tables <prefix>', description: 'the prefix of its table names' },
];

/** What may be said of a relay instead of in a configuration. */
export const RELAY_FLAGS: readonly OptionSpec[] = [
  {
    flags: '--exchange <name>',
    description: 'sends to this exchange, at the broker of --url or rabbit.url',
  },
  { flags: '--spool', description: 'sends into the spool of the configuration' },
  { flags: '--http <url>', description: 'sends to this address' },
  { flags: '--listen-url <url>', description: 'a URL of the server itself, not of a pooler' },
  { flags: '--batch <count>', description: 'maximum number of messages per send; default 100' },
  {
    flags: '--concurrency <count>',
    description: 'maximum number of messages in flight; default 500',
  },
  {
    flags: '--clean-up <when>',
    description:
      "when sent messages are removed: 'at once' (default), never, an age such as 7d, or JSON",
  },
  { flags: '--topics <patterns>', description: 'only these routing keys; several with commas' },
  { flags: '--expires <span>', description: 'the expiry of messages without one' },
  { flags: '--lease <span>', description: 'how long a claim lasts without a heartbeat' },
  { flags: '--poll <span>', description: 'the polling interval without a wake-up; default 30s' },
  { flags: '--pause-after <span>', description: 'the first pause when the target is unreachable' },
];

/** What a command works on. */
interface ChosenOutbox {
  readonly loaded: LoadedConfig;
  readonly outbox: EffectiveOutbox;
}

/** The outbox, for commands that inspect or control it. */
async function chooseOutbox(context: CommandContext): Promise<ChosenOutbox> {
  if (context.globals.url !== undefined) {
    throw usage('outbox works on the database of the outbox itself: name that with --store');
  }
  return chosen(await read(context, storeFlags(context), 'outbox'));
}

/** The outbox with its relay, for the command that sends. */
export async function chooseRelay(context: CommandContext): Promise<ChosenOutbox> {
  const flags = { ...storeFlags(context), ...relayFlags(context) };
  const { loaded, outbox } = chosen(await read(context, flags, 'relay'));
  if (outbox.relay !== undefined) return { loaded, outbox };
  throw usage(
    'there is nowhere to send to: give --exchange with --url amqp://…, --spool or --http, or ' +
      'write "outbox.relay.to" into the configuration',
  );
}

/** The same context with its session over the outbox that options and configuration lead to. */
export function withOutbox(context: CommandContext): CommandContext {
  let session: Promise<Session> | undefined;
  return { ...context, isOutbox: true, session: () => (session ??= openOutboxSession(context)) };
}

async function openOutboxSession(context: CommandContext): Promise<Session> {
  const { outbox } = await openOutbox(context);
  const as: Session['as'] = (by) => outbox.spool.operator({ by });
  return { operator: as(byOf(context.io)), as, url: undefined, isSealed: false };
}

/** The outbox, closed when the command ends. */
export async function openOutbox(
  context: CommandContext,
  { file }: Pick<OpenOutboxOptions, 'file'> = {},
): Promise<ConfiguredOutbox> {
  const { loaded, outbox } = await chooseOutbox(context);
  const { createConfiguredOutbox } = await import('../../../config/open/open-outbox.ts');
  const configured = await createConfiguredOutbox(loaded, outbox, { file });
  context.atEnd(() => configured.close());
  context.out.detail(`the outbox in ${placeText(configured.info)}`);
  return configured;
}

/** Where the outbox is, in words. */
export function placeText({ store, schema, tables }: OutboxInfo): string {
  const parts = [
    ...(schema === undefined ? [] : [`schema ${schema}`]),
    ...(tables === undefined ? [] : [`tables ${tables}…`]),
  ];
  return safe(`${store}${parts.length === 0 ? '' : ` (${parts.join(', ')})`}`);
}

/** An error that came of an option names it as people typed it. */
async function read(
  context: CommandContext,
  flags: Readonly<Record<string, unknown>>,
  routes: 'outbox' | 'relay',
): Promise<LoadedConfig> {
  try {
    return await context.config({ flags, routes });
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    throw new RespoolError(error.code, asTyped(error.message), { cause: error });
  }
}

function asTyped(text: string): string {
  const isHttp = text.endsWith('; from --outbox.relay.to') && text.includes('the option "allow"');
  if (isHttp) {
    return text
      .replace('; from --outbox.relay.to', '; from --http')
      .replace(
        /the option ("allow": \[.*?\])/,
        'the configuration: "outbox.relay.to.http" with $1',
      );
  }
  return text
    .replace('--outbox.relay.to', '--exchange, --spool or --http')
    .replace(/--outbox\.(?:relay\.)?([a-zA-Z]+)/, (_, name: string) => flagOf(name));
}

function chosen(loaded: LoadedConfig): ChosenOutbox {
  const { outbox } = loaded.config;
  if (outbox !== undefined) return { loaded, outbox };
  throw usage(
    'there is no outbox to work on: name its database with --store postgres://… or --store ' +
      'sqlite:./app.db, or write "outbox.store" into the configuration',
  );
}

/** The store of the spool stays what the configuration says: `--store` is the outbox here. */
function storeFlags({ globals, options }: CommandContext): Record<string, unknown> {
  return {
    store: undefined,
    'outbox.store': globals.store,
    'outbox.schema': options.filled('schema'),
    'outbox.tables': options.filled('tables'),
  };
}

function relayFlags(context: CommandContext): Record<string, unknown> {
  const { options } = context;
  return {
    'outbox.listenUrl': options.filled('listenUrl'),
    'outbox.relay.to': targetOf(context),
    'outbox.relay.batch': options.number('batch', rangeOf(RELAY_OPTIONS, 'batch')),
    'outbox.relay.concurrency': options.number(
      'concurrency',
      rangeOf(RELAY_OPTIONS, 'concurrency'),
    ),
    'outbox.relay.cleanUp': options.filled('cleanUp'),
    'outbox.relay.topics': options.filled('topics'),
    'outbox.relay.expires': options.span('expires'),
    'outbox.relay.lease': options.span('lease'),
    'outbox.relay.poll': options.span('poll'),
    'outbox.relay.pauseAfter': options.span('pauseAfter'),
  };
}

function targetOf({ globals, options }: CommandContext): object | undefined {
  const exchange = options.text('exchange');
  const http = options.filled('http');
  const isSpool = options.flag('spool');
  const { url } = globals;
  if ([exchange !== undefined, http !== undefined, isSpool].filter(Boolean).length > 1) {
    throw usage('give one of --exchange, --spool and --http: a relay sends to one place');
  }
  if (url !== undefined && exchange === undefined) {
    throw usage('--url of "respool outbox relay" is a broker: name the exchange with --exchange');
  }
  if (url !== undefined) checkBroker(url);
  if (exchange !== undefined) return { exchange, ...(url === undefined ? {} : { amqp: url }) };
  if (http !== undefined) return { http: { url: http } };
  return isSpool ? { spool: true } : undefined;
}

function checkBroker(url: string): void {
  if (/^amqps?:/i.test(url)) return;
  throw usage('--url of "respool outbox relay" is a broker: allowed is amqp://… or amqps://…');
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}

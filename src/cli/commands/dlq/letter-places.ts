/**
 * letter-places — where the dead letters are that a command is about: the spool, or queues of
 * RabbitMQ by name or pattern; and the session that records what is done there. At its end, the
 * look: goes through these letters (`openLook`) and builds their filter from the options.
 *
 *   --url amqp://…    the broker; the session is that of the configuration
 *   --url http://…    the service; the broker is --broker, or that of the configuration
 *
 * Also here: the broker that a message was removed at (`brokerFor`), and the place that a replay
 * was planned for (`openSource`).
 */

import { type Broker, brokerAt, brokersOf } from '../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { ReplaySource } from '../../../spool/operator/replays.ts';
import { type CategoryRule, type Category, categoriser } from '../../../core/category.ts';
import { isRespoolError, RespoolError, show } from '../../../core/errors.ts';
import { compileGlob, type Glob } from '../../../core/glob.ts';
import type {
  DeadLetters,
  LetterKind,
  Caution,
  LetterQuery,
  OpenLetter,
} from '../../../ports/dead-letters.ts';
import type { Management } from '../../../rabbit/management/management.ts';
import { vhostOf } from '../../../rabbit/management/http.ts';
import { queuePlaceOf } from '../../../rabbit/message-history.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { type ConfigReader, openSession, type Session } from '../../session.ts';
import { usageOf, COUNT_RANGE, LIMIT_RANGE } from '../../options.ts';
import { type BrokerAccess, reach } from '../rabbit/reach.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../spec.ts';
import { letterMatches } from '../../../core/letter-query.ts';
import { passing } from '../../ui/progress.ts';
import { durationMs, type Millis } from '../../../core/duration.ts';
import { messageFilterOf } from '../../select-messages.ts';

/** One place, open until the command ends. */
export interface OpenPlace {
  readonly letters: DeadLetters;
  readonly source: ReplaySource;
  /** As people call it. */
  readonly name: string;
  /** The broker of a queue. */
  readonly reached?: BrokerAccess;
}

/** Which places. */
interface PlaceChoice {
  /** Names of queues, `*` and `?` allowed; none: the spool. */
  readonly queues: readonly string[];
  /** Of the spool; default `dead`, the bounced ones, and `parked`, the held ones. */
  readonly kinds?: readonly LetterKind[] | undefined;
  /** Looks even if it is unknown whether the broker drops messages after many looks. */
  readonly isTrusted?: boolean | undefined;
}

/**
 * The context of a command over dead letters: its session is never the broker, and its
 * configuration has the broker that was named in it.
 */
export interface LettersContext extends CommandContext {
  /** The broker that was named. */
  readonly broker: string | undefined;
}

const KINDS_DEFAULT: readonly LetterKind[] = ['dead', 'parked'];
/** Maximum number of queues that one command opens. */
const QUEUES_MAX = 1_000;
/** Maximum number of names in an error. */
const TOLD_MAX = 10;

/** How a command over dead letters opens its store. */
export interface LettersOptions {
  /** Whether the store is made where there is none; default: with --queue, for the record. */
  readonly mayCreate?: boolean;
  /** What is read of the configuration; default `queues`. */
  readonly routes?: false | 'queues';
}

/** The same context for dead letters; on queues the store is made where there is none. */
export function atLetters(
  context: CommandContext,
  { mayCreate = context.options.texts('queue').length > 0, routes = 'queues' }: LettersOptions = {},
): LettersContext {
  const { options } = context;
  const { url, ...rest } = context.globals;
  const isBroker = url !== undefined && /^amqps?:/i.test(url);
  const named = options.filled('broker');
  if (isBroker && named !== undefined && named !== url) {
    throw usage('--url and --broker name two brokers: give one of them');
  }
  if (named !== undefined && !/^amqps?:\/\//i.test(named)) {
    throw usage('cannot use this as --broker: allowed is amqp://… or amqps://…');
  }
  const broker = named ?? (isBroker ? url : undefined);
  const globals = isBroker || url === undefined ? rest : { ...rest, url };
  let session: Promise<Session> | undefined;
  const flags = {
    'rabbit.url': broker,
    'rabbit.managementUrl': options.filled('managementUrl'),
  };
  const config: ConfigReader = () => context.config({ flags, routes });
  return {
    ...context,
    globals,
    broker,
    config,
    session: () => (session ??= openSession({ ...context, globals, config, mayCreate })),
  };
}

/**
 * The session, which a look over queues can do without: a look makes no store, and where there is
 * none there are no notes either.
 */
export async function sessionIfAny(context: LettersContext): Promise<Session | undefined> {
  if (context.options.texts('queue').length === 0) return context.session();
  try {
    return await context.session();
  } catch (error) {
    if (!isRespoolError(error, 'store.unavailable')) throw error;
    context.out.detail(`without notes on groups: ${safe(error.message)}`);
    return undefined;
  }
}

/** The rules of the configuration that say what category a failure is of. */
export async function categoryRules(context: LettersContext): Promise<readonly CategoryRule[]> {
  const { config } = await context.config();
  return config.deadLetters.categories;
}

/** The places, each open until the command ends. */
export async function openPlaces(
  context: LettersContext,
  { queues, kinds, isTrusted }: PlaceChoice,
): Promise<readonly OpenPlace[]> {
  if (queues.length === 0) return [await spoolPlace(context, kinds ?? KINDS_DEFAULT)];
  const globs = queues.map((pattern) => usageOf(() => compileGlob(pattern)));
  if (kinds !== undefined) throw usage('--kind is for the spool: leave it out beside --queue');
  const loaded = await context.config();
  const broker = brokerOf(context, loaded);
  const reached = await reach(context, loaded, broker);
  const names = await namesOf(globs, broker, reached);
  const parts = { context, loaded, broker, reached, isTrusted: isTrusted === true };
  return Promise.all(names.map((name) => queuePlace(name, parts)));
}

/**
 * The broker that a message was removed at, as it was written down then; undefined: that is not
 * known, or does not matter. Nothing is connected here.
 */
export async function brokerFor(
  context: LettersContext,
  address: string | undefined,
): Promise<Broker> {
  const loaded = await context.config();
  if (address === undefined) return brokerOf(context, loaded);
  const brokers = brokersOfConfig(context, loaded);
  const found = brokers.find((broker) => isSameBroker(broker.address, address));
  if (found !== undefined) return found;
  const known = brokers.map((broker) => broker.address).join(', ') || 'none';
  throw new RespoolError(
    'move.refused',
    `it was removed at the broker ${address}, and known here is ${known}: name that one with ` +
      '--broker; if it is the same by another name, or it should go elsewhere, add --any-broker',
  );
}

/** Reaches it until the command ends. */
export async function reachBroker(context: LettersContext, broker: Broker): Promise<BrokerAccess> {
  return reach(context, await context.config(), broker);
}

/** Whether two addresses lead to the same virtual host of the same broker. */
function isSameBroker(one: string, other: string): boolean {
  return one === other || placeOfAddress(one) === placeOfAddress(other);
}

function placeOfAddress(address: string): string {
  const url = URL.parse(address);
  if (url === null || !/^amqps?:$/.test(url.protocol)) return address;
  const port = url.port === '' ? PORTS[url.protocol] : url.port;
  return JSON.stringify([url.hostname.toLowerCase(), port, vhostOf(address)]);
}

const PORTS: Readonly<Record<string, string>> = { 'amqp:': '5672', 'amqps:': '5671' };

/** The place that a replay was planned for. */
export async function openSource(
  context: LettersContext,
  source: ReplaySource,
  { isTrusted }: Pick<PlaceChoice, 'isTrusted'> = {},
): Promise<OpenPlace> {
  if (source.kind === 'spool') return spoolPlace(context, source.kinds);
  const loaded = await context.config();
  const brokers = brokersOfConfig(context, loaded);
  const broker = brokers.find(({ address }) => address === source.broker);
  if (broker === undefined) {
    const known = brokers.map(({ address }) => address).join(', ') || 'none';
    throw usage(
      `the queue ${show(source.queue)} is at the broker ${source.broker}, and known here is ` +
        `${known}: name it with --broker`,
    );
  }
  const reached = await reach(context, loaded, broker);
  return queuePlace(source.queue, {
    context,
    loaded,
    broker,
    reached,
    isTrusted: isTrusted === true,
  });
}

async function spoolPlace(
  context: LettersContext,
  kinds: readonly LetterKind[],
): Promise<OpenPlace> {
  const { createSpoolLetters } = await import('../../../dead-letters/spool-letters.ts');
  const { operator } = await context.session();
  const letters = createSpoolLetters(operator, { kinds });
  context.atEnd(() => letters.close());
  return { letters, source: { kind: 'spool', kinds }, name: letters.name };
}

interface QueueContext {
  readonly context: LettersContext;
  readonly loaded: LoadedConfig;
  readonly broker: Broker;
  readonly reached: BrokerAccess;
  readonly isTrusted: boolean;
}

async function queuePlace(queue: string, parts: QueueContext): Promise<OpenPlace> {
  const { createQueueLetters } = await import('../../../rabbit/queues/queue-letters.ts');
  const { context, loaded, broker, reached, isTrusted } = parts;
  const { parkedQueue } = loaded.config.deadLetters;
  const [owner] = queuePlaceOf(queue, broker.plans).of;
  const wire = broker.consumers.find((one) => one.queue === owner)?.compat?.wire;
  const letters = createQueueLetters({
    connection: reached.connection,
    queue,
    plans: broker.plans,
    management: reached.management,
    isTrusted,
    clock: context.io.clock,
    ...(parkedQueue === undefined ? {} : { parkedQueue }),
    ...(wire === undefined ? {} : { wire }),
  });
  context.atEnd(() => letters.close());
  const source: ReplaySource = { kind: 'queue', queue, broker: broker.address };
  return { letters, source, name: letters.name, reached };
}

/** The brokers that are known here, the one that was named alone. */
function brokersOfConfig({ broker }: LettersContext, { config }: LoadedConfig): readonly Broker[] {
  const { rabbit, consumers } = config;
  const brokers = brokersOf(consumers, rabbit);
  const url = broker ?? rabbit.url;
  if (url === undefined) return brokers;
  const named = brokers.find((one) => one.url === url) ?? brokerAt(url, [], rabbit);
  return broker === undefined ? [named, ...brokers.filter((one) => one !== named)] : [named];
}

function brokerOf(context: LettersContext, loaded: LoadedConfig): Broker {
  const brokers = brokersOfConfig(context, loaded);
  const [found, ...more] = brokers;
  if (found === undefined) throw usage('name the broker: --url amqp://host, or "rabbit.url"');
  if (more.length === 0 || loaded.config.rabbit.url !== undefined) return found;
  const addresses = brokers.map(({ address }) => address).join(', ');
  throw usage(`it could be at several brokers (${addresses}): name one with --broker`);
}

/** The queues that are there and fit, in the order of their names. */
async function namesOf(
  globs: readonly Glob[],
  broker: Broker,
  { management }: BrokerAccess,
): Promise<readonly string[]> {
  if (management === undefined) return literalNames(globs, broker);
  if (await areThere(globs, management)) return literalNames(globs, broker);
  const there = await management.queues({ detail: 'totals' });
  // Other connections cannot look into an exclusive queue.
  const open = there.filter(({ exclusive }) => !exclusive).map(({ name }) => name);
  for (const glob of globs) {
    if (!open.some((name) => glob.match(name) !== undefined)) throw noQueue(glob, open, broker);
  }
  const names = open.filter((name) => globs.some((glob) => glob.match(name) !== undefined));
  if (names.length <= QUEUES_MAX) return names.toSorted();
  throw usage(`${names.length} queues match, but at most ${QUEUES_MAX} can be opened: name fewer`);
}

/** Whole names are asked for one by one: a broker may have very many others. */
async function areThere(globs: readonly Glob[], management: Management): Promise<boolean> {
  if (!globs.every(({ isLiteral }) => isLiteral)) return false;
  for (const { pattern } of globs) {
    if ((await management.queue(pattern)) === undefined) return false;
  }
  return true;
}

/** Patterns need the management API, which lists the queues. */
function literalNames(globs: readonly Glob[], { address }: Broker): readonly string[] {
  const pattern = globs.find(({ isLiteral }) => !isLiteral)?.pattern;
  if (pattern === undefined) return [...new Set(globs.map((glob) => glob.pattern))];
  throw new RespoolError(
    'broker.unavailable',
    `cannot find queues by ${show(pattern)} at ${address}: the management API does not ` +
      'answer; name it with --management-url, or the queues by their whole names',
  );
}

function noQueue(
  { pattern }: Glob,
  names: readonly string[],
  { address, vhost }: Broker,
): RespoolError {
  const told = names.toSorted().slice(0, TOLD_MAX).map(show).join(', ');
  const more = names.length > TOLD_MAX ? ` and ${names.length - TOLD_MAX} more` : '';
  const there = names.length === 0 ? 'there is none at all' : `there are ${told}${more}`;
  return new RespoolError(
    'config.invalid',
    `no queue matches ${show(pattern)} in the virtual host ${show(vhost)} at ${address}: ` +
      `${there}; ` +
      'see: respool rabbit stats',
  );
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}

// Goes through the letters that a command is about, and says first what that costs. Nothing is
// changed. A place that refuses is not looked at: it is named with what would lift that, and the
// others are gone through; alone, or with `isStrict`, it ends the command.

/** A letter that fits, with what is known of it besides. */
export interface FoundLetter {
  readonly place: OpenPlace;
  readonly open: OpenLetter;
  readonly category: Category;
}

/** What a command goes through. */
export interface LetterLook {
  readonly places: readonly OpenPlace[];
  readonly filter: LetterFilter;
  /** 0, or what a place that refused makes of it. */
  readonly code: ExitCode;
  readonly tell: (letter: OpenLetter['letter']) => Category;
  /** Goes through the letters that fit, place by place: a queue oldest first, the spool by id. */
  readonly letters: (options?: FindOptions) => AsyncGenerator<FoundLetter>;
}

interface FindOptions {
  readonly ids?: readonly string[];
  /** Whether a letter of this id may be meant, where ids are not known yet. */
  readonly mayBe?: (id: string) => boolean;
  readonly signal?: AbortSignal | undefined;
}

/** How the places of a command are opened. */
interface LookOptions {
  /** Default: what `--kind` says. */
  readonly kinds?: Parameters<typeof openPlaces>[1]['kinds'];
  /** One place that refuses stops everything, as where something will be changed. */
  readonly isStrict?: boolean;
  /** False: no letter is looked at, so there is no cost to warn of; default true. */
  readonly isLooking?: boolean;
}

const FREE: Caution = { kind: 'free' };

/** Opens the places, and tells what looking costs. */
export async function openLook(
  context: LettersContext,
  { kinds = kindsOf(context), isStrict = false, isLooking = true }: LookOptions = {},
): Promise<LetterLook> {
  const { options } = context;
  const filter = letterFilterOf(context);
  const queues = options.texts('queue');
  const isTrusted = options.flag('trustLimit');
  const all = await openPlaces(context, { queues, kinds, isTrusted });
  const places: OpenPlace[] = [];
  const counted = new Map<string, string[]>();
  for (const place of all) {
    const caution = isLooking ? await place.letters.caution() : FREE;
    if (!isOpen(context, place, caution, isStrict || all.length === 1)) continue;
    places.push(place);
    if (caution.kind === 'counted') {
      counted.set(caution.text, [...(counted.get(caution.text) ?? []), place.name]);
    }
  }
  // n.b. What is said of a hundred queues is said once.
  for (const [text, names] of counted) {
    const whose = names.length === 1 ? (names[0] ?? '') : `${names.length} queues`;
    context.out.note(safe(`${whose}: ${text}`));
  }
  const tell = categoriser(await categoryRules(context));
  return {
    places,
    filter,
    tell,
    code: places.length === all.length ? EXIT.done : EXIT.refused,
    letters: (find) => lettersOf(context, { places, filter, tell }, find),
  };
}

function isOpen(
  { out }: LettersContext,
  { name }: OpenPlace,
  caution: Caution,
  isStrict: boolean,
): boolean {
  if (caution.kind !== 'refused') return true;
  const error = new RespoolError(
    'move.refused',
    `cannot look into ${name}: ${caution.text}; ${caution.remedy}`,
  );
  if (isStrict) throw error;
  out.error(error);
  return false;
}

async function* lettersOf(
  context: LettersContext,
  { places, filter, tell }: Pick<LetterLook, 'places' | 'filter' | 'tell'>,
  { ids, mayBe, signal }: FindOptions = {},
): AsyncGenerator<FoundLetter> {
  const query = ids === undefined ? filter.query : { ...filter.query, ids };
  for (const place of places) {
    for await (const open of lookInto(context, place, query, signal)) {
      if (mayBe?.(open.letter.id) === false) continue;
      const category = tell(open.letter);
      if (filter.category === undefined || filter.category === category) {
        yield { place, open, category };
      }
    }
  }
}

/** A place to look into, for those who do it themselves. */
export function lookable(
  context: LettersContext,
  place: OpenPlace,
): { readonly look: DeadLetters['look'] } {
  return {
    look: ({ query = {}, signal } = {}) =>
      passing(context, lookInto(context, place, query, signal)),
  };
}

/** A broker limits how long messages are held: a look that ended early reports it. */
async function* lookInto(
  { out }: LettersContext,
  { letters, source, name }: OpenPlace,
  query: LetterQuery,
  signal: AbortSignal | undefined,
): AsyncGenerator<OpenLetter> {
  // More than any queue holds: a look ends where the letters do.
  const how = { max: LIMIT_RANGE.max, ...(signal === undefined ? {} : { signal }) };
  if (source.kind === 'spool') {
    yield* letters.look({ ...how, query });
    return;
  }
  const { ids, ...conditions } = query;
  const named = ids === undefined ? undefined : new Set(ids);
  const there = await letters.count();
  let seen = 0;
  for await (const open of letters.look(how)) {
    seen += 1;
    const isNamed = named === undefined || named.has(open.letter.id);
    if (isNamed && letterMatches(open.letter, conditions)) yield open;
  }
  if (seen < there) out.warn(`${safe(name)}: only ${seen} of ${there} letters were looked at`);
}

/** Which letters, where categories are no matter of the place. */
interface LetterFilter {
  readonly query: LetterQuery;
  readonly category: Category | undefined;
  /** No condition was given at all. */
  readonly isEmpty: boolean;
}

/** The kinds that were asked for; undefined: none were named. */
export function kindsOf({ options }: CommandContext): readonly LetterKind[] | undefined {
  const kinds = options.texts('kind') as readonly LetterKind[];
  return kinds.length === 0 ? undefined : kinds;
}

/** The question that the options make, as it stands now: ages are times. */
export function letterFilterOf({ options, io }: CommandContext): LetterFilter {
  const filter = messageFilterOf(options) ?? {};
  const { topic, code, header, text, destination, olderThan, since, enqueuedAfter } = filter;
  const now = io.clock.now();
  const given: LetterQuery = withoutUnknown({
    topic,
    code,
    header,
    text,
    origin: destination,
    group: options.filled('group'),
    deathsAbove: options.number('deathsAbove', COUNT_RANGE),
    before: before(olderThan, now, 'olderThan'),
    after: enqueuedAfter ?? before(since, now, 'since'),
  });
  const category = options.text('category') as Category | undefined;
  const isEmpty = Object.keys(given).length === 0 && category === undefined;
  return { query: given, category, isEmpty };
}

function before(
  span: Parameters<typeof durationMs>[0] | undefined,
  now: Millis,
  name: string,
): Millis | undefined {
  return span === undefined ? undefined : now - durationMs(span, name);
}

function withoutUnknown(conditions: Readonly<Record<string, unknown>>): LetterQuery {
  return Object.fromEntries(Object.entries(conditions).filter(([, value]) => value !== undefined));
}

/**
 * management — what RabbitMQ tells over HTTP and AMQP does not: arguments, bindings, policies,
 * counts of messages that are being dead-lettered, permissions, alarms.
 *
 * Answers are shared for up to 5 s; a change through this client, or `forget()`, ends that. What an
 * answer does not tell is undefined: other releases, other queue types and `columns` leave things
 * out.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import { type MemoOptions, memo } from '../../system/wait.ts';
import {
  type ManagementClient,
  createManagementClient,
  type ManagementRequest,
  checkManagementOptions,
  type ManagementOptions,
} from './http.ts';
import type { AmqpTable } from '../connection/amqp.ts';

/**
 * RabbitMQ itself counts messages every 5 s: asking more often brings nothing new. As TOLD_LATE_MS
 * of queues/delivery-limit.ts and COUNT_AGAIN_MS of migrate/remove.ts expect. Also in
 * docs/reference/dead-letters.md and docs/operations/rabbit-retries-late.md.
 */
const NUMBERS: MemoOptions = { everyMs: 5_000, giveUpMs: 5_000, max: 32 };

/** The largest page that RabbitMQ gives. */
const PAGE_SIZE_MAX = 500;
/** A list of more queues or exchanges than this is refused. */
const LISTED_MAX = 200_000;

export interface QueueQuery {
  /** How many per request, 1 to 500; default 500. */
  readonly pageSize?: number;
  /**
   * `totals`: names, types, arguments and how many messages, which costs the broker least (3.12
   * and later leave out the rest); `full`: rates and policies as well. Default: `full`.
   */
  readonly detail?: 'full' | 'totals';
  /** Only these fields, under the broker's names: `['name', 'messages']`. */
  readonly columns?: readonly string[];
  /** Only queues whose name matches this regular expression. */
  readonly pattern?: string;
}

/** What a user may do in the virtual host, as regular expressions over names. */
export type Permissions =
  | {
      readonly kind: 'known';
      readonly configure: string;
      readonly write: string;
      readonly read: string;
    }
  /** The user may do nothing here. */
  | { readonly kind: 'none' }
  /** Only an administrator may see them. */
  | { readonly kind: 'hidden' };

interface AlarmReport {
  readonly isWell: boolean;
  readonly alarms: readonly { readonly node: string; readonly resource: string }[];
}

/** A client of the management API, for one virtual host. */
export interface Management extends AsyncDisposable {
  /** Its address, without user and password. */
  readonly address: string;
  readonly vhost: string;
  readonly username: string;
  overview(): Promise<Overview>;
  nodes(): Promise<readonly NodeInfo[]>;
  queues(query?: QueueQuery): Promise<readonly QueueInfo[]>;
  /** undefined: there is none. */
  queue(name: string): Promise<QueueInfo | undefined>;
  exchanges(): Promise<readonly ExchangeInfo[]>;
  /** All of the virtual host, or those of one queue. */
  bindings(queue?: string): Promise<readonly BindingInfo[]>;
  policies(): Promise<readonly PolicyInfo[]>;
  /** Those that limit the others; none where the user may not see them. */
  operatorPolicies(): Promise<readonly PolicyInfo[]>;
  putPolicy(policy: Omit<PolicyInfo, 'applyTo'>): Promise<void>;
  /** Whether there was one. */
  deletePolicy(name: string): Promise<boolean>;
  whoAmI(): Promise<{ readonly name: string; readonly tags: readonly string[] }>;
  /** Of a user; default: of the caller that asks. */
  permissions(user?: string): Promise<Permissions>;
  alarms(): Promise<AlarmReport>;
  /** Everything in the virtual host, as RabbitMQ exports it. */
  definitions(): Promise<Readonly<Record<string, unknown>>>;
  /** Drops cached answers. */
  forget(): void;
  /** Ends what is on its way. */
  close(): Promise<void>;
}

/** Opens nothing: the first request does. */
export function createManagement(options: ManagementOptions): Management {
  const settings = checkManagementOptions(options);
  const client = createManagementClient(settings);
  const cache = memo(settings.clock, NUMBERS);
  const { address, vhost, username } = settings;
  const at = { client, vhost: encodeURIComponent(vhost) };
  const one = async (request: ManagementRequest): Promise<unknown> =>
    (await client.request(request)).json;
  const close = (): Promise<void> => client.close();
  const change = async (request: ManagementRequest): Promise<number> => {
    try {
      return (await client.request(request)).status;
    } finally {
      cache.clear();
    }
  };
  const look = <T>(path: string, doing: string, form: (value: unknown) => T): Promise<T> =>
    cache.get(path, async () => form(await one({ path, doing })));
  return {
    address,
    vhost,
    username,
    overview: () => look('/overview', 'ask for the version', overviewOf),
    nodes: () => look('/nodes', 'list the nodes', each(nodeInfo)),
    queues: (query = {}) => {
      const rest = queueRest(query);
      return cache.get(`queues ${rest}`, () =>
        paged(at, { what: 'queues', rest, size: query.pageSize }, queueInfo),
      );
    },
    queue: (name) => cache.get(`queue ${name}`, () => oneQueue(at, name)),
    exchanges: () =>
      cache.get('exchanges', () => paged(at, { what: 'exchanges', rest: '' }, exchangeInfo)),
    bindings: (queue) =>
      queue === undefined
        ? look(`/bindings/${at.vhost}`, 'list the bindings', each(bindingInfo))
        : look(
            `/queues/${at.vhost}/${encodeURIComponent(queue)}/bindings`,
            `list the bindings of the queue ${show(queue)}`,
            each(bindingInfo),
          ),
    policies: () => look(`/policies/${at.vhost}`, 'list the policies', each(policyInfo)),
    operatorPolicies: () => cache.get('operator policies', () => askOperatorPolicies(at)),
    putPolicy: async (policy) => {
      await change(policyRequest(at.vhost, policy));
    },
    deletePolicy: async (name) => {
      const path = `/policies/${at.vhost}/${encodeURIComponent(name)}`;
      const doing = `delete the policy ${show(name)}`;
      return (await change({ method: 'DELETE', path, doing, expected: [404] })) !== 404;
    },
    whoAmI: () => look('/whoami', 'ask who we are', userOf),
    permissions: (user = username) => cache.get(`permissions ${user}`, () => askUser(at, user)),
    alarms: () => cache.get('alarms', () => askAlarms(client)),
    definitions: () =>
      look(`/definitions/${at.vhost}`, `export the virtual host ${show(vhost)}`, record),
    forget: () => cache.clear(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** The client, and the virtual host as it is written in a path. */
interface Place {
  readonly client: ManagementClient;
  readonly vhost: string;
}

function each<T>(form: (value: unknown) => T): (value: unknown) => readonly T[] {
  return (report) => list(report).map((one) => form(one));
}

const QUERY_NAMES = ['pageSize', 'detail', 'columns', 'pattern'] as const;

function queueRest(query: QueueQuery): string {
  checkNames('a list of queues', query, QUERY_NAMES);
  const { detail = 'full', columns, pattern } = query;
  const rest = new URLSearchParams();
  if (detail === 'totals') {
    rest.set('disable_stats', 'true');
    rest.set('enable_queue_totals', 'true');
  }
  if (columns !== undefined) rest.set('columns', columns.join(','));
  if (pattern !== undefined) {
    rest.set('name', pattern);
    rest.set('use_regex', 'true');
  }
  return rest.size === 0 ? '' : `&${rest.toString()}`;
}

interface Paging {
  readonly what: 'queues' | 'exchanges';
  readonly rest: string;
  readonly size?: number | undefined;
}

async function paged<T>(
  { client, vhost }: Place,
  { what, rest, size = PAGE_SIZE_MAX }: Paging,
  form: (value: unknown) => T,
): Promise<readonly T[]> {
  checkNumber('pageSize', size, { min: 1, max: PAGE_SIZE_MAX });
  const doing = `list the ${what}`;
  const found: T[] = [];
  for (let page = 1; ; page += 1) {
    const path = `/${what}/${vhost}?page=${page}&page_size=${size}${rest}`;
    // A page past the last is refused with 400: things were deleted while we read.
    const { json, status } = await client.request({ path, doing, expected: page > 1 ? [400] : [] });
    if (status === 400) return found;
    for (const item of list(record(json)['items'])) found.push(form(item));
    if (page >= (number(record(json)['page_count']) ?? 0)) return found;
    if (found.length >= LISTED_MAX) {
      throw new RespoolError('limit.exceeded', `cannot ${doing}: more than ${LISTED_MAX}`);
    }
  }
}

async function oneQueue({ client, vhost }: Place, name: string): Promise<QueueInfo | undefined> {
  const { status, json } = await client.request({
    path: `/queues/${vhost}/${encodeURIComponent(name)}`,
    doing: `look at the queue ${show(name)}`,
    expected: [404],
  });
  return status === 404 ? undefined : queueInfo(json);
}

async function askOperatorPolicies({ client, vhost }: Place): Promise<readonly PolicyInfo[]> {
  const { json } = await client.request({
    path: `/operator-policies/${vhost}`,
    doing: 'list the operator policies',
    expected: [401, 403],
  });
  return each(policyInfo)(json);
}

function policyRequest(vhost: string, policy: Omit<PolicyInfo, 'applyTo'>): ManagementRequest {
  const { name, pattern, definition, priority } = policy;
  return {
    method: 'PUT',
    path: `/policies/${vhost}/${encodeURIComponent(name)}`,
    doing: `set the policy ${show(name)}`,
    json: { pattern, definition, priority, 'apply-to': 'queues' },
  };
}

function userOf(value: unknown): { readonly name: string; readonly tags: readonly string[] } {
  const { name, tags } = record(value);
  // n.b. Releases before 3.9 write the tags as one string.
  const words = typeof tags === 'string' ? tags.split(',') : list(tags).map(String);
  return { name: text(name) ?? '', tags: words.filter((tag) => tag !== '') };
}

async function askUser({ client, vhost }: Place, user: string): Promise<Permissions> {
  const { status, json } = await client.request({
    path: `/permissions/${vhost}/${encodeURIComponent(user)}`,
    doing: `ask for the permissions of ${show(user)}`,
    expected: [401, 403, 404],
  });
  if (status === 404) return { kind: 'none' };
  if (status !== 200) {
    // A wrong password gets the same status; this request is refused for that reason only.
    await client.request({ path: '/whoami', doing: 'ask who we are' });
    return { kind: 'hidden' };
  }
  const { configure, write, read } = record(json);
  return {
    kind: 'known',
    configure: text(configure) ?? '',
    write: text(write) ?? '',
    read: text(read) ?? '',
  };
}

async function askAlarms(client: ManagementClient): Promise<AlarmReport> {
  const { status, json } = await client.request({
    path: '/health/checks/alarms',
    doing: 'ask for alarms',
    // 503 is how it says that there is one.
    expected: [503],
  });
  const alarms = list(record(json)['alarms']).map((report) => {
    const { node, resource } = record(report);
    return { node: text(node) ?? '', resource: text(resource) ?? '' };
  });
  return { isWell: status !== 503, alarms };
}

type Told = Readonly<Record<string, unknown>>;

/** A queue, as far as the broker tells. Counts are up to 5 s old when they are answered. */
export interface QueueInfo {
  readonly name: string;
  /** `classic`, `quorum`, `stream`. */
  readonly type: string | undefined;
  readonly durable: boolean;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  readonly arguments: AmqpTable;
  readonly state: string | undefined;
  readonly node: string | undefined;
  /** Names of the policies that apply to it. */
  readonly policy: string | undefined;
  readonly operatorPolicy: string | undefined;
  /** What those policies say together; known only some seconds after a queue was declared. */
  readonly policyDefinition: AmqpTable;
  readonly consumers: number | undefined;
  readonly messages: number | undefined;
  readonly ready: number | undefined;
  readonly unacked: number | undefined;
  /** Dead-lettered and not yet confirmed by their target; only at-least-once queues have them. */
  readonly deadLettering: number | undefined;
  /** Held back by the broker itself; RabbitMQ 4.3 and later. */
  readonly delayed: number | undefined;
  readonly bytes: number | undefined;
  /** Messages per second, over the last seconds. */
  readonly publishRate: number | undefined;
  readonly deliverRate: number | undefined;
  readonly ackRate: number | undefined;
  /** When the message at the head was published, in milliseconds, where the broker knows. */
  readonly headAt: number | undefined;
  /** Everything that was answered, under the names of the broker. */
  readonly raw: Told;
}

export interface ExchangeInfo {
  readonly name: string;
  readonly type: string;
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly internal: boolean;
  readonly arguments: AmqpTable;
  readonly policy: string | undefined;
}

/** A binding of a queue, or of an exchange, to an exchange; `''` is the default exchange. */
export interface BindingInfo {
  readonly exchange: string;
  readonly destination: string;
  readonly to: 'queue' | 'exchange';
  readonly key: string;
  readonly arguments: AmqpTable;
}

export interface PolicyInfo {
  readonly name: string;
  readonly pattern: string;
  /** `all`, `queues`, `classic_queues`, `quorum_queues`, `exchanges`, … */
  readonly applyTo: string;
  readonly definition: AmqpTable;
  readonly priority: number;
}

interface NodeInfo {
  readonly name: string;
  readonly isRunning: boolean;
  readonly hasMemoryAlarm: boolean;
  readonly hasDiskAlarm: boolean;
}

interface Overview {
  /** Of RabbitMQ, such as `3.10.8`. */
  readonly version: string;
  readonly clusterName: string | undefined;
  readonly node: string | undefined;
  /** Whether the broker is configured to keep no statistics: then it has no rates and counts. */
  readonly isWithoutStats: boolean;
  readonly raw: Told;
}

export function queueInfo(value: unknown): QueueInfo {
  const raw = record(value);
  const rates = record(raw['message_stats']);
  const args = record(raw['arguments']);
  const headAt = number(raw['head_message_timestamp']);
  return {
    name: text(raw['name']) ?? '',
    type: text(raw['type']) ?? text(args['x-queue-type']),
    durable: raw['durable'] === true,
    exclusive: raw['exclusive'] === true,
    autoDelete: raw['auto_delete'] === true,
    arguments: args,
    state: text(raw['state']),
    node: text(raw['node']),
    policy: text(raw['policy']),
    operatorPolicy: text(raw['operator_policy']),
    policyDefinition: record(raw['effective_policy_definition']),
    consumers: number(raw['consumers']),
    messages: number(raw['messages']),
    ready: number(raw['messages_ready']),
    unacked: number(raw['messages_unacknowledged']),
    deadLettering: number(raw['messages_dlx']),
    delayed: number(raw['messages_delayed']),
    bytes: number(raw['message_bytes']),
    publishRate: rate(rates['publish_details']),
    deliverRate: rate(rates['deliver_get_details']),
    ackRate: rate(rates['ack_details']),
    headAt: headAt === undefined ? undefined : headAt * 1_000,
    raw,
  };
}

function exchangeInfo(value: unknown): ExchangeInfo {
  const raw = record(value);
  return {
    name: text(raw['name']) ?? '',
    type: text(raw['type']) ?? '',
    durable: raw['durable'] === true,
    autoDelete: raw['auto_delete'] === true,
    internal: raw['internal'] === true,
    arguments: record(raw['arguments']),
    policy: text(raw['policy']),
  };
}

function bindingInfo(value: unknown): BindingInfo {
  const raw = record(value);
  return {
    exchange: text(raw['source']) ?? '',
    destination: text(raw['destination']) ?? '',
    to: raw['destination_type'] === 'exchange' ? 'exchange' : 'queue',
    key: text(raw['routing_key']) ?? '',
    arguments: record(raw['arguments']),
  };
}

function policyInfo(value: unknown): PolicyInfo {
  const raw = record(value);
  return {
    name: text(raw['name']) ?? '',
    pattern: text(raw['pattern']) ?? '',
    applyTo: text(raw['apply-to']) ?? 'all',
    definition: record(raw['definition']),
    priority: number(raw['priority']) ?? 0,
  };
}

function nodeInfo(value: unknown): NodeInfo {
  const raw = record(value);
  return {
    name: text(raw['name']) ?? '',
    isRunning: raw['running'] === true,
    hasMemoryAlarm: raw['mem_alarm'] === true,
    hasDiskAlarm: raw['disk_free_alarm'] === true,
  };
}

function overviewOf(value: unknown): Overview {
  const raw = record(value);
  return {
    version: text(raw['rabbitmq_version']) ?? '',
    clusterName: text(raw['cluster_name']),
    node: text(raw['node']),
    isWithoutStats: raw['disable_stats'] === true,
    raw,
  };
}

/** n.b. The broker writes an empty table as a list in some places. */
function record(value: unknown): Told {
  const isRecord = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isRecord ? (value as Told) : {};
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}

function rate(details: unknown): number | undefined {
  return number(record(details)['rate']);
}

/**
 * management — what RabbitMQ tells over HTTP and AMQP does not: arguments, bindings, policies,
 * counts of messages that are being dead-lettered, permissions, alarms.
 *
 * Answers are shared for up to 5 s; a change through this client, or `forget()`, ends that.
 */

import { RespoolError, show } from '../../../core/errors.ts';
import { checkNames, checkNumber } from '../../../core/limits.ts';
import { type MemoOptions, memo } from '../../../system/wait.ts';
import type { PolicySpec } from '../../topology/model.ts';
import * as forms from './answers.ts';
import { type ManagementClient, createManagementClient, type ManagementRequest } from './http.ts';
import { checkManagementOptions, type ManagementOptions } from './options.ts';

/** RabbitMQ itself counts messages every 5 s: asking more often brings nothing new. */
const NUMBERS: MemoOptions = { everyMs: 5_000, giveUpMs: 5_000, max: 32 };

/** The largest page that RabbitMQ gives. */
const PAGE_SIZE_MAX = 500;
/** More queues or exchanges than this in one virtual host are not listed. */
const LISTED_MAX = 200_000;

export interface QueueQuery {
  /** How many per question, 1 to 500; default 500. */
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
      readonly kind: 'told';
      readonly configure: string;
      readonly write: string;
      readonly read: string;
    }
  /** The user may do nothing here. */
  | { readonly kind: 'none' }
  /** Only an administrator may see them. */
  | { readonly kind: 'hidden' };

export interface AlarmReport {
  readonly isWell: boolean;
  readonly alarms: readonly { readonly node: string; readonly resource: string }[];
}

/** A client of the management API, for one virtual host. */
export interface Management extends AsyncDisposable {
  /** Its address, without user and password. */
  readonly address: string;
  readonly vhost: string;
  readonly username: string;
  overview(): Promise<forms.Overview>;
  nodes(): Promise<readonly forms.NodeInfo[]>;
  queues(query?: QueueQuery): Promise<readonly forms.QueueInfo[]>;
  /** undefined: there is none. */
  queue(name: string): Promise<forms.QueueInfo | undefined>;
  exchanges(): Promise<readonly forms.ExchangeInfo[]>;
  /** All of the virtual host, or those of one queue. */
  bindings(queue?: string): Promise<readonly forms.BindingInfo[]>;
  policies(): Promise<readonly forms.PolicyInfo[]>;
  /** Those that limit the others; none where the user may not see them. */
  operatorPolicies(): Promise<readonly forms.PolicyInfo[]>;
  putPolicy(policy: PolicySpec): Promise<void>;
  /** Whether there was one. */
  deletePolicy(name: string): Promise<boolean>;
  whoAmI(): Promise<{ readonly name: string; readonly tags: readonly string[] }>;
  /** Of a user; default: of the caller that asks. */
  permissions(user?: string): Promise<Permissions>;
  alarms(): Promise<AlarmReport>;
  /** Everything in the virtual host, as RabbitMQ exports it. */
  definitions(): Promise<Readonly<Record<string, unknown>>>;
  /** The next questions are asked anew. */
  forget(): void;
  /** Ends what is on its way. */
  close(): Promise<void>;
}

/** Opens nothing: the first question does. */
export function createManagement(options: ManagementOptions): Management {
  const settings = checkManagementOptions(options);
  const asker = createManagementClient(settings);
  const cache = memo(settings.clock, NUMBERS);
  const { address, vhost, username } = settings;
  const at = { asker, vhost: encodeURIComponent(vhost) };
  const one = async (question: ManagementRequest): Promise<unknown> =>
    (await asker.ask(question)).json;
  const close = (): Promise<void> => asker.close();
  const change = async (question: ManagementRequest): Promise<number> => {
    try {
      return (await asker.ask(question)).status;
    } finally {
      cache.clear();
    }
  };
  const look = <T>(path: string, doing: string, form: (told: unknown) => T): Promise<T> =>
    cache.get(path, async () => form(await one({ path, doing })));
  return {
    address,
    vhost,
    username,
    overview: () => look('/overview', 'ask for the version', forms.overviewOf),
    nodes: () => look('/nodes', 'list the nodes', each(forms.nodeInfo)),
    queues: (query = {}) => {
      const rest = queueRest(query);
      return cache.get(`queues ${rest}`, () =>
        paged(at, { what: 'queues', rest, size: query.pageSize }, forms.queueInfo),
      );
    },
    queue: (name) => cache.get(`queue ${name}`, () => oneQueue(at, name)),
    exchanges: () =>
      cache.get('exchanges', () => paged(at, { what: 'exchanges', rest: '' }, forms.exchangeInfo)),
    bindings: (queue) =>
      queue === undefined
        ? look(`/bindings/${at.vhost}`, 'list the bindings', each(forms.bindingInfo))
        : look(
            `/queues/${at.vhost}/${encodeURIComponent(queue)}/bindings`,
            `list the bindings of the queue ${show(queue)}`,
            each(forms.bindingInfo),
          ),
    policies: () => look(`/policies/${at.vhost}`, 'list the policies', each(forms.policyInfo)),
    operatorPolicies: () => cache.get('operator policies', () => askOperatorPolicies(at)),
    putPolicy: async (policy) => {
      await change(policyQuestion(at.vhost, policy));
    },
    deletePolicy: async (name) => {
      const path = `/policies/${at.vhost}/${encodeURIComponent(name)}`;
      const doing = `delete the policy ${show(name)}`;
      return (await change({ method: 'DELETE', path, doing, expected: [404] })) !== 404;
    },
    whoAmI: () => look('/whoami', 'ask who we are', userOf),
    permissions: (user = username) => cache.get(`permissions ${user}`, () => askUser(at, user)),
    alarms: () => cache.get('alarms', () => askAlarms(asker)),
    definitions: () =>
      look(`/definitions/${at.vhost}`, `export the virtual host ${show(vhost)}`, forms.record),
    forget: () => cache.clear(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Whom to ask, and the virtual host as it is written in a path. */
interface Place {
  readonly asker: ManagementClient;
  readonly vhost: string;
}

function each<T>(form: (told: unknown) => T): (told: unknown) => readonly T[] {
  return (told) => forms.list(told).map((one) => form(one));
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
  { asker, vhost }: Place,
  { what, rest, size = PAGE_SIZE_MAX }: Paging,
  form: (told: unknown) => T,
): Promise<readonly T[]> {
  checkNumber('pageSize', size, { min: 1, max: PAGE_SIZE_MAX });
  const doing = `list the ${what}`;
  const found: T[] = [];
  for (let page = 1; ; page += 1) {
    const path = `/${what}/${vhost}?page=${page}&page_size=${size}${rest}`;
    // A page past the last is refused with 400: things were deleted while we read.
    const { json, status } = await asker.ask({ path, doing, expected: page > 1 ? [400] : [] });
    if (status === 400) return found;
    for (const item of forms.list(forms.record(json)['items'])) found.push(form(item));
    if (page >= (forms.number(forms.record(json)['page_count']) ?? 0)) return found;
    if (found.length >= LISTED_MAX) {
      throw new RespoolError('limit.exceeded', `cannot ${doing}: more than ${LISTED_MAX}`);
    }
  }
}

async function oneQueue(
  { asker, vhost }: Place,
  name: string,
): Promise<forms.QueueInfo | undefined> {
  const { status, json } = await asker.ask({
    path: `/queues/${vhost}/${encodeURIComponent(name)}`,
    doing: `look at the queue ${show(name)}`,
    expected: [404],
  });
  return status === 404 ? undefined : forms.queueInfo(json);
}

async function askOperatorPolicies({ asker, vhost }: Place): Promise<readonly forms.PolicyInfo[]> {
  const { json } = await asker.ask({
    path: `/operator-policies/${vhost}`,
    doing: 'list the operator policies',
    expected: [401, 403],
  });
  return each(forms.policyInfo)(json);
}

function policyQuestion(vhost: string, policy: PolicySpec): ManagementRequest {
  const { name, pattern, definition, priority } = policy;
  return {
    method: 'PUT',
    path: `/policies/${vhost}/${encodeURIComponent(name)}`,
    doing: `set the policy ${show(name)}`,
    json: { pattern, definition, priority, 'apply-to': 'queues' },
  };
}

function userOf(told: unknown): { readonly name: string; readonly tags: readonly string[] } {
  const { name, tags } = forms.record(told);
  // n.b. Releases before 3.9 write the tags as one string.
  const words = typeof tags === 'string' ? tags.split(',') : forms.list(tags).map(String);
  return { name: forms.text(name) ?? '', tags: words.filter((tag) => tag !== '') };
}

async function askUser({ asker, vhost }: Place, user: string): Promise<Permissions> {
  const { status, json } = await asker.ask({
    path: `/permissions/${vhost}/${encodeURIComponent(user)}`,
    doing: `ask for the permissions of ${show(user)}`,
    expected: [401, 403, 404],
  });
  if (status === 404) return { kind: 'none' };
  if (status !== 200) {
    // A wrong password gets the same status; this question is refused for that reason only.
    await asker.ask({ path: '/whoami', doing: 'ask who we are' });
    return { kind: 'hidden' };
  }
  const { configure, write, read } = forms.record(json);
  return {
    kind: 'told',
    configure: forms.text(configure) ?? '',
    write: forms.text(write) ?? '',
    read: forms.text(read) ?? '',
  };
}

async function askAlarms(asker: ManagementClient): Promise<AlarmReport> {
  const { status, json } = await asker.ask({
    path: '/health/checks/alarms',
    doing: 'ask for alarms',
    // 503 is how it says that there is one.
    expected: [503],
  });
  const alarms = forms.list(forms.record(json)['alarms']).map((told) => {
    const { node, resource } = forms.record(told);
    return { node: forms.text(node) ?? '', resource: forms.text(resource) ?? '' };
  });
  return { isWell: status !== 503, alarms };
}

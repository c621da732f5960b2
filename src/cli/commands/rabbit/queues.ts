/**
 * queues — which queues a command of `respool rabbit` is about: those of the configured consumers,
 * or one that is described by options. Also the options that describe one, and those of the queues
 * that `respool rabbit migrate` empties (`--from-…`).
 */

import type { Broker } from '../../../config/load/brokers.ts';
import type { EffectiveConsumer } from '../../../config/load/consumers.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { isRespoolError } from '../../../core/errors.ts';
import { CommandError } from '../../exit-codes.ts';
import type { CommandContext, OptionSpec } from '../../spec.ts';

/** Which queues: by the name of those that are configured, or described. */
export const QUEUE_OPTION: OptionSpec = {
  flags: '--queue <name>',
  description:
    'only this queue; if no consumer of the configuration has it, describe it with the ' +
    'options below',
  repeatable: true,
};

export const MANAGEMENT_OPTION: OptionSpec = {
  flags: '--management-url <url>',
  description: 'the management API; default: the host of the broker, port 15672',
};

/** What every command over queues takes; `--url` is every command's, and the broker here. */
export const QUEUE_OPTIONS: readonly OptionSpec[] = [
  QUEUE_OPTION,
  {
    flags: '--topology <style>',
    description: 'how its messages wait; default shared',
    choices: ['shared', 'perDelay', 'perAttempt'],
  },
  { flags: '--delays <spans>', description: 'its retry delays, such as 2s,5s,15s' },
  {
    flags: '--type <type>',
    description: 'the type of its queues; default quorum',
    choices: ['quorum', 'classic'],
  },
  {
    flags: '--compat <system>',
    description: 'the other system that uses these queues',
    choices: ['goqueue', 'spring', 'outbox'],
  },
  {
    flags: '--binding <exchange:key>',
    description: 'a binding of the queue; without a key: #',
    repeatable: true,
  },
  MANAGEMENT_OPTION,
];

/** The same of the queues that are to go. */
const FORMER: Readonly<Record<string, string>> = {
  queue: 'its old name, if it changes',
  topology: 'how its messages waited; default: as now',
  delays: 'its old waits; default: as now',
  type: 'the type of its old queues; default: as now',
  compat: 'the other system that used the old queues; default: as now',
};

/** Described by these, and by --queue and --url. */
const DESCRIBING = ['topology', 'delays', 'type', 'compat'] as const;

/** What a command works on. */
interface ChosenQueues {
  readonly loaded: LoadedConfig;
  /** Each with at least one queue. */
  readonly brokers: readonly Broker[];
}

/** The configuration, with what the options say of the broker. */
export async function readRabbitConfig(
  context: CommandContext,
  routes: 'queues' | 'consumers' = 'queues',
): Promise<LoadedConfig> {
  const { globals, options } = context;
  const { url } = globals;
  if (url !== undefined && !/^amqps?:/i.test(url)) {
    throw usage(`--url of "respool rabbit" is a broker: allowed is amqp://… or amqps://…`);
  }
  const flags = {
    'rabbit.url': url,
    'rabbit.managementUrl': options.filled('managementUrl'),
  };
  return context.config({ flags, routes });
}

/** The queues that were asked for, by their brokers. */
export async function chooseQueues(context: CommandContext): Promise<ChosenQueues> {
  const loaded = await readRabbitConfig(context);
  const { brokersOf } = await import('../../../config/load/brokers.ts');
  const { rabbit } = loaded.config;
  const consumers = isDescribed(context, loaded)
    ? await describedOf(context, loaded)
    : chooseConsumers(context, loaded);
  return { loaded, brokers: brokersOf(consumers, rabbit) };
}

/** What to do where a queue is not in the configuration. */
interface Advice {
  readonly none: string;
  readonly strange: string;
}

const DESCRIBE: Advice = {
  none:
    'write consumers into the configuration, or give --queue with --url, --delays and ' +
    '--topology',
  strange: 'to describe another one add --topology',
};

/** A queue that only options describe has no handler. */
export const WRITE_DOWN: Advice = {
  none: 'write it into `consumers` of the configuration',
  strange: 'write it into `consumers` of the configuration',
};

/** The consumers of the configuration, or those of them that --queue names. */
export function chooseConsumers(
  { options, globals }: CommandContext,
  { config }: LoadedConfig,
  advice: Advice = DESCRIBE,
): readonly EffectiveConsumer[] {
  const names = options.texts('queue');
  const { url } = globals;
  // A user who names a broker means the consumers there.
  const there = config.consumers.filter((one) => url === undefined || one.url === url);
  if (there.length === 0) {
    throw usage(`there is no queue to work on: ${advice.none}`);
  }
  const known = there.map(({ queue }) => queue);
  const strange = names.find((name) => !known.includes(name));
  if (strange !== undefined) {
    throw usage(
      `no consumer of the configuration has the queue "${strange}": known are ` +
        `${known.join(', ')}; ${advice.strange}`,
    );
  }
  return names.length === 0 ? there : there.filter(({ queue }) => names.includes(queue));
}

function isDescribed({ options, globals }: CommandContext, { config }: LoadedConfig): boolean {
  const { url } = globals;
  const isSaid = DESCRIBING.some((name) => options.text(name) !== undefined);
  if (isSaid || options.texts('binding').length > 0) return true;
  // A name that no consumer has is a typing error, unless there is nothing it could have meant.
  const isElsewhere = url !== undefined || config.consumers.length === 0;
  const known = config.consumers.filter((one) => url === undefined || one.url === url);
  return isElsewhere && options.texts('queue').some((name) => !known.some(has(name)));
}

function has(name: string): (consumer: EffectiveConsumer) => boolean {
  return ({ queue }) => queue === name;
}

/** Consumers as the options describe them; nothing is delivered. */
async function describedOf(
  { options }: CommandContext,
  loaded: LoadedConfig,
): Promise<readonly EffectiveConsumer[]> {
  const queues = options.texts('queue');
  if (queues.length === 0) throw usage('name the queue that is described: --queue orders');
  const bindings = options.texts('binding').map(bindingOf);
  const given = queues.map((queue) => ({
    queue,
    topology: options.text('topology'),
    type: options.text('type'),
    compat: options.text('compat'),
    bindings,
    policy: ladderOf(options.filled('delays')),
  }));
  return checked(given, loaded, '');
}

/** The queues as they were before, for those that are to come: what --from-… says. */
export async function formerOf(
  { options }: CommandContext,
  loaded: LoadedConfig,
  next: readonly EffectiveConsumer[],
): Promise<readonly EffectiveConsumer[]> {
  const queues = options.texts('fromQueue');
  if (queues.length > 0 && queues.length !== next.length) {
    throw usage(
      `--from-queue was given for ${queues.length} of ${next.length} queues: give one for each, ` +
        'in the same order, or none where the names stay',
    );
  }
  const given = next.map(({ url, queue, bindings, policy, topology, compat, type, waits }, at) => {
    const style = options.text('fromTopology') ?? topology;
    const system = options.text('fromCompat') ?? compat;
    return {
      url,
      queue: queues[at] ?? queue,
      // Only one of both decides: what was typed goes before what the new queues have.
      topology: options.text('fromCompat') === undefined ? style : undefined,
      compat: options.text('fromTopology') === undefined ? system : undefined,
      type: options.text('fromType') ?? type,
      bindings,
      policy: ladderOf(options.filled('fromDelays')) ?? policy,
      // n.b. A wait queue that is not known is not emptied, and its messages find no queue later.
      waits,
    };
  });
  return checked(given, loaded, 'from-');
}

/** What --from-… may say. */
export const FORMER_OPTIONS: readonly OptionSpec[] = QUEUE_OPTIONS.filter(({ flags }) =>
  /^--(?:queue|topology|delays|type|compat) /.test(flags),
).map((option) => ({
  ...option,
  flags: option.flags.replace('--', '--from-'),
  description: FORMER[option.flags.replace(/^--(\w+) .*$/, '$1')] ?? option.description,
}));

function ladderOf(delays: string | undefined): object | undefined {
  return delays === undefined ? undefined : { ladder: delays.split(',') };
}

async function checked(
  value: readonly object[],
  { config, folder }: LoadedConfig,
  beginning: string,
): Promise<readonly EffectiveConsumer[]> {
  const { consumersOf } = await import('../../../config/load/consumers.ts');
  try {
    return consumersOf(value, {
      folder,
      policies: config.policies,
      filled: new Set(),
      url: config.rabbit.url,
      hasHandlers: false,
      backoffs: config.backoffs,
    });
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    throw usage(inFlags(error.message, beginning));
  }
}

function bindingOf(text: string): { exchange: string; key?: string } {
  const [exchange = '', ...rest] = text.split(':');
  return rest.length === 0 ? { exchange } : { exchange, key: rest.join(':') };
}

/** What a check says of `consumers[0].type` was typed as `--type`. */
function inFlags(text: string, beginning: string): string {
  return text
    .replaceAll(/"consumers\[\d+\]\.policy[\w.[\]]*"/g, `"--${beginning}delays"`)
    .replaceAll(/"consumers\[\d+\]\.bindings[\w.[\]]*"/g, '"--binding"')
    .replaceAll(/"consumers\[\d+\]\.(\w+)[\w.[\]]*"/g, `"--${beginning}$1"`)
    .replaceAll(/"consumers\[\d+\]"/g, `"--${beginning}queue"`)
    .replaceAll(/consumers\[\d+\]/g, `--${beginning}queue`);
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}

/**
 * `respool dlq` — replay, replays and rules. Declarations alone: the code of a command is
 * loaded when it runs.
 */

import { LOOK_OPTIONS, PLACE_OPTIONS } from './options.ts';
import type { ArgumentSpec, CommandSpec, OptionSpec } from '../../spec.ts';

const ID = '0198f0c2-8a3e-7c41-9d2b-5f60718293a4';
const GROUP = 'Dead letters';

const UNSURE: OptionSpec = {
  flags: '--unsure <how>',
  description:
    'what to do with letters that may have been sent before a crash: leave them (default), or ' +
    'send them again',
  choices: ['leave', 'send'],
};

/** The broker alone: which queue is known already. */
const BROKER_OPTIONS = PLACE_OPTIONS.filter(({ flags }) => !flags.startsWith('--queue'));

const WHICH_OPTIONS: readonly OptionSpec[] = LOOK_OPTIONS.map((option) =>
  option.flags.startsWith('--kind')
    ? { ...option, description: 'of the spool: bounced, held, or archived; default dead' }
    : option,
);

const HOW_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--to <place>',
    description: 'a queue, exchange:key, or for the spool a topic; default: where each came from',
  },
  { flags: '--limit <count>', description: 'maximum number of letters per queue' },
  {
    flags: '--canary <count>',
    description: 'number of letters to send first; default 10, 0: none',
  },
  {
    flags: '--canary-wait <span>',
    description: 'time limit for the attempts of the canaries; default 10s',
  },
  {
    flags: '--end-wait <span>',
    description:
      'for a queue: time from the last letter until it checks what came back; default 10s',
  },
  { flags: '--rate <count>', description: 'messages per second; default: no limit' },
  {
    flags: '--window <count>',
    description: 'maximum number of letters in flight, 1 to 1,000; default 100',
  },
  {
    flags: '--stop-above <percent>',
    description: 'percentage of failures at which it stops; default 20, 100: never',
  },
  {
    flags: '--replays-max <count>',
    description: 'park letters replayed this many times; default "deadLetters.replaysMax", 3',
  },
  UNSURE,
  { flags: '--transform <file>', description: 'a program that repairs messages on their way' },
  {
    flags: '--dry-run',
    description: 'show the plan, and with a transform the changes; send nothing',
  },
  { flags: '--plan-only', description: 'record the replay, but do not run it' },
  { flags: '--yes', description: 'do not ask' },
];

const replay: CommandSpec = {
  name: 'replay',
  summary: 'send dead letters again, as one operation that can be paused and resumed',
  group: GROUP,
  description:
    'Finds matching letters, shows how many there are, where each would go and which cannot ' +
    'be sent, and asks. Then sends the canaries, and the rest when the canaries were ' +
    'delivered. It stops when too many fail again, or when no attempt at a canary ends ' +
    'within --canary-wait. In a queue, a canary counts as delivered when a consumer has ' +
    'taken it and it has not come back; letters that come back within --end-wait after the ' +
    'last one count as failed again (0s: do not check). The plan and the outcome of each ' +
    'message are recorded, so after a crash it can be resumed, and nothing is sent twice. ' +
    'Each message goes where it came from and counts its replays; after too many it is ' +
    'parked. Ctrl-C pauses. Without --queue it replays letters of the spool; several queues ' +
    'are replayed one after the other, each as a separate replay. Exits with 1 when it was ' +
    'stopped, or when messages failed, failed again or may have been sent.',
  options: [...WHICH_OPTIONS, ...HOW_OPTIONS],
  role: 'operate',
  examples: [
    { line: 'respool dlq replay --code http.503', does: 'of the spool: shows the plan, and asks' },
    { line: "respool dlq replay --queue 'orders.dlq' --dry-run", does: 'the plan of a dead queue' },
    {
      line: 'respool dlq replay --queue orders.dlq --transform ./repair.ts --dry-run',
      does: 'what a repair would change',
    },
    {
      line: 'respool dlq replay --queue orders.dlq --canary 5 --rate 50 --yes',
      does: 'five first, then 50 per second, without a question',
    },
  ],
  run: async (context) => (await import('./replay/replay.ts')).replayLetters(context),
};

const ONE: readonly ArgumentSpec[] = [
  { name: '<id>', description: 'the replay, by its id or the beginning of it' },
];

const list: CommandSpec = {
  name: 'list',
  summary: 'list recorded replays',
  group: GROUP,
  description: 'Shows every replay, newest first: what it replays, and its progress.',
  options: [
    {
      flags: '--state <state>',
      description: 'with this state; separate several with commas',
      choices: ['planned', 'running', 'paused', 'stopped', 'cancelled', 'done'],
      repeatable: true,
    },
  ],
  role: 'read',
  examples: [
    { line: 'respool dlq replays list', does: 'all of them' },
    { line: 'respool dlq replays list --state paused,stopped', does: 'what can be resumed' },
  ],
  run: async (context) => (await import('./replay/replays.ts')).listReplaysCommand(context),
};

const show: CommandSpec = {
  name: 'show',
  summary: 'show one replay: its plan, options and progress',
  group: GROUP,
  description: 'Shows a replay in full, but not the outcome of each message: for that, see report.',
  arguments: ONE,
  role: 'read',
  examples: [{ line: `respool dlq replays show ${ID}`, does: 'how far it is, and why' }],
  run: async (context) => (await import('./replay/replays.ts')).showReplay(context),
};

const pause: CommandSpec = {
  name: 'pause',
  summary: 'pause a replay, wherever it runs',
  group: GROUP,
  description:
    'Asks the process that runs it to pause, and waits briefly until it has. What was not ' +
    'sent stays where it is.',
  arguments: ONE,
  role: 'operate',
  examples: [{ line: `respool dlq replays pause ${ID}`, does: 'until it is resumed' }],
  run: async (context) => (await import('./replay/replays.ts')).pauseReplayCommand(context),
};

const resume: CommandSpec = {
  name: 'resume',
  summary: 'continue a replay that was planned, paused or stopped, or whose process died',
  group: GROUP,
  description:
    'Runs it to its end in this process: sent messages are not sent again, failed ones are ' +
    'tried once more. Messages that may have been sent before a crash stay where they are, ' +
    'unless --unsure send is given. Ctrl-C pauses it again. The exit codes are those of ' +
    'respool dlq replay.',
  arguments: ONE,
  options: [
    UNSURE,
    {
      flags: '--canary <count>',
      description: 'override the planned number; 0: send the rest without canaries',
    },
    ...BROKER_OPTIONS,
  ],
  role: 'operate',
  examples: [{ line: `respool dlq replays resume ${ID}`, does: 'continues where it stopped' }],
  run: async (context) => (await import('./replay/replays.ts')).resumeReplayCommand(context),
};

const cancel: CommandSpec = {
  name: 'cancel',
  summary: 'end a replay; what was not sent stays where it is',
  group: GROUP,
  description:
    'Ends a replay permanently, in whichever process it runs, and waits briefly until it ' +
    'has ended. Messages already sent stay sent; the rest stay where they are, in their ' +
    'order.',
  arguments: ONE,
  role: 'operate',
  examples: [{ line: `respool dlq replays cancel ${ID}`, does: 'it cannot be resumed then' }],
  run: async (context) => (await import('./replay/replays.ts')).cancelReplayCommand(context),
};

const report: CommandSpec = {
  name: 'report',
  summary: 'show what became of each message of a replay',
  group: GROUP,
  description:
    'Shows every message with an outcome: sent, failed, parked, unsure, gone, left, or sent ' +
    'and failed again; with its destination, or the reason why it was not sent. With --json ' +
    'one object per line.',
  arguments: ONE,
  options: [
    {
      flags: '--result <result>',
      description: 'only these; separate several with commas',
      choices: ['sent', 'failed', 'parked', 'unsure', 'gone', 'left', 'again'],
      repeatable: true,
    },
  ],
  role: 'read',
  examples: [
    { line: `respool dlq replays report ${ID} --result failed,unsure`, does: 'what needs care' },
    { line: `respool dlq replays report ${ID} --json > report.jsonl`, does: 'keeps all of it' },
  ],
  run: async (context) => (await import('./replay/replays.ts')).reportReplayCommand(context),
};

const forget: CommandSpec = {
  name: 'forget',
  summary: 'remove the record of a finished replay',
  group: GROUP,
  description:
    'Removes a replay that is not running, with its report. Messages are not touched; those ' +
    'that were not sent stay where they are.',
  arguments: ONE,
  role: 'operate',
  examples: [{ line: `respool dlq replays forget ${ID}`, does: 'its report is gone' }],
  run: async (context) => (await import('./replay/replays.ts')).forgetReplay(context),
};

const rulesList: CommandSpec = {
  name: 'list',
  summary: 'show the replay rules and the results of their last rounds',
  group: GROUP,
  description:
    'Shows every rule of "deadLetters.rules": when it last ran, with what result, and when ' +
    'it runs next.',
  role: 'read',
  examples: [{ line: 'respool dlq rules list', does: 'which rule waits for what' }],
  run: async (context) => (await import('./replay/rules.ts')).listRules(context),
};

const rulesRun: CommandSpec = {
  name: 'run',
  summary: 'replay dead letters by the rules of the configuration, until a signal',
  group: GROUP,
  description:
    'Checks for matching letters at the interval of each rule of "deadLetters.rules", asks ' +
    'whether their destination is healthy, and replays them: the canary first, then the ' +
    'rest at the rate of the rule. Each time a rule is stopped it waits twice as long, up ' +
    'to an hour. Several processes may do this at once: each rule is run by one of them at ' +
    'a time. With --once it runs each rule once, due or not, and exits with 1 when a rule ' +
    'was stopped or failed, or messages failed again.',
  options: [{ flags: '--once', description: 'run each rule once, then exit' }, ...BROKER_OPTIONS],
  role: 'operate',
  examples: [
    { line: 'respool dlq rules run', does: 'beside respool serve, or without it' },
    { line: 'respool dlq rules run --once --json', does: 'for cron: one object per rule' },
  ],
  run: async (context) => (await import('./replay/rules.ts')).runRulesHere(context),
};

/** `respool dlq replay`, `respool dlq replays …` and `respool dlq rules …`. */
export const replayCommands: readonly CommandSpec[] = [
  replay,
  {
    name: 'replays',
    summary: 'manage replays: list, show, pause, resume, cancel, report, forget',
    group: GROUP,
    subcommands: [list, show, pause, resume, cancel, report, forget],
  },
  {
    name: 'rules',
    summary: 'replay dead letters automatically by rules',
    group: GROUP,
    subcommands: [rulesList, rulesRun],
  },
];

/** `respool alerts` — the rules that tell somebody, where they stand, and whether telling works. */

import type { ArgumentSpec, CommandSpec } from '../../spec.ts';

const GROUP = 'Looking';
const NAMES: readonly ArgumentSpec[] = [
  { name: '[rule...]', description: 'names of rules; default all' },
];

const list: CommandSpec = {
  name: 'list',
  summary: 'show the rules of the alerts, and where each stands',
  group: GROUP,
  description:
    'Shows every rule of "alerts.rules": whether it fires and since when, how often it has ' +
    'fired, when a notification was put down last, and why it cannot be measured, if it cannot; ' +
    'then who looks, and how many notifications have not arrived. The state is read from the ' +
    'store, or through the service that has it open.',
  arguments: NAMES,
  role: 'read',
  examples: [
    { line: 'respool alerts list', does: 'what fires, and since when' },
    { line: 'respool alerts list --json', does: 'one object for each rule' },
  ],
  run: async (context) => (await import('./check-alerts.ts')).listAlerts(context),
};

const check: CommandSpec = {
  name: 'check',
  summary: 'measure what the rules are about, once, and tell nobody',
  group: GROUP,
  description:
    'Measures each rule now, from here, and says whether its condition holds. Nothing is told ' +
    'and nothing is written. Rates and whether a consumer or the relay is down are known only ' +
    'to the process that delivers: for these, see respool alerts list.',
  arguments: NAMES,
  role: 'read',
  examples: [
    { line: 'respool alerts check', does: 'every value now, and what would fire' },
    { line: 'respool alerts check disk-low', does: 'one of them' },
  ],
  run: async (context) => (await import('./check-alerts.ts')).checkAlerts(context),
};

const testTelling: CommandSpec = {
  name: 'test',
  summary: 'send a test notification to the receivers, and say what came back',
  group: GROUP,
  description:
    'Tells every receiver of the configuration, or those of one rule, that this is a test: at ' +
    'once and without the spool, so it works without a running service. Ends with 1 when one of ' +
    'them could not be told.',
  arguments: [{ name: '[rule]', description: 'as this rule would tell; default every receiver' }],
  options: [{ flags: '--to <receiver>', description: 'only this one', repeatable: true }],
  examples: [
    { line: 'respool alerts test', does: 'tells everybody' },
    { line: 'respool alerts test disk-low --to ops', does: 'as the rule would tell ops' },
  ],
  run: async (context) => (await import('./check-alerts.ts')).testAlerts(context),
};

/** `respool alerts` */
export const alerts: CommandSpec = {
  name: 'alerts',
  summary: 'rules that tell somebody: where they stand, and whether telling works',
  group: GROUP,
  subcommands: [list, check, testTelling],
};

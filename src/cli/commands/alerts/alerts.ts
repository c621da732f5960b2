/** alerts — the alert rules, their state, and a test of their receivers. */

import type { ArgumentSpec, CommandSpec } from '../../spec.ts';

const GROUP = 'Inspect';
const NAMES: readonly ArgumentSpec[] = [
  { name: '[rule...]', description: 'names of rules; default all' },
];

const list: CommandSpec = {
  name: 'list',
  summary: 'show the alert rules and their states',
  group: GROUP,
  description:
    'Shows every rule of "alerts.rules": whether it fires and since when, how often it has ' +
    'fired, when a notification was last stored, and, if it cannot be measured, why. Then ' +
    'shows which process measures, and how many notifications have not arrived. The state ' +
    'is read from the store, or through the service that has it open.',
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
  summary: 'evaluate the alert rules once without notifying',
  group: GROUP,
  description:
    'Measures each rule now, in this process, and says whether its condition holds. No ' +
    'receiver is notified and nothing is written. Rates and whether a consumer or the relay ' +
    'is down are known only to the process that delivers: for these, see respool alerts ' +
    'list.',
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
  summary: 'send a test notification to the receivers and show the results',
  group: GROUP,
  description:
    'Sends a test notification to every receiver of the configuration, or to those of one ' +
    'rule: at once and without the spool, so it works without a running service. Exits with ' +
    '1 when one of them could not be notified.',
  arguments: [
    { name: '[rule]', description: 'to the receivers of this rule; default: all receivers' },
  ],
  options: [{ flags: '--to <receiver>', description: 'only this one', repeatable: true }],
  examples: [
    { line: 'respool alerts test', does: 'notifies all receivers' },
    { line: 'respool alerts test disk-low --to ops', does: 'notifies ops as the rule would' },
  ],
  run: async (context) => (await import('./check-alerts.ts')).testAlerts(context),
};

/** `respool alerts` */
export const alertsCommand: CommandSpec = {
  name: 'alerts',
  summary: 'alert rules: their states, and tests of notifications',
  group: GROUP,
  subcommands: [list, check, testTelling],
};

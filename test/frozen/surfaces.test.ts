/** The names that users, scripts and dashboards go by are those of the snapshots beside this file. */
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test, vi } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { EXIT_CODES } from '../../src/cli/exit-codes.ts';
import { GLOBAL_OPTIONS } from '../../src/cli/program.ts';
import type { CommandSpec, OptionSpec } from '../../src/cli/spec.ts';
import { environmentName, isScalar, KEYS } from '../../src/config/schema/keys.ts';
import { Families } from '../../src/observe/metrics/families.ts';
import { createMetrics } from 'respool/observe';
import { METRIC_ALIASES } from '../../src/observe/metrics/options.ts';
import { json, setup } from '../web/setup.ts';
import { compactJson, shareSchemas } from './compact-json.ts';

const SRC = path.join(import.meta.dirname, '../../src');

test('the OpenAPI document', async () => {
  const { ask } = await setup({ isListening: false });
  await expect(compactJson(shareSchemas(await json(ask('/openapi.json'))))).toMatchFileSnapshot(
    'openapi.json',
  );
});

test('commands with their arguments and options, and exit codes', async () => {
  const parts = [
    ['every command', ...optionLines(GLOBAL_OPTIONS)].join('\n'),
    ...commands.flatMap((spec) => commandTexts(spec, [])),
    ['exit codes', ...EXIT_CODES.map(({ code, meaning }) => `  ${code} ${meaning}`)].join('\n'),
  ];
  await expect(`${parts.join('\n\n')}\n`).toMatchFileSnapshot('cli.txt');
});

test('keys of a configuration, with their defaults, variables and flags', async () => {
  const rows = KEYS.map((key) => {
    const { key: name, kind, type, byDefault, defaultText, flag, secret } = key;
    return [
      name,
      `  ${kind}: ${type}`,
      ...(byDefault === undefined ? [] : [`  default ${JSON.stringify(byDefault)}`]),
      ...(defaultText === undefined ? [] : [`  default: ${defaultText}`]),
      ...(isScalar(key) ? [`  ${environmentName(name)}`] : []),
      ...(flag === undefined ? [] : [`  ${flag}`]),
      ...(secret === undefined || secret === false
        ? []
        : [secret === true ? '  secret' : `  secret: ${secret}`]),
    ].join('\n');
  });
  await expect(`${rows.join('\n\n')}\n`).toMatchFileSnapshot('config.txt');
});

test('variables of the environment', async () => {
  const names = new Set(KEYS.filter(isScalar).map(({ key }) => environmentName(key)));
  for (const file of await readdir(SRC, { recursive: true })) {
    if (!file.endsWith('.ts')) continue;
    const text = await readFile(path.join(SRC, file), 'utf8');
    for (const [name] of text.matchAll(/\bRESPOOL_[A-Z_]*[A-Z]_?/g)) names.add(name);
    for (const [, name = ''] of text.matchAll(/\benv(?:\.|\[')([A-Z][A-Z_]+)\b/g)) names.add(name);
  }
  await expect(`${[...names].sort().join('\n')}\n`).toMatchFileSnapshot('environment.txt');
});

test('metrics with their types, labels and help, also under the names of other systems', async () => {
  const types = ['counter', 'gauge', 'histogram'] as const;
  const spies = types.map((type) => vi.spyOn(Families.prototype, type));
  const metrics = await createMetrics({ processMetrics: true, aliases: METRIC_ALIASES });
  const shapes = spies.flatMap(({ mock }) => mock.calls.map(([shape]) => shape));
  const labels = new Map(
    shapes.map(({ name, labels = [], prefix = 'respool' }) => [`${prefix}_${name}`, labels]),
  );
  const lines = metrics.registry.getMetricsAsArray().map((metric) => {
    const { name, help, type, labelNames } = metric as unknown as Metric;
    const list = labels.get(name) ?? labelNames;
    if (list === undefined) throw new Error(`no labels are known of ${name}`);
    return `${name} ${type} {${list.join(', ')}}\n  ${help}\n`;
  });
  metrics.close();
  for (const spy of spies) spy.mockRestore();
  expect(lines.length).toBeGreaterThan(labels.size);
  await expect(lines.sort().join('')).toMatchFileSnapshot('metrics.txt');
});

/** As a registry holds it; the library's own know their labels. */
interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly labelNames?: readonly string[];
}

function commandTexts(spec: CommandSpec, above: readonly string[]): string[] {
  const { name, role, options = [], subcommands = [] } = spec;
  const words = [...above, name];
  const args = (spec.arguments ?? []).map((one) => `  ${one.name}${choicesOf(one)}`);
  const lines = [
    words.join(' ') + (role === undefined ? '' : ` (role ${role})`),
    ...args,
    ...optionLines(options),
  ];
  return [lines.join('\n'), ...subcommands.flatMap((one) => commandTexts(one, words))];
}

function optionLines(options: readonly OptionSpec[]): string[] {
  return options
    .map((one) => `  ${one.flags}${one.repeatable === true ? ' …' : ''}${choicesOf(one)}`)
    .sort();
}

function choicesOf({ choices = [] }: { readonly choices?: readonly string[] }): string {
  return choices.length === 0 ? '' : ` (${choices.join(' | ')})`;
}

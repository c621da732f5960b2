/**
 * terraform — a topology as resources of the Terraform provider cyrilgdn/rabbitmq.
 *
 * The text holds resources only: which provider at which address is for the module that it is put
 * into. Bindings refer to what they bind, so that Terraform finds the order by itself.
 */

import { RespoolError, show } from '../../core/errors.ts';
import {
  type Definitions,
  type ExportOptions,
  type Json,
  type JsonTable,
  toDefinitions,
} from './definitions.ts';
import type { Topology } from './model.ts';

/** The topology in Terraform's language; what the provider cannot say is refused. */
export function toTerraform(topology: Topology, options: ExportOptions = {}): string {
  const definitions = toDefinitions(topology, options);
  const exchanges = labelled(definitions.exchanges);
  const queues = labelled(definitions.queues);
  const bindingLabel = labels();
  const blocks = [
    ...definitions.exchanges.map((one) => exchangeBlock(one, exchanges.get(one.name) ?? '')),
    ...definitions.queues.map((one) => queueBlock(one, queues.get(one.name) ?? '')),
    ...definitions.bindings.map((one) => {
      const from = exchanges.get(one.source);
      const to = queues.get(one.destination);
      const label = bindingLabel(`${one.destination}_from_${one.source}`);
      return block('rabbitmq_binding', label, [
        ['source', reference('rabbitmq_exchange', from, one.source)],
        ['vhost', quoted(one.vhost)],
        ['destination', reference('rabbitmq_queue', to, one.destination)],
        ['destination_type', quoted('queue')],
        ['routing_key', quoted(one.routing_key)],
        ...bindingArguments(one.arguments),
      ]);
    }),
    ...definitions.policies.map(policyBlock(labels())),
  ];
  return `${HEAD}\n${blocks.join('\n')}`;
}

const HEAD = '# Made by respool. Needs the provider cyrilgdn/rabbitmq.\n';

/** A line `name = value`, or a nested block of such lines. */
type Line = readonly [string, string] | { readonly block: string; readonly lines: readonly Line[] };

function exchangeBlock(one: Definitions['exchanges'][number], label: string): string {
  if (one.internal) throw notForTerraform(`exchange ${show(one.name)} with "internal"`);
  return block('rabbitmq_exchange', label, [
    ['name', quoted(one.name)],
    ['vhost', quoted(one.vhost)],
    {
      block: 'settings',
      lines: [
        ['type', quoted(one.type)],
        ['durable', String(one.durable)],
        ['auto_delete', String(one.auto_delete)],
        ...textArguments(one.arguments, `exchange ${show(one.name)}`),
      ],
    },
  ]);
}

function queueBlock(one: Definitions['queues'][number], label: string): string {
  return block('rabbitmq_queue', label, [
    ['name', quoted(one.name)],
    ['vhost', quoted(one.vhost)],
    {
      block: 'settings',
      lines: [
        ['durable', String(one.durable)],
        ['auto_delete', String(one.auto_delete)],
        // n.b. Not `arguments`: there the provider turns every number into text.
        ['arguments_json', `jsonencode(${expression(one.arguments)})`],
      ],
    },
  ]);
}

function policyBlock(
  label: (name: string) => string,
): (one: Definitions['policies'][number]) => string {
  return (one) => {
    // The provider turns digits in text back into numbers, and knows no other types.
    const odd = Object.entries(one.definition).find(
      ([, value]) => typeof value !== 'number' && typeof value !== 'string',
    );
    if (odd !== undefined) throw notForTerraform(`${show(odd[0])} of policy ${show(one.name)}`);
    return block('rabbitmq_policy', label(one.name), [
      ['name', quoted(one.name)],
      ['vhost', quoted(one.vhost)],
      {
        block: 'policy',
        lines: [
          ['pattern', quoted(one.pattern)],
          ['priority', String(one.priority)],
          ['apply_to', quoted(one['apply-to'])],
          ['definition', expression(one.definition)],
        ],
      },
    ]);
  };
}

function bindingArguments(args: JsonTable): Line[] {
  if (Object.keys(args).length === 0) return [];
  const isText = Object.values(args).every((value) => typeof value === 'string');
  if (isText) return [['arguments', expression(args)]];
  return [['arguments_json', `jsonencode(${expression(args)})`]];
}

function textArguments(args: JsonTable, owner: string): Line[] {
  const odd = Object.entries(args).find(([, value]) => typeof value !== 'string');
  if (odd !== undefined) throw notForTerraform(`argument ${show(odd[0])} of ${owner}`);
  return Object.keys(args).length === 0 ? [] : [['arguments', expression(args)]];
}

function notForTerraform(what: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot write ${what} for Terraform: the provider cyrilgdn/rabbitmq has no way to say it; ` +
      'export definitions instead',
  );
}

function block(type: string, label: string, lines: readonly Line[]): string {
  return `resource "${type}" "${label}" {\n${written(lines, '  ')}}\n`;
}

/** Laid out as `terraform fmt` does it, so that our own file is not changed by its first run. */
function written(lines: readonly Line[], indent: string): string {
  return lines
    .map((line, at) => {
      if ('block' in line) {
        return `${indent}${line.block} {\n${written(line.lines, `${indent}  `)}${indent}}\n`;
      }
      const name = line[0].padEnd(isShort(line) ? widthAround(lines, at) : 0);
      return `${indent}${name} = ${line[1].replaceAll('\n', `\n${indent}`)}\n`;
    })
    .join('');
}

/** The longest name among the neighbours that are short too. */
function widthAround(lines: readonly Line[], at: number): number {
  let [first, last] = [at, at];
  while (isShort(lines[first - 1])) first -= 1;
  while (isShort(lines[last + 1])) last += 1;
  const names = lines.slice(first, last + 1).map((line) => ('block' in line ? '' : line[0]));
  return Math.max(...names.map((name) => name.length));
}

function isShort(line: Line | undefined): boolean {
  return line !== undefined && !('block' in line) && !line[1].includes('\n');
}

/** JSON is an expression of Terraform, but for what a string may hold. */
function expression(value: Json): string {
  if (typeof value === 'string') return quoted(value);
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return `[${value.map(expression).join(', ')}]`;
  const entries = Object.entries(value);
  if (entries.length === 0) return '{}';
  const inside = entries.map(
    ([key, part]) => `  ${quoted(key)} : ${expression(part).replaceAll('\n', '\n  ')}`,
  );
  return `{\n${inside.join(',\n')}\n}`;
}

/** In a string `${` and `%{` begin a template; \b and \f are not known. */
function quoted(text: string): string {
  return JSON.stringify(text)
    .replace(
      /(?<!\\)((?:\\\\)*)\\([bf])/g,
      (_all, before: string, letter: string) =>
        `${before}${letter === 'b' ? '\\u0008' : '\\u000c'}`,
    )
    .replaceAll(/[$%](?=\{)/g, (sign) => sign + sign);
}

function reference(type: string, label: string | undefined, name: string): string {
  return label === undefined ? quoted(name) : `${type}.${label}.name`;
}

function labelled(items: readonly { readonly name: string }[]): Map<string, string> {
  const label = labels();
  return new Map(items.map(({ name }) => [name, label(name)]));
}

/** Labels from names: letters, digits and lines only, each given once. */
function labels(): (name: string) => string {
  const given = new Set<string>();
  return (name) => {
    const plain = name.replaceAll(/[^A-Za-z0-9_-]/g, '_').replace(/^(?![A-Za-z_])/, '_');
    let label = plain;
    for (let count = 2; given.has(label); count += 1) label = `${plain}_${count}`;
    given.add(label);
    return label;
  };
}

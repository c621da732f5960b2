/** Reads the text that toTerraform writes back into definitions; knows no more of the language. */

import type { Definitions } from 'respool/rabbit';

type Fields = Record<string, unknown>;

interface Resource {
  readonly type: string;
  readonly label: string;
  readonly fields: Fields;
}

export function readTerraform(text: string): Definitions {
  const resources = [...text.matchAll(/^resource "(\w+)" "([\w-]+)" \{\n([\s\S]*?)^\}$/gm)].map(
    ([, type = '', label = '', body = '']): Resource => ({ type, label, fields: readBody(body) }),
  );
  const rest = text.replaceAll(/^resource [\s\S]*?^\}$/gm, '').replaceAll(/^#.*$/gm, '');
  if (rest.trim() !== '') throw new Error(`not understood: ${rest}`);
  const of = (type: string): Fields[] =>
    resources.filter((one) => one.type === type).map((one) => one.fields);
  const nameOf = (value: unknown): unknown => {
    const target = resources.find((one) => value === `@${one.type}.${one.label}.name`);
    return target === undefined ? value : target.fields['name'];
  };
  const list = {
    exchanges: of('rabbitmq_exchange').map((one) => ({ internal: false, arguments: {}, ...one })),
    queues: of('rabbitmq_queue'),
    bindings: of('rabbitmq_binding').map((one) => ({
      arguments: {},
      ...one,
      source: nameOf(one['source']),
      destination: nameOf(one['destination']),
    })),
    policies: of('rabbitmq_policy').map(({ apply_to, ...one }) => ({
      ...one,
      'apply-to': apply_to,
    })),
  };
  return list as unknown as Definitions;
}

/** Nested blocks (`settings`, `policy`) become fields like the others. */
function readBody(body: string): Fields {
  const fields: Fields = {};
  const flat = body.replaceAll(/^ {2}(?:settings|policy) \{\n([\s\S]*?)^ {2}\}\n/gm, '$1');
  for (const [, name = '', value = ''] of flat.matchAll(
    /^ {2,4}(\w+) += ([\s\S]*?)\n(?= {2,4}\w+ += |$(?![\s\S]))/gm,
  )) {
    fields[name.replace('arguments_json', 'arguments')] = readValue(value);
  }
  return fields;
}

function readValue(value: string): unknown {
  if (value.startsWith('rabbitmq_')) return `@${value}`;
  const json = value
    .replace(/^jsonencode\(([\s\S]*)\)$/, '$1')
    .replaceAll('$${', '${')
    .replaceAll('%%{', '%{');
  return JSON.parse(json);
}

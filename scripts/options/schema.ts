/**
 * schema — the JSON Schema of a configuration, for editors.
 *
 * Names, ranges, defaults and sentences are those of the tables of options; DEFINITIONS adds the
 * shapes of data that a table names by `schema`. Promise: every configuration that loads from JSON
 * or YAML is valid, except that an empty key (null) is refused. The reverse does not hold: what
 * depends on several keys, on spans written as text or on `${NAME}` is checked by Respool alone.
 */
import {
  ALERT_RULE_KEYS,
  CONSUMER_KEYS,
  REPLAY_RULE_KEYS,
  REPLAY_WHEN_KEYS,
  ROUTE_KEYS,
  TOKEN_KEYS,
} from '../../src/config/schema/items.ts';
import { CONFIG_KEYS, EXCHANGE_TARGET_KEYS } from '../../src/config/schema/options.ts';
import { CATEGORY_OPTIONS } from '../../src/core/category.ts';
import { DURATION_MAX_MS, durationMs } from '../../src/core/duration.ts';
import { ATTEMPTS_MAX, POLICY_TABLES } from '../../src/core/policy.ts';
import { bytesOf, defaultOf, type Option, type OptionTable } from '../../src/core/option-table.ts';
import { EXEC_OPTIONS } from '../../src/deliver/exec/exec.ts';
import { HTTP_OPTIONS } from '../../src/deliver/http/options.ts';
import { METRIC_ALIASES } from '../../src/observe/metrics/options.ts';
import {
  NATS_BODY_OPTIONS,
  NATS_ENTRY_OPTIONS,
  NATS_OPTIONS,
} from '../../src/stores/nats/options.ts';
import { COMPAT_TABLES } from '../../src/rabbit/consume/options.ts';
import { BINDING_OPTIONS } from '../../src/rabbit/topology/model.ts';
import { STYLE_TABLES } from '../../src/rabbit/topology/styles.ts';
import { EXTRA_WAITS_MAX } from '../../src/rabbit/topology/parts.ts';
import { POSTGRES_OPTIONS } from '../../src/stores/postgres/options.ts';
import { S3_OPTIONS } from '../../src/stores/s3/options.ts';
import { CODEC_NAMES } from '../../src/transforms/compress.ts';
import {
  COMPRESS_OPTIONS,
  DECRYPT_OPTIONS,
  ENCRYPT_OPTIONS,
  SEAL_OPTIONS,
} from '../../src/transforms/options.ts';
import { defaultText, plain } from './print.ts';

/** A JSON Schema, as data. */
export type Schema = { readonly [key: string]: unknown };

const TEXT: Schema = { type: 'string' };
const TEXT_LIST: Schema = { type: 'array', items: TEXT };
const DURATION: Schema = ref('duration');
/** A text that is filled in from the environment; it may become anything. */
const VARIABLE: Schema = ref('variable');
const NOTHING: Schema = { type: 'null' };

/** The whole schema. */
export function configSchema(): Schema {
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'respool.config',
    description: 'A configuration of Respool, for `respool serve` and the other commands.',
    ...object(CONFIG_KEYS, { $schema: { type: 'string', description: 'This schema.' } }, true),
    definitions: DEFINITIONS,
  };
}

function ref(name: string): Schema {
  return { $ref: `#/definitions/${name}` };
}

function anyOf(...schemas: readonly Schema[]): Schema {
  return { anyOf: schemas };
}

function words(...list: readonly (string | boolean)[]): Schema {
  return { enum: list };
}

function mapOf(values: Schema): Schema {
  return { type: 'object', additionalProperties: values };
}

function listOf(items: Schema): Schema {
  return { type: 'array', items };
}

/** Data with exactly one key, as `{ http: … }`, that may have options beside it. */
function one(name: string, value: Schema, beside: Readonly<Record<string, Schema>> = {}): Schema {
  return fields({ [name]: value, ...beside }, [name]);
}

function fields(
  properties: Readonly<Record<string, Schema>>,
  required: readonly string[] = [],
): Schema {
  return {
    type: 'object',
    properties,
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  };
}

/**
 * An object with the options of a table; code cannot be written in JSON. `isFilled`: a text that is
 * filled in from the environment becomes a number or a boolean there.
 */
function object(
  table: OptionTable,
  more: Readonly<Record<string, Schema>> = {},
  isFilled = false,
): Schema {
  const required = Object.entries(table).filter(
    ([, option]) => option.required === true && option.kind !== 'code',
  );
  return fields(
    { ...propertiesOf(table, isFilled), ...more },
    required.map(([name]) => name),
  );
}

function propertiesOf(table: OptionTable, isFilled = false): Readonly<Record<string, Schema>> {
  const options = Object.entries(table).filter(([, option]) => option.kind !== 'code');
  return Object.fromEntries(options.map(([name, option]) => [name, described(option, isFilled)]));
}

function described(option: Option, isFilled: boolean): Schema {
  const value = defaultOf(option);
  const words = defaultText(option);
  const isPlainDefault = value !== undefined && option.defaultText === undefined;
  const byDefault =
    isPlainDefault || option.kind === 'group' || words === 'none' || words === 'required'
      ? ''
      : ` Default: ${plain(words)}.`;
  const schema = schemaOf(option, isFilled);
  return {
    description: `${plain(option.about)}.${byDefault}`,
    ...(isPlainDefault ? { default: value } : {}),
    ...(option.secret === true ? { writeOnly: true } : {}),
    // Keywords beside a $ref are ignored in draft 7.
    ...('$ref' in schema ? { allOf: [schema] } : schema),
  };
}

function schemaOf(option: Option, isFilled: boolean): Schema {
  const orVariable = (schema: Schema): Schema => (isFilled ? anyOf(schema, VARIABLE) : schema);
  switch (option.kind) {
    case 'group':
      return object(option.options, {}, isFilled);
    case 'number':
      return orVariable({ type: 'integer', minimum: option.min, maximum: option.max });
    case 'decimal':
      return orVariable({ type: 'number', minimum: option.min, maximum: option.max });
    case 'bytes': {
      const [minimum, maximum] = [bytesOf(option.min), bytesOf(option.max)];
      return orVariable({ type: 'integer', minimum, maximum });
    }
    case 'duration': {
      const minimum = option.min === undefined ? 0 : durationMs(option.min, 'min');
      const maximum = durationMs(option.max ?? DURATION_MAX_MS, 'max');
      return anyOf({ type: 'number', minimum, maximum }, ref('span'));
    }
    case 'boolean':
      return orVariable({ type: 'boolean' });
    case 'choice':
      return anyOf(words(...option.choices), VARIABLE);
    default:
      return option.schema === undefined ? TEXT : ref(option.schema);
  }
}

/** What may stand alone in the place of the options, as in `{ fixed: '5s' }`. */
const ALONE: Readonly<Record<string, Schema>> = {
  fixed: DURATION,
  ladder: listOf(DURATION),
  custom: TEXT,
};

/** Every constructor of a policy, as data. */
const POLICIES: readonly Schema[] = Object.entries(POLICY_TABLES).map(([name, table]) =>
  policy(name, table),
);

/** The options of a policy stand below its name, beside it, or some here and some there. */
function policy(name: string, table: OptionTable): Schema {
  const options = propertiesOf(table);
  const { [name]: alone } = ALONE;
  const short = alone === undefined ? [] : [alone];
  const needed = Object.keys(table).filter((one) => table[one]?.required === true);
  const isThere = (one: string, at: number): Schema =>
    anyOf(
      { properties: { [one]: {} }, required: [one] },
      {
        properties: {
          [name]: anyOf(
            { type: 'object', properties: { [one]: {} }, required: [one] },
            ...(at === 0 ? short : []),
          ),
        },
      },
    );
  return {
    ...fields({ [name]: anyOf(...short, fields(options), NOTHING, words(true)), ...options }, [
      name,
    ]),
    ...(needed.length === 0 ? {} : { allOf: needed.map(isThere) }),
  };
}

/** One of several by its name, with its options or without. */
function family(tables: Readonly<Record<string, OptionTable>>): Schema {
  const withOptions = Object.entries(tables).map(([name, table]) =>
    one(name, anyOf(object(table), NOTHING)),
  );
  return anyOf(words(...Object.keys(tables)), ...withOptions);
}

const HTTP = one('http', object(HTTP_OPTIONS));
const COMMAND = listOf(TEXT);
const EXEC = one(
  'exec',
  anyOf(COMMAND, { ...object(EXEC_OPTIONS, { command: COMMAND }), required: ['command'] }),
);

const TRANSFORM: Schema = anyOf(
  TEXT,
  one('compress', words(...CODEC_NAMES), propertiesOf(COMPRESS_OPTIONS)),
  one('encrypt', object(ENCRYPT_OPTIONS)),
  one('decrypt', object(DECRYPT_OPTIONS)),
);

const POSTGRES = one('postgres', object(POSTGRES_OPTIONS));
const NATS = (...tables: readonly OptionTable[]): Schema =>
  one('nats', object(Object.assign({}, NATS_OPTIONS, ...tables) as OptionTable));

/** As `checkItemName` of src/config/load/config-errors.ts. */
const NAME: Schema = { type: 'string', pattern: '^[A-Za-z0-9._-]{1,64}$' };
const ALERT_ACTION: Schema = anyOf(
  one('pause', TEXT, { until: words('resolved', 'operator') }),
  one('hold', TEXT),
  one('replay', TEXT),
);

/** Whole numbers from 1 to 255, the exit codes that are failures. */
const EXIT_CODE: Schema = { type: 'integer', minimum: 1, maximum: 255 };

const DEFINITIONS: Readonly<Record<string, Schema>> = {
  variable: {
    type: 'string',
    pattern: String.raw`\$\{[^}]+\}`,
    description: 'A text with ${NAME}, filled in from the environment.',
  },
  span: {
    type: 'string',
    pattern: String.raw`^\s*0\s*$|^\s*(\d+(\.\d+)? *(ms|s|m|h|d) *)+$|\$\{[^}]+\}`,
    description: 'A span of time such as 250ms, 15m, 1h30m or 7d.',
  },
  duration: anyOf({ type: 'number', minimum: 0, maximum: DURATION_MAX_MS }, ref('span')),
  durations: { ...listOf(DURATION), maxItems: EXTRA_WAITS_MAX },
  texts: anyOf(TEXT, TEXT_LIST),
  textList: TEXT_LIST,
  textMap: mapOf(TEXT),
  anyObject: { type: 'object' },
  numbers: anyOf(
    { type: 'integer', minimum: 1, maximum: 10_000 },
    mapOf({ type: 'integer', minimum: 1, maximum: 10_000 }),
    VARIABLE,
  ),
  keepDelivered: anyOf(words('remove'), one('archive', DURATION), VARIABLE),
  keepBounced: anyOf(words('keep'), one('archive', DURATION), VARIABLE),
  partitions: fields({ partition: DURATION, keep: DURATION }, ['partition', 'keep']),
  exitCodes: listOf(EXIT_CODE),
  statusRules: listOf(anyOf({ type: 'integer', minimum: 100, maximum: 599 }, TEXT)),
  s3Credentials: fields({ accessKeyId: TEXT, secretAccessKey: TEXT, sessionToken: TEXT }, [
    'accessKeyId',
    'secretAccessKey',
  ]),
  store: anyOf(TEXT, POSTGRES, NATS(NATS_ENTRY_OPTIONS, NATS_BODY_OPTIONS)),
  entries: anyOf(TEXT, POSTGRES, NATS(NATS_ENTRY_OPTIONS)),
  bodies: anyOf(TEXT, POSTGRES, NATS(NATS_BODY_OPTIONS), one('s3', object(S3_OPTIONS))),
  transforms: anyOf(TRANSFORM, listOf(TRANSFORM)),
  keys: anyOf(mapOf(TEXT), VARIABLE),
  seal: anyOf(object(SEAL_OPTIONS), VARIABLE),
  delays: { ...listOf(DURATION), maxItems: ATTEMPTS_MAX },
  policy: anyOf(TEXT, ...POLICIES),
  policies: mapOf(ref('policy')),
  deliver: anyOf(HTTP, EXEC),
  routes: listOf(object(ROUTE_KEYS, {}, true)),
  bindings: listOf(object(BINDING_OPTIONS)),
  topology: family(STYLE_TABLES),
  compat: family(COMPAT_TABLES),
  nameOrFalse: anyOf(TEXT, words(false)),
  consumers: listOf(object(CONSUMER_KEYS, {}, true)),
  relayTarget: anyOf(object(EXCHANGE_TARGET_KEYS), one('spool', words(true)), HTTP, EXEC, VARIABLE),
  cleanUp: anyOf(words('at once', 'never'), DURATION, ref('partitions')),
  categories: listOf(object(CATEGORY_OPTIONS)),
  replayWhen: { ...object(REPLAY_WHEN_KEYS), minProperties: 1 },
  healthy: anyOf(words('consumers'), one('http', TEXT)),
  replayRules: listOf(object(REPLAY_RULE_KEYS, { name: NAME, when: ref('replayWhen') }, true)),
  tokens: listOf(object(TOKEN_KEYS)),
  metricAliases: listOf(words(...METRIC_ALIASES)),
  receivers: mapOf(anyOf(HTTP, EXEC, one('log', words('error', 'warn', 'info')))),
  alertActions: anyOf(ALERT_ACTION, listOf(ALERT_ACTION)),
  alertRules: listOf(object(ALERT_RULE_KEYS, { name: NAME })),
};

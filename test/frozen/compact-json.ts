/**
 * compact-json — a large JSON document as text that is short enough to read in a diff.
 *
 * What fits on a line stands on one. An object schema that occurs several times is written once,
 * under `shared`, by the names of its properties, so that a change of it is one change.
 */

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

const LINE_MAX_CHARS = 140;
/** A shorter schema is as easy to read as its name. */
const SHARED_MIN_CHARS = 120;

/** The document, with a trailing newline. */
export function compactJson(value: unknown): string {
  // What is undefined is not there.
  return `${printed(JSON.parse(JSON.stringify(value)) as Json, 0)}\n`;
}

/** `{ shared, document }`: the document with what it repeats taken out. */
export function shareSchemas(document: unknown): unknown {
  const counts = new Map<string, number>();
  count(document as Json, counts);
  const shared = new Map<string, string>();
  const named = nameSchemas(document as Json, counts, shared);
  const schemas: [string, Json][] = [];
  // n.b. What is shared may name more that is shared: the map grows while it is read.
  for (const [name, text] of shared) {
    const schema = Object.entries(JSON.parse(text) as Record<string, Json>);
    const inside = schema.map(([key, one]) => [key, nameSchemas(one, counts, shared)] as const);
    schemas.push([name, Object.fromEntries(inside)]);
  }
  return {
    shared: Object.fromEntries(schemas.sort(([a], [b]) => (a < b ? -1 : 1))),
    document: named,
  };
}

function count(value: Json, counts: Map<string, number>): void {
  if (typeof value !== 'object' || value === null) return;
  if (!Array.isArray(value) && 'properties' in value) {
    const text = JSON.stringify(value);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  for (const one of Object.values(value)) count(one, counts);
}

function nameSchemas(
  value: Json,
  counts: ReadonlyMap<string, number>,
  shared: Map<string, string>,
): Json {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((one) => nameSchemas(one, counts, shared));
  const text = JSON.stringify(value);
  if (text.length >= SHARED_MIN_CHARS && (counts.get(text) ?? 0) > 1) {
    return nameOf(value, text, shared);
  }
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [key, nameSchemas(one, counts, shared)]),
  );
}

function nameOf(
  schema: { [key: string]: Json },
  text: string,
  shared: Map<string, string>,
): string {
  const base = `{ ${Object.keys(schema['properties'] ?? {}).join(', ')} }`;
  let name = base;
  for (let number = 2; (shared.get(name) ?? text) !== text; number += 1) name = `${base} ${number}`;
  shared.set(name, text);
  return name;
}

function printed(value: Json, indent: number): string {
  const flat = JSON.stringify(value);
  if (typeof value !== 'object' || value === null) return flat;
  if (flat.length + indent <= LINE_MAX_CHARS) return flat;
  const pad = ' '.repeat(indent + 2);
  const end = ' '.repeat(indent);
  if (Array.isArray(value)) {
    return `[\n${value.map((one) => pad + printed(one, indent + 2)).join(',\n')}\n${end}]`;
  }
  const lines = Object.entries(value).map(
    ([key, one]) => `${pad}${JSON.stringify(key)}: ${printed(one, indent + 2)}`,
  );
  return `{\n${lines.join(',\n')}\n${end}}`;
}

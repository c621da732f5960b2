/** plain-object — whether a value is plain data, as from a literal or a parser. */

/** An object that is data: from a literal or a parser. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

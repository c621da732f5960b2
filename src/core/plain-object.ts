/** plain-object — data from a literal or a parser, told from objects that are more than data. */

/** An object that is data: from a literal or a parser. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

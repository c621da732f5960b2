/** shape — what was given, told by its kind and its names: its values may hold passwords. */

const NAMES_MAX = 10;

/** Such as `a text`, or `an object with url, exchange`. */
export function typeOf(given: unknown): string {
  if (given === undefined || given === null) return String(given);
  if (typeof given === 'string') return 'a text';
  if (typeof given !== 'object') return `a ${typeof given}`;
  if (Array.isArray(given)) return 'a list';
  const names = Object.keys(given).slice(0, NAMES_MAX);
  return names.length === 0 ? 'an object' : `an object with ${names.join(', ')}`;
}

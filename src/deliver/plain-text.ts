/** plain-text — bytes from elsewhere as a short text that is safe to keep and to show. */

// Control characters, half a terminal's language, and signs that turn the direction of a line.
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- control characters are exactly what is replaced.
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+/g;

const decoder = new TextDecoder();

/** One line without control characters, cut and marked at the limit. */
export function plainText(from: Uint8Array | string, maxChars: number): string {
  const text = typeof from === 'string' ? from : decoder.decode(from);
  const line = text.replaceAll(UNSAFE, ' ').trim();
  return (line.length <= maxChars ? line : `${line.slice(0, maxChars - 1)}…`).toWellFormed();
}

/** printable — user text that is stored and shown: control characters become `\\u001b`. Pure. */

// Control characters, ends of lines, what turns the direction of a line, halves of pairs.
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- control characters are what is escaped here.
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

/** The text with everything escaped that could end a line, steer a terminal or not be stored. */
export function printable(text: string): string {
  return text.replaceAll(
    UNSAFE,
    (char) => `\\u${(char.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  );
}

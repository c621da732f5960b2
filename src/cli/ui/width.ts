/**
 * width — how many columns a text takes in a terminal, and cutting it to this many.
 *
 * For text that went through safe(): no controls, no escapes.
 */

const PLAIN = /^[\u0020-\u007e]*$/;
const NO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;
const PICTURE = /\p{Emoji_Presentation}|\p{Regional_Indicator}|\ufe0f/u;

/** First and last of the ranges that East Asian terminals show in two columns. */
const WIDE: readonly (readonly [number, number])[] = [
  [0x11_00, 0x11_5f],
  [0x2e_80, 0x30_3e],
  [0x30_41, 0x33_ff],
  [0x34_00, 0x4d_bf],
  [0x4e_00, 0xa4_cf],
  [0xa9_60, 0xa9_7f],
  [0xac_00, 0xd7_a3],
  [0xf9_00, 0xfa_ff],
  [0xfe_30, 0xfe_6f],
  [0xff_00, 0xff_60],
  [0xff_e0, 0xff_e6],
  [0x1_f3_00, 0x1_f6_4f],
  [0x1_f9_00, 0x1_f9_ff],
  [0x2_00_00, 0x3_ff_fd],
];

/** How many columns a text takes. */
export function widthOf(text: string): number {
  if (PLAIN.test(text)) return text.length;
  let columns = 0;
  for (const { segment } of graphemesOf(text)) columns += widthOfGrapheme(segment);
  return columns;
}

/** The text in at most this many columns, with `…` where it was cut. */
export function cut(text: string, columns: number): string {
  if (columns < 1) return '';
  // Longer than any line can be: not worth measuring to its end.
  const head = text.slice(0, columns * LONGEST_GRAPHEME);
  if (head.length === text.length && widthOf(text) <= columns) return text;
  let taken = '';
  let used = 0;
  for (const { segment } of graphemesOf(head)) {
    used += widthOfGrapheme(segment);
    if (used > columns - 1) break;
    taken += segment;
  }
  return `${taken}…`;
}

/** In UTF-16 units, generously: a family of five with skin tones. */
const LONGEST_GRAPHEME = 20;

let segmenter: Intl.Segmenter | undefined;

/** Made at its first use: it costs 9 ms, and most output is plain. */
function graphemesOf(text: string): Iterable<Intl.SegmentData> {
  segmenter ??= new Intl.Segmenter(undefined, { granularity: 'grapheme' });
  return segmenter.segment(text);
}

function widthOfGrapheme(grapheme: string): number {
  if (NO_WIDTH.test(grapheme)) return 0;
  if (PICTURE.test(grapheme)) return 2;
  const code = grapheme.codePointAt(0) ?? 0;
  return WIDE.some(([first, last]) => code >= first && code <= last) ? 2 : 1;
}

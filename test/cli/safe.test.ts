/** safe — nothing that a terminal would obey gets through. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { jsonLine, numberText, safe } from '../../src/observe/logs/safe-text.ts';
import { cut, widthOf } from '../../src/cli/ui/table.ts';

const ESC = '\u001b';
const BEL = '\u0007';
const ST = `${ESC}\\`;
const ST8 = '\u009c';
const CSI8 = '\u009b';

/** What comes in, and what is shown; each between `a` and `b`. */
const SEQUENCES: readonly (readonly [string, string, string?])[] = [
  // Colours and other CSI, in seven and in eight bits.
  [`${ESC}[31m`, ''],
  [`${ESC}[0m`, ''],
  [`${ESC}[1;4;31m`, ''],
  [`${ESC}[38;5;196m`, ''],
  [`${ESC}[38:2::255:0:0m`, ''],
  [`${ESC}[2J`, ''],
  [`${ESC}[3J`, ''],
  [`${ESC}[H`, ''],
  [`${ESC}[10;20H`, ''],
  [`${ESC}[K`, ''],
  [`${ESC}[1A`, ''],
  [`${ESC}[99D`, ''],
  [`${ESC}[6n`, ''],
  [`${ESC}[5n`, ''],
  [`${ESC}[c`, ''],
  [`${ESC}[>c`, ''],
  [`${ESC}[?25l`, ''],
  [`${ESC}[?1049h`, ''],
  [`${ESC}[?2004h`, ''],
  [`${ESC}[?1000h`, ''],
  [`${ESC}[20t`, ''],
  [`${ESC}[21t`, ''],
  [`${ESC}[8;1;1t`, ''],
  [`${ESC}[!p`, ''],
  [`${ESC}[4h`, ''],
  [`${ESC}[2 q`, ''],
  [`${ESC}[i`, ''],
  [`${ESC}[5i`, ''],
  [`${ESC}[1;1\u0022p`, ''],
  [`${ESC}[31`, '', 'unfinished, and the b after it is its end'],
  [`${CSI8}31m`, ''],
  [`${CSI8}2J`, ''],
  [`${CSI8}6n`, ''],
  [`${CSI8}?1049h`, ''],
  [`${CSI8}H`, ''],
  // OSC: titles, clipboard, links, colours, notifications.
  [`${ESC}]0;title${BEL}`, ''],
  [`${ESC}]0;title${ST}`, ''],
  [`${ESC}]2;title${BEL}`, ''],
  [`${ESC}]52;c;cm0gLXJmIC8=${BEL}`, ''],
  [`${ESC}]52;c;cm0gLXJmIC8=${ST}`, ''],
  [`${ESC}]52;c;?${BEL}`, ''],
  [`${ESC}]8;;https://evil.example${ST}click${ESC}]8;;${ST}`, 'click'],
  [`${ESC}]8;;https://evil.example${BEL}click${ESC}]8;;${BEL}`, 'click'],
  [`${ESC}]8;id=1;file:///etc/passwd${ST}x${ESC}]8;;${ST}`, 'x'],
  [`${ESC}]4;1;rgb:ff/00/00${BEL}`, ''],
  [`${ESC}]10;?${BEL}`, ''],
  [`${ESC}]11;#000000${ST}`, ''],
  [`${ESC}]9;notify${BEL}`, ''],
  [`${ESC}]777;notify;a;b${BEL}`, ''],
  [`${ESC}]1337;File=inline=1:AAAA${BEL}`, ''],
  [`${ESC}]50;?${BEL}`, ''],
  [`${ESC}]133;A${BEL}`, ''],
  [`\u009d0;title${BEL}`, ''],
  [`\u009d52;c;QQ==${ST8}`, ''],
  [`\u009d8;;https://evil.example${ST8}x\u009d8;;${ST8}`, 'x'],
  [`${ESC}]0;no end`, '0;no end'],
  [`\u009d0;no end`, '0;no end'],
  // DCS, APC, PM, SOS.
  [`${ESC}P$q"p${ST}`, ''],
  [`${ESC}P+q544e${ST}`, ''],
  [`${ESC}P1$r0m${ST8}`, ''],
  [`${ESC}Ptmux;x${ST}`, ''],
  [`\u0090$q"p${ST8}`, ''],
  [`\u0090q#0;2;0;0;0${ST}`, ''],
  [`${ESC}_Gf=24,s=1;AAAA${ST}`, ''],
  [`\u009fGa=T;AAAA${ST8}`, ''],
  [`${ESC}^private${ST}`, ''],
  [`\u009eprivate${ST8}`, ''],
  [`${ESC}Xstring${ST}`, ''],
  [`\u0098string${ST8}`, ''],
  [`${ESC}Pno end`, 'no end'],
  [`${ESC}_no end`, 'no end'],
  // Short escapes: reset, character sets, cursor, keypad, and one that only begins.
  [`${ESC}c`, ''],
  [`${ESC}7`, ''],
  [`${ESC}8`, ''],
  [`${ESC}D`, ''],
  [`${ESC}E`, ''],
  [`${ESC}H`, ''],
  [`${ESC}M`, ''],
  [`${ESC}Z`, ''],
  [`${ESC}=`, ''],
  [`${ESC}>`, ''],
  [`${ESC}(0`, ''],
  [`${ESC}(B`, ''],
  [`${ESC}#8`, ''],
  [`${ESC}%G`, ''],
  [`${ESC}${ESC}[31m`, ''],
  // Single controls.
  ['\u0000', ''],
  [BEL, ''],
  ['\b\b\b', ''],
  ['\u000b', ''],
  ['\u000c', ''],
  ['\u000e', ''],
  ['\u000f', ''],
  ['\u0011', ''],
  ['\u0013', ''],
  ['\u0018', ''],
  ['\u001a', ''],
  ['\u007f', ''],
  ['\u0084', ''],
  ['\u008d', ''],
  ['\u009c', ''],
  // Ways to write over what is there, to break a line, to turn it round.
  ['\r', ''],
  ['\r\n', ' '],
  ['\n', ' '],
  ['\t', ' '],
  ['\u0085', ' '],
  ['\u2028', ' '],
  ['\u2029', ' '],
  ['\u202e', ''],
  ['\u202d', ''],
  ['\u202a', ''],
  ['\u202b', ''],
  ['\u202c', ''],
  ['\u2066', ''],
  ['\u2067', ''],
  ['\u2068', ''],
  ['\u2069', ''],
  ['\u200e', ''],
  ['\u200f', ''],
  ['\u061c', ''],
  // What nobody sees.
  ['\u00ad', ''],
  ['\u200b', ''],
  ['\u200c', ''],
  ['\u200d', ''],
  ['\u2060', ''],
  ['\u2064', ''],
  ['\ufeff', ''],
  ['\u{e0000}', ''],
  ['\u{e0041}\u{e007f}', ''],
  ['\ud800', '\ufffd'],
  // What is text stays text.
  ['ä€😀', 'ä€😀'],
  ['e\u0301', 'e\u0301'],
];

describe('safe', () => {
  test.each(SEQUENCES)('of %j shows %j', (sequence, shown, note) => {
    const after = note === undefined ? 'b' : '';
    expect(safe(`a${sequence}b`)).toBe(`a${shown}${after}`);
  });

  test('knows about a hundred sequences and more', () => {
    expect(SEQUENCES.length).toBeGreaterThanOrEqual(100);
  });

  test('keeps line feeds and tabs where several lines are wanted', () => {
    expect(safe('a\tb\r\nc\u2028d\n\n', { multiline: true })).toBe('a\tb\nc\nd\n\n');
  });

  test('holds its promise for whatever comes', () => {
    const piece = fc.oneof(
      fc.constantFrom(...SEQUENCES.map(([sequence]) => sequence)),
      fc.constantFrom(ESC, CSI8, BEL, ST, ST8, '[', ']', 'P', ';', 'm', '\ud83d'),
      fc.string({ unit: 'binary' }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), fc.boolean(), (pieces, multiline) => {
        const shown = safe(pieces.join(''), { multiline });
        const rest = multiline ? shown.replaceAll(/[\t\n]/g, '') : shown;
        expect(rest).not.toMatch(/[\p{Cc}\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/u);
        expect(shown.isWellFormed()).toBe(true);
      }),
    );
  });

  test('takes no longer than the text is long', () => {
    // Quadratic time would take longer than the time limit of a test.
    expect(safe(`${ESC}]`.repeat(2_000_000))).toBe('');
    expect(safe(`${ESC}]x`.repeat(2_000_000)).length).toBe(2_000_000);
    expect(safe(`${ESC}[${'1;'.repeat(2_000_000)}`).length).toBe(4_000_000);
  });
});

test.each([
  [7, '7'],
  [undefined, '?'],
  [[`${ESC}[2J`], '?'],
  [{ toString: 'x' }, '?'],
  [null, '?'],
])('what is no text after all (%j) is shown as %j', (value, shown) => {
  expect(safe(value as unknown as string)).toBe(shown);
  expect(numberText(value)).toBe(shown);
  expect(numberText(`${ESC}[2J`)).toBe('?');
});

test('a line of JSON holds no control character, and reads back as it was', () => {
  const text = '\u007f\u009b31m\u2028\u202e\u001b[0m\nä\u200b\ufeff\u{e0041}';
  const value = { id: 'x', text };
  const line = jsonLine(value);
  expect(line).not.toMatch(/[\p{Cc}\u2028\u202e\u200b\ufeff\u{e0041}]/u);
  expect(JSON.parse(line)).toEqual(value);
});

describe('width', () => {
  test.each([
    ['abc', 3],
    ['', 0],
    ['日本', 4],
    ['e\u0301', 1],
    ['😀', 2],
    ['👨‍👩‍👧', 2],
    ['🇩🇪', 2],
    ['한글', 4],
    ['ﾊﾝ', 2],
  ])('%j takes %i columns', (text, columns) => {
    expect(widthOf(text)).toBe(columns);
  });

  test.each([
    ['abcdef', 6, 'abcdef'],
    ['abcdef', 5, 'abcd…'],
    ['日本語', 5, '日本…'],
    ['日本語', 4, '日…'],
    ['😀😀', 3, '😀…'],
    ['abc', 0, ''],
    ['x'.repeat(100_000), 3, 'xx…'],
  ])('%j cut to %i columns is %j', (text, columns, shown) => {
    expect(cut(text, columns)).toBe(shown);
    expect(widthOf(cut(text, columns))).toBeLessThanOrEqual(columns);
  });
});

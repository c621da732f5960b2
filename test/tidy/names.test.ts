/**
 * names — what files and exported names in src/ are called.
 *
 * An entry of known-names.ts that is not needed any more is refused.
 */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import * as known from './known-names.ts';
import * as rules from './name-rules.ts';
import { parseSource, readSources } from './source.ts';

interface RuleCase {
  readonly rule: rules.NameRule;
  readonly known: readonly string[];
  readonly bad: readonly Readonly<Record<string, string>>[];
  readonly good: readonly Readonly<Record<string, string>>[];
}

const CASES: Readonly<Record<string, RuleCase>> = {
  'no file and no exported name is a participle alone': {
    rule: rules.namesAreNoBareParticiples,
    known: Object.keys(known.PUBLIC_PARTICIPLES),
    bad: [
      { 'rabbit/told.ts': '' },
      { 'core/a.ts': 'export interface Held {}' },
      { 'core/a.ts': 'export const [first] = list, quoted = 1;' },
      { 'core/a.ts': 'export async function stored() {}' },
    ],
    good: [
      { 'stores/sent-partitions.ts': 'export class SentPartitions {}' },
      { 'core/a.ts': 'interface Held {} const kept = 1; export const isHeld = 1;' },
      { 'core/feed.ts': 'export interface Feed {} export const seed = 1;' },
    ],
  },
  'no file and no exported name is a word of several meanings alone': {
    rule: rules.namesAreNotAmbiguous,
    known: Object.keys(known.PUBLIC_WORDS),
    bad: [
      { 'engine/slots.ts': '' },
      { 'engine/a.ts': 'export class Pass {}' },
      { 'engine/a.ts': "export type Lane = 'a';" },
    ],
    good: [
      { 'core/a.ts': 'export interface KeyPlace {} export function openPass() {}' },
      { 'core/order-keys.ts': 'export const turnOver = 1; const line = 2;' },
    ],
  },
  'no name is exported by two rooms': {
    rule: rules.roomsShareNoExportedName,
    known: Object.keys(known.SHARED),
    bad: [{ 'core/a.ts': 'export const a = 1;', 'engine/b.ts': 'export type a = 1;' }],
    good: [
      { 'core/a.ts': 'export const a = 1;', 'engine/b.ts': "export { a } from '../core/a.ts';" },
      { 'core/a.ts': 'export const a = 1;', 'core/deep/b.ts': 'export const a = 1;' },
      { 'stores/nats/a.ts': 'export class A {}', 'stores/s3/a.ts': 'export class A {}' },
    ],
  },
  'no interface …Parts is there without a reason': {
    rule: rules.partsAreNeeded,
    known: Object.keys(known.PARTS_WITH_A_REASON),
    bad: [
      { 'core/a.ts': 'export interface WriterParts {}' },
      { 'core/a.ts': 'interface WriterParts {}' },
    ],
    good: [
      { 'core/a.ts': 'export type PartsList = 1;' },
      { 'core/a.ts': 'export const nameParts = 1;' },
    ],
  },
  'no parameter is called by a participle alone': {
    rule: rules.parametersAreNoBareParticiples,
    known: [],
    bad: [
      { 'core/a.ts': 'export function a(given: Options): void {}' },
      { 'core/a.ts': 'const a = (told) => told;' },
    ],
    good: [{ 'core/a.ts': 'export function a(options: Options, isKnown: boolean): void {}' }],
  },
};

const sources = readSources(path.join(import.meta.dirname, '../../src'));

describe('src/', () => {
  test.each(Object.entries(CASES))('%s', (title, { rule, known: allowed }) => {
    const list = rule(sources)
      .filter(({ key }) => !allowed.includes(key))
      .map(({ path: file, what }) => `src/${file} ${what}`);
    expect(list, `${title}:\n${list.join('\n')}\n`).toEqual([]);
  });
});

describe('no known name is listed without need', () => {
  test.each(Object.entries(CASES))('%s', (_, { rule, known: allowed }) => {
    const keys = new Set(rule(sources).map(({ key }) => key));
    expect(allowed.filter((key) => !keys.has(key))).toEqual([]);
    expect(allowed).toHaveLength(new Set(allowed).size);
  });
});

describe('the rule', () => {
  test.each(Object.entries(CASES))('"%s" catches what it should, no more', (_, ruleCase) => {
    const namesIn = (sample: Readonly<Record<string, string>>): rules.BadName[] =>
      ruleCase.rule(Object.entries(sample).map(([file, text]) => parseSource(file, text)));
    expect(ruleCase.bad.filter((sample) => namesIn(sample).length === 0)).toEqual([]);
    expect(ruleCase.good.flatMap(namesIn)).toEqual([]);
  });
});

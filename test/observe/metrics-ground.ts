/**
 * metrics-ground — a scrape as data: a small reader of the text format of Prometheus, which knows
 * nothing of how the text was made.
 */
import { createMetrics, type Metrics, type MetricsOptions } from 'respool/observe';
import { onTestFinished } from 'vitest';
import { setup, type World, type WorldOptions } from '../spool/setup.ts';
import type { Spool } from 'respool';
import { setInternals, type SpoolInternals } from '../../src/spool/internals.ts';

/** One line of a scrape. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Everything of a scrape. */
export interface Scrape {
  /** By the names in `# TYPE`. */
  readonly types: ReadonlyMap<string, string>;
  readonly samples: readonly Sample[];
  /** The value of the one sample of this name and exactly these labels; undefined: none. */
  readonly value: (name: string, labels?: Readonly<Record<string, string>>) => number | undefined;
  /** Every value that a label takes, anywhere. */
  readonly labelled: (label: string) => ReadonlySet<string>;
}

/** A spool in virtual time, and metrics that watch it. */
export async function watched(
  options: MetricsOptions = {},
  world: WorldOptions = {},
): Promise<World & { readonly metrics: Metrics; readonly scrape: () => Promise<Scrape> }> {
  const made = await setup(world);
  const metrics = await createMetrics({ clock: made.clock, ...options });
  onTestFinished(() => metrics.close());
  metrics.watch(made.spool);
  return { ...made, metrics, scrape: () => scrapeOf(metrics) };
}

/** Asks and reads. */
export async function scrapeOf(metrics: Pick<Metrics, 'text'>): Promise<Scrape> {
  return parse((await metrics.text()).text);
}

/** Reads the text format; a line that does not fit it is an error. */
export function parse(text: string): Scrape {
  const types = new Map<string, string>();
  const samples: Sample[] = [];
  for (const line of text.split('\n')) {
    const type = /^# TYPE (\S+) (\S+)$/.exec(line);
    if (type !== null) types.set(type[1] ?? '', type[2] ?? '');
    if (line === '' || line.startsWith('#')) continue;
    samples.push(sampleOf(line));
  }
  return {
    types,
    samples,
    value: (name, labels = {}) => {
      const found = samples.filter((one) => one.name === name && isSame(one.labels, labels));
      if (found.length > 1) throw new Error(`${name} is there ${found.length} times`);
      return found[0]?.value;
    },
    labelled: (label) =>
      new Set(samples.flatMap(({ labels }) => (label in labels ? [labels[label] ?? ''] : []))),
  };
}

const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/y;

function sampleOf(line: string): Sample {
  const parts = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
  if (parts === null) throw new Error(`no sample: ${line}`);
  const [, name = '', inner = '', value = ''] = parts;
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < inner.length) {
    const found = LABEL.exec(inner);
    if (found === null) throw new Error(`no labels: ${line}`);
    const [, label = '', escaped = ''] = found;
    labels[label] = escaped.replaceAll(/\\(.)/g, (_, one: string) => (one === 'n' ? '\n' : one));
  }
  return { name, labels, value: Number(value.replace('Inf', 'Infinity')) };
}

function isSame(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

/** A spool of which metrics read only this. */
export function spoolWith(parts: object): Spool {
  const spool = {} as Spool;
  setInternals(spool, parts as SpoolInternals);
  return spool;
}

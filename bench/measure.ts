/**
 * measure — interleaved runs, medians, and one line per case.
 */

/** How a bench was asked to run. */
export interface BenchOptions {
  /** Only the cases that the targets name, in under 40 s. */
  readonly isQuick: boolean;
  /** One JSON object per line instead of a table. */
  readonly isJson: boolean;
  /** Which of the cases, by parts of their names; each list by itself, all of them if it is empty. */
  readonly only: Selection;
}

/** What was chosen by flags. */
export interface Selection {
  /** `--pairs`, such as `postgres,nats+s3`. */
  readonly pairs: readonly string[];
  /** `--in-flight`, such as `1,50`. */
  readonly inFlight: readonly string[];
  /** `--sizes`, such as `1 KiB,1 MiB`. */
  readonly sizes: readonly string[];
  /** `--case`, such as `end-to-end`: any part of the name. */
  readonly parts: readonly string[];
}

/** What one run of one side measured. */
export interface Sample {
  /** In the unit of the case; more is better unless the unit is a time. */
  readonly value: number;
  readonly p50Ms?: number;
  readonly p95Ms?: number;
  readonly p99Ms?: number;
}

/** One case: our side and the other, each run once per round, for so long. */
export interface BenchCase {
  readonly bench: string;
  readonly name: string;
  readonly unit: string;
  readonly against: string;
  readonly forMs: number;
  /** Default 3. */
  readonly rounds?: number;
  /** What the ratio should be at least. */
  readonly wanted?: number;
  ours(forMs: number): Promise<Sample>;
  theirs(forMs: number): Promise<Sample>;
}

/** At least three rounds, so that a median means something. */
const ROUNDS = 3;
/** With so many a machine that drifts does so between them, not within: each has its own ratio. */
const PAIRED_ROUNDS = 7;
/** Both sides run once before, not counted: code that was never run is slow for a while. */
const WARM_UP_MS = 300;

/** Runs a case: ours and theirs in turns, so that a drift of the machine hits both. */
export async function runCase(bench: BenchCase, options: BenchOptions): Promise<void> {
  const ours: Sample[] = [];
  const theirs: Sample[] = [];
  await bench.ours(WARM_UP_MS);
  await bench.theirs(WARM_UP_MS);
  const { rounds = ROUNDS } = bench;
  for (let round = 0; round < rounds; round += 1) {
    // Who goes first changes, too.
    const isOursFirst = round % 2 === 0;
    if (isOursFirst) ours.push(await bench.ours(bench.forMs));
    theirs.push(await bench.theirs(bench.forMs));
    if (!isOursFirst) ours.push(await bench.ours(bench.forMs));
  }
  const ratio = rounds < PAIRED_ROUNDS ? undefined : middleRatio(ours, theirs);
  report(bench, { ours: middle(ours), theirs: middle(theirs), ratio }, options);
}

/** Reports a case whose sides were measured together. */
export function reportPair(
  bench: Omit<BenchCase, 'ours' | 'theirs' | 'forMs'>,
  { ours, theirs }: { readonly ours: Sample; readonly theirs: Sample },
  options: BenchOptions,
): void {
  report(bench, { ours, theirs, ratio: undefined }, options);
}

/** The median of what each round gives: its two sides ran one right after the other. */
function middleRatio(ours: readonly Sample[], theirs: readonly Sample[]): number {
  const ratios = ours.map(({ value }, round) => ({
    value: value / (theirs[round]?.value ?? Number.NaN),
  }));
  return middle(ratios).value;
}

/** The sample with the median value. */
function middle(samples: readonly Sample[]): Sample {
  const sorted = samples.toSorted((a, b) => a.value - b.value);
  return sorted[Math.floor(sorted.length / 2)] ?? { value: Number.NaN };
}

function report(
  bench: Omit<BenchCase, 'ours' | 'theirs' | 'forMs'>,
  measured: { readonly ours: Sample; readonly theirs: Sample; readonly ratio: number | undefined },
  { isJson }: BenchOptions,
): void {
  const { ours, theirs } = measured;
  const ratio = measured.ratio ?? ours.value / theirs.value;
  if (isJson) {
    console.log(
      JSON.stringify({
        bench: bench.bench,
        case: bench.name,
        unit: bench.unit,
        ours: round(ours.value),
        against: bench.against,
        theirs: round(theirs.value),
        ratio: Number(ratio.toFixed(3)),
        ...(bench.wanted === undefined ? {} : { wanted: bench.wanted }),
        ...timesOf(ours),
        ...(theirs.p95Ms === undefined ? {} : { theirTimes: timesOf(theirs) }),
      }),
    );
    return;
  }
  const latency =
    latencyText(ours) +
    (theirs.p95Ms === undefined ? '' : `  ${bench.against}${latencyText(theirs)}`);
  const wanted = bench.wanted === undefined ? '' : ` (wanted ${bench.wanted.toFixed(2)})`;
  console.log(
    `${bench.name.padEnd(44)} ${format(ours.value).padStart(9)} ${bench.unit}  ` +
      `${bench.against} ${format(theirs.value).padStart(9)}  ratio ${ratio.toFixed(2)}${wanted}${latency}`,
  );
}

function timesOf({ p50Ms, p95Ms, p99Ms = 0 }: Sample): Readonly<Record<string, number>> {
  if (p50Ms === undefined) return {};
  const middle = p95Ms === undefined ? {} : { p95Ms: round(p95Ms) };
  return { p50Ms: round(p50Ms), ...middle, p99Ms: round(p99Ms) };
}

function latencyText({ p50Ms, p95Ms, p99Ms = 0 }: Sample): string {
  if (p50Ms === undefined) return '';
  const middle = p95Ms === undefined ? '' : `  p95 ${p95Ms.toFixed(2)} ms`;
  return `  p50 ${p50Ms.toFixed(2)} ms${middle}  p99 ${p99Ms.toFixed(2)} ms`;
}

function round(value: number): number {
  return value >= 100 ? Math.round(value) : Number(value.toFixed(3));
}

function format(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3);
}

/** The value below which this share of a sorted list lies. */
export function percentile(values: number[], share: number): number {
  values.sort((a, b) => a - b);
  return values[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0;
}

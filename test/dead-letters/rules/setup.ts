/** setup — rules over letters, replays and a broker's health that a test decides about. */
import type { RecordStore } from 'respool';
import type { Replay, ReplayOptions, ReplaySource } from 'respool/dead-letters';
import { createMemoryData } from 'respool/stores/memory';
import { SimClock } from 'respool/testkit';
import { createMemoryRecords } from '../../../src/stores/memory/records.ts';
import { NO_COUNTS } from '../../../src/dead-letters/replay/run-state.ts';
import {
  stateOf,
  type RuleHealth,
  type HealthQuestion,
  type ReplayRule,
  type RuleHands,
  type RuleNews,
  type RulePlace,
  type RuleTools,
} from '../../../src/dead-letters/rules/types.ts';
import type { Caution, DeadLetters, Letter } from '../../../src/ports/dead-letters.ts';
import { fakeLetters, letterOf as fakeLetter } from '../fake-letters.ts';

export { NO_COUNTS };

/** A letter that died because its destination was not reached. */
export function letterOf(id: string, more: Partial<Letter> = {}): Letter {
  const home = { kind: 'queue', exchange: '', key: 'orders' } as const;
  return fakeLetter({ id, key: id, code: 'http.502', reason: 'bad gateway', home, ...more });
}

export function ruleOf(given: Partial<ReplayRule> = {}): ReplayRule {
  return {
    name: 'r',
    when: { category: 'network', queue: 'dlq' },
    every: '5m',
    rate: 10,
    times: 3,
    max: 1_000,
    canary: 1,
    ...given,
  };
}

/** A place whose looks are counted. */
export class Place implements RulePlace {
  readonly source: ReplaySource;
  readonly letters: DeadLetters;
  readonly lying: Letter[] = [];
  readonly queries: unknown[] = [];
  looks = 0;
  caution: Caution = { kind: 'free' };
  isBroken = false;

  constructor(queue = 'dlq') {
    this.source = { kind: 'queue', queue, broker: 'amqp://b' };
    const fake = fakeLetters(this.lying);
    this.letters = {
      ...fake,
      name: `queue "${queue}"`,
      caution: async () => this.caution,
      look: (options) => {
        if (this.isBroken) throw new Error('the channel is gone');
        this.looks += 1;
        this.queries.push(options?.query);
        return fake.look(options);
      },
    };
  }

  put(...letters: readonly Letter[]): void {
    this.lying.splice(0, this.lying.length, ...letters);
  }
}

/** Replays that end as a test says. */
class Hands implements RuleHands {
  readonly replays = new Map<string, Replay>();
  readonly planned: { readonly options: ReplayOptions; readonly by: string }[] = [];
  readonly ran: string[] = [];
  readonly unsureOf = new Map<string, string[]>();
  /** What a run makes of a replay. */
  end: (replay: Replay, signal: AbortSignal) => Promise<Partial<Replay>> = async ({ plan }) => ({
    state: 'done',
    counts: { ...NO_COUNTS, sent: plan.count },
  });

  async plan(place: RulePlace, options: ReplayOptions, by: string): Promise<Replay> {
    this.planned.push({ options, by });
    const count = options.query?.ids?.length ?? 0;
    const replay = {
      id: `p${this.planned.length}`,
      source: place.source,
      state: 'planned',
      plan: { count },
      counts: NO_COUNTS,
    } as unknown as Replay;
    this.replays.set(replay.id, replay);
    return replay;
  }

  async run(_: RulePlace, id: string, { signal }: { signal: AbortSignal }): Promise<Replay> {
    this.ran.push(id);
    const replay = this.replays.get(id) as Replay;
    const ended = { ...replay, ...(await this.end(replay, signal)) };
    this.replays.set(id, ended);
    return ended;
  }

  async read(id: string): Promise<Replay | undefined> {
    return this.replays.get(id);
  }

  async cancel(id: string): Promise<void> {
    this.replays.set(id, { ...(this.replays.get(id) as Replay), state: 'cancelled' });
  }

  async unsure(id: string): Promise<readonly string[]> {
    return this.unsureOf.get(id) ?? [];
  }
}

/** Everything that a rule needs; what a test does not say is well. */
export class Ground {
  readonly clock: SimClock;
  readonly records: RecordStore;
  readonly place = new Place();
  readonly hands = new Hands();
  readonly news: RuleNews[] = [];
  readonly asked: HealthQuestion[] = [];
  readonly stop = new AbortController();
  places: readonly RulePlace[] = [this.place];
  health: RuleHealth = 'well';
  closed = 0;

  constructor(other?: Ground) {
    this.clock = other?.clock ?? new SimClock();
    this.records =
      other?.records ?? createMemoryRecords(createMemoryData() as never, () => undefined);
  }

  tools(given: Partial<RuleTools> = {}): RuleTools {
    return {
      operator: () => ({ records: this.records, recordAction: async () => undefined }),
      openPlaces: async () => ({
        places: this.places,
        close: async () => {
          this.closed += 1;
        },
      }),
      health: async (question) => {
        this.asked.push(question);
        return this.health;
      },
      hands: this.hands,
      categories: [],
      clock: this.clock,
      signal: this.stop.signal,
      tell: (news) => this.news.push(news),
      runner: 'one',
      ...given,
    };
  }

  state(rule = 'r') {
    return stateOf(this.records, rule);
  }
}

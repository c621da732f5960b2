/** suites-outbox — the outbox with full numbers: killed relays, a broker that is away, a crashed database. */
import { outboxRun } from '../outbox/faults/run.ts';
import { skipReason } from '../services/index.ts';
import { withServers } from './suites-nodes.ts';
import type { Row } from './verdict.ts';

interface OutboxOptions {
  readonly seed: number;
  /** How many kills, instead of the suite's own number. */
  readonly kills: number | undefined;
}

const KILLS = 50;
/** Kills in the life of one run: its processes do not live for ever. */
const KILLS_AT_ONCE = 50;
const HOLD_MS = 3_000;
const MESSAGES_MAX = 40;
const BROKER_AWAY_MS = 30_000;
/** Relays that found the broker away wait up to half a minute, and so do their claims. */
const END_MAX_MS = 240_000;

/** Writers, relays and consumers on servers of their own. */
export function outboxSuite({ seed, kills = KILLS }: OutboxOptions): Promise<readonly Row[]> {
  return withServers(async () => {
    let row: Row = {
      suite: 'outbox',
      place: 'postgres',
      faults: 0,
      messages: 0,
      lost: 0,
      duplicated: 0,
      bound: 0,
      unexpected: 0,
      corrupt: 0,
      worstRecoveryMs: 0,
      complaints: [],
    };
    const skipped = skipReason('postgres') ?? skipReason('rabbitmq');
    if (skipped !== undefined) return [{ ...row, skipped }];
    for (let part = 0; row.faults < kills; part += 1) {
      const one = await outboxRun({
        kills: Math.min(KILLS_AT_ONCE, kills - row.faults),
        seed: seed + part,
        holdMs: HOLD_MS,
        messagesMax: MESSAGES_MAX,
        brokerAwayMs: BROKER_AWAY_MS,
        endMaxMs: END_MAX_MS,
      });
      row = {
        ...row,
        faults: row.faults + one.kills,
        messages: row.messages + one.messages,
        lost: row.lost + one.lost,
        duplicated: row.duplicated + one.duplicated,
        bound: row.bound + one.bound,
        unexpected: row.unexpected + one.unexpected,
        worstRecoveryMs: Math.max(row.worstRecoveryMs ?? 0, one.endedMs),
        complaints: [
          ...row.complaints,
          ...one.complaints.map((text) => `seed ${one.seed}: ${text}`),
        ],
      };
    }
    return [row];
  });
}

/** x-death — where and why a broker gave a message up, by `x-death` or what we kept of it. Pure. */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import type { Table } from '../connection/amqp.ts';
import { countOf, H } from '../consume/message-history.ts';

/** One line of `x-death`. */
export interface Death {
  readonly queue: string;
  /** `rejected`, `expired`, `maxlen`, `delivery_limit`. */
  readonly reason: string;
  readonly exchange: string;
  readonly keys: readonly string[];
  readonly at: Millis | undefined;
}

/** Only this many are read: a hostile header may hold any number. */
const DEATHS_READ_MAX = 200;

/** The copy of a stripped `x-death` that we keep is shorter. */
const KEPT_MAX_CHARS = 65_536;

/** All of them, the newest first; what is not one is left out. */
export function xDeathsOf(headers: Table): readonly Death[] {
  return xDeathLines(headers, DEATHS_READ_MAX).flatMap(deathOf);
}

/** The first lines as they are, the newest first: whatever is in them. */
export function xDeathLines(headers: Table, max: number): readonly unknown[] {
  const told = headers['x-death'] ?? kept(headers[H.deaths]);
  return Array.isArray(told) ? told.slice(0, max) : [];
}

/** What we kept of it when the message was last published without it. */
function kept(text: unknown): unknown {
  if (typeof text !== 'string' || text.length > KEPT_MAX_CHARS) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    // Somebody else wrote into our header.
    return undefined;
  }
}

function deathOf(entry: unknown): Death[] {
  if (typeof entry !== 'object' || entry === null) return [];
  const { queue, reason, exchange, time, 'routing-keys': keys } = entry as Table;
  if (typeof queue !== 'string' || queue === '') return [];
  return [
    {
      queue,
      reason: typeof reason === 'string' && REASON.test(reason) ? reason : 'unknown',
      exchange: typeof exchange === 'string' ? exchange : '',
      keys: Array.isArray(keys) ? keys.filter((key) => typeof key === 'string') : [],
      at: timeOf(time),
    },
  ];
}

const REASON = /^[a-z_-]{1,32}$/;

/** n.b. amqplib wraps it: `{ '!': 'timestamp', value: seconds }`. */
function timeOf(time: unknown): Millis | undefined {
  const seconds = typeof time === 'object' && time !== null ? (time as Table)['value'] : time;
  const ms = countOf(seconds) * SECOND_MS;
  return Number.isSafeInteger(ms) && ms > 0 ? ms : undefined;
}

/** life — what pause.ts, poison.ts and shutdown.ts share: messages in the ledger and in the spool. */
import type { Ledger } from './ledger.ts';
import { type Place, spoolAt } from './places.ts';
import { bodyOf, type Plan, sha256 } from './plans.ts';

/** A message to put into a spool before its program starts. */
export interface Laid {
  readonly key: string;
  readonly topic: string;
  /** What the checker expects of it. */
  readonly plan: Plan;
}

const BODY_BYTES = 500;

/** Puts messages down in this order, as another process would, and enters them in the ledger. */
export async function layDown(
  place: Place,
  path: string,
  ledger: Ledger,
  messages: readonly Laid[],
): Promise<void> {
  const spool = spoolAt(place, path);
  for (const { key, topic, plan } of messages) {
    const body = bodyOf(key, BODY_BYTES);
    const hash = sha256(body);
    ledger.enter({ key, plan, size: BODY_BYTES, sha256: hash, hasOwnId: true });
    await spool.enqueue({ id: key, topic, headers: { key }, body });
  }
  await spool.stop();
}

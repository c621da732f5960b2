/** tell — the event of a settled verdict. Built only when somebody hears its kind. */

import type { Millis } from '../core/duration.ts';
import { unreachable } from '../core/errors.ts';
import type { EventKind } from '../core/event.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Claim } from '../ports/source.ts';
import type { EngineParts } from './parts.ts';

const KIND_OF: Readonly<Record<Verdict['kind'], EventKind>> = {
  ack: 'delivered',
  defer: 'deferred',
  bounce: 'bounced',
  hold: 'held',
  release: 'released',
};

/** Tells listeners what became of a claim. */
export function tellVerdict(
  engine: { readonly parts: Pick<EngineParts, 'events' | 'source'>; now(): Millis },
  claim: Claim,
  verdict: Verdict,
  tookMs: number,
): void {
  const { events, source } = engine.parts;
  const isAnnounced = verdict.kind === 'ack' && claim.lane === 'notice';
  // Who counts deliveries must not have every deferral built as well.
  if (!events.hears(isAnnounced ? 'announced' : KIND_OF[verdict.kind])) return;
  const about = {
    at: engine.now(),
    id: claim.id,
    topic: claim.envelope.topic,
    lane: claim.lane,
    attempt: claim.attempt,
  };
  switch (verdict.kind) {
    case 'ack':
      if (isAnnounced) events.emit({ ...about, kind: 'announced' });
      else {
        // A clock that was set back must not make a message younger than new.
        const ageMs = Math.max(0, about.at - claim.envelope.enqueuedAt);
        events.emit({ ...about, kind: 'delivered', tookMs, ageMs });
      }
      return;
    case 'defer': {
      // Not computed from the time of now: that is later than when it was written.
      const dueAt = source.deferredTo?.(claim) ?? about.at + verdict.delayMs;
      const { because, failure } = verdict;
      events.emit({
        ...about,
        kind: 'deferred',
        dueAt,
        because,
        ...(failure === undefined ? {} : { failure }),
      });
      return;
    }
    case 'bounce': {
      const { because, spent, failure } = verdict;
      events.emit({
        ...about,
        kind: 'bounced',
        because,
        spent,
        ...(failure === undefined ? {} : { failure }),
      });
      return;
    }
    case 'hold':
      events.emit({ ...about, kind: 'held', because: verdict.because });
      return;
    case 'release':
      events.emit({ ...about, kind: 'released' });
      return;
    default:
      unreachable(verdict);
  }
}

/** decide — one letter in hand, and what is to become of it. */

import type { Millis } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Fate, KeptCopy, TakenLetter } from '../../ports/dead-letters.ts';
import type { Journal, LetterOutcome } from './journal.ts';
import type { LetterClaim, LetterProgress } from './ledger.ts';
import type { OutcomeListener } from './outcomes.ts';
import type { ReplaySettings } from './options.ts';
import { routeText } from './plan.ts';
import { type LetterTransform, repairLetter } from './transform.ts';

/** A letter with the decision on it. */
export interface PlannedLetter {
  readonly claim: LetterClaim;
  readonly taken: TakenLetter;
  readonly plan: Decision;
}

/** `leave`: stays, with this outcome. `act`: the fate, and the outcome when it is done. */
export type Decision =
  | { readonly kind: 'leave'; readonly outcomes: readonly LetterOutcome[] }
  | {
      readonly kind: 'act';
      readonly fate: Fate;
      readonly outcome: LetterOutcome;
      /** The original, to be kept first. */
      readonly copy?: KeptCopy;
    };

/** What decisions are made by. */
export interface DecideParts {
  readonly id: string;
  readonly by: string;
  readonly settings: ReplaySettings;
  readonly transform: LetterTransform | undefined;
  /** What it knows of canaries. */
  readonly news: Pick<OutcomeListener, 'isOfCanaries'>;
}

/** The code of letters that were replayed too often. */
const LIMIT_CODE = 'replay.limit';

const UNSURE: LetterOutcome = {
  result: 'unsure',
  reason: 'an earlier run ended while it was about to be sent',
};

/** Nobody is going to look for what may have been sent: it is told as unsure. */
export function notTheSameLetter(ledger: LetterProgress, journal: Journal, at: Millis): void {
  for (const item of ledger.meant()) {
    ledger.settle(item, UNSURE, at);
    journal.note(item, UNSURE);
  }
}

/** Decides on one letter. */
export async function decide(
  { id, by, settings, transform, news }: DecideParts,
  taken: TakenLetter,
  { wasMeant }: LetterClaim,
): Promise<Decision> {
  const { letter } = taken;
  if (wasMeant && letter.replayedBy === id) {
    // Only a letter that was sent by this replay bears its name: it went, and came back.
    return { kind: 'leave', outcomes: [{ result: 'sent' }, { result: 'again' }] };
  }
  if (wasMeant && settings.unsure === 'leave') return { kind: 'leave', outcomes: [UNSURE] };
  if (letter.replays >= settings.replaysMax) return parked(taken, by);
  const route = settings.to ?? letter.home;
  if (route === undefined) {
    return left('replay.homeless', 'its origin is unknown');
  }
  const to = routeText(route);
  const send: Fate = {
    kind: 'send',
    replay: id,
    by,
    ...(news.isOfCanaries ? { isCanary: true } : {}),
    ...(settings.to === undefined ? {} : { to: route }),
  };
  const outcome: LetterOutcome = { result: 'sent', to };
  if (transform === undefined) return { kind: 'act', fate: send, outcome };
  const repaired = await repairLetter(transform, taken);
  if (repaired.kind === 'skip') return left('transform.skipped', 'the transform leaves it');
  if (repaired.kind === 'failed') return failed('transform.failed', repaired.reason);
  if (repaired.kind === 'same') return { kind: 'act', fate: send, outcome };
  try {
    const copy = await taken.copy(`changed by replay ${id}`);
    return { kind: 'act', fate: { ...send, change: repaired.change }, outcome, copy };
  } catch (error) {
    // Without its original kept it is not changed.
    return failed(isRespoolError(error) ? error.code : 'unknown', textOf(error));
  }
}

function failed(code: string, reason: string): Decision {
  return { kind: 'leave', outcomes: [{ result: 'failed', code, reason }] };
}

function left(code: string, reason: string): Decision {
  return { kind: 'leave', outcomes: [{ result: 'left', code, reason }] };
}

function parked({ letter }: TakenLetter, by: string): Decision {
  const reason = `it was replayed ${letter.replays} times`;
  // What is parked already stays where it is.
  if (letter.kind === 'parked') return left(LIMIT_CODE, reason);
  return {
    kind: 'act',
    fate: { kind: 'park', code: LIMIT_CODE, reason, by },
    outcome: { result: 'parked', code: LIMIT_CODE, reason },
  };
}

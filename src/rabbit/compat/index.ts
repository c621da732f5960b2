/** compat — the systems whose queues can be shared, by name or as they were made. */

import { checkOneOf } from '../../core/limits.ts';
import type { Compat } from './shared.ts';
import { goqueue } from './goqueue.ts';
import { outbox } from './outbox.ts';
import { spring } from './spring.ts';

const BY_NAME = { goqueue, spring, outbox } as const;

/** A compat by its name, with all its defaults, or the one that was given. */
export function compatOf(given: Compat | Compat['name']): Compat {
  if (typeof given === 'object' && given !== null) return given;
  return BY_NAME[checkOneOf('compat', given, ['goqueue', 'spring', 'outbox'])]();
}

/** troubles — what goes wrong, told once for as long as it lasts. */

import { asError } from '../../core/errors.ts';
import type { AlertParts } from './types.ts';

/** Troubles that were told, and are not over. */
export class Troubles {
  readonly #parts: Pick<AlertParts, 'tell' | 'now'>;
  readonly #told = new Map<string, string>();

  constructor(parts: Pick<AlertParts, 'tell' | 'now'>) {
    this.#parts = parts;
  }

  /** Tells of it, unless it is the same as before. */
  tell(doing: string, thrown: unknown): void {
    const error = asError(thrown);
    if (this.#told.get(doing) === error.message) return;
    this.#told.set(doing, error.message);
    this.#parts.tell({ at: this.#parts.now(), kind: 'trouble', doing, error });
  }

  /** It went well: the next time is told again. */
  over(doing: string): void {
    this.#told.delete(doing);
  }
}

/**
 * client-rekey — a rekeying through a service: counted, confirmed, begun, and then looked at until
 * it has ended.
 */

import type { Control } from '../../operator/operator.ts';
import { ERROR_CODES, RespoolError } from '../../core/errors.ts';
import type { RekeyProgress, RekeyTrouble } from '../../spool/rekey.ts';
import { fields, flag, type Form, list, number, optional, text } from './answers.ts';
import type { ServiceClient } from './http.ts';

type RekeyOptions = NonNullable<Parameters<Control['rekey']>[0]>;

interface Dry {
  readonly count: number;
  readonly confirm: string;
}

interface State extends RekeyProgress {
  readonly isRunning: boolean;
  readonly error?: { readonly code: string; readonly message: string } | undefined;
}

const dryForm: Form<Dry> = fields<Dry>({ count: number, confirm: text });
const stateForm: Form<State> = fields<State>({
  isRunning: flag,
  count: number,
  done: number,
  left: number,
  unreadable: number,
  troubles: list(fields<RekeyTrouble>({ id: text, code: text, text })),
  error: optional(fields({ code: text, message: text })),
});

const PATH = '/v1/rekey';
/** How often the service is asked how far it is. */
const LOOK_EVERY_MS = 500;

/** The rekeying of a desk. What was counted last is what is confirmed: nothing is counted twice. */
export function createRekey(client: ServiceClient): Control['rekey'] {
  let counted: (Dry & { readonly about: string }) | undefined;
  const count = async (filter: RekeyOptions['filter'] = {}): Promise<Dry> => {
    const json = { filter, dryRun: true };
    const dry = await client.ask(PATH, dryForm, { method: 'POST', json });
    counted = { ...dry, about: JSON.stringify(filter) };
    return dry;
  };
  return async ({ filter = {}, dryRun = false, signal, onProgress } = {}) => {
    if (dryRun) {
      const { count: found } = await count(filter);
      return { count: found, done: 0, left: found, unreadable: 0, troubles: [] };
    }
    const isKnown = counted?.about === JSON.stringify(filter);
    const { confirm } = counted !== undefined && isKnown ? counted : await count(filter);
    // A confirmation begins once.
    counted = undefined;
    signal?.throwIfAborted();
    const sending = { method: 'POST', json: { filter, confirm } } as const;
    const begun = await client.ask(PATH, stateForm, sending);
    return follow(client, begun, { signal, onProgress });
  };
}

interface Follow {
  readonly signal: RekeyOptions['signal'] | undefined;
  readonly onProgress: RekeyOptions['onProgress'] | undefined;
}

async function follow(
  client: ServiceClient,
  begun: State,
  { signal, onProgress }: Follow,
): Promise<RekeyProgress> {
  let state = begun;
  while (state.isRunning) {
    onProgress?.(state);
    // The wait ends at once when the signal fires.
    await client.wait(LOOK_EVERY_MS, signal).catch(() => undefined);
    const method = signal?.aborted === true ? 'DELETE' : 'GET';
    state = await client.ask(PATH, stateForm, { method });
  }
  const { count, done, left, unreadable, troubles, error } = state;
  const progress = { count, done, left, unreadable, troubles };
  onProgress?.(progress);
  if (error === undefined) return progress;
  signal?.throwIfAborted();
  const code = ERROR_CODES.find((known) => known === error.code);
  throw new RespoolError(code ?? 'store.unavailable', error.message);
}

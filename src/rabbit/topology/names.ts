/**
 * names — what queues and exchanges are called, and what the broker allows as a name.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { Topology } from './model.ts';

/** The broker's limit for names and routing keys, in bytes of UTF-8. */
const NAME_MAX_BYTES = 255;

/** Names that begin like this belong to the broker. */
const BROKERS_OWN = 'amq.';

/** True for exchanges such as `amq.topic`, which always exist. */
export function isBrokersOwn(name: unknown): boolean {
  return typeof name === 'string' && name.startsWith(BROKERS_OWN);
}

/** Refuses what is not a name at a broker; `what` is the option that it came in. */
export function checkName(what: string, name: unknown): string {
  const flaw = flawOf(name);
  if (flaw === undefined) return name as string;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(name)} as "${what}": ${flaw}; choose another name`,
  );
}

/** Refuses names that became too long by what we add to them. */
export function checkNamesOf(topology: Topology, base: string): void {
  for (const { name } of topology.queues) checkMadeName('queue', name, base);
  for (const { name } of topology.exchanges) checkMadeName('exchange', name, base);
  for (const { key, queue } of topology.bindings) {
    const bytes = Buffer.byteLength(key);
    if (bytes <= NAME_MAX_BYTES) continue;
    throw new RespoolError(
      'config.invalid',
      `cannot bind queue ${show(queue)} by the key ${show(key)}: it has ${bytes} bytes, ` +
        `allowed are ${NAME_MAX_BYTES}; choose a shorter key`,
    );
  }
}

function checkMadeName(what: string, name: string, base: string): void {
  const flaw = flawOf(name);
  if (flaw === undefined) return;
  throw new RespoolError(
    'config.invalid',
    `cannot build the topology of queue ${show(base)}: the ${what} ${JSON.stringify(name)} ` +
      `belongs to it, and ${flaw}; choose another name to begin with`,
  );
}

function flawOf(name: unknown): string | undefined {
  if (typeof name !== 'string' || name === '') return 'a name is a string that is not empty';
  if (isBrokersOwn(name)) return `names that begin with "${BROKERS_OWN}" belong to the broker`;
  // n.b. The broker takes line breaks out of names, silently: we would look for another queue.
  if (/\p{Cc}/u.test(name)) return 'a name has no control characters';
  if (!name.isWellFormed()) return 'it cannot be written as UTF-8';
  const bytes = Buffer.byteLength(name);
  if (bytes <= NAME_MAX_BYTES) return undefined;
  return `names have at most ${NAME_MAX_BYTES} bytes, this one has ${bytes}`;
}

/**
 * outbox-keys — the keys of the outbox and of its relay; a part of keys.ts.
 *
 * None has a default here: a configuration that says nothing of an outbox has none.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Key } from './key.ts';

const DURATION = 'duration';

/** Every key below `outbox`, in the order of printing. */
export const OUTBOX_KEYS: readonly Key[] = [
  {
    key: 'outbox.store',
    kind: 'text',
    type: '`postgres://…` or `sqlite:FILE`',
  },
  {
    key: 'outbox.schema',
    kind: 'text',
    type: 'a name; PostgreSQL only',
    defaultText: '`outbox`',
  },
  {
    key: 'outbox.tables',
    kind: 'text',
    type: 'what names of tables begin with',
    defaultText: 'none, in SQLite `outbox_`',
  },
  {
    key: 'outbox.listenUrl',
    kind: 'text',
    type: '`postgres://…`',
    check: checkListenUrl,
  },
  { key: 'outbox.expires', kind: 'duration', type: DURATION },
  {
    key: 'outbox.policies',
    kind: 'data',
    type: 'policies, or their names, by name',
    defaultText: 'those of `policies`',
  },
  {
    key: 'outbox.relay.to',
    kind: 'json',
    type: '`{ amqp, exchange }`, `{ spool: true }`, or a handler as in routes',
    check: wholeJson,
  },
  {
    key: 'outbox.relay.batch',
    kind: 'number',
    type: '1 to 10,000',
    defaultText: '100',
  },
  {
    key: 'outbox.relay.concurrency',
    kind: 'number',
    type: '1 to 10,000',
    defaultText: '500',
  },
  {
    key: 'outbox.relay.cleanUp',
    kind: 'json',
    type: '`at once`, `never`, a duration, or `{ partition, keep }`',
    defaultText: '`at once`',
    check: wholeJson,
  },
  {
    key: 'outbox.relay.topics',
    kind: 'json',
    type: 'a pattern, several with commas, or a list of them',
    defaultText: '`#`',
    check: wholeJson,
  },
  {
    key: 'outbox.relay.expires',
    kind: 'duration',
    type: DURATION,
    defaultText: '`outbox.expires`',
  },
  {
    key: 'outbox.relay.lease',
    kind: 'duration',
    type: `${DURATION}, 1s to 1d`,
    defaultText: '60s',
  },
  {
    key: 'outbox.relay.poll',
    kind: 'duration',
    type: `${DURATION}, 10ms to 1h`,
    defaultText: '30s',
  },
  {
    key: 'outbox.relay.pauseAfter',
    kind: 'duration',
    type: `${DURATION}, 1ms to 1h`,
    defaultText: '1s',
  },
];

/** n.b. What was given is not shown: it may hold a password. */
function checkListenUrl(value: unknown, what: string): void {
  if (typeof value === 'string' && /^postgres(?:ql)?:\/\/./.test(value)) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use this as "${what}": allowed is a URL that leads straight to the server, like ` +
      'postgres://user:password@host/database',
  );
}

/** What is still a text that begins like JSON could not be read; the rest is checked later. */
function wholeJson(value: unknown, what: string): void {
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value)) return;
  throw new RespoolError('config.invalid', `cannot use broken JSON as "${what}"`);
}

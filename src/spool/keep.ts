/**
 * keep — copies of messages that are removed or changed elsewhere, put down as archived: they can
 * be looked at and restored until the retention of what was removed is over, and are never due.
 */

import type { Entry } from '../core/entry.ts';
import { checkKey, checkList } from '../core/limits.ts';
import { reasonText } from '../core/failure.ts';
import { KEPT_CODE, ORIGINAL_HEADER } from '../core/reserved-headers.ts';
import { forgetAt, initialStatus } from '../core/next-status.ts';
import type { KeptCopy } from '../ports/dead-letters.ts';
import { keepBody, ownBody, tooLarge } from './body.ts';
import { type CheckedMessage, checkMessage, withBody } from './message.ts';
import type { Runtime } from './runtime.ts';
import { emitArchived } from './source.ts';

/** Written at once, at the most. */
const STEP_MAX = 500;

/** Puts them down; durable when it resolves. All are checked before any is written. */
export async function keep(
  runtime: Runtime,
  copies: readonly KeptCopy[],
  by: string,
): Promise<void> {
  checkList('copies', copies, 'a list of copies');
  const bodies = copies.map(({ body }) => ownBody(body));
  const own = copies.map((copy) => ({ ...copy, headers: { ...copy.headers } }));
  await runtime.ready();
  const checked = own.map((copy) => checkCopy(runtime, copy));
  await runtime.during(async () => {
    for (let from = 0; from < own.length; from += STEP_MAX) {
      const entries: Entry[] = [];
      for (const [at, message] of checked.slice(from, from + STEP_MAX).entries()) {
        const { id } = message.envelope;
        const body = bodies[from + at] ?? ownBody(undefined);
        const kept = await keepBody(body, id, runtime.bodySettings);
        entries.push({
          ...archivedOf(runtime, message, { text: own[from + at]?.reason ?? '', by }, kept.info),
          ...(kept.inline === undefined ? {} : { inlineBody: kept.inline }),
        });
      }
      await runtime.entries.insert(entries);
      for (const { envelope, status } of entries) emitArchived(runtime.events, envelope, status);
    }
  });
}

function checkCopy(
  { settings, source, makeId }: Runtime,
  { id, topic, headers, body }: KeptCopy,
): CheckedMessage {
  const { headerMaxBytes, bodyMaxBytes } = settings;
  if (body.byteLength > bodyMaxBytes) throw tooLarge(bodyMaxBytes);
  const original = { [ORIGINAL_HEADER]: checkKey('id', id) };
  const message = { topic, headers: { ...headers, ...original } };
  return checkMessage(message, { now: source.now(), headerMaxBytes, makeId });
}

function archivedOf(
  { source, retention }: Runtime,
  { envelope: open, policy }: CheckedMessage,
  { text, by }: { readonly text: string; readonly by: string },
  body: Entry['envelope']['body'],
): Entry {
  const now = source.now();
  const envelope = withBody(open, body);
  return {
    envelope,
    status: {
      ...initialStatus({ now, dueAt: now, policy }),
      state: 'archived',
      ending: 'removed',
      dueAt: forgetAt(envelope, retention.removedMs, { now, retention }),
      because: { code: KEPT_CODE, text: reasonText(text), by },
    },
  };
}

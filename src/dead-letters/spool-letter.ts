/** spool-letter — a message of a spool as a letter, and which states letters lie in. */

import type { Entry, Envelope, Headers, Status } from '../core/entry.ts';
import { groupOf } from '../core/group.ts';
import { AMQP_HEADER, REPLAY_HEADER } from '../core/letter-headers.ts';
import type { State } from '../core/state.ts';
import type { Letter, LetterKind } from '../ports/dead-letters.ts';

/** The state that letters of a kind lie in. */
export const STATE_OF: Readonly<Record<LetterKind, State>> = {
  dead: 'bounce',
  parked: 'hold',
  archived: 'archived',
};

/** The message as a letter; undefined where it was not given up. */
export function letterOf({
  envelope,
  status,
}: Pick<Entry, 'envelope' | 'status'>): Letter | undefined {
  const kind = kindOf(status.state);
  if (kind === undefined) return undefined;
  const { id, topic, destination: origin = '', headers, enqueuedAt, body } = envelope;
  const { code, reason } = whyOf(status);
  return {
    id,
    // Another one after each replay: a plan is never about a message that came back meanwhile.
    key: `${id}.${status.replays}`,
    kind,
    place: status.state,
    topic,
    origin,
    home: homeOf(envelope),
    code,
    reason,
    group: groupOf({ code, reason, at: topic, origin }),
    // In this lane once it bounced, whatever an operator did to it afterwards.
    deaths: status.replays + (status.lane === 'notice' ? 1 : 0),
    attempts: status.attempts,
    replays: status.replays,
    replayedBy: replayedBy(headers),
    enqueuedAt,
    diedAt: status.updatedAt,
    size: body.size,
    contentType: contentTypeOf(headers),
    headers,
  };
}

/** The replay that sent a message last. */
export function replayedBy(headers: Headers): string | undefined {
  return Object.hasOwn(headers, REPLAY_HEADER) ? headers[REPLAY_HEADER] : undefined;
}

function kindOf(state: State): LetterKind | undefined {
  return (Object.keys(STATE_OF) as LetterKind[]).find((kind) => STATE_OF[kind] === state);
}

/** A copy of a message of a broker goes back there, and not to a handler. */
function homeOf({ headers, topic }: Envelope): Letter['home'] {
  return Object.hasOwn(headers, AMQP_HEADER) ? undefined : { kind: 'topic', topic };
}

/** Why it is held or was removed; otherwise why it failed, which says more than that it ended. */
export function whyOf(status: Status): Pick<Letter, 'code' | 'reason'> {
  const { state, ending, because, lastFailure } = status;
  const isPutThere = state === 'hold' || ending === 'removed';
  const [first, second] = isPutThere
    ? [textsOf(because), lastFailure]
    : [lastFailure, textsOf(because)];
  const { code, reason } = first ?? second ?? { code: 'unknown', reason: '' };
  return { code, reason };
}

function textsOf(because: Status['because']): Pick<Letter, 'code' | 'reason'> | undefined {
  return because === undefined ? undefined : { code: because.code, reason: because.text };
}

function contentTypeOf(headers: Headers): string | undefined {
  const name = Object.keys(headers).find((one) => one.toLowerCase() === 'content-type');
  return name === undefined ? undefined : headers[name];
}

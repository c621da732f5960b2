/**
 * version-quirks — what a release of RabbitMQ does that a queue must be built for. Pure; each was
 * tried at a broker of that release or stands in its notes.
 */

import { show } from '../../core/errors.ts';
import { bad, type Finding, ok, warn } from './reports.ts';
import type { PlannedQueue } from './inspect-broker.ts';

/** What the version of the broker means for these queues. */
export function versionFindings(
  version: string | undefined,
  queues: readonly PlannedQueue[],
): Finding[] {
  const at = parse(version);
  if (version === undefined || at === undefined) {
    return [
      warn(
        'broker.version',
        `the broker says ${show(version)} as its version: what is special in it is not known`,
        'give the management API, or look at the version with: rabbitmqctl version',
      ),
    ];
  }
  const quorum = queues.filter(({ type }) => type === 'quorum');
  const classic = queues.filter(({ type }) => type === 'classic');
  return [
    ok('broker.version', `RabbitMQ ${version}`),
    ...(quorum.length > 0 ? quorumTraps(version, at, quorum) : []),
    ...(classic.length > 0 ? classicTraps(version, at) : []),
    ...cycleTrap(version, at),
    ...(at >= release(4, 0)
      ? [ok('broker.message-size', `${version} takes messages of up to 16 MiB, 3.x up to 128 MiB`)]
      : []),
  ];
}

function quorumTraps(version: string, at: number, quorum: readonly PlannedQueue[]): Finding[] {
  if (at < release(3, 10)) {
    return [
      bad(
        'broker.too-old',
        `RabbitMQ ${version} has no message TTL and no dead-lettering at least once for quorum ` +
          'queues: nothing comes back from a wait queue',
        'upgrade to 3.10 or later, or use classic queues',
      ),
    ];
  }
  const late =
    at < release(4, 3)
      ? [
          warn(
            'broker.restart',
            `after a restart of RabbitMQ ${version} retries can come up to 3 minutes late: it ` +
              'begins to dead-letter before its exchanges are there, and tries again every ' +
              '3 minutes (seen on 3.10 and 4.0, not on 4.3; 4.1 and 4.2 are not known)',
            'nothing is lost; watch "leaving" in respool rabbit stats, or upgrade to 4.3',
          ),
        ]
      : [];
  return [...late, ...limitTraps(version, at, quorum)];
}

function limitTraps(version: string, at: number, quorum: readonly PlannedQueue[]): Finding[] {
  const limitOf = ({ spec }: PlannedQueue): unknown => spec.arguments['x-delivery-limit'];
  const isModern = at >= release(4, 0);
  const negative = quorum.filter((queue) => Number(limitOf(queue)) < 0);
  if (negative.length > 0 && !isModern) {
    return [
      bad(
        'queue.delivery-limit',
        `x-delivery-limit is negative for ${namesOf(negative)}: RabbitMQ ${version} gives up ` +
          'every message there at its first return',
        'use a large number, such as 1000000',
      ),
    ];
  }
  const without = quorum.filter((queue) => limitOf(queue) === undefined);
  if (!isModern) return [];
  if (without.length === 0) {
    const text = `RabbitMQ ${version} gives up messages after 20 deliveries where no limit is set`;
    return [ok('broker.delivery-limit', `${text}; these queues set their own`)];
  }
  return [
    warn(
      'broker.delivery-limit',
      `RabbitMQ ${version} gives up a message after 20 deliveries where no limit is set: that is ` +
        `so for ${namesOf(without)} unless a policy says otherwise`,
      'set a policy with delivery-limit 1000000 for them',
    ),
  ];
}

function classicTraps(version: string, at: number): Finding[] {
  const strategy = warn(
    'classic.dead-lettering',
    'classic queues dead-letter at most once: a message that comes back from waiting is lost ' +
      'when its queue cannot take it at that moment',
    "use type: 'quorum' where nothing may be lost",
  );
  if (at < release(3, 13)) return [strategy];
  return [
    strategy,
    warn(
      'classic.confirms',
      `a classic queue of RabbitMQ ${version} confirms before the message is on the disk: a ` +
        'power cut can lose it',
      "use type: 'quorum' where nothing may be lost",
    ),
  ];
}

function cycleTrap(version: string, at: number): Finding[] {
  if (at < release(3, 13) || at > release(3, 13, 2)) return [];
  return [
    bad(
      'broker.cycles',
      `RabbitMQ ${version} drops messages that go round between queues, retries among them`,
      'upgrade to 3.13.3 or later',
    ),
  ];
}

function namesOf(queues: readonly PlannedQueue[]): string {
  const names = queues.map(({ spec }) => show(spec.name));
  const shown = names.slice(0, SHOWN_MAX).join(', ');
  return names.length > SHOWN_MAX ? `${shown} and ${names.length - SHOWN_MAX} more` : shown;
}

const SHOWN_MAX = 5;

function release(major: number, minor: number, patch = 0): number {
  return major * 1_000_000 + minor * 1_000 + patch;
}

function parse(version: string | undefined): number | undefined {
  const found = /^(\d+)\.(\d+)(?:\.(\d+))?/.exec(version ?? '');
  if (found === null) return undefined;
  const [, major, minor, patch] = found;
  return release(Number(major), Number(minor), Number(patch ?? 0));
}

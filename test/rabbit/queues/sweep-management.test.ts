/** A management API that tells only a part, or nothing: what it cannot tell is not guessed. */

import { expect, test } from 'vitest';
import type { Management } from 'respool/rabbit';
import { RespoolError } from 'respool';
import { cautionOf } from '../../../src/rabbit/queues/delivery-limit.ts';
import { findPairs } from '../../../src/rabbit/queues/discover.ts';
import { queueInfo } from '../../../src/rabbit/management/management.ts';

const away = (): Promise<never> =>
  Promise.reject(new RespoolError('broker.unavailable', 'cannot list: it answered 503'));

/** As much of a management API as is asked. */
function managementOf(parts: Partial<Management>): Management {
  return { vhost: '/', ...parts } as Management;
}

test('a limit of an operator policy holds though those cannot be listed', async () => {
  const info = queueInfo({
    name: 'q',
    type: 'quorum',
    operator_policy: 'low',
    effective_policy_definition: { 'delivery-limit': 5 },
  });
  const management = managementOf({
    queue: () => Promise.resolve(info),
    policies: () => Promise.resolve([]),
    operatorPolicies: away,
  });
  const caution = await cautionOf({ queue: 'q', management, version: '3.10.8' });
  expect(caution).toMatchObject({ kind: 'refused', text: expect.stringContaining('limit of 5') });
});

test('a list that does not come stops patterns, and no plain name', async () => {
  const management = managementOf({ queues: away });
  const { pairs, problems } = await findPairs(management, {
    patterns: ['plain', 'dlq.*'],
    target: 'dead',
  });
  expect(pairs).toEqual([{ queue: 'plain', target: 'dead' }]);
  const text = 'cannot find the queues that fit "dlq.*": cannot list: it answered 503';
  expect(problems).toEqual([{ pattern: 'dlq.*', text, isSkipped: false }]);
  const only = findPairs(management, { patterns: ['dlq.*'], target: 'dead' });
  await expect(only).rejects.toMatchObject({ code: 'broker.unavailable' });
});

/** What looking costs: as a table over releases and limits, and asked of the real broker. */

import { describe, expect, onTestFinished, test } from 'vitest';
import { cautionOf, judgeCaution } from '../../../src/rabbit/queues/delivery-limit.ts';
import { type PolicyInfo, queueInfo } from '../../../src/rabbit/management/management.ts';
import { withService } from '../../services/index.ts';
import { openManagement } from '../admin/management/setup.ts';
import { until } from '../until.ts';
import { DeadQueues } from './queues.ts';

const VERSIONS = ['3.10.8', '3.13.1', '4.0.5', '4.2.0', '4.3.6'] as const;
type Kinds = readonly [string, string, string, string, string];

interface Row {
  readonly title: string;
  readonly argument?: number;
  readonly policy?: number;
  readonly operator?: number;
  readonly type?: string;
  /** For each of the releases. */
  readonly kinds: Kinds;
}

const LIMIT = 1_000_000;
const ALL_REFUSED: Kinds = ['refused', 'refused', 'refused', 'refused', 'free'];
const ALL_COUNTED: Kinds = ['counted', 'counted', 'counted', 'counted', 'free'];

const ROWS: readonly Row[] = [
  { title: 'no limit', kinds: ['counted', 'counted', 'refused', 'refused', 'free'] },
  { title: 'a low limit', argument: 20, kinds: ALL_REFUSED },
  { title: 'a limit just below', argument: LIMIT - 1, kinds: ALL_REFUSED },
  { title: 'a limit of none', argument: 0, kinds: ALL_REFUSED },
  { title: 'our own limit', argument: LIMIT, kinds: ALL_COUNTED },
  { title: 'our own limit by a policy', policy: LIMIT, kinds: ALL_COUNTED },
  { title: 'a low policy over a high argument', argument: LIMIT, policy: 5, kinds: ALL_REFUSED },
  { title: 'a high policy over a low argument', argument: 5, policy: LIMIT, kinds: ALL_REFUSED },
  { title: 'a low operator policy', policy: LIMIT, operator: 9, kinds: ALL_REFUSED },
  {
    title: 'a negative argument',
    argument: -1,
    kinds: ['refused', 'refused', 'counted', 'counted', 'free'],
  },
  { title: 'a negative argument, a low policy', argument: -1, policy: 9, kinds: ALL_REFUSED },
  {
    title: 'a negative policy, a low operator policy',
    policy: -1,
    operator: 9,
    kinds: ALL_REFUSED,
  },
  { title: 'a classic queue', type: 'classic', kinds: ['free', 'free', 'free', 'free', 'free'] },
  {
    title: 'a stream',
    type: 'stream',
    kinds: ['refused', 'refused', 'refused', 'refused', 'refused'],
  },
];

function policyOf(name: string, limit: number | undefined): PolicyInfo[] {
  if (limit === undefined) return [];
  const definition = { 'delivery-limit': limit, 'message-ttl': 7 };
  return [{ name, pattern: '^a', applyTo: 'all', definition, priority: 3 }];
}

function judge({ type = 'quorum', argument, policy, operator }: Partial<Row>, version: string) {
  const args = argument === undefined ? {} : { 'x-delivery-limit': argument };
  return judgeCaution({
    info: queueInfo({ name: "a'b.dlq", type, arguments: args }),
    version,
    policies: policyOf('own', policy),
    operatorPolicies: policyOf('operators', operator),
    vhost: 'my host',
  });
}

describe('judgeCaution', () => {
  for (const row of ROWS) {
    for (const [index, version] of VERSIONS.entries()) {
      test(`${row.title} on ${version} is ${row.kinds[index]}`, () => {
        expect(judge(row, version).kind).toBe(row.kinds[index]);
      });
    }
  }

  test('the remedy is a policy that says what the present one says, and more', () => {
    const caution = judge({ policy: 5 }, '4.0.5');
    expect(caution).toMatchObject({ kind: 'refused', text: expect.stringContaining('limit of 5') });
    expect(caution.kind === 'refused' && caution.remedy.split('\n')).toEqual([
      'lift it by a policy',
      `run: rabbitmqctl set_policy -p 'my host' --priority 4 --apply-to queues ` +
        `'respool-limit-a'\\''b.dlq' '^a'\\''b\\.dlq$' ` +
        `'{"delivery-limit":1000000,"message-ttl":7}'`,
      `or run over HTTP: PUT /api/policies/my%20host/respool-limit-a'b.dlq ` +
        `{"pattern":"^a'b\\\\.dlq$","definition":{"delivery-limit":1000000,"message-ttl":7},` +
        `"priority":4,"apply-to":"queues"}`,
    ]);
  });

  test('where no policy helps the remedy says what does', () => {
    const byArgument = judge({ argument: 5 }, '4.0.5');
    expect(byArgument.kind === 'refused' && byArgument.remedy).toMatch(/no policy can lift/);
    const byOperator = judge({ operator: 5 }, '4.0.5');
    expect(byOperator.kind === 'refused' && byOperator.remedy).toMatch(
      /operator policy "operators"/,
    );
  });

  test('policies that may not be seen are taken as the broker tells them', () => {
    const info = queueInfo({
      name: 'q',
      type: 'quorum',
      effective_policy_definition: { 'delivery-limit': 7 },
    });
    const facts = {
      info,
      version: '3.13.0',
      policies: undefined,
      operatorPolicies: [],
      vhost: '/',
    };
    expect(judgeCaution(facts).kind).toBe('refused');
  });
});

withService('rabbitmq', () => {
  test('the broker is asked for type, arguments and policies', async () => {
    const management = await openManagement();
    onTestFinished(() => management.close());
    const queues = await DeadQueues.open();
    const classic = await queues.declare('classic');
    const plain = await queues.declare('foreign');
    const own = await queues.declare('own');
    const low = await queues.declare('own', { 'x-delivery-limit': 3 });
    const kindOf = async (queue: string, version: string | undefined): Promise<string> =>
      (await cautionOf({ queue, management, version })).kind;
    expect(await kindOf(classic, '4.0.5')).toBe('free');
    expect(await kindOf(plain, '3.10.8')).toBe('counted');
    expect(await kindOf(plain, '4.1.0')).toBe('refused');
    const { version } = await management.overview();
    expect(await kindOf(plain, undefined)).toBe(await kindOf(plain, version));
    expect(await kindOf(own, '4.1.0')).toBe('counted');
    expect(await kindOf(low, '3.10.8')).toBe('refused');
    const policy = { name: plain, pattern: `^${plain}$`, definition: { 'delivery-limit': LIMIT } };
    await management.putPolicy({ ...policy, priority: 1 });
    onTestFinished(async () => void (await management.deletePolicy(plain)));
    const lifted = await until(async () => {
      management.forget();
      const kind = await kindOf(plain, '4.1.0');
      return kind === 'counted' ? kind : undefined;
    });
    expect(lifted).toBe('counted');
  });

  test('where nobody can tell it is refused, unless it is trusted', async () => {
    const management = await openManagement();
    onTestFinished(() => management.close());
    const version = '3.10.8';
    for (const asked of [undefined, management]) {
      const question = { queue: 't-not-there', management: asked, version };
      const refused = await cautionOf(question);
      expect(refused).toMatchObject({
        kind: 'refused',
        remedy: expect.stringContaining('--trust-limit'),
      });
      expect(await cautionOf({ ...question, isTrusted: true })).toMatchObject({ kind: 'counted' });
    }
  });
});

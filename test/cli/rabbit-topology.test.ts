/** rabbit topology — plan, apply, verify, export and migrate, against the real broker. */
import { describe, expect, test } from 'vitest';
import { withService } from '../services/index.ts';
import { rabbitShell } from './rabbit-broker.ts';
import { setup } from './setup.ts';

const nowhere = { exec: ['true'] };

/** A consumer with names of its own. */
function consumerOf(prefix: string, more: object = {}): object {
  return {
    queue: `${prefix}.orders`,
    bindings: [{ exchange: `${prefix}.shop`, key: 'order.*' }],
    topology: { shared: { prefix } },
    policy: { ladder: ['1s', '2s'] },
    waits: [],
    deliver: nowhere,
    ...more,
  };
}

withService('rabbitmq', () => {
  test('plan says what is missing, apply makes it, plan and verify then find nothing', async () => {
    const { cli, configure, prefix, depth } = await rabbitShell();
    await configure({ consumers: [consumerOf(prefix)] });
    const planned = await cli(['rabbit', 'topology', 'plan']);
    expect(planned.code, planned.stderr).toBe(0);
    expect(planned.stdout).toContain(`+ create queue "${prefix}.orders"`);
    expect(planned.stdout).toContain(`+ create queue "${prefix}.wait.2s"`);
    expect(planned.stdout).toContain(
      `+ create binding "${prefix}.return" → "${prefix}.orders" ` +
        `(x-match "all", return-to "${prefix}.orders")`,
    );
    const missing = await cli(['rabbit', 'topology', 'verify', '--json']);
    expect(missing.code).toBe(1);
    expect(missing.objects()).toMatchObject([{ ok: false }]);
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes']);
    expect(applied.code, applied.stderr).toBe(0);
    expect(applied.stdout).toMatch(/queues, \d+ bindings at amqp:.*: created \d+/);
    expect(await depth(`${prefix}.orders.dlq`)).toBe(0);
    const [plan] = (await cli(['rabbit', 'topology', 'plan', '--json'])).objects();
    expect(plan).toMatchObject({ counts: { create: 0, different: 0, unknown: 0 } });
    const again = await cli(['rabbit', 'topology', 'apply', '--json']);
    expect(again.objects()).toMatchObject([{ created: 0, policiesNotApplied: [] }]);
    const verified = await cli(['rabbit', 'topology', 'verify']);
    expect(verified).toMatchObject({ code: 0 });
    expect(verified.stdout).toMatch(/^ok .* as it should be/);
    const seen = (await cli(['rabbit', 'topology', 'verify', '--json'])).objects();
    expect(seen).toMatchObject([{ ok: true, source: 'management', notLookedAt: [] }]);
  });

  test('dump prints everything as the broker has it', async () => {
    const { cli, configure, prefix } = await rabbitShell();
    await configure({ consumers: [consumerOf(prefix)] });
    expect((await cli(['rabbit', 'topology', 'apply', '--yes'])).code).toBe(0);
    const ran = await cli(['rabbit', 'topology', 'dump']);
    expect(ran.code, ran.stderr).toBe(0);
    expect(ran.stdout).toMatch(/^RabbitMQ \d/);
    expect(ran.stdout).toContain(`main queue ${prefix}.orders`);
    const [told] = (await cli(['rabbit', 'topology', 'dump', '--json'])).objects();
    expect(told).toMatchObject({
      queues: expect.arrayContaining([
        expect.objectContaining({ name: `${prefix}.orders`, isThere: true }),
      ]),
    });
  });

  test('apply asks, and does nothing without a yes', async () => {
    const { cli, configure, prefix } = await rabbitShell();
    await configure({ consumers: [consumerOf(prefix)] });
    const words = ['rabbit', 'topology', 'apply'];
    const noTerminal = await cli(words);
    expect(noTerminal.code).toBe(4);
    const asked: string[] = [];
    const refused = await cli(words, {
      tty: ['stdin', 'stderr'],
      confirm: async (question) => {
        asked.push(question);
        return false;
      },
    });
    expect(refused.code).toBe(4);
    expect(asked).toEqual([expect.stringMatching(/^declare \d+ exchanges, \d+ queues/)]);
    const dry = await cli([...words, '--dry-run', '--json']);
    expect(dry.objects()).toMatchObject([{ counts: { same: 0 } }]);
  });

  test('what is there with other arguments is told, and nothing is made', async () => {
    const { cli, configure, prefix, channel } = await rabbitShell();
    await channel.assertQueue(`${prefix}.orders.dlq`, { durable: true });
    await configure({ consumers: [consumerOf(prefix)] });
    const planned = await cli(['rabbit', 'topology', 'plan']);
    expect(planned.code).toBe(1);
    expect(planned.stdout).toContain(`! different queue "${prefix}.orders.dlq"`);
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes']);
    expect(applied.code).toBe(1);
    expect(applied.stderr).toContain('never changed');
    const [plan] = (await cli(['rabbit', 'topology', 'plan', '--json'])).objects();
    expect(plan).toMatchObject({ counts: { same: 0, different: 1 } });
  });

  test('what differs at one broker keeps every other as it is', async () => {
    const { cli, configure, prefix, channel, url } = await rabbitShell();
    await channel.assertQueue(`${prefix}.second.dlq`, { durable: true });
    // The same broker by another name: to the command these are two.
    const other = new URL(url);
    other.hostname = 'localhost';
    const second = consumerOf(prefix, { queue: `${prefix}.second`, url: other.href });
    await configure({ rabbit: { url }, consumers: [consumerOf(prefix), second] });
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes', '--json']);
    expect(applied.code).toBe(1);
    expect(applied.objects()).toMatchObject([{ counts: { different: 1 } }]);
    const [first] = (await cli(['rabbit', 'topology', 'plan', '--json'])).objects();
    expect(first).toMatchObject({ counts: { same: 0 } });
  });

  test('policies that could not be set are said, and end with 1', async () => {
    const { cli, configure, prefix, url } = await rabbitShell();
    const theirs = { compat: 'goqueue', topology: undefined, type: 'classic' };
    await configure({ rabbit: { url }, consumers: [consumerOf(prefix, theirs)] });
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes', '--json']);
    expect(applied.code).toBe(1);
    expect(applied.stderr).toContain(`were not set: respool.${prefix}.orders`);
    const verified = await cli(['rabbit', 'topology', 'verify', '--json']);
    const notLookedAt = ['bindings', 'policies', 'arguments'];
    expect(verified.objects()).toMatchObject([{ ok: true, source: 'passive', notLookedAt }]);
    const said = await cli(['rabbit', 'topology', 'verify']);
    expect(said.stdout).toMatch(
      /^ok .* queues at amqp.*: there; \d+ bindings?, 1 policy and all arguments not looked at/,
    );
  });

  test('a queue can be described by options, without any configuration', async () => {
    const { cli, url, managementUrl, prefix } = await rabbitShell();
    const broker = ['--url', url, '--management-url', managementUrl];
    const queue = ['--queue', `${prefix}.a`, '--topology', 'perDelay', '--delays', '1s,3s'];
    const more = ['--type', 'classic', '--binding', `${prefix}.shop:a.*`];
    const words = [...broker, ...queue, ...more];
    const applied = await cli(['rabbit', 'topology', 'apply', '--yes', ...words]);
    expect(applied.code, applied.stderr).toBe(0);
    const exported = await cli(['rabbit', 'topology', 'export', '--json', ...words]);
    expect(exported.objects()).toMatchObject([
      {
        queues: expect.arrayContaining([
          expect.objectContaining({
            name: `${prefix}.a.delay_3s`,
            arguments: expect.objectContaining({ 'x-queue-type': 'classic' }),
          }),
        ]),
        bindings: expect.arrayContaining([
          expect.objectContaining({ source: `${prefix}.shop`, routing_key: 'a.*' }),
        ]),
      },
    ]);
    const verified = await cli(['rabbit', 'topology', 'verify', ...words]);
    expect(verified.code, verified.stdout).toBe(0);
  });

  test('--compat describes the queues of another system', async () => {
    const { cli, url, prefix } = await rabbitShell();
    const words = ['--url', url, '--queue', `${prefix}.go`, '--compat', 'goqueue', '--json'];
    const { objects } = await cli(['rabbit', 'topology', 'export', ...words]);
    const [definitions] = objects() as { queues: { name: string }[] }[];
    expect(definitions?.queues.map(({ name }) => name)).toContain(`${prefix}.go__retry.1`);
  });
});

describe('without a broker', () => {
  const url = 'amqp://shop:hidden-word@127.0.0.1:1';
  const queue = ['--queue', 'orders', '--delays', '2s,5s'];

  test('export writes definitions, or resources of Terraform', async () => {
    const { cli } = await setup();
    const words = ['rabbit', 'topology', 'export', '--url', url, ...queue];
    const plain = await cli(words);
    expect(plain.code, plain.stderr).toBe(0);
    expect(JSON.parse(plain.stdout)).toMatchObject({
      queues: expect.arrayContaining([expect.objectContaining({ name: 'respool.wait.5s' })]),
    });
    const terraform = await cli([...words, '--format', 'terraform']);
    expect(terraform.stdout).toContain('resource "rabbitmq_queue"');
    const [told] = (await cli([...words, '--format', 'terraform', '--json'])).objects();
    expect(told).toMatchObject({ format: 'terraform', text: terraform.stdout });
  });

  test('what cannot be reached ends with 3, and no password is shown', async () => {
    const { cli } = await setup();
    const ran = await cli(['rabbit', 'topology', 'plan', '--url', url, ...queue]);
    expect(ran.code).toBe(3);
    expect(ran.stderr).toContain('amqp://127.0.0.1:1');
    expect(ran.stdout + ran.stderr).not.toContain('hidden-word');
  });

  test.each([
    [[], 'there is no queue to work on'],
    [['--url', 'http://x'], '--url of "respool rabbit" is a broker'],
    [['--url', url, '--delays', '2s'], 'name the queue that is described'],
    [['--url', url, '--queue', 'a', '--delays', '2x'], '"--delays"'],
    [['--url', url, '--queue', 'amq.a', '--type', 'classic'], '"--queue"'],
    [['--url', url, '--queue', 'a', '--binding', ':x'], '"--binding"'],
    [['--url', url, '--queue', 'a', '--type', 'x'], 'cannot use "x" as --type'],
    [['--queue', 'a', '--delays', '2s'], 'rabbit.url'],
    [
      ['--url', url, '--queue', 'a', '--compat', 'spring', '--topology', 'shared'],
      '"topology" together with "compat"',
    ],
  ])('%j is wrong usage', async (words, text) => {
    const { cli } = await setup();
    const ran = await cli(['rabbit', 'topology', 'plan', ...words]);
    expect(ran.code, ran.stderr).toBe(2);
    expect(ran.stderr).toContain(text);
    expect(ran.stderr).not.toContain('hidden-word');
  });

  test('as many old names as there are queues', async () => {
    const { cli } = await setup();
    const words = ['rabbit', 'topology', 'migrate', '--url', url, ...queue];
    const two = ['--from-queue', 'a', '--from-queue', 'b'];
    const ran = await cli([...words, ...two]);
    expect(ran).toMatchObject({ code: 2 });
    expect(ran.stderr).toContain('--from-queue was given for 2 of 1 queues');
  });

  test('a command that holds others names them', async () => {
    const { cli } = await setup();
    const ran = await cli(['rabbit', 'topology']);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain('name a command: plan, apply, verify, export, dump, migrate');
  });
});

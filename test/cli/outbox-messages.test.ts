/** Commands of a spool over the messages of an outbox: each does there what its namesake does. */
import { failure, fixed } from 'respool';
import { createOutbox } from 'respool/outbox';
import { describe, expect, onTestFinished, test } from 'vitest';
import { TestSink } from '../outbox/relay-setup.ts';
import { withService } from '../services/index.ts';
import { outboxShell, TTY } from './outbox-place.ts';

withService('postgres', () => {
  describe('respool outbox', () => {
    test('shape counts what waits by routing key and age', async () => {
      const shell = await outboxShell();
      const mails = [1, 2].map(() => ({ routingKey: 'mail.new' }));
      const [old = ''] = await shell.emit([{ routingKey: 'order.new' }, ...mails]);
      await shell.pool.query(
        `UPDATE ${shell.schema}.entries SET enqueued_at = enqueued_at - 7 * 60000 WHERE id = $1`,
        [old],
      );
      const { stdout } = await shell.outbox(['shape'], TTY);
      expect(stdout).toMatch(/^topic +T +5 +10 /);
      expect(stdout).toMatch(/TOTAL +3 +2 +1 +0/);
      expect(stdout).toMatch(/mail\.new +2 +2 +0/);
      expect(stdout).toMatch(/order\.new +1 +0 +1/);
      const some = await shell.outbox(['shape', '--topic', 'order.*', '--json']);
      expect(some.objects()).toMatchObject([
        { id: 'TOTAL', total: 1 },
        { id: 'order.new', total: 1 },
      ]);
    });

    test('bounce gives a message up with its reason, and the next of its key goes on', async () => {
      const shell = await outboxShell();
      const [head = '', next = ''] = await shell.emit(
        [1, 2].map((body) => ({ routingKey: 'a', body, key: 'k' })),
      );
      const given = await shell.outbox(['bounce', head, '--reason', 'shop is closed']);
      expect(given).toMatchObject({ code: 0, stdout: 'bounced 1\n' });
      const dead = await shell.outbox(['list', '--state', 'bounce', '--json']);
      expect(dead.objects()).toMatchObject([
        { id: head, status: { because: { text: expect.stringContaining('shop is closed') } } },
      ]);
      const sink = await relayed(shell, (sent) => sent.ids.length > 0);
      expect(sink.ids).toEqual([next]);
    });

    test('speak of a dead message in the words of an outbox: nothing is announced', async () => {
      const shell = await outboxShell();
      const [id = ''] = await shell.emit([{ routingKey: 'a' }]);
      await shell.outbox(['bounce', id]);
      const texts = [
        await shell.outbox(['list'], TTY),
        await shell.outbox(['show', id], TTY),
        await shell.cli(['outbox', 'bounce', '--help']),
        await shell.cli(['outbox', 'list', '--help']),
      ].map(({ stdout }) => stdout);
      expect(texts.join('\n')).not.toMatch(/notice|announce|handler/);
      expect(texts[1]).toMatch(/policy +the default/);
    });

    test('a failure that was overcome is no reason in the list, and one of the full view', async () => {
      const shell = await outboxShell();
      const [id = ''] = await shell.emit([{ id: 'own-id', routingKey: 'a' }]);
      let sends = 0;
      const outbox = createOutbox({
        pool: shell.pool,
        schema: shell.schema,
        policies: { default: fixed('1ms') },
      });
      const bad = failure('transient', 'broker.unroutable', 'there is no exchange');
      const relay = outbox.relay({
        to: {
          name: 'second time',
          send: async (parcels) => {
            sends += 1;
            return parcels.map(() => (sends === 1 ? bad : 'confirmed'));
          },
          close: async () => undefined,
        },
      });
      const sent = new Promise((resolve) => relay.on('delivered', resolve));
      await relay.start();
      await sent;
      await relay.stop();
      await outbox.close();
      expect((await shell.outbox(['list'], TTY)).stdout).toMatch(/own-id +archived/);
      expect((await shell.outbox(['list'], TTY)).stdout).not.toContain('no exchange');
      expect((await shell.outbox(['show', id], TTY)).stdout).toMatch(/last failure +.*no exchange/);
    });

    test('hold keeps messages back, and release lets them go on', async () => {
      const shell = await outboxShell();
      const [mail = '', order = ''] = await shell.emit([
        { routingKey: 'mail.new' },
        { routingKey: 'order.new' },
      ]);
      const states = async () =>
        Object.fromEntries(
          (await shell.outbox(['list', '--json']))
            .objects()
            .map((one) => [one['id'], (one['status'] as { state: string }).state]),
        );
      expect((await shell.outbox(['hold', 'ALL', '--yes'])).stdout).toBe('held 2\n');
      expect(await states()).toEqual({ [mail]: 'hold', [order]: 'hold' });
      const some = await shell.outbox(['release', '--topic', 'mail.*', '--yes']);
      expect(some).toMatchObject({ code: 0, stdout: 'released 1\n' });
      expect(await states()).toEqual({ [mail]: 'incoming', [order]: 'hold' });
      expect((await shell.outbox(['release', order])).stdout).toBe('released 1\n');
      expect(await states()).toEqual({ [mail]: 'incoming', [order]: 'incoming' });
    });

    test('pause stops every relay of the outbox for routing keys, until resume', async () => {
      const shell = await outboxShell();
      const paused = await shell.outbox(['pause', 'mail.*']);
      expect(paused).toMatchObject({ code: 0, stdout: 'paused mail.*\n' });
      const [mail = '', order = ''] = await shell.emit([
        { routingKey: 'mail.new' },
        { routingKey: 'order.new' },
      ]);
      expect((await shell.outbox(['stats'], TTY)).stdout).toMatch(/paused +mail\.\* by tester@cli/);
      const before = await relayed(shell, (sent) => sent.ids.length > 0);
      expect(before.ids).toEqual([order]);
      expect((await shell.outbox(['resume', 'mail.*'])).code).toBe(0);
      const after = await relayed(shell, (sent) => sent.ids.length > 0);
      expect(after.ids).toEqual([mail]);
    });

    test('policy set gives messages a policy of the outbox', async () => {
      const shell = await outboxShell();
      const [id = ''] = await shell.emit([{ routingKey: 'a' }]);
      await shell.configure({ policies: { patient: { fixed: '1h', attempts: 5 } } });
      const set = await shell.cli(['outbox', 'policy', 'set', 'patient', id]);
      expect(set).toMatchObject({ code: 0, stderr: '' });
      const [shown] = (await shell.cli(['outbox', 'show', id, '--json'])).objects();
      expect(shown).toMatchObject({ status: { policy: 'patient' } });
      const unknown = await shell.cli(['outbox', 'policy', 'set', 'nobody-knows', id]);
      expect(unknown.code).not.toBe(0);
      expect(unknown.stderr).toContain('nobody-knows');
    });

    test('cat prints a body, audit who did what, check what is damaged', async () => {
      const shell = await outboxShell();
      const [id = '', other = ''] = await shell.emit([
        { routingKey: 'a', body: { orderId: 7 } },
        { routingKey: 'a', body: 'whole' },
      ]);
      expect((await shell.outbox(['cat', id])).stdout).toBe('{"orderId":7}');
      await shell.outbox(['hold', id]);
      const done = (await shell.outbox(['audit', '--json'])).objects();
      expect(done).toMatchObject([{ by: 'tester@cli', action: 'hold', ids: [id] }]);
      expect(await shell.outbox(['check'])).toMatchObject({ code: 0 });
      await shell.pool.query(
        `UPDATE ${shell.schema}.contents SET body = 'wrong' WHERE envelope LIKE $1`,
        [`%${other}%`],
      );
      const found = await shell.outbox(['check', '--json']);
      expect(found.code).toBe(1);
      expect(found.objects()[0]).toMatchObject({ id: expect.anything(), kind: expect.anything() });
      expect(found.stdout).toContain(other);
    });
  });
});

/** A relay over the outbox of a shell until what was sent is enough; then it is stopped. */
async function relayed(
  { pool, schema }: Awaited<ReturnType<typeof outboxShell>>,
  isEnough: (sink: TestSink) => boolean,
): Promise<TestSink> {
  const outbox = createOutbox({ pool, schema });
  const sink = new TestSink();
  const enough = new Promise<void>((resolve) => {
    sink.answer = (parcels) => {
      if (isEnough(sink)) resolve();
      return parcels.map(() => 'confirmed');
    };
  });
  const relay = outbox.relay({ to: sink });
  onTestFinished(async () => {
    await relay.stop();
    await outbox.close();
  });
  await relay.start();
  await enough;
  await relay.stop();
  return sink;
}

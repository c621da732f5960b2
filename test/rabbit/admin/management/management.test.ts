import { describe, expect, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { createManagement } from 'respool/rabbit';
import { isRespoolError } from 'respool';
import { service, withService } from '../../../services/index.ts';
import { administer, freshName, freshUser, openManagement } from './setup.ts';

withService('rabbitmq', () => {
  async function withQueues(count: number): Promise<{ prefix: string } & AsyncDisposable> {
    const prefix = freshName('page');
    const names = Array.from({ length: count }, (_, index) => `${prefix}.${index}`);
    for (const name of names) {
      await administer('PUT', `/queues/%2F/${name}`, {
        durable: true,
        arguments: { 'x-queue-type': 'classic', 'x-max-length': 7 },
      });
    }
    return {
      prefix,
      [Symbol.asyncDispose]: async () => {
        for (const name of names) await administer('DELETE', `/queues/%2F/${name}`);
      },
    };
  }

  describe('the management client', () => {
    test('lists queues over several pages', async () => {
      await using management = await openManagement();
      await using queues = await withQueues(3);
      const pattern = `^${queues.prefix}`;
      const found = await management.queues({ pattern, pageSize: 1 });
      expect(found.map(({ name }) => name)).toEqual([0, 1, 2].map((n) => `${queues.prefix}.${n}`));
      expect(found[0]).toMatchObject({ type: 'classic', durable: true, exclusive: false });
      expect(found[0]?.arguments).toMatchObject({ 'x-max-length': 7 });
    });

    test('lists nothing where no name matches, and only the columns asked for', async () => {
      await using management = await openManagement();
      await using queues = await withQueues(1);
      expect(await management.queues({ pattern: `^${freshName('none')}` })).toEqual([]);
      const [one] = await management.queues({
        pattern: `^${queues.prefix}`,
        columns: ['name', 'durable'],
        detail: 'totals',
      });
      expect(one?.raw).toEqual({ name: `${queues.prefix}.0`, durable: true });
    });

    test('refuses a page size that the broker would refuse', async () => {
      await using management = await openManagement();
      await expect(management.queues({ pageSize: 501 })).rejects.toThrow(/1 to 500/);
      await expect(management.queues({ pageSize: 0 })).rejects.toThrow(/1 to 500/);
    });

    test('looks at one queue, whatever its name, and its bindings', async () => {
      await using management = await openManagement();
      const name = `${freshName('odd')}/ü %2F`;
      const path = `/queues/%2F/${encodeURIComponent(name)}`;
      await administer('PUT', path, { durable: true });
      expect(await management.queue(name)).toMatchObject({ name, durable: true });
      expect(await management.bindings(name)).toEqual([
        { exchange: '', destination: name, to: 'queue', key: name, arguments: {} },
      ]);
      await administer('DELETE', path);
      management.forget();
      expect(await management.queue(name)).toBeUndefined();
    });

    test('tells the version, the nodes, the exchanges, who we are and that all is well', async () => {
      await using management = await openManagement();
      expect((await management.overview()).version).toMatch(/^\d+\.\d+\.\d+/);
      expect((await management.nodes())[0]).toMatchObject({ isRunning: true });
      const names = (await management.exchanges()).map(({ name }) => name);
      expect(names).toContain('amq.headers');
      expect(await management.whoAmI()).toEqual({
        name: management.username,
        tags: ['administrator'],
      });
      expect(await management.permissions()).toMatchObject({ kind: 'known', configure: '.*' });
      expect(await management.permissions(freshName('nobody'))).toEqual({ kind: 'none' });
      expect(await management.alarms()).toEqual({ isWell: true, alarms: [] });
      expect(Object.keys(await management.definitions())).toContain('queues');
    });

    test('sets, lists and deletes a policy', async () => {
      await using management = await openManagement();
      const policy = {
        name: freshName('policy'),
        pattern: `^${freshName('none')}$`,
        definition: { 'max-length': 5 },
        priority: 3,
      };
      await management.putPolicy(policy);
      const found = (await management.policies()).find(({ name }) => name === policy.name);
      expect(found).toEqual({ ...policy, applyTo: 'queues' });
      expect(await management.deletePolicy(policy.name)).toBe(true);
      expect(await management.deletePolicy(policy.name)).toBe(false);
      expect((await management.policies()).map(({ name }) => name)).not.toContain(policy.name);
    });

    test('lists operator policies', async () => {
      await using management = await openManagement();
      const name = freshName('operator');
      const path = `/operator-policies/%2F/${name}`;
      const definition = { 'max-length': 5 };
      const rest = { pattern: `^${name}$`, definition, priority: 1 };
      await administer('PUT', path, { ...rest, 'apply-to': 'queues' });
      const found = await management.operatorPolicies();
      await administer('DELETE', path);
      expect(found.find((policy) => policy.name === name)).toMatchObject(rest);
    });

    test('a policy that the broker refuses is a wrong setting, in its words', async () => {
      await using management = await openManagement();
      const policy = { name: freshName('bad'), pattern: 'x', priority: 0 };
      const put = management.putPolicy({ ...policy, definition: { 'no-such-key': 1 } });
      await expect(put).rejects.toMatchObject({ code: 'config.invalid' });
      await expect(put).rejects.toThrow(/no-such-key/);
    });

    test('asks again only when an answer is older than five seconds', async () => {
      const clock = new SimClock();
      const url = await service('rabbitmq-management');
      await using management = createManagement({ url, clock });
      const name = freshName('cached');
      expect(await management.queue(name)).toBeUndefined();
      await administer('PUT', `/queues/%2F/${name}`, { durable: true });
      expect(await management.queue(name)).toBeUndefined();
      await clock.advance('4999ms');
      expect(await management.queue(name)).toBeUndefined();
      await clock.advance('1ms');
      expect(await management.queue(name)).toMatchObject({ name });
      await administer('DELETE', `/queues/%2F/${name}`);
    });

    test('works in the virtual host it is for, and says when there is none of that name', async () => {
      const url = await service('rabbitmq-management');
      const vhost = freshName('vhost/ä');
      await administer('PUT', `/vhosts/${encodeURIComponent(vhost)}`);
      const user = encodeURIComponent(decodeURIComponent(new URL(url).username));
      const all = { configure: '.*', write: '.*', read: '.*' };
      await administer('PUT', `/permissions/${encodeURIComponent(vhost)}/${user}`, all);
      await using management = createManagement({ url, vhost });
      expect(await management.queues()).toEqual([]);
      await administer('DELETE', `/vhosts/${encodeURIComponent(vhost)}`);
      management.forget();
      const asked = management.queues();
      await expect(asked).rejects.toMatchObject({ code: 'config.invalid' });
      await expect(asked).rejects.toThrow(/virtual host/);
    });

    test('takes a password with any characters, from the options or from the URL', async () => {
      await using user = await freshUser({
        tags: 'management',
        read: '.*',
        password: 'pässwörd/%+:€',
      });
      const url = new URL(await service('rabbitmq-management'));
      const { name: username, password } = user;
      await using byOptions = createManagement({ url: url.origin, username, password });
      expect(await byOptions.whoAmI()).toEqual({ name: username, tags: ['management'] });
      url.username = username;
      url.password = encodeURIComponent(password);
      await using byUrl = createManagement({ url: url.href });
      expect(await byUrl.whoAmI()).toEqual({ name: username, tags: ['management'] });
      expect(await byUrl.permissions()).toEqual({ kind: 'hidden' });
      await expect(
        byUrl.putPolicy({ name: 'x', pattern: 'x', definition: {}, priority: 0 }),
      ).rejects.toThrow(/policymaker/);
    });

    test('a wrong password is explained without showing it', async () => {
      const url = new URL(await service('rabbitmq-management'));
      const password = 'do-not-show-this';
      await using management = createManagement({ url: url.href, username: 'nobody', password });
      for (const ask of [management.overview(), management.permissions()]) {
        const error = await ask.catch((thrown: unknown) => thrown);
        expect(isRespoolError(error, 'config.invalid')).toBe(true);
        expect(String(error)).toContain('"nobody"');
        expect(JSON.stringify(error) + String(error)).not.toContain(password);
      }
    });
  });
});

import { describe, expect, test } from 'vitest';
import { applyTopology, planTopology, verifyTopology } from 'respool/rabbit';
import { withService } from '../../services/index.ts';
import { setup } from './declare-setup.ts';
import { KINDS, orderOf, STYLES } from './order.ts';

withService('rabbitmq', () => {
  describe('what a style builds', () => {
    test.each(KINDS)('%s with %s queues is the same once it is applied', async (name, type) => {
      await using at = await setup();
      const { connection, management } = at;
      const order = orderOf({
        queue: `${at.prefix}.orders`,
        type,
        extraWaitsMs: [7_000],
        bindings: [{ exchange: `${at.prefix}.shop`, key: 'order.*' }],
      });
      const topology = STYLES[name]?.(at.prefix).plan(order).topology;
      if (topology === undefined) throw new Error(`there is no style ${name}`);
      const before = await planTopology(connection, topology, { management });
      expect(before.counts).toMatchObject({ create: before.items.length });
      await applyTopology(connection, topology, { management });
      expect(await verifyTopology(connection, topology, { management })).toEqual([]);
      const after = await planTopology(connection, topology, { management });
      expect(after.counts).toMatchObject({ same: before.items.length });
      const { counts } = await planTopology(connection, topology);
      expect(counts).toMatchObject({ create: 0, different: 0, unknown: topology.bindings.length });
    });
  });
});

/**
 * known-metrics — every metric that exists, read from the code that registers them: nothing is
 * listed here by name but what Prometheus itself makes.
 */
import { vi } from 'vitest';
import { Families, type FamilyShape } from '../../src/observe/metrics/families.ts';
import { createMetrics } from 'respool/observe';
import type { KnownMetric } from './promql.ts';

/** What Prometheus tells of each target. */
const UP: KnownMetric = { name: 'up', type: 'gauge', labels: [] };

/** All of them by name, those of the process too; not the names of other systems. */
export async function knownMetrics(): Promise<ReadonlyMap<string, KnownMetric>> {
  const found: KnownMetric[] = [UP];
  const types = ['counter', 'gauge', 'histogram'] as const;
  const spies = types.map((type) => vi.spyOn(Families.prototype, type));
  const metrics = await createMetrics({ processMetrics: true });
  for (const [at, type] of types.entries()) {
    for (const [{ name, labels = [] }] of spies[at]?.mock.calls ?? ([] as [FamilyShape][])) {
      found.push({ name: `respool_${name}`, type, labels });
    }
    spies[at]?.mockRestore();
  }
  for (const metric of metrics.registry.getMetricsAsArray()) {
    // What the library makes knows its labels.
    const { labelNames } = metric as unknown as { readonly labelNames?: readonly string[] };
    if (labelNames === undefined) continue;
    found.push({
      name: metric.name,
      type: metric.type,
      labels: labelNames,
    });
  }
  metrics.close();
  return new Map(found.map((metric) => [metric.name, metric]));
}

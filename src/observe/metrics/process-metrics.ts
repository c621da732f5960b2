/**
 * process-metrics — the part of `@prometheus-io/client` that is used. This file is loaded, and the
 * library with it, when metrics are made.
 */

import { collectDefaultMetrics, type Metric, Registry } from '@prometheus-io/client';

export { Registry };

let ofProcess: Registry | undefined;

/**
 * Puts memory, CPU, event loop and garbage collection of this process into a registry; returns the
 * way to take them out.
 *
 * n.b. the library has no way to end its collecting: a timer of 100 ms, which lets the process
 * end, and two observers. So it collects once for a process, however often it is asked.
 */
export function processMetrics(registry: Registry): () => void {
  if (ofProcess === undefined) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess });
  }
  // Those that the user's registry already has are the user's.
  const metrics = ofProcess
    .getMetricsAsArray()
    .filter(({ name }) => registry.getSingleMetric(name) === undefined);
  for (const metric of metrics) registry.registerMetric(metric as unknown as Metric);
  return () => {
    for (const { name } of metrics) registry.removeSingleMetric(name);
  };
}

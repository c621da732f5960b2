/**
 * long-files-first — the order in which `npm test` starts its files.
 *
 * Vitest starts large files first, and those that took long in the run before, if it remembers one.
 * Here small files take longest: a line that runs a suite on a server, or kills processes. Promise:
 * those come first, so that none of them runs alone at the end.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** What takes longest, the longest first. A file that is gone is refused. */
const LONG = [
  'stores/postgres/pgbouncer',
  'faults/life',
  'service/slow-readers',
  'outbox/faults',
  'stores/postgres/conformance',
  'stores/filesystem/conformance',
  'docs/snippets',
  'walks',
  'faults/points',
  'service/many-names',
  'rabbit/faults/broker',
  'faults/disk',
  'stores/s3/conformance',
  'transforms/seal-sqlite',
  'cli/dlq-kill',
  'rabbit/queues/faults/sweeps',
  'stores/sqlite/conformance',
  'nodes/nodes',
  'nodes/faults',
  'rabbit/queues/faults/replays',
  'service/stop',
  'faults/powercut',
  'rabbit/queues/queue-letters-suite',
  'stores/sqlite/conformance-tables',
  'sim/simulation',
  'stores/postgres/conformance-bodies',
  'faults/slow-disk',
  'faults/crash',
  'stores/sqlite/conformance-thread',
  'stores/nats/body-store',
  'stores/postgres/look-cost',
  'spool/lent-memory',
  'stores/nats/conformance-1',
  'stores/nats/conformance-2',
  'rabbit/publisher-outage',
  'stores/filesystem/conformance-full',
  'stores/filesystem/conformance-none',
  'rabbit/admin/migrate',
  'stores/nats/cluster',
  'service/owner',
  'rabbit/queues/foreign',
  'outbox/relay-outage',
].map((name) => path.resolve(import.meta.dirname, `../test/${name}.test.ts`));

const gone = LONG.filter((file) => !existsSync(file));
if (gone.length > 0) throw new Error(`long-files-first names files that are gone: ${gone.join()}`);

/** The sequencer that vitest.config.ts names. */
export class LongFilesFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.sort((one, other) => placeOf(one) - placeOf(other));
  }
}

function placeOf({ moduleId }: TestSpecification): number {
  const at = LONG.indexOf(path.resolve(moduleId));
  return at === -1 ? LONG.length : at;
}

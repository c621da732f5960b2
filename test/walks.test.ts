/**
 * walks — how many files one message goes through, on each way that `npm run walk` knows.
 *
 * A ratchet: a walk that got shorter tightens its number here, in the same commit.
 */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Walk } from '../scripts/walk/text.ts';
import { VARIABLES, type ServiceName } from '../scripts/services/words.ts';
import { service, skipReason } from './services/index.ts';

interface Limit {
  /** The most files that may be on the way. */
  readonly max: number;
  readonly needs?: readonly ServiceName[];
}

const LIMITS: Readonly<Record<string, Limit>> = {
  enqueue: { max: 30 },
  claim: { max: 38 },
  postgres: { max: 40, needs: ['postgres'] },
  http: { max: 54 },
  rabbit: { max: 41, needs: ['rabbitmq'] },
  replay: { max: 156, needs: ['rabbitmq', 'rabbitmq-management'] },
  outbox: { max: 61, needs: ['postgres', 'rabbitmq'] },
};

const run = promisify(execFile);
const root = path.join(import.meta.dirname, '..');

describe('the walk of one message', () => {
  for (const [name, { max, needs = [] }] of Object.entries(LIMITS)) {
    const isSkipped = needs.some((need) => skipReason(need) !== undefined);
    test.skipIf(isSkipped)(`${name}: at most ${max} files`, async () => {
      const { files, steps } = await walk(name, needs);
      const seen = [...new Set(steps.map(({ file }) => file))].sort();
      expect(files, `these are on the way:\n${seen.join('\n')}`).toBeLessThanOrEqual(max);
      expect(steps.length).toBeGreaterThan(files);
    });
  }
});

async function walk(name: string, needs: readonly ServiceName[]): Promise<Walk> {
  const env: NodeJS.ProcessEnv = { ...process.env };
  for (const need of needs) env[VARIABLES[need]] = await service(need);
  const script = path.join(root, 'scripts/walk.ts');
  const argv = ['--conditions=respool-source', script, name, '--json'];
  const options = { cwd: root, env, maxBuffer: 64 * 1024 * 1024 };
  const { stdout } = await run(process.execPath, argv, options);
  return JSON.parse(stdout) as Walk;
}

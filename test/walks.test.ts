/**
 * walks — how many files one message goes through, on each way that `npm run walk` knows.
 *
 * A ratchet: a walk that got shorter tightens its number here, in the same commit.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Walk } from '../scripts/walk/text.ts';
import { VARIABLES, type ServiceName } from '../scripts/services/words.ts';
import { service, skipReason } from './services/index.ts';
import { filesOnPage, PAGE_WALKS } from '../scripts/walk/page.ts';

interface Limit {
  /** The most files that may be on the way. */
  readonly max: number;
  readonly needs?: readonly ServiceName[];
}

const LIMITS: Readonly<Record<string, Limit>> = {
  enqueue: { max: 30 },
  claim: { max: 36 },
  postgres: { max: 40, needs: ['postgres'] },
  http: { max: 44 },
  rabbit: { max: 29, needs: ['rabbitmq'] },
  replay: { max: 110, needs: ['rabbitmq', 'rabbitmq-management'] },
  outbox: { max: 40, needs: ['postgres', 'rabbitmq'] },
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
      if (PAGE_WALKS.some((one) => one === name)) expectOnPage(name, seen);
    });
  }
});

/** docs/walks.md shows this walk; a timer that runs meanwhile may add files to the one of now. */
function expectOnPage(name: string, seen: readonly string[]): void {
  const page = readFileSync(path.join(root, 'docs/walks.md'), 'utf8');
  const shown = filesOnPage(page, name);
  const hint = 'run: npm run walk -- page';
  expect(
    [...shown.keys()].filter((file) => !seen.includes(file)),
    hint,
  ).toEqual([]);
  expect(seen.filter((file) => !shown.has(file)).length, hint).toBeLessThanOrEqual(2);
  for (const [file, names] of shown) {
    const text = readFileSync(path.join(root, file), 'utf8');
    const words = names.map((one) => one.replace(' (fields)', '').replace(/^.*[ .]/, ''));
    const isGone = (word: string): boolean => word !== 'callback' && !text.includes(word);
    expect(words.filter(isGone), `${file}: ${hint}`).toEqual([]);
  }
}

async function walk(name: string, needs: readonly ServiceName[]): Promise<Walk> {
  const env: NodeJS.ProcessEnv = { ...process.env };
  for (const need of needs) env[VARIABLES[need]] = await service(need);
  const script = path.join(root, 'scripts/walk.ts');
  const argv = ['--conditions=respool-source', script, name, '--json'];
  const options = { cwd: root, env, maxBuffer: 64 * 1024 * 1024 };
  const { stdout } = await run(process.execPath, argv, options);
  return JSON.parse(stdout) as Walk;
}

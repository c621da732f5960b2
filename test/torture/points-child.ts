/**
 * points-child — carries out the script of points-order.ts step by step, saying before each step
 * what it does and after each what was acknowledged. Started, traced and killed by points.ts.
 *
 * It prepares, says `ready`, and waits for a word: by then all its threads are there to be traced.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import {
  held,
  isRespoolError,
  type Outcome,
  PermanentError,
  RetryableError,
  type Spool,
} from 'respool';
import { spoolAt } from './places.ts';
import { bodyOf } from './plans.ts';
import {
  NEIGHBOURS,
  type PointsOrder,
  PREPARED,
  type Settling,
  sizeOf,
  SPOOL_OPTIONS,
  type Step,
  STEPS,
} from './points-order.ts';

const { place, path, phase } = JSON.parse(process.argv[2] ?? '') as PointsOrder;
// In one thread: a traced program is slow, and would move to another at some point or other.
const spool = spoolAt(place, path, SPOOL_OPTIONS, false);
const ids = new Map<string, string>();

if (phase === 'steps') await prepare(spool);
flushCompileCache();
say('ready');
await new Promise((resolve) => process.stdin.once('data', resolve));
process.stdin.destroy();
if (phase === 'steps') await performAll();
else {
  await spool.start();
  await spool.stop();
}
say('end');

async function performAll(): Promise<void> {
  for (const step of STEPS) {
    say(`doing ${step.name}`);
    try {
      await perform(spool, step);
      say(`acked ${step.name}`);
    } catch (error) {
      say(`failed ${step.name}: ${isRespoolError(error) ? error.code : String(error)}`);
    }
  }
}

/** Printed before anything else can happen, also before a kill. */
function say(line: string): void {
  writeSync(1, `${line}\n`);
}

async function prepare(spool: Spool): Promise<void> {
  for (const key of [...NEIGHBOURS, ...PREPARED]) await enqueue(spool, key);
  const old = PREPARED.filter((key) => key.startsWith('old'));
  await spool.operator({ by: 'ops' }).remove(old.map((key) => ids.get(key) ?? ''));
}

async function enqueue(spool: Spool, key: string): Promise<void> {
  const { id } = await spool.enqueue(messageOf(key));
  ids.set(key, id);
}

function messageOf(key: string): Parameters<Spool['enqueue']>[0] {
  const message = { topic: 'step', headers: { key }, body: bodyOf(key, sizeOf(key)) };
  return key.startsWith('own') ? { ...message, id: key } : message;
}

async function perform(spool: Spool, { name, keys, settling }: Step): Promise<void> {
  if (settling !== undefined) return settle(spool, keys[0] ?? '', settling);
  const named = keys.map((key) => ids.get(key) ?? '');
  switch (name) {
    case 'enqueue':
    case 'enqueue stored':
      return enqueue(spool, keys[0] ?? '');
    case 'enqueue many':
      // At once, so that they share their writes.
      await Promise.all(keys.map((key) => enqueue(spool, key)));
      return;
    case 'caretaker':
      await spool.operator({ by: 'ops' }).cleanUp();
      return;
    case 'stop':
      return spool.stop();
    default:
      await spool.operator({ by: 'ops' }).remove(named, { hard: true });
  }
}

async function settle(spool: Spool, key: string, settling: Settling): Promise<void> {
  await spool.process(ids.get(key) ?? '', (): Outcome | undefined => {
    say(`claimed ${key}`);
    if (settling === 'defer') throw new RetryableError('test.busy', 'try again');
    if (settling === 'bounce') throw new PermanentError('test.never', 'never');
    return settling === 'hold' ? held('for a human') : undefined;
  });
}

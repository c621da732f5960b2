/** Lines for people: one for each fact, that no text breaks out of. */
import process from 'node:process';
import { stripVTControlCharacters } from 'node:util';
import { createSpool } from 'respool';
import { prettyLogger, type PrettyOptions } from 'respool/observe';
import { memory, memoryBodies } from 'respool/stores/memory';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test, vi } from 'vitest';

const AT = Date.UTC(2026, 0, 2, 3, 4, 5, 678);

function setup(options: PrettyOptions = {}) {
  const lines: string[] = [];
  const write = (line: string): unknown => lines.push(line);
  return {
    logger: prettyLogger({ write, clock: new SimClock({ startAt: AT }), ...options }),
    lines,
  };
}

describe('a pretty line', () => {
  test('has the time, the level, the text and the fields', () => {
    const { logger, lines } = setup();
    logger.warn({ at: AT + 1_000, kind: 'bounced', id: 'm', spent: true, none: null }, 'bounced');
    logger.info({ because: { code: 'smtp.451', text: 'try later' }, ids: ['a', 'b'] }, 'deferred');
    logger.error({ kind: 'trouble', doing: 'x', failure: { a: { b: 1 } } }, 'trouble x');
    expect(lines).toEqual([
      '03:04:06.678Z warn  bounced id=m spent=true\n',
      '03:04:05.678Z info  deferred because.code=smtp.451 because.text="try later" ids="[\\"a\\",\\"b\\"]"\n',
      '03:04:05.678Z error trouble x doing=x failure.a="{\\"b\\":1}"\n',
    ]);
  });

  test('is written for a text alone, fields alone, and what is neither', () => {
    const { logger, lines } = setup();
    const info = logger.info.bind(logger) as (...said: readonly unknown[]) => void;
    info('only a text');
    info({ a: 1 });
    info({ a: 1 }, 7);
    info(undefined);
    expect(lines.map((line) => line.slice('03:04:05.678Z info  '.length))).toEqual([
      'only a text\n',
      ' a=1\n',
      '7 a=1\n',
      'undefined\n',
    ]);
  });

  test('stays on its line, steers no terminal and shows no secret', () => {
    const { logger, lines } = setup({ names: ['email'] });
    const evil = 'a\nb\u001b[2Jc\u202e';
    logger.info({ evil, [evil]: 1, password: 'hunter2', email: 'a@b' }, `${evil} Bearer hunter2`);
    expect(lines).toEqual([
      '03:04:05.678Z info  a bc Bearer (secret) evil="a bc" a bc=1 password=(secret) email=(secret)\n',
    ]);
  });

  test('is not written below its level; default info', () => {
    const { logger, lines } = setup();
    logger.debug({}, 'x');
    expect(lines).toEqual([]);
    const all = setup({ level: 'debug' });
    all.logger.debug({}, 'x');
    expect(all.lines).toEqual(['03:04:05.678Z debug x\n']);
    const few = setup({ level: 'error' });
    few.logger.warn({}, 'x');
    expect([few.lines, few.logger.isLevelEnabled?.('warn')]).toEqual([[], false]);
  });

  test('has colours when asked to, and none by default where a function writes', () => {
    const { logger, lines } = setup({ color: true });
    logger.error({ a: 1 }, 'x');
    expect(lines[0]).toContain('\u001b[31m');
    expect(stripVTControlCharacters(lines[0] ?? '')).toBe('03:04:05.678Z error x a=1\n');
  });

  test.each([
    [true, undefined, true],
    [true, '1', false],
    [false, undefined, false],
  ])('goes to stderr by default (terminal: %s, NO_COLOR: %s)', (isTTY, noColor, hasColor) => {
    const written: string[] = [];
    const spy = vi.spyOn(process.stderr, 'write').mockImplementation((line) => {
      written.push(String(line));
      return true;
    });
    const before = process.stderr.isTTY;
    process.stderr.isTTY = isTTY;
    vi.stubEnv('NO_COLOR', noColor);
    vi.stubEnv('TERM', 'xterm');
    onTestFinished(() => {
      spy.mockRestore();
      process.stderr.isTTY = before;
      vi.unstubAllEnvs();
    });
    prettyLogger().info({}, 'hello');
    expect(written).toHaveLength(1);
    expect(written[0]?.includes('\u001b[')).toBe(hasColor);
  });
});

test('a spool writes through it', async () => {
  const { logger, lines } = setup();
  const spool = createSpool({ entries: memory(), bodies: memoryBodies(), logger });
  spool.handle('a', () => undefined);
  const delivered = new Promise((resolve) => spool.on('delivered', resolve));
  await spool.enqueue({ topic: 'a', id: 'm-1' });
  await spool.start();
  await delivered;
  await spool.stop();
  expect(lines[1]).toMatch(/^[\d:.]+Z info {2}delivered id=m-1 topic=a lane=delivery attempt=1 /);
});

test.each([
  [{ write: 'x' }, /as "write" of prettyLogger/],
  [{ color: 'yes' }, /"yes" as "color": allowed is true or false/],
  [{ level: 'loud' }, /as "level"/],
  [{ colour: true }, /there is no option "colour"/],
])('%j is refused', (options, text) => {
  expect(() => prettyLogger(options as unknown as PrettyOptions)).toThrow(text);
});

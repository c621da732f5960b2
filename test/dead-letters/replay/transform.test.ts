/** Transforms: what a user's file does to letters, in the plan, in the rehearsal and on the way. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { loadTransform, pauseReplay, planReplay, rehearse } from 'respool/dead-letters';
import { drive, idOf, setup, SOURCE } from './setup.ts';

let folder = '';
let made = 0;

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'respool-transform-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function fileOf(text: string, name = `t${(made += 1)}.ts`): Promise<string> {
  const file = path.join(folder, name);
  await writeFile(file, text);
  return file;
}

const json = (value: unknown) => Buffer.from(JSON.stringify(value));

/** Fits objects with a text as country. */
const SCHEMA = `export const schema = { '~standard': { version: 1, vendor: 'test', validate: (value) =>
  typeof value.country === 'string' ? { value } : { issues: [{ message: 'not text', path: ['country'] }] } } };\n`;

describe('on the way', () => {
  test('changes body and headers, and the original is kept first', async () => {
    const { place, plan, run, kept } = await setup();
    place.put([{ id: 'one', headers: { old: 'x', turn: 'a' }, body: json({ name: 'Ada' }) }]);
    const file = await fileOf(`export default (letter: { id: string }, { json }) => ({
      json: { ...json(), country: 'CH', was: letter.id }, headers: { old: null, turn: 'b' },
    });`);
    let keptAtSend = 0;
    place.hold = async () => {
      keptAtSend = kept.length;
    };
    const { id } = await plan({ canary: 0, transform: file });
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 1 } });
    const [sent] = place.sent;
    expect(JSON.parse(String(Buffer.from(sent?.body ?? [])))).toEqual({
      name: 'Ada',
      country: 'CH',
      was: 'one',
    });
    expect(sent?.headers).toEqual({ turn: 'b' });
    expect(keptAtSend).toBe(1);
    expect(kept[0]).toMatchObject({
      id: 'one',
      topic: 'suite.letter',
      headers: { old: 'x', turn: 'a', 'respool-amqp-broker': 'main' },
      reason: `changed by replay ${id}`,
    });
    expect(Buffer.from(kept[0]?.body ?? [])).toEqual(json({ name: 'Ada' }));
  });

  test('text and bytes are bodies too, and what is not changed is sent as it is, without a copy', async () => {
    const { place, plan, run, kept } = await setup();
    place.put([{ id: 'text' }, { id: 'bytes' }, { id: 'same' }, { id: 'empty' }]);
    const file = await fileOf(`export default async ({ id }, { body }) => {
      if (id === 'text') return { body: 'ü', contentType: 'text/plain' };
      if (id === 'bytes') return { body: body.slice(1) };
      return id === 'same' ? undefined : {};
    };`);
    const { id } = await plan({ canary: 0, transform: file });
    await run(id);
    expect(place.sent.map((one) => [one.id, [...one.body], one.contentType])).toEqual([
      ['text', [0xc3, 0xbc], 'text/plain'],
      ['bytes', [2, 3], undefined],
      ['same', [1, 2, 3], undefined],
      ['empty', [1, 2, 3], undefined],
    ]);
    expect(kept.map((copy) => copy.id)).toEqual(['text', 'bytes']);
  });

  test('what it throws at or skips stays where it was, and the plan says so', async () => {
    const { place, plan, run, report } = await setup();
    place.put([{ id: 'bad' }, { id: 'no' }, { id: 'wrong' }, { id: 'good', body: json({}) }]);
    const file = await fileOf(`export default ({ id }, { json }) => {
      if (id === 'no') return 'skip';
      if (id === 'wrong') return 42;
      json();
    };`);
    const { id, plan: found } = await plan({ canary: 0, stopAbove: 100, transform: file });
    expect(found.count).toBe(4);
    expect(found.cannot.map(({ why, ids }) => [why, ids])).toEqual([
      ['transform-failed', ['bad', 'wrong']],
      ['transform-skips', ['no']],
    ]);
    expect(await run(id)).toMatchObject({
      state: 'done',
      counts: { sent: 1, failed: 2, left: 1 },
    });
    expect((await report(id)).map((line) => [line.id, line.result, line.code])).toEqual([
      ['bad', 'failed', 'transform.failed'],
      ['no', 'left', 'transform.skipped'],
      ['wrong', 'failed', 'transform.failed'],
      ['good', 'sent', undefined],
    ]);
    expect(place.items.map(({ letter }) => letter.id)).toEqual(['bad', 'no', 'wrong']);
  });

  test('what does not fit the schema is not sent', async () => {
    const { place, plan, run, report } = await setup();
    place.put([
      { id: 'fits', body: json({ country: 'ch' }) },
      { id: 'not', body: json({ country: 7 }) },
    ]);
    const file = await fileOf(`${SCHEMA}export default (_, { json }) => ({
      json: { country: json().country.toUpperCase?.() ?? json().country } });`);
    const { id } = await plan({ canary: 0, stopAbove: 100, transform: file });
    await run(id);
    expect(place.sent.map((one) => String(Buffer.from(one.body)))).toEqual(['{"country":"CH"}']);
    expect((await report(id))[1]).toMatchObject({
      id: 'not',
      result: 'failed',
      reason: 'the body does not fit the schema: country: not text',
    });
  });

  test('one that breaks every letter stops the replay', async () => {
    const { plan, run } = await setup(40);
    const file = await fileOf(`export default () => { throw new Error('no'); };`);
    const { id } = await plan({ canary: 0, transform: file });
    expect(await run(id)).toMatchObject({ state: 'stopped', counts: { sent: 0 } });
  });

  test('where the original cannot be kept nothing is sent, and nothing is unsure', async () => {
    const { place, plan, run, resume, process } = await setup(5);
    const file = await fileOf(`export default () => ({ body: 'x' });`);
    const { id } = await plan({ canary: 0, transform: file });
    const as = process();
    const keep = () => Promise.reject(new Error('the disk is full'));
    await expect(run(id, { as: { ...as, operator: { ...as.operator, keep } } })).rejects.toThrow(
      /disk/,
    );
    expect(place.sent).toEqual([]);
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 5, unsure: 0 } });
  });
});

describe('a file', () => {
  test('that never answers holds up neither a pause nor the end of a plan', async () => {
    const { place, plan, run, resume, clock, process } = await setup(5);
    const file = await fileOf('export default ({ id }) => globalThis.hangs?.(id);');
    const { id } = await plan({ canary: 0, window: 2, transform: file });
    const { operator, letters } = process();
    const hang = (then: () => void) => {
      const hangs = (name: string) => {
        if (name !== idOf(3)) return undefined;
        clock.after(1_000, then);
        return new Promise(() => undefined);
      };
      Reflect.set(globalThis, 'hangs', hangs);
    };
    onTestFinished(() => void Reflect.deleteProperty(globalThis, 'hangs'));
    hang(() => void pauseReplay(operator, id, { clock }));
    expect(await run(id)).toMatchObject({ state: 'paused', counts: { sent: 3, unsure: 0 } });
    const stop = new AbortController();
    hang(() => stop.abort());
    const options = { transform: file };
    const planned = planReplay(operator, letters, SOURCE, options, { clock, signal: stop.signal });
    await expect(drive(clock, planned)).rejects.toThrow(/abort/i);
    Reflect.deleteProperty(globalThis, 'hangs');
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 5 } });
    expect(place.sent).toHaveLength(5);
  });

  test('that was changed after the plan is refused until it is as it was', async () => {
    const { plan, run, place } = await setup(2);
    const first = `export default () => ({ body: 'one' });`;
    const file = await fileOf(first, 'changing.ts');
    const { id } = await plan({ canary: 0, transform: file });
    await fileOf(`export default () => ({ body: 'two' });`, 'changing.ts');
    await expect(run(id)).rejects.toThrow(/it was changed after the replay was planned/);
    expect((await loadTransform(file)).digest).not.toBe('');
    await fileOf(first, 'changing.ts');
    expect((await run(id)).state).toBe('done');
    expect(place.sent.map((one) => String(Buffer.from(one.body)))).toEqual(['one', 'one']);
  });

  test.each([
    ['export const x = 1;', /default export is undefined; export a function/],
    ['export default 7;', /default export is 7/],
    ['export default () => 1; export const schema = {};', /"schema" is no Standard Schema/],
    ['this is no program', /cannot load the transform/],
  ])('that is no transform is refused: %s', async (text, message) => {
    await expect(loadTransform(await fileOf(text))).rejects.toThrow(message);
  });

  test('is on record under its whole path', async () => {
    const { plan } = await setup(1);
    const file = await fileOf(`export default () => undefined;`);
    const { options } = await plan({ transform: path.relative(process.cwd(), file) });
    expect(options.transform).toBe(file);
  });

  test('that is not there is refused by name', async () => {
    const { plan } = await setup(1);
    await expect(plan({ transform: path.join(folder, 'nobody.ts') })).rejects.toThrow(/nobody\.ts/);
  });
});

describe('a rehearsal', () => {
  test('refuses a body of text with half a surrogate pair, instead of changing it', async () => {
    const { place, process } = await setup();
    place.put([{ id: 'a' }]);
    const file = await fileOf(`export default () => ({ body: 'a\\uD83Db' });`);
    const [shown] = await rehearse(process().letters, await loadTransform(file), { max: 1 });
    expect(shown).toMatchObject({ id: 'a', result: 'failed' });
    expect(JSON.stringify(shown)).toContain('half a surrogate pair');
  });

  test('shows what would change in the first letters, and changes nothing', async () => {
    const { place, process } = await setup();
    place.put([
      { id: 'a', headers: { old: 'x', keep: 'y' }, body: json({ name: 'Ada', age: 36 }) },
      { id: 'b', body: json({ name: 'Bob' }) },
      { id: 'c' },
      { id: 'd', body: Buffer.from('plain') },
    ]);
    const file = await fileOf(`export default ({ id }, { json }) => {
      if (id === 'b') return 'skip';
      if (id === 'd') return { body: 'plain\\nmore', contentType: 'text/plain' };
      return { json: { ...json(), age: 37 }, headers: { old: null, keep: 'y', add: 'z' } };
    };`);
    const { letters } = process();
    const shown = await rehearse(letters, await loadTransform(file), { max: 4 });
    expect(shown[0]).toEqual({
      id: 'a',
      result: 'changed',
      headers: [
        { name: 'old', before: 'x', after: undefined },
        { name: 'add', before: undefined, after: 'z' },
      ],
      body: ['  {', '    "name": "Ada",', '-   "age": 36', '+   "age": 37', '  }'],
    });
    expect(shown[1]).toEqual({ id: 'b', result: 'skip', headers: [], body: [] });
    expect(shown[2]).toMatchObject({ id: 'c', result: 'failed' });
    expect(shown[3]).toEqual({
      id: 'd',
      result: 'changed',
      headers: [{ name: 'content-type', before: undefined, after: 'text/plain' }],
      body: ['  plain', '+ more'],
    });
    expect(place.items).toHaveLength(4);
    expect(await rehearse(letters, await loadTransform(file), { max: 1 })).toHaveLength(1);
  });

  test('shows sizes where a body is no text', async () => {
    const { place, process } = await setup();
    place.put([{ id: idOf(0), body: Uint8Array.of(0xff, 0xfe) }]);
    const file = await fileOf(`export default (_, { body }) => ({ body: body.slice(1) });`);
    const [shown] = await rehearse(process().letters, await loadTransform(file));
    expect(shown?.body).toEqual(['- 2 bytes', '+ 1 bytes']);
  });
});

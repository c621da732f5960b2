/** The doctor for machines: ids that are written down, a last line that counts, what can be seen. */
import { readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ROOT } from '../docs/pages.ts';
import { DOCUMENTED, isDocumented } from './doctor-ids.ts';
import { type CallOptions, setup } from './setup.ts';

/** Nobody listens on port 1. */
const NO_SERVICE = { RESPOOL_SERVE_PORT: '1' };

async function examined(config: object = {}, options: CallOptions = {}) {
  const shell = await setup();
  const text = JSON.stringify({ store: 'memory:', ...config });
  await writeFile(path.join(shell.folder, 'respool.config.json'), text, { mode: 0o600 });
  const env = { ...NO_SERVICE, ...options.env };
  const ran = await shell.cli(['doctor', '--json'], { ...options, env });
  const lines = ran.objects() as { id: string; level: string; text: string; todo?: string }[];
  const found = (id: string) => lines.find((line) => line.id === id);
  return { ...ran, lines, found };
}

test('the last line counts the others, and the exit code says whether one is unsafe', async () => {
  const { lines, code } = await examined();
  const last = lines.at(-1);
  const count = (level: string): number => lines.filter((line) => line.level === level).length;
  expect(last).toEqual({
    id: 'summary',
    level: 'summary',
    text: `${count('ok')} ok, ${count('note')} notes, 2 unsafe`,
    ok: count('ok'),
    note: count('note'),
    unsafe: 2,
  });
  expect(code).toBe(1);
  expect(lines.filter(({ id, level }) => !isDocumented(id, level))).toEqual([]);
});

describe('docs/reference/doctor.md', () => {
  const ids = DOCUMENTED.map(({ id }) => id);
  const made = [...idsOfDoctor(), ...idsOfStores()];

  test('lists every id that the code can make', () => {
    expect(made.length).toBeGreaterThan(60);
    // Those that begin with a place, such as `routes[0]`, are known by their end.
    const isListed = (id: string): boolean =>
      id.startsWith('…') ? ids.some((one) => one.endsWith(id.slice(1))) : ids.includes(id);
    expect(made.filter((id) => !isListed(id))).toEqual([]);
  });

  test('lists none that nobody makes, and none twice', () => {
    const ends = made.filter((id) => id.startsWith('…')).map((id) => id.slice(1));
    const isMade = (id: string): boolean =>
      id === 'summary' || made.includes(id) || ends.some((end) => id.endsWith(end));
    expect(ids.filter((id) => !isMade(id))).toEqual([]);
    expect(new Set(ids).size).toBe(ids.length);
  });
});

/** First arguments of what makes a finding, and the ids that are kept in a constant before. */
const MADE =
  /(?:\b(?:okFinding|infoFinding|note|unsafe|fine|noteFinding|danger|find)\(\s*|\b(?:id|full|key)(?: =|:) )(['`])([^'`\n]+)\1/g;

function literalsOf(file: string): readonly string[] {
  const source = readFileSync(path.join(ROOT, 'src', file), 'utf8');
  return [...source.matchAll(MADE)].map(([, , id = '']) => id);
}

function idsOfDoctor(): readonly string[] {
  const folder = 'cli/commands/doctor';
  // The command itself prints, and makes no findings but the last line.
  const files = readdirSync(path.join(ROOT, 'src', folder)).filter((file) => file !== 'doctor.ts');
  const ids = files.flatMap((file) => literalsOf(`${folder}/${file}`));
  const examine = readFileSync(path.join(ROOT, 'src', folder, 'examine.ts'), 'utf8');
  const parts = [...examine.matchAll(/attempt\('(\w+)'/g)].map(([, part]) => `${part}.failed`);
  return (
    [...ids, ...parts, 'summary']
      // Of stores; and where keys are, which alone is no finding.
      .filter(
        (id) => !/\$\{finding\.id\}|^seal$|^(?:routes|bounces|consumers)\[\$\{at\}\]$/.test(id),
      )
      .filter((id) => id !== 'alerts.to.${name}' && id !== '${id}.failed')
      .map((id) =>
        id
          .replace(/^\$\{(?:id|key)\}/, '…')
          .replaceAll('[${at}]', '[n]')
          .replaceAll('${name}', '<name>'),
      )
  );
}

function idsOfStores(): readonly string[] {
  const files = ['postgres/diagnose.ts', 'nats/diagnose.ts', 's3/diagnose.ts'];
  return files
    .flatMap((file) => literalsOf(`stores/${file}`))
    .filter((id) => !id.includes('$'))
    .map((id) => `store.<part>.${id}`);
}

describe('what can be seen', () => {
  test('the log: its form, its level and what it hides', async () => {
    const usual = await examined({ log: { redact: ['email'] } });
    expect(usual.found('log')).toEqual({
      id: 'log',
      level: 'ok',
      text: 'the log is auto, info and above; email are hidden besides',
    });
    expect((await examined({ log: { level: 'debug' } })).found('log')?.level).toBe('note');
  });

  test('metrics: off, for everybody, or for who has a token', async () => {
    const off = await examined({ metrics: { enabled: false } });
    expect(off.found('metrics')).toMatchObject({ level: 'note', todo: 'metrics.enabled: true' });
    expect((await examined()).found('metrics')?.text).toMatch(/^anyone who reaches/);
    const token = await examined({}, { env: { RESPOOL_TOKEN: 'x'.repeat(32) } });
    expect(token.found('metrics')).toMatchObject({ level: 'ok' });
  });

  test('traces: nothing when they are off, a note when no SDK is there', async () => {
    expect((await examined()).found('tracing')).toBeUndefined();
    expect((await examined({ tracing: { enabled: true } })).found('tracing')).toMatchObject({
      level: 'note',
      text: expect.stringContaining('no SDK of OpenTelemetry') as string,
    });
  });

  const rules = [{ name: 'dead', when: 'oldest deferred > 2h' }];
  const http = { http: { url: 'http://alerts.example/x' } };
  test.each([
    [{ rules, to: { log: { log: 'warn' } } }, 'note', /1 rule without a receiver/],
    [{ rules, to: { me: { exec: ['true'] } } }, 'ok', /1 rule of alerts, 1 receiver/],
    [{ to: { me: { exec: ['true'] } } }, 'note', /no rule that uses them/],
    [{ rules, to: { ops: http } }, 'ok', /1 receiver/],
  ])('alerts %j are %s', async (alerts, level, text) => {
    const { found } = await examined({ alerts });
    expect(found('alerts')).toMatchObject({ level, text: expect.stringMatching(text) as string });
  });

  test('a receiver of alerts in plain text is unsafe; no alerts are no finding', async () => {
    const { found, lines } = await examined({ alerts: { rules, to: { ops: http } } });
    expect(found('alerts.to.ops.plain')?.level).toBe('unsafe');
    expect(lines.filter(({ id, level }) => !isDocumented(id, level))).toEqual([]);
    expect((await examined()).found('alerts')).toBeUndefined();
  });
});

test('a service that is not ready is asked why, and what else is wrong', async () => {
  const answers: Record<string, [number, object]> = {
    '/healthz': [200, { ok: true }],
    '/openapi.json': [200, { info: { version: '9.9.9' } }],
    '/readyz': [
      503,
      {
        reasons: [
          { code: 'starting', text: 'the service is starting' },
          { code: 'x', text: 1 },
        ],
        notes: [{ code: 'relay.down', text: 'the target of the relay does not answer' }, null],
      },
    ],
  };
  const server = createServer(({ url = '' }, response) => {
    const [status, body] = answers[url] ?? [404, {}];
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const { found } = await examined({}, { env: { RESPOOL_SERVE_PORT: String(port) } });
  expect(found('service')?.text).toMatch(/but is not ready: the service is starting$/);
  expect(found('service.note')).toMatchObject({
    level: 'note',
    text: 'the target of the relay does not answer',
  });
});

/** The client trusts a service of its own version, and says what is wrong with anything else. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Operator, SerializedEvent } from 'respool/operator';
import { SimClock } from 'respool/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { connectOperator } from 'respool/web';
import { all, bytesOf, rejection } from '../spool/setup.ts';
import { moving, setup } from './setup.ts';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** Something that answers; everything ends with the test. */
async function strangerWith(answer: Answer): Promise<{ far: Operator; clock: SimClock }> {
  const server = createServer((request, response) => {
    request.resume();
    answer(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const clock = new SimClock();
  const { port } = server.address() as AddressInfo;
  return { far: connectOperator({ url: `http://127.0.0.1:${port}`, clock }), clock };
}

const OURS = { respool: 'v1', 'content-type': 'application/json' };

/** A service that says this, with our header. */
const saying =
  (value: unknown, status = 200): Answer =>
  (_, response) =>
    void response.writeHead(status, OURS).end(JSON.stringify(value));

const COPY = { id: 'x', topic: 'a', headers: {}, body: new Uint8Array(1), reason: 'removed' };

const QUESTIONS: Readonly<Record<string, (far: Operator) => Promise<unknown>>> = {
  enqueue: (far) => far.enqueue({ topic: 'a' }),
  'enqueue of a stream': (far) => far.enqueue({ topic: 'a', body: new Blob(['x']) }),
  enqueueMany: (far) => far.enqueueMany([{ topic: 'a' }]),
  get: (far) => far.get('x'),
  body: async (far) => bytesOf(await far.body('x')),
  page: (far) => far.page(),
  list: (far) => all(far.list()),
  count: (far) => far.count(),
  tally: (far) => far.tally('topic'),
  keyHeads: (far) => far.keyHeads(),
  hold: (far) => far.hold(['x']),
  release: (far) => far.release(['x']),
  retry: (far) => far.retry(['x']),
  replay: (far) => far.replay(['x'], { replay: 'r' }),
  bounce: (far) => far.bounce(['x']),
  remove: (far) => far.remove(['x']),
  move: (far) => far.move('x', { from: 'incoming', to: 'hold' }),
  setHeaders: (far) => far.setHeaders('x', {}),
  cleanUp: (far) => far.cleanUp(),
  setPolicy: (far) => far.setPolicy(['x'], 'p'),
  policies: (far) => far.policies(),
  prepare: (far) => far.prepare({ kind: 'hold' }, {}),
  pause: (far) => far.pause('a'),
  resume: (far) => far.resume('a'),
  pauses: (far) => far.pauses(),
  audit: (far) => far.audit(),
  recordAction: (far) => far.recordAction('sweep', {}),
  keep: (far) => far.keep([COPY]),
  tellSweep: (far) => far.tellSweep({ queue: 'q', target: 't', moved: 1, left: 0 }),
  records: (far) => far.records.append('dlq.a', 1),
  'records read': (far) => far.records.read('dlq.a', 0, 10),
  'records trim': (far) => far.records.trim('dlq.a', 1),
  'records put': (far) => far.records.put('dlq.a', 'k', 1),
  'records get': (far) => far.records.get('dlq.a', 'k'),
  'records list': (far) => far.records.list('dlq.a'),
  'records remove': (far) => far.records.remove('dlq.a', 'k'),
  stats: (far) => far.stats(),
  shape: (far) => far.shape(),
  check: (far) => far.check(),
  rekey: (far) => far.rekey(),
  events: (far) => all(far.events({ signal: new AbortController().signal })),
};

test('every question has a case here', async () => {
  const { far } = await strangerWith(saying({}));
  const asked = Object.keys(QUESTIONS).filter((name) => !name.includes(' '));
  expect(asked.toSorted()).toEqual(
    Object.keys(far)
      .filter((name) => name !== 'by')
      .toSorted(),
  );
});

describe.each(Object.entries(QUESTIONS))('%s', (_, question) => {
  const foreign = {
    code: 'store.unavailable',
    message: expect.stringMatching(/^what answers at http.* is no respool service \(.*check --url/),
  };

  test('is not answered by any server that says 200', async () => {
    const { far } = await strangerWith((__, response) => void response.end('{}'));
    expect(await rejection(question(far))).toMatchObject(foreign);
  });

  test.each(['v2', ''])('is not answered by a service of version "%s"', async (version) => {
    const { far } = await strangerWith((__, response) => {
      response.writeHead(200, { ...OURS, respool: version }).end('{}');
    });
    expect(await rejection(question(far))).toMatchObject({
      code: 'store.unavailable',
      message: expect.stringMatching(/has version ".*" of the API.*same version of Respool/),
    });
  });

  test('is not refused by a service of another version', async () => {
    const { far } = await strangerWith((__, response) => {
      response.writeHead(404, { ...OURS, respool: 'v2' });
      response.end(JSON.stringify({ error: { code: 'message.unknown', message: 'no' } }));
    });
    expect(await rejection(question(far))).toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('has version "v2" of the API'),
    });
  });

  test('is not answered by a page, nor by what is no JSON', async () => {
    const page = await strangerWith((__, response) => {
      response.writeHead(200, { ...OURS, 'content-type': 'text/html' }).end('<p>');
    });
    expect(await rejection(question(page.far))).toMatchObject(foreign);
    const broken = await strangerWith(
      (__, response) => void response.writeHead(200, OURS).end('{'),
    );
    expect(await rejection(question(broken.far))).toMatchObject(foreign);
  });

  test('is not refused by a stranger', async () => {
    const { far } = await strangerWith((__, response) => {
      const error = { code: 'message.unknown', message: 'no' };
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ error }));
    });
    expect(await rejection(question(far))).toMatchObject(foreign);
  });

  test('tells of a service that dies before it has answered', async () => {
    const { far } = await strangerWith((__, response) => {
      response.writeHead(200, { ...OURS, 'content-length': '100' });
      response.write('{', () => response.destroy());
    });
    expect(await rejection(question(far))).toMatchObject({ code: 'store.unavailable' });
  });
});

describe('a message that was sent', () => {
  test('may be stored or not when the service dies on the way', async () => {
    const { far } = await strangerWith((_, response) => void response.destroy());
    expect(await rejection(far.enqueue({ topic: 'a' }))).toMatchObject({
      code: 'store.unavailable',
      message: expect.stringContaining('whether it was done is not known'),
    });
    const read = await rejection(far.stats());
    expect(read).toMatchObject({ message: expect.not.stringContaining('whether') });
  });
});

describe('an answer', () => {
  test('may say more than we know', async () => {
    const { far } = await strangerWith(saying({ id: 'x', duplicate: false, later: 1 }, 201));
    expect(await far.enqueue({ topic: 'a' })).toMatchObject({ id: 'x', duplicate: false });
  });

  test('that misses a message of an action reports it as unknown', async () => {
    const { far } = await strangerWith(saying({ results: [{ id: 'x', result: 'done' }] }));
    expect(await far.hold(['x', 'y'])).toEqual([
      { id: 'x', result: 'done' },
      { id: 'y', result: 'unknown' },
    ]);
  });

  test.each([
    [
      { error: { code: 'policy.unknown', message: 'no policy "p"' } },
      'policy.unknown',
      'no policy',
    ],
    [{ error: { code: 'later.invented', message: 'new words' } }, 'config.invalid', 'new words'],
    [{ error: 'text' }, 'config.invalid', 'status 400'],
    ['text', 'config.invalid', 'status 400'],
    [null, 'config.invalid', 'status 400'],
  ])('that refuses with %j has code %s', async (body, code, text) => {
    const { far } = await strangerWith(saying(body, 400));
    expect(await rejection(far.setPolicy(['x'], 'p'))).toMatchObject({
      code,
      message: expect.stringMatching(new RegExp(`refused: .*${text}`)),
    });
  });
});

test('what was done before a service died is told', async () => {
  let requests = 0;
  const ids = Array.from({ length: 5_001 }, (_, at) => `m${at}`);
  const some = ids.slice(0, 5_000).map((id) => ({ id, result: 'done' }));
  const progress = { seen: 7, done: 7, refused: 0, unknown: 0, refusals: [], next: 'n' };
  const answers = [{ results: some }, { count: 9, confirm: 'c', filter: {} }, progress];
  const { far } = await strangerWith((request, response) => {
    requests += 1;
    // The second request of each action is the one that is never answered.
    if (requests === 2 || requests === 5) response.destroy();
    else saying(answers[requests === 1 ? 0 : requests - 2])(request, response);
  });
  expect(await rejection(far.hold(ids))).toMatchObject({
    code: 'store.unavailable',
    message: expect.stringContaining('5000 of 5001 messages were done before'),
  });
  const bulk = await far.prepare({ kind: 'hold' }, {});
  const seen: number[] = [];
  const run = async (): Promise<void> => {
    for await (const step of bulk.run()) seen.push(step.done);
  };
  expect(await rejection(run())).toMatchObject({
    code: 'store.unavailable',
    message: expect.stringContaining('7 of 9 messages were gone through before'),
  });
  expect(seen).toEqual([7]);
});

describe('events', () => {
  const EVENTS = { respool: 'v1', 'content-type': 'text/event-stream; charset=utf-8' };
  const hear = async (text: string): Promise<{ heard: SerializedEvent[]; error: unknown }> => {
    const { far } = await strangerWith((_, response) => {
      response.writeHead(200, EVENTS).end(text);
    });
    const heard: SerializedEvent[] = [];
    const listen = async (): Promise<void> => {
      const { signal } = new AbortController();
      for await (const event of far.events({ signal })) heard.push(event);
    };
    return { heard, error: await rejection(listen()) };
  };

  test('that end by themselves are an error, after what was heard', async () => {
    const missed = { at: 1, kind: 'missed', count: 3 };
    const { heard, error } = await hear(`: hi\n\ndata: ${JSON.stringify(missed)}\n\n`);
    expect(heard).toEqual([missed]);
    expect(error).toMatchObject({
      code: 'store.unavailable',
      message: expect.stringMatching(/it stopped, or the connection broke/),
    });
  });

  test('of a kind that only a newer service knows are passed over', async () => {
    const missed = { at: 1, kind: 'missed', count: 3 };
    const newer = { at: 1, kind: 'invented', count: 3 };
    const said = [newer, missed, newer].map((one) => `data: ${JSON.stringify(one)}\n\n`).join('');
    expect((await hear(said)).heard).toEqual([missed]);
  });

  test('end with an error when the service stops', async () => {
    const { url, service, clock } = await setup();
    const { signal } = new AbortController();
    const events = connectOperator({ url }).events({ signal })[Symbol.asyncIterator]();
    const over = rejection(Promise.resolve(events.next()));
    while ((await fetch(`${url}/readyz`)).status !== 200) await clock.advance(10);
    const stopped = service.stop();
    expect(await moving(clock, over)).toMatchObject({ code: 'store.unavailable' });
    await moving(clock, stopped);
  });

  test('that are no JSON are an error', async () => {
    const { heard, error } = await hear('data: {\n\n');
    expect(heard).toEqual([]);
    expect(error).toMatchObject({
      message: expect.stringContaining('no respool service (an event is no JSON)'),
    });
  });
});

describe('a service that is asked too often', () => {
  const busy = (times: number, after: string | undefined, then: Answer): Answer => {
    let left = times;
    return (request, response) => {
      left -= 1;
      if (left < 0) {
        then(request, response);
        return;
      }
      response.writeHead(429, {
        ...OURS,
        ...(after === undefined ? {} : { 'retry-after': after }),
      });
      response.end(JSON.stringify({ error: { code: 'limit.exceeded', message: 'too often' } }));
    };
  };

  test.each([
    ['as it says', '3', 3_000],
    ['a second when it does not say', undefined, 1_000],
    ['a moment when it says now', '0', 100],
  ])('is asked again after %s', async (_, after, ms) => {
    const { far, clock } = await strangerWith(busy(2, after, saying({ pauses: [] })));
    const before = clock.now();
    expect(await moving(clock, far.pauses())).toEqual([]);
    expect(clock.now() - before).toBeGreaterThanOrEqual(2 * ms);
    expect(clock.now() - before).toBeLessThan(2 * ms + 2_000);
  });

  test.each([
    ['JSON', 'small'],
    ['bytes', Buffer.alloc(1_500_000)],
  ])('gets a message again that it refused, as %s', async (_, body) => {
    const made = saying({ id: 'x', duplicate: false }, 201);
    const { far, clock } = await strangerWith(busy(1, '1', made));
    expect(await moving(clock, far.enqueue({ topic: 'a', body }))).toMatchObject({ id: 'x' });
  });

  test('is not waited for longer than ten seconds, nor for a stream that is used up', async () => {
    const never = await strangerWith(busy(100, '4', saying({})));
    expect(await moving(never.clock, rejection(never.far.pauses()))).toMatchObject({
      code: 'limit.exceeded',
    });
    const long = await strangerWith(busy(1, '60', saying({ pauses: [] })));
    expect(await rejection(long.far.pauses())).toMatchObject({ code: 'limit.exceeded' });
    const stream = await strangerWith(busy(1, '1', saying({ id: 'x', duplicate: false }, 201)));
    const body = new Blob(['x']);
    expect(await rejection(stream.far.enqueue({ topic: 'a', body }))).toMatchObject({
      code: 'limit.exceeded',
    });
  });

  test('is not asked again for events that nobody waits for', async () => {
    const over = new AbortController();
    const { far } = await strangerWith((request, response) => {
      busy(1, '5', saying({}))(request, response);
      response.on('close', () => over.abort());
    });
    expect(await all(far.events({ signal: over.signal }))).toEqual([]);
  });
});

test('every answer of a service says whose it is', async () => {
  const { ask, post } = await setup();
  const answers = [
    ask('/healthz'),
    ask('/v1/nowhere'),
    ask('/v1/stats'),
    ask('/v1/messages/nobody/body'),
    ask('/v1/topics/a/messages', { method: 'POST', body: 'x' }),
    ask('/v1/topics/no%20good/messages', { method: 'POST', body: 'x' }),
    post('/v1/messages', { topic: 'a' }),
  ];
  for (const answer of await Promise.all(answers)) {
    expect(answer.headers.get('respool')).toBe('v1');
    await answer.body?.cancel();
  }
});

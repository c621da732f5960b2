/** A queue of a real broker as a place of dead letters, by the suite. */

import type { AmqpMessage, Properties } from 'respool/rabbit';
import {
  deadLettersSuite,
  type LetterArrival,
  type LetterSample,
  type LettersUnderTest,
} from 'respool/testkit';
import { runSuite } from '../../suite.ts';
import { withService } from '../../services/index.ts';
import { Tray } from '../ground.ts';
import { type Ground, lettersOf, setup, TYPES } from './queue-letters-ground.ts';

withService('rabbitmq', (url) => {
  for (const type of TYPES) {
    runSuite(
      `a ${type} queue`,
      deadLettersSuite(() => make(type, url()), {
        canShare: true,
        canFailAgain: true,
        canTellDelivered: false,
        canBreak: true,
        canBeUnroutable: true,
        canSendElsewhere: true,
        hasContentType: true,
      }),
    );
  }
});

async function make(type: 'quorum' | 'classic', url: string): Promise<LettersUnderTest> {
  const ground = await setup(type);
  const { hands, home, queue, parked } = ground;
  let incoming = await collect(ground, home);
  return {
    letters: ground.open(),
    async put(samples) {
      for (const sample of samples)
        await hands.publish('', queue, bodyOf(sample), deadOf(sample, home));
    },
    arrived: async (count) => (await incoming.until(count)).map(arrivalOf),
    async parked() {
      if ((await ground.management.queue(parked)) === undefined) return [];
      return (await lettersOf(ground.open({ queue: parked }))).map(({ id }) => id);
    },
    second: async () => ground.open({ url }),
    async failAgain(ids) {
      for (const id of ids) {
        const at = incoming.items.findIndex(({ properties }) => properties.messageId === id);
        const [message] = incoming.items.splice(at, 1);
        if (message === undefined) throw new Error(`"${id}" did not arrive`);
        await hands.publish('', queue, message.content, message.properties);
      }
    },
    async breakDown() {
      await hands.channel.deleteQueue(home);
    },
    async recover() {
      await ground.declare(home);
      incoming = await collect(ground, home);
    },
    async elsewhere() {
      const other = await ground.declare(`${home}.other`);
      const there = await collect(ground, other);
      return {
        route: { kind: 'queue', exchange: '', key: other },
        arrived: async (count) => (await there.until(count)).map(arrivalOf),
      };
    },
    dispose: async () => undefined,
  };
}

/** Takes what comes into a queue. */
async function collect({ hands }: Ground, queue: string): Promise<Tray<AmqpMessage>> {
  const tray = new Tray<AmqpMessage>();
  await hands.channel.consume(queue, (message) => {
    if (message === null) return;
    hands.channel.ack(message);
    tray.add(message);
  });
  return tray;
}

function bodyOf({ body = Uint8Array.of(1, 2, 3) }: LetterSample): Buffer {
  return Buffer.from(body);
}

function deadOf(sample: LetterSample, home: string): Properties {
  const { id, topic = 'suite.letter', headers = {}, isUnroutable = false } = sample;
  const { code = 'suite.failed', reason = 'it did not work' } = sample;
  const past = isUnroutable
    ? {}
    : { 'respool-queue': home, 'respool-exchange': 'suite', 'respool-routing-key': topic };
  const ended = { 'respool-ended-code': code, 'respool-ended-reason': reason };
  return { messageId: id, headers: { ...headers, ...past, ...ended } };
}

function arrivalOf({ content, properties }: AmqpMessage): LetterArrival {
  const { headers = {}, messageId = '', contentType } = properties;
  const replay = headers['respool-replay'];
  return {
    id: messageId,
    body: content,
    contentType,
    headers: headers as Readonly<Record<string, string>>,
    replays: Number(headers['respool-replays'] ?? 0),
    replay: typeof replay === 'string' ? replay : undefined,
  };
}

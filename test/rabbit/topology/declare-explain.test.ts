import { describe, expect, test } from 'vitest';
import { RespoolError } from 'respool';
import {
  differenceOf,
  explainRefusal,
  type TriedDeclaration,
} from '../../../src/rabbit/topology/explain.ts';

/** As amqplib makes it of what the broker says. */
function refusal(code: number, said: string): Error {
  return Object.assign(new Error(`Operation failed: X; ${code} (Y) with message "${said}"`), {
    code,
  });
}

const denied = (what: string, name: string): Error =>
  refusal(403, `ACCESS_REFUSED - access to ${what} '${name}' in vhost 'a b' refused for user 'me'`);

const LONG = 'q'.repeat(200);

describe('a refusal of the broker', () => {
  test.each<[string, Error, TriedDeclaration, string, RegExp]>([
    [
      'to let somebody consume',
      denied('queue', 'q'),
      { act: 'consume', what: 'queue', name: 'q' },
      'config.invalid',
      /cannot consume from the queue "q": the user "me" needs the permission "read" on the queue "q"/,
    ],
    [
      'to let somebody publish',
      denied('exchange', 'e'),
      { act: 'publish', what: 'exchange', name: 'e' },
      'config.invalid',
      /"write" on the exchange "e".*set_permissions -p 'a b' me/,
    ],
    [
      'to let somebody publish to a topic',
      denied('topic', 'k'),
      { act: 'publish', what: 'exchange', name: 'e' },
      'config.invalid',
      /"write \(of the topic\)" on the topic "k"/,
    ],
    [
      'to let somebody delete',
      denied('queue', 'q'),
      { act: 'delete', what: 'queue', name: 'q' },
      'config.invalid',
      /cannot delete the queue "q".*"configure"/,
    ],
    [
      'to let somebody unbind',
      denied('exchange', 'e'),
      { act: 'unbind', what: 'queue', name: 'q', exchange: 'e' },
      'config.invalid',
      /unbind the queue "q" from the exchange "e".*"read" on the exchange "e"/,
    ],
    [
      'a reserved name',
      refusal(403, "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"),
      { act: 'declare', what: 'queue', name: 'amq.x' },
      'config.invalid',
      /reserved prefix.*use another name/,
    ],
    [
      'to find a queue',
      refusal(404, `NOT_FOUND - no queue '${LONG}' in vhost '/'`),
      { act: 'consume', what: 'queue', name: LONG },
      'topology.mismatch',
      new RegExp(`there is no queue "${LONG}" in the virtual host "/".*topology apply`),
    ],
    [
      'beyond a limit',
      refusal(530, 'NOT_ALLOWED - queue limit in vhost is reached'),
      { act: 'declare', what: 'queue', name: 'q' },
      'config.invalid',
      /NOT_ALLOWED - queue limit/,
    ],
    [
      'by force',
      refusal(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"),
      { act: 'declare', what: 'queue', name: 'q' },
      'broker.unavailable',
      /CONNECTION_FORCED.*try again/,
    ],
    [
      'by the end of its channel',
      new Error('Channel ended, no reply will be forthcoming'),
      { act: 'check', what: 'exchange', name: 'e' },
      'broker.unavailable',
      /cannot look at the exchange "e": Channel ended/,
    ],
  ])('%s is explained', (_, error, tried, code, text) => {
    const explained = explainRefusal(error, tried);
    expect(explained.code).toBe(code);
    expect(explained.message).toMatch(text);
    expect(explained.cause).toBe(error);
  });

  test('that is explained already stays as it is', () => {
    const error = new RespoolError('limit.exceeded', 'x');
    expect(explainRefusal(error, { act: 'check', what: 'queue', name: 'q' })).toBe(error);
  });

  test.each([
    ["received '2' but current is '1'", { have: '1', want: '2' }],
    ["received none but current is the value '1' of type 'long'", { have: '1', want: undefined }],
    [
      "received the value 'a' of type 'longstr' but current is none",
      { have: undefined, want: 'a' },
    ],
  ])('tells the argument in: %s', (said, values) => {
    const text = `PRECONDITION_FAILED - inequivalent arg 'x-a' for queue 'q' in vhost '/': ${said}`;
    expect(differenceOf(refusal(406, text))).toEqual({ argument: 'x-a', ...values });
  });

  test('without an argument has no difference', () => {
    expect(differenceOf(refusal(404, "NOT_FOUND - no queue 'q' in vhost '/'"))).toBeUndefined();
  });
});

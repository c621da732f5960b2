/**
 * rule-tools — what replay rules need when they run from the command line: the places of letters,
 * a session, the functions that plan and run replays, and whether a destination is well.
 *
 * Called by rules.ts and, for actions of alerts, alerts/alerts-service.ts.
 */

import { SECOND_MS } from '../../../../core/duration.ts';
import { asError, show, textOf } from '../../../../core/errors.ts';
import { topicMatches } from '../../../../core/topic.ts';
import { getReplay, reportReplay } from '../../../../dead-letters/replay/operations.ts';
import { planReplay } from '../../../../dead-letters/replay/plan.ts';
import { resumeReplay, runReplay } from '../../../../dead-letters/replay/run.ts';
import type {
  RuleHealth,
  HealthQuestion,
  OpenPlaces,
  ReplayRule,
  RuleHands,
  RulePlace,
  RuleTools,
} from '../../../../dead-letters/rules/types.ts';
import type { Operator } from '../../../../spool/operator/operator.ts';
import type { Replay, ReplayOperator } from '../../../../spool/operator/replays.ts';
import type { Clock } from '../../../../ports/clock.ts';
import type { LetterRoute } from '../../../../ports/dead-letters.ts';
import { passiveQueues } from '../../../../rabbit/connection/amqp.ts';
import { systemDice } from '../../../../system/clock.ts';
import { randomName } from '../../../../system/ids.ts';
import { TimeLimit } from '../../../../system/wait.ts';
import { createClosers } from '../../../lifetime.ts';
import { byOf, type Session, urlWithHeaders } from '../../../session.ts';
import type { BrokerAccess } from '../../rabbit/reach.ts';
import { type LettersContext, openPlaces, type OpenPlace } from '../letter-places.ts';

/** The tools that differ between the commands that run rules. */
type Given = Pick<RuleTools, 'signal' | 'tell'>;

/** Rules over the places that the configuration leads to. */
export async function ruleToolsOf(context: LettersContext, value: Given): Promise<RuleTools> {
  const { io } = context;
  const { clock } = io;
  const loaded = await context.config();
  const session = await context.session();
  const open = new Map<RulePlace['source'], OpenPlace>();
  return {
    ...value,
    clock,
    operator: (by) => session.as(by),
    runner: `${byOf(io)}/${randomName(systemDice)}`,
    categories: loaded.config.deadLetters.categories,
    hands: handsOf(session, context),
    openPlaces: (rule) => placesOf(context, rule, open),
    health: ({ rule, source, routes }) =>
      healthOf(
        { rule, routes },
        {
          operator: () => Promise.resolve(session.operator),
          reached: open.get(source)?.reached,
          clock,
          hide: loaded.hide,
        },
      ),
  };
}

/** n.b. Closed with the round: one that runs for weeks must not gather connections. */
async function placesOf(
  context: LettersContext,
  rule: ReplayRule,
  open: Map<RulePlace['source'], OpenPlace>,
): Promise<OpenPlaces> {
  const { queue } = rule.when;
  const { atEnd, close } = createClosers();
  const ofRound = { ...context, atEnd };
  try {
    const places = await openPlaces(ofRound, {
      queues: queue === undefined ? [] : [queue],
      kinds: queue === undefined ? ['dead'] : undefined,
      isTrusted: context.options.flag('trustLimit'),
    });
    for (const place of places) open.set(place.source, place);
    return {
      places,
      close: async () => {
        for (const { source } of places) open.delete(source);
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function handsOf(session: Session, { io }: LettersContext): RuleHands {
  const { clock } = io;
  const operatorAs = (by: string): ReplayOperator => session.as(by);
  const read = (id: string): Promise<Replay | undefined> => getReplay(session.operator, id);
  return {
    read,
    plan: ({ letters, source }, options, by) =>
      planReplay(operatorAs(by), letters, source, options, { clock }),
    run: async ({ letters }, id, { by, signal }) => {
      const isNew = (await read(id))?.state === 'planned';
      return (isNew ? runReplay : resumeReplay)(operatorAs(by), letters, id, { clock, signal });
    },
    unsure: async (id) => {
      const ids: string[] = [];
      for await (const line of reportReplay(session.operator, id)) {
        if (line.result === 'unsure') ids.push(line.id);
      }
      return ids;
    },
  };
}

// Whether the destination of dead letters is well, before a rule sends any there.
//
//   { http }    a GET at the URL answers with 2xx
//   a queue     every queue that the letters go to is there, and is consumed
//   the spool   no topic of the letters is paused

/** How long a destination may take to say that it is well. */
const ANSWERS_WITHIN_MS: number = 5 * SECOND_MS;
/** Maximum number of reasons that are reported. */
const TOLD_MAX = 3;

/** Who can be asked. */
export interface RuleHealthOptions {
  /** Asked for pauses, only when letters go to topics of the spool. */
  readonly operator: () => Promise<Pick<Operator, 'pauses'>>;
  /** The broker of the letters, where they are in a queue. */
  readonly reached: Pick<BrokerAccess, 'amqp' | 'management'> | undefined;
  readonly clock: Clock;
  /** Cuts secrets out of a text. */
  readonly hide: (text: string) => string;
}

type QueueRoute = Extract<LetterRoute, { readonly kind: 'queue' }>;

/** `well`, or why not. */
export async function healthOf(
  { rule, routes }: Pick<HealthQuestion, 'rule' | 'routes'>,
  parts: RuleHealthOptions,
): Promise<RuleHealth> {
  const { healthy } = rule;
  if (typeof healthy === 'object') return ofUrl(healthy.http, parts);
  const whys: string[] = [];
  for (const route of routes) {
    const why =
      route.kind === 'topic' ? await ofTopic(route.topic, parts) : await ofQueue(route, parts);
    if (why !== undefined) whys.push(why);
    if (whys.length === TOLD_MAX) break;
  }
  return whys.length === 0 ? 'well' : { why: whys.join('; ') };
}

async function ofUrl(url: string, { clock, hide }: RuleHealthOptions): Promise<RuleHealth> {
  const limit = new TimeLimit(clock, ANSWERS_WITHIN_MS);
  const target = urlWithHeaders(url);
  try {
    const answer = await fetch(target.url, { signal: limit.signal, headers: target.headers });
    await answer.body?.cancel();
    if (answer.ok) return 'well';
    return { why: hide(`GET ${target.url} answered ${answer.status}`) };
  } catch (error) {
    const said = limit.isOver ? 'no answer within 5s' : causeOf(error);
    return { why: hide(`GET ${target.url} failed: ${said}`) };
  } finally {
    limit.stop();
  }
}

function causeOf(error: unknown): string {
  return textOf(asError(error).cause ?? error);
}

async function ofTopic(
  topic: string,
  { operator }: RuleHealthOptions,
): Promise<string | undefined> {
  const pauses = await (await operator()).pauses();
  const pause = pauses.find((one) => topicMatches(one.topic, topic));
  return pause && `topic ${show(topic)} is paused by ${pause.by}: respool resume '${pause.topic}'`;
}

async function ofQueue(route: QueueRoute, parts: RuleHealthOptions): Promise<string | undefined> {
  const { exchange, key } = route;
  if (exchange === '') return ofOneQueue(key, parts);
  const queues = await queuesBehind(route, parts);
  if (typeof queues === 'string') return queues;
  const whys = await Promise.all(queues.map((queue) => ofOneQueue(queue, parts)));
  return whys.find((why) => why !== undefined);
}

/** The queues that an exchange leads to with this key, or why that is unknown. */
async function queuesBehind(
  { exchange, key }: QueueRoute,
  { reached }: RuleHealthOptions,
): Promise<readonly string[] | string> {
  const where = `exchange ${show(exchange)} with key ${show(key)}`;
  const management = reached?.management;
  if (management === undefined) {
    return `without the management API it is unknown where ${where} leads; use "healthy: { http }"`;
  }
  const type = (await management.exchanges()).find(({ name }) => name === exchange)?.type;
  if (type === undefined) return `exchange ${show(exchange)} is not there`;
  const bindings = (await management.bindings()).filter(
    (one) => one.exchange === exchange && one.to === 'queue' && isLed(type, one.key, key),
  );
  if (bindings.length === 0) return `${where} leads to no queue`;
  return [...new Set(bindings.map(({ destination }) => destination))];
}

function isLed(type: string, pattern: string, key: string): boolean {
  if (type === 'direct') return pattern === key;
  return type === 'topic' ? topicMatches(pattern, key) : true;
}

async function ofOneQueue(
  queue: string,
  { reached }: RuleHealthOptions,
): Promise<string | undefined> {
  if (reached === undefined) return `it is unknown whether queue ${show(queue)} is consumed`;
  const answer = (await passiveQueues(reached.amqp, [queue])).get(queue);
  if (answer !== undefined && 'problem' in answer) {
    return `queue ${show(queue)}: ${answer.problem}`;
  }
  if (answer?.found === undefined) return `queue ${show(queue)} is not there`;
  return answer.found.consumerCount > 0 ? undefined : `queue ${show(queue)} has no consumer`;
}

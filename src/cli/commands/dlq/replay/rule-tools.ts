/** rule-tools — what rules work with here: the places of a command line, a desk, and replays. */

import { getReplay } from '../../../../dead-letters/replay/operations.ts';
import { planReplay } from '../../../../dead-letters/replay/plan.ts';
import { reportReplay } from '../../../../dead-letters/replay/report.ts';
import { resumeReplay, runReplay } from '../../../../dead-letters/replay/run.ts';
import type { Replay, ReplayDesk } from '../../../../operator/replays.ts';
import type {
  OpenPlaces,
  ReplayRule,
  RuleHands,
  RulePlace,
  RuleTools,
} from '../../../../dead-letters/rules/types.ts';
import { systemDice } from '../../../../system/clock.ts';
import { randomName } from '../../../../system/ids.ts';
import { createClosers } from '../../../closers.ts';
import { type LettersContext, openPlaces, type Place } from '../letter-places.ts';
import { byOf, type Desk } from '../../../session.ts';
import { healthOf } from './health.ts';

/** What differs from one who runs rules to the other. */
type Given = Pick<RuleTools, 'signal' | 'tell'>;

/** Rules over the places that the configuration leads to. */
export async function ruleToolsOf(context: LettersContext, given: Given): Promise<RuleTools> {
  const { io } = context;
  const { clock } = io;
  const loaded = await context.loaded();
  const desk = await context.desk();
  const open = new Map<RulePlace['source'], Place>();
  return {
    ...given,
    clock,
    desk: (by) => desk.as(by),
    runner: `${byOf(io)}/${randomName(systemDice)}`,
    categories: loaded.config.deadLetters.categories,
    hands: handsOf(desk, context),
    openPlaces: (rule) => placesOf(context, rule, open),
    health: ({ rule, source, routes }) =>
      healthOf(
        { rule, routes },
        {
          control: () => Promise.resolve(desk.control),
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
  open: Map<RulePlace['source'], Place>,
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

function handsOf(desk: Desk, { io }: LettersContext): RuleHands {
  const { clock } = io;
  const deskAs = (by: string): ReplayDesk => desk.as(by);
  const read = (id: string): Promise<Replay | undefined> => getReplay(desk.control, id);
  return {
    read,
    plan: ({ letters, source }, options, by) =>
      planReplay(deskAs(by), letters, source, options, { clock }),
    run: async ({ letters }, id, { by, signal }) => {
      const isNew = (await read(id))?.state === 'planned';
      return (isNew ? runReplay : resumeReplay)(deskAs(by), letters, id, { clock, signal });
    },
    unsure: async (id) => {
      const ids: string[] = [];
      for await (const line of reportReplay(desk.control, id)) {
        if (line.result === 'unsure') ids.push(line.id);
      }
      return ids;
    },
  };
}

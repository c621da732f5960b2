/**
 * alert-deeds — what rules of the alerts do besides telling, in the name of `alert:<rule>`.
 *
 * Promise: everything is on the audit record; a pause that somebody else made stays.
 */

import { createControl } from '../../../operator/spool-operator.ts';
import type { ReplayRule, RuleTools } from '../../../dead-letters/rules/types.ts';
import { RespoolError } from '../../../core/errors.ts';
import type { AlertDeed, AlertParts } from '../../../observe/alerts/types.ts';
import type { Spool } from '../../../spool/spool.ts';

/** What deeds are done with. */
export interface DeedParts {
  readonly spool: Spool;
  readonly signal: AbortSignal;
  /** Of `deadLetters.rules`. */
  readonly rules: readonly ReplayRule[];
  /** Made when the first replay is asked for. */
  readonly tools: () => Promise<RuleTools>;
}

/** Does what rules want done. */
export function deedsOver(parts: DeedParts): AlertParts['act'] {
  return (deed, by) => doOne(parts, deed, by);
}

async function doOne(parts: DeedParts, deed: AlertDeed, by: string): Promise<void> {
  const control = createControl(parts.spool, { by });
  switch (deed.kind) {
    case 'pause': {
      const isPaused = (await control.pauses()).some(({ topic }) => topic === deed.topic);
      if (!isPaused) await control.pause(deed.topic);
      return;
    }
    case 'resume': {
      const pauses = await control.pauses();
      const isOurs = pauses.some(
        (pause) => pause.topic === deed.topic && deed.madeBy.includes(pause.by),
      );
      if (isOurs) await control.resume(deed.topic);
      return;
    }
    case 'hold': {
      const action = { kind: 'hold', reason: `held by ${by}` } as const;
      const bulk = await control.prepare(action, { topic: deed.topic });
      if (bulk.count === 0) return;
      for await (const _ of bulk.run({ signal: parts.signal }));
      return;
    }
    default:
      await control.recordAction('alert.replay', { rule: deed.rule });
      await replay(parts, deed.rule);
  }
}

async function replay({ rules, tools }: DeedParts, name: string): Promise<void> {
  const { runRulesOnce } = await import('../../../dead-letters/rules/run.ts');
  const meant = rules.filter((rule) => rule.name === name);
  const [news] = await runRulesOnce(meant, await tools());
  // Another process has it in hand: it is replayed all the same.
  if (news === undefined || (news.result !== 'failed' && news.result !== 'stopped')) return;
  throw new RespoolError(
    'move.refused',
    `the rule "${name}" was ${news.result}: ${news.because ?? 'it did not say why'}`,
  );
}

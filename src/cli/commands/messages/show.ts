/**
 * show — one message in full: its state, the reason, and its attempts. Also `respool outbox show`:
 * outbox/messages.ts.
 */

import { CommandError, EXIT } from '../../exit-codes.ts';
import { wholeIds } from '../../id-prefix.ts';
import { idBatches, lookUp, type MakeWhole } from '../../select-messages.ts';
import { fullView, messageObject } from '../../ui/message-view.ts';
import { RespoolError } from '../../../core/errors.ts';
import type { Out } from '../../ui/output.ts';
import { idProgress } from '../../ui/progress.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool show` */
export const showCommand: CommandSpec = {
  name: 'show',
  summary: 'show a message in full, without its body',
  group: 'Messages',
  arguments: [
    {
      name: '<id...>',
      description: 'messages, also by the beginning of an id; - reads ids from stdin',
    },
  ],
  examples: [
    { line: 'respool show 0198f0c2-8a3e-7c41-9d2b-5f60718293a4', does: 'its state, and why' },
    { line: 'respool show 0198f0c2-8a3e', does: 'the same, if no other id begins like this' },
  ],
  role: 'read',
  run: async ({ args, session, io, isOutbox, out }) => {
    let missing = 0;
    let shown = 0;
    const bar = idProgress({ args, io, out });
    // Whatever else goes to stderr takes the bar away before.
    const aside: Out = {
      ...out,
      warn: (text) => {
        bar.clear();
        out.warn(text);
      },
      error: (error) => {
        bar.clear();
        out.error(error);
      },
    };
    const whole: MakeWhole = async (typed) =>
      wholeIds(typed, { operator: (await session()).operator, out: aside, isActing: false });
    for await (const { ids, bad } of idBatches(args, io, whole)) {
      missing += bad.length;
      for (const { why } of bad) aside.error(new CommandError('usage.invalid', why));
      if (ids.length === 0) continue;
      bar.show(shown + missing);
      const { operator } = await session();
      const found = await lookUp(operator, ids, aside);
      for (const id of ids) {
        const entry = found.get(id);
        if (entry === undefined) {
          missing += 1;
          const list = isOutbox === true ? 'respool outbox list' : 'respool list';
          const text = `there is no message "${id}"; see: ${list}`;
          aside.error(new RespoolError('message.unknown', text));
          continue;
        }
        if (out.json) await out.object(messageObject(entry));
        else {
          const view = await fullView(out, entry, { now: io.clock.now(), isOutbox });
          await out.line(shown === 0 ? view : `\n${view}`);
        }
        shown += 1;
      }
      bar.show(shown + missing);
    }
    bar.clear();
    return missing > 0 ? EXIT.refused : EXIT.done;
  },
};

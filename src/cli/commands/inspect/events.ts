/** events — streams the events of a service. */

import { type EventKind, LISTENER_KINDS } from '../../../core/event.ts';
import { eventLine } from '../../ui/event-line.ts';
import { openService } from '../../session.ts';
import type { CommandSpec } from '../../spec.ts';
import { timeOfDay } from '../../ui/times.ts';

/** `respool events` */
export const eventsCommand: CommandSpec = {
  name: 'events',
  summary: 'follow what happens in the running service',
  group: 'Inspect',
  description:
    'Prints one line per event until Ctrl-C. Events live in the process that delivers, so this ' +
    'needs a running service: the configured address, or --url.',
  options: [
    {
      flags: '--kind <kind>',
      description: 'only these; separate several with commas',
      choices: LISTENER_KINDS.filter((kind) => kind !== '*'),
      repeatable: true,
    },
  ],
  examples: [
    { line: 'respool events --kind deferred,bounced', does: 'what goes wrong, as it happens' },
    { line: 'respool events --json', does: 'one object per event' },
  ],
  role: 'read',
  run: async (context) => {
    const { io, options, out } = context;
    const kinds = options.texts('kind') as readonly EventKind[];
    const { operator } = await openService(context);
    const stop = new AbortController();
    const { signal } = stop;
    context.atEnd(io.onSignal(() => stop.abort()));
    try {
      for await (const event of operator.events({
        signal,
        ...(kinds.length === 0 ? {} : { kinds }),
      })) {
        if (out.json) await out.object(event);
        else await out.line(`${out.style('dim', timeOfDay(event.at))} ${eventLine(out, event)}`);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    return undefined;
  },
};

/** receivers — the receivers of a configuration as handlers. */

import type { EffectiveAlerts } from '../../../config/load/alerts.ts';
import { closeHandlers } from '../../../config/open/handlers.ts';
import { inSection } from '../../../config/load/config-errors.ts';
import type { Notice } from '../../../observe/alerts/notice.ts';
import type { Receivers } from '../../../observe/alerts/receivers.ts';
import type { Handler } from '../../../ports/handler.ts';

/** Prints a notification. */
export type WarnOf = (level: 'error' | 'warn' | 'info', text: string, notice: Notice) => void;

/** Receivers that can be told, until they are closed. */
export interface OpenReceivers {
  readonly byName: Receivers;
  readonly close: () => Promise<void>;
}

/** Makes the receivers; what a handler misses is said here. */
export function receiversOf({ to }: EffectiveAlerts, say: WarnOf): OpenReceivers {
  const delivering = Object.values(to).filter(({ deliver }) => deliver !== undefined);
  for (const [name, { deliver }] of Object.entries(to)) {
    if (deliver === undefined || !('check' in deliver)) continue;
    inSection(`alerts.to.${name}`, () => deliver.check?.());
  }
  const pairs = Object.entries(to).map(([name, { deliver, level = 'warn' }]) => {
    const print: Handler = async (delivery) => {
      const notice = (await delivery.json()) as Notice;
      say(level, `alert ${notice.phase}: ${notice.text}`, notice);
    };
    return [name, deliver ?? print] as const;
  });
  return { byName: new Map(pairs), close: () => closeHandlers(delivering) };
}

/**
 * sweep-child — sweeps one dead queue again and again, and tells what each sweep came to. Started,
 * and mostly killed, by sweeps.ts.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { createManagement, sweepJournal, sweepQueues } from 'respool/rabbit';
import { DEATHS_MAX } from './stock.ts';
import type { SweepOrder, Swept } from './sweep-order.ts';

const LOOK_AGAIN_MS = 20;
const LOOK_MAX_MS = 120_000;

const order = JSON.parse(process.argv[2] ?? '') as SweepOrder;
const management = createManagement({ url: order.managementUrl });
writeSync(1, 'started\n');
flushCompileCache();
for (let round = 0; round < order.rounds; round += 1) {
  writeSync(1, `swept ${JSON.stringify(await sweep())}\n`);
}
await management.close();

/** The broker may take a moment to see that who had the queue before is dead. */
async function sweep(): Promise<Swept> {
  const { url, queue, target, window, journal: file } = order;
  const untilMs = performance.now() + LOOK_MAX_MS;
  for (;;) {
    const journal = file === undefined ? {} : { dedupe: sweepJournal(file) };
    const { queues, problems } = await sweepQueues({
      url,
      management,
      patterns: [queue],
      target,
      window,
      max: DEATHS_MAX,
      ...journal,
    });
    const [report] = queues;
    if (report?.error === undefined && report !== undefined) {
      return { moved: report.moved, already: report.already, left: report.left };
    }
    const text = JSON.stringify({ problems, report });
    if (report?.end !== 'locked' || performance.now() > untilMs) throw new Error(text);
    await sleep(LOOK_AGAIN_MS);
  }
}

/** Scraped under load, counters say what a ledger in the handlers and callers says. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createSpool, fixed, PermanentError } from 'respool';
import { createMetrics } from 'respool/observe';
import { seededDice } from 'respool/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { type Scrape, scrapeOf } from './metrics-ground.ts';

const TOPICS = ['mail', 'hook', 'event'];
const MESSAGES = 900;
const IN_FLIGHT = 50;

/** What callers and handlers did, seen from outside. */
class Ledger {
  asked = 0;
  accepted = 0;
  readonly ended = { delivered: 0, failed: 0 };
  bounced = 0;

  /** What of it the counters must have at least, and may have at the most, at this moment. */
  get now(): { readonly accepted: number; readonly asked: number; readonly ended: number } {
    const { accepted, asked } = this;
    return { accepted, asked, ended: this.ended.delivered + this.ended.failed };
  }
}

test('counters scraped twice under load are those of the ledger, and at rest equal', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-ledger-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const spool = createSpool({ path: folder, policies: { default: fixed('1ms', { attempts: 3 }) } });
  const metrics = await createMetrics({ every: '1s' });
  metrics.watch(spool);
  const ledger = new Ledger();
  const dice = seededDice(9);
  for (const topic of TOPICS) {
    spool.handle(topic, ({ attempt }) => {
      const isLast = attempt === 3;
      const roll = dice.random();
      if (roll < 0.6) {
        ledger.ended.delivered += 1;
        return;
      }
      ledger.ended.failed += 1;
      const isFinal = roll > 0.95;
      if (isFinal || isLast) ledger.bounced += 1;
      if (isFinal) throw new PermanentError('never', 'test.never');
      throw new Error('not yet');
    });
  }
  await spool.start();
  const scrapes: Promise<Bounded>[] = [];
  const callers = Array.from({ length: IN_FLIGHT }, async () => {
    while (ledger.asked < MESSAGES) {
      ledger.asked += 1;
      if (ledger.asked === 300 || ledger.asked === 600) scrapes.push(scrapeBetween(ledger));
      await spool.enqueue({ topic: TOPICS[ledger.asked % TOPICS.length] ?? 'mail' });
      ledger.accepted += 1;
    }
  });
  await Promise.all(callers);
  await expect
    .poll(async () => {
      const { incoming, active, deferred } = await spool.count();
      // A verdict that is on record is told a moment later.
      return incoming + active + deferred + spool.load.settling;
    })
    .toBe(0);
  expect((await spool.count()).bounce).toBe(ledger.bounced);
  const last = await scrapeOf(metrics);
  await spool.stop();
  expect(totals(last)).toEqual({
    accepted: MESSAGES,
    delivered: ledger.ended.delivered,
    bounced: ledger.bounced,
    deferred: ledger.ended.failed - ledger.bounced,
    ended: ledger.ended.delivered + ledger.ended.failed,
    failed: ledger.ended.failed,
  });
  expect(ledger.ended.delivered + ledger.bounced).toBe(MESSAGES);
  expect(scrapes).toHaveLength(2);
  let before = 0;
  for (const { at, from, to } of await Promise.all(scrapes)) {
    const { accepted, ended, delivered, bounced, deferred } = totals(at);
    expect(accepted).toBeGreaterThanOrEqual(from.accepted);
    expect(accepted).toBeLessThanOrEqual(to.asked);
    expect(ended).toBeLessThanOrEqual(to.ended);
    // What ended and is on its way to the store, at the most.
    expect(ended).toBeGreaterThanOrEqual(from.ended - IN_FLIGHT);
    expect(delivered + bounced + deferred).toBeLessThanOrEqual(ended);
    // Scrapes that wait for the same look at the store may tell of the same moment.
    expect(accepted).toBeGreaterThanOrEqual(before);
    before = accepted;
  }

  async function scrapeBetween({ now: from }: Ledger): Promise<Bounded> {
    return { from, at: await scrapeOf(metrics), to: ledger.now };
  }
});

/** A scrape, and the ledger right before and right after it. */
interface Bounded {
  readonly from: Ledger['now'];
  readonly at: Scrape;
  readonly to: Ledger['now'];
}

type Counted = 'accepted' | 'delivered' | 'bounced' | 'deferred' | 'ended' | 'failed';

function totals({ samples }: Scrape): Readonly<Record<Counted, number>> {
  const sum = (name: string, outcome?: string): number =>
    samples
      .filter((one) => one.name === `respool_${name}`)
      .filter(({ labels }) => outcome === undefined || labels['outcome'] === outcome)
      .reduce((all, { value }) => all + value, 0);
  return {
    accepted: sum('accepted_total'),
    delivered: sum('delivered_total'),
    bounced: sum('bounced_total'),
    deferred: sum('deferred_total'),
    ended: sum('attempts_total'),
    failed: sum('attempts_total', 'failed'),
  };
}

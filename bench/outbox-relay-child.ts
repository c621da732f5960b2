/** outbox-relay-child — one relay of the outbox bench, in a process of its own. */

import { createInterface } from 'node:readline';
import type { RelayOrder } from './outbox-words.ts';

type Relay = (order: RelayOrder) => Promise<() => Promise<void>>;

/** Loaded when needed: a process has nothing in it that another side brings along. */
const RELAYS: Readonly<Record<RelayOrder['side'], () => Promise<Relay>>> = {
  ours: async () => (await import('./outbox-ours.ts')).ourRelay,
  raw: async () => (await import('./outbox-raw.ts')).rawRelay,
  peer: async () => (await import('./outbox-peer.ts')).peerRelay,
};

const order = JSON.parse(process.argv[2] ?? '') as RelayOrder;
const relay = await RELAYS[order.side]();
const stop = await relay(order);
console.log('ready');
// Also when the process that started it is gone.
createInterface({ input: process.stdin }).once('close', () => void stop());

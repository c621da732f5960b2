/** respool/stores/nats — entries and bodies in NATS JetStream. */

export { nats } from './entry-store.ts';
export type { NatsBodyOptions, NatsEntryOptions, NatsOptions } from './options.ts';
export { natsBodies } from './body-store.ts';

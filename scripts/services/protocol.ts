/**
 * protocol — what is said between the keeper and those who ask it, as lines of JSON.
 */

import type { Operator } from './server.ts';
import type { ServerName, ServiceName } from './words.ts';

/** What can be done to a server that belongs to one test file. */
export type Act = 'kill' | 'kill -9' | 'freeze' | 'thaw' | 'restart' | 'stop';

/** A question or a command. */
export type Ask =
  | { readonly kind: 'url'; readonly service: ServiceName }
  | { readonly kind: 'status' }
  | {
      readonly kind: 'private';
      readonly server: ServerName;
      readonly env?: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'act'; readonly handle: number; readonly act: Act }
  | { readonly kind: 'down' };

export interface Request {
  readonly id: number;
  readonly ask: Ask;
}

/** The end of a request, or news of what takes long. */
export interface Answer {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
  readonly news?: string;
}

/** A server as the status tells of it. */
export interface ServerStatus {
  readonly server: ServerName;
  readonly state: 'running' | 'starting' | 'failed' | 'given';
  readonly urls: Readonly<Partial<Record<ServiceName, string>>>;
  readonly error?: string;
}

/** A server that was started for one test file. */
export interface OwnedServer {
  readonly handle: number;
  readonly urls: Readonly<Partial<Record<ServiceName, string>>>;
  readonly operator?: Operator;
}

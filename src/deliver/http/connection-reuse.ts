/**
 * connection-reuse — finds out which requests were lost because a connection was used again too
 * late.
 *
 * A receiver may close a connection that is idle at the very moment a request is on its way. The
 * request then fails though nothing is wrong with it, nor with the receiver. agent.ts tells of its
 * sockets, undici tells by its diagnostics channels which request goes over which of them.
 * Promise: says so only when the socket had carried a request before, and no byte came back since.
 */

import { subscribe } from 'node:diagnostics_channel';

/** As much of a socket as is needed here. */
interface Line {
  readonly bytesRead: number;
}

/** Where a request went, and how much had come from there before. */
interface Sent {
  readonly socket: Line;
  readonly isFirst: boolean;
  readonly readBefore: number;
}

const BROKEN = /^(?:ECONNRESET|ECONNABORTED|EPIPE|UND_ERR_SOCKET)$/;

/** Ours only: the channels tell of every request in the process. */
const requestsOn = new WeakMap<object, number>();
const sentAs = new WeakMap<object, Sent>();
const lostBy = new WeakSet<object>();
let isListening = false;

/** Counts the requests that go over a socket from now on. */
export function followSocket(socket: Line): void {
  requestsOn.set(socket, 0);
  if (isListening) return;
  isListening = true;
  subscribe('undici:client:sendHeaders', (message) => onSent(message as Told));
  subscribe('undici:request:error', (message) => onFailed(message as Told));
}

/** Whether this error ended a request that a connection used before has swallowed. */
export function isSwallowed(error: unknown): boolean {
  return typeof error === 'object' && error !== null && lostBy.has(error);
}

/** What the channels tell. */
interface Told {
  readonly request: object;
  readonly socket: Line;
  readonly error: { readonly code?: unknown };
}

function onSent({ request, socket }: Told): void {
  const count = requestsOn.get(socket);
  if (count === undefined) return;
  requestsOn.set(socket, count + 1);
  sentAs.set(request, { socket, isFirst: count === 0, readBefore: socket.bytesRead });
}

function onFailed({ request, error }: Told): void {
  const sent = sentAs.get(request);
  if (sent === undefined || sent.isFirst || !BROKEN.test(String(error.code))) return;
  if (sent.socket.bytesRead === sent.readBefore) lostBy.add(error);
}

/**
 * confirm-publisher — publishes so that a resolved promise means: the broker has it, in a queue.
 *
 *   send() ─▶ waiting ─room in the window─▶ on its way ─confirm─▶ resolved
 *                        │ returned, nacked, time over, channel lost ─▶ rejected
 *
 * Nothing is sent to an exchange that was not seen since the present channel was opened: a missing
 * one would end the channel for all. Everything is mandatory: a message that no queue takes comes
 * back before its confirm. What is on its way when the channel is lost may or may not be there
 * (`broker.unconfirmed`); what still waited goes over the next channel, until its time is over.
 * Window and memory are bounded by the limits; a sink sets none for what waits (sink.ts).
 *
 * Also here: what a refusal by the broker means for a message, and whether an exchange is there.
 */

import { isRespoolError, RespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { endsWithin, WhenIdle } from '../../system/wait.ts';
import {
  type AmqpConfirmChannel,
  type AmqpConnection,
  CLOSE_TIMEOUT_MS,
  closeChannel,
  type Outgoing,
  type Properties,
} from '../connection/amqp.ts';
import type { ReconnectingConnection } from '../connection/reconnecting-connection.ts';
import { HEADER } from '../message-history.ts';

// The messages of a confirm publisher in their order: those that wait, those on their way, and
// the deadline of each. One timer for all: they have the same limit, so the oldest is the first.

/** A message that was handed over. */
interface PendingConfirm {
  /** Cleared once it is settled, so that references to the rest do not retain the body. */
  outgoing: Outgoing;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  readonly deadlineMs: number;
  place: 'waiting' | 'in-flight' | 'settled';
  /** When its time is over (monotonic). */
  endsAt: number;
  /** What the broker said when it gave it back. */
  returned: string | undefined;
  /** Tells it from others on their way that look alike; headers may lead them elsewhere. */
  token: number | undefined;
}

/** Which message came back. */
interface ReturnedRoute {
  readonly exchange: string;
  readonly key: string;
  readonly messageId: string | undefined;
  readonly token: unknown;
}

const NOTHING: Outgoing = { exchange: '', key: '', content: Buffer.alloc(0), properties: {} };

/** Past this many settled ones at its head a list is cut. */
const CUT_AT = 1_024;

/** All messages of one confirm publisher. */
class ConfirmWindow {
  readonly #clock: Clock;
  readonly #whyWaiting: () => RespoolError;
  readonly #onLate: () => void;
  /** All that are not settled, oldest first; settled ones in between are passed over. */
  #all: PendingConfirm[] = [];
  #allHead = 0;
  #waiting: PendingConfirm[] = [];
  #waitingHead = 0;
  readonly #inFlight = new Set<PendingConfirm>();
  /** The first of those on their way that look alike, by route and id. */
  readonly #firsts = new Map<string, PendingConfirm>();
  #tokens = 0;
  /** Settled ones that are still in the list of all. */
  #settled = 0;
  inFlightBytes = 0;
  waiting = 0;
  waitingBytes = 0;
  #cancelTimer: (() => void) | undefined;

  /** `onLate` is called when the time of some is over. */
  constructor(clock: Clock, whyWaiting: () => RespoolError, onLate: () => void) {
    this.#clock = clock;
    this.#whyWaiting = whyWaiting;
    this.#onLate = onLate;
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  add(parts: Pick<PendingConfirm, 'outgoing' | 'resolve' | 'reject' | 'deadlineMs'>): void {
    const endsAt = this.#clock.monotonic() + parts.deadlineMs;
    const sending: PendingConfirm = {
      ...parts,
      place: 'waiting',
      endsAt,
      returned: undefined,
      token: undefined,
    };
    this.#all.push(sending);
    this.#waiting.push(sending);
    this.waiting += 1;
    this.waitingBytes += parts.outgoing.content.length;
    if (this.#cancelTimer === undefined) this.#setTimer(parts.deadlineMs);
  }

  /** The first that waits. */
  peek(): PendingConfirm | undefined {
    for (;;) {
      const next = this.#waiting[this.#waitingHead];
      if (next === undefined || next.place === 'waiting') return next;
      this.#waitingHead += 1;
    }
  }

  /** The one that `peek` gave goes on its way. */
  take(): void {
    const sending = this.#waiting[this.#waitingHead];
    if (sending === undefined) return;
    this.#waitingHead += 1;
    if (this.#waitingHead >= CUT_AT || this.#waitingHead === this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#waitingHead);
      this.#waitingHead = 0;
    }
    this.#leave(sending);
    sending.place = 'in-flight';
    this.#inFlight.add(sending);
    const returnKey = returnKeyOf(sending.outgoing);
    if (this.#firsts.has(returnKey)) sending.token = this.#tokens += 1;
    else this.#firsts.set(returnKey, sending);
    this.inFlightBytes += sending.outgoing.content.length;
  }

  /** It was not sent after all, and is the first to go. */
  putBack(sending: PendingConfirm): void {
    if (sending.place !== 'in-flight') return;
    this.#leave(sending);
    sending.place = 'waiting';
    this.#waiting = [sending, ...this.#waiting.slice(this.#waitingHead)];
    this.#waitingHead = 0;
    this.waiting += 1;
    this.waitingBytes += sending.outgoing.content.length;
  }

  done(sending: PendingConfirm): void {
    if (sending.place === 'settled') return;
    this.#settle(sending);
    sending.outgoing = NOTHING;
    sending.resolve();
  }

  fail(sending: PendingConfirm, error: RespoolError): void {
    if (sending.place === 'settled') return;
    this.#settle(sending);
    sending.outgoing = NOTHING;
    sending.reject(error);
  }

  /** The broker gave one back: by its token, or the first that looks like it. */
  markReturned({ exchange, key, messageId, token }: ReturnedRoute, text: string): void {
    const returnKey = returnKeyOf({ exchange, key, properties: { messageId } });
    let found = this.#firsts.get(returnKey);
    if (token !== undefined) {
      for (const one of this.#inFlight) if (one.token === token) found = one;
    }
    if (found !== undefined) found.returned = text;
  }

  failInFlight(fail: (sending: PendingConfirm) => void): void {
    for (const sending of this.#inFlight) fail(sending);
  }

  /** Those that wait for an exchange, or all that wait. */
  failWaiting(exchange: string | undefined, error: RespoolError): void {
    for (const sending of this.#waiting.slice(this.#waitingHead)) {
      const isMeant = exchange === undefined || sending.outgoing.exchange === exchange;
      if (sending.place === 'waiting' && isMeant) this.fail(sending, error);
    }
  }

  failAll(error: RespoolError): void {
    for (const sending of this.#all.slice(this.#allHead)) this.fail(sending, error);
  }

  /** No more timers. */
  end(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #settle(sending: PendingConfirm): void {
    this.#leave(sending);
    sending.place = 'settled';
    this.#settled += 1;
    while (this.#all[this.#allHead]?.place === 'settled') this.#allHead += 1;
    // One that takes long must not keep all that came after it.
    const isMostlySettled = this.#settled >= CUT_AT && 2 * this.#settled > this.#all.length;
    if (isMostlySettled || this.#allHead === this.#all.length) {
      this.#all = this.#all.filter(({ place }) => place !== 'settled');
      this.#allHead = 0;
      this.#settled = 0;
      // An unneeded timer would keep the process alive.
      if (this.#all.length === 0) this.end();
    }
  }

  #leave(sending: PendingConfirm): void {
    const bytes = sending.outgoing.content.length;
    if (sending.place === 'waiting') {
      this.waiting -= 1;
      this.waitingBytes -= bytes;
    } else if (this.#inFlight.delete(sending)) {
      this.inFlightBytes -= bytes;
      const returnKey = returnKeyOf(sending.outgoing);
      if (this.#firsts.get(returnKey) === sending) this.#firsts.delete(returnKey);
    }
  }

  #setTimer(ms: number): void {
    this.#cancelTimer = this.#clock.after(Math.max(1, ms), () => this.#onTime());
  }

  #onTime(): void {
    this.#cancelTimer = undefined;
    const now = this.#clock.monotonic();
    for (const sending of this.#all.slice(this.#allHead)) {
      if (sending.endsAt > now) break;
      if (sending.place !== 'settled') this.fail(sending, this.#late(sending));
    }
    const oldest = this.#all[this.#allHead];
    if (oldest !== undefined) this.#setTimer(oldest.endsAt - now);
    this.#onLate();
  }

  #late({ place, outgoing, deadlineMs }: PendingConfirm): RespoolError {
    if (place === 'waiting') return this.#whyWaiting();
    const to = outgoing.exchange === '' ? outgoing.key : outgoing.exchange;
    const text =
      `cannot tell whether the message to "${to}" arrived: no confirm within ${deadlineMs} ms; ` +
      'publish it again with the same id';
    return new RespoolError('broker.unconfirmed', text);
  }
}

/** What a returned message is known by, unless it has a token. */
function returnKeyOf({ exchange, key, properties }: Omit<Outgoing, 'content'>): string {
  return `${exchange}\n${key}\n${properties.messageId ?? ''}`;
}

// What the broker means by closing a channel, or by not confirming.

/** What to do about an exchange that we may not write to. */
function forbiddenText(exchange: string): string {
  // The broker's own name for the exchange by which queues are reached by their names.
  const name = exchange === '' ? 'amq.default' : exchange;
  return (
    `the user needs the permission "write" on the exchange "${name}"; add the name to that ` +
    'pattern: rabbitmqctl set_permissions'
  );
}

/**
 * Whether the broker refused a message: of the cause of `broker.unconfirmed`, which fallback.ts,
 * sink.ts and queues/queue-letters.ts read; a late confirm has no cause.
 *
 * n.b. amqplib tells a nack from a lost channel by its text only.
 */
export function isNack(error: unknown): boolean {
  return textOf(error) === 'message nacked';
}

/** There is no exchange of this name. `isMissingExchange` parses the text. */
export function missingExchange(exchange: string): RespoolError {
  return new RespoolError('broker.unroutable', `there is no exchange "${exchange}"; declare it`);
}

/** n.b. Only our text distinguishes a missing exchange from a missing queue. */
export function isMissingExchange(error: unknown): boolean {
  return (
    isRespoolError(error, 'broker.unroutable') && /there is no (such )?exchange/.test(error.message)
  );
}

/** Whether a channel was closed before it was used. */
function isClosedError(error: unknown): boolean {
  return error instanceof Error && error.name === 'IllegalOperationError';
}

/** Why no message can go to an exchange, if that is what closed the channel. */
function noRouteReason(reason: Error | undefined, exchange: string): string | undefined {
  if (reason === undefined) return undefined;
  if (forbiddenIn(reason) === exchange) return forbiddenText(exchange);
  const isMissing =
    Reflect.get(reason, 'code') === 404 && reason.message.includes(`no exchange '${exchange}'`);
  return isMissing ? 'there is no such exchange; declare it' : undefined;
}

/** The exchange that a refusal names. */
function forbiddenIn(reason: Error | undefined): string | undefined {
  if (reason === undefined || Reflect.get(reason, 'code') !== 403) return undefined;
  const name = /access to exchange '(.*?)' in/s.exec(reason.message)?.[1];
  return name === 'amq.default' ? '' : name;
}

/** Why a body of this size ended the channel, if that is what closed it. */
function tooLargeIn(reason: Error | undefined, bytes: number): string | undefined {
  if (reason === undefined || Reflect.get(reason, 'code') !== 406) return undefined;
  const [, size, max] =
    /message size (\d+) is larger than .*max size (\d+)/.exec(reason.message) ?? [];
  if (Number(size) !== bytes) return undefined;
  return `the body has ${size} bytes, and the broker takes at most ${max} (max_message_size)`;
}

/** Bounds of a confirm publisher. */
export interface ConfirmPublisherLimits {
  /** How long a message may take until its confirm. */
  readonly confirmTimeoutMs: number;
  /** Messages on their way at once. */
  readonly windowMax: number;
  /** Messages, and their bytes, that wait for the broker. */
  readonly waitingMax: number;
  readonly waitingMaxBytes: number;
}

/** As the defaults of publish/options.ts. */
export const CONFIRM_PUBLISHER_LIMITS: ConfirmPublisherLimits = {
  confirmTimeoutMs: 30_000,
  windowMax: 1_000,
  waitingMax: 10_000,
  waitingMaxBytes: 64 * 2 ** 20,
};

/** Bytes on their way at once, whatever the window says. Also in docs/reference/rabbit.md. */
const WINDOW_MAX_BYTES = 32 * 2 ** 20;
/** The wait before it is asked again whether an exchange is there. */
const ASK_AGAIN_MS = 100;
/** How long an exchange that we may not write to is left alone. */
const FORBIDDEN_MS = 5_000;

/** Exchanges remembered as existing, or as forbidden; beyond it all are forgotten. */
const KNOWN_EXCHANGES_MAX = 1_000;

/** What a confirm publisher is doing. */
export interface ConfirmPublisherLoad {
  readonly inFlight: number;
  readonly waiting: number;
  readonly waitingBytes: number;
}

/** Publishes with confirms over one channel of a connection. */
export class ConfirmPublisher {
  readonly #connection: ReconnectingConnection;
  readonly #clock: Clock;
  readonly #window: ConfirmWindow;
  readonly #limits: ConfirmPublisherLimits;
  #channel: AmqpConfirmChannel | undefined;
  #isOpening = false;
  /**
   * Exchanges that were seen since the present channel was opened: a missing one would end it for
   * all. That without a name is always there.
   */
  readonly #known = new Set<string>(['']);
  /** Exchanges that we may not write to, as the broker said; until when (monotonic). */
  readonly #forbidden = new Map<string, number>();
  readonly #unlisten: () => void;
  #isClosing = false;
  #closeReason: Error | undefined;
  readonly #whenIdle: WhenIdle;

  constructor(
    connection: ReconnectingConnection,
    clock: Clock,
    limits: Partial<ConfirmPublisherLimits> = {},
  ) {
    this.#connection = connection;
    this.#clock = clock;
    this.#limits = { ...CONFIRM_PUBLISHER_LIMITS, ...limits };
    const onLate = (): void => {
      this.#pump();
      this.#whenIdle.check();
    };
    this.#window = new ConfirmWindow(clock, () => this.#whyWaiting(), onLate);
    this.#whenIdle = new WhenIdle(() => this.#window.inFlight + this.#window.waiting === 0);
    this.#unlisten = connection.on((event) => {
      if (event.kind === 'up' || event.kind === 'unblocked') this.#pump();
    });
  }

  /** Whether a message would go at once. */
  get isReady(): boolean {
    return this.#connection.isUp && !this.#connection.isBlocked;
  }

  get load(): ConfirmPublisherLoad {
    const { inFlight, waiting, waitingBytes } = this.#window;
    return { inFlight, waiting, waitingBytes };
  }

  /** Resolves when the message is confirmed and was not returned. */
  send(outgoing: Outgoing): Promise<void> {
    if (this.#isClosing) {
      const text = `cannot publish to ${routeText(outgoing)}: the publisher is closed`;
      return Promise.reject(new RespoolError('engine.stopping', text));
    }
    if (this.#forbidden.size > 0 && this.#isForbidden(outgoing.exchange)) {
      const text = `cannot publish to ${routeText(outgoing)}: ${forbiddenText(outgoing.exchange)}`;
      return Promise.reject(new RespoolError('broker.unroutable', text));
    }
    const window = this.#window;
    const isFull =
      window.waiting >= this.#limits.waitingMax ||
      window.waitingBytes + outgoing.content.length > this.#limits.waitingMaxBytes;
    if (isFull && window.waiting > 0) return Promise.reject(this.#full(outgoing));
    return new Promise((resolve, reject) => {
      window.add({
        outgoing,
        resolve,
        reject,
        deadlineMs: this.#limits.confirmTimeoutMs,
      });
      this.#pump();
    });
  }

  /** Gives up what waits and was never sent; what is on its way goes on. */
  dismissWaiting(): void {
    this.#window.failWaiting(undefined, this.#whyWaiting());
    this.#whenIdle.check();
  }

  /** Waits for pending publishes, or with `waits: false` fails them; then closes the channel. */
  async close({ waits = true }: { readonly waits?: boolean } = {}): Promise<void> {
    this.#isClosing = true;
    if (!waits) {
      const text = 'cannot publish: the publisher was closed; it was not sent';
      this.#window.failInFlight((sending) => this.#unconfirmed(sending, new Error('closed by us')));
      this.#window.failAll(new RespoolError('engine.stopping', text));
    } else await this.#whenIdle.wait();
    this.#unlisten();
    this.#window.end();
    const channel = this.#channel;
    this.#channel = undefined;
    if (channel === undefined) return;
    // n.b. A broker under an alarm does not answer: it reads nothing from this connection.
    const closed = closeChannel(channel);
    if (!this.#connection.isBlocked) await endsWithin(this.#clock, CLOSE_TIMEOUT_MS, closed);
  }

  /** Publishes what waits, as far as the window allows. */
  #pump(): void {
    const window = this.#window;
    if (window.waiting === 0 || this.#connection.isBlocked) return;
    if (this.#channel === undefined) {
      if (!this.#isOpening) void this.#open();
      return;
    }
    while (window.inFlight < this.#limits.windowMax && window.inFlightBytes < WINDOW_MAX_BYTES) {
      const next = window.peek();
      if (next === undefined) return;
      if (!this.#known.has(next.outgoing.exchange)) {
        void this.#checkExchange(next.outgoing.exchange);
        return;
      }
      window.take();
      this.#publish(this.#channel, next);
    }
  }

  #publish(channel: AmqpConfirmChannel, sending: PendingConfirm): void {
    const { exchange, key, content } = sending.outgoing;
    const onConfirm = (error: unknown): void => {
      if (error === null || error === undefined) this.#confirmed(sending);
      else {
        // n.b. This may be the first we hear of a lost channel: nothing more may go over it.
        if (!isNack(error)) this.#lose(channel, this.#closeReason);
        this.#unconfirmed(sending, error);
      }
      this.#pump();
      this.#whenIdle.check();
    };
    try {
      channel.publish(exchange, key, content, optionsOf(sending), onConfirm);
    } catch (error) {
      if (isClosedError(error)) {
        // Not sent: it waits for the next channel.
        this.#lose(channel, undefined);
        this.#window.putBack(sending);
        return;
      }
      const text = `cannot publish to ${routeText(sending.outgoing)}: ${textOf(error)}`;
      this.#window.fail(sending, new RespoolError('message.invalid', text, { cause: error }));
      this.#whenIdle.check();
    }
  }

  #confirmed(sending: PendingConfirm): void {
    const { returned } = sending;
    if (returned === undefined) this.#window.done(sending);
    else {
      const text =
        `cannot publish to ${routeText(sending.outgoing)}: no queue takes it (${returned}); ` +
        'bind a queue with this key';
      this.#window.fail(sending, new RespoolError('broker.unroutable', text));
    }
  }

  #unconfirmed(sending: PendingConfirm, error: unknown): void {
    const isRefused = isNack(error);
    const route = routeText(sending.outgoing);
    const why = noRouteReason(this.#closeReason, sending.outgoing.exchange);
    if (why !== undefined) {
      const text = `cannot publish to ${route}: ${why}`;
      this.#window.fail(sending, new RespoolError('broker.unroutable', text, { cause: error }));
      return;
    }
    const large = tooLargeIn(this.#closeReason, sending.outgoing.content.length);
    if (large !== undefined) {
      const text = `cannot publish to ${route}: ${large}`;
      this.#window.fail(sending, new RespoolError('message.invalid', text, { cause: error }));
      return;
    }
    const text = isRefused
      ? `cannot publish to ${route}: the broker refused it; its queue is full or cannot be written`
      : `cannot tell whether the message to ${route} arrived: the channel was lost before the ` +
        `confirm (${textOf(this.#closeReason ?? error)}); publish it again with the same id`;
    this.#window.fail(sending, new RespoolError('broker.unconfirmed', text, { cause: error }));
  }

  async #open(): Promise<void> {
    this.#isOpening = true;
    try {
      const connection = await this.#connection.connected();
      const channel = await connection.createConfirmChannel();
      this.#listen(channel);
      this.#closeReason = undefined;
      this.#channel = channel;
    } catch {
      // The connection comes back, and says so; what waits has its time limit. One that was closed
      // does not: then nothing that waits can ever go.
      if (!this.#connection.isUp && this.#isClosing) this.#window.failAll(this.#whyWaiting());
    } finally {
      this.#isOpening = false;
    }
    if (this.#channel !== undefined) this.#pump();
    this.#whenIdle.check();
  }

  #listen(channel: AmqpConfirmChannel): void {
    channel.on('error', (error: unknown) => {
      if (error instanceof Error) this.#closeReason = error;
    });
    channel.on('close', () => this.#lose(channel, this.#closeReason));
    channel.on('return', (message: ReturnedMessage) => {
      const { exchange, routingKey, replyText } = message.fields;
      const { messageId, headers } = message.properties;
      const returned = { exchange, key: routingKey, messageId, token: headers?.[HEADER.send] };
      this.#window.markReturned(returned, replyText ?? 'NO_ROUTE');
    });
  }

  #lose(channel: AmqpConfirmChannel, why: Error | undefined): void {
    if (this.#channel !== channel) return;
    this.#channel = undefined;
    this.#known.clear();
    this.#known.add('');
    this.#closeReason = why ?? this.#closeReason;
    this.#noteForbidden();
    // n.b. With a socket that was cut on this side no callback comes, so they are settled here.
    this.#window.failInFlight((sending) => this.#unconfirmed(sending, new Error('channel closed')));
    if (this.#connection.isUp) this.#pump();
    this.#whenIdle.check();
  }

  /**
   * Notes an exchange that we may not write to: a publish to it closes the channel, and with it
   * every other message that is on its way.
   */
  #noteForbidden(): void {
    const exchange = forbiddenIn(this.#closeReason);
    if (exchange === undefined) return;
    this.#forbidden.set(exchange, this.#clock.monotonic() + FORBIDDEN_MS);
    if (this.#forbidden.size > KNOWN_EXCHANGES_MAX) this.#forbidden.clear();
  }

  #isForbidden(exchange: string): boolean {
    const until = this.#forbidden.get(exchange);
    if (until === undefined) return false;
    if (this.#clock.monotonic() < until) return true;
    this.#forbidden.delete(exchange);
    return false;
  }

  /** Asks on a channel of its own whether an exchange is there, before the first message to it. */
  async #checkExchange(exchange: string): Promise<void> {
    const channel = this.#channel;
    if (this.#isOpening || channel === undefined) return;
    this.#isOpening = true;
    const answer = await exchangeExists(this.#connection.current, exchange);
    this.#isOpening = false;
    if (answer === undefined) {
      // n.b. Not at once: a connection that is closing could never say that it is closed.
      this.#clock.after(ASK_AGAIN_MS, () => this.#pump());
      return;
    }
    if (this.#channel === channel) {
      if (this.#known.size > KNOWN_EXCHANGES_MAX) this.#known.clear();
      if (answer) this.#known.add('').add(exchange);
      else {
        this.#window.failWaiting(exchange, missingExchange(exchange));
      }
    }
    this.#pump();
    this.#whenIdle.check();
  }

  #whyWaiting(): RespoolError {
    const { whyAway } = this.#connection;
    return new RespoolError('broker.unavailable', `cannot publish: ${whyAway}; it was not sent`);
  }

  #full(outgoing: Outgoing): RespoolError {
    const { waiting, waitingBytes } = this.#window;
    const why = this.#connection.isUp && !this.#connection.isBlocked ? 'is slow' : 'is unreachable';
    return new RespoolError(
      'limit.exceeded',
      `cannot publish to ${routeText(outgoing)}: ${waiting} messages with ${waitingBytes} bytes ` +
        `wait already, and the broker ${why}; try again later, or give a fallback`,
    );
  }
}

interface ReturnedMessage {
  readonly fields: {
    readonly exchange: string;
    readonly routingKey: string;
    readonly replyText?: string;
  };
  readonly properties: Properties;
}

function routeText({ exchange, key }: Outgoing): string {
  return exchange === '' ? `queue "${key}"` : `exchange "${exchange}" with key "${key}"`;
}

/** Everything has to find a queue; those that look alike have a token. */
function optionsOf({ outgoing, token }: PendingConfirm): object {
  const { properties } = outgoing;
  if (token === undefined) return { ...properties, mandatory: true };
  const headers = { ...properties.headers, [HEADER.send]: token };
  return { ...properties, headers, mandatory: true };
}

/** Whether an exchange is there; undefined when it is not known now. */
export async function exchangeExists(
  connection: AmqpConnection | undefined,
  exchange: string,
): Promise<boolean | undefined> {
  if (connection === undefined) return undefined;
  try {
    const channel = await connection.createChannel();
    channel.on('error', () => undefined);
    try {
      await channel.checkExchange(exchange);
    } catch (error) {
      return Reflect.get(error as object, 'code') === 404 ? false : undefined;
    }
    await closeChannel(channel);
    return true;
  } catch {
    return undefined;
  }
}

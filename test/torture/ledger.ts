/**
 * ledger — the outside world of a fault test: it lives in the process that is never killed, hears
 * what producers try, and is where handlers have their effects. So duplicates are counted where a
 * user would see them, not in our own counters.
 *
 * One line of JSON per word; a word with a number is answered before its sender goes on.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import type { Planned } from './plans.ts';

/** What is known of one enqueue. `unknown`: its process died before it could say. */
export type EnqueueOutcome = 'open' | 'ok' | 'refused' | 'unknown';

/** A message in the ledger. */
export interface Written extends Planned {
  outcome: EnqueueOutcome;
  /** Whether its outcome was unknown at any time. */
  wasUnknown: boolean;
  /** What an operator did: asked for its removal, and was told that it is done. */
  removal: 'none' | 'asked' | 'done';
}

/** What a handler can be seen doing; `begun` and `crash` are no outcome yet. */
export type EffectKind =
  | ('begun' | 'crash' | 'failed' | 'postponed')
  | ('delivered' | 'permanent' | 'held' | 'notice');

/** What a handler did, as the outside world saw it. */
export interface Effect {
  readonly key: string;
  readonly kind: EffectKind;
  readonly fence: string;
  readonly attempt: number;
  /** Of the body, where it was read. */
  readonly sha256?: string;
  readonly pid: number;
  /** When a handling began, by the clock of the machine. */
  readonly at?: number;
  /** When its claim was asked for, and when it was answered: in between the lease began. */
  readonly askedAt?: number;
  readonly answeredAt?: number;
}

/** What children say. */
export type Word =
  | { readonly kind: 'hello'; readonly pid: number }
  | { readonly kind: 'invoke'; readonly message: Planned }
  | { readonly kind: 'accepted' | 'refused' | 'removing' | 'removed'; readonly key: string }
  | { readonly kind: 'effect'; readonly effect: Effect }
  | {
      readonly kind: 'completed' | 'expired' | 'stale';
      readonly key: string;
      readonly fence?: string;
    };

/** What they hear. */
export interface Answer {
  /** Effects of this message before this one. */
  readonly seen?: number;
  /** Messages with an id of their own whose outcome is unknown, to be tried again. */
  readonly again?: readonly Planned[];
}

/** So many enqueues of unknown outcome are tried again by the next child. */
const AGAIN_MAX = 20;

/** Everything that happened, for the checker. */
export interface Facts {
  readonly messages: ReadonlyMap<string, Written>;
  readonly effects: readonly Effect[];
  /** How often each message was settled as delivered, as far as its process lived to tell. */
  readonly completions: ReadonlyMap<string, number>;
  /** How often each claim was, by message and fence, where its process told which it was. */
  readonly settledClaims?: ReadonlyMap<string, number>;
  /** The same of leases that ended and verdicts that came too late. */
  readonly lostClaims?: ReadonlyMap<string, number>;
  /** Leases that ended under a living handler. */
  readonly expiries: number;
  /** Verdicts that came too late and were not accepted. */
  readonly stale: number;
}

/** The ledger of one run. */
export class Ledger implements Facts {
  readonly messages: Map<string, Written> = new Map();
  readonly effects: Effect[] = [];
  readonly completions: Map<string, number> = new Map();
  readonly settledClaims: Map<string, number> = new Map();
  readonly lostClaims: Map<string, number> = new Map();
  expiries = 0;
  stale = 0;
  readonly #seen = new Map<string, number>();
  readonly #again = new Map<string, Planned>();
  readonly #sockets = new Set<Socket>();
  readonly #server: Server = createServer((socket) => this.#serve(socket));
  #onAlone: (() => void)[] = [];
  readonly #waiting = new Set<() => void>();
  #words = 0;

  /** Opens the ledger on loopback; resolves with its port. */
  listen(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject).listen(0, '127.0.0.1', () => {
        resolve((this.#server.address() as AddressInfo).port);
      });
    });
  }

  /** Enters a message that the caller enqueues itself, and sees accepted. */
  enter(message: Planned): void {
    this.#invoke(message);
    this.#note(message.key, { outcome: 'ok' });
  }

  /** Resolves when every child that is gone has been heard to its last word. */
  alone(): Promise<void> {
    if (this.#sockets.size === 0) return Promise.resolve();
    return new Promise((resolve) => void this.#onAlone.push(resolve));
  }

  /** Resolves after so many more words. */
  heard(words: number): Promise<void> {
    const enough = this.#words + words;
    return this.until(() => this.#words >= enough);
  }

  /** Resolves when this is true of what was heard. */
  until(isTrue: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!isTrue()) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }

  /** What was heard so far, for good. */
  snapshot(): Facts {
    const { messages, effects, completions, settledClaims, lostClaims, expiries, stale } = this;
    const counts = { completions, settledClaims, lostClaims, expiries, stale };
    return structuredClone({ messages, effects, ...counts });
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #serve(socket: Socket): void {
    const open = new Set<string>();
    this.#sockets.add(socket.setNoDelay(true));
    const lines = createInterface({ input: socket });
    // A killed child resets its connection; what it said before has been read.
    lines.on('error', () => lines.close());
    lines.on('line', (line) => {
      const { n, ...word } = JSON.parse(line) as Word & { readonly n?: number };
      const answer = this.#hear(word, open);
      this.#words += 1;
      for (const look of this.#waiting) look();
      if (n !== undefined) socket.write(`${JSON.stringify({ n, ...answer })}\n`);
    });
    lines.on('close', () => {
      for (const key of open) this.#leaveUnknown(key);
      this.#sockets.delete(socket);
      if (this.#sockets.size > 0) return;
      for (const resolve of this.#onAlone.splice(0)) resolve();
    });
  }

  #hear(word: Word, open: Set<string>): Answer {
    switch (word.kind) {
      case 'hello':
        return { again: this.#takeAgain() };
      case 'invoke':
        this.#invoke(word.message);
        open.add(word.message.key);
        return {};
      case 'accepted':
      case 'refused':
        open.delete(word.key);
        this.#note(word.key, { outcome: word.kind === 'accepted' ? 'ok' : 'refused' });
        return {};
      case 'removing':
      case 'removed':
        this.#note(word.key, { removal: word.kind === 'removing' ? 'asked' : 'done' });
        return {};
      case 'effect': {
        const { key } = word.effect;
        const seen = this.#seen.get(key) ?? 0;
        this.#seen.set(key, seen + 1);
        this.effects.push(word.effect);
        return { seen };
      }
      case 'completed':
        countUp(this.completions, word.key);
        if (word.fence !== undefined) countUp(this.settledClaims, `${word.key} ${word.fence}`);
        return {};
      default:
        if (word.kind === 'stale') this.stale += 1;
        else this.expiries += 1;
        if (word.fence !== undefined) countUp(this.lostClaims, `${word.key} ${word.fence}`);
        return {};
    }
  }

  #invoke(message: Planned): void {
    const before = this.messages.get(message.key);
    const wasUnknown = before?.wasUnknown ?? false;
    this.messages.set(message.key, { ...message, outcome: 'open', wasUnknown, removal: 'none' });
  }

  #note(key: string, news: Partial<Written>): void {
    const written = this.messages.get(key);
    if (written !== undefined) Object.assign(written, news);
  }

  #leaveUnknown(key: string): void {
    const written = this.messages.get(key);
    if (written === undefined) return;
    this.#note(key, { outcome: 'unknown', wasUnknown: true });
    if (written.hasOwnId) this.#again.set(key, written);
  }

  #takeAgain(): readonly Planned[] {
    const taken = [...this.#again.values()].slice(0, AGAIN_MAX);
    for (const { key } of taken) this.#again.delete(key);
    return taken;
  }
}

function countUp(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

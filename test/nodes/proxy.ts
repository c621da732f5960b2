/**
 * proxy — a TCP connection that can be treated badly, between a node and its server.
 *
 *   client ─▶ up ─▶ server        client ◀─ down ◀─ server
 *
 * One way of mistreatment at a time, at once or after so many bytes; `recover` ends it.
 */
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * What can be done to connections.
 *
 *   reset      they end with RST, and new ones are refused the same way
 *   end        they end in order (FIN), as from a server that shuts down; new ones too
 *   half       the server's side ends, the client's stays open; new ones too
 *   hold       nothing passes, and all of it passes later
 *   hold-up    nothing passes to the server
 *   hold-down  no answer passes: what was asked has happened
 *   vanish     connections die without a word, as behind a router that forgot them; new ones too
 *   delay      everything comes late
 *   cut-up     they end with RST in the middle of what the client sends
 *   cut-down   they end with RST in the middle of an answer
 */
export const SPOILS = [
  'reset',
  'end',
  'half',
  'hold',
  'hold-up',
  'hold-down',
  'vanish',
  'delay',
  'cut-up',
  'cut-down',
] as const;

export type Spoil = (typeof SPOILS)[number];

type Direction = 'up' | 'down';

/** What keeps bytes from passing in a direction. */
const HOLDS: Readonly<Record<Direction, readonly Spoil[]>> = {
  up: ['hold', 'hold-up'],
  down: ['hold', 'hold-down'],
};

/** A way through, with its two ends. */
interface Pair {
  readonly client: Socket;
  readonly server: Socket;
  /** Dead for good, without a word. */
  isVanished: boolean;
}

/** A cut falls after at most this many bytes: within a statement or an answer, or between two. */
const CUT_MAX_BYTES = 4_096;

export class FaultProxy implements AsyncDisposable {
  readonly #pairs = new Set<Pair>();
  readonly #target: URL;
  readonly #listener: Server = createServer({ allowHalfOpen: true }, (client) =>
    this.#accept(client),
  );
  readonly #delayMs: number;
  #spoil: Spoil | undefined;
  #bytesLeft = 0;
  #later: { readonly direction: Direction; readonly how: Spoil; bytesLeft: number } | undefined;
  #port = 0;
  /** Connections that were spoiled so far. */
  spoiled = 0;

  private constructor(target: string, delayMs: number) {
    this.#target = new URL(target);
    this.#delayMs = delayMs;
  }

  /** Starts a proxy on loopback before the server of this URL. */
  static async start(target: string, { delayMs = 100 } = {}): Promise<FaultProxy> {
    const proxy = new FaultProxy(target, delayMs);
    await new Promise<void>((resolve) => proxy.#listener.listen(0, '127.0.0.1', resolve));
    proxy.#port = (proxy.#listener.address() as AddressInfo).port;
    return proxy;
  }

  /** The URL of the server, through this proxy. */
  get url(): string {
    const url = new URL(this.#target);
    url.host = `127.0.0.1:${this.#port}`;
    return url.href;
  }

  /** Connections that lead through, those that vanished apart. */
  get connections(): number {
    return [...this.#pairs].filter(({ isVanished }) => !isVanished).length;
  }

  /** Begins to treat every connection badly; `share` (0 to 1) says where a cut falls. */
  spoil(how: Spoil, share = 0): void {
    this.recover();
    this.#spoil = how;
    this.#bytesLeft = 1 + Math.floor(share * CUT_MAX_BYTES);
    for (const pair of this.#pairs) this.#apply(pair);
  }

  /** The same, when so many more bytes have passed in one direction, of all connections. */
  spoilAfter(direction: Direction, bytes: number, how: Spoil): void {
    this.#later = { direction, how, bytesLeft: bytes };
  }

  /** Back to normal; what was held passes, what was ended stays so. */
  recover(): void {
    this.#spoil = undefined;
    this.#later = undefined;
    for (const { client, server, isVanished } of this.#pairs) {
      if (isVanished) continue;
      client.resume();
      server.resume();
    }
  }

  /** Lets the server know, at last, of connections that vanished. */
  dropVanished(): void {
    for (const pair of this.#pairs) if (pair.isVanished) drop(pair);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pair of this.#pairs) drop(pair);
    await new Promise((resolve) => this.#listener.close(resolve));
  }

  #accept(client: Socket): void {
    const { hostname: host, port } = this.#target;
    const server = connect({ host, port: Number(port), allowHalfOpen: true });
    const pair: Pair = { client, server, isVanished: false };
    this.#pairs.add(pair);
    this.#join(pair, 'up');
    this.#join(pair, 'down');
    const forget = (): void => {
      if (client.destroyed && server.destroyed) this.#pairs.delete(pair);
    };
    client.once('close', forget);
    server.once('close', forget);
    this.#apply(pair);
  }

  #apply(pair: Pair): void {
    const { client, server } = pair;
    const how = this.#spoil;
    if (how === undefined) return;
    this.spoiled += 1;
    if (how === 'reset') reset(pair);
    if (how === 'end') for (const socket of [client, server]) socket.end();
    if (how === 'half') client.end();
    if (how === 'vanish') pair.isVanished = true;
    if (how === 'hold' || how === 'hold-up' || how === 'vanish') client.pause();
    if (how === 'hold' || how === 'hold-down' || how === 'vanish') server.pause();
  }

  /** One direction of a pair. */
  #join(pair: Pair, direction: Direction): void {
    const isUp = direction === 'up';
    const [from, to] = isUp ? [pair.client, pair.server] : [pair.server, pair.client];
    from.setNoDelay(true);
    // An end with an error is followed by 'close'.
    from.on('error', () => undefined);
    from.once('close', () => {
      if (!pair.isVanished) to.destroy();
    });
    // What is late stays in order, also after the delay is over.
    let late: Promise<void> | undefined;
    const inTurn = (work: () => void): void => {
      if (late === undefined && this.#spoil !== 'delay') return work();
      const mine = (late ?? Promise.resolve()).then(async () => {
        if (this.#spoil === 'delay') await sleep(this.#delayMs);
        work();
        if (late === mine) late = undefined;
      });
      late = mine;
    };
    from.once('end', () => inTurn(() => void to.end()));
    from.on('data', (bytes) => {
      if (this.#isCutBy(direction, bytes)) {
        to.write(bytes.subarray(0, bytes.byteLength - 1), () => reset(pair));
        return;
      }
      inTurn(() => pass(from, to, bytes, () => this.#mayFlow(pair, direction)));
      this.#count(direction, bytes.byteLength);
    });
  }

  #mayFlow({ isVanished }: Pair, direction: Direction): boolean {
    return !isVanished && !(this.#spoil !== undefined && HOLDS[direction].includes(this.#spoil));
  }

  #count(direction: Direction, bytes: number): void {
    const later = this.#later;
    if (later?.direction !== direction) return;
    later.bytesLeft -= bytes;
    if (later.bytesLeft <= 0) this.spoil(later.how);
  }

  #isCutBy(direction: Direction, bytes: Uint8Array): boolean {
    if (this.#spoil !== `cut-${direction}`) return false;
    this.#bytesLeft -= bytes.byteLength;
    return this.#bytesLeft <= 0;
  }
}

/** A side that is slow slows the other; one that is held meanwhile stays so. */
function pass(from: Socket, to: Socket, bytes: Uint8Array, mayFlow: () => boolean): void {
  if (to.destroyed || to.writableEnded || to.write(bytes)) return;
  from.pause();
  to.once('drain', () => {
    if (mayFlow()) from.resume();
  });
}

function reset({ client, server }: Pair): void {
  client.resetAndDestroy();
  server.resetAndDestroy();
}

function drop({ client, server }: Pair): void {
  client.destroy();
  server.destroy();
}

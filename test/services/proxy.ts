/**
 * proxy — stands between a client and a server and spoils the connection: cuts it, or lets nothing
 * through while it stays open.
 */

import { connect, createServer, type Socket } from 'node:net';

/** A connection that can be spoiled. */
export interface Proxy extends AsyncDisposable {
  readonly port: number;
  /** The URL of the server, through the proxy. */
  readonly url: string;
  /** How many clients are connected. */
  connections(): number;
  /** Bytes from clients to the server so far. */
  sentBytes(): number;
  /** Bytes from the server to clients so far. */
  answeredBytes(): number;
  /** Ends all connections with a reset and accepts no new ones until `mend`. */
  cut(): void;
  /** Cuts when so many more bytes have gone to the server. */
  cutAfterSent(bytes: number): void;
  /** Cuts when so many more bytes have come from the server. */
  cutAfterAnswered(bytes: number): void;
  /** Lets nothing through, in either direction; connections stay, and new ones are accepted. */
  hold(): void;
  /** Holds when so many more bytes have come from the server. */
  holdAfterAnswered(bytes: number): void;
  /** Back to normal. */
  mend(): void;
}

/** Starts a proxy on loopback in front of the server of this URL. */
export async function startProxy(target: string): Promise<Proxy> {
  const url = new URL(target);
  const pairs = new Set<readonly [Socket, Socket]>();
  const counts = { sent: 0, answered: 0 };
  const limits = { cutSent: Infinity, cutAnswered: Infinity, holdAnswered: Infinity };
  let isCut = false;
  let isHeld = false;

  const cut = (): void => {
    isCut = true;
    for (const pair of pairs) for (const socket of pair) socket.resetAndDestroy();
  };
  const hold = (): void => {
    isHeld = true;
    for (const pair of pairs) for (const socket of pair) socket.pause();
  };
  const check = (): void => {
    if (counts.sent >= limits.cutSent || counts.answered >= limits.cutAnswered) cut();
    else if (counts.answered >= limits.holdAnswered) hold();
  };

  const server = createServer((client) => {
    if (isCut) {
      client.resetAndDestroy();
      return;
    }
    const upstream = connect(Number(url.port), url.hostname);
    const pair = [client, upstream] as const;
    pairs.add(pair);
    const mayFlow = (): boolean => !isHeld;
    join(client, upstream, mayFlow, (bytes) => {
      counts.sent += bytes;
      check();
    });
    join(upstream, client, mayFlow, (bytes) => {
      counts.answered += bytes;
      check();
    });
    client.once('close', () => pairs.delete(pair));
    if (isHeld) for (const socket of pair) socket.pause();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = address === null || typeof address === 'string' ? 0 : address.port;
  const through = new URL(target);
  through.host = `127.0.0.1:${port}`;

  return {
    port,
    url: target.endsWith('/') ? through.href : through.href.replace(/\/$/, ''),
    connections: () => pairs.size,
    sentBytes: () => counts.sent,
    answeredBytes: () => counts.answered,
    cut,
    cutAfterSent: (bytes) => void (limits.cutSent = counts.sent + bytes),
    cutAfterAnswered: (bytes) => void (limits.cutAnswered = counts.answered + bytes),
    hold,
    holdAfterAnswered: (bytes) => void (limits.holdAnswered = counts.answered + bytes),
    mend() {
      isCut = false;
      isHeld = false;
      Object.assign(limits, { cutSent: Infinity, cutAnswered: Infinity, holdAnswered: Infinity });
      for (const pair of pairs) for (const socket of pair) socket.resume();
    },
    async [Symbol.asyncDispose]() {
      for (const pair of pairs) for (const socket of pair) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** One direction; a side that is slow slows the other. */
function join(
  from: Socket,
  to: Socket,
  mayFlow: () => boolean,
  count: (bytes: number) => void,
): void {
  from.on('error', () => undefined);
  from.once('close', () => to.destroy());
  from.once('end', () => to.end());
  from.on('data', (bytes) => {
    if (!to.write(bytes)) {
      from.pause();
      to.once('drain', () => {
        if (mayFlow()) from.resume();
      });
    }
    count(bytes.byteLength);
  });
}

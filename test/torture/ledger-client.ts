/** ledger-client — a child's way to the ledger. */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import type { Answer, Word } from './ledger.ts';

/** Speaks to the ledger. */
export interface LedgerClient {
  /** Says it and waits until the ledger has heard it. */
  ask(word: Word): Promise<Answer>;
  /** Says it; what was said before a kill is heard all the same. */
  tell(word: Word): void;
  close(): void;
}

/** Connects to the ledger on this port of loopback. */
export function connectLedger(port: number): Promise<LedgerClient> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    const waiting = new Map<number, (answer: Answer) => void>();
    let asked = 0;
    socket.setNoDelay(true).once('error', reject);
    createInterface({ input: socket }).on('line', (line) => {
      const { n, ...answer } = JSON.parse(line) as Answer & { readonly n: number };
      waiting.get(n)?.(answer);
      waiting.delete(n);
    });
    socket.once('connect', () => {
      resolve({
        ask: (word) =>
          new Promise((answered) => {
            asked += 1;
            waiting.set(asked, answered);
            socket.write(`${JSON.stringify({ n: asked, ...word })}\n`);
          }),
        tell: (word) => void socket.write(`${JSON.stringify(word)}\n`),
        close: () => void socket.end(),
      });
    });
  });
}

/**
 * guarded-tx — a connection for as long as one of our transactions is on it.
 *
 * `fn` may leave something behind that goes on after the end, such as the others of a Promise.all
 * of which one failed. By then the connection may be in another transaction; so each gets a face of
 * its own of the connection, which refuses everything from the moment the end is sent.
 */

import { RespoolError } from '../core/errors.ts';
import { InFlight } from '../system/wait.ts';

/**
 * What ends a transaction, in any of several statements; going back to a savepoint does not. What
 * only looks like it, such as the end of a CASE, costs a question to the server.
 */
const ENDING =
  /(?:^|;|\*\/)\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+\w+)?\s+to\b))\b/im;

const known = new WeakMap<object, GuardedTx>();

/** The transaction of `transaction()` that this is, or was. */
export function guardedTxOf(given: unknown): GuardedTx | undefined {
  return typeof given === 'object' && given !== null ? known.get(given) : undefined;
}

/** One of our transactions. */
export class GuardedTx<Client extends object = object> {
  /** The connection, until the end. */
  readonly tx: Client;
  /** What the commit waits for: half of it would be worse than none. */
  readonly inFlight: InFlight = new InFlight();
  #isOver = false;
  #isEndedInside = false;

  constructor(client: Client) {
    const query = (...args: unknown[]): unknown => this.#query(client, args);
    this.tx = new Proxy(client, {
      get(target, name) {
        if (name === 'query') return query;
        const value: unknown = Reflect.get(target, name);
        // n.b. Fields that are private do not see through a face.
        const isMethod = typeof value === 'function' && name !== 'constructor';
        return isMethod ? value.bind(target) : value;
      },
    });
    known.set(this.tx, this);
  }

  /** Whether what is sent now is in the transaction, whatever is sent after it. */
  get isSure(): boolean {
    return !this.#isOver && !this.#isEndedInside;
  }

  /** Whether a statement was sent that ends it, or looks like it. */
  get isEndedInside(): boolean {
    return this.#isEndedInside;
  }

  /** Refuses what comes after the end. */
  check(doing: string): void {
    if (this.#isOver) throw over(doing);
  }

  /** From now on it refuses. */
  end(): void {
    this.#isOver = true;
  }

  #query(client: Client, args: unknown[]): unknown {
    const [first, ...rest] = args;
    if (this.#isOver) {
      const isAsked = rest.some((arg) => typeof arg === 'function') || isSubmittable(first);
      if (isAsked) throw over('run a statement');
      return Promise.reject(over('run a statement'));
    }
    if (ENDING.test(textOf(first))) this.#isEndedInside = true;
    return (client as { query(...args: unknown[]): unknown }).query(...args);
  }
}

function over(doing: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot ${doing}: its transaction has ended; await everything you do in it before its ` +
      'function ends',
  );
}

/** A cursor or a stream of rows, which tells its errors by itself. */
function isSubmittable(given: unknown): boolean {
  return typeof given === 'object' && given !== null && 'submit' in given;
}

function textOf(given: unknown): string {
  const text = typeof given === 'object' && given !== null ? Reflect.get(given, 'text') : given;
  return typeof text === 'string' ? text : '';
}

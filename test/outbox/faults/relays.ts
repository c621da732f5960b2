/** relays — relay processes on one outbox; one that dies is replaced at once. */
import { type Child, startChild } from '../../torture/child.ts';
import type { RelayOrder, RelayWork } from './order.ts';

export class Relays {
  readonly complaints: string[] = [];
  kills = 0;
  readonly #order: RelayOrder;
  readonly #children: Child[] = [];
  readonly #burials = new Set<Promise<void>>();
  #isEnding = false;

  constructor(order: RelayOrder) {
    this.#order = order;
  }

  /** The processes that live. */
  get children(): readonly Child[] {
    return this.#children;
  }

  /** Starts so many; resolves when they are at work. */
  async start(count: number): Promise<void> {
    for (let started = 0; started < count; started += 1) this.#add();
    await Promise.all(this.#children.map((child) => child.line('started')));
  }

  /** Kills one with SIGKILL; another one takes its place. */
  async kill(child: Child): Promise<void> {
    child.signal('SIGKILL');
    await child.ended;
  }

  /** Ends all of them in order; each has to end by itself. */
  async stop(): Promise<void> {
    this.#isEnding = true;
    const children = [...this.#children];
    // One that has just been started hears the word when it is at work.
    for (const child of children) child.say('stop');
    for (const child of children) {
      const { code, signal } = await child.ended;
      if (code !== 0) this.complaints.push(`a relay ended with ${code ?? signal}`);
    }
    await Promise.all(this.#burials);
  }

  async close(): Promise<void> {
    this.#isEnding = true;
    for (const child of this.#children) child.signal('SIGKILL');
    await Promise.all(this.#burials);
  }

  #add(): void {
    const child = startChild('../outbox/faults/relay-child.ts', this.#order);
    this.#children.push(child);
    const burial = this.#bury(child).finally(() => this.#burials.delete(burial));
    this.#burials.add(burial);
  }

  async #bury(child: Child): Promise<void> {
    const { signal, code } = await child.ended;
    this.#children.splice(this.#children.indexOf(child), 1);
    if (child.complaint() !== '') this.complaints.push(child.complaint().slice(0, 500));
    if (this.#isEnding) return;
    if (signal === 'SIGKILL') this.kills += 1;
    else this.complaints.push(`a relay ended with ${code ?? signal}`);
    this.#add();
  }
}

let asked = 0;

/** What a relay process has done so far. */
export async function workOf(child: Child): Promise<RelayWork> {
  asked += 1;
  const word = `work ${asked} `;
  child.say(word);
  return JSON.parse((await child.line(word)).slice(word.length)) as RelayWork;
}

/**
 * servers — the servers of one keeper: shared ones by name, and those that belong to a connection.
 */

import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import type { FolderLedger } from './ledger.ts';
import { type Machine, thisMachine } from './machine.ts';
import { nats } from './nats.ts';
import { obtain, type Tell } from './obtain.ts';
import { pgbouncer } from './pgbouncer.ts';
import { postgres } from './postgres.ts';
import type { Act, OwnedServer, ServerStatus } from './protocol.ts';
import { rabbitmq } from './rabbitmq.ts';
import type { Recipe } from './recipe.ts';
import { s3 } from './s3.ts';
import type { Server, Site } from './server.ts';
import { givenUrl, type ServerName, type ServiceName, serverOf, VARIABLES } from './words.ts';

const RECIPES: Readonly<Record<ServerName, Recipe>> = { postgres, pgbouncer, nats, s3, rabbitmq };

interface Shared {
  readonly server: Promise<Server>;
  state: ServerStatus['state'];
  urls: Server['urls'];
  error?: string;
  failedAt?: number;
}

/** What could not be started is not tried again for every test file, but for the next person. */
const RETRY_MS = 30_000;

/** Starts servers, each shared one once, and ends them all. */
export class Servers {
  readonly #ledger: FolderLedger;
  readonly #machine: Machine = thisMachine();
  readonly #shared = new Map<ServerName, Shared>();
  readonly #owned = new Map<number, { readonly owner: object; readonly server: Server }>();
  readonly #gone = new WeakSet<object>();
  #count = 0;
  #isClosing = false;

  constructor(ledger: FolderLedger) {
    this.#ledger = ledger;
  }

  /** The URL of a service; its server is started on the first ask. */
  async urlOf(service: ServiceName, tell: Tell): Promise<string> {
    const given = givenUrl(service, this.#machine.env);
    if (given !== undefined) return given;
    const name = serverOf(service);
    if (service !== name && givenUrl(name, this.#machine.env) !== undefined) {
      throw new Error(`${VARIABLES[name]} is set: set ${VARIABLES[service]} too`);
    }
    const { urls } = await this.#share(name, tell).server;
    const url = urls[service];
    if (url === undefined) throw new Error(`there is no URL of ${service}`);
    return url;
  }

  status(): readonly ServerStatus[] {
    return [...this.#shared].map(([server, { state, urls, error }]) => ({
      server,
      state,
      urls,
      ...(error === undefined ? {} : { error }),
    }));
  }

  /** Starts a server that ends with its owner. */
  async startOwned(
    owner: object,
    name: ServerName,
    { env, tell }: { readonly env: Readonly<Record<string, string>>; readonly tell: Tell },
  ): Promise<OwnedServer> {
    const machine = thisMachine({ ...this.#machine.env, ...env });
    const server = await this.#start(name, machine, tell);
    if (this.#gone.has(owner) || this.#isClosing) {
      await server.stop();
      throw new Error(`nobody waits for this ${name} any more`);
    }
    this.#count += 1;
    this.#owned.set(this.#count, { owner, server });
    const { urls, operator } = server;
    return { handle: this.#count, urls, ...(operator === undefined ? {} : { operator }) };
  }

  async act(owner: object, handle: number, act: Act): Promise<void> {
    const found = this.#owned.get(handle);
    if (found === undefined || found.owner !== owner) {
      throw new Error(`there is no server ${handle} of yours`);
    }
    const { server } = found;
    if (act === 'stop') {
      this.#owned.delete(handle);
      return server.stop();
    }
    if (act === 'kill -9') return server.kill('SIGKILL');
    return server[act]();
  }

  /** Ends what belonged to a connection that is closed. */
  async endOwned(owner: object): Promise<void> {
    this.#gone.add(owner);
    for (const [handle, found] of this.#owned) {
      if (found.owner !== owner) continue;
      this.#owned.delete(handle);
      await found.server.stop();
    }
  }

  /** Ends everything that is ready; what is on its way ends with its processes. */
  async close(): Promise<void> {
    this.#isClosing = true;
    const ready = [...this.#shared.values()].filter(({ state }) => state === 'running');
    const servers = await Promise.all(ready.map(({ server }) => server));
    const owned = [...this.#owned.values()].map(({ server }) => server);
    await Promise.allSettled([...servers, ...owned].map((server) => server.stop()));
  }

  #share(name: ServerName, tell: Tell): Shared {
    const known = this.#shared.get(name);
    const mayTryAgain = known?.failedAt !== undefined && Date.now() > known.failedAt + RETRY_MS;
    if (known !== undefined && !mayTryAgain) return known;
    const server = this.#start(name, this.#machine, tell);
    const shared: Shared = { server, state: 'starting', urls: {} };
    server.then(
      ({ urls }) => {
        shared.state = 'running';
        shared.urls = urls;
      },
      (error: unknown) => {
        shared.state = 'failed';
        shared.error = error instanceof Error ? error.message : String(error);
        shared.failedAt = Date.now();
      },
    );
    this.#shared.set(name, shared);
    return shared;
  }

  async #start(name: ServerName, machine: Machine, tell: Tell): Promise<Server> {
    const recipe = RECIPES[name];
    const dirs: string[] = [];
    const removeDirs = async (): Promise<void> => {
      for (const dir of dirs) await rm(dir, { recursive: true, force: true });
    };
    const makeSite = async (): Promise<Site> => {
      if (this.#isClosing) throw new Error('the test servers are ending');
      this.#count += 1;
      const dir = path.join(this.#ledger.dir, `${name}-${this.#count}`);
      dirs.push(dir);
      await mkdir(dir, { mode: 0o700 });
      return { dir, ledger: this.#ledger, urlOf: (service) => this.urlOf(service, tell) };
    };
    try {
      const server = await obtain(recipe, makeSite, { machine, tell });
      return {
        ...server,
        async stop() {
          await server.stop();
          await removeDirs();
        },
      };
    } catch (error) {
      await removeDirs();
      throw error;
    }
  }
}

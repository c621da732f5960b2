/**
 * recipe — what a kind of server needs to be started: its programs, its packages, its image.
 */

import type { Machine } from './machine.ts';
import type { Server, Site } from './server.ts';
import type { ServerName, ServiceName } from './words.ts';

/** The programs of a server, by what they are. */
export type Programs = Readonly<Record<string, string>>;

/** How to get and start one kind of server. */
export interface Recipe {
  readonly name: ServerName;
  /** What it gives a URL for; the first is the server itself. */
  readonly gives: readonly ServiceName[];
  /** The packages of Debian and Ubuntu that bring its programs. */
  readonly packages: readonly string[];
  /** Its programs on this machine, or the name of the first one that is missing. */
  find(machine: Machine): Programs | string;
  /** Programs that are better than those of `find`; rejects where there are none to be had. */
  fetch?(machine: Machine): Promise<Programs>;
  /** Starts one on free ports, with its data in the site's folder. */
  start(programs: Programs, site: Site, machine: Machine): Promise<Server>;
  /** The same with docker; none where the image cannot do what the tests need. */
  readonly docker?: DockerPlan;
}

/** How to start a server as a container. */
export interface DockerPlan {
  readonly image: string;
  readonly env?: Readonly<Record<string, string>>;
  /** The ports in the container; they appear on loopback, each on a free one. */
  readonly ports: readonly number[];
  readonly args?: readonly string[];
  /** The URLs, when the ports are known. */
  urls(ports: readonly number[]): Server['urls'];
  isReady(ports: readonly number[]): Promise<boolean>;
}

/** Looks up programs; the name of the first that is missing, where one is. */
export function findAll(machine: Machine, names: readonly string[]): Programs | string {
  const found: Record<string, string> = {};
  for (const name of names) {
    const file = machine.find(name);
    if (file === undefined) return name;
    found[name] = file;
  }
  return found;
}

/**
 * servers — the servers of a bench: of its own, started for this run by the script that tests use,
 * unless a variable of the environment names one of yours.
 */

import { connectKeeper, type Link, startKeeper } from '../scripts/services/link.ts';
import { givenUrl, type ServiceName } from '../scripts/services/words.ts';

/** The servers of one run. */
export interface Servers {
  /** The URL of a server, started on the first ask. */
  url(name: ServiceName): Promise<string>;
  /** Ends all of them, and removes what they wrote. */
  end(): Promise<void>;
}

/** Nothing runs yet. */
export function createServers(): Servers {
  let started: Promise<{ link: Link; end: () => Promise<void> }> | undefined;
  const urls = new Map<ServiceName, Promise<string>>();

  const start = async (): Promise<{ link: Link; end: () => Promise<void> }> => {
    const { door, end } = await startKeeper('owned');
    return { link: await connectKeeper(door), end };
  };
  const ask = async (name: ServiceName): Promise<string> => {
    const given = givenUrl(name, process.env);
    if (given !== undefined) return given;
    started ??= start();
    const { link } = await started;
    return String(await link.ask({ kind: 'url', service: name }));
  };
  return {
    url(name) {
      const url = urls.get(name) ?? ask(name);
      urls.set(name, url);
      return url;
    },
    async end() {
      if (started === undefined) return;
      const { link, end } = await started;
      link.close();
      await end();
    },
  };
}

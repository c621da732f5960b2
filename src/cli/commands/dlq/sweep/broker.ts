/**
 * broker — which broker a sweep is at, put together part by part: a URL, or the old names.
 *
 * Each part comes from the highest source that sets it. A URL sets every part: what it leaves out
 * is its default, and counts a little less, so that an old name beside it may say it, and a name of
 * a lower source may not. Two that say different things with the same right are refused.
 *
 * Called by settings.ts, and by watch.ts without the old names.
 */

import { type Broker, brokerAt } from '../../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../../config/load/load-config.ts';
import { RespoolError, show } from '../../../../core/errors.ts';
import { CommandError } from '../../../exit-codes.ts';
import { LEVEL, type OldSettings, type LegacyValue } from './legacy-options.ts';

/** What names the broker. */
interface BrokerSources {
  readonly old: OldSettings;
  /** Whether the broker is at the old tool's default address. */
  readonly hasOldDefaults: boolean;
  /** `--url` or `--broker`. */
  readonly url: string | undefined;
  /** `--management-url`. */
  readonly managementUrl: string | undefined;
  readonly loaded: LoadedConfig;
  /** Whether the file that was named is one of the old shape; ours was then only found. */
  readonly hasOldFile: boolean;
}

/** The broker, and the configuration as it holds for it. */
interface ChosenBroker {
  readonly broker: Broker;
  readonly loaded: LoadedConfig;
}

const PLAIN_PORT = 5672;
const TLS_PORT = 5671;
const MANAGEMENT_PORT = 15_672;
const OLD_PARTS = ['host', 'port', 'username', 'password', 'vhost', 'ssl'] as const;
type Part = (typeof OLD_PARTS)[number];
type Parts = { readonly [K in Part]?: LegacyValue<string | number | boolean> };

/** The configured broker; `undefined` if there is none. */
export function chooseBroker(sources: BrokerSources): ChosenBroker | undefined {
  const { old, loaded } = sources;
  const urls = urlsOf(sources);
  if (urls.length === 0 && !sources.hasOldDefaults) return undefined;
  const isOld = urls.length === 0 || OLD_PARTS.some((part) => old[part] !== undefined);
  const said = [old as Parts, ...urls.map(partsOfUrl)];
  const part = <T>(name: Part, byDefault: T): T =>
    (pick(
      name,
      said.flatMap((one) => one[name] ?? []),
    )?.value as T | undefined) ?? byDefault;
  const isTls = part('ssl', false);
  const host = part('host', 'localhost');
  const port = part('port', PLAIN_PORT);
  const user = encodeURIComponent(part('username', 'guest'));
  const password = encodeURIComponent(part('password', 'guest'));
  const vhost = encodeURIComponent(part('vhost', '/'));
  const name = hostInUrl(host);
  const url = `${isTls ? 'amqps' : 'amqp'}://${user}:${password}@${name}:${port}/${vhost}`;
  const { rabbit } = loaded.config;
  const { managementUrl, isNamed } = managementOf(sources, { host: name, isTls, isOld });
  const tls = tlsOf(old, loaded);
  const { managementUrl: _, tls: __, ...rest } = rabbit;
  const chosen = {
    ...rest,
    url,
    ...(managementUrl === undefined ? {} : { managementUrl }),
    ...(tls === undefined ? {} : { tls }),
  };
  return {
    broker: { ...brokerAt(url, [], chosen), isManagementNamed: isNamed },
    loaded: { ...loaded, config: { ...loaded.config, rabbit: chosen } },
  };
}

/** The one that counts most. Refused: two that count the same and differ. */
export function pick<T>(
  what: string,
  candidates: readonly LegacyValue<T>[],
): LegacyValue<T> | undefined {
  const [best, ...others] = candidates.toSorted((one, other) => other.level - one.level);
  if (best === undefined) return undefined;
  const equal = others.filter(({ level }) => level === best.level);
  const rival = equal.find(({ value }) => JSON.stringify(value) !== JSON.stringify(best.value));
  if (rival === undefined) return best;
  const [one, other] = [best, rival].map(({ name, value }) =>
    what === 'password' ? name : `${name} (${shown(value)})`,
  );
  throw new CommandError(
    'usage.invalid',
    `${one} and ${other} say different things of the same: give one of them`,
  );
}

function shown(value: unknown): string {
  return Array.isArray(value) ? value.map(show).join(', ') : show(value);
}

function urlsOf({ url, loaded, hasOldFile }: BrokerSources): readonly LegacyValue<string>[] {
  const urls: LegacyValue<string>[] = [];
  if (url !== undefined) urls.push({ value: url, level: LEVEL.flag, name: '--url' });
  const configured = loaded.config.rabbit.url;
  if (configured !== undefined) {
    const { level, name } = originOf('rabbit.url', loaded, hasOldFile);
    urls.push({ value: configured, level, name });
  }
  return urls;
}

function originOf(
  key: string,
  { origins }: LoadedConfig,
  hasOldFile: boolean,
): { readonly level: number; readonly name: string } {
  const origin = origins.get(key);
  if (origin?.from === 'environment') return { level: LEVEL.environment, name: origin.name };
  // A file that was only found says less than the one that was named.
  return { level: hasOldFile ? LEVEL.file - 0.8 : LEVEL.file, name: `"${key}"` };
}

/** The parts of a URL, with defaults for those it leaves out. */
function partsOfUrl({ value, level, name }: LegacyValue<string>): Parts {
  const url = URL.parse(value);
  if (url === null || !/^amqps?:$/.test(url.protocol)) {
    throw new CommandError('usage.invalid', `cannot use ${name} as a broker: allowed is amqp://…`);
  }
  const isTls = url.protocol === 'amqps:';
  const one = (text: string, meant: string): LegacyValue<string> =>
    text === ''
      ? { value: meant, level: level - 0.1, name }
      : { value: decoded(text, name), level, name };
  return {
    host: { value: url.hostname.replace(/^\[(.*)\]$/, '$1'), level, name },
    port:
      url.port === ''
        ? { value: isTls ? TLS_PORT : PLAIN_PORT, level: level - 0.1, name }
        : { value: Number(url.port), level, name },
    username: one(url.username, 'guest'),
    password: one(url.password, 'guest'),
    vhost: one(url.pathname.slice(1), '/'),
    ssl: { value: isTls, level, name },
  };
}

function decoded(text: string, name: string): string {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    throw new RespoolError(
      'config.invalid',
      `cannot read the user, password or virtual host of ${name}: a "%" in them has to be ` +
        'written as "%25"',
      { cause: error },
    );
  }
}

/** n.b. An address of IPv6 stands in brackets in a URL. */
function hostInUrl(host: string): string {
  const name = host.includes(':') ? `[${host}]` : host;
  if (URL.canParse(`amqp://${name}`) && !/[/?#@\s]/.test(name)) return name;
  throw new CommandError(
    'usage.invalid',
    `cannot use ${show(host)} as the host of a broker: allowed is a name or an address alone`,
  );
}

function managementOf(
  { old, managementUrl, loaded, hasOldFile }: BrokerSources,
  { host, isTls, isOld }: { readonly host: string; readonly isTls: boolean; isOld: boolean },
): { readonly managementUrl: string | undefined; readonly isNamed: boolean } {
  const candidates: LegacyValue<string>[] = [];
  const configured = loaded.config.rabbit.managementUrl;
  if (managementUrl !== undefined) {
    candidates.push({ value: managementUrl, level: LEVEL.flag, name: '--management-url' });
  }
  if (configured !== undefined) {
    const origin = originOf('rabbit.managementUrl', loaded, hasOldFile);
    candidates.push({ value: configured, ...origin });
  }
  const ofPort = (port: number): string => `${isTls ? 'https' : 'http'}://${host}:${port}`;
  const { mgmtPort } = old;
  const best = candidates.toSorted((one, other) => other.level - one.level)[0];
  if (mgmtPort !== undefined && (best === undefined || mgmtPort.level >= best.level)) {
    if (best?.level === mgmtPort.level) {
      const port = Number(URL.parse(best.value)?.port ?? '');
      pick('port', [mgmtPort, { ...best, value: port }]);
      return { managementUrl: best.value, isNamed: true };
    }
    return { managementUrl: ofPort(mgmtPort.value), isNamed: true };
  }
  if (best !== undefined) return { managementUrl: best.value, isNamed: true };
  return { managementUrl: isOld ? ofPort(MANAGEMENT_PORT) : undefined, isNamed: false };
}

/** What TLS needs, with what the old name says of certificates. */
function tlsOf(
  { sslVerify }: OldSettings,
  { config: { rabbit }, origins }: LoadedConfig,
): LoadedConfig['config']['rabbit']['tls'] {
  if (sslVerify === undefined) return rabbit.tls;
  const isSaid = rabbit.tls?.rejectUnauthorized !== undefined;
  const isOfFile = origins.get('rabbit.tls.rejectUnauthorized')?.from !== 'environment';
  if (isSaid && isOfFile && sslVerify.level < LEVEL.file) return rabbit.tls;
  return { ...rabbit.tls, rejectUnauthorized: sslVerify.value };
}

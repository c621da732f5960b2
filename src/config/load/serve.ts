/** serve — the lists and pairs among the service's keys, checked. */

import { hash } from 'node:crypto';
import { RespoolError, show } from '../../core/errors.ts';
import { checkKey, checkOneOf, isPlainObject } from '../../core/limits.ts';
import type { ServeConfig, TokenConfig } from '../schema/define-config.ts';
import { ROLES, TOKEN_KEYS } from '../schema/items.ts';
import { checkHostName, isTokenHash } from '../schema/keys.ts';
import { checkKeys, configError, inSection } from './config-errors.ts';

const TOKENS_MAX = 1_000;
const HOSTS_MAX = 1_000;

/** Tokens by name, role and SHA-256; a name stands once, and so does a token. */
export function tokensOf(value: unknown): readonly TokenConfig[] {
  const names = new Set<string>();
  const nameByHash = new Map<string, string>();
  return listOf(value, 'serve.tokens', TOKENS_MAX).map((token, at) => {
    const key = `serve.tokens[${at}]`;
    if (!isPlainObject(token)) throw configError(key, typeof token, '{ name, role, sha256 }');
    checkKeys(key, token, Object.keys(TOKEN_KEYS));
    const name = inSection(key, () => keyName(token['name']));
    if (names.has(name)) throw configError(`${key}.name`, name, 'every name once');
    names.add(name);
    const { sha256 } = token;
    if (typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/i.test(sha256)) {
      // Anyone who puts the token itself here must not find it in a log.
      throw new RespoolError(
        'config.invalid',
        `cannot use (secret) as "${key}.sha256": allowed is a token's SHA-256, 64 hex digits`,
      );
    }
    checkGuessable(sha256, `${key}.sha256`);
    const lower = sha256.toLowerCase();
    const other = nameByHash.get(lower);
    if (other !== undefined) {
      const text =
        `cannot use the token of ${show(other)} as "${key}.sha256" too: ` +
        'allowed is every token once';
      throw new RespoolError('config.invalid', text);
    }
    nameByHash.set(lower, name);
    const role = checkOneOf(`${key}.role`, token['role'], ROLES);
    return { name, role, sha256: lower };
  });
}

/** Refuses a token that is in a file as plain text: anyone who reads the file could use it. */
export function checkTokenAtRest(value: unknown, where?: string): void {
  if (isTokenHash(value)) return;
  const said = where === undefined ? '' : `, from ${where}`;
  // It may be a token: it is not shown.
  throw new RespoolError(
    'config.invalid',
    `cannot use (secret) as "serve.token"${said}: a file keeps only the hash of a token, ` +
      '"sha256:" and 64 hex digits; run "respool token create --name admin --role admin" and ' +
      'write the hash that it prints, or set RESPOOL_TOKEN in the environment of the process; ' +
      'a variable of that, and not of .env, may also be taken: ${NAME} in YAML and JSON, ' +
      'process.env.NAME in a program',
  );
}

/** Refuses the hash of a word that everybody tries first: it stands in lists, also in ours. */
export function checkTokenHash(token: unknown): void {
  if (typeof token === 'string' && isTokenHash(token)) {
    checkGuessable(token.slice('sha256:'.length), 'serve.token');
  }
}

const GUESSABLE = ['', 'test', 'admin', 'token', 'secret', 'password', 'changeme', 'respool'];

function checkGuessable(sha256: string, key: string): void {
  const isGuessable = GUESSABLE.some(
    (word) => hash('sha256', word, 'hex') === sha256.toLowerCase(),
  );
  if (!isGuessable) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use (secret) as "${key}": it is the hash of a word that is easy to guess; ` +
      'run "respool token create --name NAME --role ROLE" and write the hash that it prints',
  );
}

/** The host names that requests may have besides the usual ones. */
export function hostsOf(value: unknown): readonly string[] {
  return listOf(value, 'serve.hosts', HOSTS_MAX).map((host, at) => {
    checkHostName(host, `serve.hosts[${at}]`);
    return host as string;
  });
}

/** Both files of TLS or none, by their absolute paths. */
export function tlsOf(value: unknown, resolve: (file: string) => string): Pick<ServeConfig, 'tls'> {
  if (value === undefined) return {};
  const { key, cert } = value as Partial<NonNullable<ServeConfig['tls']>>;
  if (key === undefined || cert === undefined) {
    const missing = key === undefined ? 'key' : 'cert';
    throw configError(`serve.tls.${missing}`, undefined, 'a file; TLS needs both key and cert');
  }
  return { tls: { key: resolve(key), cert: resolve(cert) } };
}

function keyName(name: unknown): string {
  try {
    return checkKey('name', name);
  } catch {
    throw configError('name', name, '1 to 255 characters, no control characters');
  }
}

function listOf(value: unknown, key: string, max: number): readonly unknown[] {
  if (value === undefined) return [];
  if (Array.isArray(value) && value.length <= max) return value;
  throw configError(key, typeof value, `a list of at most ${max}`);
}

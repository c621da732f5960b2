/** hide — settings as they may be shown: what looks like a secret is left out. */

/** What stands in the place of a secret. */
export const HIDDEN = '(secret)';

const SECRET_NAME =
  /auth|cookie|passw|secret|token|key|credential|signature|session|dsn|(?:^|[-_.])sig(?:$|[-_.])/i;
/** Only the query of a URL calls a secret so. */
const SECRET_PARAMETER = /^(?:code|pwd)$/i;
/** So long are the parts of a path that nobody is meant to guess. */
const RANDOM_MIN_CHARS = 16;
const USERINFO = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]*@/gi;

/** Whether what has this name should not be shown. */
export function looksSecret(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** Names to values, without the values that look secret. */
export function hideValues(values: Readonly<Record<string, string>>): Record<string, string> {
  const shown = Object.entries(values).map(([name, value]) => [
    name,
    looksSecret(name) ? HIDDEN : hideUserinfo(value),
  ]);
  return Object.fromEntries(shown) as Record<string, string>;
}

/** A URL without user, password, and the parts of its path and query that look secret. */
export function hideUrl(url: URL): string {
  const shown = new URL(url);
  shown.username = '';
  shown.password = '';
  if (shown.hash !== '') shown.hash = HIDDEN;
  // The path of a webhook is often its password.
  const segments = shown.pathname.split('/');
  shown.pathname = segments.map((text) => (looksRandom(text) ? HIDDEN : text)).join('/');
  for (const [name] of secretParameters(url)) shown.searchParams.set(name, 'secret');
  return shown.href;
}

/** What `hideUrl` leaves out of path and query, as it is written there and as it is meant. */
export function urlSecrets(url: URL): readonly string[] {
  const segments = url.pathname.split('/').filter(looksRandom);
  return [...segments, ...secretParameters(url).map(([, value]) => value)];
}

function secretParameters(url: URL): readonly (readonly [name: string, value: string])[] {
  return [...url.searchParams].filter(
    ([name, value]) => looksSecret(name) || SECRET_PARAMETER.test(name) || looksRandom(value),
  );
}

/** Long, and letters with digits or with capitals among them: rather made than named. */
function looksRandom(text: string): boolean {
  if (text.length < RANDOM_MIN_CHARS || !/[a-z]/i.test(text)) return false;
  return /\d/.test(text) || /[a-z][A-Z]+[a-z]*[A-Z]/.test(text);
}

/** A text that was meant as a URL: scheme and host at most. */
export function hideBrokenUrl(text: string): string {
  const [, scheme = '', rest = ''] = /^([a-z][a-z0-9+.-]*:\/\/)?(.*)$/is.exec(text) ?? [];
  const place = rest.slice(rest.lastIndexOf('@') + 1);
  const host = place.split(/[/?#]/, 1)[0] ?? '';
  return `${scheme}${host}${host.length < place.length ? '/…' : ''}`;
}

/** The arguments of a command, without what follows or belongs to a name that looks secret. */
export function hideArguments(list: readonly string[]): string[] {
  return list.map((text, at) => {
    const [, name = '', value] = /^(-*[\w.-]+)[=:](.*)$/s.exec(text) ?? [];
    if (value !== undefined && looksSecret(name)) {
      return `${text.slice(0, name.length + 1)}${HIDDEN}`;
    }
    const before = list[at - 1] ?? '';
    return before.startsWith('-') && !/[=:]/.test(before) && looksSecret(before)
      ? HIDDEN
      : hideUserinfo(text);
  });
}

/** A text without users and passwords in its URLs. */
function hideUserinfo(text: string): string {
  return text.replaceAll(USERINFO, '$1');
}

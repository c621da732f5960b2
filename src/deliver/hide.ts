/** hide — settings as they may be shown: what looks like a secret is left out. */

/** What stands in the place of a secret. */
export const HIDDEN = '(secret)';

const SECRET_NAME = /auth|cookie|passw|secret|token|key|credential|signature|session|dsn/i;
const USERINFO = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]*@/gi;

/** Whether what has this name should not be shown. */
function looksSecret(name: string): boolean {
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

/** A URL without user and password, and without the values of its query that look secret. */
export function hideUrl(url: URL): string {
  const shown = new URL(url);
  shown.username = '';
  shown.password = '';
  const names = [...new Set(shown.searchParams.keys())];
  for (const name of names.filter(looksSecret)) shown.searchParams.set(name, 'secret');
  return shown.href;
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
export function hideUserinfo(text: string): string {
  return text.replaceAll(USERINFO, '$1');
}

/** url-user — the credentials of a URL as a header, since fetch refuses such URLs. */

/** A URL without credentials, and the headers that carry them. */
export interface UrlWithHeaders {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

export function urlWithHeaders(given: string | URL): UrlWithHeaders {
  const address = new URL(given);
  const { username, password } = address;
  address.username = '';
  address.password = '';
  const url = address.href;
  if (username === '' && password === '') return { url, headers: {} };
  const basic = Buffer.from(`${decoded(username)}:${decoded(password)}`).toString('base64');
  return { url, headers: { authorization: `Basic ${basic}` } };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // A "%" that stands for itself.
    return text;
  }
}

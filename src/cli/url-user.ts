/** url-user — the user that a URL names, as a header: fetch refuses such a URL, and shows it. */

/** An address without its user, and the headers that tell it. */
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

/**
 * secret-text — what must not be printed, found by its name, by its place in a URL, or by how it
 * looks.
 *
 * Pure. Promise: each pattern looks at a text once, however hostile it is.
 */

/** What stands in a secret's place. */
export const HIDDEN = '(secret)';

const KEY = '(?:api|private|signing|access|encryption|master)[-_]?key';
const SECRET_NAME = new RegExp(
  [
    'authorization|cookie|passw|passphrase|secret|token|credential|dsn|sha256|signature',
    KEY,
    '(?:^|[-_])(?:key|pass|pwd|creds|nkey|jwt|sig)$',
  ].join('|'),
  'i',
);
/** Keys that open nothing. */
const OPEN_KEY = /(?:routing|order|dedupe|partition|primary|foreign|public|sort|message)[-_]?key$/i;

/** Whether what goes by this name is not to be seen. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name) && !OPEN_KEY.test(name);
}

/** n.b. Looks back from `://`: who looks ahead for it tries 30 characters at each place. */
const USERS = /(?<=[a-z][a-z0-9+.-]{0,30}:\/\/)[^\s/?#@"']*(?:@[^\s/?#@"']*)*@/gi;

/** A text with user, password and secret parameters of its URLs hidden. */
export function maskUrls(text: string): string {
  return text
    .replaceAll(USERS, `${HIDDEN}@`)
    .replaceAll(/([?&])([^\s=&?#"']+)=([^\s&#"']*)/g, (whole, mark: string, name: string, value) =>
      isSecretName(name) || hasUser(String(value)) ? `${mark}${name}=${HIDDEN}` : whole,
    );
}

/** Whether a parameter is an address with a user, written so that it fits into another. */
function hasUser(value: string): boolean {
  return /%/.test(value) && /:\/\/[^\s/]*@/.test(decoded(value));
}

/** A part of an address as it is meant; as it stands where it cannot be read. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Texts without any of these signs hold nothing that the patterns below look for. */
const SUSPECT = /[:=]|bearer|basic|digest|rsp_|eyJ|private key/i;
/** An example may name where a secret is kept. */
const NO_VARIABLE = String.raw`(?!\s{0,8}(?:\w+ )?\$[A-Z{])`;
/** Between a name and its value; quotes may be escaped, where JSON stands in JSON. */
const IS = String.raw`\\{0,4}["']?\s{0,8}[:=]\s{0,8}\\{0,4}`;
const IS_SURELY = String.raw`=|\\{0,4}["']\s{0,8}:\s{0,8}\\{0,4}`;
const QUOTED = String.raw`"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*'`;
const LINE = String.raw`${NO_VARIABLE}(?:${QUOTED}|[^\r\n]+)`;
const WORD = String.raw`${NO_VARIABLE}(?:${QUOTED}|["']?[^\s,;&"']+)`;
const PASSWORD = String.raw`password|passwd|passphrase|\bpass|\bpwd|${KEY}`;
const SECRET = 'secret|token|credentials?|dsn';

/** How secrets look in a text that nobody made for a log; a replacement keeps what names them. */
const LOOKS: readonly (readonly [pattern: RegExp, shown: string])[] = [
  [/-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}-----)?/g, HIDDEN],
  // Headers go to the end of their line: a scheme and what follows, or many cookies.
  [new RegExp(`(authorization|cookie)(${IS})${LINE}`, 'gi'), `$1$2${HIDDEN}`],
  [new RegExp(String.raw`\b(Bearer)\s{1,64}${WORD}`, 'gi'), `$1 ${HIDDEN}`],
  // Words may follow these two; what has no digit, capital or `=` is one.
  [/\b(Basic|Digest)\s{1,64}(?=[^\s"',;]*[A-Z0-9=])[^\s"',;]{6,}/g, `$1 ${HIDDEN}`],
  // Tokens of our service, and JSON web tokens.
  [/\brsp_[A-Za-z0-9_-]{16,}/g, HIDDEN],
  [/\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?/g, HIDDEN],
  // A sentence may say `token: it …`: such words count only with `=`, or in quotes.
  [new RegExp(`(${PASSWORD})(${IS})${WORD}`, 'gi'), `$1$2${HIDDEN}`],
  [new RegExp(`(${SECRET})(${IS_SURELY})${WORD}`, 'gi'), `$1$2${HIDDEN}`],
];

/** A text with everything hidden that looks like a secret, in URLs or elsewhere. */
export function maskText(text: string): string {
  if (!SUSPECT.test(text)) return text;
  return LOOKS.reduce((rest, [pattern, shown]) => rest.replaceAll(pattern, shown), maskUrls(text));
}

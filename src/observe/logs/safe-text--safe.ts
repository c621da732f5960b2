/** safe-text--safe — untrusted text made fit for a terminal; logs of libraries need it as well. */

export { jsonLine, numberText, safe, type SafeOptions } from './safe-text.ts';

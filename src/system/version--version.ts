/** version--version — the version of this package, as commands tell it. */

export { readVersion } from './version.ts';

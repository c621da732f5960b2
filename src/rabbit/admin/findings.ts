/** findings — the lines of the doctor, made in one way. */

import type { Finding } from './reports.ts';

export function ok(name: string, text: string): Finding {
  return { level: 'ok', name, text, todo: '' };
}

export function warn(name: string, text: string, todo: string): Finding {
  return { level: 'warn', name, text, todo };
}

export function bad(name: string, text: string, todo: string): Finding {
  return { level: 'bad', name, text, todo };
}

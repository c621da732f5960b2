/** names — a name nobody else has; also outside of vitest. */
import { randomBytes } from 'node:crypto';

export function ownName(base: string): string {
  return `t-${base}-${randomBytes(4).toString('hex')}`;
}

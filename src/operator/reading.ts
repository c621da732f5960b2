/** reading — which filters a store can only answer by reading messages, and bounds therefore. */

import type { ListFilter } from '../spool/list.ts';

/** Whether counts of a filter may stop before the end. */
export function needsReading({ header, text, code, fingerprint }: ListFilter): boolean {
  return [header, text, code, fingerprint].some((condition) => condition !== undefined);
}

/** finding — one line of the doctor: what was checked, the result, and how to fix it. */

/** How it is: right, worth knowing, or a danger. */
export type FindingLevel = 'ok' | 'note' | 'unsafe';

/** One line. */
export interface DoctorFinding {
  /** Stable, with dots: `store.entries.free`. */
  readonly id: string;
  readonly level: FindingLevel;
  readonly text: string;
  /** How to fix it; none where nothing needs fixing. */
  readonly todo?: string;
}

export function okFinding(id: string, text: string): DoctorFinding {
  return { id, level: 'ok', text };
}

export function infoFinding(id: string, text: string, todo?: string): DoctorFinding {
  return { id, level: 'note', text, ...(todo === undefined ? {} : { todo }) };
}

export function unsafe(id: string, text: string, todo: string): DoctorFinding {
  return { id, level: 'unsafe', text, todo };
}

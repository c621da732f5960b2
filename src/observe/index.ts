/** observe — metrics, traces and alerts: what can be seen of a spool, a consumer, a relay. */

export type { Tracer } from '../ports/tracer.ts';

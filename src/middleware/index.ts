/** respool/middleware — ready-made wrappers around handlers. */

export type { Middleware } from '../ports/handler.ts';

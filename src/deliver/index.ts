/** deliver — ready-made handlers: an HTTP request, a command. */

export { exec } from './exec/exec.ts';
export type { ExecOptions } from './exec/exec.ts';
export { http } from './http/http.ts';
export type { HttpOptions } from './http/options.ts';
export type { ReadyHandler } from './ready-handler.ts';

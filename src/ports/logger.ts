/** logger — the interface that log lines are written to; pino and console fit. Optional. */

/** How much a line matters, from the most to the least. */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

/** Takes fields first, text second, as pino has it. */
export interface Logger {
  debug(fields: object, text: string): void;
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
  /** Optional, as in pino: if it returns false, no line of this level is built. */
  isLevelEnabled?(level: LogLevel): boolean;
}

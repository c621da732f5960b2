/** logger — where log lines go; pino and console fit. Silent unless one is given. */

/** How much a line matters, from the most to the least. */
export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

/** Takes fields first, text second, as pino has it. */
export interface Logger {
  debug(fields: object, text: string): void;
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
  /** pino has it: a line below the level is not built. */
  isLevelEnabled?(level: LogLevel): boolean;
}

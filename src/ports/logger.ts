/** logger — where lines for people go; pino and console fit. Silent unless one is given. */

/** Takes fields first, text second. */
export interface Logger {
  debug(fields: object, text: string): void;
  info(fields: object, text: string): void;
  warn(fields: object, text: string): void;
  error(fields: object, text: string): void;
}

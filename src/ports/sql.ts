/**
 * sql — the interface to a transaction of the caller: one method, so that every PostgreSQL library
 * can be adapted in a few lines.
 */

/** Runs statements in a transaction that the caller begins and ends. */
export interface SqlTx {
  /** One statement with `$1`, `$2` … and their values; rows come as objects by column. */
  query(
    text: string,
    values: unknown[],
  ): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}

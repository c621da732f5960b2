/** plan — what the server says of the steps of a statement. */

/** A node of a plan, as EXPLAIN tells of it. */
export interface Node {
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Shared Hit Blocks'?: number;
  readonly 'Shared Read Blocks'?: number;
  readonly Plans?: readonly Node[];
}

/** The most rows that any step of a plan went through. */
export function mostRows(node: Node): number {
  const perLoop = node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0);
  return Math.max(perLoop * node['Actual Loops'], ...(node.Plans ?? []).map(mostRows));
}

/** The pages of tables and indexes that a plan read, counted again each time. */
export function pagesRead(node: Node): number {
  return (node['Shared Hit Blocks'] ?? 0) + (node['Shared Read Blocks'] ?? 0);
}

/**
 * read-item — the values of one route, consumer, rule or relay: as configured, else from the
 * table of its keys, checked against it.
 */

import { checkOption, defaultOf, type OptionTable } from '../../core/option-table.ts';

/** What is read, and how it is named in an error. */
interface ItemSource {
  readonly table: OptionTable;
  readonly item: Readonly<Record<string, unknown>>;
  /** The whole name of the item, such as `routes[0]`. */
  readonly key: string;
  /** Paths of texts that were filled in from the environment, and may mean a number. */
  readonly filled?: ReadonlySet<string>;
}

/** Returns the value of a key as written; refuses one that its table does not allow. */
export function itemReader({ table, item, key, filled }: ItemSource): <T>(name: string) => T {
  return <T>(name: string) => {
    const option = table[name];
    const whole = `${key}.${name}`;
    const said = item[name];
    const isNumber = option?.kind === 'number' && typeof said === 'string' && said.trim() !== '';
    const given = isNumber && filled?.has(whole) === true ? Number(said) : said;
    const value = given ?? (option && defaultOf(option));
    if (option !== undefined && value !== undefined) checkOption(whole, value, option);
    return value as T;
  };
}

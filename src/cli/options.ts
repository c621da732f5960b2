/**
 * options — the options of one call, read by name and type.
 *
 * program.ts fills it from the command line; a wrong value is refused by the name people typed.
 */

import { durationMs } from '../core/duration.ts';
import { type ErrorCode, isRespoolError } from '../core/errors.ts';
import type { NumberRange } from '../core/limits.ts';
import { CommandError } from './exit-codes.ts';

/** Maximum number of messages that an option can count. */
const COUNT_MAX = 1_000_000_000;
/** A number of messages that may be none. */
export const COUNT_RANGE: NumberRange = { min: 0, max: COUNT_MAX };
/** How many messages a command works on or shows. */
export const LIMIT_RANGE: NumberRange = { min: 1, max: COUNT_MAX };

/** The options of one call. Names in camel case: `--older-than` is `olderThan`. */
export class Options {
  readonly #values: Readonly<Record<string, unknown>>;

  constructor(values: Readonly<Record<string, unknown>>) {
    this.#values = values;
  }

  /** The text that was given, or undefined. */
  text(name: string): string | undefined {
    const value = this.#values[name];
    return typeof value === 'string' ? value : undefined;
  }

  /** The span that was given, as it was typed, or undefined. */
  span(name: string): string | undefined {
    const text = this.text(name);
    if (text !== undefined) usageOf(() => durationMs(text, flagOf(name)));
    return text;
  }

  /** The text that was given, or undefined. An empty one is most often a variable that is unset. */
  filled(name: string): string | undefined {
    const text = this.text(name);
    if (text !== '') return text;
    throw new CommandError(
      'usage.invalid',
      `cannot use "" as ${flagOf(name)}: it is empty; leave it out, or give it a value`,
    );
  }

  /** All texts that were given under a repeatable option. */
  texts(name: string): readonly string[] {
    const value = this.#values[name];
    return Array.isArray(value) ? (value as string[]) : [];
  }

  /** Whether a switch was given. */
  flag(name: string): boolean {
    return this.#values[name] === true;
  }

  /** Whether a switch was given as `--no-…`; its name is that without the `no`. */
  isOff(name: string): boolean {
    return this.#values[name] === false;
  }

  /** The whole number that was given, within its range, or undefined. */
  number(name: string, { min, max }: NumberRange): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new CommandError(
      'usage.invalid',
      `cannot use "${text}" as ${flagOf(name)}: allowed is a whole number ${min} to ${max}`,
    );
  }
}

/** The name as people type it. */
export function flagOf(name: string): string {
  return `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** An error about a value of the command line is wrong usage, wherever it was found. */
export function usageOf<T>(check: () => T, codes: readonly ErrorCode[] = ['config.invalid']): T {
  try {
    return check();
  } catch (error) {
    if (isRespoolError(error) && codes.includes(error.code)) {
      throw new CommandError('usage.invalid', error.message);
    }
    throw error;
  }
}

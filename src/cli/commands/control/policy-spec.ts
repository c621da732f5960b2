/**
 * policy-spec — a policy as it is typed: `exponential:5s,factor=2,max=6h,attempts=20`.
 *
 * The name of a constructor, what stands alone (the first wait, or the waits of a ladder), then
 * options. What the values may be is checked where a configuration's policies are.
 */

import type { RetryPolicy } from '../../../core/policy.ts';
import { CommandError } from '../../exit-codes.ts';

/** What stands alone is the value of this option; a ladder takes several. */
const ALONE: Readonly<Record<string, string>> = {
  exponential: 'first',
  linear: 'first',
  fixed: 'delay',
  ladder: 'delays',
};

const WORDS = [...Object.keys(ALONE), 'postfix', 'noRetry'];
const NUMBERS = ['attempts', 'factor', 'jitter'];

/** Whether a text can only be a spec: no policy's name has a colon. */
export function isPolicySpec(text: string): boolean {
  return text.includes(':') || WORDS.includes(text);
}

/** The policy that a spec means. */
export async function readPolicySpec(text: string): Promise<RetryPolicy> {
  const at = text.indexOf(':');
  const word = at === -1 ? text : text.slice(0, at);
  if (!WORDS.includes(word)) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${text}" as a policy: before the colon stands ${WORDS.join(', ')}, ` +
        'as in exponential:5s,factor=2,max=6h,attempts=20',
    );
  }
  const rest = at === -1 ? '' : text.slice(at + 1);
  const options = optionsOf(word, rest === '' ? [] : rest.split(','));
  const { policyOf } = await import('../../../config/load/policies.ts');
  return policyOf({ [word]: options }, text);
}

function optionsOf(word: string, parts: readonly string[]): Record<string, unknown> {
  const options: Record<string, unknown> = {};
  const alone: string[] = [];
  for (const part of parts.map((one) => one.trim())) {
    const [, name, value] = /^(\w+)=(.*)$/.exec(part) ?? [];
    if (name === undefined || value === undefined) alone.push(part);
    else options[name] = NUMBERS.includes(name) && value !== '' ? Number(value) : value;
  }
  const name = ALONE[word];
  if (word === 'ladder') options['delays'] = alone;
  else if (alone.length > (name === undefined ? 0 : 1)) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${alone.at(-1)}" in a policy "${word}": after what stands first come ` +
        'options, such as attempts=5',
    );
  } else if (name !== undefined && alone.length === 1) options[name] = alone[0];
  return options;
}

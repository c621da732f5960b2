/**
 * bash — a completion script for bash 3.2 and newer, which has no associative arrays.
 *
 * The script finds the command among the words typed so far, then offers what may follow it.
 */

import type { OptionWords, Place } from './completion-scripts.ts';

/** The script; every word in it comes from our own table. */
export function bashScript(places: readonly Place[]): string {
  const options = places.flatMap((place) => place.options);
  const withValue = [...new Set(options.filter(hasValue).flatMap(({ names }) => names))];
  const commands = places.filter(({ path }) => path.length > 0).map(({ path }) => path.join(' '));
  return `# bash completion for respool; made by: respool completion bash

_respool() {
  local cur prev word place='' skip='' i
  cur="\${COMP_WORDS[COMP_CWORD]}"
  prev="\${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()

  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    if [[ -n $skip ]]; then skip=''; continue; fi
    case "$word" in
      ${withValue.join('|')}) skip=1; continue ;;
      -*) continue ;;
    esac
    case "\${place:+$place }$word" in
${commands.map((command) => `      '${command}') place='${command}' ;;`).join('\n')}
    esac
  done

  case "$place:$prev" in
${places.flatMap(valueCases).join('\n')}
  esac

  case "$place" in
${places.map(placeCase).join('\n')}
  esac
}

_respool_words() {
  local IFS=$' \\t\\n'
  COMPREPLY=($(compgen -W "$1" -- "$cur"))
}

complete -o default -F _respool respool
`;
}

function hasValue({ value }: OptionWords): boolean {
  return value !== undefined;
}

/** After an option that takes a value: its choices, or file names where it has none. */
function valueCases({ path, options }: Place): string[] {
  return options.filter(hasValue).map(({ names, choices }) => {
    const patterns = names.map((name) => `'${path.join(' ')}:${name}'`).join('|');
    const offer = choices.length === 0 ? '' : `_respool_words '${choices.join(' ')}'; `;
    return `    ${patterns}) ${offer}return ;;`;
  });
}

function placeCase(place: Place): string {
  const flags = place.options.flatMap(({ names }) => names);
  const words = [
    ...place.commands.map(({ name }) => name),
    ...place.arguments.flatMap(({ choices = [] }) => choices),
  ];
  return `    '${place.path.join(' ')}')
      if [[ $cur == -* ]]; then _respool_words '${flags.join(' ')}'
      else _respool_words '${words.join(' ')}'; fi ;;`;
}

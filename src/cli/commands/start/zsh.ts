/**
 * zsh — a completion script for zsh: what bash gets, with the descriptions beside it.
 */

import type { OptionWords, Place } from './completion-scripts.ts';

/** The script; every word in it comes from our own table. */
export function zshScript(places: readonly Place[]): string {
  return `#compdef respool
# zsh completion for respool; made by: respool completion zsh

${places.map(functionOf).join('\n\n')}

if [ "$funcstack[1]" = "_respool" ]; then
  _respool "$@"
else
  compdef _respool respool
fi
`;
}

function functionOf(place: Place): string {
  const name = nameOf(place.path);
  const specs = place.options.flatMap(optionSpecs);
  const lines =
    place.commands.length === 0
      ? [...specs, ...argumentSpecs(place)]
      : [...specs, `'1: :${name}_commands'`, `'*:: :->below'`];
  const body = `${name}() {
  local curcontext="$curcontext" state line
  typeset -A opt_args
  _arguments -C \\
    ${lines.join(' \\\n    ')}`;
  if (place.commands.length === 0) return `${body}\n}`;
  const names = place.commands.map((command) => command.name);
  return `${body}
  [[ $state == below ]] || return
  case "$words[1]" in
${names.map((word) => `    ${word}) ${nameOf(belowOf(place, word))} ;;`).join('\n')}
  esac
}

${name}_commands() {
  local -a commands
  commands=(
${place.commands.map((command) => `    ${quoted(`${command.name}:${command.summary}`)}`).join('\n')}
  )
  _describe -t commands command commands
}`;
}

/** After `help` come the commands themselves, and nothing after them. */
function belowOf({ path }: Place, word: string): readonly string[] {
  return path[0] === 'help' ? ['help'] : [...path, word];
}

function nameOf(path: readonly string[]): string {
  return ['_respool', ...path.map((word) => word.replaceAll('-', '_'))].join('_');
}

function optionSpecs({ names, description, value, choices }: OptionWords): string[] {
  const offer = choices.length === 0 ? '' : `(${choices.join(' ')})`;
  const action = value === undefined ? '' : `:${value}:${offer === '' ? '_files' : offer}`;
  // A star: some may be given several times, and offering one twice does no harm.
  return names.map((name) => quoted(`*${name}[${escaped(description)}]${action}`));
}

function argumentSpecs(place: Place): string[] {
  return place.arguments.map(({ name, description, choices = [] }) => {
    const many = name.includes('...') ? '*' : '';
    const offer = choices.length === 0 ? '_files' : `(${choices.join(' ')})`;
    return quoted(`${many}:${escaped(description)}:${offer}`);
  });
}

/** These mean something inside a spec of `_arguments`. */
function escaped(text: string): string {
  return text.replaceAll(/[[\]:\\]/g, String.raw`\$&`);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** command-tree — every command as the program defines it, for tests that hold for all of them. */
import { commands } from '../../src/cli/commands.ts';
import type { CommandSpec, OptionSpec } from '../../src/cli/spec.ts';

/** A command that does something. */
export interface Placed {
  /** The words that lead to it. */
  readonly path: string;
  readonly spec: CommandSpec;
}

/** All of them, in the order of the help. */
export const ALL_COMMANDS: readonly Placed[] = commandsIn(commands);

function commandsIn(list: readonly CommandSpec[], above = ''): Placed[] {
  return list.flatMap((spec) => {
    const path = `${above} ${spec.name}`.trim();
    const below = commandsIn(spec.subcommands ?? [], path);
    return spec.run === undefined ? below : [{ path, spec }, ...below];
  });
}

/** The name of an option: `--topic`. */
export function nameOf({ flags }: OptionSpec): string {
  return flags.split(' ')[0] ?? '';
}

export function namesOf({ options = [] }: CommandSpec): readonly string[] {
  return options.map(nameOf);
}

/** Whether an argument is the id of something. */
export function isId({ name }: NonNullable<CommandSpec['arguments']>[number]): boolean {
  return /\bid\b/.test(name);
}

function wordFor({ name, choices }: NonNullable<CommandSpec['arguments']>[number]): string {
  return name === '<group>' ? '0m3bc8vafzd' : (choices?.[0] ?? 'default');
}

/** A whole command line, with `id` for every id and a plain word for whatever else it needs. */
export function lineOf({ path, spec }: Placed, id: string): string[] {
  const words = (spec.arguments ?? [])
    // Without a topic, `pause` and `resume` ask at a terminal.
    .filter((argument) => isId(argument) || /^(?:<|\[topic\])/.test(argument.name))
    .map((argument) => (isId(argument) ? id : wordFor(argument)));
  const yes = namesOf(spec).includes('--yes') ? ['--yes'] : [];
  return [...path.split(' '), ...words, ...yes];
}

/**
 * confirm — asks for confirmation at a terminal; where there is none, the answer is no.
 */

import { CommandError } from '../exit-codes.ts';
import type { CommandContext } from '../spec.ts';

/** Returns when the answer is yes; otherwise throws `not.confirmed`. `--yes` answers all. */
export async function ask(
  { io, options }: Pick<CommandContext, 'io' | 'options'>,
  question: string,
  instead = 'add --yes to do it, --dry-run to look',
): Promise<void> {
  if (options.flag('yes')) return;
  if (!io.isTTY('stdin') || !io.isTTY('stderr')) {
    throw new CommandError(
      'not.confirmed',
      `cannot ask "${question}": this is not a terminal; ${instead}`,
    );
  }
  const isYes = await (io.confirm?.(question) ?? confirmAtTerminal(io, question));
  if (!isYes) throw new CommandError('not.confirmed', 'not confirmed; nothing was done');
}

async function confirmAtTerminal(io: CommandContext['io'], question: string): Promise<boolean> {
  const { confirm } = await import('./prompt.ts');
  return confirm(io, question);
}

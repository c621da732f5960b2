/** completion — scripts with which a shell completes our commands, made from their table. */

import type { CommandSpec } from '../../spec.ts';

/** `respool completion <shell>` */
export const completion: CommandSpec = {
  name: 'completion',
  summary: 'print a completion script for bash or zsh',
  group: 'Start',
  description: 'Prints a script with which the shell completes commands, options and their words.',
  arguments: [{ name: '<shell>', description: 'which shell', choices: ['bash', 'zsh'] }],
  examples: [
    {
      line: 'source <(respool completion bash)',
      does: 'completes in this bash; put it into .bashrc',
    },
    {
      line: 'respool completion zsh > "${fpath[1]}/_respool"',
      does: 'completes in every new zsh',
    },
  ],
  run: async ({ args, commands, out }) => {
    const { completionPlaces } = await import('./completion-scripts.ts');
    const places = completionPlaces(commands);
    const [shell = ''] = args;
    const script =
      shell === 'bash'
        ? (await import('./completion-scripts.ts')).bashScript(places)
        : (await import('./completion-scripts.ts')).zshScript(places);
    if (out.json) await out.object({ shell, script });
    else await out.write(script);
    return undefined;
  },
};

/** init — from an empty folder to a working service: a configuration, a receiver, what to type. */

import { FORMATS, type Format } from './init-templates.ts';
import type { NewFile } from './init-files.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';

const RECEIVER = 'receiver.mjs';
const RECEIVER_PORT = 7_668;
const PORT_MAX = 65_535;
const BODY_COLUMNS = 21;
const MESSAGES = 'localhost:7667/v1/topics/order.new/messages';

/** `respool init` */
export const init: CommandSpec = {
  name: 'init',
  summary: 'write a configuration and a receiver to try it with',
  group: 'Start',
  description:
    'Writes a configuration with one route and a small receiver in plain Node into this ' +
    'folder. Then prints the next steps. Existing files are never replaced without --force.',
  options: [
    {
      flags: '--format <format>',
      description: 'the form; default: ts if respool can be imported here, otherwise yaml',
      choices: FORMATS,
    },
    { flags: '--config-only', description: 'no receiver' },
    {
      flags: '--receiver-port <port>',
      description: `where the receiver listens, 1 to ${PORT_MAX}; default ${RECEIVER_PORT}`,
    },
    { flags: '--force', description: 'replace existing files; the old ones are kept as .bak' },
  ],
  examples: [
    { line: 'respool init', does: 'in an empty folder: all that a first service needs' },
    { line: 'respool init --format yaml --config-only', does: 'the configuration alone' },
  ],
  run: async (context) => {
    const { options, io, out } = context;
    const format = options.text('format') as Format | undefined;
    const port = options.number('receiverPort', { min: 1, max: PORT_MAX }) ?? RECEIVER_PORT;
    const hasReceiver = !options.flag('configOnly');
    const { canImport } = await import('./init-format.ts');
    const { writeFiles, ignoreStore } = await import('./init-files.ts');
    const files = await filesOf(io.cwd, { format, port, hasReceiver });
    const written = await writeFiles(io.cwd, files, { force: options.flag('force') });
    const isIgnored = await ignoreStore(io.cwd);
    if (out.json) {
      for (const { name, kept } of written) await out.object({ id: name, kept });
      if (isIgnored) await out.object({ id: '.gitignore' });
      return undefined;
    }
    for (const { name, kept } of written) {
      const isNew = files.some((file) => file.name === name);
      const line = isNew ? `wrote ${name}` : `put ${name} aside`;
      await out.line(kept === undefined ? line : `${line}; what was there is ${kept}`);
    }
    if (isIgnored) await out.line('added /respool/ to .gitignore');
    await printNext(context, hasReceiver);
    const isProgram = files.some(({ name }) => name.endsWith('ts'));
    if (isProgram && !canImport(io.cwd)) {
      out.note(
        '\nThe configuration imports respool, which is not installed here: npm install respool',
      );
    }
    return undefined;
  },
};

async function filesOf(
  folder: string,
  wanted: {
    readonly format: Format | undefined;
    readonly port: number;
    readonly hasReceiver: boolean;
  },
): Promise<readonly NewFile[]> {
  const { chooseFormat, fileNameOf } = await import('./init-format.ts');
  const { configText } = await import('./init-templates.ts');
  const { receiverText } = await import('./init-templates.ts');
  const { EXTENSIONS } = await import('../../../config/load/find-file.ts');
  const { port, hasReceiver, format = chooseFormat(folder) } = wanted;
  const config = {
    name: await fileNameOf(format, folder),
    text: configText(format, port),
    // Two configurations in one folder are refused by all that read them.
    rivals: EXTENSIONS.map((extension) => `respool.config.${extension}`),
  };
  return hasReceiver ? [config, { name: RECEIVER, text: receiverText(port) }] : [config];
}

async function printNext({ out }: CommandContext, hasReceiver: boolean): Promise<void> {
  const post = (customer: string, what: string): string => {
    const body = `'{"customer":"${customer}"}'`;
    return `  curl -d ${body.padEnd(BODY_COLUMNS)} ${MESSAGES}   # ${what}`;
  };
  const lines = [
    '',
    hasReceiver ? 'Next, each in its own terminal:' : 'Next:',
    '',
    ...(hasReceiver ? [`  node ${RECEIVER}`] : []),
    '  npx respool serve',
    '',
    'Then post some messages and see what happens to them:',
    '',
    post('ann', 'delivered'),
    ...(hasReceiver
      ? [post('busy', 'deferred twice, then delivered'), post('gone', 'bounced')]
      : []),
    '',
    '  npx respool list',
    '  npx respool shape',
  ];
  for (const line of lines) await out.line(line);
}

/** serve — deliver, and answer on HTTP, until a signal ends it. */

import { setFlagsFromString } from 'node:v8';
import { KEYS } from '../../../config/schema/keys.ts';
import { CommandError } from '../../exit-codes.ts';
import type { CommandSpec, OptionSpec } from '../../spec.ts';

/** The keys of the configuration that have a flag; `--store` is every command's. */
const FLAGGED = KEYS.filter(({ key, flag }) => flag !== undefined && key !== 'store');

const OPTIONS: readonly OptionSpec[] = FLAGGED.map(({ key, flag, kind, type, about }) => ({
  flags: kind === 'boolean' ? `${flag}` : `${flag} <${kind === 'duration' ? 'span' : 'value'}>`,
  description: `${about} (${kind === 'boolean' ? key : `${key}: ${type}`})`.replaceAll('`', ''),
}));

/** `respool serve` */
export const serveCommand: CommandSpec = {
  name: 'serve',
  summary: 'run the service: deliver messages and serve the HTTP API',
  group: 'Start',
  description:
    'Delivers the messages of the configured routes and serves the HTTP API, by default on ' +
    '127.0.0.1:7667. SIGTERM or Ctrl-C stops it: no new deliveries start, and running ones ' +
    'finish or are given back. A second signal ends it at once.',
  options: OPTIONS,
  examples: [
    { line: 'respool serve', does: 'with the configuration of this folder or one above it' },
    { line: 'respool serve --store memory: --port 0', does: 'to try things out, on any free port' },
  ],
  run: async (context) => {
    if (context.globals.url !== undefined) {
      throw new CommandError('usage.invalid', 'serve takes no --url: see --host and --port');
    }
    keepHeapSmall(context.io.env);
    const { serveUntilSignal } = await import('./service.ts');
    return serveUntilSignal(context, flagsOf(context.options));
  },
};

/** Maximum garbage before a collection, in percent of what is in use. Also in decision 0047. */
const HEAP_GROWTH_PERCENT = 20;

/**
 * V8 lets the memory of short-lived objects grow to 128 MiB under load and keeps it, and lets the
 * heap of each thread grow to several times what is in use before it collects garbage. A service
 * keeps both near what it needs, unless its options say otherwise.
 *
 * n.b. The size itself cannot be set after the start of the process; its growth can.
 * Why: docs/decisions/0047-the-young-generation-does-not-grow.md
 */
function keepHeapSmall(env: Readonly<Record<string, string | undefined>>): void {
  const options = [env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ');
  if (!/semi[-_]space/.test(options)) setFlagsFromString('--semi-space-growth-factor=1');
  if (!/heap[-_]growing/.test(options)) {
    setFlagsFromString(`--heap-growing-percent=${HEAP_GROWTH_PERCENT}`);
  }
}

function flagsOf(options: {
  text(name: string): string | undefined;
  flag(name: string): boolean;
}): Record<string, unknown> {
  const flags: Record<string, unknown> = {};
  for (const { key, flag = '' } of FLAGGED) {
    const name = flag.slice(2).replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
    const value = options.text(name) ?? (options.flag(name) ? true : undefined);
    if (value !== undefined) flags[key] = value;
  }
  return flags;
}

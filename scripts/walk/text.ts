/** text — a walk as a reader sees it: a file with its functions on each line, in order. */

import type { Step } from './trace.ts';

/** The way of one message. */
export interface Walk {
  readonly name: string;
  /** What happens on the way. */
  readonly title: string;
  readonly files: number;
  readonly functions: number;
  readonly calls: number;
  readonly steps: readonly Step[];
}

const WIDTH = 110;

/** Lines of the walk; a file that was on the way before has no number. */
export function walkText(walk: Walk): string {
  const { name, title, files, functions, calls, steps } = walk;
  const lines = [`${name}: ${title}`, `${files} files, ${functions} functions, ${calls} calls`, ''];
  const seen = new Set<string>();
  const width = Math.max(...steps.map(({ file }) => file.length)) - 'src/'.length;
  for (const { file, names } of groups(steps)) {
    const number = seen.has(file) ? '' : String(seen.size + 1);
    seen.add(file);
    const short = file.replace(/^src\//, '');
    lines.push(...wrapped(`${number.padStart(3)} ${short.padEnd(width)}  `, names));
  }
  return lines.join('\n');
}

/** Steps that follow each other in one file. */
function groups(steps: readonly Step[]): { file: string; names: string[] }[] {
  const made: { file: string; names: string[] }[] = [];
  for (const { file, name } of steps) {
    const last = made.at(-1);
    if (last?.file !== file) made.push({ file, names: [name] });
    else if (!last.names.includes(name)) last.names.push(name);
  }
  return made;
}

function wrapped(head: string, names: readonly string[]): string[] {
  const lines: string[] = [];
  const indent = ' '.repeat(head.length);
  let line = head;
  names.forEach((name, at) => {
    const word = at === names.length - 1 ? name : `${name}, `;
    if (line !== head && line !== indent && line.length + word.length > WIDTH) {
      lines.push(line.trimEnd());
      line = indent;
    }
    line += word;
  });
  return [...lines, line.trimEnd()];
}

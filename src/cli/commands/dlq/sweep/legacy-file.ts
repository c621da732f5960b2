/**
 * legacy-file — whether the file of `--config` is one of `rmq_retry_checker`: YAML with a section
 * `rabbitmq` or `queues`, which our own configuration does not have.
 */

import { stat } from 'node:fs/promises';
import path from 'node:path';
import { didYouMean } from '../../../../config/load/config-errors.ts';
import { isProgram, readText } from '../../../../config/load/read-file.ts';
import { parseYaml } from '../../../../config/load/read-yaml.ts';
import { isRespoolError, RespoolError, show } from '../../../../core/errors.ts';
import { isPlainObject } from '../../../../core/plain-object.ts';
import { OLD_SECTIONS, type OldFile } from './legacy-options.ts';

/** The file as the old tool reads it; undefined: it is none of its. */
export async function readOldFile(
  named: string | undefined,
  { cwd, warn }: { readonly cwd: string; readonly warn: (text: string) => void },
): Promise<OldFile | undefined> {
  if (named === undefined || isProgram(named)) return undefined;
  const file = path.resolve(cwd, named);
  const found = await stat(file).catch(() => undefined);
  // What is not there, or a folder, is for our own way of finding a configuration.
  if (found?.isFile() !== true) return undefined;
  const data = await parsed(file);
  if (
    !isPlainObject(data) ||
    !Object.keys(OLD_SECTIONS).some((name) => Object.hasOwn(data, name))
  ) {
    return undefined;
  }
  const strange = Object.keys(data).filter((name) => !Object.hasOwn(OLD_SECTIONS, name));
  if (strange.length > 0) {
    warn(`${named} has the sections rabbitmq and queues; not read is ${strange.join(', ')}`);
  }
  const sections = Object.entries(OLD_SECTIONS).map(([name, keys]) => [
    name,
    sectionOf(data[name], { name, keys, file: named }),
  ]);
  return { file: named, sections: Object.fromEntries(sections) as OldFile['sections'] };
}

/** n.b. JSON is YAML, too; what is neither is refused by our own reader, in its words. */
async function parsed(file: string): Promise<unknown> {
  const text = await readText(file);
  try {
    return parseYaml(text, file);
  } catch (error) {
    if (isRespoolError(error) && /^\s*(?:rabbitmq|queues)\s*:/m.test(text)) throw error;
    return undefined;
  }
}

function sectionOf(
  given: unknown,
  { name, keys, file }: { readonly name: string; readonly keys: readonly string[]; file: string },
): Readonly<Record<string, unknown>> {
  if (given === undefined || given === null) return {};
  if (!isPlainObject(given)) {
    const text = `cannot use ${show(given)} as "${name}" in ${file}: allowed is an object of keys`;
    throw new RespoolError('config.invalid', text);
  }
  const strange = Object.keys(given).find((key) => !keys.includes(key));
  if (strange === undefined) return given;
  throw new RespoolError(
    'config.invalid',
    `there is no key "${name}.${strange}", in ${file}: known are ${keys.join(', ')}` +
      didYouMean(strange, keys),
  );
}

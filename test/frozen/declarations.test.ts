/** What counts as a change of the public types, on small samples. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { printDeclarations } from './declarations.ts';

const folders: string[] = [];

afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
});

const BASE = {
  'index.d.ts': "export { open } from './a.js';\nexport type { Door as Gate } from './door.js';",
  'a.d.ts':
    "import type { Door } from './door.js';\nexport declare function open({ width }: Door, o?: Hidden): void;\n" +
    'interface Hidden { readonly b: string; readonly a: number; }',
  'door.d.ts': '/** A door. */\nexport interface Door { width: number; close(): void }',
};

test('a declaration that moves, or changes its comment or order, changes nothing', async () => {
  const before = await printed(BASE);
  const after = await printed({
    'index.d.ts': "export { open, type Door as Gate } from './all.js';",
    'all.d.ts':
      "import type { Hidden } from './hidden.js';\n/** Other words. */\n" +
      'export interface Door { close(): void; width: number }\n' +
      'export declare function open({ close, ...door }: Door, o?: Hidden): void;',
    'hidden.d.ts': 'export interface Hidden { readonly a: number; readonly b: string; }',
  });
  expect(after).toEqual(before);
  expect(before).toEqual({
    entry:
      "import { Hidden } from 'unexported';\n\n" +
      'export interface Gate {\n    close(): void;\n    width: number;\n}\n\n' +
      'export function open(options: Gate, o?: Hidden): void;',
    unexported: 'export interface Hidden {\n    readonly a: number;\n    readonly b: string;\n}',
  });
});

test('a changed name or type changes the text, also where it is not exported', async () => {
  const before = await printed(BASE);
  const width = { ...BASE, 'door.d.ts': BASE['door.d.ts'].replace('width', 'breadth') };
  expect((await printed(width)).entry).not.toBe(before.entry);
  const hidden = { ...BASE, 'a.d.ts': BASE['a.d.ts'].replace('a: number', 'a: bigint') };
  expect((await printed(hidden)).unexported).not.toBe(before.unexported);
  const renamed = { ...BASE, 'index.d.ts': BASE['index.d.ts'].replace('Gate', 'Portal') };
  expect((await printed(renamed)).entry).not.toBe(before.entry);
});

async function printed(files: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-declarations-'));
  folders.push(folder);
  for (const [file, text] of Object.entries(files)) {
    await writeFile(path.join(folder, file), text);
  }
  const { byEntry, unexported } = printDeclarations(
    new Map([['entry', path.join(folder, 'index.d.ts')]]),
  );
  return { entry: byEntry.get('entry'), unexported };
}

#!/usr/bin/env node
/**
 * respool — the command line. Looks at the version of Node first, then hands over to what is
 * built, or in a checkout to the source.
 *
 * n.b. Written so that an old Node can still read it: it must get as far as the sentence.
 */

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';

const OLDEST = [22, 19];
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);

if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
  process.stderr.write(
    `respool: needs Node ${OLDEST.join('.')} or newer, and this is ${process.versions.node}; ` +
      'install a newer one from https://nodejs.org\n',
  );
  process.exit(2);
}

// The package has no source: where there is one, a build beside it may be an old one.
const source = fileURLToPath(new URL('../src/cli/main.ts', import.meta.url));
if (existsSync(source)) await runSource();
else {
  // A service keeps the young generation of V8 as small as it is now: serve.ts says why. Here it
  // is smaller than when the command line is loaded.
  const given = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ');
  if (process.argv.includes('serve') && !/semi[-_]space/.test(given)) {
    setFlagsFromString('--semi-space-growth-factor=1');
  }
  await import(new URL('../dist/cli/main.js', import.meta.url).href);
}

/** In a checkout: the same node on the source, with our words, streams and signals. */
async function runSource() {
  const words = ['--conditions=respool-source', source, ...process.argv.slice(2)];
  // In our place rather than beside us: a Ctrl-C then reaches one process, and reaches it once.
  if (process.platform !== 'win32' && typeof process.execve === 'function') {
    process.execve(process.execPath, [process.execPath, ...words], process.env);
  }
  const { spawn } = await import('node:child_process');
  const child = spawn(process.execPath, words, { stdio: 'inherit' });
  const pass = (signal) => child.kill(signal);
  process.on('SIGINT', pass);
  process.on('SIGTERM', pass);
  child.on('error', (error) => {
    process.stderr.write(`respool: cannot start node: ${error.message}\n`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    process.off('SIGINT', pass);
    process.off('SIGTERM', pass);
    if (signal === null) process.exit(code ?? 1);
    process.kill(process.pid, signal);
  });
}

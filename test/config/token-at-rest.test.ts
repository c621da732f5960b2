/** A token lies in no file of ours: there is only its hash (issue: tokens hashed at rest). */
import { createHash } from 'node:crypto';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { setConfig } from '../../src/config/edit.ts';
import { folderWith, load, refusal, textOf } from './setup.ts';

const TOKEN = 'rsp_canary-0123456789';
const HASH = `sha256:${createHash('sha256').update(TOKEN).digest('hex')}`;

function isAdvice(said: string): void {
  expect(said).toContain('"serve.token"');
  expect(said).toContain('respool token create');
  expect(said).not.toContain('canary');
}

describe('the token itself is refused', () => {
  test.each(['json', 'yaml'])('in a file of %s', async (kind) => {
    const text = JSON.stringify({ serve: { token: TOKEN } });
    const cwd = await folderWith({ [`respool.config.${kind}`]: text });
    const said = await textOf(loadConfig({ cwd, env: {} }));
    isAdvice(said);
    expect(said).toContain(`respool.config.${kind}`);
  });

  test('in a program that has it in its text, or from .env', async () => {
    const text = `export default { serve: { token: '${TOKEN}' } };`;
    const cwd = await folderWith({ 'respool.config.mjs': text });
    isAdvice(await textOf(loadConfig({ cwd, env: { OTHER: 'value' } })));
    const kept = await folderWith({ 'respool.config.mjs': text, '.env': `OURS=${TOKEN}\n` });
    const said = await textOf(loadConfig({ cwd: kept, env: {} }));
    isAdvice(said);
    for (const form of ['${NAME}', 'process.env.NAME']) expect(said).toContain(form);
  });

  test.each(['RESPOOL_TOKEN', 'RESPOOL_SERVE_TOKEN'])('as %s in .env', async (name) => {
    const said = await refusal({ config: {}, dotEnv: `${name}=${TOKEN}\n` });
    isAdvice(said);
    expect(said).toContain(`${name} in .env`);
    // Also where nobody would have used it.
    const serve = { token: HASH };
    isAdvice(await refusal({ config: { serve }, dotEnv: `${name}=${TOKEN}\n` }));
    // Also where the environment overtakes it: it lies in the file all the same.
    const env = { [name]: 'rsp_another-0123456789' };
    isAdvice(await refusal({ config: {}, dotEnv: `${name}=${TOKEN}\n`, env }));
  });

  test('in a file that takes it from .env, or only a part of it from the environment', async () => {
    const config = (token: string): object => ({ serve: { token } });
    isAdvice(await refusal({ config: config('${OURS}'), dotEnv: `OURS=${TOKEN}\n` }));
    const dotEnv = `OURS=${TOKEN}\n`;
    isAdvice(await refusal({ config: config('${OURS}'), dotEnv, env: { OURS: TOKEN } }));
    const env = { PART: TOKEN.slice(0, 6) };
    isAdvice(await refusal({ config: config(`\${PART}${TOKEN.slice(6)}`), env }));
  });

  test('when another key of its file is set', async () => {
    const text = JSON.stringify({ serve: { token: TOKEN } });
    const cwd = await folderWith({ 'respool.config.json': text });
    const set = setConfig('respool.config.json', 'lease', '5s', { cwd, env: {} });
    isAdvice(await textOf(set));
  });
});

describe('what may be kept, or is not kept', () => {
  test('the hash, in a file and in .env', async () => {
    expect((await load({ config: { serve: { token: HASH } } })).config.serve.token).toBe(HASH);
    const kept = await load({ config: {}, dotEnv: `RESPOOL_SERVE_TOKEN=${HASH}\n` });
    expect(kept.config.serve.token).toBe(HASH);
    expect(kept.warnings).toEqual([]);
  });

  test('the token in the environment of the process, also by way of a file', async () => {
    const env = { RESPOOL_SERVE_TOKEN: TOKEN };
    expect((await load({ config: {}, env })).config.serve.token).toBe(TOKEN);
    const lent = await load({ config: { serve: { token: '${OURS}' } }, env: { OURS: TOKEN } });
    expect(lent.config.serve.token).toBe(TOKEN);
  });

  test('the token that a program takes from the environment of the process', async () => {
    vi.stubEnv('RESPOOL_TEST_OURS', TOKEN);
    onTestFinished(() => void vi.unstubAllEnvs());
    const text = 'export default { serve: { token: process.env.RESPOOL_TEST_OURS } };';
    const cwd = await folderWith({ 'respool.config.mjs': text });
    const { config } = await loadConfig({ cwd, env: { RESPOOL_TEST_OURS: TOKEN } });
    expect(config.serve.token).toBe(TOKEN);
  });
});

describe('the hash of a word that everybody guesses is refused', () => {
  test.each(['', 'test', 'admin', 'token', 'secret', 'password', 'changeme', 'respool'])(
    '%j',
    async (word) => {
      const sha256 = createHash('sha256').update(word).digest('hex');
      const tokens = [{ name: 'ci', role: 'post', sha256: sha256.toUpperCase() }];
      const listed = await refusal({ config: { serve: { tokens } } });
      expect(listed).toContain('"serve.tokens[0].sha256": it is the hash of a word');
      expect(listed).toContain('respool token create');
      for (const given of [
        { config: { serve: { token: `sha256:${sha256}` } } },
        { config: {}, env: { RESPOOL_TOKEN: `sha256:${sha256}` } },
      ]) {
        expect(await refusal(given)).toContain('"serve.token": it is the hash of a word');
      }
    },
  );
});

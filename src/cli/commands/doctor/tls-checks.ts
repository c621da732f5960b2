/** tls-checks — can the service's key and certificate be used, by whom, and for how long? */

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import process from 'node:process';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { DAY_MS, type Millis } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { span } from '../../ui/times.ts';
import { type DoctorFinding, worthKnowing, ok, unsafe } from './finding.ts';

/** A certificate is renewed in time if it is renewed before this. */
const EXPIRES_SOON_MS: number = 21 * DAY_MS;
const OTHERS_READ = 0o004;

/** Looks at both files; nothing where there is no TLS. */
export async function examineTls({ config }: LoadedConfig, now: Millis): Promise<DoctorFinding[]> {
  const { tls } = config.serve;
  if (tls === undefined) return [];
  const id = 'serve.tls';
  const certificate = await read(tls.cert, (text) => new X509Certificate(text));
  const key = await read(tls.key, (text) => createPrivateKey(text));
  for (const one of [certificate, key]) {
    if (typeof one === 'string') return [unsafe(id, one, 'see serve.tls')];
  }
  if (certificate instanceof X509Certificate && typeof key !== 'string') {
    if (!certificate.checkPrivateKey(key)) {
      const text = `the key "${tls.key}" is not that of the certificate "${tls.cert}"`;
      return [unsafe(id, text, 'name the two files of one pair')];
    }
    return [validity(Date.parse(certificate.validTo), now), ...(await keyRights(tls.key))];
  }
  return [];
}

async function read<T>(file: string, parse: (text: string) => T): Promise<T | string> {
  try {
    return parse(await readFile(file, 'utf8'));
  } catch (error) {
    return `cannot use "${file}": ${textOf(error)}`;
  }
}

function validity(validToMs: Millis, now: Millis): DoctorFinding {
  const id = 'serve.tls';
  const leftMs = validToMs - now;
  const todo = 'renew it, and start the service again';
  if (leftMs <= 0) return unsafe(id, `the certificate ended ${span(-leftMs)} ago`, todo);
  const text = `the certificate is valid for ${span(leftMs)}`;
  return leftMs < EXPIRES_SOON_MS ? worthKnowing(id, text, todo) : ok(id, text);
}

async function keyRights(file: string): Promise<DoctorFinding[]> {
  if (process.platform === 'win32') return [];
  const { mode } = await stat(file);
  if ((mode & OTHERS_READ) === 0) return [];
  const text = `every user of this machine can read the private key "${file}"`;
  return [unsafe('serve.tls.key', text, `chmod 600 "${file}"`)];
}

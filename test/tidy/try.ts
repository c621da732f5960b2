import path from 'node:path';
import * as r from './time-rules.ts';
import { readSources } from './source.ts';
const s = readSources(path.join(import.meta.dirname, '..'));
for (const [n, rule] of Object.entries(r)) { if (typeof rule !== 'function') continue; console.log('##', n);
 for (const v of rule(s)) console.log(`${v.path}:${v.line} ${v.what}`); }

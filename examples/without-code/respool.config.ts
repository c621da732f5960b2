/** Messages from any language, delivered to an endpoint and to a command: no program needed. */

import { defineConfig, exponential } from 'respool';
import { exec, http } from 'respool/deliver';

export default defineConfig({
  store: 'sqlite:./respool',
  policies: { default: exponential({ first: '5s', max: '6h', attempts: 20 }) },
  routes: [
    {
      topic: 'webhook.*',
      deliver: http({ url: 'https://example.com/hook', secret: process.env['HOOK_SECRET'] }),
      concurrency: 20,
    },
    { topic: 'report', deliver: exec(['./make-report.sh']), timeout: '5m' },
  ],
});

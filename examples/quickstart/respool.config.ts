/**
 * The configuration of `npm start`: two routes to a receiver on this machine.
 *
 * A receiver on a private address has to be allowed by name: otherwise a URL in a configuration
 * could reach what only this machine can reach.
 */

import { defineConfig, exponential } from 'respool';
import { http } from 'respool/deliver';

const port = process.env['QUICKSTART_PORT'] ?? '7668';
const receiver = http({ url: `http://127.0.0.1:${port}/inbox`, allow: ['127.0.0.1'] });

export default defineConfig({
  // Beside the repository's own files, where `npx respool` looks without being told.
  store: 'sqlite:../../respool',
  policies: { default: exponential({ first: '1s', factor: 2, max: '1h', attempts: 20 }) },
  log: { format: 'pretty' },
  routes: [
    { topic: 'order.*', deliver: receiver },
    { topic: 'invoice.*', deliver: receiver },
  ],
});

/** bare-child — a hono server that reads the body and answers 201: the limit of the service. */

import { serve } from '@hono/node-server';
import { Hono } from 'hono';

const app = new Hono();
app.post('/v1/topics/:topic/messages', async (context) => {
  const body = await context.req.arrayBuffer();
  return context.json({ id: String(body.byteLength), duplicate: false }, 201);
});
serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) => {
  console.log(JSON.stringify({ port }));
});

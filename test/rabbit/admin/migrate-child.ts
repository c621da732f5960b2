/** migrate-child — a migration in a process of its own, to be killed: URL and name by arguments. */

import { migrateTopology } from 'respool/rabbit';
import { oldAndNew } from './migrate-plans.ts';
import { connectAmqp } from '../amqp.ts';

const [url = '', name = ''] = process.argv.slice(2);
const { old, next } = oldAndNew(name);
await migrateTopology({
  connection: await connectAmqp(url),
  from: old.topology,
  to: next,
  window: 50,
  onProgress: ({ moved }) => process.stdout.write(`moved ${moved}\n`),
});
process.stdout.write('end\n');
process.exit(0);

/** owner-child — a program that has a keeper start a server, and then waits for its end. */
import { connectKeeper, startKeeper } from '../../scripts/services/link.ts';

const { door } = await startKeeper('owned');
const link = await connectKeeper(door);
const url = await link.ask({ kind: 'url', service: 'nats' });
process.stdout.write(`${JSON.stringify({ door, url })}\n`);
setInterval(() => undefined, 60_000);

/** alarms — sets and clears the alarms of a broker as a machine without memory or disk does. */
import { run } from '../../torture/tools.ts';
import type { PrivateServer } from '../../services/index.ts';

export type Alarm = 'memory' | 'disk';

const LIMITS: Readonly<Record<Alarm, { readonly set: string[]; readonly clear: string[] }>> = {
  memory: {
    set: ['set_vm_memory_high_watermark', 'absolute', '1MB'],
    clear: ['set_vm_memory_high_watermark', 'absolute', '1GB'],
  },
  disk: { set: ['set_disk_free_limit', '900000GB'], clear: ['set_disk_free_limit', '50MB'] },
};

/** From now on the broker accepts no messages. */
export async function setAlarm({ operator }: PrivateServer, alarm: Alarm): Promise<void> {
  await call(operator, LIMITS[alarm].set);
}

export async function clearAlarm({ operator }: PrivateServer, alarm: Alarm): Promise<void> {
  await call(operator, LIMITS[alarm].clear);
}

/** A delivery may take so long; looked at by every channel that is opened from now on. */
export async function setConsumerTimeout(
  { operator }: PrivateServer,
  { timeoutMs, lookEveryMs }: { readonly timeoutMs: number; readonly lookEveryMs: number },
): Promise<void> {
  const set = (name: string, value: number): string =>
    `application:set_env(rabbit, ${name}, ${value})`;
  const words = [set('consumer_timeout', timeoutMs), set('channel_tick_interval', lookEveryMs)];
  await call(operator, ['eval', `${words.join(', ')}.`]);
}

/** Larger bodies end the channel of who sends them from now on. */
export async function limitBodies({ operator }: PrivateServer, bytes: number): Promise<void> {
  const words = `persistent_term:put(max_message_size, ${bytes}), `;
  const kept = `application:set_env(rabbit, max_message_size, ${bytes}).`;
  await call(operator, ['eval', words + kept]);
}

async function call(operator: PrivateServer['operator'], args: readonly string[]): Promise<void> {
  if (operator === undefined) throw new Error('this broker has no rabbitmqctl that we can reach');
  const env = { ...process.env, ...operator.env };
  await run(operator.command, ['--quiet', ...args], { env, timeout: 240_000 });
}

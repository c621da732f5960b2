/** reach — the connections of one command to a broker: AMQP, and the management API. */

import { type Broker, tlsOfRabbit } from '../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
import type { AmqpConnection } from '../../../rabbit/connection/amqp.ts';
import { createConnection, type RabbitConnection } from '../../../rabbit/connection/connection.ts';
import { createManagement, type Management } from '../../../rabbit/management/management.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import { createClosers } from '../../lifetime.ts';
import type { CommandContext } from '../../spec.ts';

/** A broker that answers. */
export interface BrokerAccess {
  readonly connection: RabbitConnection;
  readonly amqp: AmqpConnection;
  /** undefined: it does not answer, and was not configured. */
  readonly management: Management | undefined;
}

/** Connects; everything is closed when the command ends. */
export async function reach(
  context: CommandContext,
  loaded: LoadedConfig,
  broker: Broker,
): Promise<BrokerAccess> {
  const tls = await tlsOfRabbit(loaded.config.rabbit);
  const connection = createConnection({
    url: broker.url,
    name: 'respool rabbit',
    ...(tls === undefined ? {} : { tls }),
  });
  context.atEnd(() => connection.close());
  const amqp = await connection.consuming.tryConnect();
  const management = createManagement({
    url: broker.managementUrl,
    vhost: broker.vhost,
    ...(tls === undefined ? {} : { tls }),
  });
  context.atEnd(() => management.close());
  return { connection, amqp, management: await answering(context, broker, management) };
}

/** One that was named has to answer; otherwise AMQP tells what it can. */
async function answering(
  { out }: CommandContext,
  { isManagementNamed }: Broker,
  management: Management,
): Promise<Management | undefined> {
  try {
    await management.overview();
    return management;
  } catch (error) {
    if (isManagementNamed || !isRespoolError(error)) throw error;
    const why = safe(textOf(error));
    out.note(`without the management API: ${why}; name it with --management-url`);
    return undefined;
  }
}

/** A broker that answers, until it is left. */
export interface ReachedOnce extends BrokerAccess {
  readonly leave: () => Promise<void>;
}

/** Connects; everything is closed by `leave`. */
export async function reachOnce(
  context: CommandContext,
  { loaded, broker }: { readonly loaded: LoadedConfig; readonly broker: Broker },
): Promise<ReachedOnce> {
  const { atEnd, close } = createClosers();
  try {
    return { ...(await reach({ ...context, atEnd }, loaded, broker)), leave: close };
  } catch (error) {
    await close();
    throw error;
  }
}

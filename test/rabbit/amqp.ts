/** amqp — amqplib itself, for what a test does at the broker with its own hands. */
import { connect } from 'amqplib';
import type { AmqpConnection } from 'respool/rabbit';

export type AmqpChannel = Awaited<ReturnType<AmqpConnection['createChannel']>>;
export type AmqpConfirmChannel = Awaited<ReturnType<AmqpConnection['createConfirmChannel']>>;
/** Headers of a message, or arguments of a queue. */
export type Table = Readonly<Record<string, unknown>>;

export const connectAmqp = async (url: string): Promise<AmqpConnection> => connect(url);

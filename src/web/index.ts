/** index — an operator over HTTP: what programs use to talk to a running service. */

export { type ClientOptions, connectOperator } from './client/client.ts';

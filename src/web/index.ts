/** index — the spool over HTTP: the service, and the operator for its clients. */

export { type ClientOptions, connectOperator } from './client/client.ts';
export { createService, type Service, type ServiceOptions } from './server/service.ts';
export type { TokenRole, ServeSettings, ServeToken } from './server/settings.ts';

/** respool/web — the spool over HTTP: the service, and the operator's desk of who talks to it. */

export { type ClientOptions, connectControl } from './client.ts';
export { createService, type Service, type ServiceParts } from './service.ts';
export type { Role, ServeSettings, ServeToken } from './settings.ts';

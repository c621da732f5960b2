/** respool/stores/filesystem — entries and bodies as files. */

export { filesystemBodies } from './body-store.ts';
export type { SyncMode } from './disk-protocol.ts';
export { filesystem } from './entry-store.ts';
export type { FilesystemBodiesOptions, FilesystemOptions } from './options.ts';

/** respool/stores/filesystem — entries and bodies as files. */

export { type FilesystemBodiesOptions, filesystemBodies } from './body-store.ts';
export type { SyncMode } from './disk-protocol.ts';
export { type FilesystemOptions, filesystem } from './entry-store.ts';

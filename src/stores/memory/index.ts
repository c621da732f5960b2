/** respool/stores/memory — entries and bodies in memory, for tests and for what may be lost. */

export { memoryBodies } from './body-store.ts';
export type { MemoryData } from './data.ts';
export { createMemoryData, memory } from './entry-store.ts';
export type { MemoryBodiesOptions, MemoryOptions } from './options.ts';

/** respool/stores/memory — entries and bodies in memory, for tests and for what may be lost. */

export { type MemoryBodiesOptions, memoryBodies } from './body-store.ts';
export type { MemoryData } from './data.ts';
export { createMemoryData, type MemoryOptions, memory } from './entry-store.ts';

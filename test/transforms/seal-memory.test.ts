import { createMemoryData, memory, type MemoryData } from 'respool/stores/memory';
import { sealedConforms } from './seal-setup.ts';

/** By the folder that the suite made for them. */
const data = new Map<string, MemoryData>();

function dataOf(folder: string): MemoryData {
  const shared = data.get(folder) ?? createMemoryData();
  data.set(folder, shared);
  return shared;
}

sealedConforms(
  'memory store',
  {
    open: (folder) => memory({ shared: dataOf(folder) }),
    damage: async (folder, id) => dataOf(folder).damage(id),
  },
  { canOrder: true },
);

/** respool/testkit — what tests of your own stores and spools are made of. */

export { entryStoreSuite } from './entry-store-suite.ts';
export {
  SAMPLE_AT,
  SAMPLE_LEASE_MS,
  type SampleParts,
  sampleEntries,
  sampleEntry,
} from './samples.ts';
export { seededDice } from './seeded-dice.ts';
export type {
  BodiesUnderTest,
  BodyStoreAbilities,
  BodyStoreMaker,
  EntryStoreAbilities,
  EntryStoreMaker,
  StoreUnderTest,
  SuiteCase,
} from './suite.ts';

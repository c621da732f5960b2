/** respool/testkit — what tests of your own stores and spools are made of. */

export { bodyStoreSuite } from './body-store-suite.ts';
export {
  deadLettersSuite,
  type LetterArrival,
  type LettersAbilities,
  type LetterSample,
  type LettersMaker,
  type LettersUnderTest,
} from './dead-letters-suite.ts';
export { entryStoreSuite } from './entry-store-suite.ts';
export {
  type Fault,
  type FaultPlan,
  type FaultRates,
  type Faults,
  type FaultyOptions,
  randomFaults,
} from './faults.ts';
export { type FaultyBodies, type FaultyStore, faultyBodies, faultyStore } from './faulty-store.ts';
export {
  SAMPLE_AT,
  SAMPLE_LEASE_MS,
  type SampleParts,
  sampleEntries,
  sampleEntry,
} from './samples.ts';
export { seededDice } from './seeded-dice.ts';
export { SimClock, type SimClockOptions } from './sim-clock.ts';
export {
  commandFor,
  type Invariant,
  type Mutation,
  type SimPlan,
  SimDisk,
  SimProcess,
  type SimReport,
  SimBodyDisk,
  type Site,
  simulate,
  type SpoolStores,
  type Violation,
  SimWorld,
  type Write,
} from './simulator/index.ts';
export {
  type Arrival,
  type SinkAbilities,
  type SinkMaker,
  sinkSuite,
  type SinkUnderTest,
} from './sink-suite.ts';
export {
  type Fate,
  type SourceAbilities,
  type SourceMaker,
  sourceSuite,
  type SourceUnderTest,
  type SuiteMessage,
} from './source-suite.ts';
export type {
  BodiesUnderTest,
  BodyStoreAbilities,
  BodyStoreMaker,
  EntryStoreAbilities,
  EntryStoreMaker,
  StoreUnderTest,
  SuiteCase,
} from './suite.ts';
export { createTestSpool, type TestSpool } from './test-spool.ts';

/** index — tools for tests of your own stores, handlers and spools. */

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
export { type FaultyBodies, type FaultyStore, faultyBodies, faultyStore } from './faults.ts';
export {
  SAMPLE_AT,
  SAMPLE_LEASE_MS,
  type SampleParts,
  sampleEntries,
  sampleEntry,
} from './samples.ts';
export { seededDice } from './virtual-time.ts';
export { SimClock, type SimClockOptions } from './virtual-time.ts';
export { SimBodyDisk, SimDisk, type Write } from './simulator/disk.ts';
export type { SimPlan, FaultSite } from './simulator/plan.ts';
export { commandFor, type SimReport, simulate } from './simulator/simulate.ts';
export type { Invariant, Violation } from './simulator/checks/check-scene.ts';
export { SimProcess } from './simulator/process.ts';
export { type PlantedBug, SimWorld, type SpoolStores } from './simulator/world.ts';
export {
  type Arrival,
  type SinkAbilities,
  type SinkMaker,
  sinkSuite,
  type SinkUnderTest,
} from './sink-suite.ts';
export {
  type MessagePlace,
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
export { createTestSpool, type TestSpool } from './virtual-time.ts';

/** simulator — processes, producers, operators and blows around one store, in virtual time. */

export { SimDisk, type Write } from './disk.ts';
export type { SimPlan, Site } from './plan.ts';
export { SimBodyDisk } from './body-disk.ts';
export { commandFor, type SimReport, simulate } from './simulate.ts';
export type { Invariant, Violation } from './violation.ts';
export { SimProcess } from './process.ts';
export { type Mutation, type SpoolStores, SimWorld } from './world.ts';

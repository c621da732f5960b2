import { runConformance } from './conformance.ts';

runConformance('in a thread', true);

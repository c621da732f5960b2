import { runConformance } from './conformance.ts';

runConformance('in the caller’s thread', 'own');

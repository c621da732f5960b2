import { runConformance } from './conformance.ts';

runConformance('that moves to a thread', 'moving');

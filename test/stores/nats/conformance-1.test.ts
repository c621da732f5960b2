import { runHalf } from './conformance.ts';

runHalf(0);

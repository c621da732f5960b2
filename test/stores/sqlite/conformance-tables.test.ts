import { runEntryConformance } from './conformance.ts';

runEntryConformance('in a database of somebody else', 'tables');

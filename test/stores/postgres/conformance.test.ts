import { withService } from '../../services/index.ts';
import { runEntries } from './conformance.ts';
import { dropFileSchemas } from './setup.ts';

withService('postgres', () => {
  dropFileSchemas();
  runEntries('on a server');
});

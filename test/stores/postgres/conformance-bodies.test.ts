import { withService } from '../../services/index.ts';
import { runBodies } from './conformance.ts';
import { dropFileSchemas } from './setup.ts';

withService('postgres', () => {
  dropFileSchemas();
  runBodies('on a server');
});

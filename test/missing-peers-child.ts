/** missing-peers-child — loads the package as where no optional package is installed. */
import { registerHooks } from 'node:module';

const OPTIONAL = /^(?:pg|amqplib|snappy|lz4-napi|@nats-io\/.+|@aws-sdk\/.+|@opentelemetry\/.+)$/;

registerHooks({
  resolve: (specifier, context, next) => {
    if (!OPTIONAL.test(specifier)) return next(specifier, context);
    const error = new Error(`Cannot find package '${specifier}' imported from a test`);
    throw Object.assign(error, { code: 'ERR_MODULE_NOT_FOUND' });
  },
});

interface Openable {
  open(): Promise<void>;
}

const loaded: string[] = [];
const all: Record<string, unknown> = {};
for (const specifier of process.argv.slice(2)) {
  Object.assign(all, await import(specifier));
  loaded.push(specifier);
}
const places: Readonly<Record<string, object>> = {
  postgres: { url: 'postgres://127.0.0.1:1/x' },
  postgresBodies: { url: 'postgres://127.0.0.1:1/x' },
  nats: { url: 'nats://127.0.0.1:1' },
  natsBodies: { url: 'nats://127.0.0.1:1' },
  s3: { bucket: 'spool', endpoint: 'http://127.0.0.1:1' },
};
const opened: Record<string, string> = {};
for (const [name, options] of Object.entries(places)) {
  const make = all[name] as (given: object) => Openable;
  await make(options)
    .open()
    .then(
      () => (opened[name] = 'opened'),
      (error: Error & { code?: string }) => (opened[name] = `${error.code}: ${error.message}`),
    );
}
const createConsumer = all['createConsumer'] as (
  options: object,
  handler: () => void,
) => {
  start(): Promise<void>;
};
const consumer = createConsumer({ url: 'amqp://127.0.0.1:1', queue: 'q' }, () => undefined);
await consumer.start().then(
  () => (opened['rabbit'] = 'opened'),
  (error: Error & { code?: string }) => (opened['rabbit'] = `${error.code}: ${error.message}`),
);
const openTelemetry = all['openTelemetry'] as () => Promise<unknown>;
await openTelemetry().then(
  () => (opened['traces'] = 'opened'),
  (error: Error & { code?: string }) => (opened['traces'] = `${error.code}: ${error.message}`),
);
process.stdout.write(JSON.stringify({ loaded, opened }));

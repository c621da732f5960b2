/**
 * words — the test servers by name: what can be asked for, and which variable names one of yours.
 */

/** The servers that can be started. */
export const SERVER_NAMES = ['postgres', 'pgbouncer', 'nats', 's3', 'rabbitmq'] as const;

export type ServerName = (typeof SERVER_NAMES)[number];

/** What a test can ask for: every server by its name, and the second door of RabbitMQ. */
export type ServiceName = ServerName | 'rabbitmq-management';

/** The variable that names your own server; what it names is used as it is, and never stopped. */
export const VARIABLES: Readonly<Record<ServiceName, string>> = {
  postgres: 'RESPOOL_TEST_POSTGRES_URL',
  pgbouncer: 'RESPOOL_TEST_PGBOUNCER_URL',
  nats: 'RESPOOL_TEST_NATS_URL',
  s3: 'RESPOOL_TEST_S3_URL',
  rabbitmq: 'RESPOOL_TEST_AMQP_URL',
  'rabbitmq-management': 'RESPOOL_TEST_AMQP_MANAGEMENT_URL',
};

/** Programs of the system that the fault tests need. */
export const TOOL_NAMES = ['strace', 'mkfs.ext4', 'mount'] as const;

export type ToolName = (typeof TOOL_NAMES)[number];

/** Names, separated by commas, of servers and programs whose tests are skipped. */
export const SKIP_VARIABLE = 'RESPOOL_TEST_SKIP';

const SKIP_NAMES = [...SERVER_NAMES, ...TOOL_NAMES] as const;

/** The server behind a service. */
export function serverOf(service: ServiceName): ServerName {
  return service === 'rabbitmq-management' ? 'rabbitmq' : service;
}

/** Whether this is the name of a server. */
export function isServerName(text: string): text is ServerName {
  return (SERVER_NAMES as readonly string[]).includes(text);
}

/** The URL that the environment gives for a service, if it does. */
export function givenUrl(service: ServiceName, env: NodeJS.ProcessEnv): string | undefined {
  const url = env[VARIABLES[service]];
  return url === undefined || url === '' ? undefined : url;
}

/** What to skip, as the environment names it; a name that is none is an error. */
export function skippedNames(env: NodeJS.ProcessEnv): ReadonlySet<ServerName | ToolName> {
  const names = (env[SKIP_VARIABLE] ?? '').split(',').map((name) => name.trim());
  const skipped = new Set<ServerName | ToolName>();
  for (const name of names) {
    if (name === '') continue;
    const known = SKIP_NAMES.find((one) => one === name);
    if (known === undefined) {
      throw new Error(
        `cannot use "${name}" in ${SKIP_VARIABLE}: allowed are ${SKIP_NAMES.join(', ')}`,
      );
    }
    skipped.add(known);
  }
  return skipped;
}

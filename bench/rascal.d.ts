/** The little of rascal that the bench uses; the package has no types. */
declare module 'rascal' {
  interface Subscription {
    on(
      event: 'message',
      listener: (
        message: unknown,
        content: unknown,
        ackOrNack: (error?: Error, recovery?: object) => void,
      ) => void,
    ): this;
  }
  interface Broker {
    on(event: 'error', listener: (error: Error) => void): this;
    subscribe(name: string): Promise<Subscription>;
    shutdown(): Promise<void>;
  }
  const rascal: {
    BrokerAsPromised: { create(config: object): Promise<Broker> };
    withDefaultConfig(config: object): object;
  };
  export default rascal;
}

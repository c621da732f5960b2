/** letter-headers — headers of messages that had something to do with dead letters. */

/** The replay that sent the message last. */
export const REPLAY_HEADER = 'respool-replay';
/** On a copy that was kept: the id of the message it is a copy of. */
export const ORIGINAL_HEADER = 'respool-original-of';
/** On a copy of a message of a broker: what is needed to put it back there. */
export const AMQP_HEADER = 'respool-amqp';

/** letter-headers — header names and constants of dead letters. */

/** The replay that sent the message last. */
export const REPLAY_HEADER = 'respool-replay';
/** On a copy that was kept: the id of the message it is a copy of. */
export const ORIGINAL_HEADER = 'respool-original-of';
/** On a copy of a message of a broker: what is needed to put it back there. */
export const AMQP_HEADER = 'respool-amqp';
/** On a copy of a message of a broker: which broker, without user and password. */
export const BROKER_HEADER = 'respool-amqp-broker';

/** Why a kept copy is archived. */
export const KEPT_CODE = 'letter.kept';
/** The reason of a copy begins so where its message was removed; others were changed. */
export const REMOVED_FROM = 'removed from';

/**
 * known-names — names that break a rule of name-rules.ts and stay, each with the reason.
 *
 * The test fails when an entry is no longer needed.
 */

/** Public vocabulary: participles that users write, and why they are right. */
export const PUBLIC_PARTICIPLES: Readonly<Record<string, string>> = {
  'core/verdict.ts delivered': 'a handler returns its outcome: `return delivered()`',
  'core/verdict.ts failed': 'a handler returns its outcome: `return failed(failure)`',
  'core/verdict.ts held': "a handler returns its outcome: `return held('the amount is negative')`",
  'core/verdict.ts postponed': "a handler returns its outcome: `return postponed('10m')`",
  'core/policy.ts fixed': 'the usual adjective of a delay, as `exponential` and `linear`',
};

/** Public vocabulary: words that have one meaning for users. */
export const PUBLIC_WORDS: Readonly<Record<string, string>> = {
  'middleware/guard.ts guard':
    'the public name of the middleware that refuses what a predicate does not pass',
  'core/state.ts Lane': 'the field `lane` of a status and of an event',
};

/** Names that two rooms or more export, and why; the stores are one room. */
export const SHARED: Readonly<Record<string, string>> = {
  once: 'the same public function for an outbox on PostgreSQL and one on SQLite',
};

/** Interfaces …Parts that stay, and why. */
export const PARTS_WITH_A_REASON: Readonly<Record<string, string>> = {
  ActionParts: 'what single actions, bulk actions and rekeying all work on, made once per operator',
  EngineParts: 'made once by its owner and read by the four files of the engine',
  FileParts: 'tests replace the parts: a store with other ones shows faults of a disk',
  GroupParts: 'no dependencies: the fields that a fingerprint is made of',
  OutboxParts: 'what differs between an outbox on PostgreSQL and one on SQLite, for one relay',
  PassParts: 'the same for all passes of a replay, made once at its start',
  PostgresParts: 'tests replace the parts: a store with other ones shows faults of a server',
  SampleParts: 'no dependencies: the fields that a test may set in a sample',
};

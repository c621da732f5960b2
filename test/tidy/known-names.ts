/**
 * known-names — names that break a rule of name-rules.ts: those that stay, with the reason, and those
 * that are not renamed yet.
 *
 * The latter lists may only shrink: remove an entry when its name changes, and add none. The test fails
 * when an entry is no longer needed.
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
  'core/state.ts Lane': 'the field `lane` of a status and of an event',
};

/** Files and exported names that are a participle alone. */
export const PARTICIPLES: readonly string[] = [
  'cli/commands/dlq/restore.ts refused',
  'cli/commands/outbox/sent.ts sent',
  'engine/lease-timer.ts Indexed',
  'middleware/keyed.ts Keyed',
  'middleware/keyed.ts keyed',
  'middleware/options.ts refused',
  'outbox/tracking.ts tracked',
  'outbox/types.ts Emitted',
  'rabbit/compat/shared.ts continued',
  'rabbit/publish/message.ts Published',
  'rabbit/topology/declare.ts Applied',
  'rabbit/topology/explain.ts quoted',
  'spool/enqueue.ts Enqueued',
  'spool/unserved.ts Unserved',
  'spool/unserved.ts unserved',
  'stores/shared/sql-body.ts chunked',
];

/** Files and exported names that are a word of several meanings alone. */
export const AMBIGUOUS: readonly string[] = [
  'engine/slots.ts Slots',
  'engine/slots.ts slots',
  'middleware/guard.ts guard',
  'spool/claim-fairness.ts TURNS',
  'stores/shared/page.ts Place',
  'stores/sqlite/flows.ts Flow',
  'stores/sqlite/flows.ts Flows',
  'stores/sqlite/flows.ts flows',
  'web/routes/look.ts look',
];

/** Names that two rooms or more export; the stores are one room. */
export const SHARED: readonly string[] = [
  'Answers',
  'AttemptSpan',
  'BLOCK_BYTES',
  'BatchOptions',
  'BodySettings',
  'Bytes',
  'Codec',
  'CountedBy',
  'Finding',
  'KeyPlace',
  'LookOptions',
  'OnceOptions',
  'OpenOptions',
  'OutboxOptions',
  'Route',
  'Settings',
  'Table',
  'Wake',
  'Walk',
  'cancelReplay',
  'checkHeaders',
  'checkOptions',
  'checkRecord',
  'createMetrics',
  'handlerOf',
  'idsOf',
  'keyHeads',
  'keyOf',
  'listReplays',
  'migrate',
  'ok',
  'once',
  'pauseReplay',
  'policyOf',
  'refused',
  'reportReplay',
  'resumeReplay',
  'settingsOf',
  'worthKnowing',
];

/** Interfaces …Parts that stay, and why. */
export const PARTS_WITH_A_REASON: Readonly<Record<string, string>> = {
  FileParts: 'tests replace the parts: a store with other ones shows faults of a disk',
  GroupParts: 'no dependencies: the fields that a fingerprint is made of',
  PostgresParts: 'tests replace the parts: a store with other ones shows faults of a server',
  SampleParts: 'no dependencies: the fields that a test may set in a sample',
};

/** Interfaces …Parts that have no reason yet but that they are there. */
export const PARTS: readonly string[] = [
  'EngineParts',
  'ActionParts',
  'AlertsParts',
  'CheckParts',
  'ConsumerParts',
  'DeadLettersParts',
  'DecideParts',
  'EntryWritesParts',
  'FallbackParts',
  'InspectParts',
  'OutboxParts',
  'PassParts',
  'ReconnectingConnectionParts',
  'RekeyParts',
  'RelayParts',
  'RelayServiceParts',
  'ReplayCopyParts',
  'ReplayParts',
  'RetriedStartParts',
  'RewindParts',
  'RouteParts',
  'RuleHealthParts',
  'RuleLeaseParts',
  'ServerConnectionParts',
  'SessionParts',
  'TombstonesParts',
  'UnservedParts',
  'UploadParts',
  'WakeParts',
  'WatcherParts',
  'WriterParts',
];

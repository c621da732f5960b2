/** Every store has the same file names for the same work; what is its own is listed here. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, readPage, tableUnder, wordOf } from '../docs/pages.ts';

const STORES = path.join(ROOT, 'src/stores');

/** Files for work that no other store has, or has in another form, and why. */
const OWN_FILES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  filesystem: {
    'catalog.ts': 'due times, ids and keys in memory: files have no index',
    'disk.ts': 'carries out file steps in the thread, with drafts and spare files',
    'disk-protocol.ts': 'the messages between the store and its thread, types only',
    'files.ts': 'the file calls, apart so that tests can let a disk fail',
    'plan.ts': 'the form of a call in file steps that insert, claim and commit have in common',
    'quarantine.ts': 'damaged files with their reason, put aside from inside the thread',
    'thread.ts': "the store's end of the thread",
    'worker.ts': 'the thread itself, which has to be a file of its own',
    'writer.ts': 'the line on which all calls go to the disk in batches',
  },
  memory: {
    'data.ts': 'what several stores share; inserts and changes are its methods',
    'due-flows.ts': 'what is due in memory, by flow',
  },
  nats: {
    'catalog.ts': 'due times, ids and keys in memory: a stream has no index',
    'entry-writes.ts': 'the guarded single steps that insert, claim and commit are made of',
    'feed.ts': 'the messages of a stream in their order',
    'stream.ts': 'requests to one stream',
    'stream-journal.ts': 'what was seen of the stream, in files beside the process',
    'tombstones.ts': 'what is removed for good, and that it is not written again',
    'watcher.ts': 'follows the stream into the catalog',
  },
  postgres: {
    'claim-sql.ts': 'the statements of every scan, readable and printed by the doctor',
    'conditions.ts': 'a query as SQL, for lists and counts',
    'durability.ts': 'what the server promises, and when lazy writes are on its disk',
    'insert-within.ts': "inserts in a transaction of the caller's, and the check of a transaction",
    'notify.ts': 'LISTEN and NOTIFY',
    'sent-partitions.ts': 'delivered messages in a partitioned table',
    'statements.ts': 'every statement for psql, for the doctor',
  },
  s3: {
    'upload.ts': 'bodies in parts',
  },
  sqlite: {
    'claim-filter.ts': 'which flows a claim may take',
    'file.ts': 'the synchronous side of a file, in whatever thread',
    'file-client.ts': 'the line of batches to a file, and its questions',
    'file-thread.ts':
      "whether a file is used in the caller's thread or in its own, and what goes between them",
    'flow-looks.ts': 'looks for what is due by flow, through index probes and due bounds',
    'topic-flows.ts': 'the numbers of topic, destination and priority in every row',
    'instances.ts': 'which processes share a file, and where their service answers',
    'once.ts': "the handler's own write in its own database",
    'protocol.ts':
      'the messages between the store and its file, and tallies as text for both sides',
    'worker.ts': 'the thread itself, which has to be a file of its own',
  },
};

const COMMON = tableUnder(readPage('docs/how-to/write-a-store.md'), 'Names of files').map(
  ([name]) => wordOf(name),
);
const stores = readdirSync(STORES).filter((name) => name !== 'shared');

test('the list of own files names every store', () => {
  expect(stores.toSorted()).toEqual(Object.keys(OWN_FILES).toSorted());
});

test.each(stores)(
  '%s has files of the common names and the listed ones, and no others',
  (store) => {
    const own = OWN_FILES[store] ?? {};
    const files = readdirSync(path.join(STORES, store)).filter((name) => name.endsWith('.ts'));
    expect(files.filter((name) => !COMMON.includes(name)).toSorted()).toEqual(
      Object.keys(own).toSorted(),
    );
  },
);

test('every common name is that of a file in two stores or more', () => {
  const all = stores.flatMap((store) => readdirSync(path.join(STORES, store)));
  expect(COMMON.filter((name) => all.filter((file) => file === name).length < 2)).toEqual([]);
});

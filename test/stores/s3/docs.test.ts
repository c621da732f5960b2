/** The page about S3 names every option and every finding, no more and no less. */
import { isRespoolError } from 'respool';
import { type S3Options, s3 } from 'respool/stores/s3';
import { expect, test } from 'vitest';
import { readPage, tableUnder, wordOf } from '../../docs/pages.ts';
import { stubClient } from './stub.ts';

const page = readPage('docs/reference/stores/s3.md');
const firstWords = (heading: string): string[] =>
  tableUnder(page, heading).map(([name]) => wordOf(name));

test('every option is in the table', () => {
  let known = '';
  try {
    s3({ nothing: 1 } as S3Options);
  } catch (error) {
    if (isRespoolError(error)) known = error.message;
  }
  const names = known.split('known are ')[1]?.split(', ');
  expect(firstWords('Options')).toEqual(names);
});

test('every finding is in the table', async () => {
  const client = stubClient();
  const store = s3({ client, bucket: 'bucket' });
  await store.open();
  const ids = new Set((await store.diagnose()).map(({ id }) => id));
  expect(firstWords('The bucket').toSorted()).toEqual([...ids].toSorted());
});

test('opening takes as many requests as the page says', async () => {
  const client = stubClient();
  await s3({ client, bucket: 'bucket' }).open();
  const [, text] =
    tableUnder(page, 'Size and tune').find(([what]) => /open/.test(what ?? '')) ?? [];
  expect(text).toContain(String(client.requests.length));
});

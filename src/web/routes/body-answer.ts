/**
 * body-answer — the body of a message as a download. Never shown as a page: whatever a message
 * says of its own type, it goes out as bytes to be saved.
 */

import type { Envelope } from '../../core/entry.ts';

/** Answers with the bytes. */
export async function bodyAnswer(
  { id, body }: Envelope,
  bytes: AsyncIterable<Uint8Array>,
): Promise<Response> {
  const parts = bytes[Symbol.asyncIterator]();
  // The last part waits for the verdict on the whole: a damaged body must not look finished. Two
  // parts ahead, so that what fits into one is judged before the status is out.
  let held = await parts.next();
  let next = held.done === true ? held : await parts.next();
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (held.done === true) {
          controller.close();
          return;
        }
        controller.enqueue(held.value);
        held = next;
        if (held.done !== true) next = await parts.next();
      },
      async cancel() {
        await parts.return?.();
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(stream, {
    headers: {
      'content-type': 'application/octet-stream',
      'content-length': String(body.size),
      // An id has no character that would need quoting.
      'content-disposition': `attachment; filename="${id}"`,
    },
  });
}

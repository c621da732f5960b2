/**
 * whole-body — a body on its way out that never looks whole unless it is.
 *
 * Whether a stream is undamaged is known after its last byte. So the last part is kept back until
 * the stream has ended well: a receiver never has all bytes of a damaged body.
 */

/** Passes a stream on, always one part behind; tells of an error before it throws it. */
export async function* oneBehind(
  stream: AsyncIterable<Uint8Array>,
  onError: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  let last: Uint8Array | undefined;
  // n.b. a reader that gives up throws its own error in at the yield; that is none of the stream's.
  let isOut = false;
  try {
    for await (const part of stream) {
      if (part.length === 0) continue;
      isOut = true;
      if (last !== undefined) yield last;
      isOut = false;
      last = part;
    }
  } catch (error) {
    if (!isOut) onError(error);
    throw error;
  }
  if (last !== undefined) yield last;
}

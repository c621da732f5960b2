/**
 * refs — the names of bodies: the message's id and a random part, so that a ref tells whose it is.
 */

/** A ref for a new body of this message; `random` has no dash in it. */
export function refOf(id: string, random: string): string {
  return `${id}-${random}`;
}

/** The id of the message a ref was made for. */
export function idOfRef(ref: string): string {
  const at = ref.lastIndexOf('-');
  return at < 0 ? ref : ref.slice(0, at);
}

/** peer — the one place that loads what is only known by name when the program runs. */

/** Loads a file of the user's that is a program, by its `file:` URL. */
export async function importFile(url: string): Promise<Readonly<Record<string, unknown>>> {
  const name = url;
  return (await import(name)) as Record<string, unknown>;
}

/** postgres-catalog — everything in a schema of PostgreSQL as text, whatever statements made it. */

/** As much of a client as is needed. */
interface Client {
  query(text: string, values: unknown[]): Promise<{ readonly rows: { readonly line: string }[] }>;
}

const RELATION = "format('%s%s %s', CASE relpersistence WHEN 'u' THEN 'unlogged ' ELSE '' END, ";
const KIND = "CASE relkind WHEN 'p' THEN 'partitioned table' ELSE 'table' END";

const TABLES = `
SELECT ${RELATION}${KIND}, relname) ||
  coalesce(' partition by ' || pg_get_partkeydef(c.oid), '') ||
  coalesce(' of ' || (SELECT p.relname FROM pg_inherits i JOIN pg_class p ON p.oid = inhparent
    WHERE inhrelid = c.oid) || ' ' || pg_get_expr(relpartbound, c.oid), '') ||
  coalesce(E'\\n  with ' || (SELECT string_agg(o, E'\\n  with ' ORDER BY o)
    FROM unnest(reloptions) o), '') || coalesce((
    SELECT string_agg(E'\\n  column ' || attname || ' ' || format_type(atttypid, atttypmod) ||
      coalesce(' collate ' || (SELECT quote_ident(collname) FROM pg_collation l
        WHERE l.oid = attcollation AND collname <> 'default'), '') ||
      CASE WHEN attnotnull THEN ' not null' ELSE '' END ||
      coalesce(' default ' || pg_get_expr(adbin, adrelid), '') ||
      CASE attidentity WHEN '' THEN '' ELSE ' identity ' || attidentity::text END ||
      CASE WHEN attstorage <> typstorage THEN ' storage ' || attstorage::text ELSE '' END,
      '' ORDER BY attnum)
    FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid
      LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '') AS line
FROM pg_class c WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p') ORDER BY relname`;

const QUERIES: readonly string[] = [
  TABLES,
  `SELECT format('constraint %s of %s: %s', conname, conrelid::regclass, pg_get_constraintdef(oid))
     AS line
   FROM pg_constraint WHERE connamespace = $1::regnamespace AND contype <> 'n'
   ORDER BY conrelid::regclass::text, conname`,
  `SELECT indexdef || ';' AS line FROM pg_indexes WHERE schemaname = $1 ORDER BY indexname`,
  `SELECT format('sequence %s as %s from %s by %s, cache %s', sequencename, data_type, start_value,
     increment_by, cache_size) ||
     coalesce(', owned by ' || (SELECT format('%s.%s', refobjid::regclass, attname)
       FROM pg_depend JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
       WHERE classid = 'pg_class'::regclass AND deptype IN ('a', 'i') AND objid =
         format('%I.%I', schemaname, sequencename)::regclass), '') AS line
   FROM pg_sequences WHERE schemaname = $1 ORDER BY sequencename`,
  `SELECT pg_get_functiondef(oid) AS line FROM pg_proc WHERE pronamespace = $1::regnamespace
   ORDER BY proname, oid`,
  `SELECT format('view %s: %s', viewname, definition) AS line FROM pg_views WHERE schemaname = $1
   ORDER BY viewname`,
  `SELECT pg_get_triggerdef(t.oid) AS line FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
   WHERE relnamespace = $1::regnamespace AND NOT tgisinternal ORDER BY tgname`,
];

/** Tables and columns in their order, constraints, indexes, sequences, functions, triggers. */
export async function catalogOf(client: Client, schema: string): Promise<string> {
  const parts: string[] = [];
  for (const query of QUERIES) {
    const { rows } = await client.query(query, [schema]);
    if (rows.length > 0) parts.push(rows.map(({ line }) => line).join('\n'));
  }
  return `${parts.join('\n\n').replaceAll(schema, 'respool')}\n`;
}

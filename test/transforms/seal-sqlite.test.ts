import Sqlite from 'better-sqlite3';
import path from 'node:path';
import { sqlite } from 'respool/stores/sqlite';
import { sealedConforms } from './seal-setup.ts';

sealedConforms(
  'SQLite store',
  {
    open: (folder) => sqlite({ path: folder, thread: false }),
    async damage(folder, id) {
      const database = new Sqlite(path.join(folder, 'respool.db'), { timeout: 5_000 });
      const sql = `UPDATE contents SET envelope = substr(envelope, 1, 20)
        WHERE seq = (SELECT seq FROM entries WHERE id = ?)`;
      database.prepare(sql).run(id);
      database.close();
    },
  },
  { canExpireLost: true, canOrder: true },
);

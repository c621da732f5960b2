PRAGMA journal_mode = wal;

PRAGMA page_size = 8192;

PRAGMA auto_vacuum = 0;

PRAGMA encoding = UTF-8;

PRAGMA user_version = 0;

CREATE TABLE bodies (
  ref TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  written_at INTEGER NOT NULL,
  complete INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE chunks (
  ref TEXT NOT NULL, at INTEGER NOT NULL, bytes BLOB NOT NULL,
  UNIQUE (ref, at)
) STRICT;

CREATE TABLE contents (seq INTEGER PRIMARY KEY, envelope TEXT NOT NULL, body BLOB) STRICT;

CREATE TABLE due_bounds (
  flow INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  due_at INTEGER NOT NULL,
  id TEXT NOT NULL,
  PRIMARY KEY (flow, slot)
) STRICT, WITHOUT ROWID;

CREATE INDEX due_bounds_in_order ON due_bounds (slot, priority, due_at, id);

CREATE TRIGGER due_bounds_insert AFTER INSERT ON entries
  WHEN NEW.slot IN (0, 4, 9) AND NEW.due_at IS NOT NULL BEGIN
    INSERT INTO due_bounds (flow, slot, priority, due_at, id)
    VALUES (NEW.flow, NEW.slot, NEW.priority, NEW.due_at, NEW.id)
    ON CONFLICT (flow, slot) DO UPDATE SET due_at = excluded.due_at, id = excluded.id
    WHERE (excluded.due_at, excluded.id) < (due_at, id);
  END;

CREATE TRIGGER due_bounds_update AFTER UPDATE OF slot, due_at, flow, priority ON entries
  WHEN NEW.slot IN (0, 4, 9) AND NEW.due_at IS NOT NULL BEGIN
    INSERT INTO due_bounds (flow, slot, priority, due_at, id)
    VALUES (NEW.flow, NEW.slot, NEW.priority, NEW.due_at, NEW.id)
    ON CONFLICT (flow, slot) DO UPDATE SET due_at = excluded.due_at, id = excluded.id
    WHERE (excluded.due_at, excluded.id) < (due_at, id);
  END;

CREATE TABLE entries (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  slot INTEGER NOT NULL,
  flow INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  due_at INTEGER,
  revision INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  notices INTEGER NOT NULL,
  lost INTEGER NOT NULL,
  postponed INTEGER NOT NULL,
  replays INTEGER NOT NULL,
  holder TEXT,
  claimed_from INTEGER,
  enqueued_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  dedupe_key TEXT,
  fingerprint TEXT,
  memory TEXT
, order_key TEXT, behind INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE INDEX entries_by_flow ON entries (flow, slot, due_at, id) WHERE slot IN (0, 4, 9);

CREATE INDEX entries_by_key ON entries (order_key) WHERE order_key IS NOT NULL AND slot IN (0, 2, 4, 6);

CREATE UNIQUE INDEX entries_dedupe ON entries (dedupe_key) WHERE dedupe_key IS NOT NULL;

CREATE INDEX entries_due ON entries (slot, priority, due_at, id) WHERE slot < 10;

CREATE INDEX entries_ended ON entries (due_at, id) WHERE slot >= 10;

CREATE UNIQUE INDEX entries_id ON entries (id);

CREATE TRIGGER due_bounds_remove AFTER DELETE ON flows BEGIN
  DELETE FROM due_bounds WHERE flow = OLD.flow;
END;

CREATE TABLE flows (
  flow INTEGER PRIMARY KEY,
  topic TEXT NOT NULL,
  destination TEXT NOT NULL,
  priority INTEGER NOT NULL,
  n0 INTEGER NOT NULL DEFAULT 0,
  n1 INTEGER NOT NULL DEFAULT 0,
  n2 INTEGER NOT NULL DEFAULT 0,
  n3 INTEGER NOT NULL DEFAULT 0,
  n4 INTEGER NOT NULL DEFAULT 0,
  n5 INTEGER NOT NULL DEFAULT 0,
  n6 INTEGER NOT NULL DEFAULT 0,
  n7 INTEGER NOT NULL DEFAULT 0,
  n8 INTEGER NOT NULL DEFAULT 0,
  n9 INTEGER NOT NULL DEFAULT 0,
  n10 INTEGER NOT NULL DEFAULT 0,
  n11 INTEGER NOT NULL DEFAULT 0,
  UNIQUE (topic, destination, priority)
) STRICT;

CREATE TABLE log_heads (kind TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE logs (
  kind TEXT NOT NULL, sequence INTEGER NOT NULL, record TEXT NOT NULL,
  PRIMARY KEY (kind, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE maps (
  kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, revision INTEGER NOT NULL,
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;

-- outbox_bodies: the same

-- outbox_chunks: the same

-- outbox_contents: the same

-- outbox_entries: the same

-- outbox_entries_by_key: the same

-- outbox_entries_dedupe: the same

-- outbox_entries_due: the same

-- outbox_entries_ended: the same

-- outbox_entries_id: the same

-- outbox_flows: the same

CREATE TABLE "outbox_inbox" (
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  done_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE INDEX "outbox_inbox_expires_at" ON "outbox_inbox" (expires_at);

-- outbox_log_heads: the same

-- outbox_logs: the same

-- outbox_maps: the same

-- outbox_meta: the same

-- outbox_quarantine: the same

CREATE TABLE quarantine (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT,
  reason TEXT NOT NULL,
  row TEXT NOT NULL,
  envelope TEXT,
  body BLOB
) STRICT;

CREATE TABLE respool_once (
      scope TEXT NOT NULL, key TEXT NOT NULL, result TEXT NOT NULL, forget_at INTEGER NOT NULL,
      PRIMARY KEY (scope, key)
    ) WITHOUT ROWID;

CREATE INDEX respool_once_forget ON respool_once (forget_at);

-- Version 2: the outbox.  No parameters; several statements, run in one transaction.
--
-- Any language appends with a plain INSERT (topic, key, payload, headers) in its own transaction;
-- everything else has a default.  Times are microseconds since 1970: created_at is the wall clock at
-- the insert, next_attempt_at and published_at are on the file's own calendar (semel_meta), since
-- decisions hang on them.  headers: JSON, {"name": "value" | null | {"base64": ".."}}, or a list of
-- such pairs where names repeat; what is no such JSON is sent as one header `headers` (a CHECK of
-- json_valid() is refused on connections with trusted_schema off).  payload NULL is a tombstone,
-- which an empty blob is not.
--
-- AUTOINCREMENT: an id never comes again, also when the youngest row was published and deleted.
-- event_id: a uuid of version 7, which begins with the time: with random ones, each batch of the relay
-- touches every page of their index (100,000 rows in batches: 2.3 s of CPU, and 1.4 s like this).
-- There is no slot column: one relay owns all, and slots are computed when rows are read.
-- The partial indexes hold what is not done; a million kept rows cost the relay nothing.
CREATE TABLE semel_outbox (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id        TEXT    NOT NULL UNIQUE DEFAULT (
                    printf('%08x-%04x-7',
                      CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) >> 16,
                      CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) & 65535) ||
                    lower(substr(hex(randomblob(2)), 2) || '-' ||
                      substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) ||
                      '-' || hex(randomblob(6)))),
  topic           TEXT    NOT NULL CHECK (length(topic) BETWEEN 1 AND 249
                                       AND topic NOT GLOB '*[^A-Za-z0-9._-]*'),
  key             TEXT    CHECK (length(CAST(key AS BLOB)) <= 4096),
  payload         BLOB,
  headers         TEXT,
  traceparent     TEXT,
  "partition"     INTEGER CHECK ("partition" BETWEEN 0 AND 2147483647),
  status          TEXT    NOT NULL DEFAULT 'PENDING'
                  CHECK (status IN ('PENDING', 'PUBLISHED', 'DEAD')),
  attempts        INTEGER NOT NULL DEFAULT 0,
  next_attempt_at INTEGER,
  last_error      TEXT,
  created_at      INTEGER NOT NULL
                  DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  published_at    INTEGER
);
CREATE INDEX semel_outbox_pending ON semel_outbox (id) WHERE status = 'PENDING';
CREATE INDEX semel_outbox_retry ON semel_outbox (key, id) WHERE status = 'PENDING' AND attempts > 0;
CREATE INDEX semel_outbox_dead ON semel_outbox (id) WHERE status = 'DEAD';
CREATE INDEX semel_outbox_published ON semel_outbox (published_at, topic)
  WHERE status = 'PUBLISHED';
-- One row: which outbox this is.
CREATE TABLE semel_outbox_meta (
  one  INTEGER PRIMARY KEY CHECK (one = 1),
  uuid BLOB    NOT NULL,
  mode TEXT    NOT NULL
);
INSERT INTO semel_outbox_meta (one, uuid, mode) VALUES (1, randomblob(16), 'owned');
-- Who owns which slot.  An owner that is not behind the lock of the side file (byte 4) is gone.
CREATE TABLE semel_relay_slot (
  slot  INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  owner BLOB,
  info  TEXT
);
INSERT INTO semel_relay_slot (slot, epoch)
  WITH RECURSIVE n (slot) AS (SELECT 0 UNION ALL SELECT slot + 1 FROM n WHERE slot < 15)
  SELECT slot, 0 FROM n;
-- The audit is for operators' decisions about rows of the outbox too; of those, id is the event's.
ALTER TABLE semel_audit ADD COLUMN subject TEXT NOT NULL DEFAULT 'command';
ALTER TABLE semel_audit ADD COLUMN row_id INTEGER;
ALTER TABLE semel_audit ADD COLUMN row_count INTEGER;

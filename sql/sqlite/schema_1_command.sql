-- The tables of semel in one SQLite file.  No parameters; several statements, run in one transaction.
--
-- semel_command is a rowid table and keeps the reply in the row, last.  Measured with SQLite 3.40,
-- groups of 64, claim + completion with replies of 200 B, 2,000 B and 16,000 B, in microseconds of
-- CPU a pair:
--     rowid, reply in the row            41    57   100
--     rowid, reply in its own table      53    71    99
--     WITHOUT ROWID, reply in the row    67   107   215
--     WITHOUT ROWID, own table           79   110   165
-- Ids are digests: in a WITHOUT ROWID table every row, with its reply, lands in a random page.
-- The purge's walk costs at most 2 us a row, since nothing before the body is on an overflow page.
--
-- The only index besides the key is on created_us, which never changes: a claim's later writes touch
-- no index at all (rule A3).  Times: *_us are microseconds; lease_until_us, claimed_us and
-- request_until_us are of CLOCK_BOOTTIME in boot number `boot`; the others are on the file's own
-- calendar (semel_meta).
-- flags: 1 on_unknown = retry, 2 idempotent, 4 maybe_executed.
CREATE TABLE semel_command (
  id               BLOB    NOT NULL PRIMARY KEY,
  state            INTEGER NOT NULL,
  token            INTEGER NOT NULL,
  attempt          BLOB    NOT NULL,
  fingerprint      BLOB    NOT NULL,
  flags            INTEGER NOT NULL,
  boot             INTEGER NOT NULL,
  lease_until_us   INTEGER NOT NULL,
  lease_len_us     INTEGER NOT NULL,
  claimed_us       INTEGER NOT NULL,
  request_until_us INTEGER NOT NULL,
  retention_us     INTEGER NOT NULL,
  expire_us        INTEGER NOT NULL,
  created_us       INTEGER NOT NULL,
  mode             INTEGER NOT NULL,
  scope            BLOB,
  operation        BLOB,
  key              BLOB,
  holder           BLOB,
  status           INTEGER,
  reply_flags      INTEGER,
  headers          BLOB,
  body             BLOB
);
CREATE INDEX semel_command_created ON semel_command (created_us);
CREATE TABLE semel_audit (
  seq          INTEGER PRIMARY KEY,
  at_us        INTEGER NOT NULL,
  id           BLOB    NOT NULL,
  key          BLOB,
  verb         TEXT    NOT NULL,
  reason       TEXT,
  who          TEXT,
  state_before TEXT    NOT NULL,
  state_after  TEXT    NOT NULL
);
-- One row: whose boot the lease clock belongs to, and the file's own calendar
-- (src/store/sqlite/sqlite_clock.h).
CREATE TABLE semel_meta (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  boot_no   INTEGER NOT NULL,
  boot_id   BLOB    NOT NULL,
  boot_us   INTEGER NOT NULL,
  own_us    INTEGER NOT NULL,
  lag_us    INTEGER NOT NULL,
  settled   INTEGER NOT NULL,
  since_us  INTEGER NOT NULL,
  credit_us INTEGER NOT NULL
);
CREATE TABLE semel_schema_version (
  version INTEGER PRIMARY KEY,
  at_us   INTEGER NOT NULL
);

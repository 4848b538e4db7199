-- Version 3: the inbox.  Times are on the file's own calendar (semel_meta).
-- semel_processed_event: one row per event that a consumer has done; its key is the promise (rule D1).
CREATE TABLE semel_processed_event (
  consumer        TEXT NOT NULL,
  source          TEXT NOT NULL,
  event_id        TEXT NOT NULL,
  payload_hash    BLOB,
  processed_us    INTEGER NOT NULL,
  PRIMARY KEY (consumer, source, event_id)
) WITHOUT ROWID;
CREATE INDEX semel_processed_event_at ON semel_processed_event (consumer, processed_us);
-- Tries that were counted before they began (rule D3).
CREATE TABLE semel_inbox_attempt (
  consumer TEXT NOT NULL,
  source   TEXT NOT NULL,
  event_id TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  last_us  INTEGER NOT NULL,
  PRIMARY KEY (consumer, source, event_id)
) WITHOUT ROWID;
-- state: 0 DEAD, 1 RETRY, 2 RETRIED, 3 DISCARDED.
CREATE TABLE semel_dead_letter (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  consumer        TEXT NOT NULL,
  source          TEXT NOT NULL,
  event_id        TEXT,
  state           INTEGER NOT NULL DEFAULT 0,
  topic           TEXT NOT NULL,
  kafka_partition INTEGER NOT NULL,
  kafka_offset    INTEGER NOT NULL,
  key             BLOB,
  payload         BLOB,
  headers         TEXT NOT NULL,
  payload_hash    BLOB,
  attempts        INTEGER NOT NULL,
  reason          TEXT NOT NULL,
  dead_us         INTEGER NOT NULL,
  decided_us      INTEGER,
  decided_by      TEXT
);
CREATE INDEX semel_dead_letter_open ON semel_dead_letter (consumer, state, id)
WHERE state IN (0, 1);
CREATE UNIQUE INDEX semel_dead_letter_nameless
ON semel_dead_letter (consumer, topic, kafka_partition, kafka_offset, payload_hash)
WHERE event_id IS NULL;
CREATE TABLE semel_inbox_alarm (
  consumer        TEXT NOT NULL,
  source          TEXT NOT NULL,
  event_id        TEXT NOT NULL,
  payload_hash    BLOB NOT NULL,
  first_hash      BLOB NOT NULL,
  topic           TEXT NOT NULL,
  kafka_partition INTEGER NOT NULL,
  kafka_offset    INTEGER NOT NULL,
  seen_us         INTEGER NOT NULL,
  PRIMARY KEY (consumer, source, event_id, payload_hash)
) WITHOUT ROWID;

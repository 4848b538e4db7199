-- One row per event that a consumer has done; its key is the promise (rule D1).  Collation C: ids are
-- compared as bytes, in the order in which batches lock them.
CREATE TABLE semel.processed_event (
  consumer text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  payload_hash bytea CHECK (octet_length(payload_hash) = 32),
  processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, source, event_id)
)

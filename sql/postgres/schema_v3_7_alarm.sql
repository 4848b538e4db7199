-- One id came with two payloads: somebody reuses ids, and an event was not applied.
CREATE TABLE semel.inbox_alarm (
  consumer text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  payload_hash bytea NOT NULL,
  first_hash bytea NOT NULL,
  topic text NOT NULL,
  kafka_partition integer NOT NULL,
  kafka_offset bigint NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, source, event_id, payload_hash)
)

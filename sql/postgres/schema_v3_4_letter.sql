-- Events that could not be applied, whole, for an operator.  What the event brought is bytea, so that
-- no byte of it can fail the row.  state: 0 DEAD, 1 RETRY, 2 RETRIED, 3 DISCARDED.
CREATE TABLE semel.dead_letter (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  consumer text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  event_id text COLLATE "C",
  state smallint NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),
  topic text NOT NULL,
  kafka_partition integer NOT NULL,
  kafka_offset bigint NOT NULL,
  key bytea,
  payload bytea,
  headers text NOT NULL,
  payload_hash bytea,
  attempts integer NOT NULL,
  reason text NOT NULL,
  dead_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  decided_at timestamptz,
  decided_by text
)

-- Tries of events that were counted before they began (rule D3); gone when the event is done.
CREATE TABLE semel.inbox_attempt (
  consumer text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  event_id text COLLATE "C" NOT NULL,
  attempts integer NOT NULL,
  last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, source, event_id)
) WITH (fillfactor = 70)

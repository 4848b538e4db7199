-- For forgetting the oldest: always appended to at its right end.
CREATE INDEX processed_event_at ON semel.processed_event (processed_at)

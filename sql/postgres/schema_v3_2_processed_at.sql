-- For forgetting the oldest of one consumer: those of others, which may be kept longer, are not in the way.
CREATE INDEX processed_event_at ON semel.processed_event (consumer, processed_at)

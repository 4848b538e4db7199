-- What waits for an operator, or for a consumer.
CREATE INDEX dead_letter_open ON semel.dead_letter (consumer, state, id) WHERE state IN (0, 1)

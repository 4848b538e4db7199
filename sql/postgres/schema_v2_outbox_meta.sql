-- One row per outbox: its name in Kafka's transactional ids (rule C8), and the mode that its slots
-- are in (rule C8a).
CREATE TABLE semel.outbox_meta (
  outbox text PRIMARY KEY,
  uuid uuid NOT NULL DEFAULT gen_random_uuid(),
  mode text NOT NULL DEFAULT 'owned'
    CHECK (mode IN ('owned', 'single', 'two-phase', 'exactly-once')),
  groups smallint NOT NULL DEFAULT 4
)

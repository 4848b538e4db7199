-- One row per migration that was applied.
CREATE TABLE IF NOT EXISTS semel.schema_version (
  version integer PRIMARY KEY,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)

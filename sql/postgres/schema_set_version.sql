-- $1 version.
INSERT INTO semel.schema_version (version) VALUES ($1)

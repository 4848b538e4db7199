-- The schema version of this database.
SELECT max(version) FROM semel.schema_version

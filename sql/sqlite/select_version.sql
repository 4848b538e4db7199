-- The schema version of this file.
SELECT max(version) FROM semel_schema_version

-- The clock's mark and the schema version, read by every group.
SELECT boot_no, boot_id, boot_us, own_us, lag_us, settled, since_us, credit_us,
       (SELECT max(version) FROM semel_schema_version)
FROM semel_meta WHERE one = 1

-- One migration at a time; the number is "semel" in ASCII.
SELECT pg_advisory_xact_lock(495622907244)

-- Payloads are stored as they are: no time is spent on compressing what is read once.
ALTER TABLE semel.outbox ALTER COLUMN payload SET STORAGE EXTERNAL

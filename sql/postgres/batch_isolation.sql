-- Before anything else in a transaction.  Not SET LOCAL, which warns outside a block; this variable
-- goes back to its default with the next transaction anyway.
SET transaction_isolation = 'read committed'

-- ?1 boot_no, ?2 boot_id, ?3 boot_us, ?4 own_us, ?5 lag_us, ?6 settled, ?7 since_us, ?8 credit_us.
INSERT OR REPLACE INTO semel_meta
  (one, boot_no, boot_id, boot_us, own_us, lag_us, settled, since_us, credit_us)
VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

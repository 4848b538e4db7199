-- Changes when another connection commits.
PRAGMA data_version

/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_open: from a URL to a file that is safe to use: path, file system, permissions, schema, boot.
 */
#ifndef STORE_SQLITE_OPEN_H
#define STORE_SQLITE_OPEN_H

#include "store/sqlite/sqlite_gate.h"
#include "store/sqlite/sqlite_internal.h"
#include "store/sqlite/sqlite_session.h"

/* "sqlite:PATH" to a path that SQLite takes literally; the caller frees it. */
semel_code sqlite_url_path(const char *url, char **ret_path, semel_error *err);

/* Make the file if it is not there (mode 0600), check where it is, open it, make its schema.
 * `path` must outlive the session. */
semel_code sqlite_open_file(const char *path, const struct sys_clock *clock,
                            const struct sqlite_boot_id *boot_id,
                            const struct sqlite_hooks *hooks, struct sqlite_session *ret_ses,
                            struct sqlite_gate *ret_gate, semel_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_internal: what tests may change about a SQLite store.  Not for anybody else.
 */
#ifndef STORE_SQLITE_INTERNAL_H
#define STORE_SQLITE_INTERNAL_H

#include "store/sqlite/sqlite_clock.h"
#include "store/outbox.h"
#include "store/store.h"

struct sqlite_hooks {
        const struct sqlite_boot_id *boot_id; /* NULL: this host's */
        const char *vfs;                      /* NULL: SQLite's default */
        int max_page_count;                   /* 0: no limit */
        int open_wait_ms;                     /* 0: as long as for everybody */
};

semel_code sqlite_store_open_with(const char *url, const struct store_env *env,
                                  const struct sqlite_hooks *hooks, struct store **ret_st,
                                  semel_error *err);

/* An outbox session of which only the VFS and the largest page count of the hooks matter. */
semel_code sqlite_outbox_open_with(const char *url, const struct outbox_mapping *mapping,
                                   const struct sqlite_hooks *hooks, struct outbox_session **ret,
                                   semel_error *err);

/* Is a file system of this statfs magic one whose locks or clocks other machines share?
 * NULL: no; else its name. */
const char *sqlite_network_fs(unsigned long magic);

/* Claims of unknown outcome that wait to be undone (A7). */
size_t sqlite_store_orphans(struct store *st);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * fault_vfs: SQLite's own VFS, with a WAL that fails on command, and a write lock that others have.
 */
#ifndef TESTS_STORE_FAULT_VFS_H
#define TESTS_STORE_FAULT_VFS_H

#include <stdatomic.h>
#include <stdbool.h>

#define FAULT_VFS "semel-fault"

struct fault {
        atomic_int syncs;  /* so many fsyncs of the WAL fail from now on (-1: all) */
        atomic_int writes; /* so many writes of the WAL fail */
        atomic_int write_code; /* with this: SQLITE_FULL, SQLITE_IOERR_WRITE */
        atomic_int big_writes_from; /* only writes of the WAL beyond this offset fail, if > 0 */
        atomic_int writes_after_syncs; /* only writes of the WAL behind so many fsyncs fail, if > 0 */
        atomic_int locks;  /* so many tries for the write lock find it taken (-1: all) */
        atomic_int locks_next; /* as locks, behind a write that failed */
        atomic_bool hang;  /* fsyncs of the WAL wait for as long as this is true */
        atomic_int seen;   /* faults that happened */
        atomic_int synced; /* fsyncs of the WAL that were asked for */
};

extern struct fault fault;

/* Make it known to SQLite.  Twice is fine. */
void fault_vfs_register(void);
void fault_clear(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * fault_vfs: see fault_vfs.h.
 *
 * Files are opened by the default VFS; only the table of methods is exchanged for a copy, in which
 * xWrite and xSync of a WAL, and xShmLock of a database, are ours, and ours call the original.
 */
#include "fault_vfs.h"

#include <sqlite3.h>
#include <stddef.h>
#include <time.h>

struct fault fault;

static sqlite3_vfs vfs;
static sqlite3_io_methods wal_methods, db_methods;
static const sqlite3_io_methods *original, *db_original;

static bool take(atomic_int *count)
{
        int n = atomic_load(count);
        while (n != 0) {
                int left = n > 0 ? n - 1 : n;
                if (atomic_compare_exchange_weak(count, &n, left)) {
                        atomic_fetch_add(&fault.seen, 1);
                        return true;
                }
        }
        return false;
}

static int wal_write(sqlite3_file *file, const void *p, int n, sqlite3_int64 at)
{
        int from = atomic_load(&fault.big_writes_from);
        bool later = atomic_load(&fault.synced) >= atomic_load(&fault.writes_after_syncs);
        if ((from == 0 || at + n > from) && later && take(&fault.writes)) {
                atomic_fetch_add(&fault.locks, atomic_exchange(&fault.locks_next, 0));
                return atomic_load(&fault.write_code);
        }
        return original->xWrite(file, p, n, at);
}

static int wal_sync(sqlite3_file *file, int flags)
{
        const struct timespec nap = {.tv_nsec = 1000000};
        atomic_fetch_add(&fault.synced, 1);
        while (atomic_load(&fault.hang))
                (void)nanosleep(&nap, NULL); /* allowed: it is the hanging disk */
        int rc = original->xSync(file, flags);
        /* the bytes are there: what fails is only the answer, which is the worst case */
        return take(&fault.syncs) ? SQLITE_IOERR_FSYNC : rc;
}

/* Lock 0 is the writer's. */
static int db_shm_lock(sqlite3_file *file, int at, int n, int flags)
{
        if (at == 0 && n == 1 && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE) &&
            take(&fault.locks))
                return SQLITE_BUSY;
        return db_original->xShmLock(file, at, n, flags);
}

static int fault_open(sqlite3_vfs *self, const char *name, sqlite3_file *file, int flags,
                      int *ret_flags)
{
        sqlite3_vfs *base = self->pAppData;
        int rc = base->xOpen(base, name, file, flags, ret_flags);
        if (rc == SQLITE_OK && (flags & SQLITE_OPEN_WAL) && file->pMethods) {
                if (!original) {
                        original = file->pMethods;
                        wal_methods = *original;
                        wal_methods.xWrite = wal_write;
                        wal_methods.xSync = wal_sync;
                }
                file->pMethods = &wal_methods;
        }
        if (rc == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB) && file->pMethods) {
                if (!db_original) {
                        db_original = file->pMethods;
                        db_methods = *db_original;
                        db_methods.xShmLock = db_shm_lock;
                }
                file->pMethods = &db_methods;
        }
        return rc;
}

void fault_vfs_register(void)
{
        sqlite3_vfs *base = sqlite3_vfs_find(NULL);
        if (sqlite3_vfs_find(FAULT_VFS))
                return;
        vfs = *base;
        vfs.zName = FAULT_VFS;
        vfs.pAppData = base;
        vfs.xOpen = fault_open;
        (void)sqlite3_vfs_register(&vfs, 0);
}

void fault_clear(void)
{
        atomic_store(&fault.syncs, 0);
        atomic_store(&fault.writes, 0);
        atomic_store(&fault.big_writes_from, 0);
        atomic_store(&fault.writes_after_syncs, 0);
        atomic_store(&fault.locks, 0);
        atomic_store(&fault.locks_next, 0);
        atomic_store(&fault.hang, false);
        atomic_store(&fault.seen, 0);
        atomic_store(&fault.synced, 0);
}

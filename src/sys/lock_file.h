/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file: a lock that lives as long as any process that inherited it.
 *
 * An open-file-description lock belongs to the open file, not to a process: a child that
 * inherits the descriptor keeps the lock though its parent died.  It ends when the last
 * descriptor is closed, also by SIGKILL and power loss, so nothing has to be cleaned up.
 *
 *     struct lock_file lock;
 *     if (lock_file_open(&lock, path) == 0 && lock_file_try(&lock) == 1) ...
 *     lock_file_remove(&lock);   // unlock for everybody who inherited it, and unlink
 *     lock_file_close(&lock);    // or: leave it to those who inherited it
 */
#ifndef SYS_LOCK_FILE_H
#define SYS_LOCK_FILE_H

#include "sys/files.h"

struct lock_file {
        int fd; /* close-on-exec; process_start() lets the child keep it */
        char path[FILES_PATH_BYTES_MAX];
};

/* Open or make the file.  0, or -1 with errno. */
int lock_file_open(struct lock_file *lock, const char *path);

/* 1: it is ours; 0: somebody else's; -1 with errno.  May reopen the file: another
 * holder unlinks it when it is done. */
int lock_file_try(struct lock_file *lock);

void lock_file_remove(struct lock_file *lock);
void lock_file_close(struct lock_file *lock);

/* Does anybody hold it?  1 yes; 0 no, or there is no such file; -1 with errno: cannot tell. */
int lock_file_test(const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * files: the state directory, small files, and writing all of something.
 */
#ifndef SYS_FILES_H
#define SYS_FILES_H

#include "base/buf.h"

enum { FILES_PATH_BYTES_MAX = 512 };

/* Where semel keeps what must outlive it: $SEMEL_STATE_DIR; /var/lib/semel for root; else
 * $XDG_STATE_HOME/semel, else ~/.local/state/semel.  0, or -1 with errno: ENOENT (no home
 * directory is known), ENAMETOOLONG. */
int state_dir(char *ret /* FILES_PATH_BYTES_MAX */);

/* Make a folder and those above it, readable by this user only.  0, or -1 with errno. */
int dir_make(const char *path);

/* Append a file ("-" is stdin) to the buf.  0, or -1 with errno; EFBIG beyond the buf's maximum. */
int file_read(const char *path, struct buf *b);

/* Write all of it, over signals and short writes; waits for room.  0, or -1 with errno. */
int fd_write_all(int fd, const void *p, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file: see lock_file.h.
 */
#include "sys/lock_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_path(const char *path)
{
        return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int lock_file_open(struct lock_file *lock, const char *path)
{
        size_t n = strlen(path);
        if (n >= sizeof lock->path) {
                errno = ENAMETOOLONG;
                return -1;
        }
        int fd = open_path(path);
        if (fd < 0)
                return -1;
        lock->fd = fd;
        memcpy(lock->path, path, n + 1);
        return 0;
}

/* Is the open file still the one that the path names? */
static bool is_current(const struct lock_file *lock)
{
        struct stat open_st, path_st;
        return fstat(lock->fd, &open_st) == 0 && stat(lock->path, &path_st) == 0 &&
               open_st.st_dev == path_st.st_dev && open_st.st_ino == path_st.st_ino;
}

int lock_file_try(struct lock_file *lock)
{
        /* Each turn of the loop means that a holder has finished in between. */
        for (int i = 0; i < 100; i++) {
                struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
                if (fcntl(lock->fd, F_OFD_SETLK, &whole) != 0)
                        return errno == EAGAIN || errno == EACCES ? 0 : -1;
                if (is_current(lock))
                        return 1;
                int fd = open_path(lock->path);
                if (fd < 0)
                        return -1;
                (void)close(lock->fd);
                lock->fd = fd;
        }
        return 0;
}

void lock_file_remove(struct lock_file *lock)
{
        if (lock->fd < 0)
                return;
        (void)unlink(lock->path); /* before the unlock: who gets the lock then sees it is gone */
        struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        (void)fcntl(lock->fd, F_OFD_SETLK, &whole);
}

void lock_file_close(struct lock_file *lock)
{
        if (lock->fd >= 0)
                (void)close(lock->fd);
        lock->fd = -1;
}

int lock_file_test(const char *path)
{
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int rc = fcntl(fd, F_OFD_GETLK, &whole), saved = errno;
        (void)close(fd);
        errno = saved;
        return rc != 0 ? -1 : whole.l_type != F_UNLCK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * files: see files.h.
 */
#include "sys/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int state_dir(char *ret)
{
        const char *base = getenv("SEMEL_STATE_DIR"), *below = "semel";
        if (base && base[0] == '/') {
                below = ".";
        } else if (geteuid() == 0) {
                base = "/var/lib";
        } else {
                base = getenv("XDG_STATE_HOME");
                if (!base || base[0] != '/') { /* a relative one is ignored, says its standard */
                        base = getenv("HOME");
                        below = ".local/state/semel";
                }
                if (!base || base[0] != '/') {
                        const struct passwd *pw = getpwuid(geteuid());
                        base = pw ? pw->pw_dir : NULL;
                }
                if (!base || base[0] != '/') {
                        errno = ENOENT;
                        return -1;
                }
        }
        char path[FILES_PATH_BYTES_MAX];
        int n = below[0] == '.' && !below[1] ? snprintf(path, sizeof path, "%s", base)
                                             : snprintf(path, sizeof path, "%s/%s", base, below);
        if (n < 0 || (size_t)n >= sizeof path) {
                errno = ENAMETOOLONG;
                return -1;
        }
        memcpy(ret, path, (size_t)n + 1);
        return 0;
}

int dir_make(const char *path)
{
        char part[FILES_PATH_BYTES_MAX];
        size_t n = strlen(path);
        if (n == 0 || n >= sizeof part) {
                errno = n ? ENAMETOOLONG : ENOENT;
                return -1;
        }
        memcpy(part, path, n + 1);
        for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
                *slash = 0;
                if (mkdir(part, 0755) != 0 && errno != EEXIST)
                        return -1;
                *slash = '/';
        }
        if (mkdir(part, 0700) == 0)
                return 0;
        struct stat st;
        if (errno == EEXIST && stat(part, &st) == 0) {
                if (S_ISDIR(st.st_mode))
                        return 0;
                errno = ENOTDIR;
        }
        return -1;
}

int file_read(const char *path, struct buf *b)
{
        bool is_stdin = strcmp(path, "-") == 0;
        int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc = -1;
        if (fd < 0)
                return -1;
        for (;;) {
                char chunk[16384];
                ssize_t n = read(fd, chunk, sizeof chunk);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0) {
                        rc = n == 0 ? 0 : -1;
                        break;
                }
                int added = buf_append(b, chunk, (size_t)n);
                if (added != BUF_OK) {
                        errno = added == BUF_FULL ? EFBIG : ENOMEM;
                        break;
                }
        }
        int saved = errno;
        if (!is_stdin)
                (void)close(fd);
        errno = saved;
        return rc;
}

int fd_write_all(int fd, const void *p, size_t n)
{
        const char *at = p;
        while (n > 0) {
                ssize_t written = write(fd, at, n);
                if (written < 0 && errno == EINTR)
                        continue;
                if (written < 0 && errno == EAGAIN) { /* whoever gave it to us made it so */
                        struct pollfd room = {.fd = fd, .events = POLLOUT};
                        (void)poll(&room, 1, -1);
                        continue;
                }
                if (written < 0)
                        return -1;
                at += written;
                n -= (size_t)written;
        }
        return 0;
}

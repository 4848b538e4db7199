/* SPDX-License-Identifier: Apache-2.0
 *
 * secret_file: see secret_file.h.
 */
#include "app/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

semel_code secret_file_read(const char *path, char ret[SECRET_BYTES_MAX + 1], size_t *ret_n,
                            semel_error *err)
{
        char text[SECRET_BYTES_MAX + 2];
        struct stat sb;
        semel_code code = SEMEL_OK;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return err_set_errno(err, SEMEL_ERR_ACCESS, errno, "cannot read the secret in %s",
                                     path);
        ssize_t n = read(fd, text, sizeof text);
        if (n < 0 || fstat(fd, &sb) != 0)
                code = err_set_errno(err, SEMEL_ERR_ACCESS, errno, "cannot read the secret in %s",
                                     path);
        else if (sb.st_mode & (S_IRWXO | S_IWGRP))
                code = err_set(err, SEMEL_ERR_ACCESS,
                               "the secret in %s can be read by everybody: chmod 600 %s", path, path);
        (void)close(fd);
        if (code != SEMEL_OK)
                return code;
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
                n--;
        if (n < SECRET_BYTES_MIN || n > SECRET_BYTES_MAX)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the secret in %s must be %d to %d bytes long: try `openssl rand -hex 32`",
                               path, SECRET_BYTES_MIN, SECRET_BYTES_MAX);
        memcpy(ret, text, (size_t)n);
        ret[n] = 0;
        *ret_n = (size_t)n;
        return SEMEL_OK;
}

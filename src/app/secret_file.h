/* SPDX-License-Identifier: Apache-2.0
 *
 * secret_file: a secret in a file of its own, so that it stands in no argv and no config.
 */
#ifndef APP_SECRET_FILE_H
#define APP_SECRET_FILE_H

#include <stddef.h>

#include <semel/error.h>

enum { SECRET_BYTES_MIN = 16, SECRET_BYTES_MAX = 255 };

/* Read it, without the line end.  Errors: SEMEL_ERR_ACCESS (not there, or others may read it),
 * SEMEL_ERR_ARGUMENT (too short to be one, or too long). */
semel_code secret_file_read(const char *path, char ret[SECRET_BYTES_MAX + 1], size_t *ret_n,
                            semel_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * err: the error value behind the public semel_error.  Fixed size, so that "out of
 * memory" can be reported without memory.  Functions that fail return the code and fill `err`
 * when it is not NULL; they never log.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <semel/error.h>

enum { ERR_TEXT_BYTES_MAX = 640 };

struct semel_error {
        semel_code code;
        semel_class class;
        int sys_errno;
        char sqlstate[6];
        int retry_after_s;         /* beside an IN_FLIGHT outcome */
        char first_operation[256]; /* beside a MISMATCH outcome */
        char text[ERR_TEXT_BYTES_MAX];
};



/* Forget everything.  NULL is fine. */
void err_clear(semel_error *err);

/* Fill it and return `code`.  The text is one sentence: what is wrong, what to do.
 * The class follows from the code (err_class_of). */
semel_code err_set(semel_error *err, semel_code code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* The same, with ": <strerror>" behind it and errno kept. */
semel_code err_set_errno(semel_error *err, semel_code code, int sys_errno, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/* Copy; either may be NULL.  Returns the code of `src`. */
semel_code err_copy(semel_error *dst, const semel_error *src);

semel_class err_class_of(semel_code code);

/* A short stable name, such as "store-down". */
const char *err_code_name(semel_code code);

#endif

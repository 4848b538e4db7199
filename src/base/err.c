/* SPDX-License-Identifier: Apache-2.0
 *
 * err: see err.h.  The public functions over it are in api/error.c.
 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* One row per code: its public name and what a caller may do about it. */
static const struct {
        semel_code code;
        semel_class class;
        const char *name;
} codes[] = {
        {SEMEL_OK, SEMEL_CLASS_NONE, "ok"},
        {SEMEL_ERR_ARGUMENT, SEMEL_CLASS_FATAL, "argument"},
        {SEMEL_ERR_NO_MEMORY, SEMEL_CLASS_RETRYABLE, "no-memory"},
        {SEMEL_ERR_URL, SEMEL_CLASS_FATAL, "url"},
        {SEMEL_ERR_NOT_LINKED, SEMEL_CLASS_FATAL, "not-linked"},
        {SEMEL_ERR_STORE_DOWN, SEMEL_CLASS_RETRYABLE, "store-down"},
        {SEMEL_ERR_STORE_FULL, SEMEL_CLASS_RETRYABLE, "store-full"},
        {SEMEL_ERR_STORE_READ_ONLY, SEMEL_CLASS_RETRYABLE, "store-read-only"},
        {SEMEL_ERR_SCHEMA, SEMEL_CLASS_FATAL, "schema"},
        {SEMEL_ERR_ACCESS, SEMEL_CLASS_FATAL, "access"},
        {SEMEL_ERR_BUSY, SEMEL_CLASS_RETRYABLE, "busy"},
        {SEMEL_ERR_CONFLICT, SEMEL_CLASS_CONFLICT, "conflict"},
        {SEMEL_ERR_TX_STATE, SEMEL_CLASS_FATAL, "transaction-state"},
        {SEMEL_ERR_LOST, SEMEL_CLASS_CONFLICT, "lost"},
        {SEMEL_ERR_UNKNOWN, SEMEL_CLASS_UNKNOWN, "unknown"},
        {SEMEL_ERR_TOO_LARGE, SEMEL_CLASS_FATAL, "too-large"},
        {SEMEL_ERR_CORRUPT, SEMEL_CLASS_FATAL, "corrupt"},
        {SEMEL_ERR_NOT_FOUND, SEMEL_CLASS_CONFLICT, "not-found"},
        {SEMEL_ERR_REFUSED, SEMEL_CLASS_CONFLICT, "refused"},
        {SEMEL_ERR_KEY, SEMEL_CLASS_FATAL, "key"},
        {SEMEL_ERR_UNSAFE, SEMEL_CLASS_FATAL, "unsafe"},
        {SEMEL_ERR_INTERNAL, SEMEL_CLASS_FATAL, "internal"},
        {SEMEL_ERR_PEER_DOWN, SEMEL_CLASS_RETRYABLE, "peer-down"},
};

semel_class err_class_of(semel_code code)
{
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
                if (codes[i].code == code)
                        return codes[i].class;
        return SEMEL_CLASS_FATAL;
}

const char *err_code_name(semel_code code)
{
        for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
                if (codes[i].code == code)
                        return codes[i].name;
        return "?";
}

void err_clear(semel_error *err)
{
        if (!err)
                return;
        err->code = SEMEL_OK;
        err->class = SEMEL_CLASS_NONE;
        err->sys_errno = 0;
        err->retry_after_s = 0;
        err->sqlstate[0] = err->first_operation[0] = err->text[0] = 0;
}

/* What was cut ends behind a whole character: it goes into logs, JSON and databases. */
static void end_at_character(semel_error *err)
{
        char *text = err->text;
        size_t n = strlen(text), at = n;
        if (n + 1 < sizeof err->text)
                return;
        while (at > 0 && n - at < 3 && ((uint8_t)text[at - 1] & 0xc0) == 0x80)
                at--;
        if (at > 0 && (uint8_t)text[at - 1] >= 0xc0 &&
            utf8_char(span_of(text + at - 1, n - (at - 1))) == 0)
                text[at - 1] = '\0';
}

__attribute__((format(printf, 3, 0)))
static void set_text(semel_error *err, semel_code code, const char *fmt, va_list ap)
{
        err_clear(err);
        err->code = code;
        err->class = err_class_of(code);
        (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
        end_at_character(err);
}

semel_code err_set(semel_error *err, semel_code code, const char *fmt, ...)
{
        if (err) {
                va_list ap;
                va_start(ap, fmt);
                set_text(err, code, fmt, ap);
                va_end(ap);
        }
        return code;
}

semel_code err_set_errno(semel_error *err, semel_code code, int sys_errno, const char *fmt, ...)
{
        if (err) {
                va_list ap;
                va_start(ap, fmt);
                set_text(err, code, fmt, ap);
                va_end(ap);
                err->sys_errno = sys_errno;
                size_t n = strlen(err->text);
                const char *why = strerrordesc_np(sys_errno);
                (void)snprintf(err->text + n, sizeof err->text - n, ": %s", why ? why : "?");
                end_at_character(err);
        }
        return code;
}

semel_code err_copy(semel_error *dst, const semel_error *src)
{
        if (!src)
                return SEMEL_OK;
        if (src->code == SEMEL_OK)
                err_clear(dst); /* a copy of nothing is cheap */
        else if (dst && dst != src)
                *dst = *src;
        return src->code;
}

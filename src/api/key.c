/* SPDX-License-Identifier: Apache-2.0
 *
 * key: semel/key.h over core/key.h.
 */
#include <semel/key.h>

#include "base/err.h"
#include "core/key.h"

_Static_assert(SEMEL_KEY_BYTES_MAX == (int)LIMIT_KEY_BYTES, "one limit, said twice");

semel_code semel_key_join(const char *const *parts, size_t n, char *ret, semel_error *err)
{
        enum { PARTS_MAX = LIMIT_KEY_BYTES };
        struct span spans[PARTS_MAX];
        struct key key;
        if (n > PARTS_MAX)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "a key of %zu parts is over %d bytes", n,
                               SEMEL_KEY_BYTES_MAX);
        for (size_t i = 0; i < n; i++)
                spans[i] = span_str(parts[i]);
        switch (key_join(spans, n, &key)) {
        case KEY_OK:
                memcpy(ret, key.text, key.n + 1);
                return SEMEL_OK;
        case KEY_TOO_LONG:
                return err_set(err, SEMEL_ERR_TOO_LARGE, "the joined key is over %d bytes",
                               SEMEL_KEY_BYTES_MAX);
        default:
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a key needs at least one part, and no part may be empty");
        }
}

semel_code semel_key_parse(const char *value, size_t n, char *ret, semel_error *err)
{
        struct key key;
        enum key_result result = key_parse(span_of(value, n), &key);
        if (result != KEY_OK)
                return err_set(err, SEMEL_ERR_KEY, "the Idempotency-Key is malformed: %s",
                               key_result_text(result));
        memcpy(ret, key.text, key.n + 1);
        return SEMEL_OK;
}

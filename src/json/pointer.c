/* SPDX-License-Identifier: Apache-2.0
 *
 * pointer: see pointer.h.
 */
#include "json/pointer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_BYTES_MAX = 256 };

bool json_pointer_is_valid(const char *pointer)
{
        if (*pointer != '/' && *pointer != '\0')
                return false;
        for (const char *p = pointer; *p; p += strcspn(p, "/")) {
                p++;
                if (strcspn(p, "/") >= STEP_BYTES_MAX)
                        return false;
        }
        for (const char *p = strchr(pointer, '~'); p; p = strchr(p + 1, '~'))
                if (p[1] != '0' && p[1] != '1')
                        return false;
        return true;
}

/* The reference token at p, unescaped; returns what is behind it. */
static const char *take_step(const char *p, char step[STEP_BYTES_MAX])
{
        size_t n = 0;
        for (; *p && *p != '/'; p++) {
                char c = *p;
                if (c == '~')
                        c = *++p == '1' ? '/' : '~';
                step[n++] = c;
        }
        step[n] = '\0';
        return p;
}

static const json_t *go(const json_t *at, const char *step)
{
        if (json_is_object(at))
                return json_object_get(at, step);
        if (!json_is_array(at) || *step < '0' || *step > '9' || strlen(step) > 9)
                return NULL;
        return json_array_get(at, strtoul(step, NULL, 10));
}

int json_pointer_text(struct span json, const char *pointer, struct buf *out)
{
        json_error_t ignored;
        char step[STEP_BYTES_MAX];
        int rc = -1;
        json_t *root = json_loadb((const char *)json.p, json.n,
                                  JSON_DECODE_ANY | JSON_ALLOW_NUL, &ignored);
        const json_t *at = root;
        for (const char *p = pointer; *p == '/' && at;) {
                p = take_step(p + 1, step);
                at = go(at, step);
        }
        if (json_is_string(at))
                rc = buf_append(out, json_string_value(at), json_string_length(at));
        else if (json_is_integer(at))
                rc = buf_printf(out, "%lld", (long long)json_integer_value(at));
        json_decref(root);
        return rc == BUF_OK ? 0 : -1;
}

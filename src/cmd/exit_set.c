/* SPDX-License-Identifier: Apache-2.0
 *
 * exit_set: see exit_set.h.
 */
#include "cmd/exit_set.h"

#include <string.h>

/* 0..255, or -1; *p moves behind it. */
static int parse_code(const char **p)
{
        int code = 0;
        if (**p < '0' || **p > '9')
                return -1;
        for (; **p >= '0' && **p <= '9'; ++*p) {
                code = code * 10 + (**p - '0');
                if (code > 255)
                        return -1;
        }
        return code;
}

bool exit_set_parse(const char *text, struct exit_set *ret)
{
        struct exit_set set = {{false}};
        if (strcmp(text, "any-failure") == 0) {
                for (int i = 1; i < 256; i++)
                        set.has[i] = true;
                *ret = set;
                return true;
        }
        for (const char *p = text;; p++) {
                int from = parse_code(&p), to = from;
                if (*p == '-') {
                        p++;
                        to = parse_code(&p);
                }
                if (from < 0 || to < from || (*p && *p != ','))
                        return false;
                for (int i = from; i <= to; i++)
                        set.has[i] = true;
                if (!*p)
                        break;
        }
        *ret = set;
        return true;
}

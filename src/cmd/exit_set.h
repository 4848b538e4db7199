/* SPDX-License-Identifier: Apache-2.0
 *
 * exit_set: a set of exit codes as people write it: "any-failure", or "3,75,100-110".
 */
#ifndef CMD_EXIT_SET_H
#define CMD_EXIT_SET_H

#include <stdbool.h>
#include <stdint.h>

struct exit_set {
        bool has[256];
};

/* false: the text is no such set; ret is untouched. */
bool exit_set_parse(const char *text, struct exit_set *ret);

static inline bool exit_set_has(const struct exit_set *set, int code)
{
        return code >= 0 && code < 256 && set->has[code];
}

#endif

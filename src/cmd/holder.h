/* SPDX-License-Identifier: Apache-2.0
 *
 * holder: who runs a key: the label that `semel run` writes into the row, and what can be
 * learned from it here and now (rule A10).
 *
 *     host=web-3 pid=4711 boot=6a1c... lock=/var/lib/semel/locks/2f...
 */
#ifndef CMD_HOLDER_H
#define CMD_HOLDER_H

#include <stdbool.h>

#include "core/limits.h"

struct holder {
        char host[LIMIT_HOLDER_BYTES + 1];
        char boot[LIMIT_HOLDER_BYTES + 1];
        char lock[LIMIT_HOLDER_BYTES + 1];
        char pid[24];
};

/* Fields that are not there are empty. */
void holder_parse(const char *label, struct holder *ret);

/* This process's label.  false: it does not fit into LIMIT_HOLDER_BYTES. */
bool holder_format(const char *lock_path, char *ret /* LIMIT_HOLDER_BYTES + 1 */);

enum holder_life {
        HOLDER_NO_LOCK,    /* the label names none: not made by `semel run` */
        HOLDER_ELSEWHERE,  /* another host: nobody can see from here */
        HOLDER_REBOOTED,   /* this host, an earlier boot: it is gone */
        HOLDER_ALIVE,      /* the lock is held: it, or a child of it, lives */
        HOLDER_GONE,       /* nobody holds the lock */
        HOLDER_UNREADABLE, /* the lock cannot be tested by this user */
};

enum holder_life holder_look(const struct holder *h);
const char *holder_life_text(enum holder_life life);

#endif

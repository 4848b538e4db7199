/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_gate: the queue of the processes that write one SQLite file (rule B9).
 *
 * SQLite's own write lock has no queue: who asks more often wins, and a process that commits one
 * group after the other starves the rest for seconds.  So each store passes a gate before it
 * asks SQLite, one byte of a side file (PATH-semel-lock) locked with an open-file-description lock,
 * which dies with its process:
 *
 *     byte 0  the gate: exclusive, for one group
 *     byte 1  "I am waiting": shared, so that the one inside knows to make room
 *     byte 2  "I have the file open": shared, for as long as the store lives
 *     byte 3  opening: exclusive, around schema and boot check
 *     byte 4  the relay: exclusive, for as long as it owns the outbox's slots (rule C1)
 *
 * The gate is manners, not safety: a stopped process may hold it, so after GATE_WAIT_MS one goes
 * on without it, and SQLite's lock decides.
 */
#ifndef STORE_SQLITE_GATE_H
#define STORE_SQLITE_GATE_H

#include <stdbool.h>

#include "base/err.h"

enum {
        GATE_WAIT_MS = 250,     /* a group of a healthy process takes a tenth of that */
        GATE_OPEN_WAIT_MS = 10000, /* ten processes that start at once, on a slow disk */
};

struct sqlite_gate {
        int fd; /* -1: closed */
        bool inside;
};

/* Open (make) the side file of `path`. */
semel_code gate_open(struct sqlite_gate *gate, const char *path, semel_error *err);
/* Gives all locks up.  Safe twice. */
void gate_close(struct sqlite_gate *gate);

/* Wait for the gate, at most GATE_WAIT_MS; go on either way. */
void gate_enter(struct sqlite_gate *gate);
/* Give it up; when others wait, pause until one of them is in, or for a moment. */
void gate_leave(struct sqlite_gate *gate);

/* The opening lock; false: not had within GATE_OPEN_WAIT_MS. */
bool gate_opening_lock(struct sqlite_gate *gate);
void gate_opening_unlock(struct sqlite_gate *gate);

/* Say that this store has the file open. */
void gate_set_live(struct sqlite_gate *gate);
/* The relay's lock.  False: another one has it. */
bool gate_relay_take(struct sqlite_gate *gate);
void gate_relay_give(struct sqlite_gate *gate);
bool gate_relay_elsewhere(const struct sqlite_gate *gate);
/* Does another store have it open? */
bool gate_others_live(const struct sqlite_gate *gate);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * held: the keys that this process holds now, and its callers who wait for one.
 *
 * Two uses.  A storm of duplicates of a key that this process is running is answered here
 * and never reaches the database (H19).  And whoever waits for a running duplicate of this
 * process is woken the moment it ends; holders elsewhere are polled.
 *
 * An entry says "busy" only while the holder's own lease, counted from before its claim
 * was sent, is alive: then the store would say the same.
 */
#ifndef API_HELD_H
#define API_HELD_H

#include "core/command.h"

struct held;

struct held *held_new(void);
void held_free(struct held *held); /* must be empty; NULL is fine */

/* One held key; lives in the claim. */
struct held_entry {
        struct command_id id;
        struct command_fingerprint fingerprint;
        int64_t claimed_us, deadline_us; /* host CLOCK_BOOTTIME */
        bool linked;
        struct held_entry *next;
};

void held_add(struct held *held, struct held_entry *entry);

/* The lease was extended. */
void held_extend(struct held *held, struct held_entry *entry, int64_t deadline_us);

/* The claim ended, one way or the other: wakes those who wait for its key.  Twice is fine. */
void held_remove(struct held *held, struct held_entry *entry);

/* Does this process hold this key for this very request, with its lease alive at now_us?
 * Then *ret_held_us says for how long already, *ret_left_us how long the lease still is. */
bool held_busy(struct held *held, const struct command_id *id,
               const struct command_fingerprint *fingerprint, int64_t now_us,
               int64_t *ret_held_us, int64_t *ret_left_us);

/* One who waits.  Begin before claiming, so that an end in between is not missed:
 *
 *     held_wait_begin(held, &w, &id)       // false: too many wait already
 *     for (;;) { claim; if it is not busy, break; held_wait_sleep(held, &w, us); }
 *     held_wait_end(held, &w)
 */
struct held_waiter {
        struct command_id id;
        bool woken;
        struct held_waiter *next;
};

bool held_wait_begin(struct held *held, struct held_waiter *w, const struct command_id *id);
void held_wait_sleep(struct held *held, struct held_waiter *w, int64_t us);
void held_wait_end(struct held *held, struct held_waiter *w);

#endif

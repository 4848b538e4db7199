/* SPDX-License-Identifier: Apache-2.0
 *
 * command: the state machine of an idempotent command.
 *
 * Pure: rows and times in, decisions out.  No clock, no I/O, no allocation.  Two tables
 * in command.c decide everything; nothing else in semel sets a state.  The diagram in
 * docs/states.md is printed from them (tools/print-states).
 *
 *      claim           FREE ---> IN_FLIGHT ---> COMPLETED
 *                                 |   ^  \
 *                                 +---+   +---> UNKNOWN
 *                               (takeover)
 *
 * How a store uses it: read the row and the store's clock inside whatever makes the next
 * write atomic, call command_claim() / command_write() / ... on the row in memory, and
 * write the row back if `changed`.  A store that cannot hold a lock between the two
 * (PostgreSQL) writes with a guard on (id, token, attempt, state, lease_until, expire_at)
 * as read, and starts again when the guard finds no row.
 *
 * Times are microseconds.  There are two clocks, because they fail differently:
 *   lease_us  never steps, for leases (SQLite: CLOCK_BOOTTIME; PostgreSQL: its clock)
 *   wall_us   calendar time, for retention, and for the first token of a new row
 * A moment of the lease clock that is 0 was before the last boot: long ago, and nobody knows when.
 */
#ifndef CORE_COMMAND_H
#define CORE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"

enum { COMMAND_ID_BYTES = 32, COMMAND_ATTEMPT_BYTES = 16, COMMAND_FINGERPRINT_BYTES = 32 };

struct command_id {
        uint8_t b[COMMAND_ID_BYTES];
};

/* A random nonce per acquisition.  What tells two holders apart is this, never their
 * payload, host or pid (H3, H11). */
struct command_attempt {
        uint8_t b[COMMAND_ATTEMPT_BYTES];
};

struct command_fingerprint {
        uint8_t b[COMMAND_FINGERPRINT_BYTES];
};

/* The numbers are stored; never renumber. */
enum command_state {
        COMMAND_FREE = 0,
        COMMAND_IN_FLIGHT = 1,
        COMMAND_COMPLETED = 2,
        COMMAND_UNKNOWN = 3,
};
enum { COMMAND_STATES = 4 };

/* Stored at the claim (rule A5). */
struct command_policy {
        bool retry;      /* on_unknown = retry; false is hold */
        bool idempotent; /* the other side dedupes on the key */
};

struct command_now {
        int64_t lease_us;
        int64_t wall_us;
        bool expiry_frozen; /* the wall clock cannot be trusted now: nothing expires (A6) */
};

/* The part of a row that decisions look at. */
struct command_row {
        struct command_id id;
        enum command_state state;
        int64_t token;
        struct command_attempt attempt;
        struct command_fingerprint fingerprint;
        struct command_policy policy;
        bool maybe_executed;  /* an earlier holder was taken over (A5a) */
        int64_t lease_until_us; /* on the lease clock */
        int64_t lease_len_us;
        int64_t claimed_us;   /* lease clock, of this acquisition */
        int64_t request_until_us; /* lease clock: until then a request may still act (A5b) */
        int64_t retention_us;
        int64_t expire_us;    /* wall clock; meaningful in COMPLETED and FREE only (A3) */
        int64_t created_us;   /* wall clock; never changes */
};

/* -- claim ---------------------------------------------------------------------- */

struct command_claim {
        struct command_id id;
        struct command_attempt attempt;
        struct command_fingerprint fingerprint;
        struct command_policy policy;
        int64_t lease_us;
        int64_t retention_us;
        int64_t request_us; /* how long after the claim a request may still have an effect */
};

enum command_outcome {
        COMMAND_RUN,       /* the claim is held: row.token, row.attempt */
        COMMAND_BUSY,      /* another holder's lease is alive */
        COMMAND_REPLAY,    /* the kept reply answers */
        COMMAND_MISMATCH,  /* the key was used for another request */
        COMMAND_IS_UNKNOWN /* nobody can know; an operator resolves it */
};

struct command_answer {
        enum command_outcome outcome;
        bool changed;          /* the row must be written */
        bool inserted;         /* the row is new (there was none) */
        bool took_over;        /* RUN after somebody else's lease, or from UNKNOWN */
        int64_t token;         /* of the row as it is now */
        int64_t lease_left_us; /* RUN and BUSY: by the store's clock; may be <= 0 in RUN */
};

/* Decide a claim.
 * row      the row as read, or zeroed when `exists` is false; changed in place.
 * A row that already carries the claim's own attempt and is IN_FLIGHT answers RUN again
 * without a change: the claim was issued twice because its COMMIT's answer was lost (A7).  It also says
 * again whether it took over. */
struct command_answer command_claim(struct command_row *row, bool exists,
                                    const struct command_claim *claim, struct command_now now);

/* -- writes by the holder --------------------------------------------------------- */

enum command_write_kind {
        COMMAND_COMPLETE,
        COMMAND_RELEASE,              /* it failed: nothing happened */
        COMMAND_RELEASE_NOT_EXECUTED, /* never dispatched, or the other side said so (A2) */
        COMMAND_EXTEND,
        COMMAND_MARK_UNKNOWN,
};
enum { COMMAND_WRITE_KINDS = 5 };

struct command_write {
        enum command_write_kind kind;
        struct command_id id;
        int64_t token;
        struct command_attempt attempt;
        int64_t lease_us; /* EXTEND: the new length */
};

enum command_write_outcome {
        COMMAND_DONE,    /* written, or it had been written already */
        COMMAND_NOTHING, /* nothing to change and nothing lost */
        COMMAND_LOST     /* somebody else holds the key, or the row has moved on */
};

/* What a write does to a row, by the row's state: the second table. */
enum command_effect {
        EFFECT_LOST,        /* 0 rows */
        EFFECT_NOTHING,     /* no change, and that is fine */
        EFFECT_DONE_BEFORE, /* no change: this very write, or what it wants, is there already */
        EFFECT_COMPLETE,    /* -> COMPLETED, reply kept, expire_at set */
        EFFECT_FREE,        /* -> FREE, expire_at set */
        EFFECT_END_LEASE,   /* stays IN_FLIGHT, lease over now, maybe_executed set (A5a) */
        EFFECT_EXTEND,      /* lease_until = now + length, request_until as much later; LOST when
                             * both are over (A5b) */
        EFFECT_UNKNOWN,     /* -> UNKNOWN */
};

/* The table's answer for a row whose (id, token, attempt) match the write's.
 * Stores that write by one guarded statement ask it for each state and hand the answers to
 * the statement; the others call command_write(). */
enum command_effect command_write_effect(enum command_write_kind kind, enum command_state state,
                                         struct command_policy policy, bool maybe_executed);

struct command_write_answer {
        enum command_write_outcome outcome;
        bool changed;
        bool self_resolved; /* a late completion ended an UNKNOWN row: counted */
        int64_t lease_left_us;
};

/* Decide a write.  exists = false (purged, or never there) is LOST. */
struct command_write_answer command_write(struct command_row *row, bool exists,
                                          const struct command_write *write,
                                          struct command_now now);

/* -- operator verbs (A5b) ----------------------------------------------------------- */

enum command_resolve_kind {
        COMMAND_RESOLVE_EXECUTED,     /* -> COMPLETED */
        COMMAND_RESOLVE_NOT_EXECUTED, /* -> FREE: the operator speaks for all holders so far */
        COMMAND_RESOLVE_FORGET,       /* COMPLETED -> FREE: let it run again, on purpose */
};

struct command_resolve {
        enum command_resolve_kind kind;
        struct command_id id;
        struct command_attempt attempt;     /* as it was shown */
        int64_t token;                      /* as it was shown; 0: guarded by the attempt alone */
        struct command_attempt new_attempt; /* random: the late holder must not match (A1) */
        int64_t looked_us; /* lease clock, read with the row that was shown: the look at the other
                            * side came after it.  NOT_EXECUTED needs one at what is settled. */
};

enum command_resolve_outcome {
        COMMAND_RESOLVED,        /* a row that carries new_attempt already: done before, unchanged */
        COMMAND_RESOLVE_CHANGED,   /* the row is not the one that was shown */
        COMMAND_RESOLVE_LEASED,    /* a holder's lease is alive; *ret_wait_us says how long */
        COMMAND_RESOLVE_TOO_EARLY, /* a request may still be travelling; *ret_wait_us says how long */
        COMMAND_RESOLVE_LOOKED_EARLY, /* one might have been when the row was shown: look again */
        COMMAND_RESOLVE_STATE,     /* the state does not allow this verb */
};

enum command_resolve_outcome command_resolve(struct command_row *row, bool exists,
                                             const struct command_resolve *resolve,
                                             struct command_now now, int64_t *ret_wait_us);

/* -- purge pass (A3, A5, A9) --------------------------------------------------------- */

enum command_sweep {
        COMMAND_KEEP,
        COMMAND_DELETE,     /* COMPLETED or FREE past its retention */
        COMMAND_TO_UNKNOWN, /* IN_FLIGHT whose lease is over: row changed in place */
};

enum command_sweep command_sweep(struct command_row *row, struct command_now now);

/* -- questions ------------------------------------------------------------------------ */

/* lease_until is the first moment at which the lease is over.  A lease that ends later than now
 * plus its own length was not given by this clock (a restored snapshot): over. */
bool command_lease_over(const struct command_row *row, struct command_now now);

/* COMPLETED or FREE, and expire_at has come.  Never true in another state (A3). */
bool command_expired(const struct command_row *row, struct command_now now);

/* At that moment no lease is alive and no request can travel any more: what the other side does not
 * have by then, it will not have (A5b). */
bool command_settled(const struct command_row *row, int64_t lease_clock_us);
/* The first such moment. */
int64_t command_settled_us(const struct command_row *row);

/* Listed by --stuck. */
bool command_stuck(const struct command_row *row, struct command_now now);

bool command_id_eq(const struct command_id *a, const struct command_id *b);
bool command_attempt_eq(const struct command_attempt *a, const struct command_attempt *b);

const char *command_state_name(enum command_state state);
const char *command_outcome_name(enum command_outcome outcome);
const char *command_write_kind_name(enum command_write_kind kind);
const char *command_effect_name(enum command_effect effect);

/* Print the tables (claims, writes, operator verbs, purge pass) as Markdown, through `out` (which
 * gets NUL-terminated pieces); `arg` is passed on. */
void command_print_tables(void (*out)(void *arg, const char *text), void *arg);

/* Print the transitions as a Mermaid state diagram: an edge for every change that some event makes
 * under some policy. */
void command_print_diagram(void (*out)(void *arg, const char *text), void *arg);

#endif

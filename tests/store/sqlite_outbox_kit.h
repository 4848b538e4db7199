/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_outbox_kit: the steps of a relay on one SQLite file, for the tests of its outbox.
 */
#ifndef TESTS_STORE_SQLITE_OUTBOX_KIT_H
#define TESTS_STORE_SQLITE_OUTBOX_KIT_H

#include "core/limits.h"
#include "sqlite_world.h"
#include "store/outbox.h"

#define ALL_SLOTS ((UINT32_C(1) << EVENT_SLOTS) - 1)
#define LEASE_US (5 * SECOND)

extern const struct outbox_member relay_a, relay_b;

/* A relay's ownership: its view, and the slots as a lane wants them. */
struct owner {
        struct outbox_view view;
        struct outbox_slot slots[EVENT_SLOTS];
        size_t n;
};

/* A world with its file, and its end. */
int outbox_setup(void **state);
int outbox_teardown(void **state);

/* All of these fail the test when something does. */
int64_t soon(void);
struct outbox_session *open_mapped(struct sqlite_world *w, const struct outbox_mapping *m);
struct outbox_session *open_outbox(struct sqlite_world *w);
void look(struct owner *o);
struct owner take(struct outbox_session *s, const struct outbox_member *me);
struct outbox_rows fetch(struct outbox_session *s, const struct owner *o, int rows_max,
                                const struct span *blocked, size_t blocked_count);
semel_code mark_rows(struct outbox_session *s, const struct owner *o, bool keep,
                            const struct outbox_rows *rows, enum outbox_verdict verdict,
                            struct outbox_marked *ret, semel_error *err);
struct outbox_marked mark_all(struct outbox_session *s, const struct owner *o, bool keep,
                                     struct outbox_rows *rows, enum outbox_verdict verdict);
void insert_rows(struct sqlite_world *w, int n, const char *key);
int64_t count(struct sqlite_world *w, const char *where);

#endif

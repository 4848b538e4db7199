/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_writer: the thread that does all I/O of one SQLite store.
 *
 *    loop's thread                        writer thread
 *    submit -> writes, reads  --wake-->   gate, BEGIN IMMEDIATE, take a group, run it,
 *    step   <- done           <-eventfd-- COMMIT, leave the gate
 *
 * A group is taken only once the write lock is had, so that operations that wait for the lock
 * stay in the queue, where the loop's thread answers those whose deadline has come.
 * What happens to a group:
 *
 *    COMMIT is OK               all are done
 *    an operation fails         rolled back; the ones before it, itself, and the ones behind it run again
 *                               in transactions of their own: one bad operation fails alone (B4)
 *    COMMIT says full           rolled back; the halves run again: what fits is done
 *    COMMIT says anything else  nobody knows: rolled back, and the same operations are issued again (same
 *                               attempts) until their deadlines (A7)
 */
#ifndef STORE_SQLITE_WRITER_H
#define STORE_SQLITE_WRITER_H

#include <pthread.h>

#include "store/sqlite/sqlite_gate.h"
#include "store/sqlite/sqlite_internal.h"
#include "store/sqlite/sqlite_orphan.h"
#include "store/sqlite/sqlite_queue.h"
#include "store/sqlite/sqlite_session.h"

/* op->stage */
enum { STAGE_NEW, STAGE_IN_DOUBT };

struct writer {
        /* set at open, then read by both threads */
        const struct sys_clock *clock;
        struct sqlite_boot_id boot_id;
        char *path;
        int efd;

        pthread_mutex_t mu; /* guards the following */
        pthread_cond_t wake;
        struct op_list writes, reads; /* waiting */
        struct op_list doubt;         /* COMMIT gave no answer; issued again at doubt_at_us */
        int64_t doubt_at_us;
        struct op_list committing; /* in the COMMIT that runs now: the loop may give up on them */
        bool in_commit;
        struct op_list done;
        struct orphan_list orphans;
        bool undoing; /* one more orphan is in the writer's hands */
        bool locked_out; /* somebody else has the write lock */
        bool signalled;  /* efd is readable */
        bool idle;       /* the writer waits for `wake` */
        bool closing;

        /* the writer thread's own */
        struct sqlite_session ses;
        struct sqlite_gate gate;
        int64_t orphans_at_us;
};

/* The thread's body; `arg` is a struct writer. */
void *writer_main(void *arg);

/* Put answered operations where step finds them.  Takes the mutex. */
void writer_deliver(struct writer *w, struct op_list *ops);

#endif

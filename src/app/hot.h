/* SPDX-License-Identifier: Apache-2.0
 *
 * hot: the keys this process has in its hands now, shared by its workers: the ones it is running,
 * and the replies it has just kept.
 *
 * A storm of duplicates of one key is answered from here and does not reach the store.  An entry
 * says nothing that the store would not say: a running one is believed while the holder's own
 * lease is alive; a finished one is entered after the commit was acknowledged, for at most a
 * second, and never past its retention (so an operator's verb is effective within 1 s).  Both
 * are bounded; what does not fit is asked from the store.
 *
 * Any thread may call any function.
 */
#ifndef APP_HOT_H
#define APP_HOT_H

#include "base/buf.h"
#include "core/command.h"

struct hot;
struct hot_inbox;

struct hot *hot_new(void);
void hot_free(struct hot *hot); /* NULL is fine */

enum hot_answer { HOT_ABSENT, HOT_RUNNING, HOT_FINISHED };

struct hot_reply {
        int status;
        bool tombstone;
        struct buf headers, body; /* the caller's; appended to */
};

/* Look a key up.  Only an entry of the same fingerprint answers: a mismatch is the store's to
 * tell.  HOT_RUNNING sets *ret_held_us and *ret_left_us; HOT_FINISHED fills *ret_reply. */
enum hot_answer hot_find(struct hot *hot, const struct command_id *id,
                         const struct command_fingerprint *fp, int64_t now_us,
                         int64_t *ret_held_us, int64_t *ret_left_us, struct hot_reply *ret_reply);

/* The claim is ours until deadline_us. */
void hot_running(struct hot *hot, const struct command_id *id,
                 const struct command_fingerprint *fp, const struct command_attempt *attempt,
                 int64_t now_us, int64_t deadline_us);

/* The reply was kept (until_us: not believed later than that); or the run is over without
 * one.  Wakes those who wait for the key, in their workers. */
void hot_finished(struct hot *hot, const struct command_id *id,
                  const struct command_fingerprint *fp, const struct command_attempt *attempt,
                  int64_t until_us, int status, bool tombstone, struct span headers,
                  struct span body);
void hot_ended(struct hot *hot, const struct command_id *id,
               const struct command_attempt *attempt);

/* -- waiting ---------------------------------------------------------------------------- */

/* A worker's ear: ids that ended, to be looked at on its own thread. */
enum { HOT_INBOX_MAX = 1024 };
struct hot_inbox {
        struct command_id ids[HOT_INBOX_MAX];
        size_t count;
        bool overflow; /* more than fitted: look at all of them */
        size_t waiting; /* how many of this worker wait */
        void (*wake)(void *arg);
        void *arg;
        struct hot_inbox *next;
};

void hot_listen(struct hot *hot, struct hot_inbox *inbox);
/* Before its memory goes: it hears no more.  One that never listened is fine. */
void hot_unlisten(struct hot *hot, struct hot_inbox *inbox);
void hot_inbox_waiting(struct hot *hot, struct hot_inbox *inbox, int delta);
/* Take what has come.  Returns the count, or -1: look at all. */
int hot_inbox_take(struct hot *hot, struct hot_inbox *inbox, struct command_id *ids /* MAX */);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: one event loop of one thread, its timers and wake-ups, and a store on it.
 *
 * The only folder that knows libuv is this one.  Everything here belongs to the thread that runs
 * the loop, except loop_wake().
 *
 * A completion runs exactly once and never inside the call that asked for it.  Handles live
 * inside the loop: what is given here is freed by the loop when it is closed, after libuv has let
 * go of it.
 */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include <semel/error.h>

#include "store/store.h"

struct loop;

/* NULL when memory or descriptors are out (err says which). */
struct loop *loop_new(semel_error *err);

/* Run until loop_stop(), or until nothing is left to wait for. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* Let closes that were asked for come to their end, on a loop that is not running. */
void loop_settle(struct loop *loop);

/* Closes what is still open and frees.  The loop must not be running. */
void loop_free(struct loop *loop);

/* CLOCK_BOOTTIME, read once per turn of the loop, after it has waited. */
int64_t loop_now_us(struct loop *loop);

/* -- turns ------------------------------------------------------------------------------- */

/* Something to be done once, when the callbacks of this turn that come before have run: behind
 * all that arrived together, and before the loop waits again. */
struct soon {
        void (*run)(void *arg);
        void *arg;
        struct soon *next;
        bool queued;
};

void loop_soon(struct loop *loop, struct soon *soon); /* queued already: nothing more */
void loop_not_soon(struct loop *loop, struct soon *soon);

/* The number of this turn, for: has the loop waited since turn T, and just now, so that what came
 * on any socket until now has been told?  True only inside `run`s behind a wait. */
uint64_t loop_turn(const struct loop *loop);
bool loop_has_waited_since(const struct loop *loop, uint64_t turn);

/* -- timers ---------------------------------------------------------------------------- */

struct timer;

/* A stopped timer; NULL when memory is out. */
struct timer *timer_new(struct loop *loop, void (*fire)(void *arg), void *arg);
/* Fire once, `us` from now (rounded up to a millisecond); starting again replaces. */
void timer_start(struct timer *t, int64_t us);
void timer_stop(struct timer *t);
bool timer_is_running(const struct timer *t);
/* Stops and frees.  NULL is fine.  May be called from its own `fire`. */
void timer_free(struct timer *t);

/* -- wake-ups ------------------------------------------------------------------------------ */

/* Call `fn` on the loop's thread after loop_wake(), which any thread may call; several wakes
 * may become one call. */
semel_code loop_on_wake(struct loop *loop, void (*fn)(void *arg), void *arg, semel_error *err);
void loop_wake(struct loop *loop);

/* -- a store ------------------------------------------------------------------------------ */

/* Drive this store from the loop.  The store stays the caller's, who submits through
 * loop_store_submit() so that the loop knows that there is something to do: what was submitted in
 * one turn travels together. */
struct loop_store;
struct loop_store *loop_store_new(struct loop *loop, struct store *st, semel_error *err);
void loop_store_submit(struct loop_store *ls, struct store_op *op);
/* Stop driving; close the store after it, not before.  NULL is fine. */
void loop_store_free(struct loop_store *ls);

#endif

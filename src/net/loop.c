/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: see loop.h.
 */
#include "net/loop.h"

#include <poll.h>
#include <stdlib.h>

#include "base/err.h"
#include "net/loop_internal.h"
#include "sys/clock.h"

struct loop {
        uv_loop_t uv;
        int64_t now_us; /* 0: not read in this turn */
        uint64_t turn;
        bool waited;    /* the callbacks of the wait have run, nothing else has */
        uv_prepare_t waiting;
        uv_check_t turned;
        struct soon *first_soon, **last_soon;
        uv_async_t *wake;
        void (*wake_fn)(void *arg);
        void *wake_arg;
};

uv_loop_t *loop_uv(struct loop *loop)
{
        return &loop->uv;
}

/* What is queued meanwhile runs too. */
static void run_soon(struct loop *loop)
{
        while (loop->first_soon) {
                struct soon *soon = loop->first_soon;
                loop_not_soon(loop, soon);
                soon->run(soon->arg);
        }
}

void loop_soon(struct loop *loop, struct soon *soon)
{
        if (soon->queued)
                return;
        soon->queued = true;
        soon->next = NULL;
        *loop->last_soon = soon;
        loop->last_soon = &soon->next;
}

void loop_not_soon(struct loop *loop, struct soon *soon)
{
        if (!soon->queued)
                return;
        struct soon **at = &loop->first_soon;
        while (*at != soon)
                at = &(*at)->next;
        *at = soon->next;
        if (loop->last_soon == &soon->next)
                loop->last_soon = at;
        soon->queued = false;
}

uint64_t loop_turn(const struct loop *loop)
{
        return loop->turn;
}

bool loop_has_waited_since(const struct loop *loop, uint64_t turn)
{
        return loop->waited && turn < loop->turn;
}

/* The last thing before the wait: libuv runs the handle that was started first last. */
static void on_waiting(uv_prepare_t *handle)
{
        struct loop *loop = handle->data;
        run_soon(loop);
        loop->turn++;
        loop->now_us = 0;
}

/* Behind the callbacks of the wait. */
static void on_turned(uv_check_t *handle)
{
        struct loop *loop = handle->data;
        loop->waited = true;
        run_soon(loop);
        loop->waited = false;
}

struct loop *loop_new(semel_error *err)
{
        struct loop *loop = calloc(1, sizeof *loop);
        if (!loop) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an event loop");
                return NULL;
        }
        int rc = uv_loop_init(&loop->uv);
        if (rc != 0) {
                free(loop);
                (void)err_set_errno(err, SEMEL_ERR_INTERNAL, -rc, "no event loop");
                return NULL;
        }
        loop->last_soon = &loop->first_soon;
        (void)uv_check_init(&loop->uv, &loop->turned);
        (void)uv_prepare_init(&loop->uv, &loop->waiting);
        loop->turned.data = loop->waiting.data = loop;
        (void)uv_check_start(&loop->turned, on_turned);
        (void)uv_prepare_start(&loop->waiting, on_waiting);
        uv_unref((uv_handle_t *)&loop->turned);
        uv_unref((uv_handle_t *)&loop->waiting);
        return loop;
}

void loop_run(struct loop *loop)
{
        loop->now_us = 0;
        (void)uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop)
{
        uv_stop(&loop->uv);
}

void loop_free_handle(uv_handle_t *handle)
{
        free(handle->data);
}

void loop_settle(struct loop *loop)
{
        enum { TURNS = 8 }; /* a close may begin another one */
        for (int i = 0; i < TURNS; i++)
                (void)uv_run(&loop->uv, UV_RUN_NOWAIT);
}

void loop_free(struct loop *loop)
{
        if (!loop)
                return;
        uv_close((uv_handle_t *)&loop->turned, NULL);
        uv_close((uv_handle_t *)&loop->waiting, NULL);
        if (loop->wake) {
                loop->wake->data = loop->wake;
                uv_close((uv_handle_t *)loop->wake, loop_free_handle);
        }
        while (uv_loop_close(&loop->uv) == UV_EBUSY)
                (void)uv_run(&loop->uv, UV_RUN_ONCE);
        free(loop);
}

int64_t loop_now_us(struct loop *loop)
{
        if (loop->now_us == 0)
                loop->now_us = clock_boot_us();
        return loop->now_us;
}

/* -- timers ------------------------------------------------------------------------------ */

struct timer {
        uv_timer_t handle;
        void (*fire)(void *arg);
        void *arg;
};

static void on_timer(uv_timer_t *handle)
{
        struct timer *t = handle->data;
        t->fire(t->arg);
}

struct timer *timer_new(struct loop *loop, void (*fire)(void *arg), void *arg)
{
        struct timer *t = calloc(1, sizeof *t);
        if (!t)
                return NULL;
        (void)uv_timer_init(&loop->uv, &t->handle);
        t->handle.data = t;
        t->fire = fire;
        t->arg = arg;
        return t;
}

void timer_start(struct timer *t, int64_t us)
{
        uint64_t ms = us <= 0 ? 0 : (uint64_t)((us + 999) / 1000);
        (void)uv_timer_start(&t->handle, on_timer, ms, 0);
}

void timer_stop(struct timer *t)
{
        (void)uv_timer_stop(&t->handle);
}

bool timer_is_running(const struct timer *t)
{
        return uv_is_active((const uv_handle_t *)&t->handle) != 0;
}

void timer_free(struct timer *t)
{
        if (!t)
                return;
        (void)uv_timer_stop(&t->handle);
        uv_close((uv_handle_t *)&t->handle, loop_free_handle);
}

/* -- wake-ups ------------------------------------------------------------------------------ */

static void on_wake(uv_async_t *handle)
{
        struct loop *loop = handle->data;
        loop->wake_fn(loop->wake_arg);
}

semel_code loop_on_wake(struct loop *loop, void (*fn)(void *arg), void *arg, semel_error *err)
{
        loop->wake_fn = fn;
        loop->wake_arg = arg;
        if (loop->wake)
                return SEMEL_OK;
        uv_async_t *wake = calloc(1, sizeof *wake);
        if (!wake)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a wake-up");
        int rc = uv_async_init(&loop->uv, wake, on_wake);
        if (rc != 0) {
                free(wake);
                return err_set_errno(err, SEMEL_ERR_INTERNAL, -rc, "no wake-up");
        }
        wake->data = loop;
        loop->wake = wake;
        return SEMEL_OK;
}

void loop_wake(struct loop *loop)
{
        (void)uv_async_send(loop->wake);
}

/* -- a store ---------------------------------------------------------------------------------- */

struct loop_store {
        struct loop *loop;
        struct store *st;
        uv_prepare_t turn;
        uv_check_t waited;
        uv_poll_t *poll; /* NULL while the store has no descriptor */
        int poll_fd;
        short poll_events;
        uv_timer_t deadline;
        bool dirty; /* submitted, readable, or due since the last step */
        int open_handles;
};

static int uv_events(short events)
{
        return ((events & POLLIN) ? UV_READABLE : 0) | ((events & POLLOUT) ? UV_WRITABLE : 0);
}

static void on_store_ready(uv_poll_t *handle, int status, int events)
{
        struct loop_store *ls = handle->data;
        (void)status;
        (void)events;
        ls->dirty = true;
}

static void on_store_due(uv_timer_t *handle)
{
        struct loop_store *ls = handle->data;
        ls->dirty = true;
}

static void poll_closed(uv_handle_t *handle)
{
        free(handle);
}

/* The store's descriptor or events may change with every step. */
static void watch_fd(struct loop_store *ls)
{
        int fd = ls->st->vt->fd(ls->st);
        short events = ls->st->vt->events(ls->st);
        if (ls->poll && fd != ls->poll_fd) {
                uv_close((uv_handle_t *)ls->poll, poll_closed);
                ls->poll = NULL;
        }
        if (fd < 0 || (ls->poll && events == ls->poll_events))
                return;
        if (!ls->poll) {
                uv_poll_t *poll = calloc(1, sizeof *poll);
                if (!poll || uv_poll_init(loop_uv(ls->loop), poll, fd) != 0) {
                        free(poll); /* tried again in the next turn; the deadline still steps */
                        return;
                }
                poll->data = ls;
                ls->poll = poll;
                ls->poll_fd = fd;
        }
        ls->poll_events = events;
        (void)uv_poll_start(ls->poll, uv_events(events), on_store_ready);
}

static void watch_deadline(struct loop_store *ls)
{
        int64_t deadline_us = ls->st->vt->deadline_us(ls->st);
        if (deadline_us == INT64_MAX) {
                (void)uv_timer_stop(&ls->deadline);
                return;
        }
        int64_t left_us = deadline_us - clock_boot_us();
        uint64_t ms = left_us <= 0 ? 0 : (uint64_t)((left_us + 999) / 1000);
        (void)uv_timer_start(&ls->deadline, on_store_due, ms, 0);
}

static void step(struct loop_store *ls)
{
        enum { STEPS_PER_TURN = 4 }; /* completions submit more; sockets want their turn too */
        run_soon(ls->loop); /* it may submit */
        if (!ls->dirty)
                return;
        for (int i = 0; ls->dirty && i < STEPS_PER_TURN; i++) {
                ls->dirty = false;
                ls->st->vt->step(ls->st);
                run_soon(ls->loop);
        }
        watch_fd(ls);
        watch_deadline(ls);
        if (ls->dirty)
                (void)uv_timer_start(&ls->deadline, on_store_due, 0, 0);
}

/* Behind the callbacks of the wait: everything that they submitted goes together, and who is
 * answered finds the kept connections upstream just watched.  It runs before on_turned(). */
static void on_waited(uv_check_t *handle)
{
        struct loop_store *ls = handle->data;
        ls->loop->waited = true;
        step(ls);
}

/* Just before the wait: what timers, and what ran since, have submitted. */
static void on_turn(uv_prepare_t *handle)
{
        step(handle->data);
}

struct loop_store *loop_store_new(struct loop *loop, struct store *st, semel_error *err)
{
        struct loop_store *ls = calloc(1, sizeof *ls);
        if (!ls) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a store on a loop");
                return NULL;
        }
        ls->loop = loop;
        ls->st = st;
        (void)uv_prepare_init(&loop->uv, &ls->turn);
        (void)uv_check_init(&loop->uv, &ls->waited);
        (void)uv_timer_init(&loop->uv, &ls->deadline);
        ls->turn.data = ls->waited.data = ls->deadline.data = ls;
        (void)uv_prepare_start(&ls->turn, on_turn);
        (void)uv_check_start(&ls->waited, on_waited);
        uv_unref((uv_handle_t *)&ls->turn);
        uv_unref((uv_handle_t *)&ls->waited);
        ls->open_handles = 3;
        ls->dirty = true;
        watch_fd(ls);
        watch_deadline(ls);
        return ls;
}

void loop_store_submit(struct loop_store *ls, struct store_op *op)
{
        ls->dirty = true;
        store_submit(ls->st, op);
}

static void store_handle_closed(uv_handle_t *handle)
{
        struct loop_store *ls = handle->data;
        if (--ls->open_handles == 0)
                free(ls);
}

void loop_store_free(struct loop_store *ls)
{
        if (!ls)
                return;
        if (ls->poll) {
                (void)uv_poll_stop(ls->poll);
                uv_close((uv_handle_t *)ls->poll, poll_closed);
        }
        (void)uv_timer_stop(&ls->deadline);
        uv_close((uv_handle_t *)&ls->turn, store_handle_closed);
        uv_close((uv_handle_t *)&ls->waited, store_handle_closed);
        uv_close((uv_handle_t *)&ls->deadline, store_handle_closed);
}

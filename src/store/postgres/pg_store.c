/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_store: operations from submit to done, and the store's step.  See pg_store.h.
 */
#include "store/postgres/pg_outbox.h"
#include "store/postgres/pg_store.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "store/postgres/postgres_store.h"

int64_t pg_now_us(struct pg_store *st)
{
        return st->clock->boot_us(st->clock->arg);
}

/* -- lists ------------------------------------------------------------------------------------- */

static void list_init(struct op_list *list)
{
        *list = (struct op_list){0};
        list->last = &list->first;
}

static void push_back(struct op_list *list, struct store_op *op)
{
        op->next = NULL;
        *list->last = op;
        list->last = &op->next;
        list->count++;
}

static void push_front(struct op_list *list, struct store_op *op)
{
        op->next = list->first;
        if (!list->first)
                list->last = &op->next;
        list->first = op;
        list->count++;
}

/* Take all; the list is empty then. */
static struct store_op *take_all(struct op_list *list)
{
        struct store_op *op = list->first;
        list_init(list);
        return op;
}

/* -- an operation's way -------------------------------------------------------------------- */

void pg_answer(struct pg_store *st, struct store_op *op)
{
        push_back(&st->answered, op);
}

static void set_lane(struct store_op *op, enum lane lane)
{
        op->stage = (op->stage & ~(uint32_t)OP_LANE_MASK) | lane;
}

void pg_queue(struct pg_store *st, struct store_op *op, enum lane lane, int64_t delay_us)
{
        assert(lane < LANE_QUEUES);
        set_lane(op, lane);
        if (delay_us == 0) {
                push_front(&st->queues[lane], op);
                return;
        }
        op->not_before_us = pg_now_us(st) + delay_us;
        push_back(&st->later, op);
}

static enum lane first_lane(const struct store_op *op)
{
        switch (op->kind) {
        case STORE_CLAIM:
                return LANE_INSERT;
        case STORE_WRITE:
                switch (op->in.write.write.kind) {
                case COMMAND_COMPLETE:
                        return LANE_COMPLETE;
                case COMMAND_EXTEND:
                        return LANE_READ;
                default:
                        return LANE_WRITE;
                }
        case STORE_LIST:
                return LANE_LIST;
        case STORE_SWEEP:
                return LANE_SWEEP;
        case STORE_GET:
        case STORE_RESOLVE:
                break;
        }
        return LANE_READ;
}

void pg_restart(struct pg_store *st, struct store_op *op, int64_t delay_us)
{
        pg_queue(st, op, first_lane(op), delay_us);
}

void pg_fail(struct pg_store *st, struct store_op *op)
{
        if (op->stage & OP_IN_DOUBT)
                pg_restart(st, op, PG_BACKOFF_MAX_US);
        else
                pg_answer(st, op);
}

void pg_form(struct pg_store *st, struct batch *b)
{
        b->next = NULL;
        *st->formed_last = b;
        st->formed_last = &b->next;
}

/* -- deadlines ----------------------------------------------------------------------------- */

/* Its deadline came while it waited. */
static void answer_expired(struct pg_store *st, struct store_op *op)
{
        char why[ERR_TEXT_BYTES_MAX / 2] = "no answer came";
        char sqlstate[sizeof op->err.sqlstate];
        const semel_error *last = op->err.code != SEMEL_OK ? &op->err : &st->fault;
        if (last->code != SEMEL_OK)
                (void)snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, last->text);
        memcpy(sqlstate, last->sqlstate, sizeof sqlstate);

        if (op->stage & OP_IN_DOUBT) {
                (void)err_set(&op->err, SEMEL_ERR_UNKNOWN,
                              "the connection broke while the database wrote, and it could not be "
                              "asked again in time: %s", why);
                if (op->kind == STORE_CLAIM && !(op->stage & OP_ORPHAN) && !st->closing)
                        pg_orphan_add(st, op);
        } else if (last->code != SEMEL_OK) {
                (void)err_copy(&op->err, last);
        } else {
                (void)err_set(&op->err, SEMEL_ERR_STORE_DOWN,
                              "the database did not answer in time; nothing happened");
        }
        memcpy(op->err.sqlstate, sqlstate, sizeof sqlstate);
        pg_answer(st, op);
}

/* Answer those of a list that are overdue; the least deadline of the rest into st->expire_us. */
static void expire_list(struct pg_store *st, struct op_list *list, int64_t now_us)
{
        struct store_op *op = take_all(list);
        while (op) {
                struct store_op *next = op->next;
                if (op->deadline_us <= now_us) {
                        answer_expired(st, op);
                } else {
                        if (op->deadline_us < st->expire_us)
                                st->expire_us = op->deadline_us;
                        push_back(list, op);
                }
                op = next;
        }
}

static void expire_formed(struct pg_store *st, int64_t now_us)
{
        struct batch *b = st->formed;
        st->formed = NULL;
        st->formed_last = &st->formed;
        while (b) {
                struct batch *next = b->next;
                size_t n = 0;
                for (size_t i = 0; i < b->n; i++) {
                        struct store_op *op = b->ops[i];
                        if (op->deadline_us <= now_us) {
                                answer_expired(st, op);
                                continue;
                        }
                        if (op->deadline_us < st->expire_us)
                                st->expire_us = op->deadline_us;
                        b->ops[n++] = op;
                }
                b->n = n;
                if (n > 0)
                        pg_form(st, b);
                else
                        pg_batch_free(b);
                b = next;
        }
}

static void expire(struct pg_store *st, int64_t now_us)
{
        if (now_us < st->expire_us)
                return;
        st->expire_us = INT64_MAX;
        for (int i = 0; i < LANE_QUEUES; i++)
                expire_list(st, &st->queues[i], now_us);
        expire_list(st, &st->later, now_us);
        expire_formed(st, now_us);
        for (int i = 0; i < st->config.links; i++) {
                const struct batch *b = st->links[i].batch; /* they may come back */
                for (size_t k = 0; b && k < b->n; k++) {
                        int64_t late_us = b->ops[k]->deadline_us;
                        if (late_us < INT64_MAX - PG_GRACE_US && late_us + PG_GRACE_US < st->expire_us)
                                st->expire_us = late_us + PG_GRACE_US;
                }
        }
}

static void wake_later(struct pg_store *st, int64_t now_us)
{
        struct store_op *op = take_all(&st->later);
        while (op) {
                struct store_op *next = op->next;
                if (op->not_before_us <= now_us)
                        push_back(&st->queues[op->stage & OP_LANE_MASK], op);
                else
                        push_back(&st->later, op);
                op = next;
        }
}

/* The queues' operations but those in doubt; false: there were none. */
static bool answer_fault(struct pg_store *st)
{
        bool answered = false;
        for (int i = 0; i < LANE_QUEUES; i++) {
                struct store_op *op = take_all(&st->queues[i]);
                while (op) {
                        struct store_op *next = op->next;
                        if (op->stage & OP_IN_DOUBT) {
                                push_back(&st->queues[i], op);
                        } else {
                                (void)err_copy(&op->err, &st->fault);
                                pg_answer(st, op);
                                answered = true;
                        }
                        op = next;
                }
        }
        return answered;
}

/* The server cannot be used, and waiting does not help: say why at once.  An attempt is told to those
 * who waited for it, and to nobody later: the next operation makes one of its own, since without one
 * nobody would see that the server is well again (B10). */
static void fail_waiting(struct pg_store *st)
{
        bool failed = st->attempt_failed;
        st->attempt_failed = false;
        if (!failed || st->fault.code == SEMEL_OK || st->fault.code == SEMEL_ERR_STORE_DOWN)
                return;
        for (int i = 0; i < st->config.links; i++) {
                if (pg_link_up(&st->links[i]))
                        return;
        }
        if (!answer_fault(st))
                return;
        for (int i = 0; i < st->config.links; i++) { /* what is under way began before the next one */
                if (st->links[i].state != LINK_CLOSED && st->links[i].state != LINK_HUNG)
                        pg_link_drop(&st->links[i], false);
        }
}

/* -- the step ------------------------------------------------------------------------------ */

/* From when on link i may take a batch: the eager ones always, the others once every busy one
 * before them is slow. */
static int64_t may_send_us(const struct pg_store *st, int i)
{
        int64_t at_us = 0;
        for (int j = 0; i >= PG_LINKS_EAGER && j < i; j++) {
                const struct link *before = &st->links[j];
                if (before->state == LINK_BUSY && before->sent_us + PG_SLOW_BATCH_US > at_us)
                        at_us = before->sent_us + PG_SLOW_BATCH_US;
        }
        return at_us;
}

/* The edge of the timer in the epoll is enough: it need not be read. */
static void linger(struct pg_store *st, int64_t now_us)
{
        int64_t us = st->sleeping_callers ? PG_LINGER_US : PG_LINGER_LOOP_US;
        const struct itimerspec in = {.it_value.tv_nsec = (long)(us * 1000)};
        st->linger_us = now_us + us;
        if (st->timer_fd >= 0 && timerfd_settime(st->timer_fd, 0, &in, NULL) != 0)
                st->linger_us = 0;
}

/* Is it worth waiting for more?  Asked when a link is idle. */
static bool lingers(struct pg_store *st, int64_t now_us)
{
        size_t waiting = 0;
        if (!st->sleeping_callers && st->timer_fd < 0)
                return false;
        if (st->ops > st->crowd)
                st->crowd = st->ops;
        for (int i = 0; i < LANE_QUEUES; i++)
                waiting += st->queues[i].count;
        bool few = waiting > 0 && !st->formed && st->crowd >= PG_CROWD_MIN &&
                   waiting * 5 < st->crowd * 2;
        if (few && st->linger_us == 0)
                linger(st, now_us);
        if (few && now_us < st->linger_us)
                return true;
        st->linger_us = 0;
        return false;
}

/* Every idle connection takes a batch; one more is opened when they do not suffice. */
static void dispatch(struct pg_store *st, int64_t now_us)
{
        int64_t may_open_us = INT64_MAX;
        struct link *closed = NULL;
        for (int i = 0; i < st->config.links && may_send_us(st, i) <= now_us; i++) {
                struct link *ln = &st->links[i];
                while (ln->state == LINK_IDLE) {
                        struct batch *b = lingers(st, now_us) ? NULL : pg_batch_next(st, now_us);
                        if (!b)
                                return;
                        st->crowd -= (st->crowd + 15) / 16; /* it forgets within some batches */
                        pg_link_send(ln, b);
                }
                if (ln->state == LINK_CLOSED && ln->timer_us < may_open_us) {
                        closed = ln;
                        may_open_us = ln->timer_us;
                }
        }
        if (closed && may_open_us <= now_us && pg_batch_waiting(st))
                pg_link_open(closed);
}

static void call_done(struct pg_store *st)
{
        struct store_op *op = take_all(&st->answered); /* `done` may submit */
        while (op) {
                struct store_op *next = op->next;
                st->ops--;
                op->next = NULL;
                op->done(op);
                op = next;
        }
}

static void pg_step(struct store *base)
{
        struct pg_store *st = (struct pg_store *)base;
        struct epoll_event events[PG_LINKS_MAX + 1];
        int n = epoll_wait(st->epoll_fd, events, PG_LINKS_MAX + 1, 0);
        for (int i = 0; i < n; i++) {
                if (events[i].data.ptr)
                        pg_link_ready(events[i].data.ptr);
                else if (st->linger_us != 0) /* the timer: waited long enough, whatever the clock says */
                        st->linger_us = 1;
        }
        int64_t now_us = pg_now_us(st);
        for (int i = 0; i < st->config.links; i++)
                pg_link_expire(&st->links[i], now_us);
        expire(st, now_us);
        wake_later(st, now_us);
        fail_waiting(st);
        if (st->sleeping_callers) /* to wake them takes a while: the server works meanwhile */
                dispatch(st, now_us);
        call_done(st);
        dispatch(st, now_us);
}

static int64_t min_us(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

static int64_t pg_deadline_us(struct store *base)
{
        struct pg_store *st = (struct pg_store *)base;
        bool waiting = pg_batch_waiting(st) && st->linger_us == 0;
        if (st->answered.first)
                return 0;
        int64_t at_us = st->ops > 0 ? st->expire_us : INT64_MAX;
        if (st->linger_us != 0 && st->timer_fd < 0)
                at_us = min_us(at_us, st->linger_us);
        for (int i = 0; i < st->config.links; i++) {
                const struct link *ln = &st->links[i];
                at_us = min_us(at_us, pg_link_timer_us(ln));
                if (waiting && ln->state == LINK_CLOSED)
                        at_us = min_us(at_us, ln->timer_us > may_send_us(st, i) ? ln->timer_us
                                                                              : may_send_us(st, i));
                if (ln->state == LINK_IDLE)
                        at_us = min_us(at_us, waiting ? may_send_us(st, i) : st->reap_us);
                if (at_us == 0)
                        return 0;
        }
        for (const struct store_op *op = st->later.first; op; op = op->next)
                at_us = min_us(at_us, op->not_before_us);
        return at_us;
}

/* What comes in while the links are busy, or while one waits for more, can wait as well. */
static int64_t pg_full_until_us(struct store *base)
{
        struct pg_store *st = (struct pg_store *)base;
        int64_t at_us = pg_now_us(st) + PG_SLOW_BATCH_US;
        if (st->answered.first || !st->sleeping_callers)
                return 0;
        if (st->linger_us != 0)
                return st->linger_us;
        for (int i = 0; i < st->config.links; i++) {
                if (st->links[i].state == LINK_IDLE || st->links[i].state == LINK_CLOSED)
                        at_us = min_us(at_us, may_send_us(st, i));
        }
        return at_us;
}

static bool reply_fits(const struct store_reply *rep)
{
        return rep->headers.n <= LIMIT_REPLY_HEADERS_BYTES && rep->body.n <= LIMIT_REPLY_BODY_BYTES;
}

/* Within the limits that rows can be read back with. */
static bool op_fits(const struct store_op *op)
{
        switch (op->kind) {
        case STORE_CLAIM: {
                const struct store_label *label = &op->in.claim.label;
                return label->scope.n <= LIMIT_SCOPE_BYTES && label->key.n <= LIMIT_KEY_BYTES &&
                       label->operation.n <= LIMIT_OPERATION_BYTES &&
                       label->holder.n <= LIMIT_HOLDER_BYTES;
        }
        case STORE_WRITE:
                return reply_fits(&op->in.write.reply);
        case STORE_RESOLVE:
                return reply_fits(&op->in.resolve.reply) &&
                       op->in.resolve.reason.n <= LIMIT_REASON_BYTES &&
                       op->in.resolve.who.n <= LIMIT_REASON_BYTES;
        case STORE_GET:
        case STORE_LIST:
        case STORE_SWEEP:
                break;
        }
        return true;
}

static void pg_submit(struct store *base, struct store_op *op)
{
        struct pg_store *st = (struct pg_store *)base;
        op->stage = 0;
        op->tries = 0;
        op->next = NULL;
        err_clear(&op->err);
        if (st->ops >= LIMIT_QUEUE_OPS + LIMIT_ORPHAN_CLAIMS || st->closing) {
                (void)err_set(&op->err, SEMEL_ERR_BUSY,
                              "%zu operations wait for the database already; try again later",
                              st->ops);
                st->ops++;
                pg_answer(st, op);
                return;
        }
        if (!op_fits(op)) {
                (void)err_set(&op->err, SEMEL_ERR_TOO_LARGE,
                              "a text, the headers or the body of an operation is longer than the "
                              "limit");
                st->ops++;
                pg_answer(st, op);
                return;
        }
        st->ops++;
        enum lane lane = first_lane(op);
        set_lane(op, lane);
        push_back(&st->queues[lane], op);
        if (op->deadline_us < st->expire_us)
                st->expire_us = op->deadline_us;
}

void pg_submit_own(struct pg_store *st, struct store_op *op)
{
        op->stage = OP_ORPHAN | OP_IN_DOUBT;
        op->tries = 0;
        op->deadline_us = INT64_MAX;
        st->ops++;
        pg_restart(st, op, PG_BACKOFF_MAX_US);
}

static int pg_fd(struct store *base)
{
        return ((struct pg_store *)base)->epoll_fd;
}

static short pg_events(struct store *base)
{
        (void)base;
        return POLLIN;
}

/* -- open, close --------------------------------------------------------------------------- */

static void pg_close(struct store *base)
{
        struct pg_store *st = (struct pg_store *)base;
        st->closing = true;
        for (int i = 0; i < st->config.links; i++)
                pg_link_drop(&st->links[i], false); /* batches come back into the queues */
        for (struct batch *b = st->formed, *next; b; b = next) {
                next = b->next;
                pg_batch_lost(st, b, false);
        }
        for (int i = 0; i < LANE_QUEUES; i++)
                expire_list(st, &st->queues[i], INT64_MAX);
        expire_list(st, &st->later, INT64_MAX);
        while (st->answered.first)
                call_done(st);
        for (int i = 0; i < st->config.links; i++)
                pg_link_release(&st->links[i]);
        if (st->timer_fd >= 0)
                (void)close(st->timer_fd);
        (void)close(st->epoll_fd);
        pg_config_release(&st->config);
        free(st);
}

static const struct store_vt pg_vt = {
        .name = "postgres",
        .submit = pg_submit,
        .fd = pg_fd,
        .events = pg_events,
        .deadline_us = pg_deadline_us,
        .step = pg_step,
        .full_until_us = pg_full_until_us,
        .close = pg_close,
};

/* Make the first connection, so that what is wrong is said now and not with the first key. */
static semel_code connect_first(struct pg_store *st, semel_error *err)
{
        struct link *ln = &st->links[0];
        int64_t give_up_us = clock_boot_us() + PG_OPEN_US;
        pg_link_open(ln);
        while (ln->state != LINK_IDLE) {
                int64_t left_us = give_up_us - clock_boot_us();
                bool again = st->fault.code == SEMEL_ERR_STORE_DOWN && ln->failures < 3;
                if (ln->state == LINK_CLOSED && (!again || left_us <= 0))
                        return err_copy(err, &st->fault);
                if (left_us <= 0)
                        return err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "the database does not answer; start it or check the URL");
                struct pollfd pfd = {.fd = st->epoll_fd, .events = POLLIN};
                (void)poll(&pfd, 1, 20);
                pg_step(&st->st);
                if (ln->state == LINK_CLOSED && again && ln->timer_us <= pg_now_us(st))
                        pg_link_open(ln);
        }
        return SEMEL_OK;
}

/* -1: none, and nothing is waited for. */
static int linger_timer(int epoll_fd)
{
        struct epoll_event edge = {.events = EPOLLIN | EPOLLET};
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &edge) == 0)
                return fd;
        if (fd >= 0)
                (void)close(fd);
        return -1;
}

static semel_code pg_open(const char *url, const struct store_env *env, struct store **ret_st,
                          semel_error *err)
{
        struct pg_store *st = calloc(1, sizeof *st);
        if (!st)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a store");
        semel_code code = pg_config_parse(url, &st->config, err);
        if (code != SEMEL_OK) {
                free(st);
                return code;
        }
        st->st.vt = &pg_vt;
        st->clock = env->clock;
        st->sleeping_callers = env->sleeping_callers;
        st->expire_us = INT64_MAX;
        st->formed_last = &st->formed;
        list_init(&st->later);
        list_init(&st->answered);
        for (int i = 0; i < LANE_QUEUES; i++)
                list_init(&st->queues[i]);
        for (int i = 0; i < st->config.links; i++)
                pg_link_init(&st->links[i], st);
        st->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        st->timer_fd = st->sleeping_callers ? -1 : linger_timer(st->epoll_fd);
        if (st->epoll_fd < 0) {
                code = err_set_errno(err, SEMEL_ERR_NO_MEMORY, errno, "epoll_create1 failed");
        } else {
                st->reap_us = pg_now_us(st) + st->config.reap_us / 2;
                code = connect_first(st, err);
        }
        if (code != SEMEL_OK) {
                pg_close(&st->st);
                return code;
        }
        *ret_st = &st->st;
        return SEMEL_OK;
}

const struct store_driver store_postgres_driver = {
        .scheme = "postgres",
        .open = pg_open,
        .migrate = pg_schema_migrate,
        .print = pg_schema_print,
        .outbox_open = pg_outbox_open,
        .inbox_open = postgres_inbox_open,
        .print_mapping = pg_mapping_print,
        .notify = pg_schema_notify,
};

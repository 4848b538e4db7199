/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_worker: one thread that takes one partition at a time and carries out the next step of
 * its plan (core/inbox_plan.h).
 */
#include <stdio.h>
#include <string.h>

#include "consume/consume_internal.h"
#include "sys/clock.h"

/* -- which partition ----------------------------------------------------------------------------- */

/* The one that may go on and has waited longest, or NULL and when to look again; behind mu. */
static struct part *choose(struct consume *c, int64_t now_us, int64_t *ret_until_us)
{
        struct part *best = NULL;
        *ret_until_us = now_us + SECOND;
        for (struct part *p = c->parts; p; p = p->next) {
                if (p->running || p->gone || p->n == 0)
                        continue;
                if (p->not_before_us <= now_us) {
                        if (!best || p->served < best->served)
                                best = p;
                } else if (p->not_before_us < *ret_until_us) {
                        *ret_until_us = p->not_before_us;
                }
        }
        if (best)
                best->served = ++c->turn;
        return best;
}

/* Take messages for a step; behind mu.  They stay in the queue until they are done. */
static size_t take(struct worker *w, struct part *p, struct inbox_step step)
{
        size_t n = 0, bytes = 0;
        size_t max = w->c->config.post && step.n > CONSUME_POST_ROWS ? CONSUME_POST_ROWS : step.n;
        while (n < max && n < p->n && (n == 0 || bytes < LIMIT_INBOX_BATCH_BYTES)) {
                w->messages[n] = p->q[(p->head + n) % p->cap];
                bytes += w->messages[n]->event.payload.n + w->messages[n]->event.key.n;
                n++;
        }
        return n;
}

/* -- steps --------------------------------------------------------------------------------------- */

struct done {
        enum inbox_outcome outcome;
        size_t n;         /* events that are finished: their offset moves */
        size_t at;        /* EVENT_FAILED */
        int number;       /* COUNT: of the next try; 0: it is not known */
        int64_t wait_us;  /* the database is away: at least so long */
        bool replan;      /* nothing happened that the plan should know */
        bool taken_back;  /* the try was none, and is counted anew */
        char reason[LIMIT_INBOX_REASON_BYTES];
};

static void keep_reason(struct done *d, const semel_error *err)
{
        (void)snprintf(d->reason, sizeof d->reason, "%s", err->text);
}

/* Say it when the database goes away, and when it is back. */
static void note_database(struct consume *c, const struct inbox_result *ret)
{
        bool is_down = ret->end == INBOX_DOWN || ret->end == INBOX_STOP;
        /* A connection that ended, or was told to, says nothing about the next one: another worker may
         * have seen already that there is none. */
        if (ret->end == INBOX_BROKE ||
            (ret->end == INBOX_AGAIN && inbox_sqlstate_is_goodbye(ret->err.sqlstate)))
                return;
        if (atomic_exchange(&c->database_down, is_down) == is_down)
                return;
        if (is_down)
                consume_say(c, "the database is away, events wait: %s", ret->err.text);
        else
                consume_say(c, "the database is back");
}

static void from_end(struct worker *w, const struct inbox_result *ret, struct done *d)
{
        struct consume *c = w->c;
        if (ret->end != INBOX_DONE)
                keep_reason(d, &ret->err);
        note_database(c, ret);
        switch (ret->end) {
        case INBOX_DONE:
                d->outcome = INBOX_WORKED;
                break;
        case INBOX_FAILED:
                count(c, COUNT_FAILED, 1);
                d->outcome = ret->failed_at == INBOX_AT_COMMIT ? INBOX_COMMIT_FAILED
                                                               : INBOX_EVENT_FAILED;
                d->at = ret->failed_at;
                break;
        case INBOX_AGAIN:
                count(c, COUNT_AGAIN, 1);
                d->outcome = INBOX_TRY_AGAIN;
                break;
        case INBOX_BROKE:
                count(c, COUNT_LOST, 1);
                d->outcome = INBOX_CONNECTION_LOST;
                break;
        case INBOX_DOWN:
                d->replan = true;
                d->wait_us = CONSUME_DOWN_US;
                break;
        case INBOX_STOP:
                d->replan = true;
                d->wait_us = CONSUME_STOP_US;
                break;
        }
}

/* Of one call that is no transaction of the handler's. */
static void from_code(struct worker *w, const semel_error *err, struct done *d)
{
        struct inbox_result ret = {.end = INBOX_DOWN, .err = *err};
        if (inbox_sqlstate_is_transient(err->sqlstate) || err->code == SEMEL_ERR_BUSY)
                ret.end = INBOX_AGAIN;
        else if (err->code == SEMEL_ERR_SCHEMA || err->code == SEMEL_ERR_ACCESS)
                ret.end = INBOX_STOP;
        from_end(w, &ret, d);
}

static void bury(struct worker *w, struct part *p, const struct inbox_event *e, int attempts,
                 const char *reason, struct done *d)
{
        struct consume *c = w->c;
        struct inbox_result ret;
        bool buried = false;
        w->inbox->vt->bury(w->inbox, e, attempts, reason, c->config.dead_topic,
                           clock_boot_us() + CONSUME_ASK_US, &buried, &ret);
        from_end(w, &ret, d);
        if (ret.end == INBOX_FAILED) { /* ours: not the event's fault */
                d->replan = true;
                d->wait_us = CONSUME_STOP_US;
        }
        if (ret.end != INBOX_DONE)
                return;
        d->n = 1;
        if (!buried)
                return;
        count(c, COUNT_DEAD, 1);
        consume_say(c, "event %.*s of %s/%d offset %lld is dead after %d tr%s: %s",
                    (int)e->id.n, (const char *)e->id.p, p->topic, (int)p->partition,
                    (long long)e->offset, attempts, attempts == 1 ? "y" : "ies", reason);
}

/* Before each event of a step.  The first one goes on when the program ends: its count may stand. */
static bool may_post(struct worker *w, const struct part *p, bool first)
{
        struct consume *c = w->c;
        (void)pthread_mutex_lock(&c->mu);
        bool may = !p->gone && !c->cut && (first || !c->draining);
        if (may)
                w->posting.cancelled = false; /* whoever cancels is behind mu too */
        (void)pthread_mutex_unlock(&c->mu);
        return may;
}

/* The handler outside the database: what was answered is recorded after it. */
static size_t post(struct worker *w, const struct part *p, size_t n, struct done *d)
{
        struct consume *c = w->c;
        semel_error err = {0};
        size_t done = 0;
        if (w->inbox->vt->seen(w->inbox, w->events, n, clock_boot_us() + CONSUME_ASK_US, w->seen,
                               &err) != SEMEL_OK) {
                from_code(w, &err, d);
                return 0;
        }
        for (; done < n; done++) {
                enum consume_posted said = CONSUME_POSTED_DONE;
                if (!may_post(w, p, done == 0)) {
                        d->at = 0;
                        return done;
                }
                if (!w->seen[done])
                        said = c->config.post(c->config.post_arg, &w->events[done],
                                              clock_boot_us() + CONSUME_POST_US, &w->posting, &err);
                if (said == CONSUME_POSTED_DONE)
                        continue;
                keep_reason(d, &err);
                if (said == CONSUME_POSTED_REFUSED)
                        count(c, COUNT_FAILED, 1);
                d->outcome = said == CONSUME_POSTED_REFUSED ? INBOX_EVENT_FAILED : INBOX_TRY_AGAIN;
                d->at = 0;
                return done;
        }
        return n;
}

/* A server that is being stopped ends all sessions and takes nobody in: that is not the doing of the
 * event in this one, as it is when its handler ends the session (rule D3). */
static bool server_went(struct worker *w, const struct inbox_result *ret)
{
        semel_error ignored = {0};
        return ret->end == INBOX_BROKE && strcmp(ret->err.sqlstate, "57P01") == 0 &&
               w->inbox->vt->check(w->inbox, NULL, clock_boot_us() + CONSUME_ASK_US, &ignored) ==
                       SEMEL_ERR_STORE_DOWN;
}

static void apply(struct worker *w, const struct part *p, size_t n, bool counted, struct done *d)
{
        struct consume *c = w->c;
        struct inbox_result ret;
        if (c->config.post) {
                size_t posted = post(w, p, n, d);
                if (posted == 0)
                        return;
                n = posted; /* what is behind is looked at in the next step */
        }
        w->inbox->vt->apply(w->inbox, w->events, n, &c->config.handler, counted,
                            clock_boot_us() + CONSUME_APPLY_US, &ret);
        if (counted && server_went(w, &ret)) {
                count(c, COUNT_LOST, 1);
                ret.end = INBOX_DOWN;
        }
        from_end(w, &ret, d);
        if (ret.end != INBOX_DONE)
                return;
        d->n = n;
        count(c, COUNT_BATCHES, 1);
        count(c, COUNT_PROCESSED, ret.processed);
        count(c, COUNT_DUPLICATES, ret.duplicates);
        count(c, COUNT_ALARMS, ret.alarms);
        if (ret.alarms)
                consume_say(c, "%zu event%s came with an id that another payload had: see "
                               "inbox_alarm", ret.alarms, ret.alarms == 1 ? "" : "s");
}

/* Count a try.  Its number is read first, so that a write whose answer does not come can be repeated, and
 * counts nothing a second time: it may stand, as a COMMIT does that waits for its standby (rule D2). */
static void count_try(struct worker *w, const struct part *p, struct done *d)
{
        const struct inbox_event *e = &w->events[0];
        int64_t deadline_us = clock_boot_us() + CONSUME_ASK_US;
        semel_error err = {0};
        int attempts = 0;
        semel_code code = SEMEL_OK;
        d->number = p->plan.number;
        if (d->number == 0)
                code = w->inbox->vt->counted(w->inbox, e, deadline_us, &attempts, &err);
        if (code == SEMEL_OK) {
                d->number = d->number ? d->number : attempts + 1;
                code = w->inbox->vt->count(w->inbox, e, d->number, deadline_us, &attempts, &err);
        }
        if (code != SEMEL_OK) {
                from_code(w, &err, d);
                return;
        }
        from_end(w, &(struct inbox_result){.end = INBOX_DONE}, d);
        d->at = (size_t)attempts;
}

/* A counted try that nobody's fault ended was none (rule D2).  Here, since the partition may be another's
 * before the next step.  Where that has no answer it is counted again with the same number. */
static void take_back(struct worker *w, const struct part *p, struct done *d)
{
        semel_error ignored = {0};
        (void)w->inbox->vt->count_back(w->inbox, &w->events[0], p->plan.number,
                                       clock_boot_us() + CONSUME_CANCEL_US, &ignored);
        d->taken_back = true;
}

static void no_memory(struct worker *w, struct done *d)
{
        count(w->c, COUNT_AGAIN, 1);
        (void)snprintf(d->reason, sizeof d->reason, "no memory for the event's headers");
}

/* Letters keep the headers, which batches build only when the statement wants them. */
static bool add_headers(struct worker *w)
{
        struct inbox_event *e = &w->events[0];
        if (e->headers.n)
                return true;
        semel_code code = headers_build(w, w->messages[0], e);
        if (w->built[0].id_copied)
                e->id.p = w->text.p + w->built[0].id_at;
        if (code == SEMEL_ERR_TOO_LARGE)
                e->headers = span_str("[[\"headers\", \"too large to be kept\"]]");
        return code != SEMEL_ERR_NO_MEMORY;
}

/* Carry one step out; the partition is ours.  step.n becomes what it really was. */
static void run(struct worker *w, struct part *p, struct inbox_step *step, struct done *d)
{
        const char *fault = NULL;
        semel_error err = {0};
        size_t n = batch_build(w, p, step->n, &fault);
        if (fault) { /* there is nothing to try again */
                step->action = INBOX_BURY;
                step->n = 1;
                bury(w, p, &w->events[0], 0, fault, d);
                return;
        }
        if (n == 0) {
                no_memory(w, d);
                return;
        }
        step->n = n;
        switch (step->action) {
        case INBOX_LOOK:
                if (w->inbox->vt->seen(w->inbox, w->events, n, clock_boot_us() + CONSUME_ASK_US,
                                       w->seen, &err) != SEMEL_OK) {
                        from_code(w, &err, d);
                        return;
                }
                from_end(w, &(struct inbox_result){.end = INBOX_DONE}, d);
                while (d->at < n && w->seen[d->at])
                        d->at++;
                return;
        case INBOX_COUNT:
                count_try(w, p, d);
                return;
        case INBOX_BURY:
                if (!add_headers(w)) {
                        no_memory(w, d);
                        return;
                }
                bury(w, p, &w->events[0],
                     p->plan.attempts < p->plan.attempts_max ? p->plan.attempts
                                                             : p->plan.attempts_max,
                     p->plan.attempts <= p->plan.attempts_max && p->reason[0]
                             ? p->reason
                             : "no try of it came to an end", d);
                return;
        case INBOX_TRY:
        case INBOX_BATCH:
                apply(w, p, n, step->action == INBOX_TRY, d);
                if (step->action == INBOX_TRY && d->outcome == INBOX_TRY_AGAIN)
                        take_back(w, p, d);
                return;
        }
}

/* -- the thread ----------------------------------------------------------------------------------- */

/* What the step says to the partition's plan; behind mu. */
static void learn(struct part *p, struct inbox_step step, const struct done *d)
{
        int64_t wait_us = d->wait_us;
        if (d->taken_back)
                inbox_plan_taken_back(&p->plan);
        if (d->number)
                inbox_plan_numbered(&p->plan, d->number);
        if (!d->replan) {
                if (step.action == INBOX_LOOK && d->outcome == INBOX_WORKED)
                        inbox_plan_looked(&p->plan, d->at);
                if (step.action == INBOX_COUNT && d->outcome == INBOX_WORKED)
                        inbox_plan_counted(&p->plan, (int)d->at);
                if (d->n > 0 && d->n < step.n && d->outcome == INBOX_WORKED)
                        step.n = d->n;
                wait_us = inbox_plan_done(&p->plan, step, d->outcome, d->at);
        }
        /* A letter says why its event failed, not why it was late. */
        if (d->reason[0] && (step.action != INBOX_BURY || !p->reason[0]))
                (void)snprintf(p->reason, sizeof p->reason, "%s", d->reason);
        p->not_before_us = wait_us ? clock_boot_us() + wait_us : 0;
}

/* The partition is free for the next step, without what is done; behind mu. */
static void settle(struct worker *w, struct part *p, const struct done *d)
{
        struct consume *c = w->c;
        if (d->n > 0) {
                p->done_offset = w->messages[d->n - 1]->offset + 1;
                p->progress_us = clock_boot_us();
                p->reason[0] = '\0';
                part_pop(c, p, d->n);
        }
        p->running = false;
        w->part = NULL;
        c->running--;
        if (p->gone) {
                /* Still listed: whoever revokes it waits for us.  Given up: ours to free. */
                struct part *at = c->parts;
                while (at && at != p)
                        at = at->next;
                if (!at)
                        part_free(c, p);
        }
        (void)pthread_cond_broadcast(&c->idle);
        if (c->parts)
                (void)pthread_cond_signal(&c->work);
}

static bool turn(struct worker *w)
{
        struct consume *c = w->c;
        int64_t until_us;
        struct part *p = NULL;
        (void)pthread_mutex_lock(&c->mu);
        while (!c->stopping) {
                p = c->draining ? NULL : choose(c, clock_boot_us(), &until_us);
                if (p)
                        break;
                consume_wait(c, &c->work, c->draining ? clock_boot_us() + SECOND : until_us);
        }
        if (!p) {
                (void)pthread_mutex_unlock(&c->mu);
                return false;
        }
        struct inbox_step step;
        struct done d;
        p->running = true;
        w->part = p;
        c->running++;
        do { /* what was counted is tried at once: nobody stops in between, or takes the partition away */
                step = inbox_plan_next(&p->plan, p->n);
                d = (struct done){.outcome = INBOX_TRY_AGAIN};
                step.n = take(w, p, step);
                (void)pthread_mutex_unlock(&c->mu);
                run(w, p, &step, &d);
                (void)pthread_mutex_lock(&c->mu);
                learn(p, step, &d);
        } while (step.action == INBOX_COUNT && p->not_before_us == 0 && !c->stopping);
        settle(w, p, &d);
        (void)pthread_mutex_unlock(&c->mu);
        for (size_t i = 0; i < d.n; i++)
                bus_message_free(w->messages[i]);
        return true;
}

void *consume_worker_main(void *arg)
{
        struct worker *w = arg;
        while (turn(w))
                ;
        return NULL;
}

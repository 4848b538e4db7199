/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_keeper: the thread beside the workers: letters that an operator wants applied, and events that
 * are past their retention.
 */
#include "consume/consume_internal.h"
#include "sys/clock.h"

/* Where the keeper is in the letters that are in RETRY. */
struct round {
        int64_t after_id; /* those up to this one had their turn */
        int64_t broke_id; /* the connection broke in a try of this one; 0: of none */
};

static bool told_to_end(struct consume *c)
{
        (void)pthread_mutex_lock(&c->mu);
        bool end = c->stopping || c->draining;
        (void)pthread_mutex_unlock(&c->mu);
        return end;
}

/* A try that was nobody's fault, or none: the letter is in RETRY again.  There is nothing else that the
 * keeper could do without the database. */
static void give_back(struct consume *c, const struct inbox_letter *l)
{
        struct inbox_session *s = c->keeper;
        semel_error ignored = {0};
        while (s->vt->untake(s, l, clock_boot_us() + CONSUME_ASK_US, &ignored) != SEMEL_OK &&
               !told_to_end(c)) {
                (void)pthread_mutex_lock(&c->mu);
                consume_wait(c, &c->idle, clock_boot_us() + CONSUME_DOWN_US);
                (void)pthread_mutex_unlock(&c->mu);
        }
}

/* Try it; it is DEAD from the beginning of that on, until it turns out otherwise.  A take without an
 * answer may have made it so all the same. */
static void apply_letter(struct consume *c, struct round *r, const struct inbox_letter *listed,
                         const struct inbox_handler *handler)
{
        struct inbox_session *s = c->keeper;
        const int64_t id = listed->id;
        struct inbox_result ret = {.end = INBOX_DOWN};
        struct inbox_letters taken = {0};
        semel_error ignored = {0};
        bool found = false;
        if (s->vt->take(s, span_str(c->consumer), id, false, clock_boot_us() + CONSUME_ASK_US, &taken,
                        &ignored) != SEMEL_OK) {
                give_back(c, listed);
                return;
        }
        if (taken.n == 0) {
                inbox_letters_release(&taken);
                return;
        }
        s->vt->retry_one(s, id, handler, clock_boot_us() + CONSUME_APPLY_US, &found, &ret);
        /* A server that goes away takes nobody with it twice (rule D2); this one is next again, so
         * that two that break it do not cover each other. */
        bool is_suspect = ret.end == INBOX_BROKE && r->broke_id == id;
        r->broke_id = ret.end == INBOX_BROKE ? id : 0;
        if (found && ret.end == INBOX_DONE) {
                count(c, COUNT_RETRIED, 1);
                consume_say(c, "a dead letter was applied");
        } else if (ret.end == INBOX_FAILED || is_suspect) {
                consume_say(c, "a dead letter failed again: %s", ret.err.text);
        } else if (ret.end != INBOX_DONE) {
                give_back(c, &taken.letter[0]);
                r->after_id -= ret.end == INBOX_BROKE;
        }
        inbox_letters_release(&taken);
}

/* A handler that says what the one outside the database said. */
static int refuse(void *arg, void *conn, const struct inbox_event *event, semel_error *why)
{
        (void)conn;
        (void)event;
        (void)err_copy(why, arg);
        return -1;
}

/* A POST can break nothing here, so the letter is in RETRY until its answer is known. */
static void post_letter(struct consume *c, struct round *r, const struct inbox_letter *l)
{
        const struct inbox_event e = inbox_letter_event(l);
        semel_error why = {0};
        const struct inbox_handler refused = {.fn = refuse, .arg = &why};
        switch (c->config.post(c->config.post_arg, &e, clock_boot_us() + CONSUME_ASK_US, &c->keeper_posting,
                               &why)) {
        case CONSUME_POSTED_DONE:
                apply_letter(c, r, l, &c->config.handler);
                break;
        case CONSUME_POSTED_REFUSED:
                apply_letter(c, r, l, &refused);
                break;
        case CONSUME_POSTED_UNKNOWN:
                break; /* again in the next round */
        }
}

/* The next letter in RETRY; false: they all had their turn, or the database is away. */
static bool retry_next(struct consume *c, struct round *r)
{
        struct inbox_session *s = c->keeper;
        struct inbox_letters letters = {0};
        semel_error ignored = {0};
        if (s->vt->list(s, span_str(c->consumer), INBOX_RETRY, r->after_id, 1,
                        clock_boot_us() + CONSUME_ASK_US, &letters, &ignored) != SEMEL_OK ||
            letters.n == 0) {
                inbox_letters_release(&letters);
                r->after_id = 0;
                return false;
        }
        r->after_id = letters.letter[0].id;
        if (c->config.post)
                post_letter(c, r, &letters.letter[0]);
        else
                apply_letter(c, r, &letters.letter[0], &c->config.handler);
        inbox_letters_release(&letters);
        return true;
}

static void prune(struct consume *c)
{
        semel_error err = {0};
        int64_t rows = LIMIT_INBOX_PRUNE_ROWS;
        while (rows >= LIMIT_INBOX_PRUNE_ROWS && atomic_load(&c->may_prune) && !told_to_end(c))
                if (c->keeper->vt->prune(c->keeper, span_str(c->consumer), c->config.retention_us,
                                         clock_boot_us() + CONSUME_ASK_US, &rows, &err) != SEMEL_OK) {
                        if (!atomic_load(&c->database_down) && !told_to_end(c))
                                consume_say(c, "old events are not forgotten now, it is tried again: %s", err.text);
                        return;
                }
}

void *consume_keeper_main(void *arg)
{
        struct consume *c = arg;
        int64_t prune_us = clock_boot_us() + CONSUME_LETTER_US;
        struct round round = {0};
        bool more = false;
        (void)pthread_mutex_lock(&c->mu);
        while (!c->checked && !c->stopping && !c->draining)
                (void)pthread_cond_wait(&c->idle, &c->mu);
        (void)pthread_mutex_unlock(&c->mu);
        for (;;) {
                int64_t until_us = clock_boot_us() + (more ? 0 : CONSUME_LETTER_US);
                (void)pthread_mutex_lock(&c->mu);
                while (!c->stopping && !c->draining && clock_boot_us() < until_us)
                        consume_wait(c, &c->idle, until_us);
                bool stop = c->stopping || c->draining;
                c->running += !stop; /* the end waits for it */
                (void)pthread_mutex_unlock(&c->mu);
                if (stop)
                        return NULL;
                more = retry_next(c, &round);
                (void)pthread_mutex_lock(&c->mu);
                c->running--;
                (void)pthread_cond_broadcast(&c->idle);
                (void)pthread_mutex_unlock(&c->mu);
                if (clock_boot_us() >= prune_us && atomic_load(&c->may_prune) &&
                    c->config.retention_us > 0) {
                        prune(c);
                        prune_us = clock_boot_us() + CONSUME_PRUNE_US;
                }
        }
}

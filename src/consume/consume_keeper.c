/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_keeper: the thread beside the workers: letters that an operator wants applied, and events that
 * are past their retention.
 */
#include "consume/consume_internal.h"
#include "sys/clock.h"

/* Letters in RETRY, one after the other; false: there is none, or it did not work. */
static bool retry_next(struct consume *c)
{
        struct inbox_session *s = c->keeper;
        struct inbox_result ret = {.end = INBOX_DOWN};
        struct inbox_handler handler = c->config.handler;
        struct span consumer = span_str(c->consumer);
        bool found = false;
        int64_t id = 0;
        if (c->config.post) {
                struct inbox_letters letters = {0};
                semel_error err = {0};
                if (s->vt->list(s, consumer, INBOX_RETRY, 0, 1, clock_boot_us() + CONSUME_ASK_US,
                                &letters, &err) != SEMEL_OK)
                        return false;
                if (letters.n == 0) {
                        inbox_letters_release(&letters);
                        return false;
                }
                const struct inbox_letter *l = &letters.letter[0];
                const struct inbox_event e = {
                        .consumer = l->consumer, .source = l->source, .id = l->event_id,
                        .topic = l->topic, .key = l->key, .payload = l->payload,
                        .headers = l->headers, .key_is_null = l->key_is_null,
                        .payload_is_null = l->payload_is_null};
                enum consume_posted said = c->config.post(c->config.post_arg, &e,
                                                          clock_boot_us() + CONSUME_STALL_US, &err);
                id = l->id;
                inbox_letters_release(&letters);
                if (said != CONSUME_POSTED_DONE)
                        return false; /* it stays in RETRY: again in a second */
        }
        s->vt->retry_one(s, consumer, id, &handler, clock_boot_us() + CONSUME_APPLY_US, &found,
                         &ret);
        if (found && ret.end == INBOX_DONE) {
                count(c, COUNT_RETRIED, 1);
                consume_say(c, "a dead letter was applied");
        } else if (found && ret.end == INBOX_FAILED) {
                consume_say(c, "a dead letter failed again: %s", ret.err.text);
        }
        return found && (ret.end == INBOX_DONE || ret.end == INBOX_FAILED);
}

static void prune(struct consume *c)
{
        semel_error err = {0};
        int64_t rows = LIMIT_INBOX_PRUNE_ROWS;
        bool stop = false;
        while (rows >= LIMIT_INBOX_PRUNE_ROWS && !stop) {
                if (c->keeper->vt->prune(c->keeper, span_str(c->consumer), c->config.retention_us,
                                         clock_boot_us() + CONSUME_ASK_US, &rows, &err) != SEMEL_OK)
                        return; /* the next time */
                (void)pthread_mutex_lock(&c->mu);
                stop = c->stopping || c->draining;
                (void)pthread_mutex_unlock(&c->mu);
        }
}

void *consume_keeper_main(void *arg)
{
        struct consume *c = arg;
        int64_t prune_us = clock_boot_us() + CONSUME_LETTER_US;
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
                more = retry_next(c);
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

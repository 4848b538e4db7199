/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_inbox_letter: dead letters, and what operators see of the inbox.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "sql_postgres.h"
#include "store/postgres/pg_error.h"
#include "store/postgres/pg_inbox.h"
#include "store/postgres/pg_row.h"

/* -- bury ---------------------------------------------------------------------------------------- */

static bool send_letter(struct pg_inbox *in, const struct inbox_event *e, int attempts,
                        const char *reason)
{
        struct params *p = &in->params;
        pg_params_clear(p, 12);
        pg_params_text(p, 0, e->consumer);
        pg_params_text(p, 1, e->source);
        pg_params_maybe(p, 2, PG_TEXT, e->id, e->id.n == 0);
        pg_params_text(p, 3, e->topic);
        pg_params_number(p, 4, PG_INT4, e->partition);
        pg_params_number(p, 5, PG_INT8, e->offset);
        pg_params_maybe(p, 6, PG_BYTEA, e->key, e->key_is_null);
        pg_params_maybe(p, 7, PG_BYTEA, e->payload, e->payload_is_null);
        pg_params_text(p, 8, e->headers.n ? e->headers : span_str("[]"));
        pg_params_maybe(p, 9, PG_BYTEA, span_of(e->hash, sizeof e->hash), !e->has_hash);
        pg_params_number(p, 10, PG_INT4, attempts);
        pg_params_text(p, 11, span_str(reason));
        return pg_inbox_send(in, sql_postgres_inbox_bury, true);
}

static bool send_to_topic(struct pg_inbox *in, const struct inbox_event *e, const char *topic,
                          const char *reason)
{
        struct params *p = &in->params;
        semel_error ignored = {0};
        buf_clear(&in->jsonb);
        if (inbox_dead_headers(e, reason, &in->jsonb, &ignored) != SEMEL_OK)
                return false;
        pg_params_clear(p, 4);
        pg_params_text(p, 0, span_str(topic));
        pg_params_maybe(p, 1, PG_TEXT, e->key, !inbox_key_fits_outbox(e));
        pg_params_maybe(p, 2, PG_BYTEA, e->payload, e->payload_is_null);
        pg_params_text(p, 3, buf_span(&in->jsonb));
        return pg_inbox_send(in, sql_postgres_inbox_publish, true);
}

static void as_ours(struct inbox_result *ret)
{
        if (ret->end == INBOX_FAILED)
                ret->end = pg_inbox_end_of_ours(ret->err.sqlstate, ret->err.code);
}

static bool begin(struct pg_inbox *in, int64_t deadline_us, struct inbox_result *ret)
{
        if (!pg_inbox_ready(in, NULL, deadline_us, ret))
                return false;
        if (PQenterPipelineMode(in->pg))
                return true;
        ret->end = pg_inbox_end_of_ours("", pg_error_from_connection(&ret->err, in->pg));
        return false;
}

/* COMMIT what the pipeline began. */
static void commit(struct pg_inbox *in, bool sent, struct inbox_result *ret)
{
        sent = sent && PQsendQueryParams(in->pg, "COMMIT", 0, NULL, NULL, NULL, NULL, 1) &&
               pg_inbox_sync(in);
        if (!sent) {
                (void)err_set(&ret->err, SEMEL_ERR_NO_MEMORY, "no memory for a statement");
                ret->end = INBOX_DOWN;
                pg_inbox_drop(in);
                return;
        }
        (void)pg_inbox_collect(in, SIZE_MAX, NULL, ret);
}

void pg_inbox_bury(struct inbox_session *s, const struct inbox_event *event, int attempts,
                   const char *reason, const char *dead_topic, int64_t deadline_us,
                   bool *ret_buried, struct inbox_result *ret)
{
        struct pg_inbox *in = pg_inbox_of(s);
        PGresult *res = NULL;
        char text[LIMIT_INBOX_REASON_BYTES];
        bool is_new = true, has_id = event->id.n > 0;
        (void)utf8_copy(text, sizeof text, span_str(reason));
        reason = text;
        if (!begin(in, deadline_us, ret))
                return;
        bool sent = pg_inbox_send_begin(in, NULL) &&
                    (has_id ? pg_inbox_send_record(in, event, 1)
                            : send_letter(in, event, attempts, reason)) &&
                    pg_inbox_sync(in);
        if (!sent) {
                commit(in, false, ret);
                return;
        }
        (void)pg_inbox_collect(in, 2, &res, ret);
        if (ret->end == INBOX_DONE)
                is_new = PQntuples(res) > 0;
        PQclear(res);
        if (ret->end == INBOX_DONE && !PQenterPipelineMode(in->pg))
                ret->end = INBOX_BROKE;
        if (ret->end == INBOX_DONE) {
                sent = true;
                if (has_id && is_new)
                        sent = send_letter(in, event, attempts, reason);
                if (has_id)
                        sent = sent && pg_inbox_send_uncount(in, event);
                if (is_new && dead_topic)
                        sent = sent && send_to_topic(in, event, dead_topic, reason);
                commit(in, sent, ret);
        }
        as_ours(ret);
        if (ret->end == INBOX_DONE)
                *ret_buried = is_new;
        else
                pg_inbox_rollback(in);
}

/* -- letters ---------------------------------------------------------------------------------- */

static void read_letter(const PGresult *res, int row, struct inbox_letter *l)
{
        l->id = pg_result_int(res, row, 0);
        l->state = (enum inbox_letter_state)pg_result_int(res, row, 1);
        struct span *const spans[] = {&l->consumer, &l->source, &l->event_id, &l->topic,
                                      &l->key, &l->payload, &l->headers, &l->reason};
        for (int i = 0; i < 8; i++)
                *spans[i] = pg_result_bytes(res, row, 2 + i);
        l->key_is_null = PQgetisnull(res, row, 6);
        l->payload_is_null = PQgetisnull(res, row, 7);
        l->partition = (int32_t)pg_result_int(res, row, 10);
        l->attempts = (int32_t)pg_result_int(res, row, 11);
        l->offset = pg_result_int(res, row, 12);
        l->dead_us = pg_result_time_us(res, row, 13);
}

static void release_result(void *driver)
{
        PQclear(driver);
}

/* Letters as a statement returned them; takes the result. */
static semel_code read_letters(PGresult *res, struct inbox_letters *ret, semel_error *err)
{
        struct inbox_letters list = {.n = (size_t)PQntuples(res), .driver = res,
                                     .release = release_result};
        list.letter = calloc(list.n + 1, sizeof *list.letter);
        if (!list.letter) {
                PQclear(res);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the list");
        }
        for (size_t i = 0; i < list.n; i++)
                read_letter(res, (int)i, &list.letter[i]);
        *ret = list;
        return SEMEL_OK;
}

semel_code pg_inbox_take(struct inbox_session *s, struct span consumer, int64_t id, bool dead_too,
                         int64_t deadline_us, struct inbox_letters *ret, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_params_clear(&in->params, 4);
        pg_params_text(&in->params, 0, consumer);
        pg_params_number(&in->params, 1, PG_INT8, id);
        pg_params_number(&in->params, 2, PG_INT2, dead_too ? INBOX_DEAD : INBOX_RETRY);
        pg_params_text(&in->params, 3, span_str(INBOX_LETTER_TRIED));
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_letter_take, deadline_us, err);
        return res ? read_letters(res, ret, err) : inbox_code_of(err);
}

semel_code pg_inbox_untake(struct inbox_session *s, const struct inbox_letter *was,
                           int64_t deadline_us, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_params_clear(&in->params, 5);
        pg_params_number(&in->params, 0, PG_INT8, was->id);
        pg_params_number(&in->params, 1, PG_INT2, was->state);
        pg_params_text(&in->params, 2, was->reason);
        pg_params_number(&in->params, 3, PG_INT4, was->attempts);
        pg_params_text(&in->params, 4, span_str(INBOX_LETTER_TRIED));
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_letter_untake, deadline_us, err);
        PQclear(res);
        return res ? SEMEL_OK : inbox_code_of(err);
}

static void letter_back(struct pg_inbox *in, int64_t id, const semel_error *why,
                        int64_t deadline_us)
{
        semel_error ignored = {0};
        char text[LIMIT_INBOX_REASON_BYTES];
        size_t n = utf8_copy(text, sizeof text, span_str(why->text));
        pg_params_clear(&in->params, 2);
        pg_params_number(&in->params, 0, PG_INT8, id);
        pg_params_text(&in->params, 1, span_of(text, n));
        PQclear(pg_inbox_ask(in, sql_postgres_inbox_letter_back, deadline_us, &ignored));
}

void pg_inbox_retry_one(struct inbox_session *s, int64_t id, const struct inbox_handler *handler,
                        int64_t deadline_us, bool *ret_found, struct inbox_result *ret)
{
        struct pg_inbox *in = pg_inbox_of(s);
        PGresult *res = NULL;
        struct inbox_letter l = {0};
        bool found = false;
        if (!begin(in, deadline_us, ret))
                return;
        bool sent = pg_inbox_send_begin(in, handler);
        pg_params_clear(&in->params, 1);
        pg_params_number(&in->params, 0, PG_INT8, id);
        sent = sent && pg_inbox_send(in, sql_postgres_inbox_letter_lock, true) && pg_inbox_sync(in);
        if (!sent) {
                commit(in, false, ret);
                return;
        }
        (void)pg_inbox_collect(in, 2, &res, ret);
        as_ours(ret);
        if (ret->end != INBOX_DONE)
                goto out;
        found = PQntuples(res) > 0;
        if (!found)
                goto out;
        read_letter(res, 0, &l);
        const struct inbox_event event = inbox_letter_event(&l);
        pg_inbox_handle_one(in, handler, &event, ret);
        if (ret->end != INBOX_DONE)
                goto out;
        sent = PQenterPipelineMode(in->pg) == 1;
        pg_params_clear(&in->params, 1);
        pg_params_number(&in->params, 0, PG_INT8, l.id);
        sent = sent && pg_inbox_send(in, sql_postgres_inbox_letter_done, true);
        commit(in, sent, ret);
        if (ret->end == INBOX_FAILED)
                ret->end = pg_inbox_end_of_handler(in, ret->err.sqlstate);
        ret->processed = ret->end == INBOX_DONE;
out:
        pg_inbox_rollback(in);
        in->used = in->pg != NULL;
        if (ret->end == INBOX_FAILED)
                letter_back(in, l.id, &ret->err, deadline_us);
        PQclear(res);
        *ret_found = found;
}

/* -- operators -------------------------------------------------------------------------------- */

semel_code pg_inbox_prune(struct inbox_session *s, struct span consumer, int64_t keep_us,
                          int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_params_clear(&in->params, 3);
        pg_params_text(&in->params, 0, consumer);
        pg_params_number(&in->params, 1, PG_INT8, keep_us);
        pg_params_number(&in->params, 2, PG_INT8, LIMIT_INBOX_PRUNE_ROWS);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_prune, deadline_us, err);
        if (!res)
                return inbox_code_of(err);
        *ret_rows = pg_result_changed(res);
        PQclear(res);
        return SEMEL_OK;
}

static void copy_name(char *out, size_t max, struct span s)
{
        (void)snprintf(out, max, "%.*s", (int)s.n, (const char *)s.p);
}

semel_code pg_inbox_status(struct inbox_session *s, int64_t deadline_us, struct inbox_count **ret,
                           size_t *ret_n, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_params_clear(&in->params, 0);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_status, deadline_us, err);
        if (!res)
                return inbox_code_of(err);
        int n = PQntuples(res);
        struct inbox_count *counts = calloc((size_t)n + 1, sizeof *counts);
        if (!counts) {
                PQclear(res);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the list");
        }
        for (int i = 0; i < n; i++) {
                struct inbox_count *c = &counts[i];
                copy_name(c->consumer, sizeof c->consumer, pg_result_bytes(res, i, 0));
                copy_name(c->source, sizeof c->source, pg_result_bytes(res, i, 1));
                c->processed = pg_result_int(res, i, 2);
                c->dead = pg_result_int(res, i, 3);
                c->retry = pg_result_int(res, i, 4);
                c->alarms = pg_result_int(res, i, 5);
                if (!PQgetisnull(res, i, 6)) {
                        c->oldest_us = pg_result_time_us(res, i, 6);
                        c->newest_us = pg_result_time_us(res, i, 7);
                }
        }
        PQclear(res);
        *ret = counts;
        *ret_n = (size_t)n;
        return SEMEL_OK;
}

semel_code pg_inbox_list(struct inbox_session *s, struct span consumer,
                         enum inbox_letter_state state, int64_t after_id, size_t max,
                         int64_t deadline_us, struct inbox_letters *ret, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_params_clear(&in->params, 4);
        pg_params_text(&in->params, 0, consumer);
        pg_params_number(&in->params, 1, PG_INT2, state);
        pg_params_number(&in->params, 2, PG_INT8, after_id);
        pg_params_number(&in->params, 3, PG_INT8, (int64_t)max);
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_letter_list, deadline_us, err);
        return res ? read_letters(res, ret, err) : inbox_code_of(err);
}

semel_code pg_inbox_decide(struct inbox_session *s, struct span consumer, int64_t id,
                           enum inbox_letter_state to, const char *who, const char *reason,
                           int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct pg_inbox *in = pg_inbox_of(s);
        pg_params_clear(&in->params, 5);
        pg_params_text(&in->params, 0, consumer);
        pg_params_number(&in->params, 1, PG_INT8, id);
        pg_params_number(&in->params, 2, PG_INT2, to);
        pg_params_text(&in->params, 3, span_str(who));
        pg_params_text(&in->params, 4, span_str(reason));
        PGresult *res = pg_inbox_ask(in, sql_postgres_inbox_letter_decide, deadline_us, err);
        if (!res)
                return inbox_code_of(err);
        int64_t n = pg_result_changed(res);
        PQclear(res);
        if (n == 0)
                return err_set(err, SEMEL_ERR_NOT_FOUND,
                               "there is no such dead letter; `semel inbox dead list` shows what "
                               "there is");
        *ret_rows = n;
        return SEMEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_inbox_letter: dead letters, what operators see of the inbox, and semel_sqlite_inbox_first().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "core/event.h"
#include "core/inbox_plan.h"
#include "json/event_headers.h"
#include "sql_sqlite.h"
#include "store/sqlite/sqlite_inbox.h"
#include "store/sqlite/sqlite_store.h"

/* -- bury ---------------------------------------------------------------------------------------- */

static int insert_letter(struct sqlite_inbox *in, const struct inbox_event *e, int attempts,
                         const char *reason)
{
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_BURY);
        if (!stmt)
                return sqlite3_extended_errcode(in->ses.db);
        bind_text(stmt, 1, e->consumer);
        bind_text(stmt, 2, e->source);
        if (e->id.n)
                bind_text(stmt, 3, e->id);
        else
                (void)sqlite3_bind_null(stmt, 3);
        bind_text(stmt, 4, e->topic);
        (void)sqlite3_bind_int(stmt, 5, e->partition);
        (void)sqlite3_bind_int64(stmt, 6, e->offset);
        bind_bytes(stmt, 7, e->key, e->key_is_null);
        bind_bytes(stmt, 8, e->payload, e->payload_is_null);
        bind_text(stmt, 9, e->headers.n ? e->headers : span_str("[]"));
        bind_bytes(stmt, 10, span_of(e->hash, sizeof e->hash), !e->has_hash);
        (void)sqlite3_bind_int(stmt, 11, attempts);
        bind_text(stmt, 12, span_str(reason));
        (void)sqlite3_bind_int64(stmt, 13, in->ses.now.wall_us);
        return sqlite_inbox_run(in, stmt);
}

static int forget_attempts(struct sqlite_inbox *in, const struct inbox_event *e)
{
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_UNCOUNT);
        if (!stmt)
                return sqlite3_extended_errcode(in->ses.db);
        bind_text(stmt, 1, e->consumer);
        bind_text(stmt, 2, e->source);
        bind_text(stmt, 3, e->id);
        return sqlite_inbox_run(in, stmt);
}

/* Append the event to the outbox, for the dead-letter topic. */
static void to_topic(struct sqlite_inbox *in, const struct inbox_event *event, const char *topic,
                     const char *reason, struct inbox_result *ret)
{
        struct buf json;
        struct event_header_list list = {0};
        buf_init(&json, INBOX_DEAD_HEADERS_BYTES_MAX);
        semel_code code = inbox_dead_headers(event, reason, &json, &ret->err);
        if (code == SEMEL_OK)
                code = event_headers_decode(buf_span(&json), &list, &ret->err);
        const struct event dead = {
                .topic = span_str(topic),
                .key = event->key,
                .key_is_null = !inbox_key_fits_outbox(event),
                .payload = event->payload,
                .payload_is_null = event->payload_is_null,
                .partition = EVENT_NO_PARTITION,
                .headers = list.v,
                .header_count = list.n,
        };
        if (code == SEMEL_OK)
                code = sqlite_outbox_append(in->ses.db, &dead, NULL, &ret->err);
        if (code != SEMEL_OK)
                ret->end = sqlite_inbox_end_of(code, INBOX_STOP);
        event_headers_release(&list);
        buf_release(&json);
}

void sqlite_inbox_bury(struct inbox_session *s, const struct inbox_event *event, int attempts,
                       const char *reason, const char *dead_topic, int64_t deadline_us,
                       bool *ret_buried, struct inbox_result *ret)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        char text[LIMIT_INBOX_REASON_BYTES];
        bool is_new = true;
        int rc = SQLITE_OK;
        (void)utf8_copy(text, sizeof text, span_str(reason));
        reason = text;
        if (!sqlite_inbox_begin(in, deadline_us, ret))
                return;
        if (event->id.n)
                rc = sqlite_inbox_record(in, event, &is_new, NULL);
        if (rc == SQLITE_OK && is_new) {
                rc = insert_letter(in, event, attempts, reason);
                is_new = sqlite3_changes(in->ses.db) > 0;
        }
        if (rc == SQLITE_OK && event->id.n)
                rc = forget_attempts(in, event);
        if (rc != SQLITE_OK)
                sqlite_inbox_failed(in, ret);
        else if (is_new && dead_topic)
                to_topic(in, event, dead_topic, reason, ret);
        sqlite_inbox_end(in, ret);
        if (ret->end == INBOX_DONE)
                *ret_buried = is_new;
}

/* -- letters ---------------------------------------------------------------------------------- */

/* Copies the texts behind each other into `text`; spans hold offsets until they are fixed up. */
static int read_letter(sqlite3_stmt *stmt, struct inbox_letter *l, struct buf *text)
{
        struct span *const spans[] = {&l->consumer, &l->source, &l->event_id, &l->topic,
                                      &l->key, &l->payload, &l->headers, &l->reason};
        *l = (struct inbox_letter){.id = sqlite3_column_int64(stmt, 0),
                                   .state = (enum inbox_letter_state)sqlite3_column_int(stmt, 1)};
        for (int i = 0; i < 8; i++) {
                struct span s = column_span(stmt, 2 + i);
                spans[i]->n = s.n;
                int rc = buf_append_span(text, s);
                if (rc != BUF_OK)
                        return rc;
        }
        l->key_is_null = sqlite3_column_type(stmt, 6) == SQLITE_NULL;
        l->payload_is_null = sqlite3_column_type(stmt, 7) == SQLITE_NULL;
        l->partition = sqlite3_column_int(stmt, 10);
        l->attempts = sqlite3_column_int(stmt, 11);
        l->offset = sqlite3_column_int64(stmt, 12);
        l->dead_us = sqlite3_column_int64(stmt, 13);
        return BUF_OK;
}

static void fix_spans(struct inbox_letter *letters, size_t n, const struct buf *text)
{
        const uint8_t *p = text->p;
        for (size_t k = 0; k < n; k++) {
                struct inbox_letter *l = &letters[k];
                struct span *const spans[] = {&l->consumer, &l->source, &l->event_id, &l->topic,
                                              &l->key, &l->payload, &l->headers, &l->reason};
                for (int i = 0; i < 8; i++) {
                        spans[i]->p = p;
                        p += spans[i]->n;
                }
        }
}

static void release_text(void *driver)
{
        buf_release(driver);
        free(driver);
}

/* Room for so many; false: there is no memory for it. */
static bool init_letters(struct inbox_letters *list, size_t max)
{
        struct buf *text = calloc(1, sizeof *text);
        *list = (struct inbox_letters){.letter = calloc(max + 1, sizeof *list->letter)};
        if (!text || !list->letter) {
                free(text);
                free(list->letter);
                return false;
        }
        buf_init(text, (size_t)LIMIT_EVENT_PAYLOAD_BYTES * 16);
        list->driver = text;
        list->release = release_text;
        return true;
}

/* The letter in the open transaction, if it is there: appended to the list. */
static void lock_letter(struct sqlite_inbox *in, struct span consumer, int64_t id, bool dead_too,
                        struct inbox_letters *list, struct inbox_result *ret)
{
        bool readable = true;
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_LOCK);
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, id);
                bind_text(stmt, 2, consumer);
                (void)sqlite3_bind_int(stmt, 3, dead_too ? INBOX_DEAD : INBOX_RETRY);
                if (sqlite3_step(stmt) == SQLITE_ROW)
                        readable = read_letter(stmt, &list->letter[list->n++], list->driver) == BUF_OK;
        }
        if (!stmt || sqlite_inbox_run(in, stmt) != SQLITE_OK) {
                sqlite_inbox_failed(in, ret);
        } else if (!readable) {
                (void)err_set(&ret->err, SEMEL_ERR_NO_MEMORY, "no memory for a dead letter");
                ret->end = INBOX_DOWN;
        }
        if (ret->end == INBOX_DONE)
                fix_spans(list->letter, list->n, list->driver);
}

semel_code sqlite_inbox_take(struct inbox_session *s, struct span consumer, int64_t id, bool dead_too,
                             int64_t deadline_us, struct inbox_letters *ret, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_result result;
        struct inbox_letters list;
        if (!sqlite_inbox_begin(in, deadline_us, &result))
                return sqlite_inbox_code(&result, err);
        if (!init_letters(&list, 1)) {
                (void)err_set(&result.err, SEMEL_ERR_NO_MEMORY, "no memory for a dead letter");
                result.end = INBOX_DOWN;
                sqlite_inbox_end(in, &result);
                return sqlite_inbox_code(&result, err);
        }
        lock_letter(in, consumer, id, dead_too, &list, &result);
        if (list.n > 0 && result.end == INBOX_DONE) {
                sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_TAKE);
                if (stmt) {
                        (void)sqlite3_bind_int64(stmt, 1, id);
                        bind_text(stmt, 2, span_str(INBOX_LETTER_TRIED));
                }
                if (sqlite_inbox_run(in, stmt) != SQLITE_OK)
                        sqlite_inbox_failed(in, &result);
        }
        sqlite_inbox_end(in, &result);
        if (result.end == INBOX_DONE)
                *ret = list;
        else
                inbox_letters_release(&list);
        return sqlite_inbox_code(&result, err);
}

semel_code sqlite_inbox_untake(struct inbox_session *s, const struct inbox_letter *was,
                               int64_t deadline_us, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_result ret;
        if (!sqlite_inbox_begin(in, deadline_us, &ret))
                return sqlite_inbox_code(&ret, err);
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_UNTAKE);
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, was->id);
                (void)sqlite3_bind_int(stmt, 2, (int)was->state);
                bind_text(stmt, 3, was->reason);
                (void)sqlite3_bind_int(stmt, 4, was->attempts);
                bind_text(stmt, 5, span_str(INBOX_LETTER_TRIED));
        }
        if (sqlite_inbox_run(in, stmt) != SQLITE_OK)
                sqlite_inbox_failed(in, &ret);
        sqlite_inbox_end(in, &ret);
        return sqlite_inbox_code(&ret, err);
}

/* The letter that was tried stays DEAD, and says why; in a transaction of its own. */
static void letter_back(struct sqlite_inbox *in, int64_t id, const semel_error *why, int64_t deadline_us)
{
        char text[LIMIT_INBOX_REASON_BYTES];
        size_t n = utf8_copy(text, sizeof text, span_str(why->text));
        struct inbox_result ignored;
        if (!sqlite_inbox_begin(in, deadline_us, &ignored))
                return;
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_BACK);
        if (stmt) {
                (void)sqlite3_bind_int64(stmt, 1, id);
                bind_text(stmt, 2, span_of(text, n));
        }
        if (sqlite_inbox_run(in, stmt) != SQLITE_OK)
                sqlite_inbox_failed(in, &ignored);
        sqlite_inbox_end(in, &ignored);
}

void sqlite_inbox_retry_one(struct inbox_session *s, int64_t id, const struct inbox_handler *handler,
                            int64_t deadline_us, bool *ret_found, struct inbox_result *ret)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_letters list;
        if (!init_letters(&list, 1)) {
                *ret = (struct inbox_result){.end = INBOX_DOWN};
                (void)err_set(&ret->err, SEMEL_ERR_NO_MEMORY, "no memory for a dead letter");
                return;
        }
        if (!sqlite_inbox_begin(in, deadline_us, ret)) {
                inbox_letters_release(&list);
                return;
        }
        lock_letter(in, span_str(""), id, true, &list, ret);
        bool found = list.n > 0;
        if (found && ret->end == INBOX_DONE) {
                const struct inbox_event event = inbox_letter_event(&list.letter[0]);
                sqlite_inbox_handle(in, handler, &event, ret);
        }
        if (found && ret->end == INBOX_DONE) { /* the effect does not commit without it */
                sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_DONE);
                if (stmt) {
                        (void)sqlite3_bind_int64(stmt, 1, id);
                        (void)sqlite3_bind_int64(stmt, 2, in->ses.now.wall_us);
                }
                if (sqlite_inbox_run(in, stmt) != SQLITE_OK)
                        sqlite_inbox_failed(in, ret);
        }
        sqlite_inbox_end(in, ret);
        if (found && ret->end == INBOX_FAILED) {
                letter_back(in, id, &ret->err, deadline_us);
        }
        ret->processed = found && ret->end == INBOX_DONE;
        inbox_letters_release(&list);
        *ret_found = found;
}

/* -- operators -------------------------------------------------------------------------------- */

/* One of the two statements; they have their first two parameters in common. */
static bool prune_with(struct sqlite_inbox *in, enum inbox_sql which, struct span consumer,
                       int64_t keep_us)
{
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, which);
        if (stmt) {
                bind_text(stmt, 1, consumer);
                (void)sqlite3_bind_int64(stmt, 2, in->ses.now.wall_us - keep_us);
                if (sqlite3_bind_parameter_count(stmt) > 2)
                        (void)sqlite3_bind_int(stmt, 3, LIMIT_INBOX_PRUNE_ROWS);
        }
        return sqlite_inbox_run(in, stmt) == SQLITE_OK;
}

semel_code sqlite_inbox_prune(struct inbox_session *s, struct span consumer, int64_t keep_us,
                              int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_result ret;
        int64_t rows = 0;
        if (!sqlite_inbox_begin(in, deadline_us, &ret))
                return sqlite_inbox_code(&ret, err);
        /* Nothing expires while the clocks disagree (rule A6). */
        if (!in->ses.now.expiry_frozen) {
                if (prune_with(in, INBOX_SQL_PRUNE_ATTEMPTS, consumer, keep_us) &&
                    prune_with(in, INBOX_SQL_PRUNE, consumer, keep_us))
                        rows = sqlite3_changes(in->ses.db);
                else
                        sqlite_inbox_failed(in, &ret);
        }
        sqlite_inbox_end(in, &ret);
        if (ret.end == INBOX_DONE)
                *ret_rows = rows;
        return sqlite_inbox_code(&ret, err);
}

/* A read of ours needs no write lock, but the file has to be open. */
static sqlite3_stmt *reader(struct sqlite_inbox *in, enum inbox_sql which, int64_t deadline_us,
                            semel_error *err)
{
        if (in->s.vt->check(&in->s, NULL, deadline_us, err) != SEMEL_OK)
                return NULL;
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, which);
        if (!stmt)
                (void)session_error(&in->ses, err);
        return stmt;
}

static void copy_name(char *out, size_t max, sqlite3_stmt *stmt, int i)
{
        struct span s = column_span(stmt, i);
        (void)snprintf(out, max, "%.*s", (int)s.n, (const char *)s.p);
}

semel_code sqlite_inbox_status(struct inbox_session *s, int64_t deadline_us,
                               struct inbox_count **ret, size_t *ret_n, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_count *counts = NULL;
        size_t n = 0;
        int rc;
        sqlite3_stmt *stmt = reader(in, INBOX_SQL_STATUS, deadline_us, err);
        if (!stmt)
                return inbox_code_of(err);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                struct inbox_count *more = realloc(counts, (n + 1) * sizeof *counts);
                if (!more) {
                        rc = SQLITE_NOMEM;
                        break;
                }
                counts = more;
                struct inbox_count *c = &counts[n++];
                *c = (struct inbox_count){.processed = sqlite3_column_int64(stmt, 2),
                                          .dead = sqlite3_column_int64(stmt, 3),
                                          .retry = sqlite3_column_int64(stmt, 4),
                                          .alarms = sqlite3_column_int64(stmt, 5),
                                          .oldest_us = sqlite3_column_int64(stmt, 6),
                                          .newest_us = sqlite3_column_int64(stmt, 7)};
                copy_name(c->consumer, sizeof c->consumer, stmt, 0);
                copy_name(c->source, sizeof c->source, stmt, 1);
        }
        (void)sqlite3_reset(stmt);
        if (rc != SQLITE_DONE) {
                free(counts);
                return sqlite_error(in->ses.db, rc, in->ses.name, err);
        }
        *ret = counts;
        *ret_n = n;
        return SEMEL_OK;
}

semel_code sqlite_inbox_list(struct inbox_session *s, struct span consumer,
                             enum inbox_letter_state state, int64_t after_id, size_t max,
                             int64_t deadline_us, struct inbox_letters *ret, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        sqlite3_stmt *stmt = reader(in, INBOX_SQL_LIST, deadline_us, err);
        if (!stmt)
                return inbox_code_of(err);
        struct inbox_letters list;
        int rc;
        if (!init_letters(&list, max))
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for the list");
        bind_text(stmt, 1, consumer);
        (void)sqlite3_bind_int(stmt, 2, (int)state);
        (void)sqlite3_bind_int64(stmt, 3, after_id);
        (void)sqlite3_bind_int64(stmt, 4, (int64_t)max);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && list.n < max) {
                if (read_letter(stmt, &list.letter[list.n++], list.driver) != BUF_OK) {
                        rc = SQLITE_NOMEM;
                        break;
                }
        }
        (void)sqlite3_reset(stmt);
        if (rc != SQLITE_DONE) {
                inbox_letters_release(&list);
                return sqlite_error(in->ses.db, rc, in->ses.name, err);
        }
        fix_spans(list.letter, list.n, list.driver);
        *ret = list;
        return SEMEL_OK;
}

semel_code sqlite_inbox_decide(struct inbox_session *s, struct span consumer, int64_t id,
                               enum inbox_letter_state to, const char *who, const char *reason,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct sqlite_inbox *in = sqlite_inbox_of(s);
        struct inbox_result ret;
        int64_t rows = 0;
        if (!sqlite_inbox_begin(in, deadline_us, &ret))
                return sqlite_inbox_code(&ret, err);
        sqlite3_stmt *stmt = sqlite_inbox_stmt(in, INBOX_SQL_DECIDE);
        if (stmt) {
                bind_text(stmt, 1, consumer);
                (void)sqlite3_bind_int64(stmt, 2, id);
                (void)sqlite3_bind_int(stmt, 3, (int)to);
                bind_text(stmt, 4, span_str(who));
                bind_text(stmt, 5, span_str(reason));
                (void)sqlite3_bind_int64(stmt, 6, in->ses.now.wall_us);
        }
        if (sqlite_inbox_run(in, stmt) != SQLITE_OK)
                sqlite_inbox_failed(in, &ret);
        else
                rows = sqlite3_changes(in->ses.db);
        sqlite_inbox_end(in, &ret);
        if (ret.end != INBOX_DONE)
                return sqlite_inbox_code(&ret, err);
        if (rows == 0)
                return err_set(err, SEMEL_ERR_NOT_FOUND,
                               "there is no such dead letter; `semel inbox dead list` shows what "
                               "there is");
        *ret_rows = rows;
        return SEMEL_OK;
}

/* -- in the caller's transaction -------------------------------------------------------------- */

semel_code sqlite_inbox_first(struct sqlite3 *db, const struct inbox_event *event, bool *ret_first,
                              semel_error *err)
{
        const struct span names[] = {event->consumer, event->source, event->id};
        for (size_t i = 0; i < 3; i++)
                if (inbox_id_fault(names[i].p, names[i].n))
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "consumer, source and event id are 1 to 255 bytes of UTF-8");
        if (!db || sqlite3_get_autocommit(db))
                return err_set(err, SEMEL_ERR_TX_STATE,
                               "no transaction is open on the connection: begin one with BEGIN "
                               "IMMEDIATE first");
        const char *name = sqlite3_db_filename(db, "main");
        struct sqlite_inbox in = {0};
        struct inbox_event copy = *event;
        bool first = false;
        session_init(&in.ses, db, name && *name ? name : "the database in memory");
        semel_code code = sqlite_tx_write_lock(&in.ses, err);
        if (code == SEMEL_OK)
                code = sqlite_tx_clock(&in.ses, err);
        copy.topic = event->source;
        copy.partition = -1;
        copy.offset = -1;
        if (code == SEMEL_OK && sqlite_inbox_record(&in, &copy, &first, NULL) != SQLITE_OK)
                code = session_error(&in.ses, err);
        for (int i = 0; i < INBOX_SQLS; i++)
                (void)sqlite3_finalize(in.stmt[i]);
        session_release(&in.ses);
        if (code == SEMEL_OK)
                *ret_first = first;
        return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_outbox_admin: waiting for news, cleaning up, and what operators ask for.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/postgres/pg_outbox.h"
#include "sys/clock.h"

/* Kept rows are counted one by one up to so many: beyond it a status would take seconds. */
enum { COUNT_KEPT_MAX = 200000 };

static semel_code start(struct pg_outbox *ob, int params, int64_t deadline_us, semel_error *err)
{
        semel_code code = pg_mapping_load(ob, deadline_us, err);
        if (code == SEMEL_OK)
                pg_params_clear(&ob->params[0], params);
        return code;
}

static void set_range(struct pg_outbox *ob, const struct outbox_again *again)
{
        for (int i = 0; i < 2; i++)
                pg_params_scalar(&ob->params[0], i, PG_TIMESTAMPTZ);
        pg_params_time(&ob->params[0], 0, again->since_us);
        pg_params_time(&ob->params[0], 1, again->until_us);
}

/* A statement that answers with one number. */
static semel_code count_rows(struct pg_outbox *ob, enum outbox_query query, bool writes,
                             int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        PGresult *res = NULL;
        semel_code code = pg_outbox_one(ob, query, &ob->params[0], writes, deadline_us, &res, err);
        if (code == SEMEL_OK)
                *ret_rows = pg_result_int(res, 0, 0);
        PQclear(res);
        return code;
}

semel_code pg_outbox_prune(struct outbox_session *s, int64_t keep_us, bool dry,
                           int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        semel_code code = start(ob, dry ? 1 : 2, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_number(&ob->params[0], 0, PG_INT8, keep_us);
        if (!dry)
                pg_params_number(&ob->params[0], 1, PG_INT8, LIMIT_OUTBOX_PRUNE_ROWS);
        return count_rows(ob, dry ? OQ_PRUNE_DRY : OQ_PRUNE, !dry, deadline_us, ret_rows, err);
}

/* -- listen ----------------------------------------------------------------------------------- */

static semel_code begin_listening(struct pg_outbox *ob, int64_t deadline_us, semel_error *err)
{
        PGresult *res = NULL;
        semel_code code = start(ob, 0, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        if (!ob->direct)
                return err_set(err, SEMEL_ERR_REFUSED,
                               "LISTEN does not work through a pooler that gives each transaction "
                               "another session; the outbox is polled instead");
        code = pg_outbox_one(ob, OQ_TRIGGER, NULL, false, deadline_us, &res, err);
        if (code != SEMEL_OK)
                return code;
        int64_t triggers = pg_result_int(res, 0, 0);
        PQclear(res);
        if (triggers == 0)
                return err_set(err, SEMEL_ERR_REFUSED,
                               "nobody notifies: run `semel migrate --notify on`; the outbox is "
                               "polled instead");
        code = pg_outbox_one(ob, OQ_LISTEN, NULL, false, deadline_us, &res, err);
        PQclear(res);
        ob->listening = code == SEMEL_OK;
        return code;
}

/* notify_function.sql's bits; a trigger that was made before it tells none. */
static uint32_t slots_told(const char *payload)
{
        char *end;
        unsigned long slots = strtoul(payload, &end, 10);
        return *end == '\0' && slots > 0 && slots <= EVENT_ALL_SLOTS ? (uint32_t)slots : EVENT_ALL_SLOTS;
}

/* All that have come. */
static uint32_t take_notifies(struct pg_outbox *ob)
{
        uint32_t slots = 0;
        for (PGnotify *n = PQnotifies(ob->pg); n; n = PQnotifies(ob->pg)) {
                slots |= slots_told(n->extra);
                PQfreemem(n);
        }
        return slots;
}

semel_code pg_outbox_listen(struct outbox_session *s, int64_t timeout_us, uint32_t *ret_slots,
                            semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        int64_t until_us = clock_boot_us() + timeout_us;
        if (!ob->listening || !ob->pg || PQstatus(ob->pg) != CONNECTION_OK) {
                semel_code code = begin_listening(ob, until_us + SECOND, err);
                if (code != SEMEL_OK)
                        return code;
                *ret_slots = EVENT_ALL_SLOTS; /* what came before is not told: look once */
                return SEMEL_OK;
        }
        uint32_t slots = take_notifies(ob);
        while (slots == 0 && pg_outbox_wait(ob, POLLIN, until_us)) {
                if (!PQconsumeInput(ob->pg) || PQstatus(ob->pg) != CONNECTION_OK) {
                        pg_outbox_drop(ob);
                        return err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "the connection that listens broke; it is made again");
                }
                slots = take_notifies(ob);
        }
        *ret_slots = slots;
        return SEMEL_OK;
}

semel_code pg_outbox_reap(struct outbox_session *s, int64_t after_us, int64_t deadline_us,
                          int64_t *ret_ended, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        struct params *p = &ob->params[0];
        PGresult *res = NULL;
        semel_code code = pg_outbox_connect(ob, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_clear(p, 1);
        pg_params_number(p, 0, PG_INT8, after_us);
        code = pg_outbox_one(ob, OQ_REAP, p, false, deadline_us, &res, err);
        if (code == SEMEL_OK)
                *ret_ended = pg_result_int(res, 0, 0);
        PQclear(res);
        return code;
}

/* -- stats ------------------------------------------------------------------------------------ */

struct stats_held {
        PGresult *res[3];
        struct outbox_count *count;
};

static void stats_release(void *driver)
{
        struct stats_held *held = driver;
        for (int i = 0; i < 3; i++)
                PQclear(held->res[i]);
        free(held->count);
        free(held);
}

static bool state_of(struct span text, enum outbox_state *ret)
{
        for (int state = 0; state < OUTBOX_STATES; state++) {
                if (span_eq(text, span_str(outbox_state_name((enum outbox_state)state)))) {
                        *ret = (enum outbox_state)state;
                        return true;
                }
        }
        return false;
}

static int64_t age_us(const PGresult *res, int column)
{
        return PQgetisnull(res, 0, column) ? -1 : pg_result_int(res, 0, column);
}

/* Unfinished and dead rows exactly; kept ones exactly while they are few, and else by the server's
 * own estimate, without topics. */
static size_t fill_counts(struct stats_held *held)
{
        size_t n = 0;
        int64_t open = 0, kept = 0, about = 0;
        for (int i = 0; i < PQntuples(held->res[0]); i++) {
                struct outbox_count *c = &held->count[n];
                if (!state_of(pg_result_bytes(held->res[0], i, 0), &c->state))
                        continue;
                c->topic = pg_result_bytes(held->res[0], i, 1);
                c->rows = pg_result_int(held->res[0], i, 2);
                open += c->rows;
                n++;
        }
        size_t first_kept = n;
        for (int i = 0; i < PQntuples(held->res[1]); i++) {
                held->count[n++] = (struct outbox_count){
                        .state = OUTBOX_PUBLISHED,
                        .topic = pg_result_bytes(held->res[1], i, 0),
                        .rows = pg_result_int(held->res[1], i, 1),
                };
                kept += pg_result_int(held->res[1], i, 1);
                about = pg_result_int(held->res[1], i, 2);
        }
        if (kept < COUNT_KEPT_MAX)
                return n;
        held->count[first_kept] = (struct outbox_count){
                .state = OUTBOX_PUBLISHED,
                .topic = span_str(""),
                .rows = about - open > kept ? about - open : kept,
        };
        return first_kept + 1;
}

semel_code pg_outbox_stats(struct outbox_session *s, int64_t deadline_us,
                           struct outbox_stats *ret, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        semel_code code = start(ob, 1, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_number(&ob->params[0], 0, PG_INT8, COUNT_KEPT_MAX);
        const struct pg_step steps[] = {
                {.query = OQ_STATS},
                {.query = OQ_STATS_KEPT, .params = &ob->params[0]},
                {.query = OQ_STATS_AGES},
        };
        struct stats_held *held = calloc(1, sizeof *held);
        if (!held)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for counts");
        code = pg_outbox_run(ob, steps, 3, false, deadline_us, held->res, err);
        if (code == SEMEL_OK) {
                size_t n = (size_t)PQntuples(held->res[0]) + (size_t)PQntuples(held->res[1]) + 1;
                held->count = calloc(n, sizeof *held->count);
                if (!held->count)
                        code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for counts");
        }
        if (code != SEMEL_OK) {
                stats_release(held);
                return code;
        }
        *ret = (struct outbox_stats){
                .count = held->count,
                .n = fill_counts(held),
                .oldest_pending_us = age_us(held->res[2], 0),
                .oldest_xmin_us = age_us(held->res[2], 1),
                .driver = held,
                .release = stats_release,
        };
        return SEMEL_OK;
}

/* -- list ------------------------------------------------------------------------------------- */

struct list_held {
        PGresult *res;
        struct outbox_listed *row;
};

static void list_release(void *driver)
{
        struct list_held *held = driver;
        PQclear(held->res);
        free(held->row);
        free(held);
}

static int64_t time_or_0(const PGresult *res, int row, int column)
{
        return PQgetisnull(res, row, column) ? 0 : pg_result_time_us(res, row, column);
}

static void fill_listed(const PGresult *res, int i, struct outbox_listed *row)
{
        struct span id = pg_result_bytes(res, i, 9);
        *row = (struct outbox_listed){
                .id = pg_result_int(res, i, 0),
                .attempts = (int32_t)pg_result_int(res, i, 2),
                .created_us = time_or_0(res, i, 3),
                .next_attempt_us = time_or_0(res, i, 4),
                .published_us = time_or_0(res, i, 5),
                .topic = pg_result_bytes(res, i, 6),
                .key = pg_result_bytes(res, i, 7),
                .key_is_null = PQgetisnull(res, i, 7),
                .last_error = pg_result_bytes(res, i, 8),
        };
        (void)state_of(pg_result_bytes(res, i, 1), &row->state);
        if (id.n == EVENT_ID_BYTES)
                memcpy(row->event_id, id.p, EVENT_ID_BYTES);
}

semel_code pg_outbox_list(struct outbox_session *s, enum outbox_state state, int64_t after_id,
                          size_t max, int64_t deadline_us, struct outbox_list *ret,
                          semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        semel_code code = start(ob, 3, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_text(&ob->params[0], 0, span_str(outbox_state_name(state)));
        pg_params_number(&ob->params[0], 1, PG_INT8, after_id);
        pg_params_number(&ob->params[0], 2, PG_INT8, (int64_t)max);
        struct list_held *held = calloc(1, sizeof *held);
        if (!held)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a list");
        code = pg_outbox_one(ob, OQ_LIST, &ob->params[0], false, deadline_us, &held->res, err);
        int n = code == SEMEL_OK ? PQntuples(held->res) : 0;
        if (code == SEMEL_OK) {
                held->row = calloc((size_t)n + 1, sizeof *held->row);
                if (!held->row)
                        code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a list");
        }
        if (code != SEMEL_OK) {
                list_release(held);
                return code;
        }
        for (int i = 0; i < n; i++)
                fill_listed(held->res, i, &held->row[i]);
        *ret = (struct outbox_list){
                .row = held->row, .n = (size_t)n, .driver = held, .release = list_release};
        return SEMEL_OK;
}

/* -- verbs ------------------------------------------------------------------------------------ */

semel_code pg_outbox_retry(struct outbox_session *s, int64_t id, const char *who,
                           int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        semel_code code = start(ob, 3, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_number(&ob->params[0], 0, PG_INT8, id);
        pg_params_number(&ob->params[0], 1, PG_INT8, LIMIT_OUTBOX_PRUNE_ROWS);
        pg_params_text(&ob->params[0], 2, span_str(who));
        return count_rows(ob, OQ_RETRY, true, deadline_us, ret_rows, err);
}

semel_code pg_outbox_discard(struct outbox_session *s, int64_t id, const char *who,
                             const char *reason, int64_t deadline_us, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        PGresult *res = NULL;
        semel_code code = start(ob, 3, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        pg_params_number(&ob->params[0], 0, PG_INT8, id);
        pg_params_text(&ob->params[0], 1, span_str(who));
        pg_params_text(&ob->params[0], 2, span_str(reason));
        code = pg_outbox_one(ob, OQ_DISCARD, &ob->params[0], true, deadline_us, &res, err);
        if (code != SEMEL_OK)
                return code;
        bool done = pg_result_int(res, 0, 0) == 1;
        struct span state = pg_result_bytes(res, 0, 1);
        if (!done && state.n == 0)
                code = err_set(err, SEMEL_ERR_NOT_FOUND, "the outbox has no row %lld",
                               (long long)id);
        else if (!done)
                code = err_set(err, SEMEL_ERR_REFUSED, "row %lld is %.*s; only DEAD rows are discarded",
                               (long long)id, (int)state.n, (const char *)state.p);
        PQclear(res);
        return code;
}

/* Once a command: from here on no other row comes into the range. */
static semel_code fix_range(struct pg_outbox *ob, struct outbox_again *again, int64_t deadline_us,
                            semel_error *err)
{
        PGresult *res = NULL;
        semel_code code = start(ob, 0, deadline_us, err);
        if (code == SEMEL_OK)
                code = pg_outbox_one(ob, OQ_CLOCK, NULL, false, deadline_us, &res, err);
        if (code != SEMEL_OK)
                return code;
        int64_t now_us = pg_result_time_us(res, 0, 0);
        PQclear(res);
        if (again->until_us > now_us)
                again->until_us = now_us;
        return SEMEL_OK;
}

/* Rule C10: consumers whose inbox has forgotten an event would apply it again. */
static semel_code check_age(struct pg_outbox *ob, const struct outbox_again *again,
                            int64_t deadline_us, semel_error *err)
{
        PGresult *res = NULL;
        semel_code code = start(ob, 3, deadline_us, err);
        if (code != SEMEL_OK || again->retention_us < 0)
                return code;
        set_range(ob, again);
        pg_params_number(&ob->params[0], 2, PG_INT8, again->retention_us);
        code = pg_outbox_one(ob, OQ_OLDEST, &ob->params[0], false, deadline_us, &res, err);
        if (code == SEMEL_OK && age_us(res, 0) >= 0)
                code = err_set(err, SEMEL_ERR_REFUSED,
                               "a row of that time was made or published %lld s ago, longer than the "
                               "%lld s for which consumers remember events: they would apply it again",
                               (long long)(age_us(res, 0) / SECOND),
                               (long long)(again->retention_us / SECOND));
        PQclear(res);
        return code;
}

semel_code pg_outbox_republish(struct outbox_session *s, struct outbox_again *again, const char *who,
                               int64_t deadline_us, int64_t *ret_rows, semel_error *err)
{
        struct pg_outbox *ob = pg_outbox_of(s);
        semel_code code = SEMEL_OK;
        if (!again->begun)
                code = fix_range(ob, again, deadline_us, err);
        if (code == SEMEL_OK && !again->begun)
                code = check_age(ob, again, deadline_us, err);
        if (code == SEMEL_OK)
                code = start(ob, 4, deadline_us, err);
        if (code != SEMEL_OK)
                return code;
        again->begun = true;
        set_range(ob, again);
        pg_params_number(&ob->params[0], 2, PG_INT8, LIMIT_OUTBOX_PRUNE_ROWS);
        pg_params_text(&ob->params[0], 3, span_str(who));
        return count_rows(ob, OQ_REPUBLISH, true, deadline_us, ret_rows, err);
}

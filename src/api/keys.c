/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: semel/keys.h: looking at rows, and the operator's verbs (rule A5b).
 */
#include <semel/keys.h>

#include <stdlib.h>

#include "api/command_object.h"
#include "api/handle.h"
#include "api/keys.h"
#include "api/reply_object.h"
#include "base/err.h"

struct semel_key_row {
        struct command_row row;
        struct command_now now;
        enum command_mode mode;
        char scope[LIMIT_SCOPE_BYTES + 1];
        char operation[LIMIT_OPERATION_BYTES + 1];
        char key[LIMIT_KEY_BYTES + 1];
        char holder[LIMIT_HOLDER_BYTES + 1];
        semel_reply *rep; /* NULL: none kept, or not read */
};

/* -- rows ---------------------------------------------------------------------------------- */

/* Lengths were bounded when they were written; a foreign row is cut, never overrun. */
static void copy_text(char *at, size_t size, struct span s)
{
        size_t n = s.n < size - 1 ? s.n : size - 1;
        if (n > 0)
                memcpy(at, s.p, n);
        at[n] = 0;
}

static void row_fill(semel_key_row *row, const struct store_record *rec)
{
        row->row = rec->row;
        row->now = rec->now;
        row->mode = rec->mode;
        copy_text(row->scope, sizeof row->scope, rec->scope);
        copy_text(row->operation, sizeof row->operation, rec->operation);
        copy_text(row->key, sizeof row->key, rec->key);
        copy_text(row->holder, sizeof row->holder, rec->holder);
        row->rep = NULL;
}

void semel_key_row_free(semel_key_row *row)
{
        if (!row)
                return;
        semel_reply_free(row->rep);
        free(row);
}

const unsigned char *semel_key_row_id(const semel_key_row *row)
{
        return row->row.id.b;
}

const unsigned char *semel_key_row_attempt(const semel_key_row *row)
{
        return row->row.attempt.b;
}

semel_key_state semel_key_row_state(const semel_key_row *row)
{
        return (semel_key_state)row->row.state;
}

int64_t semel_key_row_token(const semel_key_row *row)
{
        return row->row.token;
}

/* From the lease clock to the calendar: both were read at one moment.  0: a moment of an earlier boot,
 * which is on no clock of now. */
static int64_t calendar_us(const semel_key_row *row, int64_t lease_clock_us)
{
        if (lease_clock_us <= 0)
                return 0;
        return row->now.wall_us + (lease_clock_us - row->now.lease_us);
}

int64_t semel_key_row_created_us(const semel_key_row *row)
{
        return row->row.created_us;
}

int64_t semel_key_row_claimed_us(const semel_key_row *row)
{
        return calendar_us(row, row->row.claimed_us);
}

int64_t semel_key_row_lease_until_us(const semel_key_row *row)
{
        return calendar_us(row, row->row.lease_until_us);
}

bool semel_key_row_lease_over(const semel_key_row *row)
{
        return command_lease_over(&row->row, row->now);
}

bool semel_key_row_settled(const semel_key_row *row)
{
        return command_settled(&row->row, row->now.lease_us);
}

int64_t semel_key_row_settled_us(const semel_key_row *row)
{
        return calendar_us(row, command_settled_us(&row->row));
}

int64_t semel_key_row_expire_us(const semel_key_row *row)
{
        return row->row.expire_us;
}

bool semel_key_row_maybe_executed(const semel_key_row *row)
{
        return row->row.maybe_executed;
}

semel_on_unknown semel_key_row_on_unknown(const semel_key_row *row)
{
        return row->row.policy.retry ? SEMEL_ON_UNKNOWN_RETRY : SEMEL_ON_UNKNOWN_HOLD;
}

bool semel_key_row_idempotent(const semel_key_row *row)
{
        return row->row.policy.idempotent;
}

const char *semel_key_row_mode(const semel_key_row *row)
{
        return mode_name(row->mode);
}

const char *semel_key_row_scope(const semel_key_row *row)
{
        return row->scope;
}

const char *semel_key_row_operation(const semel_key_row *row)
{
        return row->operation;
}

const char *semel_key_row_key(const semel_key_row *row)
{
        return row->key;
}

const char *semel_key_row_holder(const semel_key_row *row)
{
        return row->holder;
}

const semel_reply *semel_key_row_reply(const semel_key_row *row)
{
        return row->rep;
}

/* -- reading ------------------------------------------------------------------------------- */

semel_code semel_keys_get(semel_store *st, const unsigned char *id, semel_key_row **ret_row,
                          semel_error *err)
{
        struct store_op op;
        semel_key_row *row = NULL;
        err_clear(err);
        store_op_init(&op, STORE_GET);
        memcpy(op.in.get.id.b, id, sizeof op.in.get.id.b);
        semel_code code = handle_call(st, &op, err);
        if (code != SEMEL_OK)
                goto out;
        row = calloc(1, sizeof *row);
        if (!row) {
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a row");
                goto out;
        }
        row_fill(row, &op.out.get);
        if (op.out.get.row.state == COMMAND_COMPLETED)
                code = reply_from_record(&op.out.get, &row->rep, err);
        if (code == SEMEL_OK || code == SEMEL_ERR_CORRUPT) { /* a damaged row is shown too */
                code = SEMEL_OK;
                *ret_row = row;
                row = NULL;
        }
out:
        semel_key_row_free(row);
        store_op_release(&op);
        return code;
}

semel_code semel_keys_list(semel_store *st, bool stuck, const char *key, semel_keys_fn fn,
                           void *arg, semel_error *err)
{
        struct store_cursor after = {0};
        bool end = false;
        semel_code code = SEMEL_OK;
        err_clear(err);
        while (!end && code == SEMEL_OK) {
                struct store_op op;
                store_op_init(&op, STORE_LIST);
                op.in.list.after = after;
                op.in.list.stuck = stuck;
                op.in.list.key = span_str(key);
                op.in.list.max = LIMIT_SWEEP_ROWS;
                code = handle_call(st, &op, err);
                if (code == SEMEL_OK) {
                        after = op.out.list.next;
                        end = op.out.list.end;
                        for (size_t i = 0; i < op.out.list.count; i++) {
                                semel_key_row row;
                                row_fill(&row, &op.out.list.recs[i]);
                                if (!fn(arg, &row)) {
                                        end = true;
                                        break;
                                }
                        }
                }
                store_op_release(&op);
        }
        return code;
}

/* -- deciding -------------------------------------------------------------------------------- */

static semel_code resolve_refused(enum command_resolve_outcome outcome, int64_t wait_us,
                                  semel_error *err)
{
        long long wait_s = (long long)((wait_us + SECOND - 1) / SECOND);
        switch (outcome) {
        case COMMAND_RESOLVED:
                return SEMEL_OK;
        case COMMAND_RESOLVE_CHANGED:
                return err_set(err, SEMEL_ERR_LOST,
                               "the key has changed since it was shown: look at it again");
        case COMMAND_RESOLVE_LEASED:
                return err_set(err, SEMEL_ERR_REFUSED,
                               "a holder is working on it: its lease ends in %lld s", wait_s);
        case COMMAND_RESOLVE_TOO_EARLY:
                return err_set(err, SEMEL_ERR_REFUSED,
                               "a request may still be under way for %lld s: \"not executed\" could "
                               "become wrong; wait, look at the other side again, then confirm",
                               wait_s);
        case COMMAND_RESOLVE_LOOKED_EARLY:
                return err_set(err, SEMEL_ERR_REFUSED,
                               "when the key was shown, a request could still be under way, and it may "
                               "have acted since: look at the key and at the other side again");
        case COMMAND_RESOLVE_STATE:
                return err_set(err, SEMEL_ERR_REFUSED,
                               "the key is in a state that this verb does not change: only UNKNOWN and "
                               "stuck keys are resolved, only COMPLETED ones forgotten");
        }
        return err_set(err, SEMEL_ERR_INTERNAL, "a resolve was answered %d", (int)outcome);
}

static enum command_resolve_kind resolve_kind(semel_resolve what)
{
        switch (what) {
        case SEMEL_RESOLVE_EXECUTED:
                return COMMAND_RESOLVE_EXECUTED;
        case SEMEL_RESOLVE_NOT_EXECUTED:
                return COMMAND_RESOLVE_NOT_EXECUTED;
        case SEMEL_RESOLVE_FORGET:
                return COMMAND_RESOLVE_FORGET;
        }
        return COMMAND_RESOLVE_EXECUTED;
}

semel_code keys_may_resolve(const semel_key_row *shown, semel_resolve what, semel_error *err)
{
        struct command_row row = shown->row;
        const struct command_resolve resolve = {.kind = resolve_kind(what),
                                                .attempt = row.attempt,
                                                .new_attempt = {{(uint8_t)~row.attempt.b[0]}},
                                                .looked_us = shown->now.lease_us};
        int64_t wait_us = 0;
        err_clear(err);
        return resolve_refused(command_resolve(&row, true, &resolve, shown->now, &wait_us), wait_us,
                               err);
}

semel_code semel_keys_resolve(semel_store *st, const semel_key_row *shown, semel_resolve what,
                              const semel_reply *reply, const char *reason, const char *who,
                              semel_error *err)
{
        struct store_op op;
        err_clear(err);
        if (!reason || !*reason || strlen(reason) > LIMIT_REASON_BYTES || !who ||
            strlen(who) > LIMIT_HOLDER_BYTES)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "a reason (1 to %d bytes) and a name (at most %d) are needed: they go "
                               "into the audit",
                               LIMIT_REASON_BYTES, LIMIT_HOLDER_BYTES);

        store_op_init(&op, STORE_RESOLVE);
        struct command_resolve *resolve = &op.in.resolve.resolve;
        resolve->kind = resolve_kind(what);
        resolve->id = shown->row.id;
        resolve->attempt = shown->row.attempt;
        resolve->token = shown->row.token;
        resolve->looked_us = shown->now.lease_us;
        semel_code code = attempt_new(&resolve->new_attempt, err);
        if (code != SEMEL_OK)
                return code;
        op.in.resolve.reply = reply ? reply_view(reply, LIMIT_REPLY_BODY_BYTES)
                                    : (struct store_reply){.flags = STORE_REPLY_TOMBSTONE};
        op.in.resolve.reason = span_str(reason);
        op.in.resolve.who = span_str(who);
        code = handle_call(st, &op, err);
        if (code == SEMEL_OK)
                code = resolve_refused(op.out.resolve.outcome, op.out.resolve.wait_us, err);
        store_op_release(&op);
        return code;
}

semel_code semel_keys_purge(semel_store *st, int64_t *ret_deleted, int64_t *ret_unknown,
                            semel_error *err)
{
        struct store_cursor after = {0};
        int64_t deleted = 0, unknown = 0;
        bool end = false;
        semel_code code = SEMEL_OK;
        err_clear(err);
        while (!end && code == SEMEL_OK) {
                struct store_op op;
                store_op_init(&op, STORE_SWEEP);
                op.in.sweep.after = after;
                op.in.sweep.max = LIMIT_SWEEP_ROWS;
                code = handle_call(st, &op, err);
                if (code == SEMEL_OK) {
                        after = op.out.sweep.next;
                        end = op.out.sweep.end;
                        deleted += op.out.sweep.deleted;
                        unknown += op.out.sweep.unknown;
                }
                store_op_release(&op);
        }
        if (code == SEMEL_OK) {
                if (ret_deleted)
                        *ret_deleted = deleted;
                if (ret_unknown)
                        *ret_unknown = unknown;
        }
        return code;
}

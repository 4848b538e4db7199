/* SPDX-License-Identifier: Apache-2.0
 *
 * call_store: the calls that are remembered in a store.
 *
 * The key is claimed in the mode `call` (rule A8) with the policy `idempotent`: the other side
 * dedupes on the key, so after a lease is over, and also when nobody knows the outcome, the same
 * call goes on with the next token.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/call_object.h"
#include "api/claim.h"
#include "api/reply_object.h"
#include "core/http_header.h"
#include "core/reply_codec.h"
#include "sys/clock.h"

enum {
        LEASE_SPARE_MS = 5000,  /* beyond the longest attempt */
        STORE_PAUSE_US = 200 * 1000,
        RECORD_US = 1000 * 1000, /* beyond the deadline: what became of it is offered to the store */
};

/* method NUL url NUL content type NUL body: none of the first three holds a NUL. */
static semel_code set_request(semel_call *call, semel_command *cmd, semel_error *err)
{
        const char *type = call->added_type     ? call->added_type
                           : call->content_type ? call->content_type
                                                : "";
        const struct span pieces[] = {span_of(call->method, strlen(call->method) + 1),
                                      span_of(call->url, strlen(call->url) + 1),
                                      span_of(type, strlen(type) + 1), buf_span(&call->body)};
        struct buf all;
        buf_init(&all, LIMIT_CALL_BODY_BYTES + 2 * LIMIT_CALL_URL_BYTES +
                               LIMIT_CALL_HEADERS * LIMIT_CALL_HEADER_BYTES);
        semel_code code = buf_append_spans(&all, pieces, 4) == BUF_OK
                                  ? semel_command_set_request(cmd, all.p, all.n, err)
                                  : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a call");
        buf_release(&all);
        return code;
}

static semel_command *make_command(semel_call *call, int64_t lease_ms, semel_error *err)
{
        char operation[LIMIT_OPERATION_BYTES + 1];
        semel_command *cmd = semel_command_new(call->key.text, call->key.n, err);
        if (!cmd)
                return NULL;
        (void)snprintf(operation, sizeof operation, "%s %s", call->method, call->shown);
        semel_command_set_idempotent(cmd, true);
        if (semel_command_set_operation(cmd, operation, err) == SEMEL_OK &&
            semel_command_set_lease_ms(cmd, lease_ms, err) == SEMEL_OK &&
            set_request(call, cmd, err) == SEMEL_OK)
                return cmd;
        semel_command_free(cmd);
        return NULL;
}

/* What a kept reply says: it was final when it was kept. */
static semel_call_result result_of_kept(const struct semel_reply *rep)
{
        struct call_end end = {.kind = CALL_END_REPLY, .status = rep->status, .sent = true};
        call_end_read(&end, buf_span(&rep->headers), buf_span(&rep->body), 0);
        return call_decide(&end, false).action == CALL_REJECTED ? SEMEL_CALL_REJECTED
                                                               : SEMEL_CALL_DONE;
}

static semel_call_result mismatch(const semel_error *why, semel_error *err)
{
        char first[sizeof why->first_operation];
        (void)snprintf(first, sizeof first, "%s", semel_error_first_operation(why));
        (void)err_set(err, SEMEL_ERR_REFUSED,
                      "THE KEY WAS USED FOR ANOTHER REQUEST (%s; method, URL, content type or body "
                      "differ); nothing was sent: whoever makes the keys has a bug",
                      first);
        return SEMEL_CALL_REJECTED;
}

/* The claim was not given; err: what the store said, becomes what that means for the call. */
static semel_call_result not_ours(semel_call *call, semel_outcome outcome, semel_reply *kept,
                                  struct semel_error *err)
{
        const struct semel_error why = *err;
        semel_call_result result;
        switch (outcome) {
        case SEMEL_REPLAYED:
                semel_reply_free(call->last);
                call->last = kept;
                result = result_of_kept(kept);
                if (result == SEMEL_CALL_REJECTED)
                        (void)err_set(err, SEMEL_ERR_REFUSED,
                                      "it was rejected before, with status %d; nothing was sent",
                                      kept->status);
                return result;
        case SEMEL_IN_FLIGHT:
                (void)err_set(err, SEMEL_ERR_BUSY,
                              "another process has this call under way; nothing was sent: try again "
                              "in %d s",
                              why.retry_after_s);
                err->retry_after_s = why.retry_after_s;
                return SEMEL_CALL_IN_FLIGHT;
        case SEMEL_MISMATCH:
                return mismatch(&why, err);
        case SEMEL_UNKNOWN:
                (void)err_set(err, SEMEL_ERR_UNKNOWN,
                              "nobody knows whether it happened: `semel keys resolve --mode call`");
                return SEMEL_CALL_UNKNOWN;
        default:
                return SEMEL_CALL_ERROR;
        }
}

bool call_hold_begin(struct semel_call *call, struct call_hold *hold, semel_call_result *ret_result,
                     semel_error *err)
{
        semel_reply *kept = NULL;
        struct semel_error own = {0};
        *hold = (struct call_hold){0};
        if (!call->st)
                return true;
        hold->lease_ms = call->attempt_ms + LEASE_SPARE_MS;
        semel_command *cmd = make_command(call, hold->lease_ms, &own);
        semel_outcome outcome = SEMEL_ERROR;
        if (cmd)
                outcome = claim_begin(call->st, cmd, MODE_CALL, &hold->claim, &kept, &own);
        semel_command_free(cmd);
        if (outcome == SEMEL_RUN) {
                hold->earlier = claim_took_over(hold->claim);
                return true;
        }
        *ret_result = not_ours(call, outcome, kept, &own);
        (void)err_copy(err, &own);
        return false;
}

bool call_sleep(struct semel_call *call, int64_t us)
{
        struct pollfd pfd = {.fd = call->cancel_fd, .events = POLLIN};
        const int64_t until_us = clock_boot_us() + us;
        for (;;) {
                int64_t left_ms = (until_us - clock_boot_us() + MS - 1) / MS;
                if (left_ms < 0)
                        left_ms = 0;
                int n = poll(&pfd, 1, left_ms > 60000 ? 60000 : (int)left_ms);
                if (n > 0 || left_ms == 0)
                        return n > 0;
        }
}

semel_code call_hold_keep(struct semel_call *call, struct call_hold *hold, int64_t need_ms,
                          int64_t until_us, semel_error *err)
{
        while (hold->claim && semel_claim_lease_left_ms(hold->claim) < need_ms) {
                semel_code code = semel_extend(hold->claim, hold->lease_ms, err);
                if (code == SEMEL_OK && semel_claim_lease_left_ms(hold->claim) >= need_ms)
                        break;
                if (code == SEMEL_OK)
                        code = err_set(err, SEMEL_ERR_BUSY, "the store answers too slowly");
                if (code == SEMEL_ERR_LOST || clock_boot_us() + STORE_PAUSE_US >= until_us ||
                    call_sleep(call, STORE_PAUSE_US))
                        return code;
        }
        return SEMEL_OK;
}

/* A copy of the reply without what speaks to one caller only (H23).  NULL: no memory. */
static semel_reply *copy_to_keep(const struct semel_reply *rep)
{
        struct reply_cursor cur;
        size_t n = 0;
        semel_reply *copy = semel_reply_new();
        struct http_header *hs = calloc(rep->header_count + 1, sizeof *hs);
        bool ok = copy && hs && reply_decode_begin(&cur, buf_span(&rep->headers));
        while (ok && n < rep->header_count && reply_decode_next(&cur, &hs[n].name, &hs[n].value) == 1)
                n++;
        for (size_t i = 0; ok && i < n; i++)
                if (header_may_be_stored(hs, n, hs[i].name))
                        ok = semel_reply_add_header(copy, (const char *)hs[i].name.p, hs[i].name.n,
                                                    (const char *)hs[i].value.p, hs[i].value.n,
                                                    NULL) == SEMEL_OK;
        ok = ok && semel_reply_set_body(copy, rep->body.p, rep->body.n, NULL) == SEMEL_OK;
        free(hs);
        if (!ok) {
                semel_reply_free(copy);
                return NULL;
        }
        copy->status = rep->status;
        copy->tombstone = rep->tombstone;
        return copy;
}

static semel_code end_once(const struct call_hold *hold, semel_call_result result, bool forget,
                           const semel_reply *kept, semel_error *err)
{
        bool final = result == SEMEL_CALL_DONE || result == SEMEL_CALL_REJECTED;
        if (result == SEMEL_CALL_UNKNOWN)
                return semel_unknown(hold->claim, err);
        if (final && !forget)
                return semel_complete(hold->claim, kept, err);
        return claim_release_not_executed(hold->claim, err);
}

semel_code call_hold_end(struct semel_call *call, struct call_hold *hold, semel_call_result result,
                         bool forget, int64_t until_us, semel_error *err)
{
        semel_code code = SEMEL_OK;
        if (!hold->claim)
                return SEMEL_OK;
        bool keeps = !forget && (result == SEMEL_CALL_DONE || result == SEMEL_CALL_REJECTED);
        semel_reply *kept = keeps ? copy_to_keep(call->last) : NULL;
        if (until_us < clock_boot_us() + RECORD_US)
                until_us = clock_boot_us() + RECORD_US;
        if (keeps && !kept)
                code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory to keep the reply");
        while ((kept || !keeps) && (code = end_once(hold, result, forget, kept, err)) != SEMEL_OK &&
               code != SEMEL_ERR_LOST && clock_boot_us() < until_us &&
               !call_sleep(call, STORE_PAUSE_US))
                ;
        semel_reply_free(kept);
        semel_claim_free(hold->claim);
        hold->claim = NULL;
        return code;
}

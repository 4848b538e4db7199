/* SPDX-License-Identifier: Apache-2.0
 *
 * run_claim: see run_claim.h.
 */
#include "cmd/run_claim.h"

#include <errno.h>
#include <stdio.h>

#include "api/claim.h"
#include "base/units.h"
#include "cmd/holder.h"
#include "cmd/json_out.h"
#include "cmd/say.h"
#include "sys/clock.h"

enum { POLL_FIRST_MS = 20, POLL_MAX_MS = 500 };

/* A claim can be born nearly expired: the store was slow (A4).  Renew it, or give it back;
 * never start with less than half of the lease. */
static semel_outcome enough_left(struct run_claim *rc)
{
        if (semel_claim_lease_left_ms(rc->claim) >= rc->lease_ms / 2 ||
            (semel_extend(rc->claim, rc->lease_ms, &rc->err) == SEMEL_OK &&
             semel_claim_lease_left_ms(rc->claim) >= rc->lease_ms / 2))
                return SEMEL_RUN;
        struct semel_error err = {0};
        (void)claim_release_not_executed(rc->claim, &err);
        semel_claim_free(rc->claim);
        rc->claim = NULL;
        (void)err_set(&rc->err, SEMEL_ERR_BUSY,
                      "the store answers too slowly for a lease of %lld ms, so the command was not "
                      "started; give a longer --lease",
                      (long long)rc->lease_ms);
        return SEMEL_ERROR;
}

/* Before a takeover: does a command of an earlier run live on?  Its lock is named in the row,
 * and may be another user's, in another place than ours. */
static semel_outcome look_before_takeover(struct run_claim *rc)
{
        semel_key_row *row = NULL;
        struct holder holder;
        semel_code code = semel_keys_get(rc->st, rc->id, &row, &rc->err);
        if (code == SEMEL_ERR_NOT_FOUND)
                return SEMEL_RUN;
        if (code != SEMEL_OK)
                return SEMEL_ERROR;
        semel_outcome outcome = SEMEL_RUN;
        semel_key_state state = semel_key_row_state(row);
        if (state == SEMEL_KEY_IN_FLIGHT || state == SEMEL_KEY_UNKNOWN) {
                holder_parse(semel_key_row_holder(row), &holder);
                enum holder_life life = holder_look(&holder);
                if (strcmp(holder.lock, rc->lock.path) != 0 &&
                    (life == HOLDER_ALIVE || life == HOLDER_UNREADABLE))
                        outcome = SEMEL_IN_FLIGHT;
                else if (life == HOLDER_ELSEWHERE && semel_key_row_lease_over(row))
                        say_note("an earlier run was on host %s, and from here one cannot see "
                                 "whether its command still runs; it may run again",
                                 holder.host);
        }
        semel_key_row_free(row);
        return outcome;
}

static semel_outcome claim_with_lock(struct run_claim *rc)
{
        if (rc->again) {
                semel_outcome outcome = look_before_takeover(rc);
                if (outcome != SEMEL_RUN)
                        return outcome;
        }
        semel_outcome outcome =
                semel_begin(rc->st, rc->cmd, &rc->claim, &rc->reply, &rc->err);
        return outcome == SEMEL_RUN ? enough_left(rc) : outcome;
}

/* Somebody on this host holds the lock.  Ask the store only what it can answer without giving
 * us the key: a kept reply, a mismatch, UNKNOWN, or a living lease. */
static semel_outcome ask_without_lock(struct run_claim *rc)
{
        semel_key_row *row = NULL;
        semel_code code = semel_keys_get(rc->st, rc->id, &row, &rc->err);
        if (code == SEMEL_ERR_NOT_FOUND)
                return SEMEL_IN_FLIGHT; /* it is about to claim, or about to finish */
        if (code != SEMEL_OK)
                return SEMEL_ERROR;
        semel_key_state state = semel_key_row_state(row);
        bool winnable = state == SEMEL_KEY_FREE ||
                        (state == SEMEL_KEY_UNKNOWN && rc->idempotent) ||
                        (state == SEMEL_KEY_IN_FLIGHT && semel_key_row_lease_over(row)) ||
                        (state == SEMEL_KEY_COMPLETED &&
                         semel_key_row_expire_us(row) <= clock_wall_us() + rc->lease_ms * 1000);
        semel_key_row_free(row);
        if (winnable)
                return SEMEL_IN_FLIGHT;
        semel_outcome outcome =
                semel_begin(rc->st, rc->cmd, &rc->claim, &rc->reply, &rc->err);
        if (outcome != SEMEL_RUN)
                return outcome;
        (void)claim_release_not_executed(rc->claim, &rc->err); /* the row changed in between */
        semel_claim_free(rc->claim);
        rc->claim = NULL;
        return SEMEL_IN_FLIGHT;
}

static semel_outcome claim_once(struct run_claim *rc)
{
        int locked = lock_file_try(&rc->lock);
        if (locked < 0) {
                (void)err_set_errno(&rc->err, SEMEL_ERR_STORE_DOWN, errno,
                                    "cannot lock %.300s: is the state directory writable, on a "
                                    "local file system?",
                                    rc->lock.path);
                return SEMEL_ERROR;
        }
        if (!locked)
                return ask_without_lock(rc);
        semel_outcome outcome = claim_with_lock(rc);
        if (outcome != SEMEL_RUN)
                lock_file_remove(&rc->lock);
        return outcome;
}

semel_outcome run_claim(struct run_claim *rc)
{
        const int64_t until_us = clock_boot_us() + rc->wait_ms * 1000;
        int64_t pause_ms = POLL_FIRST_MS;
        for (;;) {
                semel_outcome outcome = claim_once(rc);
                int64_t left_ms = (until_us - clock_boot_us()) / 1000;
                if (outcome != SEMEL_IN_FLIGHT || left_ms <= 0)
                        return outcome;
                rc->signal = signals_sleep(rc->signals, pause_ms < left_ms ? pause_ms : left_ms);
                if (rc->signal)
                        return SEMEL_ERROR;
                pause_ms = pause_ms * 2 > POLL_MAX_MS ? POLL_MAX_MS : pause_ms * 2;
        }
}

enum { SINCE_BYTES_MAX = TIME_TEXT_BYTES_MAX + UNITS_TEXT_BYTES_MAX + 8,
       LEASE_BYTES_MAX = TIME_TEXT_BYTES_MAX + 24 };

static void explain_since(const semel_key_row *row, char *ret /* SINCE_BYTES_MAX */)
{
        char at[TIME_TEXT_BYTES_MAX], ago[UNITS_TEXT_BYTES_MAX];
        int64_t since_us = semel_key_row_claimed_us(row);
        if (since_us == 0) {
                (void)snprintf(ret, SINCE_BYTES_MAX, "before the last boot");
                return;
        }
        time_format_us(since_us, ' ', at);
        duration_format((clock_wall_us() - since_us) / 1000, ago);
        (void)snprintf(ret, SINCE_BYTES_MAX, "%s (%s ago)", at, ago);
}

static void explain_lease(const semel_key_row *row, char *ret /* LEASE_BYTES_MAX */)
{
        char at[TIME_TEXT_BYTES_MAX];
        int64_t until_us = semel_key_row_lease_until_us(row);
        if (until_us == 0) {
                (void)snprintf(ret, LEASE_BYTES_MAX, "over before the last boot");
                return;
        }
        time_format_us(until_us, ' ', at);
        (void)snprintf(ret, LEASE_BYTES_MAX, "%s %s",
                       semel_key_row_lease_over(row) ? "over at" : "until", at);
}

void run_claim_explain(struct run_claim *rc, char *ret, size_t ret_max)
{
        semel_key_row *row = NULL;
        struct semel_error err = {0};
        if (semel_keys_get(rc->st, rc->id, &row, &err) != SEMEL_OK) {
                (void)snprintf(ret, ret_max, "a process on this host is about to run it");
                return;
        }
        char holder[4 * LIMIT_HOLDER_BYTES], since[SINCE_BYTES_MAX], lease[LEASE_BYTES_MAX];
        struct holder h;
        holder_parse(semel_key_row_holder(row), &h);
        (void)text_printable(span_str(semel_key_row_holder(row)), holder, sizeof holder);
        explain_since(row, since);
        explain_lease(row, lease);
        const char *life = holder_life_text(holder_look(&h));
        (void)snprintf(ret, ret_max, "%s since %s%s%s; lease %s%s%s%s",
                       semel_key_row_state(row) == SEMEL_KEY_IN_FLIGHT ? "held" : "last held", since,
                       *holder ? " by " : "", holder, lease,
                       *life ? " (" : "", life, *life ? ")" : "");
        semel_key_row_free(row);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * tx_run: see tx_run.h.  The record and the effect are in one transaction, so there is no
 * lease to keep and no outcome that nobody can know: both are there after COMMIT, or neither.
 */
#include "api/tx_run.h"

#include <stdio.h>
#include <unistd.h>

#include "api/command_object.h"
#include "api/outcome.h"
#include "api/reply_object.h"
#include "base/err.h"

/* The row is ours: run the command, then write the reply beside its effect. */
static semel_outcome run_claimed(const struct store_tx_vt *vt, struct store_tx *tx,
                                 const semel_command *cmd, const struct command_claim *claim,
                                 int64_t token, const struct tx_call *call, semel_reply *rep,
                                 semel_error *err)
{
        if (call->run(call, rep) != SEMEL_EFFECT_DONE)
                return vt->undo(tx, err) == SEMEL_OK ? SEMEL_FAILED : SEMEL_ERROR;

        const struct command_write write = {.kind = COMMAND_COMPLETE,
                                            .id = claim->id,
                                            .token = token,
                                            .attempt = claim->attempt};
        const struct store_reply view = reply_view(rep, cmd->reply_bytes_max);
        if (vt->complete(tx, &write, &view, err) == SEMEL_OK)
                return SEMEL_RAN;
        (void)vt->undo(tx, NULL); /* effect without record must not stay; err is the cause */
        return SEMEL_ERROR;
}

semel_outcome tx_run(const struct store_tx_vt *vt, const semel_command *cmd,
                     const struct tx_call *call, semel_reply **ret_reply, semel_error *err)
{
        struct store_tx tx = {.conn = call->conn};
        struct command_claim claim;
        struct store_label label;
        struct command_answer answer;
        struct store_record rec;
        semel_reply *rep = NULL;
        semel_outcome outcome = SEMEL_ERROR;
        char holder[64];

        err_clear(err);
        (void)snprintf(holder, sizeof holder, "pid=%ld", (long)getpid());
        if (command_claim_fill(cmd, MODE_TX, span_str(holder), &claim, &label, err) != SEMEL_OK)
                return SEMEL_ERROR;
        rep = semel_reply_new();
        if (!rep) {
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a reply");
                return SEMEL_ERROR;
        }
        if (vt->begin(&tx, err) != SEMEL_OK) {
                semel_reply_free(rep);
                return SEMEL_ERROR;
        }
        store_record_init(&rec);
        if (vt->claim(&tx, &claim, &label, cmd->wait_us, &answer, &rec, err) != SEMEL_OK)
                goto out;
        if (answer.outcome != COMMAND_RUN) {
                outcome = outcome_of_claim(&answer, &rec, ret_reply, err);
                goto out;
        }
        outcome = run_claimed(vt, &tx, cmd, &claim, answer.token, call, rep, err);
        if (outcome == SEMEL_RAN || outcome == SEMEL_FAILED) {
                *ret_reply = rep;
                rep = NULL;
        }
out:
        vt->end(&tx);
        store_record_release(&rec);
        semel_reply_free(rep);
        return outcome;
}

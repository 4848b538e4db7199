/* SPDX-License-Identifier: Apache-2.0
 *
 * command_object: what is behind semel_command.
 */
#ifndef API_COMMAND_OBJECT_H
#define API_COMMAND_OBJECT_H

#include <semel/command.h>

#include "core/key.h"
#include "core/limits.h"
#include "store/store.h"
#include "sys/sha256.h"

struct semel_command {
        struct key key;
        size_t scope_len, operation_len, holder_len;
        char scope[LIMIT_SCOPE_BYTES + 1];
        char operation[LIMIT_OPERATION_BYTES + 1];
        char holder[LIMIT_HOLDER_BYTES + 1]; /* empty: the store handle's own */
        bool has_principal;
        uint8_t principal[HASH_BYTES];
        uint8_t request[HASH_BYTES]; /* SHA-256 of the request's bytes */
        int64_t lease_us, retention_us, wait_us;
        size_t reply_bytes_max;
        struct command_policy policy;
        bool store_key;
        struct sha256 *hash;
};

/* The claim and the label for a store: a new random attempt each time.  The spans of the
 * label point into `cmd` and `holder`.  Errors: SEMEL_ERR_INTERNAL (no randomness). */
semel_code command_claim_fill(const semel_command *cmd, enum command_mode mode, struct span holder,
                              struct command_claim *ret_claim, struct store_label *ret_label,
                              semel_error *err);

/* Who claims, in the place of the store handle's own text (`semel run` names its lock). */
semel_code command_set_holder(semel_command *cmd, const char *holder, semel_error *err);

/* The 128-bit nonce of an acquisition. */
semel_code attempt_new(struct command_attempt *ret, semel_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * command_object: see command_object.h and semel/command.h.
 */
#include "api/command_object.h"

#include <errno.h>
#include <stdlib.h>

#include <semel/keys.h>

#include "base/err.h"
#include "sys/random.h"

semel_command *semel_command_new(const char *key, size_t key_len, semel_error *err)
{
        enum key_result result = key_check(span_of(key, key_len));
        if (result != KEY_OK) {
                (void)err_set(err, SEMEL_ERR_KEY, "the idempotency key is malformed: %s",
                              key_result_text(result));
                return NULL;
        }
        semel_command *cmd = calloc(1, sizeof *cmd);
        if (cmd)
                cmd->hash = sha256_new(NULL, 0);
        if (!cmd || !cmd->hash || sha256_once(NULL, 0, cmd->request) != 0) {
                semel_command_free(cmd);
                (void)err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a command");
                return NULL;
        }
        memcpy(cmd->key.text, key, key_len);
        cmd->key.n = key_len;
        cmd->lease_us = DEFAULT_LEASE_US;
        cmd->retention_us = DEFAULT_RETENTION_US;
        cmd->reply_bytes_max = LIMIT_REPLY_BODY_DEFAULT_BYTES;
        cmd->store_key = true;
        return cmd;
}

void semel_command_free(semel_command *cmd)
{
        if (!cmd)
                return;
        sha256_free(cmd->hash);
        free(cmd);
}

/* Copy a bounded text. */
static semel_code set_text(char *at, size_t *ret_len, size_t max, const char *text,
                           const char *what, semel_error *err)
{
        size_t n = text ? strlen(text) : 0;
        if (n > max)
                return err_set(err, SEMEL_ERR_TOO_LARGE, "the %s is %zu bytes long, at most %zu",
                               what, n, max);
        if (n > 0)
                memcpy(at, text, n);
        at[n] = 0;
        *ret_len = n;
        return SEMEL_OK;
}

semel_code semel_command_set_scope(semel_command *cmd, const char *scope, semel_error *err)
{
        return set_text(cmd->scope, &cmd->scope_len, LIMIT_SCOPE_BYTES, scope, "scope", err);
}

semel_code semel_command_set_operation(semel_command *cmd, const char *operation,
                                       semel_error *err)
{
        return set_text(cmd->operation, &cmd->operation_len, LIMIT_OPERATION_BYTES, operation,
                        "operation", err);
}

semel_code command_set_holder(semel_command *cmd, const char *holder, semel_error *err)
{
        return set_text(cmd->holder, &cmd->holder_len, LIMIT_HOLDER_BYTES, holder, "holder", err);
}

static semel_code digest(const void *p, size_t n, uint8_t *ret_32, semel_error *err)
{
        if (sha256_once(p, n, ret_32) != 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "SHA-256 failed: no memory");
        return SEMEL_OK;
}

semel_code semel_command_set_principal(semel_command *cmd, const void *principal, size_t n,
                                       semel_error *err)
{
        semel_code code = digest(principal, n, cmd->principal, err);
        if (code == SEMEL_OK)
                cmd->has_principal = true;
        return code;
}

semel_code semel_command_set_request(semel_command *cmd, const void *request, size_t n,
                                     semel_error *err)
{
        return digest(request, n, cmd->request, err);
}

/* Durations are validated, never clamped: a lease of 0 that is read as "none" would last for
 * ever (H6). */
static semel_code set_ms(int64_t *at_us, int64_t ms, int64_t min_ms, int64_t max_us,
                         const char *what, semel_error *err)
{
        if (ms < min_ms || ms > max_us / MS)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the %s must be %lld to %lld ms, not %lld", what, (long long)min_ms,
                               (long long)(max_us / MS), (long long)ms);
        *at_us = ms * MS;
        return SEMEL_OK;
}

semel_code semel_command_set_lease_ms(semel_command *cmd, int64_t lease_ms, semel_error *err)
{
        return set_ms(&cmd->lease_us, lease_ms, 1, LIMIT_LEASE_US, "lease", err);
}

semel_code semel_command_set_retention_ms(semel_command *cmd, int64_t retention_ms,
                                          semel_error *err)
{
        return set_ms(&cmd->retention_us, retention_ms, 1, LIMIT_RETENTION_US, "retention", err);
}

semel_code semel_command_set_wait_ms(semel_command *cmd, int64_t wait_ms, semel_error *err)
{
        return set_ms(&cmd->wait_us, wait_ms, 0, LIMIT_WAIT_US, "wait", err);
}

semel_code semel_command_set_reply_bytes_max(semel_command *cmd, int64_t bytes, semel_error *err)
{
        if (bytes < 0 || bytes > LIMIT_REPLY_BODY_BYTES)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the largest kept reply must be 0 to %d bytes, not %lld",
                               LIMIT_REPLY_BODY_BYTES, (long long)bytes);
        cmd->reply_bytes_max = (size_t)bytes;
        return SEMEL_OK;
}

void semel_command_set_on_unknown(semel_command *cmd, semel_on_unknown on_unknown)
{
        cmd->policy.retry = on_unknown == SEMEL_ON_UNKNOWN_RETRY;
}

void semel_command_set_idempotent(semel_command *cmd, bool idempotent)
{
        cmd->policy.idempotent = idempotent;
}

void semel_command_set_store_key(semel_command *cmd, bool store_key)
{
        cmd->store_key = store_key;
}

static void fill_id(const semel_command *cmd, enum command_mode mode, struct command_id *ret_id)
{
        identity_id(sha256_sink(cmd->hash), mode, span_of(cmd->scope, cmd->scope_len),
                    span_of(cmd->principal, cmd->has_principal ? HASH_BYTES : 0),
                    span_of(cmd->key.text, cmd->key.n), ret_id);
}

semel_code semel_command_id(const semel_command *cmd, const char *mode, unsigned char *ret_id,
                            semel_error *err)
{
        enum command_mode m;
        struct command_id id;
        if (!mode_parse(mode, &m))
                return err_set(err, SEMEL_ERR_ARGUMENT, "there is no mode \"%.32s\"", mode);
        fill_id(cmd, m, &id);
        memcpy(ret_id, id.b, sizeof id.b);
        return SEMEL_OK;
}

semel_code attempt_new(struct command_attempt *ret, semel_error *err)
{
        if (random_bytes(ret->b, sizeof ret->b) != 0)
                return err_set_errno(err, SEMEL_ERR_INTERNAL, errno, "no random bytes");
        return SEMEL_OK;
}

semel_code command_claim_fill(const semel_command *cmd, enum command_mode mode, struct span holder,
                              struct command_claim *ret_claim, struct store_label *ret_label,
                              semel_error *err)
{
        struct command_claim claim = {.policy = cmd->policy,
                                      .lease_us = cmd->lease_us,
                                      .retention_us = cmd->retention_us,
                                      .request_us = cmd->lease_us};
        semel_code code = attempt_new(&claim.attempt, err);
        if (code != SEMEL_OK)
                return code;
        fill_id(cmd, mode, &claim.id);

        struct fingerprint fp;
        fingerprint_begin(&fp, sha256_sink(cmd->hash));
        fingerprint_field(&fp, span_of(cmd->operation, cmd->operation_len));
        fingerprint_body(&fp, span_of(cmd->request, sizeof cmd->request));
        fingerprint_end(&fp, &claim.fingerprint);

        *ret_claim = claim;
        *ret_label = (struct store_label){
                .mode = mode,
                .scope = span_of(cmd->scope, cmd->scope_len),
                .operation = span_of(cmd->operation, cmd->operation_len),
                .key = span_of(cmd->key.text, cmd->store_key ? cmd->key.n : 0),
                .holder = cmd->holder_len ? span_of(cmd->holder, cmd->holder_len) : holder};
        return SEMEL_OK;
}

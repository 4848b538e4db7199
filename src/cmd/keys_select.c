/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_select: see keys_select.h.
 *
 * A key's id is a digest of mode, scope, principal and text, so a text alone names several
 * possible rows.  Those that nothing more is needed for are asked for first, each by its
 * id; only when none is there, the table is walked for the text.
 */
#include "cmd/keys_select.h"

#include "base/err.h"
#include "cmd/json_out.h"
#include "cmd/run_claim.h"

static const char *const modes[] = {"run", "tx", "gateway", "call"};

struct search {
        semel_store *st;
        const struct options *o;
        const char *key;
        semel_key_row *found;
        size_t count;
        unsigned char id[SEMEL_KEY_ID_BYTES]; /* of a row that the walk found */
};

static semel_code get_candidate(struct search *s, const char *mode, const char *scope,
                                semel_error *err)
{
        const char *principal = option_text(s->o, OPT_PRINCIPAL);
        unsigned char id[SEMEL_KEY_ID_BYTES];
        semel_key_row *row = NULL;
        semel_command *cmd = semel_command_new(s->key, strlen(s->key), err);
        if (!cmd)
                return semel_error_code(err);
        semel_code code = semel_command_set_scope(cmd, scope, err);
        if (code == SEMEL_OK && principal)
                code = semel_command_set_principal(cmd, principal, strlen(principal), err);
        if (code == SEMEL_OK)
                code = semel_command_id(cmd, mode, id, err);
        semel_command_free(cmd);
        if (code == SEMEL_OK)
                code = semel_keys_get(s->st, id, &row, err);
        if (code == SEMEL_ERR_NOT_FOUND)
                return SEMEL_OK;
        if (code != SEMEL_OK)
                return code;
        s->count++;
        semel_key_row_free(s->found);
        s->found = row;
        return SEMEL_OK;
}

static semel_code get_candidates(struct search *s, semel_error *err)
{
        const char *mode = option_text(s->o, OPT_MODE), *scope = option_text(s->o, OPT_SCOPE);
        const char *scopes[] = {"", RUN_SCOPE};
        semel_code code = SEMEL_OK;
        for (size_t m = 0; m < 4 && code == SEMEL_OK; m++) {
                if (mode && strcmp(mode, modes[m]) != 0)
                        continue;
                if (scope)
                        code = get_candidate(s, modes[m], scope, err);
                for (size_t i = 0; !scope && i < 2 && code == SEMEL_OK; i++)
                        code = get_candidate(s, modes[m], scopes[i], err);
        }
        return code;
}

static bool walk(void *arg, const semel_key_row *row)
{
        struct search *s = arg;
        const char *mode = option_text(s->o, OPT_MODE), *scope = option_text(s->o, OPT_SCOPE);
        if ((mode && strcmp(mode, semel_key_row_mode(row)) != 0) ||
            (scope && strcmp(scope, semel_key_row_scope(row)) != 0))
                return true;
        s->count++;
        memcpy(s->id, semel_key_row_id(row), sizeof s->id);
        return s->count < 2;
}

static semel_code select_by_id(struct search *s, const char *hex, semel_error *err)
{
        if (!hex_parse(hex, s->id, sizeof s->id))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "--id needs 64 hexadecimal digits, as `keys show` prints them");
        return semel_keys_get(s->st, s->id, &s->found, err);
}

static semel_code select_by_text(struct search *s, semel_error *err)
{
        semel_code code = get_candidates(s, err);
        if (code == SEMEL_OK && s->count == 0 && !option_text(s->o, OPT_PRINCIPAL)) {
                code = semel_keys_list(s->st, false, s->key, walk, s, err);
                if (code == SEMEL_OK && s->count == 1)
                        code = semel_keys_get(s->st, s->id, &s->found, err);
        }
        if (code != SEMEL_OK)
                return code;
        if (s->count > 1)
                return err_set(err, SEMEL_ERR_REFUSED,
                               "several keys have this text: `semel keys list --key KEY` shows them; "
                               "name one with --id, or with --mode, --scope and --principal");
        if (s->count == 0)
                return err_set(err, SEMEL_ERR_NOT_FOUND,
                               "there is no such key: it never ran here, or its retention is over; "
                               "a key kept as a digest needs --id, or --mode, --scope and "
                               "--principal as it was used");
        return SEMEL_OK;
}

semel_code keys_select(semel_store *st, const struct options *o, semel_key_row **ret_row,
                       semel_error *err)
{
        struct search s = {.st = st, .o = o, .key = options_key(o)};
        const char *hex = option_text(o, OPT_ID);
        semel_code code;
        if (hex && s.key)
                code = err_set(err, SEMEL_ERR_ARGUMENT, "give KEY or --id, not both");
        else if (hex)
                code = select_by_id(&s, hex, err);
        else if (s.key)
                code = select_by_text(&s, err);
        else
                code = err_set(err, SEMEL_ERR_ARGUMENT, "which key?  Give KEY, or --id HEX");
        if (code == SEMEL_OK) {
                *ret_row = s.found;
                s.found = NULL;
        }
        semel_key_row_free(s.found);
        return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_print: see keys_print.h.
 */
#include "cmd/keys_print.h"

#include <string.h>

#include "base/units.h"
#include "cmd/json_out.h"
#include "cmd/run_output.h"
#include "cmd/say.h"
#include "core/limits.h"
#include "sys/clock.h"

/* Any text of a row after text_printable(): four bytes for one. */
enum { SAFE_BYTES_MAX = 4 * LIMIT_HOLDER_BYTES + 8 };

const char *keys_state_name(semel_key_state state)
{
        switch (state) {
        case SEMEL_KEY_FREE:
                return "FREE";
        case SEMEL_KEY_IN_FLIGHT:
                return "IN_FLIGHT";
        case SEMEL_KEY_COMPLETED:
                return "COMPLETED";
        case SEMEL_KEY_UNKNOWN:
                break;
        }
        return "UNKNOWN";
}

#define EARLY ":early"

/* Somebody may still be at work on it: nobody can look at the other side for good yet. */
static bool is_early(const semel_key_row *row)
{
        semel_key_state state = semel_key_row_state(row);
        return (state == SEMEL_KEY_IN_FLIGHT || state == SEMEL_KEY_UNKNOWN) &&
               !semel_key_row_settled(row);
}

void keys_shown_attempt(const semel_key_row *row, char *ret)
{
        char hex[2 * SEMEL_ATTEMPT_BYTES + 1];
        hex_format(semel_key_row_attempt(row), SEMEL_ATTEMPT_BYTES, hex);
        (void)snprintf(ret, SHOWN_ATTEMPT_BYTES_MAX, "%s:%lld%s", hex,
                       (long long)semel_key_row_token(row), is_early(row) ? EARLY : "");
}

/* Without the mark. */
static struct span acquisition(const char *text)
{
        size_t n = strlen(text), mark = strlen(EARLY);
        bool early = n > mark && strcmp(text + n - mark, EARLY) == 0;
        return span_of(text, early ? n - mark : n);
}

bool keys_same_attempt(const char *shown, const char *now, bool *ret_early)
{
        struct span a = acquisition(shown), b = acquisition(now);
        *ret_early = shown[a.n] != 0;
        return span_eq(a, b);
}

bool keys_is_stuck(const semel_key_row *row)
{
        semel_key_state state = semel_key_row_state(row);
        return state == SEMEL_KEY_UNKNOWN ||
               (state == SEMEL_KEY_IN_FLIGHT && semel_key_row_lease_over(row));
}

/* "12 s ago", "in 48 s" */
static void relative(int64_t us, char *ret, size_t ret_max)
{
        char length[UNITS_TEXT_BYTES_MAX];
        if (us == 0) {
                (void)snprintf(ret, ret_max, "before boot");
                return;
        }
        int64_t ahead_us = us - clock_wall_us();
        duration_format((ahead_us > 0 ? ahead_us : -ahead_us) / 1000, length);
        (void)snprintf(ret, ret_max, ahead_us > 0 ? "in %s" : "%s ago", length);
}

/* -- lists ---------------------------------------------------------------------------------- */

#define LINE_FORMAT "%-10s %-28s %-8s %-20s %-12s %-16s %-55s %s\n"

void keys_print_header(FILE *out)
{
        fprintf(out, LINE_FORMAT, "STATE", "KEY", "MODE", "OPERATION", "CLAIMED", "LEASE/EXPIRES",
                "ATTEMPT", "HOLDER");
}

void keys_print_line(FILE *out, const semel_key_row *row)
{
        char key[SAFE_BYTES_MAX], operation[SAFE_BYTES_MAX], holder[SAFE_BYTES_MAX];
        char claimed[48], ends[64], attempt[SHOWN_ATTEMPT_BYTES_MAX], id[2 * 8 + 1];
        semel_key_state state = semel_key_row_state(row);
        (void)text_printable(span_str(semel_key_row_key(row)), key, sizeof key);
        (void)text_printable(span_str(semel_key_row_operation(row)), operation, sizeof operation);
        (void)text_printable(span_str(semel_key_row_holder(row)), holder, sizeof holder);
        char *boot = strstr(holder, " boot="); /* host and pid are enough for a line */
        if (boot)
                *boot = 0;
        keys_shown_attempt(row, attempt);
        relative(semel_key_row_claimed_us(row), claimed, sizeof claimed);
        if (!*key) { /* kept as a digest: the beginning of its id */
                hex_format(semel_key_row_id(row), 8, id);
                (void)snprintf(key, sizeof key, "(id %s...)", id);
        }
        if (state == SEMEL_KEY_UNKNOWN)
                (void)snprintf(ends, sizeof ends, "never");
        else if (state == SEMEL_KEY_IN_FLIGHT && semel_key_row_lease_over(row))
                (void)snprintf(ends, sizeof ends, "over");
        else
                relative(state == SEMEL_KEY_IN_FLIGHT ? semel_key_row_lease_until_us(row)
                                                      : semel_key_row_expire_us(row),
                         ends, sizeof ends);
        fprintf(out, LINE_FORMAT, keys_state_name(state), key, semel_key_row_mode(row), operation,
                claimed, ends, attempt, holder);
}

/* -- JSON ------------------------------------------------------------------------------------ */

static void print_json_reply(struct json_out *js, const semel_reply *rep)
{
        size_t n;
        (void)run_output_view(rep, &n);
        json_number(js, "status", semel_reply_status(rep));
        json_number(js, "body_bytes", (int64_t)n);
        json_bool(js, "body_kept", !semel_reply_is_tombstone(rep));
        json_pairs_begin(js, "headers");
        for (size_t i = 0; i < semel_reply_header_count(rep); i++) {
                const char *name, *value;
                size_t name_len, value_len;
                if (semel_reply_header(rep, i, &name, &name_len, &value, &value_len))
                        json_pair(js, name, name_len, value, value_len);
        }
        json_pairs_end(js);
}

void keys_print_json(FILE *out, const semel_key_row *row)
{
        struct json_out js;
        char attempt[SHOWN_ATTEMPT_BYTES_MAX];
        keys_shown_attempt(row, attempt);
        semel_key_state state = semel_key_row_state(row);
        bool ends = state == SEMEL_KEY_COMPLETED || state == SEMEL_KEY_FREE;
        json_begin(&js, out);
        json_hex(&js, "id", semel_key_row_id(row), SEMEL_KEY_ID_BYTES);
        json_text(&js, "key", semel_key_row_key(row));
        json_text(&js, "state", keys_state_name(state));
        json_bool(&js, "stuck", keys_is_stuck(row));
        json_text(&js, "mode", semel_key_row_mode(row));
        json_text(&js, "scope", semel_key_row_scope(row));
        json_text(&js, "operation", semel_key_row_operation(row));
        json_text(&js, "holder", semel_key_row_holder(row));
        json_text(&js, "attempt", attempt);
        json_number(&js, "token", semel_key_row_token(row));
        json_text(&js, "on_unknown",
                  semel_key_row_on_unknown(row) == SEMEL_ON_UNKNOWN_RETRY ? "retry" : "hold");
        json_bool(&js, "idempotent", semel_key_row_idempotent(row));
        json_bool(&js, "maybe_executed", semel_key_row_maybe_executed(row));
        json_time_us(&js, "created", semel_key_row_created_us(row));
        json_time_us(&js, "claimed", semel_key_row_claimed_us(row));
        json_time_us(&js, "lease_until",
                     state == SEMEL_KEY_IN_FLIGHT ? semel_key_row_lease_until_us(row) : 0);
        json_bool(&js, "lease_over", semel_key_row_lease_over(row));
        json_time_us(&js, "look_from", is_early(row) ? semel_key_row_settled_us(row) : 0);
        json_time_us(&js, "expires", ends ? semel_key_row_expire_us(row) : 0);
        if (semel_key_row_reply(row))
                print_json_reply(&js, semel_key_row_reply(row));
        json_end(&js);
}

/* -- one row in full ---------------------------------------------------------------------------- */

static void print_text(FILE *out, const char *name, const char *text)
{
        char safe[SAFE_BYTES_MAX];
        (void)text_printable(span_str(text), safe, sizeof safe);
        fprintf(out, "%-10s %s\n", name, safe);
}

static void print_time(FILE *out, const char *name, int64_t us)
{
        char when[TIME_TEXT_BYTES_MAX], how_far[48];
        if (us == 0) {
                fprintf(out, "%-10s before the last boot\n", name);
                return;
        }
        time_format_us(us, ' ', when);
        relative(us, how_far, sizeof how_far);
        fprintf(out, "%-10s %s (%s)\n", name, when, how_far);
}

static void print_reply(FILE *out, const semel_reply *rep)
{
        size_t n;
        (void)run_output_view(rep, &n);
        if (semel_reply_is_tombstone(rep))
                fprintf(out, "%-10s status %d; its body was not kept\n", "reply",
                        semel_reply_status(rep));
        else
                fprintf(out, "%-10s status %d, body %zu bytes (--body writes it)\n", "reply",
                        semel_reply_status(rep), n);
        for (size_t i = 0; i < semel_reply_header_count(rep); i++) {
                const char *name, *value;
                size_t name_len, value_len;
                char line[512], safe[SAFE_BYTES_MAX];
                if (!semel_reply_header(rep, i, &name, &name_len, &value, &value_len))
                        continue;
                (void)snprintf(line, sizeof line, "%.*s: %.*s", (int)name_len, name, (int)value_len,
                               value);
                (void)text_printable(span_str(line), safe, sizeof safe);
                fprintf(out, "%-10s %s\n", "", safe);
        }
}

static void print_next(FILE *out, const semel_key_row *row, enum holder_life life)
{
        const char *text = "nothing: it can run (again)";
        switch (semel_key_row_state(row)) {
        case SEMEL_KEY_FREE:
                break;
        case SEMEL_KEY_COMPLETED:
                text = "nothing: retries get this reply until it expires; `semel keys release` "
                       "lets it run again";
                break;
        case SEMEL_KEY_UNKNOWN:
                text = life == HOLDER_ALIVE
                               ? "wait: its command still runs, and its result will be recorded"
                               : "look at what it does, at the other side; then `semel keys resolve "
                                 "KEY --executed` or `--not-executed`";
                break;
        case SEMEL_KEY_IN_FLIGHT:
                if (!semel_key_row_lease_over(row))
                        text = life == HOLDER_GONE || life == HOLDER_REBOOTED
                                       ? "its holder is gone: when the lease is over, look and "
                                         "resolve it"
                                       : "wait: its holder completes it, or the lease ends";
                else if (semel_key_row_on_unknown(row) == SEMEL_ON_UNKNOWN_RETRY ||
                         semel_key_row_idempotent(row))
                        text = "the next call runs it again; or look and `semel keys resolve`";
                else
                        text = "its holder did not come back: look at what it does, then `semel keys "
                               "resolve KEY --executed` or `--not-executed`";
                break;
        }
        fprintf(out, "%-10s %s\n", "next", text);
}

static const char *state_text(const semel_key_row *row)
{
        switch (semel_key_row_state(row)) {
        case SEMEL_KEY_FREE:
                return "released, or resolved as not executed";
        case SEMEL_KEY_COMPLETED:
                return "it ran, and its reply is kept";
        case SEMEL_KEY_UNKNOWN:
                return "nobody knows whether it ran";
        case SEMEL_KEY_IN_FLIGHT:
                break;
        }
        return semel_key_row_lease_over(row) ? "claimed, and its lease is over" : "it runs now";
}

void keys_print_full(FILE *out, const semel_key_row *row)
{
        char id[2 * SEMEL_KEY_ID_BYTES + 1], attempt[SHOWN_ATTEMPT_BYTES_MAX];
        semel_key_state state = semel_key_row_state(row);
        struct holder holder;
        holder_parse(semel_key_row_holder(row), &holder);
        enum holder_life life = holder_look(&holder);
        hex_format(semel_key_row_id(row), SEMEL_KEY_ID_BYTES, id);
        keys_shown_attempt(row, attempt);

        print_text(out, "key", *semel_key_row_key(row) ? semel_key_row_key(row)
                                                       : "(only its digest is kept)");
        fprintf(out, "%-10s %s: %s\n", "state", keys_state_name(state), state_text(row));
        print_text(out, "operation", semel_key_row_operation(row));
        fprintf(out, "%-10s %s\n", "mode", semel_key_row_mode(row));
        if (*semel_key_row_scope(row))
                print_text(out, "scope", semel_key_row_scope(row));
        if (*semel_key_row_holder(row))
                print_text(out, state == SEMEL_KEY_IN_FLIGHT ? "held by" : "last held",
                           semel_key_row_holder(row));
        if ((state == SEMEL_KEY_IN_FLIGHT || state == SEMEL_KEY_UNKNOWN) && life != HOLDER_NO_LOCK)
                fprintf(out, "%-10s %s\n", "", holder_life_text(life));
        print_time(out, "created", semel_key_row_created_us(row));
        print_time(out, "since", semel_key_row_claimed_us(row));
        if (state == SEMEL_KEY_IN_FLIGHT)
                print_time(out, semel_key_row_lease_over(row) ? "lease over" : "lease ends",
                           semel_key_row_lease_until_us(row));
        if (is_early(row))
                print_time(out, "look from", semel_key_row_settled_us(row));
        if (state == SEMEL_KEY_COMPLETED || state == SEMEL_KEY_FREE)
                print_time(out, "expires", semel_key_row_expire_us(row));
        fprintf(out, "%-10s %s%s%s\n", "policy",
                semel_key_row_on_unknown(row) == SEMEL_ON_UNKNOWN_RETRY ? "retry" : "hold",
                semel_key_row_idempotent(row) ? ", the other side dedupes" : "",
                semel_key_row_maybe_executed(row) ? "; an earlier holder may have run it" : "");
        fprintf(out, "%-10s %s\n", "attempt", attempt);
        fprintf(out, "%-10s %s\n", "id", id);
        if (semel_key_row_reply(row))
                print_reply(out, semel_key_row_reply(row));
        print_next(out, row, life);
}

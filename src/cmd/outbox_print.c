/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_print: see outbox_print.h.
 */
#include "cmd/outbox_print.h"

#include <string.h>

#include "base/units.h"
#include "cmd/json_out.h"
#include "cmd/say.h"
#include "sys/clock.h"

enum { SHOWN_BYTES_MAX = 1024 };

/* Bytes of a row, safe for a terminal. */
static const char *shown(struct span s, char *ret)
{
        const size_t n = SHOWN_BYTES_MAX / 4 - 1;
        return text_printable(span_of(s.p, s.n < n ? s.n : n), ret, SHOWN_BYTES_MAX);
}

static const char *length(int64_t us, char *ret)
{
        duration_format(us / 1000, ret);
        return ret;
}

/* -- status for people ---------------------------------------------------------------------------- */

static bool some_wait(const struct outbox_stats *stats)
{
        for (size_t i = 0; i < stats->n; i++)
                if (stats->count[i].state == OUTBOX_PENDING && stats->count[i].rows > 0)
                        return true;
        return false;
}

static void print_counts(FILE *out, const struct outbox_stats *stats)
{
        char topic[SHOWN_BYTES_MAX], age[UNITS_TEXT_BYTES_MAX];
        if (stats->n == 0)
                fputs("\nno rows\n", out);
        else
                fprintf(out, "\n%-12s %12s  %s\n", "STATE", "ROWS", "TOPIC");
        for (size_t i = 0; i < stats->n; i++)
                fprintf(out, "%-12s %12lld  %s\n", outbox_state_name(stats->count[i].state),
                        (long long)stats->count[i].rows, shown(stats->count[i].topic, topic));
        if (stats->oldest_pending_us >= 0)
                fprintf(out, "\nthe oldest waiting row is %s old\n",
                        length(stats->oldest_pending_us, age));
        else if (some_wait(stats))
                fputs("\nthe age of the oldest waiting row is unknown\n", out);
        if (stats->oldest_xmin_us >= 0)
                fprintf(out, "the oldest open transaction of the database is %s old\n",
                        length(stats->oldest_xmin_us, age));
}

static void print_blocked(FILE *out, const struct outbox_status *st)
{
        char key[SHOWN_BYTES_MAX], wait[UNITS_TEXT_BYTES_MAX];
        if (st->blocked_count == 0)
                return;
        fprintf(out, "\n%-30s %12s  %-5s %s\n", "BLOCKED KEY", "BEHIND ROW", "SLOT", "NEXT TRY");
        for (size_t i = 0; i < st->blocked_count; i++) {
                const struct outbox_blocked *b = &st->blocked[i];
                fprintf(out, "%-30s %12lld  %-5d %s%s\n", shown(b->key, key), (long long)b->id,
                        b->slot,
                        b->dead            ? "never: it is DEAD"
                        : b->wait_us <= 0 ? "now"
                                           : "in ",
                        b->dead || b->wait_us <= 0 ? "" : length(b->wait_us, wait));
        }
        if (st->blocked_more)
                fputs("... and more\n", out);
}

static bool same_owner(const struct outbox_slot_view *a, const struct outbox_slot_view *b)
{
        return a->free == b->free && strcmp(a->owner, b->owner) == 0;
}

static void print_slots(FILE *out, const struct outbox_view *view)
{
        char owner[SHOWN_BYTES_MAX], left[UNITS_TEXT_BYTES_MAX];
        fputs("\nSLOTS   OWNER\n", out);
        for (int i = 0, end; i < EVENT_SLOTS; i = end) {
                const struct outbox_slot_view *slot = &view->slots[i];
                for (end = i + 1; end < EVENT_SLOTS && same_owner(slot, &view->slots[end]);)
                        end++;
                char range[32];
                (void)snprintf(range, sizeof range, end - i > 1 ? "%d-%d" : "%d", i, end - 1);
                fprintf(out, "%-7s ", range);
                if (*slot->owner == 0)
                        fputs("nobody\n", out);
                else if (slot->free)
                        fprintf(out, "%s (gone)\n", shown(span_str(slot->owner), owner));
                else if (slot->lease_left_us == INT64_MAX)
                        fprintf(out, "%s (as long as it lives)\n",
                                shown(span_str(slot->owner), owner));
                else
                        fprintf(out, "%s (lease %s)\n", shown(span_str(slot->owner), owner),
                                length(slot->lease_left_us, left));
        }
}

void outbox_print_status(FILE *out, const struct outbox_status *st)
{
        char uuid[EVENT_ID_TEXT_BYTES];
        event_id_format(st->view.uuid, uuid);
        fprintf(out, "outbox %s, mode %s, %d relay%s\n", uuid, outbox_mode_name(st->view.mode),
                st->view.members, st->view.members == 1 ? "" : "s");
        print_counts(out, &st->stats);
        print_blocked(out, st);
        print_slots(out, &st->view);
}

/* -- status for programs ----------------------------------------------------------------------------- */

/* Seconds with three digits, or null for "none". */
static void json_seconds(struct json_out *js, const char *name, int64_t us)
{
        char text[32];
        (void)snprintf(text, sizeof text, "%lld.%03lld", (long long)(us / 1000000),
                       (long long)(us / 1000 % 1000));
        json_plain(js, name, us < 0 ? "null" : text);
}

/* A string, always: where a row's number is a hash, readers that take numbers for doubles would
 * lose its last digits. */
static void json_id(struct json_out *js, const char *name, int64_t id)
{
        char text[24];
        (void)snprintf(text, sizeof text, "%lld", (long long)id);
        json_text(js, name, text);
}

static void json_counts(FILE *out, const struct outbox_stats *stats)
{
        struct json_out js;
        for (size_t i = 0; i < stats->n; i++) {
                json_begin(&js, out);
                json_text(&js, "kind", "count");
                json_text(&js, "state", outbox_state_name(stats->count[i].state));
                json_bytes(&js, "topic", stats->count[i].topic.p, stats->count[i].topic.n);
                json_number(&js, "rows", stats->count[i].rows);
                json_end(&js);
        }
}

static void json_slots(FILE *out, const struct outbox_view *view)
{
        struct json_out js;
        for (int i = 0; i < EVENT_SLOTS; i++) {
                const struct outbox_slot_view *slot = &view->slots[i];
                bool leased = *slot->owner && slot->lease_left_us != INT64_MAX;
                json_begin(&js, out);
                json_text(&js, "kind", "slot");
                json_number(&js, "slot", i);
                json_number(&js, "epoch", slot->epoch);
                json_bool(&js, "free", slot->free);
                json_bytes(&js, "owner", *slot->owner ? slot->owner : NULL, strlen(slot->owner));
                json_seconds(&js, "lease_left_s",
                             !leased                       ? -1
                             : slot->lease_left_us < 0 ? 0
                                                       : slot->lease_left_us);
                json_end(&js);
        }
}

void outbox_print_status_json(FILE *out, const struct outbox_status *st)
{
        char uuid[EVENT_ID_TEXT_BYTES];
        struct json_out js;
        int64_t rows[OUTBOX_STATES] = {0};
        for (size_t i = 0; i < st->stats.n; i++)
                rows[st->stats.count[i].state] += st->stats.count[i].rows;
        event_id_format(st->view.uuid, uuid);
        json_begin(&js, out);
        json_text(&js, "kind", "outbox");
        json_text(&js, "uuid", uuid);
        json_text(&js, "mode", outbox_mode_name(st->view.mode));
        json_number(&js, "relays", st->view.members);
        json_number(&js, "pending", rows[OUTBOX_PENDING]);
        json_number(&js, "publishing", rows[OUTBOX_PUBLISHING]);
        json_number(&js, "published", rows[OUTBOX_PUBLISHED]);
        json_number(&js, "dead", rows[OUTBOX_DEAD]);
        json_seconds(&js, "oldest_pending_s", st->stats.oldest_pending_us);
        json_seconds(&js, "oldest_transaction_s", st->stats.oldest_xmin_us);
        json_bool(&js, "blocked_more", st->blocked_more);
        json_end(&js);
        json_counts(out, &st->stats);
        for (size_t i = 0; i < st->blocked_count; i++) {
                const struct outbox_blocked *b = &st->blocked[i];
                json_begin(&js, out);
                json_text(&js, "kind", "blocked");
                json_bytes(&js, "key", b->key.p ? (const void *)b->key.p : "", b->key.n);
                json_id(&js, "row", b->id);
                json_number(&js, "slot", b->slot);
                json_bool(&js, "dead", b->dead);
                json_seconds(&js, "next_try_s", b->dead ? -1 : b->wait_us);
                json_end(&js);
        }
        json_slots(out, &st->view);
}

/* -- dead rows ------------------------------------------------------------------------------------------ */

#define DEAD_FORMAT "%-10s %-20s %-24s %-9s %-12s %-37s %s\n"

void outbox_print_dead_header(FILE *out)
{
        fprintf(out, DEAD_FORMAT, "ID", "TOPIC", "KEY", "ATTEMPTS", "AGE", "EVENT ID", "WHY");
}

void outbox_print_dead(FILE *out, const struct outbox_listed *row)
{
        char id[24], attempts[16], topic[SHOWN_BYTES_MAX], key[SHOWN_BYTES_MAX];
        char why[SHOWN_BYTES_MAX], event_id[EVENT_ID_TEXT_BYTES], age[UNITS_TEXT_BYTES_MAX];
        (void)snprintf(id, sizeof id, "%lld", (long long)row->id);
        (void)snprintf(attempts, sizeof attempts, "%d", row->attempts);
        event_id_format(row->event_id, event_id);
        fprintf(out, DEAD_FORMAT, id, shown(row->topic, topic),
                row->key_is_null ? "(none)" : shown(row->key, key), attempts,
                row->created_us > 0 ? length(clock_wall_us() - row->created_us, age) : "unknown",
                event_id, shown(row->last_error, why));
}

void outbox_print_dead_json(FILE *out, const struct outbox_listed *row)
{
        char event_id[EVENT_ID_TEXT_BYTES];
        struct json_out js;
        event_id_format(row->event_id, event_id);
        json_begin(&js, out);
        json_id(&js, "id", row->id);
        json_text(&js, "event_id", event_id);
        json_text(&js, "state", outbox_state_name(row->state));
        json_bytes(&js, "topic", row->topic.p ? (const void *)row->topic.p : "", row->topic.n);
        json_bytes(&js, "key",
                   row->key_is_null ? NULL
                   : row->key.p     ? (const void *)row->key.p
                                    : "",
                   row->key.n);
        json_number(&js, "attempts", row->attempts);
        json_time_us(&js, "created", row->created_us);
        json_bytes(&js, "why", row->last_error.p, row->last_error.n);
        json_end(&js);
}

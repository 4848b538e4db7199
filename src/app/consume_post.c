/* SPDX-License-Identifier: Apache-2.0
 *
 * consume_post: a handler over HTTP.  Each attempt carries the same key and the same bytes, so that a
 * handler that dedupes on the key applies an event once.
 */
#include <semel/call.h>
#include <semel/key.h>

#include <stdio.h>
#include <string.h>

#include "app/consume.h"
#include "base/err.h"
#include "core/http_header.h"
#include "sys/clock.h"
#include "sys/sha256.h"

static void copy_text(char *out, size_t max, struct span s)
{
        (void)snprintf(out, max, "%.*s", (int)s.n, (const char *)s.p);
}

/* A letter without an id is known by its place, and by its payload: a topic may have been made anew. */
static void copy_place(char *out, size_t max, const struct inbox_event *e)
{
        uint8_t digest[32];
        (void)sha256_once(e->payload.p, e->payload.n, digest);
        size_t n = (size_t)snprintf(out, max, "%d:%lld:", (int)e->partition, (long long)e->offset);
        for (int i = 0; i < 16; i++)
                n += (size_t)snprintf(out + n, max - n, "%02x", digest[i]);
}

/* source:event-id:consumer, or source:topic:place:consumer; their digest where that is longer than a key
 * may be. */
static void make_key(const struct inbox_event *e, char key[SEMEL_KEY_BYTES_MAX + 1])
{
        char parts[4][LIMIT_INBOX_NAME_BYTES + 1] = {{0}}; /* all of it is digested */
        const char *const list[] = {parts[0], parts[1], parts[2], parts[3]};
        size_t n = 0;
        copy_text(parts[n++], sizeof parts[0], e->source);
        if (e->id.n == 0)
                copy_text(parts[n++], sizeof parts[0], e->topic);
        if (e->id.n == 0)
                copy_place(parts[n++], sizeof parts[0], e);
        else
                copy_text(parts[n++], sizeof parts[0], e->id);
        copy_text(parts[n++], sizeof parts[0], e->consumer);
        if (semel_key_join(list, n, key, NULL) == SEMEL_OK)
                return;
        uint8_t digest[32];
        (void)sha256_once(parts, n * sizeof parts[0], digest);
        size_t at = (size_t)snprintf(key, SEMEL_KEY_BYTES_MAX, "consume:");
        for (int i = 0; i < 32; i++)
                at += (size_t)snprintf(key + at, SEMEL_KEY_BYTES_MAX - at, "%02x", digest[i]);
}

semel_code consume_post_check(const char *url, semel_error *err)
{
        semel_call *call = semel_call_new("POST", url, "check", err);
        semel_code code = call ? SEMEL_OK : semel_error_code(err);
        semel_call_free(call);
        return code;
}

static semel_code fill(semel_call *call, const struct inbox_event *e, int64_t deadline_us,
                       semel_error *why)
{
        char name[LIMIT_INBOX_NAME_BYTES + 1];
        int64_t left_ms = (deadline_us - clock_boot_us()) / MS;
        if (left_ms < 1)
                left_ms = 1;
        semel_code code = semel_call_set_body(call, e->payload.p, e->payload.n,
                                              "application/json", why);
        if (code == SEMEL_OK)
                code = semel_call_set_deadline_ms(call, left_ms, left_ms < 10000 ? left_ms : 10000,
                                                  why);
        copy_text(name, sizeof name, e->id);
        /* An id of bytes that no header takes is in the key, escaped. */
        bool plain = e->id.n > 0;
        for (const char *p = name; *p; p++)
                plain &= *p >= 0x20 && *p < 0x7f;
        if (code == SEMEL_OK && plain)
                code = semel_call_add_header(call, "Semel-Event-Id", name, why);
        copy_text(name, sizeof name, e->topic);
        if (code == SEMEL_OK)
                code = semel_call_add_header(call, "Semel-Topic", name, why);
        return code;
}

/* The handler's own word; whoever stands in front of it does not say it. */
static bool said_executed(const semel_reply *reply)
{
        const char *name, *value;
        size_t name_n, value_n;
        for (size_t i = 0; semel_reply_header(reply, i, &name, &name_n, &value, &value_n); i++)
                if (header_name_eq(span_of(name, name_n), span_str("Idempotency-Outcome")) &&
                    header_name_eq(span_of(value, value_n), span_str("executed")))
                        return true;
        return false;
}

/* A redirect is what `semel call` lets its caller judge, and what a proxy sends to its login page: no
 * handler has seen the event, and no event is refused with it. */
static bool is_redirect(const semel_reply *reply)
{
        int status = semel_reply_status(reply);
        return status >= 300 && status < 400 && !said_executed(reply);
}

static void cancel(void *call)
{
        semel_call_cancel(call);
}

enum consume_posted consume_post(void *arg, const struct inbox_event *event, int64_t deadline_us,
                                 struct consume_posting *posting, semel_error *why)
{
        const struct consume_post *post = arg;
        char key[SEMEL_KEY_BYTES_MAX + 1];
        enum consume_posted said = CONSUME_POSTED_UNKNOWN;
        make_key(event, key);
        semel_call *call = semel_call_new("POST", post->url, key, why);
        semel_reply *reply = semel_reply_new();
        if (!call || !reply || fill(call, event, deadline_us, why) != SEMEL_OK)
                goto out;
        if (!consume_posting_begin(posting, cancel, call))
                goto out;
        semel_call_result result = semel_call_run(call, reply, why);
        consume_posting_end(posting);
        if (is_redirect(reply)) {
                (void)err_set(why, SEMEL_ERR_PEER_DOWN,
                              "the handler answered %d, a redirect, which is not followed: --post the "
                              "address that it is at", semel_reply_status(reply));
                goto out;
        }
        switch (result) {
        case SEMEL_CALL_DONE:
                said = CONSUME_POSTED_DONE;
                break;
        case SEMEL_CALL_REJECTED:
                said = CONSUME_POSTED_REFUSED;
                (void)err_set(why, SEMEL_ERR_REFUSED, "the handler said %d", semel_reply_status(reply));
                break;
        case SEMEL_CALL_UNKNOWN:
        case SEMEL_CALL_IN_FLIGHT:
        case SEMEL_CALL_ERROR:
                break;
        }
out:
        semel_reply_free(reply);
        semel_call_free(call);
        return said;
}

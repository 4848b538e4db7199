/* SPDX-License-Identifier: Apache-2.0
 *
 * attempt: one attempt of an HTTP request: one connection of its own, used once.
 *
 * Promises: HTTP/1.1; nothing is sent twice, so no kept connection (libcurl sends a POST again by
 * itself when one dies unanswered), no redirect, no answer to an authentication challenge; no
 * `Expect`; no proxy, cookie or .netrc that nobody asked for; no signal; the reply's size and all
 * of its time are bounded.
 */
#ifndef CALL_ATTEMPT_H
#define CALL_ATTEMPT_H

#include "base/buf.h"
#include "core/call_plan.h"

struct call_request {
        const char *method;
        const char *url;
        struct span body;
        bool has_body;             /* an empty one is a body too: Content-Length: 0 */
        const char *const *headers; /* "Name: value", or "Name;" for an empty value */
        size_t header_count;
        const char *ca_file;       /* NULL: the system's */
        const char *proxy;         /* NULL: none; "env": the environment's */
        int cancel_fd;             /* readable: end at once */
};

struct call_reply {
        int status;
        size_t header_count;
        struct buf headers; /* as reply_codec writes them */
        struct buf body;
};

void call_reply_init(struct call_reply *rep);
void call_reply_release(struct call_reply *rep);

enum { CALL_TEXT_BYTES_MAX = 320 };

/* Send, and wait for the reply, at most timeout_us.
 * rep       what came; its head may be whole when the end is not CALL_END_REPLY
 * ret_end   how it ended: kind, sent, status
 * ret_text  for people, when it was no reply: "no connection: ..." */
void call_attempt(const struct call_request *req, int64_t timeout_us, struct call_reply *rep,
                  struct call_end *ret_end, char *ret_text /* CALL_TEXT_BYTES_MAX */);

/* Is this an http or https URL?  ret_shown: without user, password, query and fragment, cut at
 * ret_max - 1. */
bool call_url_parse(const char *url, char *ret_shown, size_t ret_max);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * http1_head: the lines of a head, and what they say together.  Used by http1_parse.c only; a file
 * of its own because the rules are here, and the resuming there.
 */
#ifndef CORE_HTTP1_HEAD_H
#define CORE_HTTP1_HEAD_H

#include "core/http1.h"

/* Lines come without their CR LF. */
enum http1_error http1_request_line(struct http1_head *head, struct span line);
enum http1_error http1_status_line(struct http1_head *head, struct span line);
enum http1_error http1_header_line(struct http1_head *head, size_t headers_max, struct span line);

/* All lines are there: decide the body's framing, keep-alive, and what else depends on several of
 * them.  head_request: the reply to HEAD. */
enum http1_error http1_request_done(struct http1_head *head);
enum http1_error http1_reply_done(struct http1_head *head, bool head_request);

#endif

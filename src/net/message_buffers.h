/* SPDX-License-Identifier: Apache-2.0
 *
 * message_buffers: what reading one message needs: a parser, room for its head, and for the
 * fields of it.  Large, so connections have one only while a message is under way, and each thread
 * keeps those of a crowd for the next (base/spares.h), mostly untouched.
 */
#ifndef NET_MESSAGE_BUFFERS_H
#define NET_MESSAGE_BUFFERS_H

#include "base/spares.h"
#include "core/http1_parse.h"

struct message_buffers {
        struct spare spare;
        struct http1_parser parser;
        struct http_header headers[LIMIT_HTTP_HEADERS];
        uint8_t head[LIMIT_HTTP_HEAD_BYTES];
};

/* With the parser ready for a message of this side; NULL when memory is out. */
struct message_buffers *message_buffers_get(enum http1_side side);

/* From the thread that got it.  NULL is fine. */
void message_buffers_put(struct message_buffers *b);

/* Free what this thread keeps for later: before it ends. */
void message_buffers_free_kept(void);

#endif

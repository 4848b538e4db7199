/* SPDX-License-Identifier: Apache-2.0
 *
 * message_buffers: see message_buffers.h.
 */
#include "net/message_buffers.h"

#include <stdlib.h>

enum { POOL_MAX = 512 }; /* of a thread: 18 MiB, mostly untouched */

static _Thread_local struct message_buffers *pool;
static _Thread_local size_t pool_count;

struct message_buffers *message_buffers_get(enum http1_side side)
{
        struct message_buffers *b = pool;
        if (b) {
                pool = b->next;
                pool_count--;
        } else {
                b = malloc(sizeof *b); /* not cleared: the parser looks only at what it wrote */
                if (!b)
                        return NULL;
        }
        http1_parser_init(&b->parser, side, b->head, sizeof b->head, b->headers,
                          LIMIT_HTTP_HEADERS);
        return b;
}

void message_buffers_put(struct message_buffers *b)
{
        if (!b)
                return;
        if (pool_count >= POOL_MAX) {
                free(b);
                return;
        }
        b->next = pool;
        pool = b;
        pool_count++;
}

void message_buffers_free_kept(void)
{
        while (pool) {
                struct message_buffers *next = pool->next;
                free(pool);
                pool = next;
        }
        pool_count = 0;
}

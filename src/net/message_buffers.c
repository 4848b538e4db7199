/* SPDX-License-Identifier: Apache-2.0
 *
 * message_buffers: see message_buffers.h.
 */
#include "net/message_buffers.h"

#include <stdlib.h>

static _Thread_local struct spares spares;

static void drop(struct spare *b)
{
        free(b); /* which begins with it */
}

struct message_buffers *message_buffers_get(enum http1_side side)
{
        struct message_buffers *b = (struct message_buffers *)spares_take(&spares);
        if (!b)
                b = malloc(sizeof *b); /* not cleared: the parser looks only at what it wrote */
        if (!b) {
                spares_forget(&spares);
                return NULL;
        }
        http1_parser_init(&b->parser, side, b->head, sizeof b->head, b->headers,
                          LIMIT_HTTP_HEADERS);
        return b;
}

void message_buffers_put(struct message_buffers *b)
{
        if (b)
                spares_give(&spares, &b->spare, drop);
}

void message_buffers_free_kept(void)
{
        spares_release(&spares, drop);
}

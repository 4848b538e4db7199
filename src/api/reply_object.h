/* SPDX-License-Identifier: Apache-2.0
 *
 * reply_object: what is behind semel_reply, and its way into and out of a store.
 */
#ifndef API_REPLY_OBJECT_H
#define API_REPLY_OBJECT_H

#include <semel/reply.h>

#include "store/store.h"

struct semel_reply {
        int status;
        bool tombstone;
        bool replayed;
        size_t header_count;
        struct buf headers; /* as reply_codec writes them: the stored form is the only form */
        struct buf body;
};

/* The view a store takes.  A body over `body_bytes_max` becomes a tombstone: it is known that
 * it ran, and what it answered is not kept (H31). */
struct store_reply reply_view(const semel_reply *rep, size_t body_bytes_max);

/* A kept reply as an object, marked as replayed.  Errors: SEMEL_ERR_NO_MEMORY,
 * SEMEL_ERR_CORRUPT (H17: a row that says COMPLETED but does not decode). */
semel_code reply_from_record(const struct store_record *rec, semel_reply **ret_rep,
                             semel_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox: what all drivers of store/inbox.h share.
 */
#include "store/inbox.h"

#include <stdlib.h>

const char *inbox_letter_state_name(enum inbox_letter_state state)
{
        static const char *const names[INBOX_LETTER_STATES] = {
                [INBOX_DEAD] = "DEAD",
                [INBOX_RETRY] = "RETRY",
                [INBOX_RETRIED] = "RETRIED",
                [INBOX_DISCARDED] = "DISCARDED",
        };
        return (unsigned)state < INBOX_LETTER_STATES ? names[state] : "?";
}

struct inbox_event inbox_letter_event(const struct inbox_letter *l)
{
        return (struct inbox_event){
                .consumer = l->consumer, .source = l->source, .id = l->event_id, .topic = l->topic,
                .key = l->key, .payload = l->payload, .headers = l->headers,
                .key_is_null = l->key_is_null, .payload_is_null = l->payload_is_null,
                .partition = l->partition, .offset = l->offset};
}

void inbox_letters_release(struct inbox_letters *letters)
{
        if (letters->release)
                letters->release(letters->driver);
        free(letters->letter);
        *letters = (struct inbox_letters){0};
}

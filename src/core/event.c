/* SPDX-License-Identifier: Apache-2.0
 *
 * event: see event.h.
 */
#include "core/event.h"

#include <string.h>

#include "core/limits.h"

static const char hex[] = "0123456789abcdef";

/* Where the dashes are in 8-4-4-4-12. */
static bool is_dash(size_t i)
{
        return i == 8 || i == 13 || i == 18 || i == 23;
}

void event_id_format(const uint8_t id[EVENT_ID_BYTES], char ret[EVENT_ID_TEXT_BYTES])
{
        size_t nibble = 0;
        for (size_t i = 0; i < EVENT_ID_TEXT_BYTES - 1; i++) {
                if (is_dash(i)) {
                        ret[i] = '-';
                        continue;
                }
                uint8_t b = id[nibble / 2];
                ret[i] = hex[nibble % 2 ? b & 0xf : b >> 4];
                nibble++;
        }
        ret[EVENT_ID_TEXT_BYTES - 1] = '\0';
}

static int nibble_of(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

bool event_id_parse(const char *text, size_t n, uint8_t ret[EVENT_ID_BYTES])
{
        uint8_t id[EVENT_ID_BYTES] = {0};
        size_t nibble = 0;
        if (n != EVENT_ID_TEXT_BYTES - 1)
                return false;
        for (size_t i = 0; i < n; i++) {
                int v = nibble_of(text[i]);
                if (is_dash(i) ? text[i] != '-' : v < 0)
                        return false;
                if (is_dash(i))
                        continue;
                id[nibble / 2] = (uint8_t)(id[nibble / 2] << 4 | v);
                nibble++;
        }
        memcpy(ret, id, sizeof id);
        return true;
}

bool event_topic_is_part(struct span part)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
        for (size_t i = 0; i < part.n; i++)
                if (!memchr(allowed, part.p[i], sizeof allowed - 1))
                        return false;
        return part.n <= LIMIT_EVENT_TOPIC_BYTES;
}

bool event_topic_is_valid(struct span topic)
{
        return topic.n > 0 && event_topic_is_part(topic) && !span_eq(topic, span_str(".")) &&
               !span_eq(topic, span_str(".."));
}

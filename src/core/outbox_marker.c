/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_marker: see outbox_marker.h.
 */
#include "core/outbox_marker.h"

#include <assert.h>
#include <stdio.h>

static const uint8_t magic[4] = {'S', 'M', 'K', 1};

static void put(uint8_t *p, uint64_t v, int bytes)
{
        for (int i = bytes - 1; i >= 0; i--, v >>= 8)
                p[i] = (uint8_t)v;
}

static uint64_t get(const uint8_t *p, int bytes)
{
        uint64_t v = 0;
        for (int i = 0; i < bytes; i++)
                v = v << 8 | p[i];
        return v;
}

void outbox_marker_begin(uint8_t *p, size_t n)
{
        assert(n <= UINT32_MAX);
        memcpy(p, magic, sizeof magic);
        put(p + sizeof magic, n, 4);
}

void outbox_marker_put(uint8_t *p, size_t i, int64_t id, const uint8_t event_id[EVENT_ID_BYTES])
{
        uint8_t *at = p + outbox_marker_bytes(i);
        put(at, (uint64_t)id, 8);
        memcpy(at + 8, event_id, EVENT_ID_BYTES);
}

bool outbox_marker_count(struct span marker, size_t *ret_n)
{
        if (marker.n < OUTBOX_MARKER_HEAD_BYTES || memcmp(marker.p, magic, sizeof magic) != 0)
                return false;
        size_t n = (size_t)get(marker.p + sizeof magic, 4);
        if (marker.n != outbox_marker_bytes(n))
                return false;
        *ret_n = n;
        return true;
}

void outbox_marker_get(struct span marker, size_t i, int64_t *ret_id,
                       uint8_t ret_event_id[EVENT_ID_BYTES])
{
        const uint8_t *at = marker.p + outbox_marker_bytes(i);
        assert(outbox_marker_bytes(i + 1) <= marker.n);
        *ret_id = (int64_t)get(at, 8);
        memcpy(ret_event_id, at + 8, EVENT_ID_BYTES);
}

void outbox_marker_key(const uint8_t outbox[EVENT_ID_BYTES], int group,
                       char ret[OUTBOX_MARKER_KEY_BYTES])
{
        char id[EVENT_ID_TEXT_BYTES];
        event_id_format(outbox, id);
        assert(group >= 0 && group < EVENT_GROUPS);
        (void)snprintf(ret, OUTBOX_MARKER_KEY_BYTES, "semel-%s-%d", id, group);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox_marker: see outbox_marker.h.
 */
#include "core/outbox_marker.h"

#include <assert.h>
#include <stdio.h>

static const uint8_t magic[3] = {'S', 'M', 'K'};
enum { VERSION = 2, HEAD_BYTES = OUTBOX_MARKER_HEAD_BYTES, ROW_1_BYTES = 8 + EVENT_ID_BYTES };

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
        p[sizeof magic] = VERSION;
        put(p + sizeof magic + 1, n, 4);
}

void outbox_marker_put(uint8_t *p, size_t i, int64_t id, const uint8_t event_id[EVENT_ID_BYTES],
                       int64_t published_us)
{
        uint8_t *at = p + outbox_marker_bytes(i);
        put(at, (uint64_t)id, 8);
        memcpy(at + 8, event_id, EVENT_ID_BYTES);
        put(at + 8 + EVENT_ID_BYTES, (uint64_t)published_us, 8);
}

/* 0: a version that is not known. */
static size_t row_bytes(struct span marker)
{
        switch (marker.p[sizeof magic]) {
        case 1:
                return ROW_1_BYTES;
        case VERSION:
                return OUTBOX_MARKER_ROW_BYTES;
        default:
                return 0;
        }
}

bool outbox_marker_count(struct span marker, size_t *ret_n)
{
        if (marker.n < HEAD_BYTES || memcmp(marker.p, magic, sizeof magic) != 0)
                return false;
        size_t n = (size_t)get(marker.p + sizeof magic + 1, 4), bytes = row_bytes(marker);
        if (bytes == 0 || marker.n != HEAD_BYTES + n * bytes)
                return false;
        *ret_n = n;
        return true;
}

void outbox_marker_get(struct span marker, size_t i, int64_t *ret_id,
                       uint8_t ret_event_id[EVENT_ID_BYTES], int64_t *ret_published_us)
{
        size_t bytes = row_bytes(marker);
        const uint8_t *at = marker.p + HEAD_BYTES + i * bytes;
        assert(HEAD_BYTES + (i + 1) * bytes <= marker.n);
        *ret_id = (int64_t)get(at, 8);
        memcpy(ret_event_id, at + 8, EVENT_ID_BYTES);
        *ret_published_us = bytes > ROW_1_BYTES ? (int64_t)get(at + ROW_1_BYTES, 8) : 0;
}

void outbox_marker_key(const uint8_t outbox[EVENT_ID_BYTES], int group,
                       char ret[OUTBOX_MARKER_KEY_BYTES])
{
        char id[EVENT_ID_TEXT_BYTES];
        event_id_format(outbox, id);
        assert(group >= 0 && group < EVENT_GROUPS);
        (void)snprintf(ret, OUTBOX_MARKER_KEY_BYTES, "semel-%s-%d", id, group);
}

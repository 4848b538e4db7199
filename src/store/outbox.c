/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox: see outbox.h; what all drivers share.
 */
#include "store/outbox.h"

#include <assert.h>

const char *outbox_mode_name(enum outbox_mode mode)
{
        static const char *const names[OUTBOX_MODES] = {
                [OUTBOX_OWNED] = "owned",
                [OUTBOX_SINGLE] = "single",
                [OUTBOX_TWO_PHASE] = "two-phase",
                [OUTBOX_EXACTLY_ONCE] = "exactly-once",
        };
        assert((unsigned)mode < OUTBOX_MODES);
        return names[mode];
}

const char *outbox_state_name(enum outbox_state state)
{
        static const char *const names[OUTBOX_STATES] = {
                [OUTBOX_PENDING] = "PENDING",
                [OUTBOX_PUBLISHING] = "PUBLISHING",
                [OUTBOX_PUBLISHED] = "PUBLISHED",
                [OUTBOX_DEAD] = "DEAD",
        };
        assert((unsigned)state < OUTBOX_STATES);
        return names[state];
}

void outbox_rows_release(struct outbox_rows *rows)
{
        if (rows->release)
                rows->release(rows->driver);
        *rows = (struct outbox_rows){0};
}

size_t outbox_fetch_rows_max(const struct outbox_fetch *in)
{
        size_t sum = 0;
        for (size_t i = 0; i < in->quota_count; i++)
                sum += (size_t)in->quotas[i].rows_max;
        return in->rows_max > 0 && in->rows_max < sum ? in->rows_max : sum;
}

semel_code outbox_fetch_check(const struct outbox_fetch *in, size_t rows, semel_error *err)
{
        size_t max = outbox_fetch_rows_max(in);
        if (rows <= max)
                return SEMEL_OK;
        return err_set(err, SEMEL_ERR_CORRUPT,
                       "the outbox gave %zu rows where at most %zu were asked for, and none is taken: "
                       "it must be one ordinary table", rows, max);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * units: see units.h.
 */
#include "base/units.h"

#include <stdio.h>
#include <string.h>

struct unit {
        const char *name;
        int64_t factor;
};

static const struct unit durations[] = {
        {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
static const struct unit sizes[] = {
        {"B", 1}, {"KiB", 1024}, {"MiB", 1024 * 1024}, {"GiB", 1024 * 1024 * 1024}};

static enum units_result parse(const char *text, const struct unit *units, size_t n,
                               int64_t *ret)
{
        const char *p = text;
        int64_t value = 0;
        for (; *p >= '0' && *p <= '9'; p++)
                if (__builtin_mul_overflow(value, 10, &value) ||
                    __builtin_add_overflow(value, *p - '0', &value))
                        return UNITS_TOO_BIG;
        if (p == text)
                return UNITS_NOT_A_NUMBER;
        if (*p == 0) {
                if (value != 0)
                        return UNITS_NO_UNIT;
                *ret = 0;
                return UNITS_OK;
        }
        for (size_t i = 0; i < n; i++) {
                if (strcmp(p, units[i].name) != 0)
                        continue;
                if (__builtin_mul_overflow(value, units[i].factor, &value))
                        return UNITS_TOO_BIG;
                *ret = value;
                return UNITS_OK;
        }
        return UNITS_BAD_UNIT;
}

enum units_result duration_parse_ms(const char *text, int64_t *ret_ms)
{
        return parse(text, durations, sizeof durations / sizeof durations[0], ret_ms);
}

enum units_result size_parse_bytes(const char *text, int64_t *ret_bytes)
{
        return parse(text, sizes, sizeof sizes / sizeof sizes[0], ret_bytes);
}

const char *duration_result_text(enum units_result result)
{
        switch (result) {
        case UNITS_OK:
                return "is fine";
        case UNITS_NOT_A_NUMBER:
                return "is no duration: write 250ms, 3s, 5m, 24h or 7d";
        case UNITS_NO_UNIT:
                return "needs a unit: 250ms, 3s, 5m, 24h or 7d";
        case UNITS_BAD_UNIT:
                return "has an unknown unit: use ms, s, m, h or d";
        case UNITS_TOO_BIG:
                break;
        }
        return "is too long";
}

const char *size_result_text(enum units_result result)
{
        switch (result) {
        case UNITS_OK:
                return "is fine";
        case UNITS_NOT_A_NUMBER:
                return "is no size: write 512B, 64KiB, 10MiB or 1GiB";
        case UNITS_NO_UNIT:
                return "needs a unit: 512B, 64KiB, 10MiB or 1GiB";
        case UNITS_BAD_UNIT:
                return "has an unknown unit: use B, KiB, MiB or GiB";
        case UNITS_TOO_BIG:
                break;
        }
        return "is too big";
}

void duration_format(int64_t ms, char *ret)
{
        static const struct {
                int64_t below, factor;
                const char *name;
        } steps[] = {{1000, 1, "ms"},
                     {120000, 1000, "s"},
                     {7200000, 60000, "min"},
                     {172800000, 3600000, "h"},
                     {INT64_MAX, 86400000, "days"}};
        if (ms < 0)
                ms = 0;
        size_t i = 0;
        while (ms >= steps[i].below)
                i++;
        (void)snprintf(ret, UNITS_TEXT_BYTES_MAX, "%lld %s", (long long)(ms / steps[i].factor),
                       steps[i].name);
}

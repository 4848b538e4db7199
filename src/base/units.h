/* SPDX-License-Identifier: Apache-2.0
 *
 * units: durations and sizes as people write them.
 *
 *     250ms  3s  5m  24h  7d            64KiB  10MiB  1GiB  512B
 *
 * A bare number is refused: `5` read as milliseconds where seconds were meant is a lease
 * that is over at once, and nothing would say so.  Only `0` needs no unit.
 */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

enum units_result {
        UNITS_OK,
        UNITS_NOT_A_NUMBER, /* does not begin with digits */
        UNITS_NO_UNIT,      /* a bare number */
        UNITS_BAD_UNIT,
        UNITS_TOO_BIG,      /* beyond int64_t */
};

/* ret is untouched unless UNITS_OK. */
enum units_result duration_parse_ms(const char *text, int64_t *ret_ms);
enum units_result size_parse_bytes(const char *text, int64_t *ret_bytes);

/* Why it was refused, as the end of a sentence: "needs a unit: 250ms, 3s, 5m, 24h or 7d". */
const char *duration_result_text(enum units_result result);
const char *size_result_text(enum units_result result);

enum { UNITS_TEXT_BYTES_MAX = 32 };

/* About how long, for people: "250 ms", "12 s", "3 min", "5 h", "7 days".  Negative: 0. */
void duration_format(int64_t ms, char *ret /* UNITS_TEXT_BYTES_MAX */);

#endif

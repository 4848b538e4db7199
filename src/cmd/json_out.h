/* SPDX-License-Identifier: Apache-2.0
 *
 * json_out: writes flat JSON objects, one a line.
 *
 *     struct json_out js;
 *     json_begin(&js, stdout);
 *     json_text(&js, "key", key);
 *     json_end(&js);
 *
 * Bytes that are no UTF-8 become U+FFFD: what comes out is always valid JSON.
 */
#ifndef CMD_JSON_OUT_H
#define CMD_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_out {
        FILE *out;
        bool comma;
};

void json_begin(struct json_out *js, FILE *out);
void json_text(struct json_out *js, const char *name, const char *text);
/* The same of bytes; NULL is null. */
void json_bytes(struct json_out *js, const char *name, const void *p, size_t n);
/* As it is: a number, null. */
void json_plain(struct json_out *js, const char *name, const char *value);
void json_hex(struct json_out *js, const char *name, const unsigned char *p, size_t n);
void json_number(struct json_out *js, const char *name, int64_t number);
void json_bool(struct json_out *js, const char *name, bool value);
/* RFC 3339 in UTC; null for 0 and before. */
void json_time_us(struct json_out *js, const char *name, int64_t us);
/* "name": [["a","b"], ...] */
void json_pairs_begin(struct json_out *js, const char *name);
void json_pair(struct json_out *js, const char *a, size_t a_len, const char *b, size_t b_len);
void json_pairs_end(struct json_out *js);
void json_end(struct json_out *js);

enum { TIME_TEXT_BYTES_MAX = 32 };
/* "2024-06-01T12:00:00Z" (`T` or another separator) */
void time_format_us(int64_t us, char separator, char *ret /* TIME_TEXT_BYTES_MAX */);

void hex_format(const unsigned char *p, size_t n, char *ret /* 2 n + 1 */);
/* Exactly n bytes; false when the text is no such thing. */
bool hex_parse(const char *text, unsigned char *ret, size_t n);

#endif

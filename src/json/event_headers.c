/* SPDX-License-Identifier: Apache-2.0
 *
 * event_headers: see event_headers.h.
 */
#include "json/event_headers.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "core/limits.h"

/* -- base64 (RFC 4648) ------------------------------------------------------------------------ */

static const char base64_digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *base64_encode(struct span s)
{
        char *text = malloc((s.n + 2) / 3 * 4 + 1), *at = text;
        if (!text)
                return NULL;
        for (size_t i = 0; i < s.n; i += 3) {
                unsigned v = (unsigned)s.p[i] << 16;
                v |= i + 1 < s.n ? (unsigned)s.p[i + 1] << 8 : 0;
                v |= i + 2 < s.n ? s.p[i + 2] : 0;
                *at++ = base64_digits[v >> 18];
                *at++ = base64_digits[v >> 12 & 63];
                *at++ = i + 1 < s.n ? base64_digits[v >> 6 & 63] : '=';
                *at++ = i + 2 < s.n ? base64_digits[v & 63] : '=';
        }
        *at = 0;
        return text;
}

/* Into ret (3/4 of the text fit).  false: not base64. */
static bool base64_decode(const char *text, size_t n, uint8_t *ret, size_t *ret_n)
{
        unsigned v = 0, bits = 0;
        size_t at = 0;
        while (n > 0 && text[n - 1] == '=')
                n--;
        for (size_t i = 0; i < n; i++) {
                const char *digit = text[i] ? strchr(base64_digits, text[i]) : NULL;
                if (!digit)
                        return false;
                v = v << 6 | (unsigned)(digit - base64_digits);
                bits += 6;
                if (bits >= 8) {
                        bits -= 8;
                        ret[at++] = (uint8_t)(v >> bits);
                }
        }
        *ret_n = at;
        return bits < 6;
}

/* -- read --------------------------------------------------------------------------------------- */

/* One block: the headers, and behind them the bytes that they point to. */
struct reader {
        struct event_header *v;
        size_t n;
        uint8_t *bytes;
        size_t bytes_used, bytes_max;
        bool full, no_memory;
};

static uint8_t *put(struct reader *r, const void *p, size_t n)
{
        uint8_t *to = r->bytes + r->bytes_used;
        if (n > r->bytes_max - r->bytes_used) {
                r->full = true;
                return to;
        }
        if (n > 0)
                memcpy(to, p, n);
        r->bytes_used += n;
        return to;
}

static struct span read_text(struct reader *r, const json_t *value)
{
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (!text) {
                r->no_memory = true;
                return span_of(NULL, 0);
        }
        size_t n = strlen(text);
        struct span s = span_of(put(r, text, n), n);
        free(text);
        return s;
}

static struct span read_value(struct reader *r, const json_t *value)
{
        const json_t *coded = json_is_object(value) && json_object_size(value) == 1
                                      ? json_object_get(value, "base64")
                                      : NULL;
        if (json_is_string(value)) {
                size_t n = json_string_length(value);
                return span_of(put(r, json_string_value(value), n), n);
        }
        if (json_is_string(coded)) {
                size_t n = json_string_length(coded), got = 0;
                uint8_t *to = r->bytes + r->bytes_used;
                if (n > r->bytes_max - r->bytes_used) {
                        r->full = true;
                        return span_of(NULL, 0);
                }
                if (base64_decode(json_string_value(coded), n, to, &got)) {
                        r->bytes_used += got;
                        return span_of(to, got);
                }
        }
        return read_text(r, value);
}

static void read_header(struct reader *r, const char *name, size_t name_n, const json_t *value)
{
        if (r->n == LIMIT_EVENT_HEADERS) {
                r->full = true;
                return;
        }
        struct event_header *h = &r->v[r->n++];
        *h = (struct event_header){.name = span_of(put(r, name, name_n), name_n),
                                   .value_is_null = !value || json_is_null(value)};
        if (!h->value_is_null)
                h->value = read_value(r, value);
}

static void read_object(struct reader *r, json_t *object)
{
        const char *name;
        json_t *value;
        json_object_foreach(object, name, value)
                read_header(r, name, strlen(name), value);
}

static bool read_all(struct reader *r, json_t *root)
{
        size_t i;
        json_t *item;
        if (json_is_object(root)) {
                read_object(r, root);
                return true;
        }
        if (!json_is_array(root))
                return json_is_null(root);
        json_array_foreach(root, i, item) {
                const json_t *name = json_array_get(item, 0);
                if (json_is_object(item))
                        read_object(r, item);
                else if (json_is_string(name) && json_array_size(item) <= 2)
                        read_header(r, json_string_value(name), json_string_length(name),
                                    json_array_get(item, 1));
                else
                        return false;
        }
        return true;
}

semel_code event_headers_decode(struct span json, struct event_header_list *ret, semel_error *err)
{
        static const char whole[] = "headers";
        struct event_header_list list = {0};
        json_t *root = NULL;
        if (json.n == 0)
                goto done;
        /* JSON text is never shorter than what it stands for, but for numbers: 1e5 is written
         * 100000.0. */
        size_t bytes_max = 4 * json.n + sizeof whole;
        void *block = malloc(LIMIT_EVENT_HEADERS * sizeof *list.v + bytes_max);
        if (!block)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an event's headers");
        struct reader r = {.v = block, .bytes_max = bytes_max};
        r.bytes = (uint8_t *)(r.v + LIMIT_EVENT_HEADERS);
        root = json_loadb((const char *)json.p, json.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        bool ok = root && read_all(&r, root) && !r.full;
        json_decref(root);
        if (r.no_memory) {
                free(block);
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for an event's headers");
        }
        if (!ok) {
                r.n = 1;
                r.bytes_used = 0;
                r.v[0] = (struct event_header){.name = span_of(put(&r, whole, 7), 7),
                                               .value = span_of(put(&r, json.p, json.n), json.n)};
        }
        list = (struct event_header_list){r.v, r.n};
done:
        *ret = list;
        return SEMEL_OK;
}

void event_headers_release(struct event_header_list *list)
{
        free(list->v);
        *list = (struct event_header_list){0};
}

/* -- write ---------------------------------------------------------------------------------------- */

static json_t *write_value(const struct event_header *h)
{
        if (h->value_is_null)
                return json_null();
        const char *p = h->value.n ? (const char *)h->value.p : "";
        /* A NUL could be written, but databases refuse it in JSON. */
        json_t *text = memchr(p, 0, h->value.n) ? NULL : json_stringn(p, h->value.n);
        if (text)
                return text;
        char *coded = base64_encode(h->value);
        json_t *value = coded ? json_pack("{s:s}", "base64", coded) : NULL;
        free(coded);
        return value;
}

/* NULL: no memory, or no text. */
static json_t *write_name(struct span name, bool any)
{
        const char *p = name.n ? (const char *)name.p : "";
        if (!any)
                return memchr(p, 0, name.n) ? NULL : json_stringn(p, name.n);
        char *text = malloc(name.n + 1);
        json_t *value = text ? json_stringn(text, utf8_copy(text, name.n + 1, name)) : NULL;
        free(text);
        return value;
}

static semel_code encode(const struct event_header *v, size_t n, bool any, struct buf *out,
                         semel_error *err)
{
        json_t *list = n ? json_array() : NULL;
        char *text = NULL;
        semel_code code = SEMEL_OK;
        if (n == 0)
                return SEMEL_OK;
        for (size_t i = 0; i < n && code == SEMEL_OK; i++) {
                json_t *name = write_name(v[i].name, any);
                json_t *value = write_value(&v[i]);
                if (!name && !any)
                        code = err_set(err, SEMEL_ERR_ARGUMENT,
                                       "the name of header %zu is no UTF-8 text", i + 1);
                json_t *pair = json_pack("[o,o]", name, value); /* takes both, also when it fails */
                if (code == SEMEL_OK && json_array_append_new(list, pair) != 0) /* takes the pair, whatever happens */
                        code = err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for headers");
                else if (code != SEMEL_OK)
                        json_decref(pair);
        }
        if (code == SEMEL_OK)
                text = json_dumps(list, JSON_COMPACT);
        int rc = text ? buf_append_str(out, text) : BUF_NO_MEMORY;
        if (code == SEMEL_OK && rc != BUF_OK)
                code = rc == BUF_FULL ? err_set(err, SEMEL_ERR_TOO_LARGE, "the headers are too large")
                                      : err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for headers");
        free(text);
        json_decref(list);
        return code;
}

semel_code event_headers_encode(const struct event_header *v, size_t n, struct buf *out,
                                semel_error *err)
{
        return encode(v, n, false, out, err);
}

semel_code event_headers_encode_any(const struct event_header *v, size_t n, struct buf *out,
                                    semel_error *err)
{
        return encode(v, n, true, out, err);
}

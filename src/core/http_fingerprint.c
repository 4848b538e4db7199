/* SPDX-License-Identifier: Apache-2.0
 *
 * http_fingerprint: see http_fingerprint.h.
 */
#include "core/http_fingerprint.h"

#include <assert.h>

static const char *const form_names[] = {
        [FINGERPRINT_RAW] = "raw",
        [FINGERPRINT_JSON] = "json",
        [FINGERPRINT_MULTIPART] = "multipart",
};

/* The only Content-Type, or nothing: with two of them receivers choose differently. */
static struct span content_type(const struct http1_head *head)
{
        struct span found = {NULL, 0};
        if (header_count(head->headers, head->header_count, "Content-Type") == 1)
                found = header_find(head->headers, head->header_count, "Content-Type")->value;
        return found;
}

/* application/json, or anything +json. */
static bool is_json(struct span type)
{
        size_t n = 0;
        while (n < type.n && type.p[n] != ';' && type.p[n] != ' ' && type.p[n] != '\t')
                n++;
        struct span media = span_of(type.p, n);
        return header_name_eq(media, span_str("application/json")) ||
               (n > 5 && header_name_eq(span_of(type.p + n - 5, 5), span_str("+json")));
}

static void put_content_types(struct fingerprint *f, const struct http1_head *head,
                              struct span boundary)
{
        for (size_t i = 0; i < head->header_count; i++) {
                struct span value = head->headers[i].value;
                if (!header_is(&head->headers[i], "Content-Type"))
                        continue;
                if (boundary.n == 0) {
                        fingerprint_field(f, value);
                        continue;
                }
                size_t before = (size_t)(boundary.p - value.p);
                fingerprint_field(f, span_of(value.p, before));
                fingerprint_field(f, span_of(boundary.p + boundary.n,
                                             value.n - before - boundary.n));
        }
}

/* Everything but the body. */
static void begin_form(struct http_fingerprint *fp, struct fingerprint *f,
                       const struct hash_sink *sink, enum policy_fingerprint form,
                       struct span boundary)
{
        struct span path = fp->head->path;
        const uint8_t *query = path.n ? memchr(path.p, '?', path.n) : NULL;
        if (query && !fp->options->query)
                path.n = (size_t)(query - path.p);
        fingerprint_begin(f, sink);
        fingerprint_field(f, span_str(form_names[form]));
        fingerprint_field(f, fp->head->method);
        fingerprint_field(f, fp->options->host ? fp->head->authority : span_str(""));
        fingerprint_field(f, path);
        put_content_types(f, fp->head, boundary);
}

static void put_part(void *arg, struct span piece)
{
        fingerprint_body(arg, piece);
}

void http_fingerprint_begin(struct http_fingerprint *fp,
                            const struct http_fingerprint_options *options,
                            const struct http1_head *head, const struct hash_sink *sink,
                            const struct hash_sink *spare)
{
        struct span type = content_type(head), boundary = {NULL, 0};
        fp->options = options;
        fp->head = head;
        fp->spare = spare;
        fp->form = FINGERPRINT_RAW;
        begin_form(fp, &fp->raw, sink, FINGERPRINT_RAW, boundary);
        if (options->form == FINGERPRINT_JSON && is_json(type)) {
                assert(spare);
                fp->form = FINGERPRINT_JSON;
                jcs_init(&fp->jcs, options->json_max);
        } else if (options->form == FINGERPRINT_MULTIPART && multipart_boundary(type, &boundary)) {
                assert(spare);
                fp->form = FINGERPRINT_MULTIPART;
                begin_form(fp, &fp->formed, spare, FINGERPRINT_MULTIPART, boundary);
                multipart_init(&fp->multipart, boundary, put_part, &fp->formed);
        }
}

void http_fingerprint_body(struct http_fingerprint *fp, struct span piece)
{
        fingerprint_body(&fp->raw, piece);
        if (fp->form == FINGERPRINT_JSON)
                (void)jcs_feed(&fp->jcs, piece);
        else if (fp->form == FINGERPRINT_MULTIPART)
                (void)multipart_feed(&fp->multipart, piece);
}

size_t http_fingerprint_held(const struct http_fingerprint *fp)
{
        return fp->form == FINGERPRINT_JSON ? jcs_held(&fp->jcs) : 0;
}

void http_fingerprint_end(struct http_fingerprint *fp, struct command_fingerprint *ret)
{
        static const struct span none = {NULL, 0};
        if (fp->form == FINGERPRINT_JSON && jcs_end(&fp->jcs) == JCS_OK && !fp->jcs.inexact) {
                begin_form(fp, &fp->formed, fp->spare, FINGERPRINT_JSON, none);
                fingerprint_body(&fp->formed, buf_span(&fp->jcs.out));
                fingerprint_end(&fp->formed, ret);
        } else if (fp->form == FINGERPRINT_MULTIPART && multipart_end(&fp->multipart)) {
                fingerprint_end(&fp->formed, ret);
        } else {
                fingerprint_end(&fp->raw, ret);
        }
}

void http_fingerprint_release(struct http_fingerprint *fp)
{
        if (fp->form == FINGERPRINT_JSON)
                jcs_release(&fp->jcs);
}

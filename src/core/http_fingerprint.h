/* SPDX-License-Identifier: Apache-2.0
 *
 * http_fingerprint: whether two HTTP requests are the same: the fingerprint (core/identity.h) of
 *
 *   form method host path content-type... body
 *
 * form is "raw", "json" or "multipart": what the body is compared as.  A route asks for json or
 * multipart; a body that is not, or that cannot be put into that form without doubt, is compared as
 * its bytes ("raw").  Different forms never give one fingerprint.
 *
 *     http_fingerprint_begin(&fp, &options, &parser.head, sink, spare);
 *     for each piece of the body: http_fingerprint_body(&fp, piece);
 *     http_fingerprint_end(&fp, &fingerprint);
 *     http_fingerprint_release(&fp);          // at any time after begin
 *
 * The head's spans must stay valid until the end.  `spare` is a second sink, used for json and
 * multipart (may be NULL for raw); both have the same secret.
 */
#ifndef CORE_HTTP_FINGERPRINT_H
#define CORE_HTTP_FINGERPRINT_H

#include "core/http1.h"
#include "core/identity.h"
#include "core/jcs.h"
#include "core/multipart.h"
#include "core/policy.h"

struct http_fingerprint_options {
        enum policy_fingerprint form;
        bool host, query; /* false: left out */
        size_t json_max;  /* of a canonical form; past it the bytes are compared */
};

struct http_fingerprint {
        const struct http_fingerprint_options *options;
        const struct http1_head *head;
        const struct hash_sink *spare;
        struct fingerprint raw, formed;
        enum policy_fingerprint form; /* what is tried beside raw */
        struct jcs jcs;
        struct multipart multipart;
};

void http_fingerprint_begin(struct http_fingerprint *fp,
                            const struct http_fingerprint_options *options,
                            const struct http1_head *head, const struct hash_sink *sink,
                            const struct hash_sink *spare);
void http_fingerprint_body(struct http_fingerprint *fp, struct span piece);
/* Bytes of memory that a canonical form in the making takes. */
size_t http_fingerprint_held(const struct http_fingerprint *fp);
void http_fingerprint_end(struct http_fingerprint *fp, struct command_fingerprint *ret);
void http_fingerprint_release(struct http_fingerprint *fp);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * fields: reading the members of a request's JSON object, with every complaint collected.
 *
 *     struct fields f = fields_of(req->body);
 *     const char *name = field_text(&f, "name", NAME_BYTES_MAX);
 *     fields_end(&f);                       // complains about members nobody asked for
 *     if (f.errors) return fields_problem(&f);
 *
 * Strings are borrowed from the object.  After a complaint a value is unusable ("" or 0).
 */
#ifndef SHOP_FIELDS_H
#define SHOP_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <semel/reply.h>

#include "uuid.h"

struct fields {
        json_t *object;
        json_t *seen;
        json_t *errors; /* an array once there is a complaint, else NULL */
};

struct fields fields_of(json_t *object);
const char *field_text(struct fields *f, const char *name, size_t bytes_max);
const char *field_currency(struct fields *f, const char *name);
int64_t field_price(struct fields *f, const char *name);
void field_uuid(struct fields *f, const char *name, char ret[UUID_TEXT_BYTES]);
void fields_end(struct fields *f);
semel_reply *fields_problem(struct fields *f);

/* A cell of a row, for a reply. */
json_t *cell_int(const char *cell);
json_t *cell_time(const char *cell_us); /* "2026-01-31T12:00:00.123456Z" */

#endif

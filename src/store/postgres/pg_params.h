/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_params: parameters of one statement, in PostgreSQL's binary format: scalars, and arrays
 * that grow by one element per operation.  Nothing is ever pasted into SQL.
 *
 *     pg_params_clear(&p, 2);
 *     pg_params_array(&p, 0, PG_BYTEA);
 *     pg_params_bytea(&p, 0, id);           // an element, since 0 is an array
 *     pg_params_number(&p, 1, PG_INT4, 7);
 *     if (pg_params_finish(&p) != BUF_OK) ...
 *     PQsendQueryParams(conn, sql, p.n, p.types, p.values, p.lengths, p.formats, 1);
 *
 * Failures stick: only pg_params_finish reports them.
 */
#ifndef STORE_POSTGRES_PG_PARAMS_H
#define STORE_POSTGRES_PG_PARAMS_H

#include "base/buf.h"

/* Type oids, fixed by PostgreSQL for ever. */
enum pg_type {
        PG_BOOL = 16,
        PG_BYTEA = 17,
        PG_INT8 = 20,
        PG_INT2 = 21,
        PG_INT4 = 23,
        PG_TEXT = 25,
        PG_TID = 27,
        PG_TIMESTAMPTZ = 1184,
        PG_UUID = 2950,
};

enum { PARAMS_MAX = 24 };

struct param {
        enum pg_type type;
        bool is_array;
        bool is_null;
        bool has_nulls;
        int32_t elements;
        struct buf bytes;
};

struct params {
        int n;
        bool failed;
        struct param param[PARAMS_MAX];
        /* for libpq */
        unsigned types[PARAMS_MAX];
        const char *values[PARAMS_MAX];
        int lengths[PARAMS_MAX];
        int formats[PARAMS_MAX];
};

void pg_params_init(struct params *p);
void pg_params_release(struct params *p);

/* Begin anew with n parameters. */
void pg_params_clear(struct params *p, int n);
void pg_params_scalar(struct params *p, int i, enum pg_type type);
void pg_params_array(struct params *p, int i, enum pg_type type);

/* The value of a scalar, or one more element of an array. */
void pg_params_bytea(struct params *p, int i, struct span s);
void pg_params_int(struct params *p, int i, int64_t v); /* INT2, INT4, INT8, BOOL, TID: by the type */
void pg_params_time(struct params *p, int i, int64_t unix_us);
void pg_params_null(struct params *p, int i);

/* A scalar and its value in one. */
void pg_params_text(struct params *p, int i, struct span s);
void pg_params_number(struct params *p, int i, enum pg_type type, int64_t v);
void pg_params_maybe(struct params *p, int i, enum pg_type type, struct span s, bool is_null);

/* Complete the arrays, fill what libpq wants.  BUF_OK, BUF_FULL or BUF_NO_MEMORY. */
int pg_params_finish(struct params *p);

/* Bytes of all values so far. */
size_t pg_params_bytes(const struct params *p);

/* PostgreSQL's epoch, 2000-01-01, in Unix time. */
#define PG_EPOCH_US INT64_C(946684800000000)

#endif

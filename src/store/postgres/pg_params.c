/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_params: see pg_params.h.
 */
#include "store/postgres/pg_params.h"

#include <assert.h>

#include "core/limits.h"

enum {
        EMPTY_ARRAY_BYTES = 12,  /* 0 dimensions, has nulls, type */
        ARRAY_HEADER_BYTES = 20, /* dimensions, has nulls, type, length, lower bound */
        /* One batch, or one operation with the largest reply. */
        PARAM_BYTES_MAX = LIMIT_BATCH_BYTES + LIMIT_REPLY_BODY_BYTES + 1024 * 1024,
        /* What a parameter keeps allocated for the next batch. */
        PARAM_BYTES_KEPT = 2 * LIMIT_BATCH_BYTES,
};

void pg_params_init(struct params *p)
{
        *p = (struct params){0};
        for (int i = 0; i < PARAMS_MAX; i++)
                buf_init(&p->param[i].bytes, PARAM_BYTES_MAX);
}

void pg_params_release(struct params *p)
{
        for (int i = 0; i < PARAMS_MAX; i++)
                buf_release(&p->param[i].bytes);
}

void pg_params_clear(struct params *p, int n)
{
        assert(n <= PARAMS_MAX);
        p->n = n;
        p->failed = false;
        for (int i = 0; i < PARAMS_MAX; i++) {
                if (p->param[i].bytes.cap > PARAM_BYTES_KEPT)
                        buf_release(&p->param[i].bytes);
                buf_clear(&p->param[i].bytes);
        }
}

static void put(struct params *p, int i, const void *bytes, size_t n)
{
        if (buf_append(&p->param[i].bytes, bytes, n) != BUF_OK)
                p->failed = true;
}

static void write_be(uint8_t *to, int64_t v, size_t width)
{
        for (size_t k = 0; k < width; k++)
                to[k] = (uint8_t)((uint64_t)v >> (8 * (width - 1 - k)));
}

static void put_int(struct params *p, int i, int64_t v, size_t width)
{
        uint8_t be[8];
        write_be(be, v, width);
        put(p, i, be, width);
}

static void param_begin(struct params *p, int i, enum pg_type type, bool is_array)
{
        struct param *param = &p->param[i];
        assert(i < p->n);
        param->type = type;
        param->is_array = is_array;
        param->is_null = false;
        param->has_nulls = false;
        param->elements = 0;
}

void pg_params_scalar(struct params *p, int i, enum pg_type type)
{
        param_begin(p, i, type, false);
}

void pg_params_array(struct params *p, int i, enum pg_type type)
{
        static const uint8_t header[ARRAY_HEADER_BYTES];
        param_begin(p, i, type, true);
        put(p, i, header, sizeof header);
}

void pg_params_bytea(struct params *p, int i, struct span s)
{
        uint8_t length[4];
        const struct span pieces[2] = {span_of(length, p->param[i].is_array ? sizeof length : 0), s};
        write_be(length, (int64_t)s.n, sizeof length);
        if (buf_append_spans(&p->param[i].bytes, pieces, 2) != BUF_OK)
                p->failed = true;
        p->param[i].elements++;
}

static size_t width_of(enum pg_type type)
{
        switch (type) {
        case PG_BOOL:
                return 1;
        case PG_INT2:
                return 2;
        case PG_INT4:
                return 4;
        case PG_TID: /* block and line, as one number */
                return 6;
        case PG_INT8:
        case PG_TIMESTAMPTZ:
                return 8;
        case PG_BYTEA:
        case PG_TEXT:
        case PG_UUID:
                break;
        }
        assert(0 && "a type of fixed width");
        return 0;
}

void pg_params_int(struct params *p, int i, int64_t v)
{
        size_t width = width_of(p->param[i].type);
        uint8_t element[4 + 8];
        write_be(element, (int64_t)width, 4);
        write_be(element + 4, v, width);
        if (p->param[i].is_array)
                put(p, i, element, 4 + width);
        else
                put(p, i, element + 4, width);
        p->param[i].elements++;
}

void pg_params_time(struct params *p, int i, int64_t unix_us)
{
        pg_params_int(p, i, unix_us - PG_EPOCH_US);
}

void pg_params_null(struct params *p, int i)
{
        if (p->param[i].is_array)
                put_int(p, i, -1, 4);
        p->param[i].has_nulls = true;
        p->param[i].is_null = !p->param[i].is_array;
        p->param[i].elements++;
}

void pg_params_text(struct params *p, int i, struct span s)
{
        pg_params_maybe(p, i, PG_TEXT, s, false);
}

void pg_params_number(struct params *p, int i, enum pg_type type, int64_t v)
{
        pg_params_scalar(p, i, type);
        pg_params_int(p, i, v);
}

void pg_params_maybe(struct params *p, int i, enum pg_type type, struct span s, bool is_null)
{
        pg_params_scalar(p, i, type);
        if (is_null)
                pg_params_null(p, i);
        else
                pg_params_bytea(p, i, s);
}

static unsigned array_type(enum pg_type type)
{
        switch (type) {
        case PG_BOOL:
                return 1000;
        case PG_BYTEA:
                return 1001;
        case PG_INT2:
                return 1005;
        case PG_INT4:
                return 1007;
        case PG_INT8:
                return 1016;
        case PG_TID:
                return 1010;
        case PG_TIMESTAMPTZ:
                return 1185;
        case PG_TEXT:
                return 1009;
        case PG_UUID:
                return 2951;
        }
        return 0;
}

int pg_params_finish(struct params *p)
{
        if (p->failed)
                return BUF_NO_MEMORY;
        for (int i = 0; i < p->n; i++) {
                struct param *param = &p->param[i];
                if (param->is_array) {
                        uint8_t *header = param->bytes.p;
                        const int64_t fields[] = {param->elements ? 1 : 0, param->has_nulls,
                                                  param->type, param->elements, 1};
                        for (int k = 0; k < 5; k++)
                                write_be(header + 4 * k, fields[k], 4);
                }
                p->types[i] = param->is_array ? array_type(param->type) : (unsigned)param->type;
                /* "" and not NULL for a value without bytes: NULL would be SQL's. */
                p->values[i] = param->is_null ? NULL
                               : param->bytes.n ? (const char *)param->bytes.p : "";
                p->lengths[i] = (int)param->bytes.n;
                if (param->is_array && param->elements == 0)
                        p->lengths[i] = EMPTY_ARRAY_BYTES;
                p->formats[i] = 1;
        }
        return BUF_OK;
}

size_t pg_params_bytes(const struct params *p)
{
        size_t n = 0;
        for (int i = 0; i < p->n; i++)
                n += p->param[i].bytes.n;
        return n;
}

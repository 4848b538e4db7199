/* SPDX-License-Identifier: Apache-2.0
 *
 * The framing of ids and fingerprints: what went into the hash can be read back, field by field,
 * so no two lists of fields give the same bytes.  The hash is a recorder.
 *
 * The input: a count of fields, then one length byte each, then their bytes; the rest is the body.
 * The same bytes are cut a second time, elsewhere.
 */
#include "fuzz.h"

#include "core/identity.h"

enum { FIELDS_MAX = 8, RECORD_MAX = 1 << 16 };

struct record {
        size_t n, begun, finished;
        uint8_t bytes[RECORD_MAX];
};

static void rec_begin(void *arg)
{
        struct record *rec = arg;
        rec->n = 0;
        rec->begun++;
}

static void rec_update(void *arg, const void *p, size_t n)
{
        struct record *rec = arg;
        need(n <= RECORD_MAX - rec->n);
        memcpy(rec->bytes + rec->n, p, n);
        rec->n += n;
}

static void rec_finish(void *arg, uint8_t *ret_32)
{
        struct record *rec = arg;
        rec->finished++;
        memset(ret_32, 0, HASH_BYTES);
}

struct list {
        size_t n;
        struct span field[FIELDS_MAX];
        struct span body;
};

static void cut(struct list *list, const uint8_t *lengths, size_t count, unsigned shift,
                const uint8_t *p, size_t n)
{
        list->n = count;
        for (size_t i = 0; i < count; i++) {
                size_t len = (lengths[i] + shift) & 0xff;
                len = len < n ? len : n;
                list->field[i] = span_of(p, len);
                p += len;
                n -= len;
        }
        list->body = span_of(p, n);
}

static bool list_eq(const struct list *a, const struct list *b)
{
        if (a->n != b->n || !span_eq(a->body, b->body))
                return false;
        for (size_t i = 0; i < a->n; i++)
                if (!span_eq(a->field[i], b->field[i]))
                        return false;
        return true;
}

static void frame(const struct list *list, size_t piece, struct record *rec)
{
        const struct hash_sink sink = {rec_begin, rec_update, rec_finish, rec};
        struct fingerprint fp;
        struct command_fingerprint out;
        rec->begun = rec->finished = 0;
        fingerprint_begin(&fp, &sink);
        for (size_t i = 0; i < list->n; i++)
                fingerprint_field(&fp, list->field[i]);
        for (size_t at = 0; at < list->body.n; at += piece) {
                size_t left = list->body.n - at;
                fingerprint_body(&fp, span_of(list->body.p + at, left < piece ? left : piece));
        }
        fingerprint_end(&fp, &out);
        need(rec->begun == 1 && rec->finished == 1);
}

static uint64_t u64_at(const uint8_t *p)
{
        uint64_t v = 0;
        for (int i = 0; i < 8; i++)
                v = v << 8 | p[i];
        return v;
}

/* From the end: the body's length, then the body; from the beginning: fields. */
static void read_back(const struct record *rec, const struct list *want)
{
        need(rec->n >= 8);
        uint64_t body = u64_at(rec->bytes + rec->n - 8);
        need(body == want->body.n && body <= rec->n - 8);
        size_t end = rec->n - 8 - body, at = 0;
        need(span_eq(span_of(rec->bytes + end, body), want->body));
        for (size_t i = 0; i <= want->n; i++) {
                struct span field = i == 0 ? span_str("semel-fp-1") : want->field[i - 1];
                need(end - at >= 8 && u64_at(rec->bytes + at) == field.n);
                need(span_eq(span_of(rec->bytes + at + 8, field.n), field));
                at += 8 + field.n;
        }
        need(at == end);
}

static void ids(const struct list *list, struct record *rec)
{
        static const struct span none = {NULL, 0};
        const struct hash_sink sink = {rec_begin, rec_update, rec_finish, rec};
        struct span f[3];
        for (size_t i = 0; i < 3; i++)
                f[i] = i < list->n ? list->field[i] : none;
        enum command_mode mode = (enum command_mode)(list->body.n % COMMAND_MODES);
        struct command_id id;
        identity_id(&sink, mode, f[0], f[1], f[2], &id);
        size_t at = 0;
        for (size_t i = 0; i < 5; i++) {
                struct span want = i == 0   ? span_str("semel-id-1")
                                   : i == 1 ? span_str(mode_name(mode))
                                            : f[i - 2];
                need(rec->n - at >= 8 && u64_at(rec->bytes + at) == want.n);
                need(span_eq(span_of(rec->bytes + at + 8, want.n), want));
                at += 8 + want.n;
        }
        need(at == rec->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        static struct record a, b;
        if (n < 3 || n > 4096)
                return 0;
        size_t count_a = p[0] % (FIELDS_MAX + 1), count_b = p[1] % (FIELDS_MAX + 1);
        unsigned shift = p[2];
        const uint8_t *lengths = p + 3;
        size_t most = count_a > count_b ? count_a : count_b;
        if (n - 3 < most)
                return 0;
        struct list la, lb;
        cut(&la, lengths, count_a, 0, p + 3 + most, n - 3 - most);
        cut(&lb, lengths, count_b, shift, p + 3 + most, n - 3 - most);
        frame(&la, SIZE_MAX / 2, &a);
        read_back(&a, &la);
        frame(&lb, 1 + shift, &b);
        read_back(&b, &lb);
        bool same_bytes = span_eq(span_of(a.bytes, a.n), span_of(b.bytes, b.n));
        need(same_bytes == list_eq(&la, &lb));
        ids(&la, &a);
        return 0;
}

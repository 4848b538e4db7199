/* SPDX-License-Identifier: Apache-2.0
 *
 * multipart: see multipart.h.
 */
#include "core/multipart.h"

#include <assert.h>

#include "core/http_header.h"

enum state {
        FIRST,       /* in the first delimiter, which has no CR LF before it */
        BEHIND,      /* behind a delimiter: CR or - */
        BEHIND_CR,
        BEHIND_DASH,
        HEAD_LINE,   /* at the beginning of a header line */
        HEAD_TEXT,
        HEAD_LF,     /* behind a header line's CR */
        HEAD_END_LF, /* behind the empty line's CR */
        CONTENT,
        LAST,        /* behind the last delimiter */
        LAST_LF,
        OVER,
};

/* -- the boundary --------------------------------------------------------------------- */

/* bchars of RFC 2046, without the space, which may not stand at the end and nobody uses. */
static bool is_boundary(struct span s)
{
        static const char others[] = "'()+_,-./:=?";
        if (s.n == 0 || s.n > MULTIPART_BOUNDARY_BYTES)
                return false;
        for (size_t i = 0; i < s.n; i++) {
                uint8_t c = s.p[i], lower = c | 0x20;
                if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'z') &&
                    !memchr(others, c, sizeof others - 1))
                        return false;
        }
        return true;
}

static struct span skip(struct span s, size_t n)
{
        return span_of(s.p + n, s.n - n);
}

static struct span skip_blanks(struct span s)
{
        while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
                s = skip(s, 1);
        return s;
}

static size_t token_length(struct span s)
{
        size_t n = 0;
        while (n < s.n && !memchr(" \t;=\"", s.p[n], 5))
                n++;
        return n;
}

/* One `; name=value` from the front; an escape in a quoted value is more than we read. */
static bool next_param(struct span *s, struct span *ret_name, struct span *ret_value)
{
        struct span at = skip_blanks(*s);
        if (at.n == 0 || at.p[0] != ';')
                return false;
        at = skip_blanks(skip(at, 1));
        *ret_name = span_of(at.p, token_length(at));
        at = skip(at, ret_name->n);
        if (ret_name->n == 0 || at.n == 0 || at.p[0] != '=')
                return false;
        at = skip(at, 1);
        if (at.n > 0 && at.p[0] == '"') {
                const uint8_t *end = memchr(at.p + 1, '"', at.n - 1);
                if (!end || memchr(at.p, '\\', (size_t)(end - at.p)))
                        return false;
                *ret_value = span_of(at.p + 1, (size_t)(end - at.p) - 1);
                *s = skip(at, ret_value->n + 2);
        } else {
                *ret_value = span_of(at.p, token_length(at));
                *s = skip(at, ret_value->n);
        }
        return true;
}

bool multipart_boundary(struct span content_type, struct span *ret_boundary)
{
        static const char prefix[] = "multipart/";
        enum { PREFIX = sizeof prefix - 1 };
        if (content_type.n <= PREFIX ||
            !header_name_eq(span_of(content_type.p, PREFIX), span_of(prefix, PREFIX)))
                return false;
        struct span rest = skip(content_type, PREFIX), name, value, found = {NULL, 0};
        rest = skip(rest, token_length(rest));
        while (next_param(&rest, &name, &value))
                if (header_name_eq(name, span_str("boundary"))) {
                        if (found.n > 0)
                                return false; /* two: receivers choose differently */
                        found = value;
                }
        if (skip_blanks(rest).n > 0 || !is_boundary(found))
                return false;
        *ret_boundary = found;
        return true;
}

/* -- the body -------------------------------------------------------------------------- */

void multipart_init(struct multipart *mp, struct span boundary,
                    void (*out)(void *arg, struct span piece), void *arg)
{
        assert(boundary.n > 0 && boundary.n <= MULTIPART_BOUNDARY_BYTES);
        *mp = (struct multipart){.out = out, .arg = arg, .state = FIRST};
        memcpy(mp->delimiter, "\r\n--", 4);
        memcpy(mp->delimiter + 4, boundary.p, boundary.n);
        mp->delimiter_n = 4 + boundary.n;
        mp->matched = 2;
        const uint8_t *dashed = mp->delimiter + 2;
        for (size_t i = 1, k = 0; i < mp->delimiter_n - 2; i++) {
                while (k > 0 && dashed[i] != dashed[k])
                        k = mp->fallback[k - 1];
                k += dashed[i] == dashed[k];
                mp->fallback[i] = (uint8_t)k;
        }
}

/* Does this byte complete "--boundary", wherever that stands? */
static bool completes_boundary(struct multipart *mp, uint8_t c)
{
        const uint8_t *dashed = mp->delimiter + 2;
        size_t k = mp->dashed;
        while (k > 0 && dashed[k] != c)
                k = mp->fallback[k - 1];
        k += dashed[k] == c;
        mp->dashed = k;
        if (k < mp->delimiter_n - 2)
                return false;
        mp->dashed = 0;
        return true;
}

static void put_u64(struct multipart *mp, uint64_t v)
{
        uint8_t be[8];
        for (int i = 0; i < 8; i++)
                be[i] = (uint8_t)(v >> (56 - 8 * i));
        mp->out(mp->arg, span_of(be, sizeof be));
}

static void put_content(struct multipart *mp, struct span s)
{
        mp->content_bytes += s.n;
        if (s.n > 0)
                mp->out(mp->arg, s);
}

/* One byte of content, or of the delimiter behind it.  A CR can only be the delimiter's first byte,
 * so what turns out to be none is content as a whole. */
static bool content_byte(struct multipart *mp, uint8_t c)
{
        bool boundary = completes_boundary(mp, c);
        if (c == mp->delimiter[mp->matched]) {
                if (++mp->matched < mp->delimiter_n)
                        return !boundary;
                put_u64(mp, mp->content_bytes);
                mp->state = BEHIND;
                return true;
        }
        put_content(mp, span_of(mp->delimiter, mp->matched));
        mp->matched = c == '\r';
        if (c != '\r')
                put_content(mp, span_of(&c, 1));
        return !boundary; /* not behind CR LF: receivers differ */
}

/* What content holds most of: bytes that begin no delimiter. */
static size_t plain_run(const struct multipart *mp, struct span s)
{
        size_t n = 0;
        if (mp->state == CONTENT && mp->matched == 0 && mp->dashed == 0)
                while (n < s.n && s.p[n] != '\r' && s.p[n] != '-')
                        n++;
        return n;
}

/* A byte of a part's header lines; they go out as they are, the empty line does not. */
static bool head_byte(struct multipart *mp, uint8_t c)
{
        if (mp->state == HEAD_LINE && c == '\r') {
                mp->state = HEAD_END_LF;
                return true;
        }
        if (mp->state == HEAD_LF) {
                if (c != '\n')
                        return false;
                mp->state = HEAD_LINE;
        } else if (c == '\r') {
                mp->state = HEAD_LF;
        } else if (c == '\n' || c == 0) {
                return false;
        } else {
                mp->state = HEAD_TEXT;
        }
        if (++mp->head_bytes > LIMIT_PART_HEAD_BYTES || completes_boundary(mp, c))
                return false;
        mp->out(mp->arg, span_of(&c, 1));
        return true;
}

static bool become(struct multipart *mp, bool right, enum state next)
{
        mp->state = (int)next;
        return right;
}

static bool one_byte(struct multipart *mp, uint8_t c)
{
        switch (mp->state) {
        case FIRST:
                if (c != mp->delimiter[mp->matched])
                        return false;
                return ++mp->matched < mp->delimiter_n || become(mp, true, BEHIND);
        case BEHIND:
                return become(mp, c == '\r' || c == '-', c == '\r' ? BEHIND_CR : BEHIND_DASH);
        case BEHIND_CR:
                mp->head_bytes = mp->content_bytes = 0;
                mp->dashed = 0;
                return become(mp, c == '\n', HEAD_LINE);
        case BEHIND_DASH:
                return become(mp, c == '-', LAST);
        case HEAD_LINE:
        case HEAD_TEXT:
        case HEAD_LF:
                return head_byte(mp, c);
        case HEAD_END_LF:
                put_u64(mp, mp->head_bytes);
                mp->parts++;
                mp->matched = mp->dashed = 0;
                return become(mp, c == '\n', CONTENT);
        case CONTENT:
                return content_byte(mp, c);
        case LAST:
                return become(mp, c == '\r', LAST_LF);
        case LAST_LF:
                return become(mp, c == '\n', OVER);
        default:
                return false;
        }
}

bool multipart_feed(struct multipart *mp, struct span piece)
{
        while (piece.n > 0 && !mp->failed) {
                size_t n = plain_run(mp, piece);
                if (n > 0) {
                        put_content(mp, span_of(piece.p, n));
                } else {
                        mp->failed = !one_byte(mp, piece.p[0]);
                        n = 1;
                }
                piece = skip(piece, n);
        }
        return !mp->failed;
}

bool multipart_end(struct multipart *mp)
{
        if (mp->state != LAST && mp->state != OVER)
                mp->failed = true;
        if (!mp->failed)
                put_u64(mp, mp->parts);
        return !mp->failed;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * jcs: see jcs.h.
 */
#include "core/jcs.h"

#include <assert.h>

enum state {
        VALUE,          /* a value must come */
        VALUE_OR_CLOSE, /* behind [ */
        NAME_OR_CLOSE,  /* behind { */
        NAME,           /* behind a comma in an object */
        COLON,
        BEHIND_VALUE,   /* a comma or the container's end; white space only behind the whole */
        STRING,
        ESCAPE,         /* behind a backslash */
        HEX,            /* in a \u escape */
        LOW_BACKSLASH,  /* a low surrogate must come */
        LOW_U,
        NUMBER,
        LITERAL,
};

/* One member of an open object, as places in the output: its name's quote, and behind its value. */
struct member {
        uint32_t start, end;
};

static const uint32_t OUT_MAX = UINT32_C(1) << 30; /* places fit 32 bits */

void jcs_init(struct jcs *j, size_t out_max)
{
        *j = (struct jcs){.state = VALUE};
        out_max = out_max < OUT_MAX ? out_max : OUT_MAX;
        buf_init(&j->out, out_max);
        buf_init(&j->scratch, out_max);
        /* The shortest member, "":0 and a comma, is 5 bytes. */
        buf_init(&j->members, (out_max / 5 + 1) * sizeof(struct member));
}

void jcs_release(struct jcs *j)
{
        buf_release(&j->out);
        buf_release(&j->scratch);
        buf_release(&j->members);
}

size_t jcs_held(const struct jcs *j)
{
        return j->out.cap + j->scratch.cap + j->members.cap;
}

static enum jcs_result of_buf(int rc)
{
        return rc == BUF_OK ? JCS_OK : rc == BUF_FULL ? JCS_FULL : JCS_NO_MEMORY;
}

static enum jcs_result put(struct jcs *j, const void *p, size_t n)
{
        return of_buf(buf_append(&j->out, p, n));
}

static enum jcs_result put_byte(struct jcs *j, uint8_t c)
{
        return of_buf(buf_append_byte(&j->out, c));
}

/* -- members and their order ------------------------------------------------------------- */

static struct member *members_of(const struct jcs *j)
{
        return (struct member *)(void *)j->members.p;
}

static size_t member_count(const struct jcs *j)
{
        return j->members.n / sizeof(struct member);
}

static struct jcs_frame *top(struct jcs *j)
{
        return j->depth > 0 ? &j->frames[j->depth - 1] : NULL;
}

/* The next character of a name in the output, where it stands in canonical form; the closing quote
 * is 0, below every other.  The order is that of UTF-16 code units (RFC 8785, 3.2.3): characters
 * beyond the basic plane begin with D800..DBFF there and come before E000..FFFF. */
static uint32_t next_rank(const uint8_t **at)
{
        const uint8_t *s = *at;
        uint32_t c = *s++;
        if (c == '"')
                return 0;
        if (c == '\\') {
                static const char from[] = "btnfr", to[] = "\b\t\n\f\r";
                c = *s++;
                const char *found = memchr(from, (int)c, sizeof from - 1);
                if (found) {
                        c = (uint8_t)to[found - from];
                } else if (c == 'u') { /* 00xx, of a control character */
                        uint32_t high = s[2] - (uint32_t)'0', low = s[3];
                        c = high * 16 + (low <= '9' ? low - '0' : low - 'a' + 10);
                        s += 4;
                }
        } else if (c >= 0xf0) {
                c = (c & 0x07) << 18 | (s[0] & 0x3fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
                s += 3;
        } else if (c >= 0xe0) {
                c = (c & 0x0f) << 12 | (s[0] & 0x3fu) << 6 | (s[1] & 0x3fu);
                s += 2;
        } else if (c >= 0xc0) {
                c = (c & 0x1f) << 6 | (s[0] & 0x3fu);
                s += 1;
        }
        *at = s;
        return 1 + (c >= 0xe000 && c <= 0xffff ? c + 0x110000 : c);
}

static int member_cmp(const uint8_t *out, const struct member *a, const struct member *b)
{
        const uint8_t *pa = out + a->start + 1, *pb = out + b->start + 1;
        for (;;) {
                while (*pa == *pb && *pa < 0x80 && *pa != '"' && *pa != '\\') {
                        pa++;
                        pb++;
                }
                uint32_t ra = next_rank(&pa), rb = next_rank(&pb);
                if (ra != rb)
                        return ra < rb ? -1 : 1;
                if (ra == 0)
                        return 0;
        }
}

static void sift_down(const uint8_t *out, struct member *m, size_t root, size_t n)
{
        for (size_t child; (child = 2 * root + 1) < n; root = child) {
                if (child + 1 < n && member_cmp(out, &m[child], &m[child + 1]) < 0)
                        child++;
                if (member_cmp(out, &m[root], &m[child]) >= 0)
                        return;
                struct member swap = m[root];
                m[root] = m[child];
                m[child] = swap;
        }
}

/* Heap sort: in place, and never quadratic, for the order is the sender's choice. */
static void sort_members(const uint8_t *out, struct member *m, size_t n)
{
        for (size_t i = n / 2; i-- > 0;)
                sift_down(out, m, i, n);
        for (size_t end = n; end-- > 1;) {
                struct member swap = m[0];
                m[0] = m[end];
                m[end] = swap;
                sift_down(out, m, 0, end);
        }
}

/* Write the members of [from, out.n) again in their order; the commas' count stays. */
static enum jcs_result rewrite(struct jcs *j, const struct member *m, size_t n, size_t from)
{
        buf_clear(&j->scratch);
        enum jcs_result result =
                of_buf(buf_append(&j->scratch, j->out.p + from, j->out.n - from));
        if (result != JCS_OK)
                return result;
        uint8_t *to = j->out.p + from;
        for (size_t i = 0; i < n; i++) {
                size_t len = m[i].end - m[i].start;
                if (i > 0)
                        *to++ = ',';
                memcpy(to, j->scratch.p + (m[i].start - from), len);
                to += len;
        }
        assert(to == j->out.p + j->out.n);
        return JCS_OK;
}

static enum jcs_result close_object(struct jcs *j)
{
        size_t first = top(j)->first, n = member_count(j) - first;
        if (n > 0) {
                struct member *m = members_of(j) + first;
                size_t from = m[0].start;
                bool sorted = true;
                for (size_t i = 1; i < n && sorted; i++)
                        sorted = member_cmp(j->out.p, &m[i - 1], &m[i]) < 0;
                if (!sorted) {
                        sort_members(j->out.p, m, n);
                        for (size_t i = 1; i < n; i++)
                                if (member_cmp(j->out.p, &m[i - 1], &m[i]) == 0)
                                        return JCS_DUPLICATE;
                        enum jcs_result result = rewrite(j, m, n, from);
                        if (result != JCS_OK)
                                return result;
                }
        }
        j->members.n = first * sizeof(struct member);
        return put_byte(j, '}');
}

/* -- containers ------------------------------------------------------------------------------- */

static enum jcs_result open_container(struct jcs *j, bool object)
{
        if (j->depth == LIMIT_JSON_DEPTH)
                return JCS_TOO_DEEP;
        j->frames[j->depth++] = (struct jcs_frame){object, (uint32_t)member_count(j)};
        j->state = object ? NAME_OR_CLOSE : VALUE_OR_CLOSE;
        return put_byte(j, object ? '{' : '[');
}

/* A value is whole: it may be a member's. */
static void value_over(struct jcs *j)
{
        j->state = BEHIND_VALUE;
        if (top(j) && top(j)->object)
                members_of(j)[member_count(j) - 1].end = (uint32_t)j->out.n;
}

static enum jcs_result close_container(struct jcs *j, uint8_t c)
{
        if (!top(j) || c != (top(j)->object ? '}' : ']'))
                return JCS_SYNTAX;
        enum jcs_result result = c == '}' ? close_object(j) : put_byte(j, ']');
        if (result == JCS_OK) {
                j->depth--;
                value_over(j);
        }
        return result;
}

/* -- strings ----------------------------------------------------------------------------------- */

static enum jcs_result begin_string(struct jcs *j, bool name)
{
        if (name) {
                const struct member m = {.start = (uint32_t)j->out.n};
                enum jcs_result result = of_buf(buf_append(&j->members, &m, sizeof m));
                if (result != JCS_OK)
                        return result;
        }
        j->in_name = name;
        j->state = STRING;
        return put_byte(j, '"');
}

static enum jcs_result end_string(struct jcs *j)
{
        enum jcs_result result = put_byte(j, '"');
        if (result != JCS_OK)
                return result;
        if (j->in_name)
                j->state = COLON;
        else
                value_over(j);
        return JCS_OK;
}

/* A character that came as an escape, in its canonical spelling. */
static enum jcs_result put_char(struct jcs *j, uint32_t c)
{
        static const char hex[] = "0123456789abcdef", from[] = "\b\t\n\f\r\"\\",
                          to[] = "btnfr\"\\";
        const char *found = c < 0x80 ? memchr(from, (int)c, sizeof from - 1) : NULL;
        if (found) {
                const char text[2] = {'\\', to[found - from]};
                return put(j, text, 2);
        }
        if (c < 0x20) {
                const char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
                return put(j, text, 6);
        }
        if (c < 0x80)
                return put_byte(j, (uint8_t)c);
        uint8_t utf8[4];
        size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (size_t i = n - 1; i > 0; i--, c >>= 6)
                utf8[i] = (uint8_t)(0x80 | (c & 0x3f));
        utf8[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
        return put(j, utf8, n);
}

/* The first byte of a character beyond ASCII: how many follow, and the bounds of the next one
 * (RFC 3629: shortest form, no surrogates, nothing above 10FFFF). */
static enum jcs_result begin_char(struct jcs *j, uint8_t c)
{
        if (c < 0xc2 || c > 0xf4)
                return JCS_UNICODE;
        j->tail = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        j->tail_min = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        j->tail_max = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        return put_byte(j, c);
}

static enum jcs_result string_byte(struct jcs *j, uint8_t c)
{
        if (j->tail > 0) {
                if (c < j->tail_min || c > j->tail_max)
                        return JCS_UNICODE;
                j->tail--;
                j->tail_min = 0x80;
                j->tail_max = 0xbf;
                return put_byte(j, c);
        }
        if (c == '"')
                return end_string(j);
        if (c == '\\') {
                j->state = ESCAPE;
                return JCS_OK;
        }
        if (c < 0x20)
                return JCS_SYNTAX;
        return c < 0x80 ? put_byte(j, c) : begin_char(j, c);
}

static enum jcs_result escape_byte(struct jcs *j, uint8_t c)
{
        static const char from[] = "btnfr\"\\/", to[] = "\b\t\n\f\r\"\\/";
        if (c == 'u') {
                j->state = HEX;
                j->unit = j->digits = 0;
                return JCS_OK;
        }
        const char *found = memchr(from, c, sizeof from - 1);
        if (!found)
                return JCS_SYNTAX;
        j->state = STRING;
        return put_char(j, (uint8_t)to[found - from]);
}

static enum jcs_result unit_over(struct jcs *j)
{
        uint32_t c = j->unit;
        bool low = c >= 0xdc00 && c <= 0xdfff;
        if (low != (j->high != 0))
                return JCS_UNICODE;
        if (c >= 0xd800 && c <= 0xdbff) {
                j->high = c;
                j->state = LOW_BACKSLASH;
                return JCS_OK;
        }
        if (low)
                c = 0x10000 + ((j->high - 0xd800) << 10) + (c - 0xdc00);
        j->high = 0;
        j->state = STRING;
        return put_char(j, c);
}

static enum jcs_result hex_byte(struct jcs *j, uint8_t c)
{
        uint8_t lower = c | 0x20;
        uint32_t v;
        if (c >= '0' && c <= '9')
                v = c - (uint32_t)'0';
        else if (lower >= 'a' && lower <= 'f')
                v = lower - (uint32_t)'a' + 10;
        else
                return JCS_SYNTAX;
        j->unit = j->unit << 4 | v;
        return ++j->digits == 4 ? unit_over(j) : JCS_OK;
}

/* -- numbers and literals --------------------------------------------------------------------- */

static bool of_number(uint8_t c)
{
        return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static enum jcs_result number_byte(struct jcs *j, uint8_t c)
{
        if (j->token_n == sizeof j->token)
                return JCS_TOO_LONG;
        j->token[j->token_n++] = (char)c;
        return JCS_OK;
}

static enum jcs_result number_over(struct jcs *j)
{
        char text[JCS_NUMBER_BYTES];
        size_t n;
        bool inexact;
        enum jcs_result result = jcs_number(span_of(j->token, j->token_n), text, &n, &inexact);
        if (result == JCS_OK)
                result = put(j, text, n);
        if (result != JCS_OK)
                return result;
        j->inexact |= inexact;
        value_over(j);
        return JCS_OK;
}

static enum jcs_result begin_literal(struct jcs *j, const char *text)
{
        j->literal = text + 1;
        j->state = LITERAL;
        return put_byte(j, (uint8_t)text[0]);
}

static enum jcs_result literal_byte(struct jcs *j, uint8_t c)
{
        if (c != (uint8_t)*j->literal)
                return JCS_SYNTAX;
        enum jcs_result result = put_byte(j, c);
        if (result == JCS_OK && *++j->literal == 0)
                value_over(j);
        return result;
}

/* -- between tokens ------------------------------------------------------------------------------ */

static enum jcs_result begin_value(struct jcs *j, uint8_t c)
{
        switch (c) {
        case '{':
                return open_container(j, true);
        case '[':
                return open_container(j, false);
        case '"':
                return begin_string(j, false);
        case 't':
                return begin_literal(j, "true");
        case 'f':
                return begin_literal(j, "false");
        case 'n':
                return begin_literal(j, "null");
        default:
                if (c != '-' && (c < '0' || c > '9'))
                        return JCS_SYNTAX;
                j->token_n = 0;
                j->state = NUMBER;
                return number_byte(j, c);
        }
}

static enum jcs_result token_byte(struct jcs *j, uint8_t c)
{
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
                return JCS_OK;
        switch (j->state) {
        case VALUE_OR_CLOSE:
                if (c == ']')
                        return close_container(j, c);
                return begin_value(j, c);
        case VALUE:
                return begin_value(j, c);
        case NAME_OR_CLOSE:
                if (c == '}')
                        return close_container(j, c);
                return c == '"' ? begin_string(j, true) : JCS_SYNTAX;
        case NAME:
                return c == '"' ? begin_string(j, true) : JCS_SYNTAX;
        case COLON:
                j->state = VALUE;
                return c == ':' ? put_byte(j, c) : JCS_SYNTAX;
        default:
                assert(j->state == BEHIND_VALUE);
                if (c != ',')
                        return close_container(j, c);
                if (!top(j))
                        return JCS_SYNTAX;
                j->state = top(j)->object ? NAME : VALUE;
                return put_byte(j, c);
        }
}

static enum jcs_result one_byte(struct jcs *j, uint8_t c)
{
        enum jcs_result result;
        switch (j->state) {
        case STRING:
                return string_byte(j, c);
        case ESCAPE:
                return escape_byte(j, c);
        case HEX:
                return hex_byte(j, c);
        case LOW_BACKSLASH:
                j->state = LOW_U;
                return c == '\\' ? JCS_OK : JCS_UNICODE;
        case LOW_U:
                j->state = HEX;
                j->unit = j->digits = 0;
                return c == 'u' ? JCS_OK : JCS_UNICODE;
        case LITERAL:
                return literal_byte(j, c);
        case NUMBER:
                if (of_number(c))
                        return number_byte(j, c);
                result = number_over(j);
                return result == JCS_OK ? token_byte(j, c) : result;
        default:
                return token_byte(j, c);
        }
}

/* What a string holds most of: bytes that stand for themselves. */
static size_t plain_run(struct span s)
{
        size_t n = 0;
        while (n < s.n && s.p[n] >= 0x20 && s.p[n] < 0x80 && s.p[n] != '"' && s.p[n] != '\\')
                n++;
        return n;
}

enum jcs_result jcs_feed(struct jcs *j, struct span piece)
{
        for (size_t i = 0; i < piece.n && j->result == JCS_OK;) {
                size_t n = 0;
                if (j->state == STRING && j->tail == 0)
                        n = plain_run(span_of(piece.p + i, piece.n - i));
                if (n > 0) {
                        j->result = put(j, piece.p + i, n);
                        i += n;
                } else {
                        j->result = one_byte(j, piece.p[i++]);
                }
        }
        return j->result;
}

enum jcs_result jcs_end(struct jcs *j)
{
        if (j->result == JCS_OK && j->state == NUMBER)
                j->result = number_over(j);
        if (j->result == JCS_OK && (j->state != BEHIND_VALUE || j->depth > 0))
                j->result = JCS_SYNTAX;
        return j->result;
}

const char *jcs_result_name(enum jcs_result result)
{
        static const char *const names[] = {
                [JCS_OK] = "ok",
                [JCS_SYNTAX] = "syntax",
                [JCS_UNICODE] = "unicode",
                [JCS_DUPLICATE] = "duplicate",
                [JCS_RANGE] = "range",
                [JCS_TOO_DEEP] = "too-deep",
                [JCS_TOO_LONG] = "too-long",
                [JCS_FULL] = "full",
                [JCS_NO_MEMORY] = "no-memory",
        };
        return (unsigned)result < sizeof names / sizeof names[0] ? names[result] : "?";
}

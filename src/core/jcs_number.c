/* SPDX-License-Identifier: Apache-2.0
 *
 * jcs_number: numbers as ECMAScript writes them: the shortest digits that read back as the same
 * double, and of those the closest.  With whole numbers only: no locale, no libm, no rounding of
 * somebody else's.
 *
 * A decimal of at most 15 digits in the normal range is its own answer (15 digits survive a double).
 * The others go the long way: exact division to the double, then Burger and Dybvig's digit
 * generation from it.
 */
#include <assert.h>

#include "core/jcs.h"

/* -- a decimal: 0.d1d2d3... x 10^point ------------------------------------------------ */

struct decimal {
        size_t n; /* digits; neither first nor last is 0; none: the number is 0 */
        int point;
        uint8_t digit[LIMIT_JSON_NUMBER_BYTES];
};

enum { POINT_FAR = 100000 }; /* exponents are clamped here: far beyond any double */

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* The exponent behind 'e', or false. */
static bool parse_exponent(const char *s, const char *end, int *ret)
{
        bool minus = s < end && *s == '-';
        if (s < end && (*s == '-' || *s == '+'))
                s++;
        if (s == end)
                return false;
        int v = 0;
        for (; s < end; s++) {
                if (!is_digit(*s))
                        return false;
                v = v * 10 + (*s - '0');
                v = v < POINT_FAR ? v : POINT_FAR;
        }
        *ret = minus ? -v : v;
        return true;
}

/* JSON's grammar: [-] int [frac] [exp]. */
static bool parse_decimal(struct span text, bool *ret_minus, struct decimal *d)
{
        const char *s = (const char *)text.p, *end = s + text.n;
        bool minus = s < end && *s == '-';
        s += minus;
        if (s == end || !is_digit(*s) || (*s == '0' && s + 1 < end && is_digit(s[1])))
                return false;
        d->n = 0;
        d->point = 0;
        for (; s < end && is_digit(*s); s++)
                if (d->n > 0 || *s != '0') {
                        d->digit[d->n++] = (uint8_t)(*s - '0');
                        d->point++;
                }
        if (s < end && *s == '.') {
                if (++s == end || !is_digit(*s))
                        return false;
                for (; s < end && is_digit(*s); s++) {
                        if (d->n > 0 || *s != '0')
                                d->digit[d->n++] = (uint8_t)(*s - '0');
                        else
                                d->point--;
                }
        }
        int exponent = 0;
        if (s < end && ((*s != 'e' && *s != 'E') || !parse_exponent(s + 1, end, &exponent)))
                return false;
        d->point += exponent;
        while (d->n > 0 && d->digit[d->n - 1] == 0)
                d->n--;
        *ret_minus = minus;
        return true;
}

/* -- whole numbers ------------------------------------------------------------------------ */

/* Enough for 10^600 x 2^60: 256 digits at the far end of the range of doubles. */
enum { WORDS = 96 };

struct big {
        size_t n;
        uint32_t w[WORDS]; /* lowest first; w[n - 1] is not 0 */
};

static void big_set(struct big *a, uint64_t v)
{
        a->n = 0;
        for (; v > 0; v >>= 32)
                a->w[a->n++] = (uint32_t)v;
}

static void big_mul_add(struct big *a, uint32_t factor, uint32_t add)
{
        uint64_t carry = add;
        for (size_t i = 0; i < a->n; i++) {
                carry += (uint64_t)a->w[i] * factor;
                a->w[i] = (uint32_t)carry;
                carry >>= 32;
        }
        if (carry > 0) {
                assert(a->n < WORDS);
                a->w[a->n++] = (uint32_t)carry;
        }
}

static void big_mul_pow10(struct big *a, int power)
{
        for (; power >= 9; power -= 9)
                big_mul_add(a, 1000000000, 0);
        for (; power > 0; power--)
                big_mul_add(a, 10, 0);
}

static void big_shift(struct big *a, unsigned bits)
{
        size_t words = bits / 32;
        if (a->n == 0)
                return;
        assert(a->n + words <= WORDS);
        memmove(a->w + words, a->w, a->n * sizeof a->w[0]);
        memset(a->w, 0, words * sizeof a->w[0]);
        a->n += words;
        big_mul_add(a, UINT32_C(1) << (bits % 32), 0);
}

static int big_cmp(const struct big *a, const struct big *b)
{
        if (a->n != b->n)
                return a->n < b->n ? -1 : 1;
        for (size_t i = a->n; i-- > 0;)
                if (a->w[i] != b->w[i])
                        return a->w[i] < b->w[i] ? -1 : 1;
        return 0;
}

static void big_add(struct big *a, const struct big *b)
{
        uint64_t carry = 0;
        for (size_t i = 0; i < b->n || carry > 0; i++) {
                if (i == a->n) {
                        assert(a->n < WORDS);
                        a->w[a->n++] = 0;
                }
                carry += (uint64_t)a->w[i] + (i < b->n ? b->w[i] : 0);
                a->w[i] = (uint32_t)carry;
                carry >>= 32;
        }
}

/* a -= b; b is not larger. */
static void big_sub(struct big *a, const struct big *b)
{
        int64_t carry = 0;
        for (size_t i = 0; i < a->n; i++) {
                carry += (int64_t)a->w[i] - (i < b->n ? b->w[i] : 0);
                a->w[i] = (uint32_t)carry;
                carry >>= 32;
        }
        assert(carry == 0);
        while (a->n > 0 && a->w[a->n - 1] == 0)
                a->n--;
}

static int big_bits(const struct big *a)
{
        if (a->n == 0)
                return 0;
        int bits = (int)(a->n - 1) * 32;
        for (uint32_t top = a->w[a->n - 1]; top > 0; top >>= 1)
                bits++;
        return bits;
}

/* -- decimal to double: m x 2^e ----------------------------------------------------------- */

enum { MANTISSA_BITS = 53, EXPONENT_MIN = -1074, EXPONENT_MAX = 971 };
#define MANTISSA_MIN (UINT64_C(1) << (MANTISSA_BITS - 1))

/* num / den, a quotient of at most 55 bits; num becomes the remainder x 2^55. */
static uint64_t divide(struct big *num, const struct big *den)
{
        enum { BITS = 55 };
        struct big d = *den;
        uint64_t q = 0;
        big_shift(&d, BITS - 1);
        for (int i = 0; i < BITS; i++) {
                q <<= 1;
                if (big_cmp(num, &d) >= 0) {
                        big_sub(num, &d);
                        q |= 1;
                }
                big_shift(num, 1);
        }
        return q;
}

/* Round half to even.  num: the remainder x 2^55, against den x 2^54. */
static uint64_t round_quotient(uint64_t q, int *e, const struct big *num, const struct big *den)
{
        bool up;
        if (q >= MANTISSA_MIN << 1) { /* one bit too many: it decides, the remainder breaks a tie */
                bool half = q & 1;
                q >>= 1;
                ++*e;
                up = half && (num->n > 0 || (q & 1));
        } else {
                struct big half = *den;
                big_shift(&half, 54);
                int cmp = big_cmp(num, &half);
                up = cmp > 0 || (cmp == 0 && (q & 1));
        }
        q += up;
        if (q == MANTISSA_MIN << 1) {
                q >>= 1;
                ++*e;
        }
        return q;
}

/* m = 0: it rounds to zero.  false: beyond the largest double. */
static bool to_double(const struct decimal *d, uint64_t *ret_m, int *ret_e)
{
        struct big num, den;
        if (d->point > 310)
                return false;
        if (d->point < -330) {
                *ret_m = 0;
                *ret_e = EXPONENT_MIN;
                return true;
        }
        big_set(&num, 0);
        for (size_t i = 0; i < d->n; i++)
                big_mul_add(&num, 10, d->digit[i]);
        big_set(&den, 1);
        int power = d->point - (int)d->n;
        if (power >= 0)
                big_mul_pow10(&num, power);
        else
                big_mul_pow10(&den, -power);

        /* A quotient of 53 or 54 bits, fewer where doubles have fewer. */
        int shift = MANTISSA_BITS - (big_bits(&num) - big_bits(&den));
        if (shift > -EXPONENT_MIN)
                shift = -EXPONENT_MIN;
        if (shift >= 0)
                big_shift(&num, (unsigned)shift);
        else
                big_shift(&den, (unsigned)-shift);
        int e = -shift;
        uint64_t q = divide(&num, &den);
        q = round_quotient(q, &e, &num, &den);
        *ret_m = q;
        *ret_e = e;
        return e <= EXPONENT_MAX;
}

/* -- double to shortest decimal --------------------------------------------------------------- */

/* v = r / s; the doubles next to it are mm / s below and mp / s above, at twice the distance. */
struct gap {
        struct big r, s, mp, mm;
        bool inclusive; /* the middle between two doubles reads as this one */
};

static void gap_init(struct gap *g, uint64_t m, int e)
{
        bool wide = m == MANTISSA_MIN && e > EXPONENT_MIN; /* the gap above is twice the one below */
        unsigned up = e > 0 ? (unsigned)e : 0, down = e < 0 ? (unsigned)-e : 0;
        big_set(&g->r, m);
        big_shift(&g->r, up + 1 + wide);
        big_set(&g->s, 1);
        big_shift(&g->s, down + 1 + wide);
        big_set(&g->mm, 1);
        big_shift(&g->mm, up);
        big_set(&g->mp, 1);
        big_shift(&g->mp, up + wide);
        g->inclusive = (m & 1) == 0;
}

/* Is r + mp at or past s? */
static bool reaches(const struct gap *g)
{
        struct big sum = g->r;
        big_add(&sum, &g->mp);
        int cmp = big_cmp(&sum, &g->s);
        return cmp > 0 || (cmp == 0 && g->inclusive);
}

static void gap_times_ten(struct gap *g)
{
        big_mul_add(&g->r, 10, 0);
        big_mul_add(&g->mp, 10, 0);
        big_mul_add(&g->mm, 10, 0);
}

/* Scale so that the first digit comes next; `point` is near already. */
static int gap_scale(struct gap *g, int point)
{
        if (point >= 0) {
                big_mul_pow10(&g->s, point);
        } else {
                big_mul_pow10(&g->r, -point);
                big_mul_pow10(&g->mp, -point);
                big_mul_pow10(&g->mm, -point);
        }
        while (reaches(g)) {
                big_mul_add(&g->s, 10, 0);
                point++;
        }
        for (;;) {
                struct gap ten = *g;
                gap_times_ten(&ten);
                if (reaches(&ten))
                        return point;
                *g = ten;
                point--;
        }
}

static void shortest(uint64_t m, int e, int near_point, struct decimal *ret)
{
        struct gap g;
        gap_init(&g, m, e);
        ret->point = gap_scale(&g, near_point);
        ret->n = 0;
        for (bool low = false, high = false; !low && !high;) {
                gap_times_ten(&g);
                uint8_t digit = 0;
                for (; big_cmp(&g.r, &g.s) >= 0; digit++)
                        big_sub(&g.r, &g.s);
                int cmp = big_cmp(&g.r, &g.mm);
                low = cmp < 0 || (cmp == 0 && g.inclusive);
                high = reaches(&g);
                if (low && high) { /* both neighbours would do: the closer one, or the even one */
                        big_shift(&g.r, 1);
                        cmp = big_cmp(&g.r, &g.s);
                        high = cmp > 0 || (cmp == 0 && (digit & 1));
                }
                ret->digit[ret->n++] = (uint8_t)(digit + high);
        }
        assert(ret->n <= 17);
}

/* -- as ECMAScript writes it --------------------------------------------------------------------- */

static size_t put_digits(char *out, const struct decimal *d, size_t from, size_t to)
{
        for (size_t i = from; i < to; i++)
                *out++ = (char)('0' + (i < d->n ? d->digit[i] : 0));
        return to - from;
}

static size_t put_exponent(char *out, int v)
{
        size_t n = 0;
        out[n++] = 'e';
        out[n++] = v < 0 ? '-' : '+';
        v = v < 0 ? -v : v;
        if (v >= 100)
                out[n++] = (char)('0' + v / 100);
        if (v >= 10)
                out[n++] = (char)('0' + v / 10 % 10);
        out[n++] = (char)('0' + v % 10);
        return n;
}

static size_t format(const struct decimal *d, bool minus, char *out)
{
        size_t n = 0;
        if (minus)
                out[n++] = '-';
        if (d->point > 0 && d->point <= 21) {
                size_t whole = (size_t)d->point;
                n += put_digits(out + n, d, 0, whole);
                if (d->n > whole) {
                        out[n++] = '.';
                        n += put_digits(out + n, d, whole, d->n);
                }
        } else if (d->point > -6 && d->point <= 0) {
                out[n++] = '0';
                out[n++] = '.';
                for (int i = d->point; i < 0; i++)
                        out[n++] = '0';
                n += put_digits(out + n, d, 0, d->n);
        } else {
                n += put_digits(out + n, d, 0, 1);
                if (d->n > 1) {
                        out[n++] = '.';
                        n += put_digits(out + n, d, 1, d->n);
                }
                n += put_exponent(out + n, d->point - 1);
        }
        assert(n <= JCS_NUMBER_BYTES);
        return n;
}

enum jcs_result jcs_number(struct span text, char *ret, size_t *ret_n, bool *ret_inexact)
{
        struct decimal d, s;
        bool minus;
        if (text.n > LIMIT_JSON_NUMBER_BYTES)
                return JCS_TOO_LONG;
        if (!parse_decimal(text, &minus, &d))
                return JCS_SYNTAX;
        bool inexact = false;
        if (d.n > 0 && (d.n > 15 || d.point < -290 || d.point > 290)) {
                uint64_t m;
                int e;
                if (!to_double(&d, &m, &e))
                        return JCS_RANGE;
                if (m > 0)
                        shortest(m, e, d.point, &s);
                else
                        s.n = 0;
                inexact = s.n != d.n || (s.n > 0 && s.point != d.point) ||
                          memcmp(s.digit, d.digit, s.n) != 0;
                d = s;
        }
        if (d.n == 0) { /* -0 too */
                ret[0] = '0';
                *ret_n = 1;
        } else {
                *ret_n = format(&d, minus, ret);
        }
        *ret_inexact = inexact;
        return JCS_OK;
}

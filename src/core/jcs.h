/* SPDX-License-Identifier: Apache-2.0
 *
 * jcs: JSON in canonical form (RFC 8785), streamed: two bodies that are the same JSON document give
 * the same bytes, whatever the order of their members, their blanks, escapes and spellings of
 * numbers (H54).  Only where a route asks for it.
 *
 *     jcs_init(&j, LIMIT_BODY);
 *     for each piece: jcs_feed(&j, piece);
 *     if (jcs_end(&j) == JCS_OK && !j.inexact)
 *             fingerprint_body(&fp, buf_span(&j.out));
 *     else ...                       // compare the bytes as they came
 *     jcs_release(&j);
 *
 * The output is held until the end, because members are sorted: an object is sorted when it closes.
 * Its maximum bounds all memory (the output, as much again while sorting, and 8 bytes a member of
 * the objects that are open).  However the bytes are cut, the result is the same.
 *
 * Strict: what RFC 8785 cannot express is refused, never guessed: bytes that are no UTF-8, lone
 * surrogates, a name twice in one object, a number beyond the range of a double.
 */
#ifndef CORE_JCS_H
#define CORE_JCS_H

#include "base/buf.h"
#include "core/limits.h"

enum jcs_result {
        JCS_OK,
        JCS_SYNTAX,        /* no JSON */
        JCS_UNICODE,       /* no UTF-8, or a lone surrogate */
        JCS_DUPLICATE,     /* a name twice in one object */
        JCS_RANGE,         /* a number that is no finite double */
        JCS_TOO_DEEP,
        JCS_TOO_LONG,      /* a number of more bytes than anybody needs */
        JCS_FULL,          /* the output's maximum */
        JCS_NO_MEMORY,
};

struct jcs_frame {
        bool object;
        uint32_t first; /* the frame's first member */
};

struct jcs {
        struct buf out;
        /* Some number says more than a double can hold (9007199254740993): RFC 8785 rounds it, so that
         * two different requests would look the same. */
        bool inexact;
        enum jcs_result result;

        /* its own */
        struct buf scratch, members;
        int state;
        unsigned depth;
        struct jcs_frame frames[LIMIT_JSON_DEPTH];
        bool in_name;
        uint32_t unit, high;    /* of a \u escape; the high surrogate before it */
        unsigned digits;        /* of a \u escape */
        unsigned tail;          /* bytes that a UTF-8 character still needs */
        uint8_t tail_min, tail_max;
        const char *literal;    /* what must still come of true, false, null */
        size_t token_n;
        char token[LIMIT_JSON_NUMBER_BYTES];
};

/* out_max: of the canonical form, at most 1 GiB. */
void jcs_init(struct jcs *j, size_t out_max);
void jcs_release(struct jcs *j);

/* Bytes of memory that it has now. */
size_t jcs_held(const struct jcs *j);

/* Both are sticky: the first failure is the answer to all later calls. */
enum jcs_result jcs_feed(struct jcs *j, struct span piece);
enum jcs_result jcs_end(struct jcs *j);

const char *jcs_result_name(enum jcs_result result);

/* One number: JSON text in, its canonical spelling out (without NUL; JCS_NUMBER_BYTES suffice). */
enum { JCS_NUMBER_BYTES = 32 };
enum jcs_result jcs_number(struct span text, char *ret, size_t *ret_n, bool *ret_inexact);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Any header value: an answer, and a key that means the same when it is sent again, bare or as
 * a string; the same bytes as parts of a joined key: a key that can be sent bare, and that splits
 * into those parts again.
 */
#include "fuzz.h"

#include "core/key.h"

static struct key untouched;

static void send_again(const struct key *key)
{
        uint8_t text[2 * LIMIT_KEY_BYTES + 2];
        size_t n = 0;
        text[n++] = '"';
        for (size_t i = 0; i < key->n; i++) {
                uint8_t c = (uint8_t)key->text[i];
                need(c >= 0x20 && c <= 0x7e);
                if (c == '"' || c == '\\')
                        text[n++] = '\\';
                text[n++] = c;
        }
        text[n++] = '"';
        struct key again;
        need(key_parse(span_of(text, n), &again) == KEY_OK);
        need(again.n == key->n && memcmp(again.text, key->text, key->n + 1) == 0);
        need(key_check(span_of(key->text, key->n)) == KEY_OK);

        struct key bare;
        if (key_parse(span_of(key->text, key->n), &bare) == KEY_OK && key->text[0] != '"' &&
            key->text[0] != ' ' && key->text[key->n - 1] != ' ')
                need(bare.n == key->n && memcmp(bare.text, key->text, key->n) == 0);
}

static int hex(char c)
{
        need((c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'));
        return c <= '9' ? c - '0' : c - 'A' + 10;
}

/* The parts are what lies between the NUL bytes of the input. */
static void join(const uint8_t *p, size_t n)
{
        struct span parts[16];
        size_t count = 0, from = 0;
        for (size_t i = 0; i <= n && count < 16; i++)
                if (i == n || p[i] == 0) {
                        parts[count++] = span_of(p + from, i - from);
                        from = i + 1;
                }
        struct key key;
        if (key_join(parts, count, &key) != KEY_OK)
                return;
        struct key again;
        need(key_parse(span_of(key.text, key.n), &again) == KEY_OK);
        need(again.n == key.n && memcmp(again.text, key.text, key.n) == 0);
        size_t at = 0;
        for (size_t part = 0; part < count; part++) {
                need(part == 0 || key.text[at++] == ':');
                for (size_t i = 0; i < parts[part].n; i++, at++) {
                        int c = (uint8_t)key.text[at];
                        need(at < key.n && c != ':');
                        if (c == '%') {
                                c = hex(key.text[at + 1]) << 4 | hex(key.text[at + 2]);
                                at += 2;
                        }
                        need(c == parts[part].p[i]);
                }
        }
        need(at == key.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        struct key key = untouched;
        enum key_result result = key_parse(span_of(p, n), &key);
        if (result == KEY_OK) {
                need(key.n >= 1 && key.n <= LIMIT_KEY_BYTES && key.text[key.n] == 0);
                send_again(&key);
        } else {
                need(memcmp(&key, &untouched, sizeof key) == 0);
                need(key_result_text(result)[0] != 0);
        }
        join(p, n);
        return 0;
}

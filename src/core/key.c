/* SPDX-License-Identifier: Apache-2.0
 *
 * key: see key.h.
 */
#include "core/key.h"

static bool is_blank(uint8_t c)
{
        return c == ' ' || c == '\t';
}

/* What a bare key may hold. */
static bool is_bare(uint8_t c)
{
        return c >= 0x21 && c <= 0x7e && c != '"' && c != ',' && c != ';' && c != '\\';
}

static struct span skip_blanks(struct span s)
{
        while (s.n > 0 && is_blank(s.p[0]))
                s = span_of(s.p + 1, s.n - 1);
        return s;
}

static struct span trim(struct span s)
{
        s = skip_blanks(s);
        while (s.n > 0 && is_blank(s.p[s.n - 1]))
                s.n--;
        return s;
}

/* Read a string whose opening quote is at *s.p; `key` may be NULL (a parameter's value, which may
 * be of any length).  *s becomes what is behind the closing quote. */
static enum key_result take_string(struct span *s, struct key *key)
{
        for (size_t i = 1, n = 0; i < s->n; i++, n++) {
                uint8_t c = s->p[i];
                if (c == '"') {
                        if (key)
                                key->n = n;
                        *s = span_of(s->p + i + 1, s->n - i - 1);
                        return KEY_OK;
                }
                if (c == '\\') {
                        if (++i == s->n || (s->p[i] != '"' && s->p[i] != '\\'))
                                return KEY_UNTERMINATED;
                        c = s->p[i];
                }
                if (c < 0x20 || c > 0x7e)
                        return KEY_BAD_BYTE;
                if (!key)
                        continue;
                if (n == LIMIT_KEY_BYTES)
                        return KEY_TOO_LONG;
                key->text[n] = (char)c;
        }
        return KEY_UNTERMINATED;
}

static bool is_param_name(uint8_t c, bool first)
{
        if ((c >= 'a' && c <= 'z') || c == '*')
                return true;
        return !first && ((c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.');
}

/* Parameters mean nothing to us, but `"a";"b"` is two keys and not one with a parameter:
 * what follows the string must at least look like `;name` or `;name=value`. */
static enum key_result check_params(struct span s)
{
        while (s.n > 0) {
                if (s.p[0] != ';')
                        return KEY_LIST;
                s = skip_blanks(span_of(s.p + 1, s.n - 1));
                size_t i = 0;
                while (i < s.n && is_param_name(s.p[i], i == 0))
                        i++;
                if (i == 0)
                        return KEY_LIST;
                s = span_of(s.p + i, s.n - i);
                if (s.n == 0 || s.p[0] != '=')
                        continue;
                s = span_of(s.p + 1, s.n - 1);
                if (s.n > 0 && s.p[0] == '"') {
                        enum key_result result = take_string(&s, NULL);
                        if (result != KEY_OK)
                                return result;
                        continue;
                }
                for (i = 0; i < s.n && is_bare(s.p[i]); i++)
                        ;
                if (i == 0)
                        return KEY_LIST;
                s = span_of(s.p + i, s.n - i);
        }
        return KEY_OK;
}

static enum key_result parse_string(struct span value, struct key *key)
{
        enum key_result result = take_string(&value, key);
        if (result == KEY_OK)
                result = check_params(value);
        if (result == KEY_OK && key->n == 0)
                result = KEY_EMPTY;
        return result;
}

static enum key_result parse_bare(struct span value, struct key *key)
{
        for (size_t i = 0; i < value.n; i++) {
                uint8_t c = value.p[i];
                if (c == ',' || c == ';' || is_blank(c))
                        return KEY_LIST;
                if (!is_bare(c))
                        return KEY_BAD_BYTE;
                if (i == LIMIT_KEY_BYTES)
                        return KEY_TOO_LONG;
                key->text[i] = (char)c;
        }
        key->n = value.n;
        return KEY_OK;
}

enum key_result key_parse(struct span value, struct key *ret)
{
        struct key key = {0};
        value = trim(value);
        if (value.n == 0)
                return KEY_EMPTY;
        enum key_result result =
                value.p[0] == '"' ? parse_string(value, &key) : parse_bare(value, &key);
        if (result != KEY_OK)
                return result;
        key.text[key.n] = 0;
        *ret = key;
        return KEY_OK;
}

enum key_result key_check(struct span text)
{
        if (text.n == 0)
                return KEY_EMPTY;
        if (text.n > LIMIT_KEY_BYTES)
                return KEY_TOO_LONG;
        for (size_t i = 0; i < text.n; i++)
                if (text.p[i] < 0x20 || text.p[i] > 0x7e)
                        return KEY_BAD_BYTE;
        return KEY_OK;
}

const char *key_result_text(enum key_result result)
{
        switch (result) {
        case KEY_OK:
                return "the key is fine";
        case KEY_EMPTY:
                return "the idempotency key is empty; send 1 to 255 characters";
        case KEY_TOO_LONG:
                return "the idempotency key is longer than 255 characters";
        case KEY_BAD_BYTE:
                return "the idempotency key holds a character that is not allowed; use printable "
                       "ASCII, and quote it if it holds a comma, semicolon, quote or backslash";
        case KEY_UNTERMINATED:
                return "the quoted idempotency key has no closing quote, or a backslash before "
                       "something else than a quote or a backslash";
        case KEY_LIST:
                return "the idempotency key is followed by something else; send exactly one key, "
                       "and quote it if it holds a space, comma or semicolon";
        }
        return "the idempotency key is malformed";
}

/* -- joining -------------------------------------------------------------------------- */

static bool append(struct key *key, char c)
{
        if (key->n == LIMIT_KEY_BYTES)
                return false;
        key->text[key->n++] = c;
        return true;
}

/* ':' separates parts and '%' begins an escape, so neither stands for itself in a part. */
static bool append_escaped(struct key *key, uint8_t c)
{
        static const char hex[] = "0123456789ABCDEF";
        if (is_bare(c) && c != ':' && c != '%')
                return append(key, (char)c);
        return append(key, '%') && append(key, hex[c >> 4]) && append(key, hex[c & 15]);
}

enum key_result key_join(const struct span *parts, size_t n, struct key *ret)
{
        struct key key = {0};
        if (n == 0)
                return KEY_EMPTY;
        for (size_t i = 0; i < n; i++) {
                if (parts[i].n == 0)
                        return KEY_EMPTY;
                if (i > 0 && !append(&key, ':'))
                        return KEY_TOO_LONG;
                for (size_t j = 0; j < parts[i].n; j++)
                        if (!append_escaped(&key, parts[i].p[j]))
                                return KEY_TOO_LONG;
        }
        key.text[key.n] = 0;
        *ret = key;
        return KEY_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * json_out: see json_out.h.
 */
#include "cmd/json_out.h"

#include <string.h>
#include <time.h>

#include "base/utf8.h"

static void write_string(FILE *out, const char *text, size_t n)
{
        const unsigned char *p = (const unsigned char *)text;
        fputc('"', out);
        while (n > 0) {
                size_t len = utf8_char(span_of(p, n));
                if (len == 0) {
                        fputs("\\ufffd", out);
                        len = 1;
                } else if (len > 1) {
                        fwrite(p, 1, len, out);
                } else if (*p == '"' || *p == '\\') {
                        fprintf(out, "\\%c", *p);
                } else if (*p < 0x20 || *p == 0x7f) {
                        fprintf(out, "\\u%04x", *p);
                } else {
                        fputc(*p, out);
                }
                p += len;
                n -= len;
        }
        fputc('"', out);
}

static void member(struct json_out *js, const char *name)
{
        if (js->comma)
                fputs(", ", js->out);
        js->comma = true;
        fprintf(js->out, "\"%s\": ", name);
}

void json_begin(struct json_out *js, FILE *out)
{
        *js = (struct json_out){.out = out};
        fputc('{', out);
}

void json_end(struct json_out *js)
{
        fputs("}\n", js->out);
}

void json_text(struct json_out *js, const char *name, const char *text)
{
        member(js, name);
        write_string(js->out, text, strlen(text));
}

void json_bytes(struct json_out *js, const char *name, const void *p, size_t n)
{
        member(js, name);
        if (p)
                write_string(js->out, p, n);
        else
                fputs("null", js->out);
}

void json_plain(struct json_out *js, const char *name, const char *value)
{
        member(js, name);
        fputs(value, js->out);
}

void json_hex(struct json_out *js, const char *name, const unsigned char *p, size_t n)
{
        member(js, name);
        fputc('"', js->out);
        for (size_t i = 0; i < n; i++)
                fprintf(js->out, "%02x", p[i]);
        fputc('"', js->out);
}

void json_number(struct json_out *js, const char *name, int64_t number)
{
        member(js, name);
        fprintf(js->out, "%lld", (long long)number);
}

void json_bool(struct json_out *js, const char *name, bool value)
{
        member(js, name);
        fputs(value ? "true" : "false", js->out);
}

void json_time_us(struct json_out *js, const char *name, int64_t us)
{
        char text[TIME_TEXT_BYTES_MAX];
        member(js, name);
        if (us <= 0) {
                fputs("null", js->out);
                return;
        }
        time_format_us(us, 'T', text);
        fprintf(js->out, "\"%s\"", text);
}

void json_pairs_begin(struct json_out *js, const char *name)
{
        member(js, name);
        fputc('[', js->out);
        js->comma = false;
}

void json_pair(struct json_out *js, const char *a, size_t a_len, const char *b, size_t b_len)
{
        fputs(js->comma ? ", [" : "[", js->out);
        js->comma = true;
        write_string(js->out, a, a_len);
        fputs(", ", js->out);
        write_string(js->out, b, b_len);
        fputc(']', js->out);
}

void json_pairs_end(struct json_out *js)
{
        fputc(']', js->out);
        js->comma = true;
}

void time_format_us(int64_t us, char separator, char *ret)
{
        time_t seconds = (time_t)(us / 1000000);
        struct tm tm;
        if (!gmtime_r(&seconds, &tm) ||
            strftime(ret, TIME_TEXT_BYTES_MAX, "%Y-%m-%d %H:%M:%SZ", &tm) == 0)
                (void)snprintf(ret, TIME_TEXT_BYTES_MAX, "?");
        else if (strlen(ret) > 10)
                ret[strlen(ret) - 10] = separator;
}

void hex_format(const unsigned char *p, size_t n, char *ret)
{
        static const char digits[] = "0123456789abcdef";
        for (size_t i = 0; i < n; i++) {
                ret[2 * i] = digits[p[i] >> 4];
                ret[2 * i + 1] = digits[p[i] & 15];
        }
        ret[2 * n] = 0;
}

bool hex_parse(const char *text, unsigned char *ret, size_t n)
{
        if (strlen(text) != 2 * n)
                return false;
        for (size_t i = 0; i < 2 * n; i++) {
                char c = text[i];
                int v = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
                if (v < 0)
                        return false;
                ret[i / 2] = (unsigned char)(i % 2 ? (ret[i / 2] << 4) | v : v);
        }
        return true;
}

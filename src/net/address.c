/* SPDX-License-Identifier: Apache-2.0
 *
 * address: see address.h.
 */
#include "net/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static semel_code bad(const char *text, semel_error *err)
{
        return err_set(err, SEMEL_ERR_ARGUMENT,
                       "\"%.100s\" is no address: write HOST:PORT, :PORT, [IPv6]:PORT or unix:/path",
                       text);
}

static bool parse_port(const char *text, uint16_t *ret)
{
        unsigned long v = 0;
        size_t n = strlen(text);
        if (n < 1 || n > 5)
                return false;
        for (; *text; text++) {
                if (*text < '0' || *text > '9')
                        return false;
                v = v * 10 + (unsigned long)(*text - '0');
        }
        if (v > 65535)
                return false;
        *ret = (uint16_t)v;
        return true;
}

/* Split HOST:PORT; the host of an IPv6 address is in brackets. */
static bool split(const char *text, const char *default_port, struct address *a)
{
        const char *host = text, *end, *port;
        if (*text == '[') {
                host = text + 1;
                end = strchr(host, ']');
                if (!end)
                        return false;
                port = end + 1;
        } else {
                end = strrchr(text, ':');
                if (!end)
                        end = text + strlen(text);
                if (memchr(text, ':', (size_t)(end - text)))
                        return false; /* an IPv6 address without brackets */
                port = end;
        }
        if (*port == ':')
                port++;
        else if (*port == 0 && default_port)
                port = default_port;
        else
                return false;
        if ((size_t)(end - host) > ADDRESS_HOST_BYTES || !parse_port(port, &a->port))
                return false;
        memcpy(a->host, host, (size_t)(end - host));
        a->host[end - host] = 0;
        return true;
}

static semel_code parse_unix(const char *text, struct address *ret, semel_error *err)
{
        const char *path = text + strlen("unix:");
        size_t n = strlen(path);
        if (n == 0 || n > ADDRESS_PATH_BYTES)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "the path of a unix socket must be 1 to %d bytes long",
                               ADDRESS_PATH_BYTES);
        *ret = (struct address){.is_unix = true};
        memcpy(ret->path, path, n + 1);
        return SEMEL_OK;
}

semel_code address_parse(const char *text, struct address *ret, semel_error *err)
{
        struct address a = {0};
        if (strncmp(text, "unix:", 5) == 0)
                return parse_unix(text, ret, err);
        if (!split(text, NULL, &a))
                return bad(text, err);
        *ret = a;
        return SEMEL_OK;
}

semel_code address_parse_url(const char *url, struct address *ret, semel_error *err)
{
        struct address a = {0};
        char authority[ADDRESS_HOST_BYTES + 16];
        if (strncmp(url, "unix:", 5) == 0)
                return parse_unix(url, ret, err);
        if (strncmp(url, "http://", 7) != 0)
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "\"%.100s\" is no upstream: write http://HOST:PORT or unix:/path", url);
        size_t n = strcspn(url + 7, "/?#@");
        const char *rest = url + 7 + n;
        if (n == 0 || n >= sizeof authority || (strcmp(rest, "") != 0 && strcmp(rest, "/") != 0))
                return err_set(err, SEMEL_ERR_ARGUMENT,
                               "\"%.100s\": an upstream is http://HOST:PORT without a path, query or "
                               "user: requests keep their own",
                               url);
        memcpy(authority, url + 7, n);
        authority[n] = 0;
        if (!split(authority, "80", &a) || a.host[0] == 0)
                return bad(authority, err);
        *ret = a;
        return SEMEL_OK;
}

void address_format(const struct address *a, char *out, size_t size)
{
        if (a->is_unix)
                (void)snprintf(out, size, "unix:%s", a->path);
        else if (strchr(a->host, ':'))
                (void)snprintf(out, size, "[%s]:%u", a->host, a->port);
        else
                (void)snprintf(out, size, "%s:%u", a->host, a->port);
}

bool address_is_loopback(const struct address *a)
{
        struct in_addr v4;
        struct in6_addr v6;
        if (a->is_unix || strcmp(a->host, "localhost") == 0)
                return true;
        if (inet_pton(AF_INET, a->host, &v4) == 1)
                return ntohl(v4.s_addr) >> 24 == 127;
        return inet_pton(AF_INET6, a->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * address: where to listen and where to connect, as people write it.
 *
 *     127.0.0.1:8080   :8080   [::1]:8080   localhost:8080   unix:/run/semel.sock
 */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <semel/error.h>

enum { ADDRESS_HOST_BYTES = 255, ADDRESS_PATH_BYTES = 107 /* of sockaddr_un, less its NUL */ };

struct address {
        bool is_unix;
        char host[ADDRESS_HOST_BYTES + 1]; /* without brackets; empty: every interface */
        uint16_t port;
        char path[ADDRESS_PATH_BYTES + 1];
};

/* Parse.  Errors: SEMEL_ERR_ARGUMENT, and the text shows how it is written. */
semel_code address_parse(const char *text, struct address *ret, semel_error *err);

/* Parse the URL of an upstream: http://HOST[:PORT] or unix:/path; no path, query or user. */
semel_code address_parse_url(const char *url, struct address *ret, semel_error *err);

/* As address_parse() reads it. */
void address_format(const struct address *a, char *out, size_t size);

/* Only this machine can reach it: 127.0.0.0/8, ::1, localhost, a unix socket. */
bool address_is_loopback(const struct address *a);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * admin: the operators' listener: /healthz, /readyz, /metrics, on the engine that serves clients.
 *
 * Off unless asked for.  An address that other machines reach is refused without a token.
 */
#ifndef APP_ADMIN_H
#define APP_ADMIN_H

#include "net/http_server.h"

struct admin;

/* What a daemon tells. */
struct admin_source {
        bool (*ready)(void *arg);
        int (*metrics)(void *arg, struct buf *out); /* Prometheus' text form */
        void *arg;
};

/* address    as address_parse() reads it.
 * token_file NULL or empty: none.  The token is read once; its file must not be readable by
 *            others.
 * Errors: SEMEL_ERR_ARGUMENT (address, token, or both do not do: says why). */
semel_code admin_new(struct loop *loop, struct deadline_list *deadlines, const char *address,
                     const char *token_file, const struct admin_source *source,
                     struct admin **ret_admin, semel_error *err);
uint16_t admin_port(const struct admin *admin);
void admin_free(struct admin *admin); /* NULL is fine */

#endif

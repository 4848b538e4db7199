/* SPDX-License-Identifier: Apache-2.0
 *
 * list: reading, which needs no key: one resource by id, or a page of them.
 */
#ifndef SHOP_LIST_H
#define SHOP_LIST_H

#include "shop.h"

typedef json_t *(*row_json_fn)(const char *const *cells);

/* 200 with the row of req->id, or 404. */
semel_reply *get_reply(struct shop *shop, struct request *req, enum db_statement stmt,
                       row_json_fn fn);

/* 200 with {NAME: [...], "next": the URL of the next page or null}; ?limit=N&after=ID. */
semel_reply *list_reply(struct shop *shop, struct request *req, enum db_statement stmt,
                        const char *name, row_json_fn fn);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_select: which row a person means: by id, or by the key's text with or without mode,
 * scope and principal.
 */
#ifndef CMD_KEYS_SELECT_H
#define CMD_KEYS_SELECT_H

#include <semel/keys.h>

#include "cmd/options.h"

/* Errors: SEMEL_ERR_ARGUMENT (bad id, no key), SEMEL_ERR_NOT_FOUND, SEMEL_ERR_REFUSED (several
 * keys have this text: says how to name one), and the store's. */
semel_code keys_select(semel_store *st, const struct options *o, semel_key_row **ret_row,
                       semel_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: what the program may ask beyond semel/keys.h.
 */
#ifndef API_KEYS_H
#define API_KEYS_H

#include <semel/keys.h>

/* Would semel_keys_resolve() have been refused when the row was read?  With its error.  To be asked
 * before a person is sent to look at the other side: what is seen there too early decides nothing. */
semel_code keys_may_resolve(const semel_key_row *shown, semel_resolve what, semel_error *err);

#endif

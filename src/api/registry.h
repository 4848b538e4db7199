/* SPDX-License-Identifier: Apache-2.0
 *
 * registry: the drivers that were made known, by URL scheme.
 */
#ifndef API_REGISTRY_H
#define API_REGISTRY_H

#include "store/store.h"

/* Exported by libsemel for the driver libraries.  `driver` must live for ever.  Making the
 * same scheme known twice is harmless. */
SEMEL_API void semel_internal_driver_register(const struct store_driver *driver);

/* Exported by libsemel for libraries that open sessions themselves: registry_find(). */
SEMEL_API semel_code semel_internal_driver_find(const char *url,
                                                const struct store_driver **ret_driver,
                                                semel_error *err);

/* The driver of a URL.  Errors: SEMEL_ERR_URL, SEMEL_ERR_NOT_LINKED (says which library to link). */
semel_code registry_find(const char *url, const struct store_driver **ret_driver,
                         semel_error *err);

#endif

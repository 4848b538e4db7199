/* SPDX-License-Identifier: Apache-2.0
 *
 * registry: see registry.h.
 */
#include "api/registry.h"

#include <pthread.h>

#include "store/memory/memory.h"

enum { DRIVERS_MAX = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct store_driver *drivers[DRIVERS_MAX] = {&store_memory_driver};

void semel_internal_driver_register(const struct store_driver *driver)
{
        pthread_mutex_lock(&lock);
        int i = 0;
        while (i < DRIVERS_MAX - 1 && drivers[i] && strcmp(drivers[i]->scheme, driver->scheme) != 0)
                i++;
        drivers[i] = driver;
        pthread_mutex_unlock(&lock);
}

/* Schemes, and what to link for them. */
static const struct {
        const char *scheme, *driver, *library, *call;
} known[] = {
        {"memory", "memory", "semel", ""},
        {"sqlite", "sqlite", "semel-sqlite", "semel_sqlite_register()"},
        {"postgres", "postgres", "semel-postgres", "semel_postgres_register()"},
        {"postgresql", "postgres", "semel-postgres", "semel_postgres_register()"},
};

static const struct store_driver *driver_named(const char *scheme)
{
        const struct store_driver *found = NULL;
        pthread_mutex_lock(&lock);
        for (int i = 0; i < DRIVERS_MAX && drivers[i]; i++)
                if (strcmp(drivers[i]->scheme, scheme) == 0)
                        found = drivers[i];
        pthread_mutex_unlock(&lock);
        return found;
}

semel_code registry_find(const char *url, const struct store_driver **ret_driver,
                         semel_error *err)
{
        const char *colon = strchr(url, ':');
        size_t n = colon ? (size_t)(colon - url) : 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
                if (n != strlen(known[i].scheme) || memcmp(url, known[i].scheme, n) != 0)
                        continue;
                const struct store_driver *driver = driver_named(known[i].driver);
                if (!driver)
                        return err_set(err, SEMEL_ERR_NOT_LINKED,
                                       "%s: stores need lib%s: link with -l%s and call %s first",
                                       known[i].scheme, known[i].library, known[i].library,
                                       known[i].call);
                *ret_driver = driver;
                return SEMEL_OK;
        }
        return err_set(err, SEMEL_ERR_URL,
                       "a store URL begins with memory:, sqlite:PATH or postgres://");
}

semel_code semel_internal_driver_find(const char *url, const struct store_driver **ret_driver,
                                      semel_error *err)
{
        return registry_find(url, ret_driver, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * pg_url: what a store URL says: libpq's own parameters, and ours, which libpq does not know:
 *
 *     postgres://user@host:port/database?semel_connections=3&semel_prepare=auto
 *
 *     semel_connections=N   how many connections (1 .. 16)
 *     semel_prepare=WORD    on, off, auto: prepared statements and session settings; auto looks
 *                           whether a pooler is in between
 *     semel_reap_s=N        after how many seconds a half-sent batch of ours is ended (rule B3)
 *
 * `postgres:` and a libpq connection string with blanks works too.  A password is never
 * part of an error's text.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/postgres/pg_store.h"

enum { KEYWORDS_MAX = 63 };

static semel_code no_memory(semel_error *err)
{
        return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a store URL");
}

static semel_code parse_ours(struct pg_config *config, struct span name, const char *value,
                             semel_error *err)
{
        char *end;
        long n = strtol(value, &end, 10);
        bool is_number = *value && !*end;
        if (span_eq(name, span_str("semel_connections")) && is_number && n >= 1 &&
            n <= PG_LINKS_MAX) {
                config->links = (int)n;
                return SEMEL_OK;
        }
        if (span_eq(name, span_str("semel_reap_s")) && is_number && n >= 1 && n <= 3600) {
                config->reap_us = n * SECOND;
                return SEMEL_OK;
        }
        if (span_eq(name, span_str("semel_prepare"))) {
                static const char *const words[] = {"auto", "off", "on"};
                for (int i = 0; i < 3; i++) {
                        if (strcmp(value, words[i]) == 0) {
                                config->prepare = i - 1;
                                return SEMEL_OK;
                        }
                }
        }
        return err_set(err, SEMEL_ERR_URL,
                       "the URL's parameter %.*s is not known or out of range: there are "
                       "semel_connections=1..%d, semel_prepare=auto|on|off, semel_reap_s=1..3600",
                       (int)name.n, (const char *)name.p, PG_LINKS_MAX);
}

/* Copy the URL without our parameters, which are parsed. */
static semel_code strip_ours(const char *url, char *out, struct pg_config *config,
                             semel_error *err)
{
        const char *query = strchr(url, '?');
        size_t n = query ? (size_t)(query - url) : strlen(url);
        memcpy(out, url, n);
        char sep = '?';
        while (query) {
                const char *p = query + 1;
                size_t len = strcspn(p, "&");
                query = p[len] ? p + len : NULL;
                if (strncmp(p, "semel_", 6) != 0) {
                        out[n++] = sep;
                        memcpy(out + n, p, len);
                        n += len;
                        sep = '&';
                        continue;
                }
                char value[16];
                size_t name_n = strcspn(p, "=&");
                (void)snprintf(value, sizeof value, "%.*s",
                               name_n < len ? (int)(len - name_n - 1) : 0, p + name_n + 1);
                semel_code code = parse_ours(config, span_of(p, name_n), value, err);
                if (code != SEMEL_OK)
                        return code;
        }
        out[n] = '\0';
        return SEMEL_OK;
}

static int config_set(struct pg_config *config, int *n, const char *keyword, const char *value)
{
        if (*n == KEYWORDS_MAX)
                return -1;
        config->keywords[*n] = strdup(keyword);
        config->values[*n] = strdup(value);
        (*n)++;
        return config->keywords[*n - 1] && config->values[*n - 1] ? 0 : -1;
}

/* What we want unless the URL says otherwise. */
static int set_defaults(struct pg_config *config, int *n, const PQconninfoOption *options)
{
        static const char *const defaults[][2] = {
                /* A peer that is gone without a word is noticed in seconds, not hours. */
                {"tcp_user_timeout", "3000"},
                {"keepalives_idle", "10"},
                {"keepalives_interval", "2"},
                {"keepalives_count", "3"},
        };
        bool many_hosts = false;
        for (const PQconninfoOption *o = options; o->keyword; o++) {
                if (strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0)
                        many_hosts |= o->val && strchr(o->val, ',');
        }
        for (const PQconninfoOption *o = options; o->keyword; o++) {
                if (o->val && *o->val)
                        continue;
                for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
                        if (strcmp(o->keyword, defaults[i][0]) == 0 &&
                            config_set(config, n, defaults[i][0], defaults[i][1]) < 0)
                                return -1;
                }
                /* With one host our own check says more than "session is read-only" (O56). */
                if (many_hosts && strcmp(o->keyword, "target_session_attrs") == 0 &&
                    config_set(config, n, "target_session_attrs", "read-write") < 0)
                        return -1;
        }
        /* Ours whatever the URL says: the reaper knows our backends by it (B3). */
        char name[64];
        (void)snprintf(name, sizeof name, "semel/%.40s", program_invocation_short_name);
        return config_set(config, n, "application_name", name) < 0 ||
                               config_set(config, n, "client_encoding", "UTF8") < 0
                       ? -1
                       : 0;
}

semel_code pg_config_parse(const char *url, struct pg_config *config, semel_error *err)
{
        *config = (struct pg_config){
                .links = PG_LINKS_DEFAULT, .prepare = -1, .reap_us = PG_REAP_US};
        bool is_uri = strncmp(url, "postgres://", 11) == 0 ||
                      strncmp(url, "postgresql://", 13) == 0;
        if (!is_uri && strncmp(url, "postgres:", 9) != 0)
                return err_set(err, SEMEL_ERR_URL,
                               "a PostgreSQL store is postgres://user@host:port/database");

        char *libpq_url = malloc(strlen(url) + 1);
        if (!libpq_url)
                return no_memory(err);
        PQconninfoOption *options = NULL;
        semel_code code = SEMEL_OK;
        if (is_uri)
                code = strip_ours(url, libpq_url, config, err);
        else
                memcpy(libpq_url, url + 9, strlen(url + 9) + 1);
        if (code != SEMEL_OK)
                goto out;
        options = PQconninfoParse(libpq_url, NULL);
        if (!options) { /* libpq's own text would show the password */
                code = err_set(err, SEMEL_ERR_URL,
                               "libpq does not understand the PostgreSQL URL; it is "
                               "postgres://user@host:port/database?parameter=value, with %%xx for "
                               "special characters");
                goto out;
        }
        int n = 0;
        int rc = 0;
        for (const PQconninfoOption *o = options; o->keyword && rc == 0; o++) {
                if (o->val && strcmp(o->keyword, "application_name") != 0 &&
                    strcmp(o->keyword, "client_encoding") != 0)
                        rc = config_set(config, &n, o->keyword, o->val);
        }
        if (rc < 0 || set_defaults(config, &n, options) < 0) {
                pg_config_release(config);
                code = no_memory(err);
        }
out:
        PQconninfoFree(options);
        free(libpq_url);
        return code;
}

void pg_config_release(struct pg_config *config)
{
        for (int i = 0; i <= KEYWORDS_MAX; i++) {
                free(config->keywords[i]);
                free(config->values[i]);
                config->keywords[i] = config->values[i] = NULL;
        }
}

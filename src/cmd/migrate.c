/* SPDX-License-Identifier: Apache-2.0
 *
 * migrate: `semel migrate`: makes or upgrades the schema, or prints what it would do.
 */
#include <string.h>

#include "api/registry.h"
#include "base/err.h"
#include "cmd/open_store.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"

/* A schema with all its functions is some tens of KiB. */
enum { PRINT_BYTES_MAX = 4 * 1024 * 1024 };

/* Print what was made; release it. */
static int show_script(struct buf *script, const semel_error *err)
{
        int rc;
        if (err->code != SEMEL_OK) {
                rc = say_failure(err);
        } else {
                (void)fwrite(script->p, 1, script->n, stdout);
                rc = say_flush();
        }
        buf_release(script);
        return rc;
}

static int print_script(const struct store_driver *driver, const char *what, const char *role)
{
        struct semel_error err = {0};
        struct buf script;
        buf_init(&script, PRINT_BYTES_MAX);
        if (!driver->print)
                (void)err_set(&err, SEMEL_ERR_ARGUMENT, "a %s store has no %s to print",
                              driver->scheme, what);
        else
                (void)driver->print(what, role, &script, &err);
        return show_script(&script, &err);
}

/* The ALTERs for a table of the user's. */
static int print_for_table(const struct store_driver *driver, const struct options *o)
{
        const struct outbox_mapping mapping = {.preset = option_text(o, OPT_PRESET),
                                               .table = option_text(o, OPT_FOR_TABLE),
                                               .renamed_from = option_text(o, OPT_RENAMED_FROM),
                                               .unordered = option_flag(o, OPT_UNORDERED)};
        struct semel_error err = {0};
        struct buf script;
        buf_init(&script, PRINT_BYTES_MAX);
        if (!driver->print_mapping)
                (void)err_set(&err, SEMEL_ERR_ARGUMENT, "a %s store has no outbox", driver->scheme);
        else
                (void)driver->print_mapping(&mapping, &script, &err);
        return show_script(&script, &err);
}

static int migrate_run(const struct options *o)
{
        struct semel_error err = {0};
        char space[STORE_URL_BYTES_MAX];
        const char *url, *role = option_text(o, OPT_GRANTS);
        const struct store_driver *driver;
        if (o->positional_count > 0 || o->rest) {
                say_error("migrate takes no arguments, only options: semel migrate --db URL");
                return EXIT_CODE_USAGE;
        }
        if (role && !*role) {
                say_error("--grants needs the name of a role: --grants ROLE");
                return EXIT_CODE_USAGE;
        }
        if (option_text(o, OPT_ONLY) && !role) {
                say_error("--only goes with --grants ROLE");
                return EXIT_CODE_USAGE;
        }
        if (option_text(o, OPT_RENAMED_FROM) && !option_text(o, OPT_FOR_TABLE)) {
                say_error("--renamed-from goes with --for-table TABLE");
                return EXIT_CODE_USAGE;
        }
        if (store_url(o, &url, space, &err) != SEMEL_OK ||
            registry_find(url, &driver, &err) != SEMEL_OK)
                return say_failure(&err);
        if (option_text(o, OPT_FOR_TABLE))
                return print_for_table(driver, o);
        if (role)
                return print_script(driver, option_text(o, OPT_ONLY) ? "append-grants" : "grants",
                                    role);
        if (option_flag(o, OPT_PRINT))
                return print_script(driver, "schema", NULL);
        if (driver->migrate && driver->migrate(url, &err) != SEMEL_OK)
                return say_failure(&err);
        const char *notify = option_text(o, OPT_NOTIFY);
        if (notify && !driver->notify) {
                say_error("--notify is for PostgreSQL: relays on a %s store poll", driver->scheme);
                return EXIT_CODE_USAGE;
        }
        if (notify && driver->notify(url, strcmp(notify, "on") == 0, &err) != SEMEL_OK)
                return say_failure(&err);
        say_note("the schema is up to date");
        return EXIT_CODE_DONE;
}

static const enum option_id migrate_options[] = {OPT_DB, OPT_PRINT, OPT_GRANTS, OPT_ONLY,
                                                 OPT_FOR_TABLE, OPT_PRESET, OPT_UNORDERED, OPT_RENAMED_FROM, OPT_NOTIFY,
                                                 OPT_QUIET};

const struct subcommand subcommand_migrate = {
        .name = "migrate",
        .usage = "[--db URL] [--notify on|off] [--print | --grants ROLE [--only append] | --for-table TABLE --preset NAME [--unordered] [--renamed-from TABLE]]",
        .summary = "make or upgrade the tables of a store",
        .text = "Makes the schema, or brings an older one up to date, in one transaction; running it\n"
                "again changes nothing.  PostgreSQL needs it before first use, by a role that may\n"
                "create a schema; the programs then run as a role that may not.  SQLite files\n"
                "migrate themselves when they are opened.\n",
        .examples = "semel migrate --db postgres://owner@db/shop\n"
                    "semel migrate --print --db postgres:                   # for review\n"
                    "semel migrate --grants app --db postgres: | psql shop  # least privilege\n"
                    "semel migrate --grants shop --only append --db postgres: | psql shop\n"
                    "semel migrate --for-table outbox_event --preset tutorial --db postgres:\n",
        .options = OPTION_SET(migrate_options),
        .run = migrate_run,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * shop: an example service on libsemel: sellers and products over HTTP, every command wrapped
 * so that a retried request does not run twice.
 *
 * Uses nothing of semel but its public headers.  Read idempotent.c first.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/sqlite.h>

#include "shop.h"

enum { EXIT_USAGE = 64, EXIT_DOWN = 69, EXIT_CUT = 75 };

static const char help[] =
        "shop - an example service whose commands run once per idempotency key\n"
        "\n"
        "usage: shop --store URL [--listen HOST:PORT] [--mode MODE] [options]\n"
        "\n"
        "  --store URL      sqlite:PATH (made when missing), or postgres://... after\n"
        "                   `semel migrate --db URL`; keys and products live there side by side\n"
        "                   (straight to the server, not through a pooler's transaction mode)\n"
        "  --listen H:P     default 127.0.0.1:8080; port 0 takes a free one and prints it\n"
        "  --mode MODE      how a command is kept from running twice:\n"
        "      transaction  key, product and reply commit together or not at all: exactly once\n"
        "                   (default)\n"
        "      reserve      claim the key, run, keep the reply.  After a crash in between the\n"
        "                   next caller takes over when the lease is over: at least once\n"
        "      naive        look, run, store: wrong, two at a time both run.  To watch it fail\n"
        "  --charge HOW     what confirming an order does:\n"
        "      event        order and event OrderConfirmed commit together, for the relay to publish\n"
        "                   to the topic `orders`; its consumer charges (default)\n"
        "      direct       the provider is called, with the key order_id:charge:request_id\n"
        "  --pay-url URL    direct: where charges are POSTed to\n"
        "  --charge-ms N    direct: at most so long, all attempts together (20000)\n"
        "  --lease-ms N     reserve: how long a claim is trusted, 1 .. 86400000 (60000); must be\n"
        "                   longer than the slowest command\n"
        "  --work-ms N      how slow a command is: it sleeps so long before it writes (0)\n"
        "  --wait-ms N      how long a duplicate waits for the running one before it gets 409,\n"
        "                   0 .. 30000 (0; in mode transaction 5000)\n"
        "  --crash-after-effect\n"
        "                   die by SIGKILL after a command's write, before its reply is kept\n"
        "\n"
        "try it:\n"
        "  shop --store sqlite:shop.db &\n"
        "  curl -i localhost:8080/api/v1/sellers -H 'Content-Type: application/json' \\\n"
        "       -H 'Idempotency-Key: seller-1' -d '{\"name\":\"Ada\"}'\n"
        "  (again: the same bytes, and Idempotent-Replayed: true)\n"
        "\n"
        "  POST GET /api/v1/sellers    GET PUT DELETE /api/v1/sellers/ID    name\n"
        "  POST GET /api/v1/products   GET PUT DELETE /api/v1/products/ID   name,\n"
        "       price_minor_units, currency, seller_id\n"
        "  POST GET /api/v1/orders     GET /api/v1/orders/ID   customer_id, total_kopecks\n"
        "  POST /api/v1/orders/ID/confirm                      request_id (made once by the client)\n"
        "  The key is the header Idempotency-Key, else the body's idempotency_key.  Two users\n"
        "  (Authorization headers) never share a key.\n"
        "\n"
        "SIGTERM: not ready any more (/readyz), accepts no more after --drain-delay-ms (0), finishes\n"
        "what runs, exits 0, or 75 if that takes longer than --shutdown-ms (25000); a second one\n"
        "exits at once.  Exit codes: 64 usage, 69 the database cannot be used.\n";

static int usage(const char *what, const char *arg)
{
        fprintf(stderr, "shop: %s%s (see shop --help)\n", what, arg);
        return EXIT_USAGE;
}

static bool number(const char *text, int64_t min, int64_t max, int64_t *ret)
{
        char *end;
        long long v;
        errno = 0;
        v = strtoll(text, &end, 10);
        if (end == text || *end || errno || v < min || v > max)
                return false;
        *ret = v;
        return true;
}

static bool mode_parse(const char *text, enum shop_mode *ret)
{
        static const char *const names[] = {[MODE_RESERVE] = "reserve",
                                            [MODE_TRANSACTION] = "transaction",
                                            [MODE_NAIVE] = "naive"};
        for (int i = 0; i < 3; i++)
                if (strcmp(text, names[i]) == 0) {
                        *ret = (enum shop_mode)i;
                        return true;
                }
        return false;
}

static bool charge_parse(const char *text, enum shop_charge *ret)
{
        *ret = strcmp(text, "direct") == 0 ? CHARGE_DIRECT : CHARGE_EVENT;
        return *ret == CHARGE_DIRECT || strcmp(text, "event") == 0;
}

/* 0: go on; else the exit code + 1. */
static int options_parse(int argc, char **argv, struct options *opt)
{
        static const struct option table[] = {
                {"listen", required_argument, NULL, 'l'},
                {"store", required_argument, NULL, 's'},
                {"db", required_argument, NULL, 's'},
                {"mode", required_argument, NULL, 'm'},
                {"lease-ms", required_argument, NULL, 'L'},
                {"work-ms", required_argument, NULL, 'W'},
                {"wait-ms", required_argument, NULL, 'w'},
                {"charge", required_argument, NULL, 'C'},
                {"pay-url", required_argument, NULL, 'p'},
                {"charge-ms", required_argument, NULL, 'R'},
                {"drain-delay-ms", required_argument, NULL, 'd'},
                {"shutdown-ms", required_argument, NULL, 'S'},
                {"crash-after-effect", no_argument, NULL, 'c'},
                {"help", no_argument, NULL, 'h'},
                {"version", no_argument, NULL, 'v'},
                {NULL, 0, NULL, 0}};
        int c;

        while ((c = getopt_long(argc, argv, "h", table, NULL)) != -1) {
                bool ok = true;
                switch (c) {
                case 'l': opt->listen = optarg; break;
                case 's': opt->store_url = optarg; break;
                case 'm': ok = mode_parse(optarg, &opt->mode); break;
                case 'L': ok = number(optarg, 1, 86400000, &opt->lease_ms); break;
                case 'W': ok = number(optarg, 0, 3600000, &opt->work_ms); break;
                case 'w': ok = number(optarg, 0, 30000, &opt->wait_ms); break;
                case 'C': ok = charge_parse(optarg, &opt->charge); break;
                case 'p': opt->pay_url = optarg; break;
                case 'R': ok = number(optarg, 1, 600000, &opt->charge_ms); break;
                case 'd': ok = number(optarg, 0, 3600000, &opt->drain_delay_ms); break;
                case 'S': ok = number(optarg, 1, 3600000, &opt->shutdown_ms); break;
                case 'c': opt->crash_after_effect = true; break;
                case 'h': fputs(help, stdout); return 1;
                case 'v': puts("shop " SEMEL_VERSION); return 1;
                default: return usage("cannot understand the options", "") + 1;
                }
                if (!ok)
                        return usage("not a value of that option: ", optarg) + 1;
        }
        if (optind < argc)
                return usage("not an option: ", argv[optind]) + 1;
        if (!opt->store_url)
                return usage("where are keys and products to live? --store ",
                             "sqlite:PATH or --store postgres://...") + 1;
        if (opt->charge == CHARGE_DIRECT && !opt->pay_url)
                return usage("who is to be asked for the money? --pay-url ",
                             "http://HOST:PORT/charges") + 1;
        if (opt->wait_ms < 0)
                opt->wait_ms = opt->mode == MODE_TRANSACTION ? 5000 : 0;
        return 0;
}

/* The business tables, and the keys beside them. */
static bool shop_open(struct shop *shop, char *why)
{
        semel_error *err = semel_error_new();
        bool ok = false;

        semel_sqlite_register();
        semel_postgres_register();
        shop->db = db_open(shop->opt->store_url, why);
        if (!shop->db || !err)
                goto out;
        /* Mode transaction goes through its own connections; opening the store says at once
         * whether the tables are there and the server is safe to use. */
        if (shop->opt->mode != MODE_NAIVE &&
            semel_store_open(shop->opt->store_url, &shop->store, err) != SEMEL_OK) {
                snprintf(why, DB_WHY_BYTES, "%s", semel_error_text(err));
                goto out;
        }
        if (shop->opt->mode == MODE_TRANSACTION) {
                semel_store_close(shop->store);
                shop->store = NULL;
        }
        ok = true;
out:
        semel_error_free(err);
        return ok;
}

static void shop_close(struct shop *shop)
{
        semel_store_close(shop->store);
        db_close(shop->db);
}

/* Serve until told to end; the exit code. */
static int serve(struct shop *shop, semel_shutdown *down)
{
        const struct options *opt = shop->opt;
        char why[HTTP_WHY_BYTES] = "no memory";
        int port = 0, left;
        struct http *http = http_start(opt->listen, shop_handle, shop, down, why, &port);

        if (!http) {
                fprintf(stderr, "shop: %s\n", why);
                return EXIT_USAGE;
        }
        printf("shop: listening on %.*s:%d\n", (int)(strrchr(opt->listen, ':') - opt->listen),
               opt->listen, port);
        fflush(stdout);
        semel_shutdown_ready(down);
        left = http_serve(http);
        if (left > 0) {
                fprintf(stderr, "shop: left %d running requests behind\n", left);
                _exit(EXIT_CUT);
        }
        http_stop(http);
        puts("shop: drained");
        return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
        struct options opt = {.listen = "127.0.0.1:8080", .mode = MODE_TRANSACTION,
                              .lease_ms = 60000, .wait_ms = -1, .shutdown_ms = 25000,
                              .charge_ms = 20000};
        struct shop shop = {.opt = &opt};
        char why[DB_WHY_BYTES] = "no memory";
        semel_shutdown *down;
        int rc = options_parse(argc, argv, &opt);

        if (rc != 0)
                return rc - 1;
        signal(SIGPIPE, SIG_IGN);
        down = semel_shutdown_new(opt.drain_delay_ms, opt.shutdown_ms, NULL);
        if (!down)
                return usage("the drain delay is part of the shutdown's time", "");
        if (shop_open(&shop, why)) {
                rc = serve(&shop, down);
        } else {
                fprintf(stderr, "shop: %s\n", why);
                rc = EXIT_DOWN;
        }
        shop_close(&shop);
        semel_shutdown_free(down);
        return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * billing: charges each confirmed order once.
 *
 *     topic `orders` --OrderConfirmed--> charge_order() --key event_id:billing--> payment provider
 *
 * Two things keep it to once.  That an event has been applied is recorded in the transaction that
 * charge_order() runs in: a redelivered event does not reach it.  A crash between the charge and that
 * commit brings the event again, with the same id; the key is made of it, so the provider answers
 * what it answered before.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <semel/consume.h>
#include <semel/key.h>
#include <semel/postgres.h>
#include <semel/sqlite.h>

#include "charge.h"

enum { EXIT_USAGE = 64, EXIT_DOWN = 69, EXIT_CUT = 75, CHARGE_MS = 20000, CUT_MS = 200,
       SET_MAX = 32 };

static const char help[] =
        "billing - charges each confirmed order of the topic once\n"
        "\n"
        "usage: billing --db URL --brokers HOST:PORT --pay-url URL [options]\n"
        "\n"
        "  --db URL         where it is recorded which events were applied: sqlite:PATH, or\n"
        "                   postgres://... after `semel migrate --db URL`\n"
        "  --brokers LIST   HOST:PORT,... of Kafka\n"
        "  --topic NAME     default orders\n"
        "  --group NAME     default billing\n"
        "  --pay-url URL    where charges are POSTed to, such as http://127.0.0.1:8090/charges\n"
        "  --set NAME=VALUE an option of `semel consume` by its name, such as attempts-max=20\n"
        "  --shutdown-ms N  how long what has begun may take to end (25000)\n"
        "\n"
        "SIGTERM: takes no more events, finishes what runs, commits, exits 0 (75 if that takes\n"
        "longer than --shutdown-ms); a second one exits at once.  Exit codes: 64 usage, 69 database\n"
        "or broker cannot be used.\n";

/* One event, inside the transaction that records it. */
static int charge_order(void *arg, const semel_message *msg, struct pg_conn *pg, struct sqlite3 *db,
                        semel_error *why)
{
        const char *pay_url = arg, *order_id = NULL, *customer_id = NULL;
        const char *const parts[] = {semel_message_id(msg), "billing"};
        char key[SEMEL_KEY_BYTES_MAX + 1], reason[CHARGE_WHY_BYTES];
        json_int_t total = 0;
        size_t n = 0;
        const void *payload = semel_message_payload(msg, &n);
        json_t *event = payload ? json_loadb(payload, n, 0, NULL) : NULL;
        int rc = 0;

        (void)pg; /* a service with tables of its own would write them here */
        (void)db;
        if (json_unpack(event, "{s:s, s:s, s:I}", "order_id", &order_id, "customer_id",
                        &customer_id, "total_kopecks", &total) != 0)
                rc = semel_consume_fail(why, "not an OrderConfirmed: order_id, customer_id and "
                                             "total_kopecks are expected");
        else if (semel_key_join(parts, 2, key, why) != SEMEL_OK)
                rc = -1;
        else if (charge(pay_url, key, order_id, customer_id, total, CHARGE_MS, reason) !=
                 CHARGE_DONE)
                rc = semel_consume_fail(why, reason);
        json_decref(event);
        return rc;
}

static void on_line(void *arg, const char *line)
{
        (void)arg;
        fprintf(stderr, "billing: %s\n", line);
}

/* A thread: a handler that hangs is not waited for beyond the deadline.  It is a crash like any other:
 * the event comes again, with the same key. */
static void *cut_at_the_deadline(void *arg)
{
        semel_shutdown *down = arg;
        struct pollfd p = {.fd = semel_shutdown_fd(down), .events = POLLIN};
        while (semel_shutdown_phase(down) == SEMEL_RUNNING)
                (void)poll(&p, 1, -1);
        while (semel_shutdown_phase(down) != SEMEL_OVERDUE)
                (void)poll(NULL, 0, (int)semel_shutdown_left_ms(down));
        (void)poll(NULL, 0, CUT_MS); /* what cuts itself off is given a moment */
        fputs("billing: the deadline cut off what was running\n", stderr);
        _exit(EXIT_CUT);
}

struct options {
        const char *db, *brokers, *topic, *group, *pay_url;
        int64_t shutdown_ms;
        const char *set[SET_MAX];
        int set_n;
};

static int usage(const char *what, const char *arg)
{
        fprintf(stderr, "billing: %s%s (see billing --help)\n", what, arg);
        return EXIT_USAGE;
}

static bool number(const char *text, int64_t min, int64_t max, int64_t *ret)
{
        char *end;
        errno = 0;
        long long v = strtoll(text, &end, 10);
        if (end == text || *end || errno || v < min || v > max)
                return false;
        *ret = v;
        return true;
}

/* 0: go on; else the exit code + 1. */
static int options_parse(int argc, char **argv, struct options *opt)
{
        static const struct option table[] = {
                {"db", required_argument, NULL, 'd'}, {"store", required_argument, NULL, 'd'},
                {"brokers", required_argument, NULL, 'b'}, {"topic", required_argument, NULL, 't'},
                {"group", required_argument, NULL, 'g'}, {"pay-url", required_argument, NULL, 'p'},
                {"set", required_argument, NULL, 's'}, {"shutdown-ms", required_argument, NULL, 'S'},
                {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'v'},
                {NULL, 0, NULL, 0}};
        int c;

        while ((c = getopt_long(argc, argv, "h", table, NULL)) != -1) {
                switch (c) {
                case 'd': opt->db = optarg; break;
                case 'b': opt->brokers = optarg; break;
                case 't': opt->topic = optarg; break;
                case 'g': opt->group = optarg; break;
                case 'p': opt->pay_url = optarg; break;
                case 's':
                        if (opt->set_n == SET_MAX || !strchr(optarg, '='))
                                return usage("--set wants NAME=VALUE, not ", optarg) + 1;
                        opt->set[opt->set_n++] = optarg;
                        break;
                case 'S':
                        if (!number(optarg, 1, 3600000, &opt->shutdown_ms))
                                return usage("not a number of milliseconds: ", optarg) + 1;
                        break;
                case 'h': fputs(help, stdout); return 1;
                case 'v': puts("billing " SEMEL_VERSION); return 1;
                default: return usage("cannot understand the options", "") + 1;
                }
        }
        if (optind < argc)
                return usage("not an option: ", argv[optind]) + 1;
        if (!opt->db || !opt->brokers || !opt->pay_url)
                return usage("--db, --brokers and --pay-url are needed", "") + 1;
        return 0;
}

static semel_code configure(semel_consumer *c, const struct options *opt, semel_error *err)
{
        semel_code code = semel_consumer_add_topic(c, opt->topic, err);
        for (int i = 0; code == SEMEL_OK && i < opt->set_n; i++) {
                char name[64];
                size_t n = strcspn(opt->set[i], "=");
                snprintf(name, sizeof name, "%.*s", (int)n, opt->set[i]);
                code = semel_consumer_set(c, name, opt->set[i] + n + 1, err);
        }
        return code;
}

/* Consume until told to end. */
static semel_code run(const struct options *opt, semel_shutdown *down, semel_error *err)
{
        semel_consumer *c = semel_consumer_new(opt->db, opt->brokers, opt->group, err);
        semel_code code = c ? configure(c, opt, err) : semel_error_code(err);
        pthread_t cutter;
        if (code == SEMEL_OK && pthread_create(&cutter, NULL, cut_at_the_deadline, down) != 0) {
                (void)semel_consume_fail(err, "no thread for the deadline");
                code = semel_error_code(err);
        }
        if (code == SEMEL_OK) {
                semel_consumer_on_line(c, on_line, NULL);
                semel_shutdown_ready(down);
                fprintf(stderr, "billing: waiting for events of %s\n", opt->topic);
                code = semel_consume(c, charge_order, (void *)(uintptr_t)opt->pay_url, down, err);
                pthread_cancel(cutter); /* in its poll(2) */
                pthread_join(cutter, NULL);
        }
        semel_consumer_free(c);
        return code;
}

static int exit_code(semel_code code)
{
        switch (code) {
        case SEMEL_OK: return 0;
        case SEMEL_ERR_BUSY: return EXIT_CUT;
        case SEMEL_ERR_ARGUMENT:
        case SEMEL_ERR_URL: return EXIT_USAGE;
        default: return EXIT_DOWN;
        }
}

int main(int argc, char **argv)
{
        struct options opt = {.topic = "orders", .group = "billing", .shutdown_ms = 25000};
        int rc = options_parse(argc, argv, &opt);
        if (rc != 0)
                return rc - 1;
        semel_error *err = semel_error_new();
        semel_shutdown *down = semel_shutdown_new(0, opt.shutdown_ms, err);

        semel_sqlite_register();
        semel_postgres_register();
        semel_code code = down ? run(&opt, down, err) : semel_error_code(err);
        if (code == SEMEL_OK)
                puts("billing: drained");
        else
                fprintf(stderr, "billing: %s\n", semel_error_text(err));
        semel_shutdown_free(down);
        semel_error_free(err);
        return exit_code(code);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * payd: a payment provider to practise on.  It charges once per Idempotency-Key, and otherwise
 * behaves as badly as it is told to.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <semel/key.h>
#include <semel/shutdown.h>

#include "faults.h"
#include "http.h"
#include "ledger.h"

enum { EXIT_USAGE = 64, EXIT_DOWN = 69, EXIT_CUT = 75 };

static const char help[] =
        "payd - a payment provider to practise on: it charges once per Idempotency-Key\n"
        "\n"
        "usage: payd --ledger FILE [--listen HOST:PORT] [faults]\n"
        "\n"
        "  --ledger FILE    SQLite file with keys and charges, made when missing\n"
        "  --listen H:P     default 127.0.0.1:8090; port 0 takes a free one and prints it\n"
        "  --work-ms N      every request takes this long (0)\n"
        "  --slow P         with this probability (0 .. 1) a request takes --slow-ms more (1000)\n"
        "  --fail P         500, nothing charged\n"
        "  --busy P         429 with Retry-After: 1, nothing charged\n"
        "  --cut P          charged, but the connection is closed without a reply\n"
        "  --limit N        402 for an amount above it, nothing charged\n"
        "  --seed N         of these accidents; random by default, and printed\n"
        "  --drain-delay-ms N, --shutdown-ms N   as the shop's\n"
        "\n"
        "  POST /charges {\"order_id\", \"customer_id\", \"amount\"}  Idempotency-Key: required\n"
        "  GET /ledger      {\"charges\": [...]}\n"
        "\n"
        "SIGTERM: finishes what runs, exits 0; a second one exits at once.\n";

struct payd {
        struct ledger *ledger;
        struct faults faults;
        int64_t work_ms;
        int64_t limit; /* 0: none */
};

static void sleep_ms(int64_t ms)
{
        struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        while (left.tv_sec + left.tv_nsec > 0 && nanosleep(&left, &left) != 0)
                ;
}

/* -- replies ------------------------------------------------------------------------------- */

static semel_reply *say_json(int status, const char *type, json_t *json)
{
        char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
        semel_reply *rep = semel_reply_new();
        json_decref(json);
        if (rep) {
                semel_reply_set_status(rep, text ? status : 500);
                semel_reply_add_header(rep, "Content-Type", 12, type, strlen(type), NULL);
                semel_reply_set_body(rep, text ? text : "", text ? strlen(text) : 0, NULL);
        }
        free(text);
        return rep;
}

static semel_reply *refuse(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static semel_reply *refuse(int status, const char *fmt, ...)
{
        char detail[256];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(detail, sizeof detail, fmt, ap);
        va_end(ap);
        return say_json(status, "application/problem+json",
                        json_pack("{s:s, s:i, s:s}", "type", "about:blank", "status", status,
                                  "detail", detail));
}

static semel_reply *with_header(semel_reply *rep, const char *name, const char *value)
{
        if (rep)
                semel_reply_add_header(rep, name, strlen(name), value, strlen(value), NULL);
        return rep;
}

/* -- POST /charges -------------------------------------------------------------------------- */

/* From JSON; NULL, or the reply that refuses it. */
static semel_reply *charge_parse(json_t *json, struct charge *ret)
{
        const char *order = json_string_value(json_object_get(json, "order_id"));
        const char *customer = json_string_value(json_object_get(json, "customer_id"));
        const json_t *amount = json_object_get(json, "amount");
        if (!order || !order[0] || !customer || !json_is_integer(amount) ||
            json_integer_value(amount) <= 0)
                return refuse(400, "order_id and customer_id are strings, amount a whole number "
                                   "of minor units above 0");
        ret->order_id = order;
        ret->customer_id = customer;
        ret->amount = json_integer_value(amount);
        return NULL;
}

static semel_reply *charge(struct payd *payd, const struct charge *c)
{
        semel_error *err = semel_error_new();
        semel_reply *rep = NULL;

        switch (ledger_charge(payd->ledger, c, &rep, err)) {
        case SEMEL_RAN:
                break;
        case SEMEL_REPLAYED:
                rep = with_header(rep, "Idempotent-Replayed", "true");
                break;
        case SEMEL_MISMATCH:
                semel_reply_free(rep);
                rep = refuse(422, "this Idempotency-Key was used for another charge");
                break;
        default:
                fprintf(stderr, "payd: %s\n", semel_error_text(err));
                semel_reply_free(rep);
                rep = with_header(refuse(503, "the ledger cannot be written now"), "Retry-After",
                                  "1");
                break;
        }
        semel_error_free(err);
        return rep;
}

static semel_reply *post_charge(struct payd *payd, const struct http_request *in)
{
        char key[SEMEL_KEY_BYTES_MAX + 1], *text = NULL;
        struct charge c = {.key = key};
        struct fate fate = faults_draw(&payd->faults);
        json_t *json = NULL;
        semel_reply *rep;

        if (!in->key)
                return refuse(400, "a charge needs an Idempotency-Key");
        if (semel_key_parse(in->key, strlen(in->key), key, NULL) != SEMEL_OK)
                return refuse(400, "the Idempotency-Key is malformed");
        sleep_ms(payd->work_ms + fate.sleep_ms);
        if (fate.fail)
                return refuse(500, "an accident; nothing was charged");
        if (fate.busy)
                return with_header(refuse(429, "too busy; nothing was charged"), "Retry-After",
                                   "1");
        json = json_loadb(in->body ? in->body : "", in->body_n, JSON_REJECT_DUPLICATES, NULL);
        text = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        c.request = text;
        rep = text ? charge_parse(json, &c) : refuse(400, "the body must be a JSON object");
        if (!rep && payd->limit > 0 && c.amount > payd->limit)
                rep = refuse(402, "more than the account has");
        if (!rep)
                rep = charge(payd, &c);
        if (fate.cut) {
                semel_reply_free(rep);
                rep = http_cut();
        }
        free(text);
        json_decref(json);
        return rep;
}

static semel_reply *on_request(void *arg, const struct http_request *in)
{
        struct payd *payd = arg;
        json_t *lines;

        switch (in->flaw) {
        case HTTP_FINE: break;
        case HTTP_TOO_LARGE: return refuse(413, "at most %d bytes", HTTP_BODY_BYTES_MAX);
        case HTTP_NO_MEMORY: return refuse(500, "no memory");
        case HTTP_TWO_KEYS:
        case HTTP_KEY_IN_CONNECTION: return refuse(400, "which Idempotency-Key is meant?");
        }
        if (strcmp(in->path, "/charges") == 0)
                return strcmp(in->method, "POST") == 0
                               ? post_charge(payd, in)
                               : with_header(refuse(405, "it does POST"), "Allow", "POST");
        if (strcmp(in->path, "/ledger") != 0)
                return refuse(404, "there are /charges and /ledger");
        lines = ledger_list(payd->ledger);
        return lines ? say_json(200, "application/json", json_pack("{s:o}", "charges", lines))
                     : refuse(503, "the ledger cannot be read now");
}

/* -- start ---------------------------------------------------------------------------------- */

struct options {
        const char *listen, *ledger;
        uint64_t seed;
        int64_t drain_delay_ms, shutdown_ms;
};

static int usage(const char *what, const char *arg)
{
        fprintf(stderr, "payd: %s%s (see payd --help)\n", what, arg);
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

static bool probability(const char *text, double *ret)
{
        char *end;
        double v = strtod(text, &end);
        if (end == text || *end || !(v >= 0 && v <= 1))
                return false;
        *ret = v;
        return true;
}

/* 0: go on; else the exit code + 1. */
static int options_parse(int argc, char **argv, struct payd *payd, struct options *opt)
{
        static const struct option table[] = {
                {"listen", required_argument, NULL, 'l'}, {"ledger", required_argument, NULL, 'L'},
                {"work-ms", required_argument, NULL, 'W'}, {"slow", required_argument, NULL, 's'},
                {"slow-ms", required_argument, NULL, 'M'}, {"fail", required_argument, NULL, 'f'},
                {"busy", required_argument, NULL, 'b'}, {"cut", required_argument, NULL, 'c'},
                {"limit", required_argument, NULL, 'm'}, {"seed", required_argument, NULL, 'S'},
                {"drain-delay-ms", required_argument, NULL, 'd'},
                {"shutdown-ms", required_argument, NULL, 'D'}, {"help", no_argument, NULL, 'h'},
                {"version", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
        int c;

        while ((c = getopt_long(argc, argv, "h", table, NULL)) != -1) {
                bool ok = true;
                char *end = NULL;
                switch (c) {
                case 'l': opt->listen = optarg; break;
                case 'L': opt->ledger = optarg; break;
                case 'W': ok = number(optarg, 0, 600000, &payd->work_ms); break;
                case 's': ok = probability(optarg, &payd->faults.slow); break;
                case 'M': ok = number(optarg, 0, 600000, &payd->faults.slow_ms); break;
                case 'f': ok = probability(optarg, &payd->faults.fail); break;
                case 'b': ok = probability(optarg, &payd->faults.busy); break;
                case 'c': ok = probability(optarg, &payd->faults.cut); break;
                case 'm': ok = number(optarg, 1, INT64_MAX, &payd->limit); break;
                case 'S': opt->seed = strtoull(optarg, &end, 10); ok = *optarg && !*end; break;
                case 'd': ok = number(optarg, 0, 3600000, &opt->drain_delay_ms); break;
                case 'D': ok = number(optarg, 1, 3600000, &opt->shutdown_ms); break;
                case 'h': fputs(help, stdout); return 1;
                case 'v': puts("payd " SEMEL_VERSION); return 1;
                default: return usage("cannot understand the options", "") + 1;
                }
                if (!ok)
                        return usage("not a value of that option: ", optarg) + 1;
        }
        if (optind < argc)
                return usage("not an option: ", argv[optind]) + 1;
        if (!opt->ledger)
                return usage("where is the ledger to be kept? --ledger FILE", "") + 1;
        return 0;
}

int main(int argc, char **argv)
{
        struct payd payd = {.faults = {.slow_ms = 1000}};
        struct options opt = {.listen = "127.0.0.1:8090", .shutdown_ms = 25000,
                              .seed = (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32};
        char why[LEDGER_WHY_BYTES];
        struct http *http;
        int port = 0, left, rc = options_parse(argc, argv, &payd, &opt);
        if (rc != 0)
                return rc - 1;
        signal(SIGPIPE, SIG_IGN);
        faults_seed(opt.seed);
        semel_shutdown *down = semel_shutdown_new(opt.drain_delay_ms, opt.shutdown_ms, NULL);
        if (!down)
                return usage("the drain delay is part of the shutdown's time", "");
        payd.ledger = ledger_open(opt.ledger, why);
        if (!payd.ledger) {
                fprintf(stderr, "payd: %s\n", why);
                return EXIT_DOWN;
        }
        http = http_start(opt.listen, on_request, &payd, down, why, &port);
        if (!http) {
                fprintf(stderr, "payd: %s\n", why);
                ledger_close(payd.ledger);
                return EXIT_USAGE;
        }
        printf("payd: seed %" PRIu64 "\n", opt.seed);
        printf("payd: listening on %.*s:%d\n", (int)(strrchr(opt.listen, ':') - opt.listen),
               opt.listen, port);
        fflush(stdout);
        semel_shutdown_ready(down);
        left = http_serve(http);
        if (left > 0) {
                fprintf(stderr, "payd: left %d running requests behind\n", left);
                _exit(EXIT_CUT);
        }
        http_stop(http);
        ledger_close(payd.ledger);
        semel_shutdown_free(down);
        puts("payd: drained");
        return 0;
}

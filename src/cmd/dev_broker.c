/* SPDX-License-Identifier: Apache-2.0
 *
 * dev_broker: `semel dev-broker`: librdkafka's mock cluster as a process, to try the relay and the
 * consumer without a Kafka.  It says at once what it is not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "bus/bus.h"
#include "cmd/say.h"
#include "cmd/subcommand.h"
#include "core/limits.h"
#include "sys/signals.h"

static void say_what_it_is_not(void)
{
        say_note("this is librdkafka's mock cluster, for development: nothing survives its end; a "
                 "partition keeps the last 5 MB; transactions are not isolated, so exactly-once "
                 "refuses it; ports are chosen by the system at each start");
}

/* NAME or NAME=PARTITIONS. */
static semel_code make_topic(struct bus_mock *mock, const char *word, int partitions,
                             semel_error *err)
{
        char name[LIMIT_EVENT_TOPIC_BYTES + 1];
        const char *eq = strchr(word, '=');
        size_t n = eq ? (size_t)(eq - word) : strlen(word);
        if (n == 0 || n > LIMIT_EVENT_TOPIC_BYTES)
                return err_set(err, SEMEL_ERR_ARGUMENT, "--topic is written NAME or NAME=PARTITIONS");
        memcpy(name, word, n);
        name[n] = 0;
        if (eq) {
                char *end;
                long count = strtol(eq + 1, &end, 10);
                if (end == eq + 1 || *end || count < 1 || count > BUS_MOCK_PARTITIONS_MAX)
                        return err_set(err, SEMEL_ERR_ARGUMENT,
                                       "--topic %s=...: 1 to %d partitions, please", name,
                                       BUS_MOCK_PARTITIONS_MAX);
                partitions = (int)count;
        }
        return bus_mock_topic(mock, name, partitions, err);
}

/* Whole or not at all: whoever waits for the file may read it when it is there. */
static semel_code write_ready_file(const char *path, const char *address, semel_error *err)
{
        char part[4096];
        int n = snprintf(part, sizeof part, "%s.%d", path, (int)getpid());
        if (n < 0 || n >= (int)sizeof part)
                return err_set(err, SEMEL_ERR_ARGUMENT, "the path of --ready-file is too long");
        FILE *f = fopen(part, "we");
        bool ok = f && fprintf(f, "%s\n", address) > 0;
        if (f && fclose(f) != 0)
                ok = false;
        if (ok && rename(part, path) == 0)
                return SEMEL_OK;
        int saved = errno;
        (void)unlink(part);
        return err_set_errno(err, SEMEL_ERR_ARGUMENT, saved, "--ready-file %.200s cannot be written", path);
}

static semel_code start(const struct options *o, struct bus_mock **ret, semel_error *err)
{
        struct bus_mock *mock = NULL;
        semel_code rc = bus_mock_new((int)option_number(o, OPT_DEV_BROKERS), &mock, err);
        int partitions = (int)option_number(o, OPT_DEV_PARTITIONS);
        for (size_t i = 0; rc == SEMEL_OK && i < o->many_count; i++)
                rc = make_topic(mock, o->many[i], partitions, err);
        if (rc != SEMEL_OK) {
                bus_mock_free(mock);
                return rc;
        }
        *ret = mock;
        return SEMEL_OK;
}

static int dev_broker_run(const struct options *o)
{
        struct semel_error err = {0};
        struct signals signals;
        struct bus_mock *mock = NULL;
        const char *ready_file = option_text(o, OPT_DEV_READY_FILE);
        if (o->positional_count > 0 || o->rest) {
                say_error("dev-broker takes options only: semel dev-broker --topic orders=6");
                return EXIT_CODE_USAGE;
        }
        if (signals_open(&signals) != 0) {
                say_error("signals cannot be read");
                return EXIT_CODE_DOWN;
        }
        int rc;
        if (start(o, &mock, &err) != SEMEL_OK) {
                rc = say_failure(&err);
                goto out;
        }
        say_what_it_is_not();
        puts(bus_mock_bootstrap(mock));
        rc = say_flush();
        if (rc != 0)
                goto out;
        if (ready_file && write_ready_file(ready_file, bus_mock_bootstrap(mock), &err) != SEMEL_OK) {
                rc = say_failure(&err);
                goto out;
        }
        while (signals_sleep(&signals, HOUR / MS) == 0)
                ;
        if (ready_file)
                (void)unlink(ready_file);
out:
        bus_mock_free(mock);
        signals_close(&signals);
        return rc;
}

static const enum option_id dev_broker_options[] = {OPT_DEV_TOPIC, OPT_DEV_PARTITIONS,
                                                    OPT_DEV_BROKERS, OPT_DEV_READY_FILE, OPT_QUIET};

const struct subcommand subcommand_dev_broker = {
        .name = "dev-broker",
        .usage = "[--topic NAME[=PARTITIONS]]... [--brokers N] [--ready-file FILE]",
        .summary = "a Kafka for development, in this process: speaks the protocol, keeps nothing",
        .text = "Prints the address for --brokers of `semel relay` and `semel consume`, and runs until\n"
                "SIGTERM.  A topic is made by its first use too, with 4 partitions: the number is\n"
                "librdkafka's and has no knob, so name those that need another.  The port is chosen by\n"
                "the system; it cannot be asked for.\n"
                "\n"
                "What it is not: a Kafka.  Nothing survives its end, a partition keeps the last 5 MB,\n"
                "transactions are not isolated (--mode exactly-once refuses it).\n",
        .examples = "semel dev-broker --topic orders=6\n"
                    "semel dev-broker --topic orders --topic payments --partitions 3 --ready-file /tmp/kafka\n",
        .options = OPTION_SET(dev_broker_options),
        .run = dev_broker_run,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * bus_kit: what the tests of the bus share: reports that are kept, events in a line, topics read back.
 */
#ifndef TESTS_BUS_KIT_H
#define TESTS_BUS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "bus/bus.h"
#include "core/limits.h"

enum { KIT_REPORTS_MAX = 8192 };

/* Every report of one producer, in the order in which they came. */
struct kit_reports {
        size_t n;
        struct {
                const char *payload; /* the opaque: what was sent */
                enum bus_report_kind kind;
                int32_t partition;
                int64_t offset;
                char name[64];
        } at[KIT_REPORTS_MAX];
};
void kit_on_report(void *arg, const struct bus_report *report);

struct bus_config kit_config(const char *brokers);

/* SEMEL_TEST_KAFKA. */
const char *kit_broker(void);

/* A topic name that nobody else uses; valid until the 16th next call. */
const char *kit_topic(const char *what);

/* An event of two C strings; the id is made from the payload. */
struct event kit_event(const char *topic, const char *key, const char *payload);

/* Queue it, with the payload as opaque; must be taken. */
void kit_send(struct bus_producer *p, const char *topic, const char *key, const char *payload);

/* Poll until nothing is unreported. */
void kit_drain(struct bus_producer *p);

/* What the partition holds, read to its end: payloads joined by blanks (at most 4 KiB). */
const char *kit_read(const char *brokers, const char *topic, int32_t partition, bool committed_only);

/* Make it with so many partitions; NULL-terminated name, value, ... of settings. */
void kit_create(const char *brokers, const char *topic, int partitions, const char *const *settings);

void kit_delete(const char *brokers, const char *topic);

#define assert_ok(call) assert_ok_at((call), &err, #call, __FILE__, __LINE__)
void assert_ok_at(semel_code rc, const semel_error *err, const char *call, const char *file, int line);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * produce: one event into a topic, for tests of whoever consumes it.  Behind cmocka's header.
 */
#ifndef TESTS_INBOX_PRODUCE_H
#define TESTS_INBOX_PRODUCE_H

#include "bus/bus.h"
#include "sys/clock.h"

static void on_report(void *arg, const struct bus_report *report)
{
        (void)arg;
        assert_int_equal(report->kind, BUS_DELIVERED);
}

static void produce_one(const struct bus_config *bus, const struct event *event)
{
        semel_error err = {0};
        struct bus_producer *p = NULL;
        assert_int_equal(bus_producer_open(bus, NULL, 0, on_report, NULL, &p, &err), SEMEL_OK);
        assert_int_equal(bus_produce(p, event, NULL, &err), BUS_QUEUED);
        int64_t until_us = clock_boot_us() + 30 * SECOND;
        while (bus_producer_flush(p, 100 * MS) > 0)
                assert_true(clock_boot_us() < until_us);
        bus_producer_close(p);
}

#endif

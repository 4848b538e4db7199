/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a configuration file: an end; errors that say where; or settings each of which is
 * within its bounds, so that writing it and reading it again gives the same.
 */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conf/gateway_file.h"
#include "conf/yaml_reader.h"

static char path[64];
static int fd = -1, told;

/* "PATH:LINE:COLUMN: what", or "PATH: what" about the whole. */
static void tell(void *arg, const char *error)
{
        size_t n = strlen(path);
        (void)arg;
        told++;
        need(strncmp(error, path, n) == 0 && error[n] == ':');
        need(strlen(error) > n + 3);
}

static void write_and_read_again(const struct setting *table, size_t n, const void *object,
                                 void *again)
{
        static char text[2048], second[2048], why[SETTING_ERROR_BYTES];
        for (size_t i = 0; i < n; i++) {
                setting_format(&table[i], object, text, sizeof text);
                if (table[i].secret || !text[0])
                        continue;
                need(setting_set(&table[i], again, text, why));
                setting_format(&table[i], again, second, sizeof second);
                need(strcmp(text, second) == 0);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        static struct gateway_config config, again;
        char why[SETTING_ERROR_BYTES];
        if (fd < 0) {
                fd = memfd_create("gateway.yaml", 0);
                need(fd >= 0);
                (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        }
        need(ftruncate(fd, 0) == 0 && pwrite(fd, p, n, 0) == (ssize_t)n);
        gateway_config_defaults(&config);
        gateway_config_defaults(&again);
        told = 0;
        int errors = gateway_file_read(path, &config, tell, NULL);
        need(errors >= 0 && told >= (errors > 0) && told <= errors);
        need(told <= YAML_ERRORS_MAX + 2);
        need(config.route_count <= CONFIG_ROUTES_MAX);
        if (errors > 0)
                return 0;
        if (config.upstream[0])
                need(gateway_config_check(&config, why));
        write_and_read_again(gateway_settings, gateway_setting_count, &config, &again);
        write_and_read_again(policy_settings, policy_setting_count, &config.policy, &again.policy);
        for (size_t i = 0; i < config.route_count; i++) {
                struct route *route = &config.routes[i];
                need(route->path[0]);
                (void)path_matches(route->path, span_str("/orders/7/cancel"));
                write_and_read_again(route_settings, route_setting_count, route, &again.routes[0]);
                write_and_read_again(policy_settings, policy_setting_count, &route->policy,
                                     &again.policy);
        }
        return 0;
}

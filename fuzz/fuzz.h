/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz: what every target shares.  A target is one function over any bytes; a property that does
 * not hold ends the process.  `fuzz/run SECONDS` builds and runs all of them.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define need(what)                                                                                \
        do {                                                                                      \
                if (!(what)) {                                                                    \
                        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #what); \
                        abort();                                                                  \
                }                                                                                 \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#endif

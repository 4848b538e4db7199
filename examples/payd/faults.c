/* SPDX-License-Identifier: Apache-2.0
 *
 * faults: see faults.h.
 */
#include "faults.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t state;

void faults_seed(uint64_t seed)
{
        state = seed;
}

/* splitmix64, as a number in 0 .. 1. */
static double draw(void)
{
        uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        return (double)(z >> 11) / 9007199254740992.0;
}

struct fate faults_draw(const struct faults *f)
{
        struct fate fate;
        pthread_mutex_lock(&lock);
        fate.sleep_ms = draw() < f->slow ? f->slow_ms : 0;
        fate.fail = draw() < f->fail;
        fate.busy = draw() < f->busy;
        fate.cut = draw() < f->cut;
        pthread_mutex_unlock(&lock);
        return fate;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * replay: a target without the fuzzer: runs it once over every file of the folders and files
 * given, each in memory that ends where the file ends.  So the ordinary tests run all first inputs
 * with any compiler, and an input that crashed can be looked at in a debugger.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

static int files;

static void replay_file(const char *path)
{
        FILE *f = fopen(path, "rb");
        need(f != NULL);
        size_t n = 0, cap = 4096;
        uint8_t *p = malloc(cap);
        need(p != NULL);
        for (size_t got; (got = fread(p + n, 1, cap - n, f)) > 0;) {
                n += got;
                if (n == cap) {
                        p = realloc(p, cap *= 2);
                        need(p != NULL);
                }
        }
        (void)fclose(f);
        uint8_t *exact = malloc(n ? n : 1);
        need(exact != NULL);
        memcpy(exact, p, n);
        free(p);
        (void)LLVMFuzzerTestOneInput(exact, n);
        free(exact);
        files++;
}

static void replay(const char *path)
{
        struct stat st;
        need(stat(path, &st) == 0);
        if (!S_ISDIR(st.st_mode)) {
                replay_file(path);
                return;
        }
        DIR *dir = opendir(path);
        need(dir != NULL);
        for (struct dirent *e; (e = readdir(dir));) {
                if (e->d_name[0] == '.')
                        continue;
                char inner[4096];
                need((size_t)snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < sizeof inner);
                replay_file(inner);
        }
        (void)closedir(dir);
}

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                replay(argv[i]);
        printf("%d inputs\n", files);
        return files > 0 ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlite_open: see sqlite_open.h.
 */
#include "store/sqlite/sqlite_open.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "store/sqlite/sqlite_schema.h"

enum { OPEN_WAIT_MS = 10000, OPEN_POLL_MS = 5 };

/* -- where ------------------------------------------------------------------------------ */

semel_code sqlite_url_path(const char *url, char **ret_path, semel_error *err)
{
        static const char scheme[] = "sqlite:";
        const char *path = strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1
                                                                        : "";
        if (strncmp(path, "//", 2) == 0)
                return err_set(err, SEMEL_ERR_URL,
                               "the SQLite store's URL is sqlite:PATH, without slashes before an "
                               "absolute or relative path");
        if (*path == '\0')
                return err_set(err, SEMEL_ERR_URL,
                               "the SQLite store's URL is sqlite:PATH: the path is missing");
        if (strcmp(path, ":memory:") == 0)
                return err_set(err, SEMEL_ERR_URL,
                               "a store in memory has the URL memory: and sqlite: names a file");
        /* "./" keeps SQLite from reading a name such as "file:x?mode=ro" as more than a name. */
        char *literal = NULL;
        if (asprintf(&literal, "%s%s", *path == '/' ? "" : "./", path) < 0)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a file name");
        *ret_path = literal;
        return SEMEL_OK;
}

const char *sqlite_network_fs(unsigned long magic)
{
        static const struct {
                unsigned long magic;
                const char *name;
        } shared[] = {
                {0x6969, "NFS"},          {0x517B, "SMB"},         {0xFF534D42, "CIFS"},
                {0xFE534D42, "SMB2"},     {0x01021997, "9p"},      {0x65735546, "FUSE"},
                {0x00C36400, "Ceph"},     {0x5346414F, "AFS"},     {0x6B414653, "AFS"},
                {0x73757245, "Coda"},     {0x0BD00BD0, "Lustre"},  {0x47504653, "GPFS"},
                {0x7461636F, "OCFS2"},    {0x01161970, "GFS2"},    {0x564C, "NCP"},
                {0x786F4256, "vboxsf"},   {0x19830326, "BeeGFS"},  {0x20030528, "OrangeFS"},
                {0xBACBACBC, "vmhgfs"},
        };
        for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
                if (shared[i].magic == (magic & 0xFFFFFFFF))
                        return shared[i].name;
        return NULL;
}

/* Locks of a network file system do not reach SQLite's shared memory, and the other machine's boot
 * clock is not ours (A6). */
static semel_code check_file_system(const char *path, semel_error *err)
{
        struct statfs fs;
        if (statfs(path, &fs) != 0)
                return err_set_errno(err, SEMEL_ERR_STORE_DOWN, errno, "%s cannot be looked at",
                                     path);
        const char *name = sqlite_network_fs((unsigned long)fs.f_type);
        if (name)
                return err_set(err, SEMEL_ERR_UNSAFE,
                               "%s is on a %s file system, where SQLite's locks cannot be trusted: "
                               "use a local disk, or PostgreSQL",
                               path, name);
        return SEMEL_OK;
}

static semel_code check_directory(const char *path, semel_error *err)
{
        char *copy = strdup(path);
        if (!copy)
                return err_set(err, SEMEL_ERR_NO_MEMORY, "no memory for a file name");
        const char *dir = dirname(copy);
        struct stat st;
        semel_code code = SEMEL_OK;
        if (stat(dir, &st) != 0)
                code = err_set_errno(err, SEMEL_ERR_STORE_DOWN, errno,
                                     "the directory %s of the SQLite store cannot be used: make it "
                                     "first",
                                     dir);
        else if (!S_ISDIR(st.st_mode))
                code = err_set(err, SEMEL_ERR_STORE_DOWN, "%s is not a directory: give another path",
                               dir);
        else
                code = check_file_system(dir, err);
        free(copy);
        return code;
}

/* Make the file with its mode.  Never open one that exists: closing it would drop the locks that
 * other SQLite connections of this process have on it. */
static semel_code create_file(const char *path, semel_error *err)
{
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
                (void)close(fd);
                return SEMEL_OK;
        }
        if (errno == EEXIST) {
                struct stat st;
                if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
                        return err_set(err, SEMEL_ERR_STORE_DOWN,
                                       "%s is not a regular file: give another path", path);
                return SEMEL_OK;
        }
        int e = errno;
        semel_code code = e == EROFS || e == EACCES || e == EPERM ? SEMEL_ERR_STORE_READ_ONLY
                          : e == ENOSPC || e == EDQUOT            ? SEMEL_ERR_STORE_FULL
                                                                  : SEMEL_ERR_STORE_DOWN;
        return err_set_errno(err, code, e, "%s cannot be made: check its directory", path);
}

/* -- open ---------------------------------------------------------------------------------- */

static bool others_live(void *arg)
{
        return gate_others_live(arg);
}

/* Connection and schema, again and again while a stranger's connection is in the way. */
static semel_code open_and_ensure(const char *path, const struct sys_clock *clock,
                                  const struct sqlite_boot_id *boot_id,
                                  const struct sqlite_hooks *hooks, struct sqlite_session *ses,
                                  struct sqlite_gate *gate, semel_error *err)
{
        const struct timespec nap = {.tv_nsec = OPEN_POLL_MS * 1000000};
        int64_t wait_ms = hooks->open_wait_ms > 0 ? hooks->open_wait_ms : OPEN_WAIT_MS;
        int64_t until_us = clock_boot_us() + wait_ms * 1000;
        semel_code code;
        for (;;) {
                code = session_open(ses, path, hooks->vfs, err);
                if (code == SEMEL_OK) {
                        code = schema_ensure(ses->db, path, clock, boot_id, others_live, gate, err);
                        if (code == SEMEL_OK)
                                return SEMEL_OK;
                        session_close(ses);
                }
                if (code != SEMEL_ERR_BUSY || clock_boot_us() >= until_us)
                        return code;
                (void)nanosleep(&nap, NULL);
        }
}

semel_code sqlite_open_file(const char *path, const struct sys_clock *clock,
                            const struct sqlite_boot_id *boot_id,
                            const struct sqlite_hooks *hooks, struct sqlite_session *ret_ses,
                            struct sqlite_gate *ret_gate, semel_error *err)
{
        struct sqlite_gate gate = {.fd = -1};
        semel_code code = check_directory(path, err);
        if (code == SEMEL_OK)
                code = create_file(path, err);
        if (code == SEMEL_OK)
                code = check_file_system(path, err);
        if (code == SEMEL_OK && access(path, W_OK) != 0)
                code = err_set_errno(err, SEMEL_ERR_STORE_READ_ONLY, errno,
                                     "%s cannot be written: check its permissions", path);
        if (code != SEMEL_OK)
                return code;

        /* Two names of one file must meet at one gate. */
        char *real = realpath(path, NULL);
        code = gate_open(&gate, real ? real : path, err);
        free(real);
        if (code != SEMEL_OK)
                return code;
        if (!gate_opening_lock(&gate)) {
                gate_close(&gate);
                return err_set(err, SEMEL_ERR_BUSY,
                               "another process has been opening %s for more than %d s: is it "
                               "stopped?",
                               path, GATE_OPEN_WAIT_MS / 1000);
        }
        code = open_and_ensure(path, clock, boot_id, hooks, ret_ses, &gate, err);
        if (code == SEMEL_OK)
                gate_set_live(&gate);
        gate_opening_unlock(&gate);
        if (code != SEMEL_OK) {
                gate_close(&gate);
                return code;
        }
        *ret_gate = gate;
        return SEMEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * lib_command: one command through the library, for the crash test.
 *
 *     lib_command URL KEY EFFECTS
 *
 * The effect is one line appended to the file EFFECTS.  Writes the reply's body to stdout.
 * Exit code: 0 when it ran or was replayed, 75 in flight, 76 unknown, 69 on errors.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <semel/postgres.h>
#include <semel/semel.h>
#include <semel/sqlite.h>

static semel_effect append(void *arg, semel_claim *claim, semel_reply *reply)
{
        static const char body[] = "done\n";
        (void)claim;
        int fd = open(arg, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
                return SEMEL_EFFECT_FAILED;
        ssize_t n = write(fd, "x\n", 2);
        (void)close(fd);
        if (n < 0)
                return SEMEL_EFFECT_FAILED;
        if (semel_reply_set_body(reply, body, sizeof body - 1, NULL) != SEMEL_OK)
                return SEMEL_EFFECT_UNKNOWN;
        return SEMEL_EFFECT_DONE;
}

static int exit_code(semel_outcome outcome)
{
        switch (outcome) {
        case SEMEL_RAN:
        case SEMEL_REPLAYED:
                return 0;
        case SEMEL_IN_FLIGHT:
                return 75;
        case SEMEL_UNKNOWN:
        case SEMEL_RAN_UNRECORDED:
                return 76;
        default:
                return 69;
        }
}

int main(int argc, char **argv)
{
        if (argc != 4)
                return 64;
        semel_sqlite_register();
        semel_postgres_register();
        semel_store *st = NULL;
        semel_reply *reply = NULL;
        semel_error *err = semel_error_new();
        semel_command *cmd = semel_command_new(argv[2], strlen(argv[2]), err);
        int code = 69;
        if (!cmd || semel_command_set_lease_ms(cmd, 1000, err) != SEMEL_OK ||
            semel_store_open(argv[1], &st, err) != SEMEL_OK)
                goto out;
        code = exit_code(semel_run(st, cmd, append, argv[3], &reply, err));
        if (reply) {
                size_t n;
                const void *body = semel_reply_body(reply, &n);
                (void)fwrite(body, 1, n, stdout);
        }
out:
        if (code == 69)
                fprintf(stderr, "lib_command: %s\n", semel_error_text(err));
        semel_reply_free(reply);
        semel_store_close(st);
        semel_command_free(cmd);
        semel_error_free(err);
        return fflush(stdout) == 0 ? code : 69;
}

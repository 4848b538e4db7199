/* SPDX-License-Identifier: Apache-2.0
 *
 * error: the public functions over base/err.h.
 */
#include <stdlib.h>

#include <semel/run.h>

#include "base/err.h"

const char *semel_code_name(semel_code code)
{
        return err_code_name(code);
}

semel_error *semel_error_new(void)
{
        return calloc(1, sizeof(semel_error));
}

void semel_error_free(semel_error *err)
{
        free(err);
}

semel_code semel_error_code(const semel_error *err)
{
        return err ? err->code : SEMEL_OK;
}

semel_class semel_error_class(const semel_error *err)
{
        return err ? err->class : SEMEL_CLASS_NONE;
}

const char *semel_error_text(const semel_error *err)
{
        return err ? err->text : "";
}

const char *semel_error_sqlstate(const semel_error *err)
{
        return err ? err->sqlstate : "";
}

int semel_error_errno(const semel_error *err)
{
        return err ? err->sys_errno : 0;
}

int semel_error_retry_after_s(const semel_error *err)
{
        return err ? err->retry_after_s : 0;
}

const char *semel_error_first_operation(const semel_error *err)
{
        return err ? err->first_operation : "";
}

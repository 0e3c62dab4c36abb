/* not_built: in a build without PostgreSQL, the mount says so. */
#include <errno.h>
#include <stdio.h>

#include "backend/postgresql/postgresql.h"

int postgresql_new(const struct postgresql_options *options, struct backend **ret, char *error, size_t error_size)
{
    (void)options, (void)ret;
    snprintf(error, error_size, "this leasefs was built without PostgreSQL (Debian: libpq-dev, and configure anew)");
    return -ENOSYS;
}

void postgresql_find_needs(const char *uri, struct postgresql_needs *ret)
{
    (void)uri;
    *ret = (struct postgresql_needs){.file_count = 0};
}

char *postgresql_schema(const char *name)
{
    (void)name;
    return NULL;
}

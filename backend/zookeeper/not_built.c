/* not_built: in a build without ZooKeeper, the mount says so. */
#include <errno.h>
#include <stdio.h>

#include "backend/zookeeper/zookeeper.h"

int zookeeper_new(const struct zookeeper_options *options, struct backend **ret, char *error, size_t error_size)
{
    (void)options, (void)ret;
    snprintf(error, error_size,
             "this leasefs was built without ZooKeeper (Debian: libzookeeper-st-dev, and configure anew)");
    return -ENOSYS;
}

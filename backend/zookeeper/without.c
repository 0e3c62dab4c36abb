/* without: a build that has no ZooKeeper says so at mount. */
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

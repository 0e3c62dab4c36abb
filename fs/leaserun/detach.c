/* detach: see detach.h. */
#include "fs/leaserun/detach.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/system.h"

static int detach_compare(const void *left, const void *right)
{
    const int *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

void leaserun_detach(int *keep, size_t count)
{
    unsigned next = 3;
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2 && null >= 0; fd++) {
        dup2(null, fd);
    }
    qsort(keep, count, sizeof *keep, detach_compare);
    for (size_t i = 0; i < count; i++) {
        if (keep[i] > (int)next) {
            close_range(next, (unsigned)keep[i] - 1, 0);
        }
        next = keep[i] >= (int)next ? (unsigned)keep[i] + 1 : next;
    }
    close_range(next, ~0U, 0);
    if (chdir("/") != 0) {
        return; /* it stays where it is */
    }
}

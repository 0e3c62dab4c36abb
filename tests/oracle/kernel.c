/* kernel: reads /proc/locks for a file on tmpfs; see oracle.h. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/oracle/oracle.h"

size_t kernel_locks(const char *path, struct kernel_lock *locks, size_t size)
{
    struct stat st;
    char line[256], kind[16], mode[16], end[32];
    unsigned major_, minor_;
    unsigned long inode;
    int pid;
    int64_t start;
    size_t count = 0;
    FILE *file = fopen("/proc/locks", "re");
    if (!file || stat(path, &st) != 0) {
        stress_die("no /proc/locks, or no %s", path);
    }
    while (count < size && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*d: %15s ADVISORY %15s %d %x:%x:%lu %" SCNd64 " %31s", kind, mode, &pid, &major_, &minor_,
                   &inode, &start, end) != 8 ||
            inode != st.st_ino || makedev(major_, minor_) != st.st_dev || strcmp(kind, "FLOCK") == 0) {
            continue;
        }
        struct kernel_lock *lock = &locks[count++];
        *lock = (struct kernel_lock){strcmp(kind, "OFDLCK") == 0, strcmp(mode, "READ") == 0, pid, start, INT64_MAX};
        if (strcmp(end, "EOF") != 0) {
            sscanf(end, "%" SCNd64, &lock->end);
        }
    }
    fclose(file);
    return count;
}

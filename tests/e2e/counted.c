/* counted: the daemon with counters in it, for test_counts.sh.
 *
 * The program is leasefs with wrappers around the C library and libfuse.  They count into the file that COUNTED names,
 * which the test maps, too.  The test can also stop the clocks but for a step at each reading: then no deadline and no
 * repeated check adds to the counts, however slow the machine is.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fs/options/options.h"

#define COUNTED_OPCODES 64
#define COUNTED_CLOCKS 16
#define COUNTED_STEP 100 /* nanoseconds */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED_IS_PLAIN 0 /* a sanitizer allocates in its own way, and makes calls of its own */
#else
#define COUNTED_IS_PLAIN 1
#endif

/* As counts.py reads it. */
struct counted {
    _Atomic uint64_t is_plain;
    _Atomic uint64_t still; /* set by the test */
    _Atomic uint64_t allocations;
    _Atomic uint64_t clocks;
    _Atomic uint64_t requests[COUNTED_OPCODES];
};

typedef int counted_clock(clockid_t clock, struct timespec *time);
typedef void counted_process(struct fuse_session *session, const struct fuse_buf *buffer);

static struct counted counted_nowhere;
static struct counted *counted = &counted_nowhere;
static counted_clock *counted_real_clock;
static counted_process *counted_real_process;
static _Atomic int64_t counted_stands[COUNTED_CLOCKS]; /* at so many nanoseconds */

static void __attribute__((constructor)) counted_begin(void)
{
    const char *path = getenv("COUNTED");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    counted_real_clock = (counted_clock *)dlsym(RTLD_NEXT, "clock_gettime");
    counted_real_process = (counted_process *)dlsym(RTLD_NEXT, "fuse_session_process_buf");
    if (fd >= 0) {
        void *map = mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        counted = map == MAP_FAILED ? counted : map;
        counted->is_plain = COUNTED_IS_PLAIN;
        close(fd);
    }
}

#if COUNTED_IS_PLAIN

/* The names by which glibc has them for those who put something in front. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    counted->allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    counted->allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    counted->allocations++;
    return __libc_realloc(old, size);
}

#endif

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = counted_real_clock ? counted_real_clock(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
    counted->clocks++;
    if (result != 0 || clock < 0 || clock >= COUNTED_CLOCKS) {
        return result;
    }
    if (!counted->still) {
        counted_stands[clock] = time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
        return result;
    }
    int64_t now = counted_stands[clock] += COUNTED_STEP;
    time->tv_sec = (time_t)(now / 1000000000);
    time->tv_nsec = (long)(now % 1000000000);
    return result;
}

void fuse_session_process_buf(struct fuse_session *session, const struct fuse_buf *buffer)
{
    const struct fuse_in_header *header = buffer->mem;
    if (header->opcode < COUNTED_OPCODES) {
        counted->requests[header->opcode]++;
    }
    counted_real_process(session, buffer);
}

/* jumps: which functions a program enters and leaves, for tests/bench/jumps.py; preloaded into one that was built with
 * -finstrument-functions.  The file that JUMPS names gets a count, then a word for each: the function's address, with
 * the lowest bit set when it is left.  Only the first thread is recorded. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define JUMPS_MAX ((size_t)1 << 22)
#define QUIET __attribute__((no_instrument_function))

static uint64_t *words;

void __cyg_profile_func_enter(void *function, void *from);
void __cyg_profile_func_exit(void *function, void *from);

QUIET static void jumps_add(uint64_t word)
{
    if (!words && getenv("JUMPS")) {
        int fd = open(getenv("JUMPS"), O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, JUMPS_MAX * 8) < 0) {
            abort();
        }
        words = mmap(NULL, JUMPS_MAX * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (words && getpid() == gettid() && words[0] + 1 < JUMPS_MAX) {
        words[++words[0]] = word;
    }
}

QUIET void __cyg_profile_func_enter(void *function, void *from)
{
    (void)from;
    jumps_add((uint64_t)(uintptr_t)function << 1);
}

QUIET void __cyg_profile_func_exit(void *function, void *from)
{
    (void)from;
    jumps_add((uint64_t)(uintptr_t)function << 1 | 1);
}

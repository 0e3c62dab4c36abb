/* map: the end of a journal file in memory, where records are copied to.
 *
 * A store to a mapped page that the filesystem cannot back raises SIGBUS: the
 * file was truncated, the disk failed, or a copy-on-write filesystem is full.
 * While a record is copied, the handler replaces the window by anonymous memory, and
 * the copy returns EIO.  Any other SIGBUS goes to the earlier handler.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/journal/file.h"

static _Thread_local struct journal_map *volatile map_copying; /* the window that this thread copies to */
static struct sigaction map_former;                            /* of SIGBUS */

static size_t map_length(const struct journal_map *map)
{
    return (size_t)(map->end - map->offset);
}

static void map_on_sigbus(int number, siginfo_t *info, void *context)
{
    struct journal_map *map = map_copying;
    const uint8_t *at = info->si_addr;
    (void)context;
    if (map && info->si_code > 0 && at >= map->base && at < map->base + map_length(map) &&
        mmap(map->base, map_length(map), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
            MAP_FAILED) {
        map->lost = 1;
        return;
    }
    sigaction(number, &map_former, NULL);
    if (info->si_code <= 0) { /* sent by a process: it does not repeat by itself */
        raise(number);
    }
}

/* Called for each window, because others may have set their handler since. */
static void map_catch_sigbus(void)
{
    struct sigaction action = {.sa_sigaction = map_on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK}, former;
    sigaction(SIGBUS, &action, &former);
    if (former.sa_sigaction != map_on_sigbus) {
        map_former = former;
    }
}

int journal_map_open(struct journal_map *map, int fd, uint64_t from, uint64_t end)
{
    uint64_t offset = from - from % (uint64_t)sysconf(_SC_PAGESIZE);
    void *base = mmap(NULL, (size_t)(end - offset), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (base == MAP_FAILED) {
        return -errno;
    }
    map_catch_sigbus();
    *map = (struct journal_map){.base = base, .offset = offset, .end = end};
    return 0;
}

int journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length)
{
    map_copying = map;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(map->base + (at - map->offset), data, length);
    atomic_signal_fence(memory_order_seq_cst);
    map_copying = NULL;
    return map->lost ? -EIO : 0;
}

void journal_map_close(struct journal_map *map)
{
    if (map->base) {
        munmap(map->base, map_length(map));
    }
    *map = (struct journal_map){.base = NULL};
}

/* set: several keepers as one; see set.h. */
#include "fs/leaserun/set.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "fs/leaserun/terms.h"

int leaserun_set_init(struct leaserun_set *set, struct leaserun_lock *locks)
{
    *set = (struct leaserun_set){.locks = locks, .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    return set->wake < 0 ? -errno : 0;
}

size_t leaserun_set_poll(const struct leaserun_set *set, struct pollfd *fds)
{
    for (size_t i = 0; i < set->count; i++) {
        fds[i] = (struct pollfd){.fd = set->released[i] ? -1 : set->keepers[i].socket, .events = POLLIN};
    }
    return set->count;
}

static void set_lose(struct leaserun_set *set, size_t i, bool keeper_killed, const struct leaserun_report *report)
{
    if (!set->lost) {
        set->lost = true;
        set->first = i;
        set->keeper_killed = keeper_killed;
        set->error = report ? report->error : 0;
        set->late = report && report->late;
    }
}

static void set_read_report(struct leaserun_set *set, size_t i)
{
    struct leaserun_report report;
    int result;
    while ((result = leaserun_keeper_read_report(&set->keepers[i], &report)) > 0) {
        if (report.kind == LEASERUN_LOST) {
            set_lose(set, i, false, &report);
        }
        set->released[i] = set->released[i] || report.kind == LEASERUN_RELEASED;
    }
    if (result < 0 && !set->released[i]) {
        set->released[i] = true;
        set_lose(set, i, true, NULL);
    }
}

void leaserun_set_read_reports(struct leaserun_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        if (!set->released[i]) {
            set_read_report(set, i);
        }
    }
}

static clock_ms set_moment(const struct leaserun_set *set, size_t i)
{
    const struct leaserun_view *view = set->keepers[i].view;
    return atomic_load(&view->deadline) - leaserun_guard(atomic_load(&view->ttl));
}

size_t leaserun_set_next(const struct leaserun_set *set)
{
    size_t next = 0;
    for (size_t i = 1; i < set->count; i++) {
        next = set_moment(set, i) < set_moment(set, next) ? i : next;
    }
    return next;
}

/* The shortest ttl, ms. */
static int64_t set_ttl(const struct leaserun_set *set)
{
    int64_t shortest = INT64_MAX;
    for (size_t i = 0; i < set->count; i++) {
        int64_t ttl = atomic_load(&set->keepers[i].view->ttl);
        shortest = ttl < shortest ? ttl : shortest;
    }
    return shortest;
}

static int64_t set_early(const struct leaserun_set *set)
{
    int64_t limit = leaserun_early_limit(set_ttl(set));
    return set->early < limit ? set->early : limit;
}

clock_ms leaserun_set_last_moment(const struct leaserun_set *set)
{
    return set->keeper_killed ? 0 : set_moment(set, leaserun_set_next(set)) - set_early(set);
}

int64_t leaserun_set_grace(const struct leaserun_set *set, int64_t wanted)
{
    int64_t ttl = set_ttl(set), limit = leaserun_grace_limit(ttl) - set_early(set);
    int64_t grace = wanted < 0 ? leaserun_grace(ttl) : wanted;
    return grace < limit ? grace : limit;
}

void leaserun_set_measure(struct leaserun_set *set, const struct leaserun_target *target, int64_t late)
{
    int64_t cost = leaserun_target_cost(target) + (late > 0 ? 3 * late : 0);
    set->early -= set->early / 16; /* what was seen in the last two terms or so still counts */
    set->early = cost > set->early ? cost : set->early;
}

int64_t leaserun_set_measure_pause(const struct leaserun_set *set)
{
    int64_t pause = set_ttl(set) / 6;
    return pause > 10 ? pause : 10;
}

clock_ms leaserun_set_deadline(const struct leaserun_set *set)
{
    clock_ms latest = 0;
    for (size_t i = 0; i < set->count; i++) {
        clock_ms deadline = set->released[i] ? 0 : atomic_load(&set->keepers[i].view->deadline);
        latest = deadline > latest ? deadline : latest;
    }
    return latest;
}

void leaserun_set_watch(struct leaserun_set *set, pid_t target)
{
    for (size_t i = 0; i < set->count; i++) {
        leaserun_keeper_watch(&set->keepers[i], target);
    }
}

void leaserun_set_release(struct leaserun_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        leaserun_keeper_release(&set->keepers[i]);
    }
}

bool leaserun_set_released(const struct leaserun_set *set)
{
    bool all = true;
    for (size_t i = 0; i < set->count; i++) {
        all = all && set->released[i];
    }
    return all;
}

void leaserun_set_kill(struct leaserun_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        leaserun_keeper_kill(&set->keepers[i]);
    }
}

size_t leaserun_set_pids(const struct leaserun_set *set, pid_t *pids)
{
    for (size_t i = 0; i < set->count; i++) {
        pids[i] = set->keepers[i].pid;
    }
    return set->count;
}

/* follow: see follow.h. */
#include "fs/daemon/follow.h"

#include <linux/fuse.h>
#include <sys/resource.h>

#define FOLLOW_LIMIT (20 - FOLLOW_NICE) /* as RLIMIT_NICE counts */

/* So that the priority may be raised again and again from the sandbox.  Needs CAP_SYS_RESOURCE, or the limit is there.
 */
static void follow_raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NICE, &limit) == 0 && limit.rlim_cur < FOLLOW_LIMIT) {
        limit.rlim_cur = FOLLOW_LIMIT;
        limit.rlim_max = limit.rlim_max < FOLLOW_LIMIT ? FOLLOW_LIMIT : limit.rlim_max;
        setrlimit(RLIMIT_NICE, &limit);
    }
}

void follow_init(struct follow *follow, bool enabled)
{
    *follow = (struct follow){.cpu = -1, .next = -1, .pause = FOLLOW_PAUSE, .enabled = enabled, .can_raise = enabled};
    if (enabled) {
        follow_raise_limit();
        process_open(&follow->reader);
    }
}

void follow_free(struct follow *follow)
{
    if (follow->enabled) {
        process_close(&follow->reader);
    }
}

/* Only where the operator lets it run. */
static void follow_bind(struct follow *follow, int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (CPU_ISSET((size_t)cpu, &follow->allowed) && sched_setaffinity(0, sizeof set, &set) == 0) {
        follow->cpu = cpu;
        follow->moves++;
    }
}

/* False where nobody can be followed. */
static bool follow_raise_priority(struct follow *follow)
{
    if (sched_getaffinity(0, sizeof follow->allowed, &follow->allowed) != 0 || CPU_COUNT(&follow->allowed) < 2) {
        return false;
    }
    follow->usual = getpriority(PRIO_PROCESS, 0);
    follow->can_raise = follow->usual <= FOLLOW_NICE || setpriority(PRIO_PROCESS, 0, FOLLOW_NICE) == 0;
    return follow->can_raise;
}

static void follow_end(struct follow *follow, int64_t now)
{
    sched_setaffinity(0, sizeof follow->allowed, &follow->allowed);
    setpriority(PRIO_PROCESS, 0, follow->usual);
    follow->cpu = -1;
    follow->streak = 0;
    if (now - follow->began >= FOLLOW_LONG) {
        follow->pause = FOLLOW_PAUSE;
    }
    follow->retry = now + follow->pause;
    follow->pause = follow->pause < FOLLOW_PAUSE_MAX / 2 ? follow->pause * 2 : FOLLOW_PAUSE_MAX;
}

/* A caller that is on our processor already is well served. */
static void follow_begin(struct follow *follow, int cpu, int64_t now)
{
    follow->streak = 0;
    follow->retry = now + FOLLOW_PAUSE;
    if (cpu != sched_getcpu() && follow_raise_priority(follow)) {
        follow_bind(follow, cpu);
        follow->credit = FOLLOW_CREDIT;
        follow->began = now;
        follow->followed += follow_is_active(follow);
        if (!follow_is_active(follow)) {
            follow_end(follow, now);
        }
    }
}

/* Where the thread waits for its answer: execve(2) may wait for the answers of other requests, see follow.h. */
static void follow_find_processor(struct follow *follow, pid_t tid, uint32_t opcode)
{
    if (opcode != FUSE_FLUSH && opcode != FUSE_READ && opcode != FUSE_WRITE) {
        follow->next = process_cpu(&follow->reader, tid);
    }
}

static void follow_rate_request(struct follow *follow, pid_t tid, uint32_t opcode, int64_t took, int64_t now)
{
    if (tid == follow->thread && took <= FOLLOW_AT_ONCE) {
        follow->credit += follow->credit < FOLLOW_CREDIT;
        return;
    }
    follow->credit -= FOLLOW_COST;
    if (follow->credit <= 0) {
        follow_end(follow, now);
    } else if (tid == follow->thread) {
        follow_find_processor(follow, tid, opcode);
    }
}

static void follow_count_streak(struct follow *follow, pid_t tid, uint32_t opcode, int64_t took, int64_t now)
{
    follow->streak = tid == follow->thread && took < FOLLOW_SOON ? follow->streak + 1 : 0;
    follow->thread = tid;
    if (follow->streak >= FOLLOW_STREAK && now >= follow->retry) {
        follow_find_processor(follow, tid, opcode);
    }
}

static bool follow_counts_request(pid_t tid, uint32_t opcode)
{
    return tid > 0 && opcode != FUSE_RELEASE && opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET &&
           opcode != FUSE_INTERRUPT;
}

void follow_on_request(struct follow *follow, pid_t tid, uint32_t opcode, int64_t now)
{
    int64_t took = follow->answered ? now - follow->answered : 0;
    follow->answered = 0;
    if (!follow->can_raise || !follow_counts_request(tid, opcode)) {
        return;
    }
    if (!follow_is_active(follow)) {
        follow_count_streak(follow, tid, opcode, took, now);
    } else if ((took > 0 && took < FOLLOW_SOON) || tid != follow->thread) {
        follow_rate_request(follow, tid, opcode, took, now);
    }
}

void follow_on_reply(struct follow *follow, int64_t now)
{
    int cpu = follow->next;
    follow->answered = now;
    follow->next = -1;
    if (cpu < 0 || cpu == follow->cpu) {
        return;
    }
    if (follow_is_active(follow)) {
        follow_bind(follow, cpu);
    } else {
        follow_begin(follow, cpu, now);
    }
}

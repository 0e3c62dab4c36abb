/* faults: what goes wrong in a world; see faults.h.
 *
 * Each is told to the judge as far as a user could know of it.
 */
#include "tests/sim/faults.h"

#include <errno.h>
#include <glib.h>

#include "tests/sim/disk.h"
#include "tests/sim/judge.h"
#include "tests/sim/kernel.h"
#include "tests/sim/user.h"

static struct {
    struct judge *judge;
    struct mount **mounts;
    unsigned count;
    bool over;
    uint64_t struck[FAULTS];
} faults;

static const struct {
    const char *name;
    unsigned weight;
    unsigned stores; /* of 1 << enum mount_store */
} fault_table[FAULTS] = {
#define ANY ((1u << MOUNT_STORES) - 1)
#define DISK (1u << MOUNT_LOCAL | 1u << MOUNT_LOCAL_SYNC)
    [FAULT_DAEMON_KILLED] = {"daemon killed", 3, ANY},
    [FAULT_DAEMON_ENDED] = {"daemon ended and begun anew", 2, ANY},
    [FAULT_DAEMON_STOPPED] = {"daemon stopped", 4, ANY},
    [FAULT_HOST_SUSPENDED] = {"host suspended", 3, ANY},
    [FAULT_HOST_REBOOTED] = {"host lost its power", 2, ANY},
    [FAULT_WALL_STEPPED] = {"host's wall clock stepped", 4, ANY},
    [FAULT_MEMORY_WANTED] = {"entry forgotten for want of memory", 20, ANY},
    [FAULT_KILLED_AT_WRITE] = {"daemon killed in a write", 6, DISK},
    [FAULT_WRITE_SHORT] = {"short write", 10, DISK},
    [FAULT_DISK_FULL] = {"disk full", 4, DISK},
    [FAULT_WRITE_FAILS] = {"write failed", 1, DISK},
    [FAULT_SYNC_FAILS] = {"sync failed", 1, DISK},
#undef ANY
#undef DISK
};

void faults_begin(struct judge *judge, struct mount **mounts, unsigned count)
{
    faults.judge = judge;
    faults.mounts = mounts;
    faults.count = count;
}

const char *fault_name(enum fault_kind kind)
{
    return fault_table[kind].name;
}

unsigned faults_draw(const struct plan *plan, unsigned *ret_weights)
{
    unsigned total = 0;
    for (unsigned i = 0; i < FAULTS; i++) {
        bool there = fault_table[i].stores & 1u << plan->options.store;
        ret_weights[i] = there && world_chance(500) ? fault_table[i].weight * (1 + world_below(4)) : 0;
        total += ret_weights[i];
    }
    return total;
}

const uint64_t *faults_struck(void)
{
    return faults.struck;
}

static void fault_strikes(enum fault_kind kind, unsigned mount)
{
    faults.struck[kind]++;
    user_tell("*** mount %u: %s", mount, fault_table[kind].name);
}

static void fault_trouble(enum judge_trouble trouble, unsigned mount, bool begins)
{
    judge_trouble(faults.judge, world_now(), trouble, mount, NULL, begins);
}

/* --- daemons ------------------------------------------------------------------------ */

#define FAULT_AGAIN (100 * WORLD_MS)

static void fault_start(void *arg)
{
    struct mount *mount = arg;
    unsigned index = mount_host(mount)->index;
    if (mount_state(mount) == MOUNT_SERVES) {
        return;
    }
    if (mount_host(mount)->suspended) {
        world_after(FAULT_AGAIN, fault_start, mount);
        return;
    }
    if (mount_start(mount)) {
        user_tell("*** mount %u: a daemon serves again", index);
        fault_trouble(JUDGE_DEAD, index, false);
    } else {
        world_after(FAULT_AGAIN, fault_start, mount);
    }
}

/* The daemon has gone: it comes again in a while. */
static void fault_gone(struct mount *mount, int64_t duration)
{
    fault_trouble(JUDGE_DEAD, mount_host(mount)->index, true);
    world_after(duration, fault_start, mount);
}

static void fault_continue(void *arg)
{
    struct mount *mount = arg;
    unsigned index = mount_host(mount)->index;
    if (mount_host(mount)->suspended) {
        mount_host(mount)->suspended = false;
    }
    mount_stop(mount, false);
    user_tell("*** mount %u: goes on", index);
    fault_trouble(JUDGE_STOPPED, index, false);
}

/* A daemon that was killed in a write is found dead. */
static void fault_look_for_dead(void *arg)
{
    struct mount *mount = arg;
    if (mount_state(mount) == MOUNT_KILLED) {
        fault_gone(mount, world_between(1, 2000) * WORLD_MS);
    } else if (!faults.over) {
        world_after(WORLD_MS, fault_look_for_dead, mount);
    }
}

/* --- disks ---------------------------------------------------------------------------- */

static void fault_disk_well(void *arg)
{
    struct mount *mount = arg;
    disk_fail_writes(mount_disk(mount), 0);
    disk_fail_syncs(mount_disk(mount), false);
    fault_trouble(JUDGE_FULL, mount_host(mount)->index, false);
    user_tell("*** mount %u: the disk is well again", mount_host(mount)->index);
}

/* A journal that has failed is failed for good: the daemon must be started anew. */
static void fault_disk_mended(void *arg)
{
    struct mount *mount = arg;
    if (mount_is_busy(mount)) {
        world_after(WORLD_MS, fault_disk_mended, mount);
        return;
    }
    bool served = mount_state(mount) == MOUNT_SERVES && !mount_is_stopped(mount);
    fault_disk_well(mount);
    if (served) {
        fault_trouble(JUDGE_DEAD, mount_host(mount)->index, true);
        mount_end(mount);
        fault_start(mount);
    }
}

/* --- all --------------------------------------------------------------------------------- */

static void fault_again(void *arg)
{
    fault_act(arg);
    g_free(arg);
}

void fault_act(const struct act *act)
{
    struct mount *mount = faults.mounts[act->mount % faults.count];
    struct host *host = mount_host(mount);
    struct disk *disk = mount_disk(mount);
    enum fault_kind kind = (enum fault_kind)act->fault;
    unsigned index = host->index;
    if (faults.over) {
        return;
    }
    if (mount_is_busy(mount)) {
        world_after(WORLD_MS, fault_again, g_memdup2(act, sizeof *act));
        return;
    }
    if (mount_state(mount) != MOUNT_SERVES || mount_is_stopped(mount) || host->suspended) {
        return;
    }
    switch (kind) {
    case FAULT_DAEMON_KILLED:
        fault_strikes(kind, index);
        mount_kill(mount);
        fault_gone(mount, act->duration);
        break;
    case FAULT_DAEMON_ENDED:
        fault_strikes(kind, index);
        fault_trouble(JUDGE_DEAD, index, true);
        mount_end(mount);
        world_after(act->duration / 4, fault_start, mount);
        break;
    case FAULT_DAEMON_STOPPED:
        fault_strikes(kind, index);
        mount_stop(mount, true);
        fault_trouble(JUDGE_STOPPED, index, true);
        world_after(act->duration, fault_continue, mount);
        break;
    case FAULT_HOST_SUSPENDED:
        fault_strikes(kind, index);
        host->suspended = true;
        host->asleep += act->duration;
        fault_trouble(JUDGE_STOPPED, index, true);
        world_after(act->duration, fault_continue, mount);
        break;
    case FAULT_HOST_REBOOTED:
        fault_strikes(kind, index);
        user_kill_all(index);
        mount_reboot(mount);
        fault_gone(mount, act->duration);
        break;
    case FAULT_WALL_STEPPED:
        fault_strikes(kind, index);
        host->wall += world_between(-3600, 3600) * WORLD_SECOND;
        fault_trouble(JUDGE_CLOCK, index, true);
        break;
    case FAULT_MEMORY_WANTED:
        if (kernel_drop_any(mount_kernel(mount))) {
            faults.struck[kind]++;
        }
        break;
    case FAULT_KILLED_AT_WRITE:
        fault_strikes(kind, index);
        disk_cut_at_write(disk, 1 + world_below(10));
        world_after(WORLD_MS, fault_look_for_dead, mount);
        break;
    case FAULT_WRITE_SHORT:
        fault_strikes(kind, index);
        disk_shorten_write(disk);
        break;
    case FAULT_DISK_FULL:
        fault_strikes(kind, index);
        disk_fail_writes(disk, ENOSPC);
        fault_trouble(JUDGE_FULL, index, true);
        world_after(act->duration, fault_disk_well, mount);
        break;
    case FAULT_WRITE_FAILS:
    case FAULT_SYNC_FAILS:
        fault_strikes(kind, index);
        if (kind == FAULT_WRITE_FAILS) {
            disk_fail_writes(disk, EIO);
        } else {
            disk_fail_syncs(disk, true);
        }
        fault_trouble(JUDGE_FULL, index, true);
        world_after(act->duration, fault_disk_mended, mount);
        break;
    case FAULTS:
        break;
    }
}

void faults_end(void)
{
    faults.over = true;
}

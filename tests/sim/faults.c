/* faults: the faults of a world; see faults.h.
 *
 * The judge gets each fault that a user could know of.
 */
#include "tests/sim/faults.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

#include "tests/sim/disk.h"
#include "tests/sim/judge.h"
#include "tests/sim/kernel.h"
#include "tests/sim/network.h"
#include "tests/sim/nodes.h"
#include "tests/sim/redis_model.h"
#include "tests/sim/user.h"
#include "tests/sim/zookeeper_model.h"

static struct {
    struct judge *judge;
    struct mount **mounts;
    unsigned count;
    int64_t ttl;  /* ms */
    int64_t rest; /* before a killed daemon comes again */
    bool over;
    bool older; /* what comes again with a daemon may be as it was once */
    bool struck_nodes[NETWORK_NODES];
    uint64_t struck[FAULTS];
    unsigned troubles[JUDGE_TROUBLES][MOUNTS_MAX]; /* that are on */
} faults;

static const struct {
    const char *name;
    unsigned weight;
    unsigned stores; /* of 1 << enum mount_store */
} fault_table[FAULTS] = {
#define ANY ((1u << MOUNT_STORES) - 1)
#define DISK (1u << MOUNT_LOCAL | 1u << MOUNT_LOCAL_SYNC)
#define REDIS (1u << MOUNT_REDIS)
#define ENSEMBLE (1u << MOUNT_ZOOKEEPER)
#define SERVER (REDIS | ENSEMBLE)
#define SENTINEL (1u << MOUNT_SENTINEL | 1u << MOUNT_FAILOVER)
#define REDLOCK (1u << MOUNT_REDLOCK)
#define SEVERAL (SENTINEL | REDLOCK)
    [FAULT_DAEMON_KILLED] = {"daemon killed", 3, ANY},
    [FAULT_DAEMON_SUCCEEDED] = {"daemon killed, and another goes on", 6, ANY & ~(1u << MOUNT_MEMORY)},
    [FAULT_DAEMON_ENDED] = {"daemon ended and begun anew", 2, ANY},
    [FAULT_DAEMON_STOPPED] = {"daemon stopped", 4, ANY},
    [FAULT_HOST_SUSPENDED] = {"host suspended", 3, ANY},
    [FAULT_HOST_REBOOTED] = {"host lost its power", 2, ANY},
    [FAULT_WALL_STEPPED] = {"host's wall clock stepped", 4, ANY},
    [FAULT_MEMORY_WANTED] = {"entry forgotten for want of memory", 20, ANY},
    [FAULT_KILLED_AT_WRITE] = {"daemon killed in a write", 6, DISK},
    [FAULT_WRITE_SHORT] = {"short write", 10, DISK},
    [FAULT_WRITE_INTERRUPTED] = {"interrupted write", 10, DISK},
    [FAULT_WRITE_REFUSED] = {"write refused in spite of its room", 3, DISK},
    [FAULT_DISK_FULL] = {"disk full", 4, DISK},
    [FAULT_WRITE_FAILS] = {"write failed", 1, DISK},
    [FAULT_SYNC_FAILS] = {"sync failed", 1, DISK},
    [FAULT_WRITE_DOUBLED] = {"doubled write", 1, DISK},
    [FAULT_BIT_FLIPPED] = {"bit flipped in the journal", 1, DISK},
    [FAULT_MESSAGES_LATE] = {"requests and answers late", 6, SERVER | SEVERAL},
    [FAULT_NEWS_LATE] = {"messages of channels late, behind answers", 6, REDIS | SEVERAL},
    [FAULT_RESET] = {"connections reset, requests sent again", 6, SERVER | SEVERAL},
    [FAULT_HALF_REPLY] = {"half a reply", 6, REDIS | SEVERAL},
    [FAULT_CUT_OFF] = {"mount cut off from the server", 5, SERVER | SEVERAL},
    [FAULT_ALL_CUT_OFF] = {"all mounts cut off", 3, SERVER | SEVERAL},
    [FAULT_SERVER_PAUSED] = {"server paused", 4, REDIS},
    [FAULT_SERVER_DOWN] = {"server down for a while", 3, REDIS},
    [FAULT_SERVER_RESTARTED] = {"server restarted with its data", 4, REDIS},
    [FAULT_SERVER_LOST_SOME] = {"server restarted without its last writes", 4, REDIS},
    [FAULT_SERVER_LOST_ALL] = {"server restarted without data", 4, REDIS},
    [FAULT_FLUSHALL] = {"FLUSHALL", 4, REDIS},
    [FAULT_SERVER_FULL] = {"server full", 3, REDIS},
    [FAULT_SERVER_READONLY] = {"server read-only", 3, REDIS},
    [FAULT_SERVER_LOADING] = {"server loading", 3, REDIS},
    [FAULT_SERVER_BUSY] = {"server busy with another's script", 3, REDIS},
    [FAULT_SCRIPTS_KILLED] = {"script killed", 5, REDIS},
    [FAULT_SCRIPTS_FORGOTTEN] = {"SCRIPT FLUSH", 5, REDIS},
    [FAULT_REFUSED] = {"commands refused with MOVED", 4, REDIS},
    [FAULT_TWO_RESTORE] = {"server that two believe to have granted a lock loses all", 5, REDIS},
    [FAULT_CLOCK_FORWARD] = {"server's clock stepped forward", 2, SERVER},
    [FAULT_CLOCK_BACK] = {"server's clock stepped back", 2, SERVER},
    [FAULT_KEY_DELETED] = {"key deleted by a stranger", 2, SERVER},
    [FAULT_KEY_OVERWRITTEN] = {"key overwritten by a stranger", 2, REDIS},
    [FAULT_KEY_PERSISTED] = {"key persisted by a stranger", 2, REDIS},
    [FAULT_KEY_EXPIRED] = {"key expired early by a stranger", 2, REDIS},
    [FAULT_LEADER_KILLED] = {"leader killed", 6, ENSEMBLE},
    [FAULT_LEADER_STOPPED] = {"leader stopped", 6, ENSEMBLE},
    [FAULT_LEADER_APART] = {"leader cut off from its followers", 6, ENSEMBLE},
    [FAULT_FOLLOWER_KILLED] = {"follower killed", 6, ENSEMBLE},
    [FAULT_FOLLOWER_STOPPED] = {"follower stopped", 6, ENSEMBLE},
    [FAULT_FOLLOWER_APART] = {"follower cut off from the leader", 10, ENSEMBLE},
    [FAULT_FOLLOWER_LAGS] = {"follower late", 10, ENSEMBLE},
    [FAULT_ENSEMBLE_RESTARTED] = {"all servers restarted", 3, ENSEMBLE},
    [FAULT_NODES_CUT_OFF] = {"servers cut off from all", 8, SEVERAL},
    [FAULT_NODES_PAUSED] = {"servers stopped", 8, SEVERAL},
    [FAULT_NODES_KILLED] = {"servers killed and started anew", 8, SEVERAL},
    [FAULT_NODES_IN_TURN] = {"servers restarted empty in turn", 8, REDLOCK},
    [FAULT_PARTED] = {"hosts and servers parted in two", 8, SEVERAL},
    [FAULT_MASTER_KEPT] = {"master cut off together with hosts", 12, SENTINEL},
    [FAULT_MASTER_LEFT] = {"master left with a replica and hosts, as the other is promoted", 8, SENTINEL},
    [FAULT_REPLICA_LATE] = {"what is written late at a replica", 6, SENTINEL},
    [FAULT_FAILOVER] = {"failover of a master that is well", 8, SENTINEL},
    [FAULT_NODES_BUSY] = {"majority of servers busy with another's script", 0, 0},
    [FAULT_SIGNAL] = {"signal in a call", 0, 0},
    [FAULT_PROGRAM_KILLED] = {"program killed between two calls", 0, 0},
    [FAULT_PROGRAM_KILLED_IN_CALL] = {"program killed in a call", 0, 0},
    [FAULT_PROGRAM_STOPPED] = {"program stopped", 0, 0},
#undef ANY
#undef DISK
#undef REDIS
#undef ENSEMBLE
#undef SERVER
#undef SENTINEL
#undef REDLOCK
#undef SEVERAL
};

void faults_begin(struct judge *judge, struct mount **mounts, unsigned count, int64_t ttl)
{
    faults.ttl = ttl;
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
    for (unsigned i = 0; i < FAULTS_DRAWN; i++) {
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

void fault_count(enum fault_kind kind)
{
    faults.struck[kind]++;
}

/* Of several of a kind the judge hears the first begin and the last end. */
static void fault_trouble(enum judge_trouble trouble, unsigned mount, bool begins)
{
    for (unsigned i = 0; i < faults.count; i++) {
        unsigned *on = &faults.troubles[trouble][i];
        if (mount != JUDGE_ALL && mount != i) {
            continue;
        }
        if (begins ? (*on)++ == 0 : *on && --*on == 0) {
            judge_trouble(faults.judge, world_now(), trouble, i, NULL, begins);
        }
    }
}

void faults_away(unsigned mount, bool away)
{
    user_tell("*** mount %u has %s", mount, away ? "not what it needs" : "what it needs again");
    fault_trouble(JUDGE_AWAY, mount, away);
}

void faults_moved(void)
{
    judge_trouble(faults.judge, world_now(), JUDGE_MOVED, JUDGE_ALL, NULL, true);
}

static void fault_moment(enum judge_trouble trouble, unsigned mount)
{
    fault_trouble(trouble, mount, true);
    fault_trouble(trouble, mount, false);
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
    bool damaged = disk_was_damaged(mount_disk(mount)), serves = mount_start(mount);
    faults.older = faults.older || damaged; /* the last of it was taken for a torn tail, and cut off */
    if (serves) {
        user_tell("*** mount %u: a daemon serves again", index);
        if (damaged) {
            judge_trouble(faults.judge, world_now(), JUDGE_CUT, index, NULL, true);
        }
        if (faults.older) { /* also the numbers of a queue */
            judge_trouble(faults.judge, world_now(), JUDGE_FORGOT, index, NULL, true);
            judge_trouble(faults.judge, world_now(), JUDGE_FOREIGN, index, "q", true);
        }
        faults.older = false;
        faults.troubles[JUDGE_DEAD][index] = 1; /* one that was to end may have been killed first */
        fault_trouble(JUDGE_DEAD, index, false);
        return;
    }
    if (damaged) { /* as the daemon says to */
        user_tell("*** mount %u: the journal is moved away", index);
        disk_remove(mount_disk(mount));
        judge_trouble(faults.judge, world_now(), JUDGE_EMPTIED, index, NULL, true);
    }
    world_after(FAULT_AGAIN, fault_start, mount);
}

void faults_died(unsigned mount)
{
    fault_trouble(JUDGE_DEAD, mount, true);
    world_after(faults.rest, fault_start, faults.mounts[mount]);
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

/* --- disks ---------------------------------------------------------------------------- */

static void fault_disk_is_well(struct mount *mount, enum judge_trouble trouble)
{
    disk_fail_writes(mount_disk(mount), 0);
    disk_fail_syncs(mount_disk(mount), false);
    fault_trouble(trouble, mount_host(mount)->index, false);
    user_tell("*** mount %u: the disk is well again", mount_host(mount)->index);
}

static void fault_disk_has_room(void *arg)
{
    fault_disk_is_well(arg, JUDGE_FULL);
}

/* A journal that has failed is failed for good: the daemon must be restarted. */
static void fault_disk_mended(void *arg)
{
    struct mount *mount = arg;
    if (mount_is_busy(mount) || mount_is_stopped(mount)) {
        world_after(WORLD_MS, fault_disk_mended, mount);
        return;
    }
    bool served = mount_state(mount) == MOUNT_SERVES;
    fault_disk_is_well(mount, JUDGE_FAILS);
    if (served) {
        fault_trouble(JUDGE_DEAD, mount_host(mount)->index, true);
        mount_end(mount);
        fault_start(mount);
    }
}

/* From now on the next write does not fail, if none has come. */
static void fault_write_passed(void *arg)
{
    struct mount *mount = arg;
    disk_fail_next_write(mount_disk(mount), 0);
    fault_trouble(JUDGE_FAILS, mount_host(mount)->index, false);
}

/* --- the server ------------------------------------------------------------------------ */

struct fault_end {
    enum fault_kind kind;
    enum redis_model_state state;
    struct mount *mount;
    unsigned index;
};

static bool fault_is_of_ensemble(const struct mount *mount)
{
    return mount_store(mount) == MOUNT_ZOOKEEPER;
}

static void fault_cut(struct mount *mount, bool cut)
{
    (fault_is_of_ensemble(mount) ? zkmodel_cut : network_cut)(mount_host(mount), cut);
}

static bool fault_slow(struct mount *mount, bool commands, int64_t by)
{
    return fault_is_of_ensemble(mount) ? zkmodel_slow(mount_host(mount), by)
                                       : network_slow(mount_host(mount), commands, by);
}

/* To the judge. */
static enum judge_trouble fault_means(enum fault_kind kind)
{
    bool late = kind == FAULT_MESSAGES_LATE || kind == FAULT_NEWS_LATE;
    return late ? JUDGE_LATE : kind == FAULT_SERVER_FULL ? JUDGE_FULL : JUDGE_AWAY;
}

static void fault_ends(void *arg)
{
    struct fault_end *end = arg;
    switch (end->kind) {
    case FAULT_MESSAGES_LATE:
    case FAULT_NEWS_LATE:
        fault_slow(end->mount, end->kind == FAULT_MESSAGES_LATE, 0);
        break;
    case FAULT_CUT_OFF:
    case FAULT_ALL_CUT_OFF:
        for (unsigned i = 0; i < faults.count; i++) {
            if (end->index == JUDGE_ALL || end->index == i) {
                fault_cut(faults.mounts[i], false);
            }
        }
        break;
    default:
        redis_model_set(network_server(), end->state, false);
        network_look_at_server();
        break;
    }
    user_tell("*** it is over: %s", fault_table[end->kind].name);
    fault_trouble(fault_means(end->kind), end->index, false);
    g_free(end);
}

static void fault_lasts(const struct act *act, struct mount *mount, unsigned index, enum redis_model_state state)
{
    struct fault_end *end = g_new0(struct fault_end, 1);
    *end = (struct fault_end){(enum fault_kind)act->fault, state, mount, index};
    fault_trouble(fault_means(end->kind), index, true);
    world_after(act->duration, fault_ends, end);
}

/* A state of the server, unless it is in it. */
static void fault_state(const struct act *act, struct mount *mount, enum redis_model_state state)
{
    if (!redis_model_is(network_server(), state)) {
        fault_strikes((enum fault_kind)act->fault, mount_host(mount)->index);
        redis_model_set(network_server(), state, true);
        fault_lasts(act, mount, JUDGE_ALL, state);
    }
}

static void fault_of_key(const struct act *act, unsigned index)
{
    struct redis_model *server = network_server();
    const char *key = plan_names[act->name % 5];
    if (redis_model_is(server, REDIS_MODEL_DOWN)) {
        return;
    }
    judge_trouble(faults.judge, world_now(), JUDGE_FOREIGN, JUDGE_ALL, key, true);
    switch (act->fault) {
    case FAULT_KEY_DELETED:
        redis_model_do(server, "DEL", key, NULL);
        break;
    case FAULT_KEY_OVERWRITTEN:
        redis_model_do(server, "SET", key, "stranger", "PX", "1000", NULL);
        break;
    case FAULT_KEY_PERSISTED:
        redis_model_do(server, "PERSIST", key, NULL);
        break;
    default:
        redis_model_do(server, "PEXPIRE", key, "1", NULL);
        break;
    }
    fault_strikes((enum fault_kind)act->fault, index);
    user_tell("***   the key is %s", key);
}

/* Some of the next commands fail, whenever they come; as all worlds end, those that are left do not. */
static void fault_ends_with_failures(void *arg)
{
    struct redis_model *server = network_server();
    if (faults.over) {
        redis_model_refuse(server, "", 0);
        redis_model_kill_scripts(server, 0);
    }
    if (redis_model_is_to_fail(server)) {
        world_after(FAULT_AGAIN, fault_ends_with_failures, arg);
    } else {
        fault_trouble(JUDGE_AWAY, JUDGE_ALL, false);
    }
}

/* Faults that last a moment, or until some commands have failed. */
static void fault_of_server(const struct act *act, unsigned index)
{
    struct redis_model *server = network_server();
    bool forgets =
        act->fault == FAULT_SERVER_LOST_ALL || act->fault == FAULT_SERVER_LOST_SOME || act->fault == FAULT_FLUSHALL;
    if (redis_model_is(server, REDIS_MODEL_DOWN)) {
        return;
    }
    fault_strikes((enum fault_kind)act->fault, index);
    if (forgets) {
        judge_trouble(faults.judge, world_now(), JUDGE_FORGOT, JUDGE_ALL, NULL, true);
    }
    fault_moment(JUDGE_AWAY, JUDGE_ALL);
    switch (act->fault) {
    case FAULT_SERVER_RESTARTED:
        redis_model_restart(server, 0);
        break;
    case FAULT_SERVER_LOST_SOME:
        redis_model_restart(server, 1 + act->value % 5);
        break;
    case FAULT_SERVER_LOST_ALL:
        redis_model_restart(server, REDIS_MODEL_NOTHING);
        break;
    case FAULT_FLUSHALL:
        redis_model_do(server, "FLUSHALL", NULL);
        break;
    case FAULT_SCRIPTS_KILLED:
        redis_model_kill_scripts(server, 1 + act->value % 3);
        fault_trouble(JUDGE_AWAY, JUDGE_ALL, true);
        fault_ends_with_failures(NULL);
        break;
    case FAULT_SCRIPTS_FORGOTTEN:
        redis_model_do(server, "SCRIPT", "FLUSH", NULL);
        break;
    case FAULT_REFUSED:
        redis_model_refuse(server, "MOVED 1 10.0.0.1:6379", 1 + act->value % 3);
        fault_trouble(JUDGE_AWAY, JUDGE_ALL, true);
        fault_ends_with_failures(NULL);
        break;
    default: {
        int64_t by = world_between(1, 3000) * 1000;
        redis_model_step(server, act->fault == FAULT_CLOCK_FORWARD ? by : -by);
        judge_trouble(faults.judge, world_now(), JUDGE_CLOCK, JUDGE_ALL, NULL, true);
        break;
    }
    }
    network_look_at_server();
}

static void fault_server_loses_all(void *arg)
{
    (void)arg;
    if (!redis_model_is(network_server(), REDIS_MODEL_DOWN)) {
        judge_trouble(faults.judge, world_now(), JUDGE_FORGOT, JUDGE_ALL, NULL, true);
        fault_moment(JUDGE_AWAY, JUDGE_ALL);
        redis_model_restart(network_server(), REDIS_MODEL_NOTHING);
        network_look_at_server();
    }
}

/* The server's clock ends what a mount has that is cut off, and still believes in it; others are granted it; then the
 * server loses all, and both restore it: the first or the second of them first. */
static void fault_of_two_holders(const struct act *act, struct mount *mount)
{
    struct act cut = *act;
    int64_t until = faults.ttl / 3 * WORLD_MS;
    fault_strikes(FAULT_TWO_RESTORE, mount_host(mount)->index);
    cut.fault = FAULT_CUT_OFF;
    cut.duration = until + world_between(-100, 300) * WORLD_MS;
    fault_cut(mount, true);
    fault_lasts(&cut, mount, mount_host(mount)->index, REDIS_MODEL_DOWN);
    redis_model_step(network_server(), faults.ttl * 1100);
    judge_trouble(faults.judge, world_now(), JUDGE_CLOCK, JUDGE_ALL, NULL, true);
    network_look_at_server();
    world_after(until, fault_server_loses_all, NULL);
}

struct fault_resets {
    struct mount *mount;
    int64_t until;
};

/* Again and again, so that what a reconnect renews never ends. */
static void fault_reset(void *arg)
{
    struct fault_resets *resets = arg;
    struct host *host = mount_host(resets->mount);
    int64_t pause = faults.ttl * WORLD_MS / 2;
    if (!faults.over && (fault_is_of_ensemble(resets->mount) ? zkmodel_reset(host) : network_reset(host))) {
        fault_strikes(FAULT_RESET, host->index);
        fault_moment(JUDGE_RESET, host->index);
    }
    if (faults.over || world_now() + pause > resets->until) {
        g_free(resets);
    } else {
        world_after(pause, fault_reset, resets);
    }
}

/* Half of them go on for several terms. */
static void fault_begin_resets(const struct act *act, struct mount *mount)
{
    struct fault_resets *resets = g_new(struct fault_resets, 1);
    int64_t lasts = act->duration > faults.ttl * WORLD_MS ? 3 * act->duration : 0;
    *resets = (struct fault_resets){.mount = mount, .until = world_now() + lasts};
    fault_reset(resets);
}

static void fault_of_network(const struct act *act, struct mount *mount)
{
    struct host *host = mount_host(mount);
    enum fault_kind kind = (enum fault_kind)act->fault;
    bool commands = kind == FAULT_MESSAGES_LATE;
    switch (kind) {
    case FAULT_MESSAGES_LATE:
    case FAULT_NEWS_LATE:
        if (fault_slow(mount, commands, world_between(1, faults.ttl / 2) * WORLD_MS)) {
            fault_strikes(kind, host->index);
            fault_lasts(act, mount, host->index, REDIS_MODEL_DOWN);
        }
        break;
    case FAULT_RESET:
        fault_begin_resets(act, mount);
        break;
    case FAULT_HALF_REPLY:
        if (network_halve_reply(host)) {
            fault_strikes(kind, host->index);
            fault_moment(JUDGE_AWAY, host->index);
        }
        break;
    case FAULT_CUT_OFF:
        fault_strikes(kind, host->index);
        fault_cut(mount, true);
        fault_lasts(act, mount, host->index, REDIS_MODEL_DOWN);
        break;
    default:
        fault_strikes(kind, host->index);
        for (unsigned i = 0; i < faults.count; i++) {
            fault_cut(faults.mounts[i], true);
        }
        fault_lasts(act, mount, JUDGE_ALL, REDIS_MODEL_DOWN);
        break;
    }
}

/* --- the ensemble ----------------------------------------------------------------------- */

struct fault_of_servers {
    enum fault_kind kind;
    enum zkmodel_state state;
    unsigned first, end;
};

static void fault_ensemble_is_well(void *arg)
{
    struct fault_of_servers *of = arg;
    if (!zkmodel_is_well()) {
        world_after(20 * WORLD_MS, fault_ensemble_is_well, of);
        return;
    }
    user_tell("*** it is over: %s", fault_table[of->kind].name);
    fault_trouble(of->kind == FAULT_FOLLOWER_LAGS ? JUDGE_LATE : JUDGE_AWAY, JUDGE_ALL, false);
    g_free(of);
}

static void fault_ensemble_ends(void *arg)
{
    const struct fault_of_servers *of = arg;
    for (unsigned i = of->first; i < of->end; i++) {
        zkmodel_set(i, of->state, false);
    }
    fault_ensemble_is_well(arg);
}

static void fault_of_ensemble(const struct act *act, unsigned index)
{
    static const struct {
        enum zkmodel_state state;
        bool leader;
    } kinds[] = {{ZKMODEL_DOWN, true},     {ZKMODEL_STOPPED, true}, {ZKMODEL_APART, true}, {ZKMODEL_DOWN, false},
                 {ZKMODEL_STOPPED, false}, {ZKMODEL_APART, false},  {ZKMODEL_LAGS, false}, {ZKMODEL_DOWN, true}};
    if (!zkmodel_is_well()) {
        return;
    }
    unsigned kind = act->fault - FAULT_LEADER_KILLED;
    bool all = act->fault == FAULT_ENSEMBLE_RESTARTED;
    unsigned server = (unsigned)(kinds[kind].leader ? zkmodel_leader() : zkmodel_follower());
    struct fault_of_servers *of = g_new0(struct fault_of_servers, 1);
    *of = (struct fault_of_servers){(enum fault_kind)act->fault, kinds[kind].state, all ? 0 : server,
                                    all ? ZKMODEL_SERVERS : server + 1};
    fault_strikes(of->kind, index);
    fault_trouble(of->kind == FAULT_FOLLOWER_LAGS ? JUDGE_LATE : JUDGE_AWAY, JUDGE_ALL, true);
    for (unsigned i = of->first; i < of->end; i++) {
        zkmodel_set(i, of->state, true);
    }
    world_after(act->duration, fault_ensemble_ends, of);
}

/* --- several servers ---------------------------------------------------------------------- */

/* What a fault of them has done, and is to end. */
struct fault_nodes {
    enum fault_kind kind;
    bool struck[NETWORK_NODES]; /* none of them in another such fault */
    bool side[NETWORK_PLACES];  /* parted from those of the other */
    bool empty;
    bool hurries; /* while a host is cut off, which does not give again what was forgotten */
};

static void fault_part(const struct fault_nodes *fault, bool cut)
{
    for (unsigned a = 0; a < NETWORK_PLACES; a++) {
        for (unsigned b = 0; b < a; b++) {
            if (fault->side[a] != fault->side[b]) {
                network_part(a, b, cut);
            }
        }
    }
    nodes_look();
}

/* Fewer than half of all servers, counting those that are struck already; false: none can be. */
static bool fault_strike(struct fault_nodes *fault, uint32_t value)
{
    unsigned count = nodes_count(), most = (count - 1) / 2, wanted = 1 + value % most, struck = 0;
    for (unsigned i = 0; i < count; i++) {
        struck += faults.struck_nodes[i];
    }
    bool any = false;
    for (unsigned i = 0; i < count && wanted > 0 && struck < most; i++) {
        unsigned node = (value / 8 + i * 2) % count; /* count is odd: each once */
        if (!faults.struck_nodes[node]) {
            fault->struck[node] = faults.struck_nodes[node] = any = true;
            wanted--;
            struck++;
        }
    }
    return any;
}

static void fault_nodes_end(void *arg);

static void fault_replica_in_time(void *arg)
{
    nodes_slow(GPOINTER_TO_UINT(arg), 0);
}

/* The servers meet again, the hosts that were left with the old master do not yet. */
static void fault_keep_hosts_apart(struct fault_nodes *fault)
{
    fault_part(fault, false);
    memset(fault->side + MOUNTS_MAX, 0, NETWORK_NODES * sizeof *fault->side);
    fault_part(fault, true);
    fault->kind = FAULT_PARTED;
    world_after(world_between(0, faults.ttl) * WORLD_MS, fault_nodes_end, fault);
}

static void fault_nodes_end(void *arg)
{
    struct fault_nodes *fault = arg;
    bool left = false;
    if (fault->kind == FAULT_MASTER_LEFT) {
        fault_keep_hosts_apart(fault);
        return;
    }
    for (unsigned i = 0; i < nodes_count(); i++) {
        if (!fault->struck[i]) {
            continue;
        }
        if (fault->kind == FAULT_NODES_PAUSED) {
            nodes_stop(i, false);
        } else if (fault->kind == FAULT_NODES_KILLED && !nodes_start(i, fault->empty)) {
            left = true;
            continue;
        }
        fault->struck[i] = faults.struck_nodes[i] = false;
    }
    if (left) {
        world_after(FAULT_AGAIN, fault_nodes_end, fault);
        return;
    }
    fault_part(fault, false);
    judge_trouble(faults.judge, world_now(), JUDGE_FEWER, JUDGE_ALL, NULL, false);
    user_tell("*** it is over: %s", fault_table[fault->kind].name);
    g_free(fault);
}

/* One after another, each while the one before may not vote yet. */
static void fault_next_in_turn(void *arg)
{
    struct fault_nodes *fault = arg;
    unsigned next = 0;
    while (next < nodes_count() && !fault->struck[next]) {
        next++;
    }
    if (next == nodes_count() || faults.over) {
        memset(fault->struck, 0, sizeof fault->struck);
        world_after(fault->hurries ? world_between(1, faults.ttl) * WORLD_MS : 0, fault_nodes_end, fault);
        return;
    }
    fault->struck[next] = false;
    if (!redis_model_is(nodes_server(next), REDIS_MODEL_DOWN)) {
        nodes_kill(next);
        nodes_start(next, true);
        user_tell("*** server %u is restarted empty", next);
    }
    world_after(world_between(1, fault->hurries ? 100 : faults.ttl) * WORLD_MS, fault_next_in_turn, fault);
}

static void fault_of_nodes(const struct act *act, unsigned index)
{
    const char *name = plan_names[act->name % 5];
    g_autofree char *path = g_strconcat("/locks/", name, NULL);
    if (act->fault == FAULT_KEY_DELETED) {
        judge_trouble(faults.judge, world_now(), JUDGE_FOREIGN, JUDGE_ALL, name, true);
        if (zkmodel_delete_ticket(path)) {
            fault_strikes(FAULT_KEY_DELETED, index);
        }
    } else {
        int64_t by = world_between(1, 3000);
        fault_strikes((enum fault_kind)act->fault, index);
        zkmodel_step_clock(act->fault == FAULT_CLOCK_FORWARD ? by : -by);
        judge_trouble(faults.judge, world_now(), JUDGE_CLOCK, JUDGE_ALL, NULL, true);
    }
}

/* Refused requests are tried again. */
static void fault_nodes_are_used(void *arg)
{
    (void)arg;
    fault_trouble(JUDGE_AWAY, JUDGE_ALL, false);
}

static void fault_nodes_have_time(void *arg)
{
    for (unsigned i = 0; i < nodes_count(); i++) {
        redis_model_set(nodes_server(i), REDIS_MODEL_BUSY, false);
    }
    network_look_at_server();
    user_tell("*** it is over: %s", fault_table[FAULT_NODES_BUSY].name);
    world_after(4 * WORLD_SECOND, fault_nodes_are_used, arg);
}

static void fault_of_busy_nodes(const struct act *act, unsigned index)
{
    fault_strikes(FAULT_NODES_BUSY, index);
    fault_trouble(JUDGE_AWAY, JUDGE_ALL, true);
    for (unsigned i = 0; i <= nodes_count() / 2; i++) {
        redis_model_set(nodes_server(i), REDIS_MODEL_BUSY, true);
    }
    world_after(act->duration, fault_nodes_have_time, NULL);
}

/* fault_nodes_end ends it. */
static void fault_begin(struct fault_nodes *fault)
{
    judge_trouble(faults.judge, world_now(), JUDGE_FEWER, JUDGE_ALL, NULL, true);
    fault_part(fault, true);
}

static void fault_of_several(const struct act *act, unsigned index)
{
    struct fault_nodes *fault = g_new0(struct fault_nodes, 1);
    int64_t lasts = act->duration + world_between(0, 3000) * WORLD_MS;
    unsigned master = nodes_master(), node = act->value % nodes_count();
    fault->kind = (enum fault_kind)act->fault;
    fault->empty = world_chance(800);
    switch (fault->kind) {
    case FAULT_NODES_CUT_OFF:
    case FAULT_NODES_PAUSED:
    case FAULT_NODES_KILLED:
        if (!fault_strike(fault, act->value)) {
            g_free(fault);
            return;
        }
        break;
    case FAULT_NODES_IN_TURN:
        for (unsigned i = 0; i <= nodes_count() / 2; i++) { /* a majority, but never at one time */
            fault->struck[(node + i) % nodes_count()] = true;
        }
        fault_strikes(fault->kind, index);
        fault->hurries = fault->side[index] = world_chance(500);
        fault_begin(fault);
        fault_next_in_turn(fault);
        return;
    case FAULT_PARTED:
        for (unsigned i = 0; i < NETWORK_PLACES; i++) {
            fault->side[i] = world_chance(500);
        }
        break;
    case FAULT_MASTER_LEFT:
        if (!nodes_fail_over_now()) {
            g_free(fault);
            return;
        }
        for (unsigned i = 0; i < nodes_count(); i++) {
            fault->side[MOUNTS_MAX + i] = i != nodes_master();
        }
        fault->side[index] = true;
        for (unsigned i = 0; i < faults.count; i++) {
            fault->side[i] = fault->side[i] || world_chance(300);
        }
        break;
    case FAULT_MASTER_KEPT:
        fault->side[MOUNTS_MAX + master] = true;
        fault->side[index] = true;
        for (unsigned i = 0; i < faults.count; i++) {
            fault->side[i] = fault->side[i] || world_chance(300);
        }
        break;
    case FAULT_REPLICA_LATE:
        nodes_slow(node, world_between(1, faults.ttl) * WORLD_MS);
        fault_strikes(fault->kind, index);
        world_after(lasts, fault_replica_in_time, GUINT_TO_POINTER(node));
        g_free(fault);
        return;
    default:
        if (nodes_fail_over()) {
            fault_strikes(fault->kind, index);
        }
        g_free(fault);
        return;
    }
    for (unsigned i = 0; i < nodes_count(); i++) {
        if (!fault->struck[i]) {
            continue;
        }
        user_tell("***   server %u", i);
        if (fault->kind == FAULT_NODES_CUT_OFF) {
            fault->side[MOUNTS_MAX + i] = true;
        } else if (fault->kind == FAULT_NODES_PAUSED) {
            nodes_stop(i, true);
        } else {
            nodes_kill(i);
        }
    }
    fault_strikes(fault->kind, index);
    fault_begin(fault);
    world_after(lasts, fault_nodes_end, fault);
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
    faults.rest = act->duration;
    if (kind >= FAULT_LEADER_KILLED && kind <= FAULT_ENSEMBLE_RESTARTED) {
        fault_of_ensemble(act, index);
        return;
    }
    if (fault_is_of_ensemble(mount) && kind >= FAULT_CLOCK_FORWARD) {
        fault_of_nodes(act, index);
        return;
    }
    switch (kind) {
    case FAULT_DAEMON_KILLED:
        fault_strikes(kind, index);
        mount_kill(mount);
        break;
    case FAULT_DAEMON_SUCCEEDED:
        faults.struck[kind] += mount_succeed(mount);
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
        if (disk && host->wall_set && host->wall_set >= disk_written(disk)) {
            judge_trouble(faults.judge, world_now(), JUDGE_WALL, index, NULL, true);
        }
        judge_trouble(faults.judge, world_now(), JUDGE_POWER, index, NULL, true);
        mount_reboot(mount);
        faults.older = mount_store(mount) == MOUNT_LOCAL; /* without sync=always */
        break;
    case FAULT_WALL_STEPPED:
        fault_strikes(kind, index);
        host->wall += world_between(-3600, 3600) * WORLD_SECOND;
        host->wall_set = world_now();
        break;
    case FAULT_MEMORY_WANTED:
        if (kernel_drop_any(mount_kernel(mount))) {
            faults.struck[kind]++;
        }
        break;
    case FAULT_KILLED_AT_WRITE:
        fault_strikes(kind, index);
        disk_cut_at_write(disk, 1 + world_below(10));
        break;
    case FAULT_WRITE_SHORT:
        fault_strikes(kind, index);
        disk_shorten_write(disk);
        break;
    case FAULT_WRITE_INTERRUPTED:
        fault_strikes(kind, index);
        disk_fail_next_write(disk, EINTR);
        break;
    case FAULT_WRITE_REFUSED:
        fault_strikes(kind, index);
        disk_fail_next_write(disk, ENOSPC);
        fault_moment(JUDGE_FULL, index);
        fault_trouble(JUDGE_FAILS, index, true);
        world_after(act->duration, fault_write_passed, mount);
        break;
    case FAULT_WRITE_DOUBLED:
        fault_strikes(kind, index);
        disk_double_write(disk);
        break;
    case FAULT_BIT_FLIPPED: /* which matters once it is read */
        if (disk_flip(disk, act->value % 2)) {
            fault_strikes(kind, index);
            mount_kill(mount);
        }
        break;
    case FAULT_DISK_FULL:
        fault_strikes(kind, index);
        disk_fail_writes(disk, ENOSPC);
        fault_trouble(JUDGE_FULL, index, true);
        world_after(act->duration, fault_disk_has_room, mount);
        break;
    case FAULT_WRITE_FAILS:
    case FAULT_SYNC_FAILS:
        fault_strikes(kind, index);
        if (kind == FAULT_WRITE_FAILS) {
            disk_fail_writes(disk, EIO);
        } else {
            disk_fail_syncs(disk, true);
        }
        fault_trouble(JUDGE_FAILS, index, true);
        world_after(act->duration, fault_disk_mended, mount);
        break;
    case FAULT_MESSAGES_LATE:
    case FAULT_NEWS_LATE:
    case FAULT_RESET:
    case FAULT_HALF_REPLY:
    case FAULT_CUT_OFF:
    case FAULT_ALL_CUT_OFF:
        fault_of_network(act, mount);
        break;
    case FAULT_TWO_RESTORE:
        fault_of_two_holders(act, mount);
        break;
    case FAULT_SERVER_PAUSED:
        fault_state(act, mount, REDIS_MODEL_PAUSED);
        break;
    case FAULT_SERVER_DOWN:
        fault_state(act, mount, REDIS_MODEL_DOWN);
        network_look_at_server();
        break;
    case FAULT_SERVER_FULL:
        fault_state(act, mount, REDIS_MODEL_FULL);
        break;
    case FAULT_SERVER_READONLY:
        fault_state(act, mount, REDIS_MODEL_REPLICA);
        break;
    case FAULT_SERVER_LOADING:
        fault_state(act, mount, REDIS_MODEL_LOADING);
        break;
    case FAULT_SERVER_BUSY:
        fault_state(act, mount, REDIS_MODEL_BUSY);
        break;
    case FAULT_KEY_DELETED:
    case FAULT_KEY_OVERWRITTEN:
    case FAULT_KEY_PERSISTED:
    case FAULT_KEY_EXPIRED:
        fault_of_key(act, index);
        network_look_at_server();
        break;
    case FAULT_NODES_CUT_OFF:
    case FAULT_NODES_PAUSED:
    case FAULT_NODES_KILLED:
    case FAULT_NODES_IN_TURN:
    case FAULT_PARTED:
    case FAULT_MASTER_KEPT:
    case FAULT_MASTER_LEFT:
    case FAULT_REPLICA_LATE:
    case FAULT_FAILOVER:
        fault_of_several(act, index);
        break;
    case FAULT_NODES_BUSY:
        fault_of_busy_nodes(act, index);
        break;
    default:
        fault_of_server(act, index);
        break;
    }
}

void faults_restart(void)
{
    for (unsigned i = 0; i < faults.count; i++) {
        if (mount_store(faults.mounts[i]) == MOUNT_LOCAL || mount_store(faults.mounts[i]) == MOUNT_LOCAL_SYNC) {
            faults.rest = FAULT_AGAIN;
            mount_kill(faults.mounts[i]);
        }
    }
}

void faults_end(void)
{
    faults.over = true;
}

/* mount: a simulated host with its daemon; see mount.h.  Like session.c, around a descriptor of the simulated kernel.
 */
#include "tests/sim/mount.h"

#include <errno.h>
#include <ev.h>
#include <glib.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/clock.h"
#include "backend/local/local.h"
#include "backend/redis/redis.h"
#include "backend/redlock/redlock.h"
#include "backend/zookeeper/zookeeper.h"
#include "fs/daemon/channel.h"
#include "fs/daemon/filesystem.h"
#include "fs/kernel/request.h"
#include "fs/ops/ops.h"
#include "fs/options/options.h"
#include "fs/process/openers.h"
#include "tests/sim/disk.h"
#include "tests/sim/kernel.h"
#include "tests/sim/loop.h"
#include "tests/sim/network.h"
#include "tests/sim/nodes.h"
#include "tests/sim/task.h"
#include "tests/sim/zookeeper_model.h"

/* The daemon of one start; when it is killed this is abandoned, with all that it has allocated. */
struct daemon {
    struct mount *mount;
    struct ev_loop *loop;
    struct backend *backend;
    struct fs *fs;
    struct fuse_session *session;
    struct channel channel;
    ev_io io;
    bool halted; /* stopped, or killed */
};

struct mount {
    struct host host;
    struct mount_options given;
    struct options options;
    struct disk *disk;
    struct kernel *kernel;
    struct keep *keep; /* of that kernel */
    struct daemon *daemon;
    enum mount_state state;
    char directory[32];
    jmp_buf *inside; /* the daemon's own thread runs: where the world goes on when it is killed */
};

/* --- the host ------------------------------------------------------------------------ */

static void mount_cut(void *arg)
{
    mount_kill(arg);
}

struct mount *mount_new(unsigned index, const struct mount_options *options)
{
    struct mount *mount = g_new0(struct mount, 1);
    mount->given = *options;
    mount->state = MOUNT_ENDED;
    mount->host = (struct host){.index = index,
                                .boot = world_between(1, 1000) * WORLD_SECOND,
                                .wall = INT64_C(1700000000) * WORLD_SECOND,
                                .rate = options->rate};
    g_snprintf(mount->host.boot_id, sizeof mount->host.boot_id, "boot-%u-1", index);
    g_snprintf(mount->directory, sizeof mount->directory, "/sim/%u", index);
    mount->options = (struct options){
        .ttl = options->ttl, .mode = 0777, .owner_user = options->owner_user, .user_locks = 0, .user_content = 0};
    if (options->store == MOUNT_LOCAL || options->store == MOUNT_LOCAL_SYNC || options->state) {
        mount->disk = disk_new(index);
        disk_on_cut(mount->disk, mount_cut, mount);
        mount->options.directory = mount->directory;
    }
    return mount;
}

struct host *mount_host(struct mount *mount)
{
    return &mount->host;
}

struct kernel *mount_kernel(struct mount *mount)
{
    return mount->kernel;
}

enum mount_store mount_store(const struct mount *mount)
{
    return mount->given.store;
}

struct disk *mount_disk(struct mount *mount)
{
    return mount->disk;
}

enum mount_state mount_state(const struct mount *mount)
{
    return mount->state;
}

bool mount_is_stopped(const struct mount *mount)
{
    return mount->state == MOUNT_SERVES && mount->daemon->halted;
}

/* --- the daemon ------------------------------------------------------------------------ */

static ssize_t mount_session_read(int fd, void *buffer, size_t size, void *userdata)
{
    (void)userdata;
    return kernel_read(kernel_of(fd), buffer, size);
}

static ssize_t mount_session_writev(int fd, struct iovec *parts, int count, void *userdata)
{
    (void)userdata;
    return kernel_writev(kernel_of(fd), parts, count);
}

/* As in fs/daemon/session.c: one request at a time. */
static void mount_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct daemon *daemon = io->data;
    (void)loop, (void)events;
    int error;
    if (channel_read(&daemon->channel, &error)) {
        channel_process(&daemon->channel);
    }
}

static int mount_open_zookeeper(struct mount *mount, struct backend **ret, char *error, size_t error_size)
{
    struct zookeeper_uri uri;
    char identity[64];
    g_snprintf(identity, sizeof identity, "%s 0 0 /mnt", mount->host.boot_id);
    zookeeper_uri_parse(&uri, "zookeeper://127.0.0.1:2181/locks", error, error_size);
    const struct zookeeper_options options = {.uri = &uri,
                                              .identity = identity,
                                              .state = mount->options.directory,
                                              .ttl = mount->given.ttl,
                                              .background = true,
                                              .seed = (uint32_t)world_random()};
    int result = zookeeper_new(&options, ret, error, error_size);
    zookeeper_uri_clear(&uri);
    return result;
}

static int mount_open_redlock(struct mount *mount, const struct redis_options *given, struct backend **ret, char *error,
                              size_t error_size)
{
    struct redis_uri servers[NETWORK_NODES] = {0};
    const struct redlock_uri uri = {mount->given.nodes, servers};
    for (unsigned i = 0; i < uri.count; i++) {
        servers[i] = (struct redis_uri){.host = (char *)nodes_address(i), .port = 6379};
    }
    const struct redlock_options options = {
        .uri = &uri, .conn = given->conn, .identity = given->identity, .ttl = mount->given.ttl, .seed = given->seed};
    return redlock_new(&options, ret, error, error_size);
}

static int mount_open_store(struct mount *mount, struct backend **ret, char *error, size_t error_size)
{
    if (mount->given.store == MOUNT_ZOOKEEPER) {
        return mount_open_zookeeper(mount, ret, error, error_size);
    }
    if (!mount_is_redis(mount->given.store)) {
        const struct local_options options = {.directory = mount->options.directory,
                                              .sync_always = mount->given.store == MOUNT_LOCAL_SYNC,
                                              .seed = (uint32_t)world_random(),
                                              .compact_min = 8192,
                                              .fence_step = 1000000,
                                              .boot_id = mount->host.boot_id};
        return local_new(&options, ret, error, error_size);
    }
    int64_t third = MAX(mount->given.ttl / 3, REDIS_TIME_MIN);
    char identity[64];
    g_snprintf(identity, sizeof identity, "%s 0 0 /mnt", mount->host.boot_id);
    struct redis_options options = {
        .conn = {.uri = {.path = (char *)NETWORK_SERVER},
                 .command_timeout = MIN(third, REDIS_COMMAND_TIMEOUT_DEFAULT),
                 .retry_max = MIN(MAX(third / 2, REDIS_RETRY_MIN), REDIS_RETRY_MAX),
                 .seed = (uint32_t)world_random()},
        .seed = (uint32_t)world_random(),
        .term = mount->given.ttl,
        .identity = identity,
    };
    if (mount->given.store == MOUNT_REDLOCK) {
        return mount_open_redlock(mount, &options, ret, error, error_size);
    }
    if (mount_has_nodes(mount->given.store)) {
        char *hosts[NETWORK_NODES + 1] = {NULL};
        uint16_t ports[NETWORK_NODES];
        for (unsigned i = 0; i < mount->given.nodes; i++) {
            hosts[i] = (char *)nodes_address(i);
            ports[i] = NODES_SENTINEL_PORT;
        }
        options.conn.uri = (struct redis_uri){
            .kind = REDIS_SENTINEL, .hosts = hosts, .ports = ports, .name = (char *)NODES_MASTER_NAME};
        options.conn.wait = mount->given.store == MOUNT_SENTINEL;
        return redis_new(&options, ret, error, error_size); /* which copies them */
    }
    return redis_new(&options, ret, error, error_size);
}

/* `again`: the kernel is that of a daemon before. */
static bool mount_begin(struct mount *mount, struct daemon *daemon, bool again)
{
    static const struct fuse_custom_io io = {.writev = mount_session_writev, .read = mount_session_read};
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    char error[1024] = "";
    daemon->loop = ev_loop_new(EVFLAG_AUTO);
    loop_belongs_to(daemon->loop, &mount->host, &daemon->halted);
    if (mount_open_store(mount, &daemon->backend, error, sizeof error) < 0) {
        world_trace("m%u does not start: %s", mount->host.index, error);
        loop_abandon(daemon->loop);
        return false;
    }
    daemon->fs = fs_new(daemon->loop, daemon->backend, &mount->options, mount->keep);
    daemon->fs->device = kernel_device(mount->kernel);
    daemon->fs->openers = openers_new(daemon->loop, daemon->fs->owners, -1);
    openers_set_own_device(daemon->fs->openers, daemon->fs->device);
    fuse_opt_add_arg(&args, "sim");
    daemon->session = fuse_session_new(&args, &ops_table, sizeof ops_table, daemon->fs);
    fuse_opt_free_args(&args);
    fuse_session_custom_io(daemon->session, &io, kernel_descriptor(mount->kernel));
    channel_open(&daemon->channel, daemon->session, mount->keep);
    fs_start(daemon->fs, daemon->session);
    if (again && channel_resume(&daemon->channel, error, sizeof error) < 0) {
        g_error("%s", error);
    }
    ev_io_init(&daemon->io, mount_readable, kernel_descriptor(mount->kernel), EV_READ);
    daemon->io.data = daemon;
    ev_io_start(daemon->loop, &daemon->io);
    return true;
}

static void mount_make_keep(struct mount *mount)
{
    struct keep_sizes sizes;
    char error[256];
    keep_free(mount->keep);
    fs_keep_sizes(&sizes);
    for (int i = 0; i < KEEP_TABLES; i++) {
        sizes.tables[i].count = 1 << 16;
    }
    sizes.small = 1 << 10;
    sizes.large = 8;
    if (keep_create(&sizes, &mount->keep, error, sizeof error) < 0) {
        g_error("%s", error);
    }
}

static void mount_take_keep(struct mount *mount)
{
    char error[256];
    int fd = dup(keep_fd(mount->keep));
    if (keep_attach(fd, &mount->keep, error, sizeof error) < 0) { /* that of the dead daemon is abandoned with it */
        g_error("%s", error);
    }
}

static bool mount_run(struct mount *mount, bool again)
{
    struct daemon *daemon = g_new0(struct daemon, 1);
    struct host *former = world_enter(&mount->host);
    jmp_buf killed, *outer = mount->inside;
    volatile bool serves = false;
    daemon->mount = mount;
    mount->daemon = daemon;
    if (again) {
        kernel_succeed(mount->kernel);
        mount_take_keep(mount);
    } else {
        mount->kernel = kernel_new(&mount->host, &mount->given.kernel);
        mount_make_keep(mount);
    }
    keep_begin(mount->keep);
    mount->state = MOUNT_SERVES;
    struct task_maker maker = task_set_maker((struct task_maker){&mount->host, &daemon->halted});
    mount->inside = &killed;
    if (setjmp(killed) == 0) {
        serves = mount_begin(mount, daemon, again);
        if (!serves) {
            mount->state = MOUNT_ENDED;
            kernel_abort(mount->kernel);
            if (mount->disk) {
                disk_forget_opens(mount->disk);
            }
        } else if (!again) {
            kernel_greet(mount->kernel);
        }
    }
    mount->inside = outer;
    task_set_maker(maker);
    world_enter(former);
    return serves && mount->state == MOUNT_SERVES;
}

bool mount_is_busy(const struct mount *mount)
{
    return mount->inside || (mount->state == MOUNT_SERVES && loop_is_running(mount->daemon->loop));
}

bool mount_start(struct mount *mount)
{
    return mount_run(mount, false);
}

static void mount_note_repeated(struct keep_request *slot, void *found)
{
    if (slot->deaths && !slot->waiting) {
        *(bool *)found = true;
    }
}

bool mount_succeed(struct mount *mount)
{
    struct daemon *daemon = mount->daemon;
    bool repeated = false; /* a request that the next daemon would answer with EIO: the judge does not know of these */
    if (mount->keep) {
        keep_requests_pending(mount->keep, mount_note_repeated, &repeated);
    }
    if (mount->state != MOUNT_SERVES || repeated || mount_is_busy(mount) || kernel_is_notified(mount->kernel) ||
        (mount->given.store == MOUNT_ZOOKEEPER && !mount->disk)) { /* without state= the next one finds no lock */
        return false;
    }
    world_trace("m%u is killed, and another daemon goes on", mount->host.index);
    mount->state = MOUNT_KILLED;
    daemon->halted = true;
    loop_abandon(daemon->loop);
    if (mount->disk) {
        disk_forget_opens(mount->disk);
    }
    if (mount_is_redis(mount->given.store)) {
        network_drop(&mount->host);
    } else if (mount->given.store == MOUNT_ZOOKEEPER) {
        zkmodel_drop(&mount->host);
    }
    if (!mount_run(mount, true)) {
        mount->given.died(mount->host.index);
    }
    return true;
}

void mount_kill(struct mount *mount)
{
    struct daemon *daemon = mount->daemon;
    if (mount->state != MOUNT_SERVES) {
        return;
    }
    world_trace("m%u is killed", mount->host.index);
    mount->state = MOUNT_KILLED;
    daemon->halted = true;
    loop_abandon(daemon->loop);
    if (mount->disk) {
        disk_forget_opens(mount->disk);
    }
    if (mount_is_redis(mount->given.store)) {
        network_drop(&mount->host);
    } else if (mount->given.store == MOUNT_ZOOKEEPER) {
        zkmodel_drop(&mount->host);
    }
    mount->given.died(mount->host.index);
    kernel_abort(mount->kernel);
    while (task_current()) {
        task_wait(); /* a thread of the daemon: it never runs again */
    }
    if (mount->inside) {
        longjmp(*mount->inside, 1);
    }
    loop_escape(daemon->loop);
}

void mount_stop(struct mount *mount, bool stop)
{
    if (mount->state == MOUNT_SERVES) {
        mount->daemon->halted = stop;
    }
}

/* As session_run() does it when its loop has ended. */
void mount_end(struct mount *mount)
{
    struct daemon *daemon = mount->daemon;
    if (mount->state != MOUNT_SERVES || daemon->halted) {
        return;
    }
    struct host *former = world_enter(&mount->host);
    jmp_buf killed, *outer = mount->inside;
    world_trace("m%u ends", mount->host.index);
    mount->inside = &killed;
    struct task_maker maker = task_set_maker((struct task_maker){&mount->host, &daemon->halted});
    if (setjmp(killed) == 0) {
        fs_stop(daemon->fs);
        ev_io_stop(daemon->loop, &daemon->io);
        kernel_abort(mount->kernel);
        fuse_session_destroy(daemon->session);
        fs_free(daemon->fs);
        backend_free(daemon->backend);
        ev_loop_destroy(daemon->loop);
        mount->state = MOUNT_ENDED;
        g_free(daemon);
        mount->daemon = NULL;
    }
    mount->inside = outer;
    task_set_maker(maker);
    world_enter(former);
}

void mount_reboot(struct mount *mount)
{
    static unsigned boots = 1;
    mount_kill(mount);
    if (mount->disk) {
        disk_lose_power(mount->disk);
    }
    g_snprintf(mount->host.boot_id, sizeof mount->host.boot_id, "boot-%u-%u", mount->host.index, ++boots);
    int64_t back = host_boottime(&mount->host) - WORLD_SECOND;
    mount->host.boot -= back;
    mount->host.wall += back; /* its battery kept it */
    mount->host.asleep = 0;
}

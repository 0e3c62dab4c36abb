/* session: the mount, and the loop around its descriptor; see session.h. */
#include "fs/daemon/session.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/local/local.h"
#include "backend/log.h"
#include "fs/daemon/channel.h"
#include "fs/daemon/drain.h"
#include "fs/daemon/filesystem.h"
#include "fs/daemon/follow.h"
#include "fs/daemon/keeper.h"
#include "fs/daemon/mounting.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/predecessor.h"
#include "fs/daemon/spin.h"
#include "fs/daemon/takeover.h"
#include "fs/daemon/tick.h"
#include "fs/keep/memory.h"
#include "fs/kernel/metrics.h"
#include "fs/kernel/request.h"
#include "fs/process/connection.h"
#include "fs/process/openers.h"

#define SESSION_AT_ONCE 64 /* requests in one turn of the loop */
#define SESSION_AHEAD 32
#define SESSION_SERVED 1.0 /* seconds after which a daemon counts as one that serves */
#define SESSION_END_PAUSE 0.01
#define SESSION_END_TURNS 100 /* until a daemon ends whose successor waits */

struct session {
    struct ev_loop *loop;
    struct fuse_session *fuse;
    struct fs *fs;
    struct sandbox sandbox; /* what was given up */
    struct channel channel;
    ev_io io;
    ev_prepare prepare;
    struct spin spin;
    struct follow follow;
    int ahead[2];      /* how often reading on has found a request, of late; below 0: how many shall not try.  Two, as
                          it is another matter where the last one has left something to be done at the end of the turn */
    uint64_t answered; /* how many requests were when the loop last slept */
    uint64_t counted;  /* how many answers follow.c knows of */
    ev_signal signals[3];
    struct drain drain;
    const struct session_keepers *keepers;
    ev_io keeper; /* it says when another daemon waits for the mount */
    ev_timer ending;
    int turns; /* since then */
    ev_timer served;
    bool handed;     /* that daemon goes on with the mount */
    bool full;       /* kept memory is, so nothing is read */
    bool keep_mount; /* it is another daemon's, or is to look as after a crash */
    bool staged;     /* mounted elsewhere and then moved */
    bool unmounted;  /* by somebody else */
    int error;       /* why the kernel could no longer be read; 0 after an unmount */
};

static int64_t session_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void session_count_request(struct session *s, const struct fuse_in_header *header)
{
    if (s->follow.can_raise) {
        follow_on_request(&s->follow, (pid_t)header->pid, header->opcode, session_now());
    }
}

static void session_count_reply(struct session *s)
{
    if (s->follow.can_raise && s->counted != s->fs->answered) {
        s->counted = s->fs->answered;
        follow_on_reply(&s->follow, session_now());
        s->fs->metrics->follows = s->follow.followed;
        s->fs->metrics->follow_moves = s->follow.moves;
    }
}

/* Kept memory is full until a request is done: see session_prepared. */
static void session_pause(struct session *s)
{
    s->full = true;
    ev_io_stop(s->loop, &s->io);
    ev_prepare_start(s->loop, &s->prepare);
}

/* Reads a request and hands it on.  False if there is none, or the mount is at its end. */
static bool session_read(struct session *s)
{
    int result = 0;
    const struct fuse_in_header *header = channel_read(&s->channel, &result);
    if (result == -EAGAIN) {
        return false;
    }
    if (result == -ENOBUFS) {
        session_pause(s);
        return false;
    }
    if (header) {
        uint64_t seen = s->fs->answered + s->fs->requests;
        session_count_request(s, header);
        channel_process(&s->channel);
        session_count_reply(s);
        if (spin_awaits_request(&s->spin) && s->fs->answered + s->fs->requests != seen) { /* a request, and no FORGET */
            s->fs->metrics->spin_hits += spin_on_request(&s->spin, ev_now(s->loop));
        }
    } else {
        s->unmounted = result == -ENODEV;
        s->error = s->unmounted ? 0 : result;
        ev_io_stop(s->loop, &s->io); /* fs_stop runs the loop until all notifications are sent */
    }
    if (!header || fuse_session_exited(s->fuse)) {
        ev_break(s->loop, EVBREAK_ALL);
        return false;
    }
    return true;
}

/* Is it worth a try to read on?  While it is in vain only one of SESSION_AHEAD requests is followed by one. */
static bool session_may_read_on(int *ahead)
{
    return *ahead >= 0 || ++*ahead == 0;
}

static bool session_read_on(struct session *s, int *ahead)
{
    bool found = session_read(s);
    *ahead += found ? *ahead < SESSION_AHEAD : -1;
    if (*ahead <= 0) {
        *ahead = -SESSION_AHEAD;
    }
    return found;
}

/* While a caller is followed its next request comes within microseconds.  Not if something waits to be done in this
 * turn of the loop; for a request without an answer yet that may be the answer. */
static void session_read_blocking(struct session *s)
{
    int fd = fuse_session_fd(s->fuse), flags = fcntl(fd, F_GETFL);
    uint32_t unanswered;
    bool more;
    tick_start();
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    do {
        unanswered = s->fs->requests;
        more = session_read(s) && !tick_has_elapsed() && follow_is_active(&s->follow);
    } while (more && s->fs->requests <= unanswered && ev_pending_count(s->loop) == 0);
    fcntl(fd, F_SETFL, flags);
    tick_stop();
}

/* On one CPU a process that got its answer has mostly sent the next request before the loop could sleep: reading it
 * without epoll saves 9 % of a flock.  Where many processes send requests, the store gets what they need in one write
 * or one commit, behind all requests of this round.
 */
static void session_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct session *s = io->data;
    bool more = session_read(s);
    (void)events;
    if (more && follow_is_active(&s->follow) && ev_pending_count(loop) == 0) {
        session_read_blocking(s);
        return;
    }
    for (int i = 1; more && i < SESSION_AT_ONCE; i++) {
        int *ahead = &s->ahead[ev_pending_count(loop) > 0];
        more = session_may_read_on(ahead) && session_read_on(s, ahead);
    }
}

/* Before the loop sleeps: who was answered may ask again soon. */
static void session_prepared(struct ev_loop *loop, ev_prepare *prepare, int events)
{
    struct session *s = prepare->data;
    (void)events;
    session_count_reply(s);
    if (s->full && keep_request_buffer(s->fs->keep)) {
        s->full = false;
        ev_io_start(loop, &s->io);
    }
    if (s->answered != s->fs->answered && !follow_is_active(&s->follow)) {
        s->answered = s->fs->answered;
        ev_now_update(loop);
        s->fs->metrics->spins += spin_on_reply(&s->spin, ev_now(loop));
    }
}

static void session_signalled(struct ev_loop *loop, ev_signal *watcher, int events)
{
    (void)events;
    log_info("ended by signal %d (%s)", watcher->signum, strsignal(watcher->signum));
    ev_break(loop, EVBREAK_ALL);
}

/* Is there a request that the store has not answered? */
static bool session_has_unanswered(const struct fs *fs)
{
    const struct request *r;
    LIST_FOREACH(r, &fs->unanswered, unanswered) {
        if (!r->queue) {
            return true;
        }
    }
    return false;
}

static void session_end_when_idle(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct session *s = timer->data;
    (void)events;
    if (!session_has_unanswered(s->fs) || ++s->turns == SESSION_END_TURNS) {
        s->handed = true;
        ev_break(loop, EVBREAK_ALL);
    }
}

static void session_on_keeper(struct ev_loop *loop, ev_io *io, int events)
{
    struct session *s = io->data;
    (void)events;
    ev_io_stop(loop, io); /* a keeper says one thing, or is gone */
    if (keeper_must_end(s->keepers->own)) {
        log_info("another daemon takes over the mount");
        ev_io_stop(loop, &s->io);
        s->full = false;
        ev_timer_start(loop, &s->ending);
    } else if (s->fs->options->keep > 0) {
        log_warning("the process that keeps the mount has ended: the mount would end with the daemon; unmount it and "
                    "mount it again when no lock is held");
    }
}

static void session_has_served(struct ev_loop *loop, ev_timer *timer, int events)
{
    const struct session *s = timer->data;
    (void)loop;
    (void)events;
    KEEP_STORE(keep_history(s->fs->keep)->served, 1);
}

static void session_watch_keeper(struct session *s)
{
    ev_io_init(&s->keeper, session_on_keeper, keeper_descriptor(s->keepers->own), EV_READ);
    s->keeper.data = s;
    ev_io_start(s->loop, &s->keeper);
    ev_timer_init(&s->ending, session_end_when_idle, SESSION_END_PAUSE, SESSION_END_PAUSE);
    s->ending.data = s;
    ev_timer_init(&s->served, session_has_served, SESSION_SERVED, 0);
    s->served.data = s;
    ev_timer_start(s->loop, &s->served);
}

static void session_watch(struct session *s)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    ev_io_init(&s->io, session_readable, fuse_session_fd(s->fuse), EV_READ);
    s->io.data = s;
    ev_io_start(s->loop, &s->io);
    drain_watch(&s->drain, s->loop, s->fs);
    session_watch_keeper(s);
    spin_init(&s->spin, s->loop, s->fs->options->spin);
    ev_prepare_init(&s->prepare, session_prepared);
    s->prepare.data = s;
    if (s->spin.limit > 0 || s->follow.can_raise) {
        ev_prepare_start(s->loop, &s->prepare);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        ev_signal_init(&s->signals[i], session_signalled, numbers[i]);
        ev_signal_start(s->loop, &s->signals[i]);
    }
}

static void session_unwatch(struct session *s)
{
    drain_unwatch(&s->drain);
    ev_io_stop(s->loop, &s->keeper);
    ev_timer_stop(s->loop, &s->ending);
    ev_timer_stop(s->loop, &s->served);
    ev_io_stop(s->loop, &s->io);
    ev_prepare_stop(s->loop, &s->prepare);
    spin_stop(&s->spin);
    for (size_t i = 0; i < G_N_ELEMENTS(s->signals); i++) {
        ev_signal_stop(s->loop, &s->signals[i]);
    }
}

static int session_mount_directly(struct session *s, const char *path, char *error, size_t error_size)
{
    int result = mounting_mount(s->fs->options, s->fuse, path, error, error_size);
    if (result == 0 && geteuid() == 0 && mountpoint_follow_no_links(path) < 0) {
        log_warning(
            "this kernel follows locks that are symbolic links: a program that opens one may lock another name, or "
            "write to a file that another user has chosen");
    }
    return result;
}

/* Mounts, and returns a descriptor of the mount, which is at no path yet; or -errno. */
static int session_mount_detached(struct session *s, char *error, size_t error_size)
{
    int lock = mountpoint_stage(error, error_size);
    int result = lock < 0 ? lock : session_mount_directly(s, MOUNTPOINT_STAGE, error, error_size);
    int tree = lock < 0 ? lock : mountpoint_unstage(lock, result == 0);
    s->staged = result == 0;
    if (result == 0 && tree < 0) {
        snprintf(error, error_size, "cannot move the new mount to %s: %s", s->fs->options->mountpoint, strerror(-tree));
    }
    return result < 0 ? result : tree;
}

static int session_replace(struct session *s, const char *path, const struct session_takeover *takeover, char *error,
                           size_t error_size)
{
    s->keep_mount = takeover != NULL; /* until the switch the path has the old daemon's mount */
    int result, tree = session_mount_detached(s, error, error_size);
    if (tree < 0) {
        return tree;
    }
    if (takeover) {
        result = takeover_switch(takeover->old, tree, fuse_session_fd(s->fuse), takeover->manager, error, error_size);
    } else {
        result = mountpoint_replace(tree, path, error, error_size);
    }
    close(tree);
    return result < 0 || !takeover ? result : takeover_await_end(takeover->old, takeover->manager, error, error_size);
}

/* Mounts; in place of what a killed daemon left, if there is such a mount.  An
 * ordinary user has only fusermount3, which cannot but unmount it first. */
static int session_mount_at(struct session *s, const char *path, const struct session_takeover *takeover, char *error,
                            size_t error_size)
{
    bool dead = false;
    int result = takeover ? 0 : mountpoint_check(path, &dead, error, error_size);
    s->fs->dead_device = takeover ? takeover_device(takeover->old) : result == 0 && dead ? mountpoint_device(path) : 0;
    if (result == 0 && (takeover || dead) && geteuid() == 0) {
        return session_replace(s, path, takeover, error, error_size);
    }
    if (result == 0 && dead) {
        result = mountpoint_clear(path, error, error_size);
    } else if (result == 0 && !mountpoint_is_empty(path)) {
        log_warning("mount point '%s' is not empty: what is in it is hidden, and is no lock", path);
    }
    return result < 0 ? result : session_mount_directly(s, path, error, error_size);
}

/* The daemon would wait for itself if it opened a file below its own mount. */
static int session_check_needs(const struct options *options, const struct sandbox_policy *policy, char *error,
                               size_t error_size)
{
    const char *path = options->mountpoint;
    const char *hidden = options->directory && sandbox_is_below(options->directory, path) ? options->directory
                         : sandbox_is_below(CONNECTION_ALL, path)                         ? CONNECTION_ALL
                                                                  : sandbox_find_below(policy, path);
    if (!hidden) {
        return 0;
    }
    snprintf(error, error_size,
             "cannot mount on %s: the mount would hide %s, which the daemon needs: choose another mount point", path,
             hidden);
    return -EINVAL;
}

static int session_make_keep(const struct options *options, struct keep **ret_keep, char *error, size_t error_size)
{
    g_autofree char *fixed = predecessor_describe(options);
    struct keep_sizes sizes;
    fs_keep_sizes(&sizes);
    int result = keep_create(&sizes, ret_keep, error, error_size);
    if (result == 0) {
        keep_set_options(*ret_keep, fixed); /* a text that is too long refuses takeovers */
        keep_try_lock(*ret_keep);
    }
    return result;
}

/* `connection`: of the mount that this daemon goes on with, or -1. */
static int session_mount(struct session *s, const struct session_takeover *takeover, int connection, char *error,
                         size_t error_size)
{
    s->fuse = mounting_session_new(s->fs, error, error_size);
    if (!s->fuse) {
        return -EINVAL;
    }
    int result = connection >= 0 ? mounting_adopt(s->fuse, connection, error, error_size)
                                 : session_mount_at(s, s->fs->options->mountpoint, takeover, error, error_size);
    if (result == 0) {
        int fd = fuse_session_fd(s->fuse);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    return result;
}

/* libfuse has the old path of a mount that was moved, and the sandbox does not allow it to unmount anything.  It
 * gives up a mount without unmounting it if its descriptor looks closed: so a pipe that nobody reads takes that number.
 */
static void session_unmount(struct session *s)
{
    char error[1024];
    int ends[2], fd = fuse_session_fd(s->fuse);
    if (fd >= 0 && pipe2(ends, O_CLOEXEC) == 0) {
        close(ends[0]);
        dup2(ends[1], fd);
        close(ends[1]);
        /* of what somebody else has unmounted, a dead mount may be below */
        if (!s->keep_mount && s->fs->options->keep > 0) {
            predecessor_discard(s->keepers->manager);
        }
        bool gone = s->unmounted && !s->staged;
        int result = s->keep_mount || gone ? 0 : keeper_unmount(s->keepers->own, error, sizeof error);
        if (result < 0 && !s->fs->sandbox) {
            result = mountpoint_clear(s->fs->options->mountpoint, error, sizeof error);
        }
        if (result < 0) {
            log_warning("%s", error);
        }
    }
    fuse_session_unmount(s->fuse);
}

static int session_serve(struct session *s, char *error, size_t error_size)
{
    keep_begin(s->fs->keep);
    fs_start(s->fs, s->fuse);
    session_watch(s);
    channel_open(&s->channel, s->fuse, s->fs->keep);
    int result = channel_resume(&s->channel, error, error_size);
    if (result < 0) {
        return result;
    }
    s->keep_mount = false;
    keeper_publish(s->keepers->own);
    if (s->keepers->before) {
        predecessor_dismiss(s->keepers->before);
    }
    ev_run(s->loop, 0);
    if (s->handed) {
        keep_end(s->fs->keep);
    } else {
        fs_stop(s->fs);
    }
    if (s->fs->replaced || s->handed) { /* the other daemon waits, and a million locks are freed in seconds */
        log_flush();
        _exit(EXIT_SUCCESS);
    }
    session_unwatch(s);
    if (s->error) {
        snprintf(error, error_size, "lost the connection to the kernel: %s", strerror(-s->error));
    }
    return s->error;
}

/* For the handle locks of the daemon before this one: who has their files open. */
static void session_watch_processes(struct session *s, const struct options *options)
{
    s->fs->device = mountpoint_device(options->mountpoint);
    s->fs->openers = openers_new(s->loop, s->fs->owners, keeper_take_walker(s->keepers->own));
    openers_set_own_device(s->fs->openers, s->fs->device);
    const struct keeper_gift gift = {
        .connection = fuse_session_fd(s->fuse),
        .keep = s->fs->keep,
        .device = s->fs->device,
        .store = options->kind == OPTIONS_LOCAL ? local_lock_descriptor(s->fs->backend) : -1,
        .abort = mountpoint_open_abort(options->mountpoint),
    };
    keeper_give(s->keepers->own, &gift);
    if (options->keep > 0) {
        predecessor_save(s->keepers->manager, (const int[]){gift.connection, keep_fd(gift.keep), gift.store});
    }
}

int session_run(const struct options *options, struct backend *backend, const struct session_takeover *takeover,
                struct ev_loop *loop, const struct session_sandbox *sandbox, const struct session_keepers *keepers,
                void (*ready)(void *arg), void *arg, char *error, size_t error_size)
{
    struct session s = {.loop = loop, .keepers = keepers};
    struct keep *keep = NULL;
    int connection = -1;
    signal(SIGPIPE, SIG_IGN);
    int result = keepers->before ? predecessor_take(keepers->before, &connection, &keep, error, error_size)
                                 : session_make_keep(options, &keep, error, error_size);
    if (result < 0) {
        return result;
    }
    s.keep_mount = keepers->before;
    s.fs = fs_new(s.loop, backend, options, keep);
    s.fs->ready = ready;
    s.fs->ready_arg = arg;
    result = takeover || keepers->before ? 0 : session_check_needs(options, &sandbox->policy, error, error_size);
    if (result == 0) {
        result = session_mount(&s, takeover, connection, error, error_size);
    }
    if (result == 0 && !backend) {
        s.fs->backend = takeover->open_store(takeover->arg, error, error_size);
        result = s.fs->backend ? 0 : -EIO;
    }
    follow_init(&s.follow, options->follow && sandbox->policy.servers == SANDBOX_NO_SERVERS && tick_init());
    if (result == 0) {
        session_watch_processes(&s, options);
        if (sandbox->wanted) {
            s.fs->sandbox = &s.sandbox;
            result = sandbox_apply(&sandbox->policy, &s.sandbox, error, error_size);
        }
        if (result == 0) {
            result = session_serve(&s, error, error_size);
        }
    }
    if (result < 0 && keepers->before && s.keep_mount) { /* a keeper goes on when it sees that this process has ended */
        log_error("%s", error);
        log_flush();
        _exit(EXIT_FAILURE);
    }
    if (s.fuse) {
        session_unmount(&s);
        fuse_session_destroy(s.fuse);
    }
    follow_free(&s.follow);
    fs_free(s.fs);
    keep_free(keep);
    return result;
}

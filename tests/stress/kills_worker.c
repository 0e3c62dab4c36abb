/* kills_worker: takes one lock at a time, counts under it, and releases it; see kills.h.
 *
 * A handle lock lasts until its file is closed, also if the daemon that granted it is gone.  A lease lasts until it is
 * removed.  Each is certain from the return of the call that took it to the call that releases it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/stress/kills.h"

#define FUSE_SUPER_MAGIC 0x65735546
#define NOBODY 65534

const char *const kills_kind_names[KILLS_KINDS] = {"lease", "rename", "link",   "flock",
                                                   "range", "ofd",    "ticket", "inherited"};

struct worker {
    const struct kills *k;
    struct kills_log *log;
    struct stress_random random;
    unsigned index;
};

/* The lock to take, and its result. */
struct lock {
    enum kills_kind kind;
    enum history_mode mode;
    unsigned name, slot; /* KILLS_SLOTS: all of them */
    bool wait;
    char path[4096];
    int fd;
    struct history_hold *hold;
};

static bool worker_is_away(int error)
{
    return error == ENOTCONN || error == ECONNABORTED || error == ENODEV;
}

static void worker_note_fault(struct worker *w, const struct lock *lock, int error)
{
    w->log->faults++;
    w->log->fault_kind = (int)lock->kind;
    w->log->fault_error = error;
}

/* An open that may find no daemon, or the directory below the mount. */
static int worker_open(const char *path, int flags)
{
    struct statfs st;
    int fd = open(path, flags, 0666);
    if (fd < 0) {
        return -errno;
    }
    if (fstatfs(fd, &st) != 0 || st.f_type != FUSE_SUPER_MAGIC) {
        close(fd);
        return -ENOTCONN;
    }
    return fd;
}

/* A lease of this process: 1, 0, or -errno. */
static int worker_owns(const char *path)
{
    char owner[512] = "", kind[16] = "";
    if (getxattr(path, "user.lease.owner", owner, sizeof owner - 1) < 0 ||
        getxattr(path, "user.lease.kind", kind, sizeof kind - 1) < 0) {
        return -errno;
    }
    const char *pid = strchr(owner, ' ');
    return pid && atoi(pid) == getpid() && strcmp(kind, "lease") == 0;
}

/* Whether the lease is ours: an open that was not answered may have taken it.  An earlier handle lock of ours may still
 * have the name, and somebody else's lease a moment later: so twice. */
static bool worker_took_lease(const struct worker *w, const char *path)
{
    int owns = 0;
    for (int i = 0; i < 2 && (!i || owns == 1); i++) {
        while (worker_is_away(-(owns = worker_owns(path))) && !atomic_load(&w->k->shared->over)) {
            stress_sleep(STRESS_MS);
        }
    }
    return owns == 1;
}

static bool lock_is_lease(const struct lock *lock)
{
    return lock->kind <= KILLS_LINKED;
}

static int worker_take_lease(struct worker *w, const char *path)
{
    int fd = worker_open(path, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    return worker_is_away(-fd) && worker_took_lease(w, path) ? 0 : fd;
}

/* A lease that the next daemon has not recovered yet cannot be removed: EPERM. */
#define RECOVERY (5 * STRESS_SECOND)

/* `unknown`: perhaps it is not held any more. */
static void worker_remove_lease(struct worker *w, const char *path, bool unknown)
{
    int64_t limit = stress_now() + RECOVERY;
    while (unlink(path) != 0) {
        if (!worker_is_away(errno) && (errno != EPERM || stress_now() > limit)) {
            w->log->lost += !unknown;
            return;
        }
        unknown = unknown || worker_is_away(errno);
        if (atomic_load(&w->k->shared->over)) {
            return;
        }
        stress_sleep(STRESS_MS);
    }
}

/* Takes a lease of a name that nobody else takes, and gives it the name of the lock. */
static int worker_take_by_name(struct worker *w, const struct lock *lock)
{
    char own[4096];
    snprintf(own, sizeof own, "%s/w%u", w->k->mount, w->index);
    int r = worker_take_lease(w, own);
    if (r < 0) {
        return r;
    }
    bool renames = lock->kind == KILLS_RENAMED;
    r = (renames ? rename(own, lock->path) : link(own, lock->path)) == 0 ? 0 : -errno;
    r = r == -ENOENT || r == -EPERM ? -ENOTCONN : r; /* the directory below the mount, or a lease not yet recovered */
    bool unknown = worker_is_away(-r);
    if (unknown && worker_took_lease(w, lock->path)) {
        r = 0;
    }
    if (r != 0 || !renames) {
        worker_remove_lease(w, own, unknown);
    }
    return r;
}

static int worker_take_bytes(const struct lock *lock, int command)
{
    struct flock bytes = {.l_type = lock->mode == HISTORY_SHARED ? F_RDLCK : F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = lock->slot * KILLS_SLOT_BYTES,
                          .l_len = KILLS_SLOT_BYTES};
    return fcntl(lock->fd, command, &bytes) == 0 ? 0 : -errno;
}

/* 0: it is held. */
static int worker_take(struct worker *w, struct lock *lock)
{
    bool wait = lock->wait, bytes = lock->kind == KILLS_RANGE || lock->kind == KILLS_OFD;
    if (lock_is_lease(lock)) {
        return lock->kind == KILLS_LEASE ? worker_take_lease(w, lock->path) : worker_take_by_name(w, lock);
    }
    lock->fd = worker_open(lock->path, (bytes || lock->kind == KILLS_TICKET ? O_RDWR : O_RDONLY) | O_CREAT);
    if (lock->fd < 0) {
        return lock->fd;
    }
    int r = lock->kind == KILLS_RANGE ? worker_take_bytes(lock, wait ? F_SETLKW : F_SETLK)
            : lock->kind == KILLS_OFD ? worker_take_bytes(lock, wait ? F_OFD_SETLKW : F_OFD_SETLK)
            : flock(lock->fd, (lock->mode == HISTORY_SHARED ? LOCK_SH : LOCK_EX) | (wait ? 0 : LOCK_NB)) == 0 ? 0
                                                                                                              : -errno;
    if (r < 0) {
        close(lock->fd);
        lock->fd = -1;
    }
    return r;
}

/* 0: no daemon is there to tell. */
static int64_t worker_read_token(const struct lock *lock)
{
    char value[64];
    ssize_t size = lock->fd < 0 ? getxattr(lock->path, "user.lease.token", value, sizeof value - 1)
                                : fgetxattr(lock->fd, "user.lease.token", value, sizeof value - 1);
    value[size < 0 ? 0 : size] = '\0';
    return strtoll(value, NULL, 10);
}

static unsigned lock_first_slot(const struct lock *lock)
{
    return lock->slot == KILLS_SLOTS ? 0 : lock->slot;
}

static struct history_hold *worker_note(struct worker *w, const struct lock *lock, int64_t acquired)
{
    uint32_t n = atomic_load(&w->log->holds);
    if (n >= w->k->capacity) {
        stress_die("worker %u: no room for more than %u holds", w->index, n);
    }
    static const uint8_t kinds[] = {HISTORY_LEASE, HISTORY_LEASE, HISTORY_LEASE,  HISTORY_FLOCK,
                                    HISTORY_POSIX, HISTORY_OFD,   HISTORY_TICKET, HISTORY_FLOCK};
    bool ticket = lock->kind == KILLS_TICKET, whole = lock->slot == KILLS_SLOTS;
    struct history_hold *hold = &w->log->hold[n];
    *hold = (struct history_hold){
        .acquired = acquired,
        .released = INT64_MAX,
        .start = whole ? 0 : lock->slot * KILLS_SLOT_BYTES,
        .end = whole ? HISTORY_RANGE_MAX : (lock->slot + 1) * KILLS_SLOT_BYTES - 1,
        .name = (uint16_t)lock->name,
        .client = (uint16_t)w->index,
        .grant = n,
        .kind = kinds[lock->kind],
        .mode = (uint8_t)lock->mode,
        .width = ticket ? 1 : 0,
    };
    atomic_store(&w->log->holds, n + 1);
    return hold;
}

/* While it is held.  Mostly for a moment, every fourth time for longer than a daemon needs to come back. */
static void worker_count(struct worker *w, const struct lock *lock)
{
    bool lasting = stress_chance(&w->random, 25), ticket = lock->kind == KILLS_TICKET;
    unsigned first = ticket ? KILLS_COUNTERS - 1 : lock->name * KILLS_SLOTS + lock_first_slot(lock);
    unsigned count = lock->slot == KILLS_SLOTS && !ticket ? KILLS_SLOTS : 1;
    uint64_t before[KILLS_SLOTS];
    for (unsigned i = 0; i < count; i++) {
        before[i] = w->k->shared->counter[first + i];
    }
    stress_sleep(lasting ? (50 + stress_below(&w->random, 400)) * STRESS_MS : stress_below(&w->random, 2000) * 1000LL);
    for (unsigned i = 0; i < count && lock->mode == HISTORY_EXCLUSIVE; i++) {
        w->k->shared->counter[first + i] = before[i] + 1;
        w->log->added[first + i]++;
    }
}

/* Of a dead mount an unlock fails, and the close gives the lock back. */
static void worker_give_back(struct worker *w, struct lock *lock)
{
    lock->hold->released = stress_now();
    if (lock_is_lease(lock)) {
        worker_remove_lease(w, lock->path, false);
        return;
    }
    if (stress_chance(&w->random, 50) && lock->kind != KILLS_TICKET) {
        struct flock bytes = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        int r = lock->kind == KILLS_RANGE ? fcntl(lock->fd, F_SETLK, &bytes)
                : lock->kind == KILLS_OFD ? fcntl(lock->fd, F_OFD_SETLK, &bytes)
                                          : flock(lock->fd, LOCK_UN);
        if (r != 0 && !worker_is_away(errno)) {
            worker_note_fault(w, lock, errno);
        }
    }
    close(lock->fd);
}

/* The child has the descriptor, and the lock with it; the parent has neither. */
static void worker_leave_to_child(struct worker *w, struct lock *lock)
{
    pid_t child = stress_fork();
    if (child == 0) {
        worker_count(w, lock);
        lock->hold->released = stress_now();
        _exit(0);
    }
    close(lock->fd);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Its process ends with the lock, and with it the lock: of a lease after its term. */
static void worker_die(struct lock *lock)
{
    lock->hold->released = stress_now();
    raise(SIGKILL);
}

static void worker_hold(struct worker *w, struct lock *lock)
{
    lock->hold = worker_note(w, lock, stress_now());
    lock->hold->token = worker_read_token(lock);
    atomic_store(&w->log->since, 0);
    uint32_t deaths = atomic_load(&w->k->shared->deaths);
    if (lock->kind == KILLS_INHERITED) {
        worker_leave_to_child(w, lock);
    } else {
        worker_count(w, lock);
    }
    w->log->taken[lock->kind]++;
    w->log->survived[lock->kind] += deaths != atomic_load(&w->k->shared->deaths);
    if (lock->kind == KILLS_INHERITED) {
        return;
    }
    if (stress_chance(&w->random, 2)) {
        worker_die(lock);
    }
    atomic_store(&w->log->since, stress_now());
    worker_give_back(w, lock);
}

static void worker_turn(struct worker *w)
{
    struct lock lock = {.fd = -1, .wait = stress_chance(&w->random, 50), .name = stress_below(&w->random, KILLS_NAMES)};
    do {
        lock.kind = stress_below(&w->random, KILLS_KINDS);
    } while (!(w->k->kinds & 1U << lock.kind));
    bool bytes = lock.kind == KILLS_RANGE || lock.kind == KILLS_OFD;
    bool sharing =
        !w->k->exclusive && !lock_is_lease(&lock) && lock.kind != KILLS_TICKET && stress_chance(&w->random, 25);
    lock.mode = sharing ? HISTORY_SHARED : HISTORY_EXCLUSIVE;
    lock.slot = bytes ? stress_below(&w->random, KILLS_SLOTS) : KILLS_SLOTS;
    if (lock.kind == KILLS_TICKET) {
        lock.name = KILLS_NAMES;
        snprintf(lock.path, sizeof lock.path, "%s/q1/job-", w->k->mount);
    } else {
        snprintf(lock.path, sizeof lock.path, "%s/n%u", w->k->mount, lock.name);
    }
    atomic_store(&w->log->since, stress_now());
    int r = worker_take(w, &lock);
    if (r == 0) {
        worker_hold(w, &lock);
    } else if (!worker_is_away(-r) && r != -EAGAIN && r != -EEXIST && r != -EBUSY) {
        worker_note_fault(w, &lock, -r);
    }
    atomic_store(&w->log->since, 0);
    stress_sleep(r == 0 ? 0 : STRESS_MS);
}

/* A third of the workers are another user's; another third are in a mount namespace of their own, to which mounts of
 * the first one are passed on. */
static void worker_settle(unsigned index)
{
    if (index % 3 == 2 && (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)) {
        stress_die("no mount namespace: %s", strerror(errno));
    }
    if (index % 3 == 1 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) {
        stress_die("no other user: %s", strerror(errno));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another user loses */
    umask(0);
}

void kills_work(const struct kills *k, unsigned index, unsigned incarnation)
{
    struct worker w = {.k = k, .index = index, .log = &k->logs[index]};
    w.random = stress_seed(k->seed, index + 1000 * (uint64_t)incarnation);
    worker_settle(index);
    while (!atomic_load(&k->shared->over)) {
        while (atomic_load(&k->shared->rest) && !atomic_load(&k->shared->over)) {
            atomic_store(&w.log->idle, true);
            stress_sleep(STRESS_MS);
        }
        atomic_store(&w.log->idle, false);
        worker_turn(&w);
    }
    _exit(0);
}

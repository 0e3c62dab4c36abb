/* faults_client: one process that takes a lock, works under it and releases it, again and again; see faults.h.
 *
 * A careful holder checks before each step and stops if it has lost the lock; a careless one relies on its acquire.
 * Both show their token to guarded files.  A client that does not know whether it has left a lease dies, because only
 * then the lease runs out.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/stress/faults.h"

#define FUSE_SUPER_MAGIC 0x65735546

static const char *const operation_names[] = {
    [FAULTS_DIRECTORY] = "open directory",
    [FAULTS_EXCL] = "open(O_EXCL)",
    [FAULTS_OPEN] = "open",
    [FAULTS_FLOCK] = "flock",
    [FAULTS_FLOCK_TRY] = "flock NB",
    [FAULTS_FCNTL] = "F_SETLKW",
    [FAULTS_FCNTL_TRY] = "F_SETLK",
    [FAULTS_TTL] = "set ttl",
    [FAULTS_STATE] = "get state",
    [FAULTS_TOKEN] = "get token",
    [FAULTS_REMAINING] = "get remaining",
    [FAULTS_READ] = "read",
    [FAULTS_CHECK] = "check token",
    [FAULTS_RELEASE] = "release by token",
    [FAULTS_BREAK] = "break (own)",
    [FAULTS_RENAME] = "rename",
    [FAULTS_UNLINK] = "unlink",
    [FAULTS_UNLOCK] = "unlock",
    [FAULTS_CLOSE] = "close",
};

const char *faults_operation_name(unsigned operation)
{
    return operation_names[operation];
}

struct holder {
    struct faults *faults;
    struct faults_log *log;
    struct stress_random random;
    uint32_t client, grants, name, width; /* of the queue; 0: a lock */
    char file[64];                        /* its name in the mount */
    int directory, fd;                    /* of the mount, as it was when the lock was taken; of the lock */
    enum history_kind kind;
    enum history_mode mode;
    struct history_hold *hold;
    int64_t token;  /* 0: never read while it was certainly held */
    bool by_handle; /* checks by what the handle may do, which asks no server */
    bool lost;
};

/* --- system calls, noted -------------------------------------------------------- */

static void begin(struct holder *h, enum faults_operation operation)
{
    atomic_store(&h->log->doing, operation);
    atomic_store(&h->log->doing_name, h->name);
    atomic_store(&h->log->since, stress_now());
}

static bool end(struct holder *h, enum faults_operation operation, int64_t result)
{
    int error = result < 0 ? errno : 0;
    atomic_store(&h->log->since, 0);
    h->log->outcome[operation][error < HISTORY_ERRNO_MAX ? error : HISTORY_ERRNO_MAX - 1]++;
    errno = error;
    return result >= 0;
}

static bool attribute(struct holder *h, enum faults_operation operation, const char *name, char value[64])
{
    begin(h, operation);
    ssize_t size = fgetxattr(h->fd, name, value, 63);
    value[size < 0 ? 0 : size] = '\0';
    return end(h, operation, size);
}

/* "1.234" as ns, less the last digit's worth. */
static int64_t seconds(const char *text)
{
    return (int64_t)(strtod(text, NULL) * 1000) * STRESS_MS - STRESS_MS;
}

/* --- checks ------------------------------------------------------------------------ */

/* The state is asked last: a handle that has lost stays lost, so what was read before was its own. */
static bool holder_ask(struct holder *h)
{
    char remaining[64], token[64], state[64];
    int64_t before = stress_now();
    bool known = attribute(h, FAULTS_REMAINING, "user.lease.remaining", remaining) &&
                 attribute(h, FAULTS_TOKEN, "user.lease.token", token) &&
                 attribute(h, FAULTS_STATE, "user.lease.state", state);
    if (!known || strcmp(state, "held") != 0) {
        return false;
    }
    int64_t promised = before + seconds(remaining);
    h->token = strtoll(token, NULL, 10);
    if (!h->hold->token) {
        h->hold->token = h->token;
    }
    if (promised > h->hold->released) {
        h->hold->released = promised;
    }
    return true;
}

/* Held when it was asked: by the handle, or by the token. */
static bool holder_ask_once(struct holder *h)
{
    char byte, value[32];
    int64_t before = stress_now();
    bool held;
    if (stress_chance(&h->random, 80) || h->mode == HISTORY_SHARED) {
        begin(h, FAULTS_READ);
        held = end(h, FAULTS_READ, pread(h->fd, &byte, 1, 0));
    } else {
        snprintf(value, sizeof value, "%lld", (long long)h->token);
        begin(h, FAULTS_CHECK);
        held = end(h, FAULTS_CHECK, fsetxattr(h->fd, "user.lease.check", value, strlen(value), 0));
    }
    if (held && before > h->hold->released) {
        h->hold->released = before;
    }
    return held;
}

static bool holder_check(struct holder *h)
{
    if (h->token && h->by_handle ? holder_ask_once(h) : holder_ask(h)) {
        return true;
    }
    h->log->lost += !h->lost;
    h->lost = true;
    return false;
}

/* --- acquiring ---------------------------------------------------------------------- */

/* Only on a leasefs: between two mounts there is an ordinary directory. */
static bool holder_enter(struct holder *h)
{
    const struct faults_options *o = &h->faults->options;
    struct statfs st;
    begin(h, FAULTS_DIRECTORY);
    h->directory = open(o->mounts[h->client % o->mount_count], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!end(h, FAULTS_DIRECTORY, h->directory)) {
        return false;
    }
    if (fstatfs(h->directory, &st) != 0 || st.f_type != FUSE_SUPER_MAGIC) {
        close(h->directory);
        return false;
    }
    return true;
}

static void alarm_after(int64_t ns)
{
    struct timeval every = {.tv_sec = (time_t)(ns / STRESS_SECOND),
                            .tv_usec = (suseconds_t)(ns % STRESS_SECOND / 1000)};
    struct itimerval timer = {.it_value = every, .it_interval = every};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static bool holder_lock(struct holder *h, bool wait)
{
    bool shared = h->mode == HISTORY_SHARED;
    struct flock range = {.l_type = shared ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
    enum faults_operation operation = h->kind == HISTORY_FLOCK || h->kind == HISTORY_TICKET
                                          ? (wait ? FAULTS_FLOCK : FAULTS_FLOCK_TRY)
                                          : (wait ? FAULTS_FCNTL : FAULTS_FCNTL_TRY);
    int commands[2][2] = {{F_SETLK, F_SETLKW}, {F_OFD_SETLK, F_OFD_SETLKW}}, result;
    begin(h, operation);
    if (wait) {
        alarm_after((20 + stress_below(&h->random, 2000)) * STRESS_MS);
    }
    if (h->kind == HISTORY_FLOCK || h->kind == HISTORY_TICKET) {
        result = flock(h->fd, (shared ? LOCK_SH : LOCK_EX) | (wait ? 0 : LOCK_NB));
    } else {
        result = fcntl(h->fd, commands[h->kind == HISTORY_OFD][wait], &range);
    }
    int error = errno;
    if (wait) {
        alarm_after(0);
    }
    errno = error;
    return end(h, operation, result);
}

static bool holder_close(struct holder *h)
{
    begin(h, FAULTS_CLOSE);
    return end(h, FAULTS_CLOSE, close(h->fd));
}

static void holder_note(struct holder *h)
{
    uint32_t n = atomic_load(&h->log->holds);
    if (n >= FAULTS_HOLDS_MAX) {
        stress_die("client %u: no room for more than %u holds", h->client, n);
    }
    h->hold = &h->log->hold[n];
    *h->hold = (struct history_hold){.acquired = stress_now(),
                                     .end = HISTORY_RANGE_MAX,
                                     .name = (uint16_t)h->name,
                                     .client = (uint16_t)h->client,
                                     .grant = ++h->grants,
                                     .kind = (uint8_t)h->kind,
                                     .mode = (uint8_t)h->mode,
                                     .width = (uint8_t)h->width};
    atomic_store(&h->log->holds, n + 1);
    h->log->acquired++;
    h->token = 0;
    h->by_handle = stress_chance(&h->random, 35);
    h->lost = false;
}

/* A ticket's file starts with its name, for who made it. */
static bool holder_read_name(struct holder *h)
{
    char name[40];
    begin(h, FAULTS_READ);
    ssize_t length = pread(h->fd, name, sizeof name - 1, 0);
    if (!end(h, FAULTS_READ, length) || length < 2) {
        return false;
    }
    name[length - 1] = '\0';
    snprintf(h->file, sizeof h->file, "q%u/%s", h->width, name);
    return true;
}

/* Most wait, so that what cuts off their mount takes their place away, too. */
static bool holder_queue_up(struct holder *h)
{
    uint32_t queue = stress_below(&h->random, FAULTS_QUEUES);
    char name[32];
    h->kind = HISTORY_TICKET;
    h->name = h->faults->options.names + queue;
    h->width = queue + 1;
    h->mode = stress_chance(&h->random, 15) ? HISTORY_SHARED : HISTORY_EXCLUSIVE;
    snprintf(name, sizeof name, "q%u/job-", h->width);
    begin(h, FAULTS_OPEN);
    h->fd = openat(h->directory, name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (!end(h, FAULTS_OPEN, h->fd)) {
        return false;
    }
    if (!holder_lock(h, stress_chance(&h->random, 90)) || !holder_read_name(h)) {
        h->log->open += errno != EAGAIN && errno != EINTR;
        holder_close(h);
        return false;
    }
    holder_note(h);
    return true;
}

static bool holder_acquire(struct holder *h)
{
    static const enum history_kind kinds[] = {HISTORY_FLOCK, HISTORY_FLOCK, HISTORY_FLOCK, HISTORY_POSIX,
                                              HISTORY_OFD,   HISTORY_LEASE, HISTORY_LEASE};
    char name[32];
    if (faults_queues(&h->faults->options) && stress_chance(&h->random, 30)) {
        return holder_queue_up(h);
    }
    h->width = 0;
    h->name = stress_below(&h->random, h->faults->options.names);
    /* the token of byte ranges is what the store has for the name, which may be another's if it forgot */
    h->kind = kinds[stress_below(&h->random, 7)];
    if (h->faults->options.forgetful && (h->kind == HISTORY_POSIX || h->kind == HISTORY_OFD)) {
        h->kind = HISTORY_FLOCK;
    }
    bool shares = h->kind != HISTORY_LEASE && !h->faults->options.exclusive && stress_chance(&h->random, 20);
    h->mode = shares ? HISTORY_SHARED : HISTORY_EXCLUSIVE;
    bool lease = h->kind == HISTORY_LEASE;
    enum faults_operation operation = lease ? FAULTS_EXCL : FAULTS_OPEN;
    snprintf(name, sizeof name, "n%u", h->name);
    snprintf(h->file, sizeof h->file, "%s", name);
    begin(h, operation);
    h->fd = openat(h->directory, name, O_RDWR | O_CREAT | O_CLOEXEC | (lease ? O_EXCL : 0), 0666);
    if (!end(h, operation, h->fd)) {
        if (lease && errno != EEXIST) {
            h->log->open++;
            exit(0); /* it may be there: see above */
        }
        return false;
    }
    if (!lease && !holder_lock(h, stress_chance(&h->random, 60))) {
        h->log->open += errno != EAGAIN && errno != EINTR;
        holder_close(h);
        return false;
    }
    holder_note(h);
    return true;
}

/* --- giving up ------------------------------------------------------------------------ */

static void holder_give_back(struct holder *h)
{
    int64_t now = stress_now();
    if (h->hold->released > now) {
        h->hold->released = now;
    }
}

static void holder_path(const struct holder *h, char *path, size_t size)
{
    const struct faults_options *o = &h->faults->options;
    snprintf(path, size, "%s/%s", o->mounts[h->client % o->mount_count], h->file);
}

/* By its token, which harms no other's; one that nobody shares also by breaking it. */
static void holder_release_by_name(struct holder *h)
{
    char path[4096], value[32];
    bool breaks = h->kind == HISTORY_TICKET && !h->lost && stress_chance(&h->random, 50);
    enum faults_operation operation = breaks ? FAULTS_BREAK : FAULTS_RELEASE;
    holder_path(h, path, sizeof path);
    snprintf(value, sizeof value, "%lld", (long long)h->token);
    begin(h, operation);
    end(h, operation,
        setxattr(path, breaks ? "user.lease.break" : "user.lease.release", breaks ? "1" : value,
                 breaks ? 1 : strlen(value), 0));
}

/* To another name, if that is free: what it protected is not its own any more.  False if nobody knows where it is. */
static bool holder_rename(struct holder *h)
{
    uint32_t name = stress_below(&h->random, h->faults->options.names);
    char file[64];
    if (name == h->name) {
        return true;
    }
    snprintf(file, sizeof file, "n%u", name);
    begin(h, FAULTS_RENAME);
    if (!end(h, FAULTS_RENAME, renameat(h->directory, h->file, h->directory, file))) {
        return errno == EBUSY || errno == ENOENT || errno == EPERM || errno == ESTALE;
    }
    h->name = name;
    snprintf(h->file, sizeof h->file, "%s", file);
    holder_note(h);
    holder_check(h);
    holder_give_back(h);
    return true;
}

/* A lease: by its name while it is known to be there, else by its token, which harms no other's. */
static void holder_release_lease(struct holder *h)
{
    char path[128], value[32];
    if (!h->lost && !h->faults->options.exclusive && stress_chance(&h->random, 30) && !holder_rename(h)) {
        h->log->open++;
        exit(0);
    }
    snprintf(value, sizeof value, "%lld", (long long)h->token);
    if (!h->lost && stress_chance(&h->random, 50)) {
        begin(h, FAULTS_UNLINK);
        if (end(h, FAULTS_UNLINK, unlinkat(h->directory, h->file, 0)) || errno == ENOENT || errno == EPERM) {
            return;
        }
    }
    close(h->directory);
    if (h->token && holder_enter(h)) { /* in an ordinary directory there is none, but the next daemon may have it */
        snprintf(path, sizeof path, "/proc/self/fd/%d/%s", h->directory, h->file);
        begin(h, FAULTS_RELEASE);
        if (end(h, FAULTS_RELEASE, setxattr(path, "user.lease.release", value, strlen(value), 0)) || errno == ESTALE ||
            errno == ENOENT) {
            return;
        }
    }
    exit(0);
}

static void holder_release(struct holder *h)
{
    struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    holder_give_back(h);
    if (h->kind == HISTORY_LEASE) {
        holder_release_lease(h);
    } else if (h->token && h->mode == HISTORY_EXCLUSIVE && h->kind != HISTORY_POSIX && h->kind != HISTORY_OFD &&
               stress_chance(&h->random, 25)) {
        holder_release_by_name(h);
    } else if (stress_chance(&h->random, 50)) {
        begin(h, FAULTS_UNLOCK);
        end(h, FAULTS_UNLOCK,
            h->kind == HISTORY_FLOCK || h->kind == HISTORY_TICKET
                ? flock(h->fd, LOCK_UN)
                : fcntl(h->fd, h->kind == HISTORY_OFD ? F_OFD_SETLK : F_SETLK, &range));
    }
    holder_close(h);
}

/* --- work ------------------------------------------------------------------------------- */

/* Counts the answer of a guarded file.  It is a fault if the file refuses a client that holds before and after. */
static void holder_count(struct holder *h, enum guard_answer answer)
{
    int64_t token = h->token;
    h->log->accepted += answer == GUARD_ACCEPTED;
    h->log->reused += answer == GUARD_REUSED;
    if (answer == GUARD_STALE) {
        bool held = holder_ask(h) && h->token == token;
        h->log->refused += held;
        h->log->stale += !held;
    }
}

static void holder_step(struct holder *h, int64_t guarded, int64_t plain)
{
    uint32_t dice = stress_below(&h->random, 100);
    int64_t owner = (int64_t)h->client << 32 | h->grants;
    int64_t pause = dice < 80 ? 1 + stress_below(&h->random, 20) : 50 + stress_below(&h->random, 400);
    stress_sleep(pause * STRESS_MS);
    holder_count(h, guard_write(h->faults, h->name, h->token, owner, guarded));
    guard_plain_write(h->faults, h->name, plain);
}

/* Reads once, and counts on from that, as whoever holds a lock may. */
static void holder_work(struct holder *h)
{
    bool careless = stress_chance(&h->random, 40);
    uint32_t steps = stress_below(&h->random, 10) + (careless ? 10 : 0);
    int64_t owner = (int64_t)h->client << 32 | h->grants, guarded = 0;
    if (!holder_check(h)) {
        return;
    }
    if (h->mode == HISTORY_SHARED || h->width > 1) { /* two may hold: no file is theirs alone */
        for (uint32_t i = 0; i < steps && holder_check(h); i++) {
            stress_sleep(stress_below(&h->random, 50) * STRESS_MS);
        }
        return;
    }
    int64_t plain = guard_plain_read(h->faults, h->name);
    enum guard_answer answer = guard_begin(h->faults, h->name, h->token, owner, &guarded);
    if (answer != GUARD_ACCEPTED) {
        holder_count(h, answer);
        return;
    }
    for (uint32_t i = 1; i <= steps && (careless || holder_check(h)); i++) {
        holder_step(h, guarded + i, plain + i);
    }
}

/* A term that is not renewed: a process that is stopped for longer has lost it. */
static void holder_fix_term(struct holder *h)
{
    if (h->kind == HISTORY_LEASE && stress_chance(&h->random, 50)) {
        begin(h, FAULTS_TTL);
        end(h, FAULTS_TTL, fsetxattr(h->fd, "user.lease.ttl", "500ms", 5, 0));
    }
}

static void wake(int signal)
{
    (void)signal;
}

void faults_client_run(struct faults *faults, uint32_t client)
{
    struct faults_log *log = &faults->logs[client];
    uint32_t incarnation = atomic_fetch_add(&log->incarnations, 1);
    struct holder h = {.faults = faults, .log = log, .client = client, .grants = incarnation << 16};
    struct sigaction action = {.sa_handler = wake}; /* no SA_RESTART: waits end with EINTR */
    sigaction(SIGALRM, &action, NULL);
    h.random = stress_seed(faults->options.seed, (uint64_t)incarnation << 16 | client);
    while (!atomic_load(faults->ending)) {
        if (!holder_enter(&h)) {
            stress_sleep(20 * STRESS_MS);
            continue;
        }
        if (holder_acquire(&h)) {
            holder_fix_term(&h);
            holder_work(&h);
            holder_release(&h);
        }
        close(h.directory);
        stress_sleep(stress_below(&h.random, 20) * STRESS_MS);
    }
}

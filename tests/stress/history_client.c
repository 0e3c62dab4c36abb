/* history_client: one process that takes and releases locks at random, and records each answer and its time; see
 * history.h.
 *
 * It may be stopped or killed at any instruction.  So it records a hold after the call that acquired it has returned,
 * and its end before the call that releases it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/stress/history_client.h"

static const char *const operation_names[] = {
    [OPERATION_EXCL] = "open(O_EXCL)",
    [OPERATION_SYMLINK] = "symlink",
    [OPERATION_OPEN] = "open",
    [OPERATION_TIMES] = "futimens",
    [OPERATION_CLOSE] = "close",
    [OPERATION_WRITE] = "write",
    [OPERATION_LINK] = "link",
    [OPERATION_RENAME] = "rename",
    [OPERATION_UNLINK_OWN] = "unlink (own)",
    [OPERATION_UNLINK_OTHER] = "unlink (any)",
    [OPERATION_TTL] = "set ttl",
    [OPERATION_FLOCK] = "flock",
    [OPERATION_FLOCK_TRY] = "flock NB",
    [OPERATION_FLOCK_UNLOCK] = "flock UN",
    [OPERATION_FCNTL] = "F_SETLKW",
    [OPERATION_FCNTL_TRY] = "F_SETLK",
    [OPERATION_FCNTL_UNLOCK] = "F_UNLCK",
    [OPERATION_CHECK] = "check token",
    [OPERATION_LOOK] = "look",
    [OPERATION_RELEASE] = "release",
    [OPERATION_BREAK] = "break (own)",
    [OPERATION_TICKET] = "open(q/job-)",
};

const char *history_operation_name(unsigned operation)
{
    return operation_names[operation];
}

/* --- notes --------------------------------------------------------------------- */

const char *client_path(const struct client *c, uint32_t name)
{
    static char paths[2][4096];
    static int turn;
    turn = !turn;
    const char *ticket = NULL;
    for (int i = 0; i < SLOTS; i++) {
        ticket = c->slots[i].used && c->slots[i].width && c->slots[i].name == name ? c->slots[i].ticket : ticket;
    }
    if (ticket) {
        snprintf(paths[turn], sizeof paths[turn], "%s/%s", c->options->directory, ticket);
    } else {
        snprintf(paths[turn], sizeof paths[turn], "%s/n%u", c->options->directory, name);
    }
    return paths[turn];
}

void history_end_holds(struct history_log *log, uint32_t first, int64_t now)
{
    uint32_t count = atomic_load(&log->holds);
    for (uint32_t i = first; i < count; i++) {
        struct history_hold *hold = &log->hold[i];
        if (!hold->released || hold->released > now) {
            hold->released = now;
        }
    }
}

void client_begin(struct client *c, enum history_operation operation, uint32_t name)
{
    atomic_store(&c->log->doing, operation);
    atomic_store(&c->log->doing_name, name);
    atomic_store(&c->log->since, stress_now());
}

static void client_note_fault(struct client *c, enum history_operation operation, int error)
{
    uint32_t name = atomic_load(&c->log->doing_name), n = c->log->faults++;
    uint8_t kind = HISTORY_NOTHING;
    for (int i = 0; i < SLOTS; i++) {
        kind = c->slots[i].used && c->slots[i].name == name ? (uint8_t)c->slots[i].kind : kind;
    }
    if (n < HISTORY_FAULTS_MAX) {
        c->log->fault[n] = (struct history_fault){.when = stress_now(),
                                                  .error = error,
                                                  .operation = (uint16_t)operation,
                                                  .name = (uint16_t)name,
                                                  .kind = kind};
    }
}

bool client_end(struct client *c, enum history_operation operation, int result)
{
    int error = result < 0 ? errno : 0;
    atomic_store(&c->log->since, 0);
    c->log->outcome[operation][error < HISTORY_ERRNO_MAX ? error : HISTORY_ERRNO_MAX - 1]++;
    if (c->options->fuse && !history_allows(operation, error)) {
        client_note_fault(c, operation, error);
    }
    errno = error;
    return result >= 0;
}

struct history_hold *client_note(struct client *c, const struct slot *slot, enum history_mode mode, int64_t acquired,
                                 int64_t start, int64_t end)
{
    uint32_t n = atomic_load(&c->log->holds);
    if (n >= c->capacity) {
        stress_die("client %u: no room for more than %u holds", c->index, n);
    }
    struct history_hold *hold = &c->log->hold[n];
    *hold = (struct history_hold){.acquired = acquired,
                                  .start = start,
                                  .end = end,
                                  .name = (uint16_t)slot->name,
                                  .client = (uint16_t)c->index,
                                  .grant = slot->grant,
                                  .kind = (uint8_t)slot->kind,
                                  .mode = (uint8_t)mode,
                                  .width = slot->width};
    atomic_store(&c->log->holds, n + 1);
    return hold;
}

void client_disconnect(struct slot *slot)
{
    int64_t now = stress_now();
    for (int i = 0; i < slot->pieces; i++) {
        slot->piece[i]->released = now;
    }
    slot->pieces = 0;
}

void client_read_token(struct client *c, const struct slot *slot)
{
    if (!c->options->fuse || slot->link) {
        return;
    }
    client_begin(c, OPERATION_LOOK, slot->name);
    int64_t token = stress_attribute(client_path(c, slot->name), "token");
    if (token == -ENODATA) {
        /* The kernel may be late to know that a symbolic link had this name, which
         * can have no attributes, and has lost it. */
        stress_sleep(50 * STRESS_MS);
        token = stress_attribute(client_path(c, slot->name), "token");
    }
    errno = (int)-token;
    if (client_end(c, OPERATION_LOOK, token < 0 ? -1 : 0)) {
        slot->piece[0]->token = token;
    }
}

void client_hold(struct client *c, struct slot *slot, enum history_kind kind, enum history_mode mode, int fd)
{
    int64_t now = stress_now();
    slot->used = true;
    slot->kind = kind;
    slot->fd = fd;
    slot->piece[0] = client_note(c, slot, mode, now, 0, HISTORY_RANGE_MAX);
    slot->pieces = 1;
    client_read_token(c, slot);
}

bool client_close(struct client *c, uint32_t name, int fd)
{
    client_begin(c, OPERATION_CLOSE, name);
    return client_end(c, OPERATION_CLOSE, close(fd));
}
int client_open(struct client *c, enum history_operation operation, uint32_t name, int flags)
{
    client_begin(c, operation, name);
    int fd = open(client_path(c, name), flags | O_NOFOLLOW | O_CLOEXEC, 0666);
    client_end(c, operation, fd);
    return fd;
}

int client_open_any(struct client *c, uint32_t name, bool writable)
{
    static const int flags[] = {O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC, O_RDONLY | O_CREAT};
    return client_open(c, OPERATION_OPEN, name, writable ? O_RDWR | O_CREAT : flags[stress_below(&c->random, 3)]);
}

void client_alarm(int64_t ns)
{
    int64_t us = ns / 1000;
    struct itimerval timer = {.it_value.tv_usec = (suseconds_t)us, .it_interval.tv_usec = (suseconds_t)us};
    setitimer(ITIMER_REAL, &timer, NULL);
}

struct slot *client_free_slot(struct client *c)
{
    for (int i = 0; i < SLOTS; i++) {
        if (!c->slots[i].used) {
            return &c->slots[i];
        }
    }
    return NULL;
}

bool client_pick_name(struct client *c, uint32_t *ret_name)
{
    uint32_t name = stress_below(&c->random, c->options->names);
    for (int i = 0; i < SLOTS; i++) {
        if (c->slots[i].used && c->slots[i].name == name) {
            return false;
        }
    }
    *ret_name = name;
    return c->avoid[name] < stress_now();
}

/* --- what it does next --------------------------------------------------------------- */

/* Is the name there, and does its token guard? */
static void client_look(struct client *c, struct slot *slot)
{
    struct stat st;
    char value[32];
    client_begin(c, OPERATION_LOOK, slot->name);
    client_end(c, OPERATION_LOOK, lstat(client_path(c, slot->name), &st));
    if (c->options->fuse && slot->pieces == 1 && slot->piece[0]->token && slot->kind != HISTORY_POSIX &&
        slot->kind != HISTORY_OFD && slot->piece[0]->mode == HISTORY_EXCLUSIVE) {
        snprintf(value, sizeof value, "%lld", (long long)slot->piece[0]->token);
        client_begin(c, OPERATION_CHECK, slot->name);
        client_end(c, OPERATION_CHECK,
                   lsetxattr(client_path(c, slot->name), "user.lease.check", value, strlen(value), 0));
    }
}

static void client_release(struct client *c, struct slot *slot)
{
    if (slot->kind != HISTORY_POSIX && slot->kind != HISTORY_OFD && slot->pieces == 1 && slot->piece[0]->token &&
        stress_chance(&c->random, 20)) {
        client_release_by_name(c, slot);
    } else if (slot->kind == HISTORY_TICKET) {
        client_release_ticket(c, slot);
    } else if (slot->kind == HISTORY_LEASE) {
        client_unlink(c, slot);
    } else if (slot->kind == HISTORY_FLOCK) {
        client_release_flock(c, slot);
    } else {
        client_release_fcntl(c, slot);
    }
}

static void client_change(struct client *c, struct slot *slot)
{
    static void (*const lease[])(struct client *, struct slot *) = {client_link, client_rename, client_abandon,
                                                                    client_lease_to_flock};
    static void (*const flocks[])(struct client *, struct slot *) = {client_convert_flock, client_dup};
    static void (*const ranges[])(struct client *, struct slot *) = {client_convert_fcntl, client_split_fcntl};
    if (slot->kind == HISTORY_LEASE) {
        if (c->options->fuse) {
            lease[stress_below(&c->random, 4)](c, slot);
        }
    } else if (slot->kind == HISTORY_TICKET) {
        client_look(c, slot);
    } else if (slot->kind == HISTORY_FLOCK) {
        flocks[stress_below(&c->random, 2)](c, slot);
    } else {
        ranges[stress_below(&c->random, 2)](c, slot);
    }
}

/* Elsewhere than on a leasefs the kinds do not exclude each other: each has names
 * of its own there. */
static void client_acquire(struct client *c, struct slot *slot)
{
    static void (*const ways[])(struct client *, struct slot *) = {
        client_acquire_excl,  client_acquire_flock, client_acquire_fcntl, client_acquire_symlink,
        client_acquire_touch, client_acquire_flock, client_acquire_fcntl, client_acquire_excl};
    uint32_t name;
    slot->width = 0;
    if (c->options->fuse && stress_chance(&c->random, 15)) {
        client_acquire_ticket(c, slot);
    } else if (client_pick_name(c, &name)) {
        uint32_t way = c->options->fuse ? stress_below(&c->random, 8) : name % 3;
        slot->name = name;
        slot->grant = ++c->grants;
        slot->pieces = 0;
        slot->link = false;
        ways[way](c, slot);
    }
}

/* Tries to remove what another holds, as a careless script would. */
static void client_steal(struct client *c)
{
    uint32_t name;
    if (c->options->fuse && client_pick_name(c, &name)) {
        client_begin(c, OPERATION_UNLINK_OTHER, name);
        client_end(c, OPERATION_UNLINK_OTHER, unlink(client_path(c, name)));
    }
}

static void client_step(struct client *c)
{
    struct slot *slot = &c->slots[stress_below(&c->random, SLOTS)];
    uint32_t dice = stress_below(&c->random, 100);
    if (dice < 2) {
        client_steal(c);
    } else if (!slot->used) {
        client_acquire(c, slot);
    } else if (dice < 45) {
        client_release(c, slot);
    } else if (dice < 70) {
        client_look(c, slot);
    } else {
        client_change(c, slot);
    }
}

static void client_wake(int signal)
{
    (void)signal;
}

void history_client_run(struct history *history, uint32_t index, uint32_t until)
{
    struct history_log *log = &history->logs[index];
    uint32_t incarnation = atomic_fetch_add(&log->incarnations, 1);
    struct client c = {.options = &history->options, .log = log, .index = index, .capacity = history->capacity};
    struct sigaction action = {.sa_handler = client_wake}; /* no SA_RESTART: waits end with EINTR */
    sigaction(SIGALRM, &action, NULL);
    uint32_t first = atomic_load(&log->holds);
    c.grants = incarnation << 20;
    c.random = stress_seed(history->options.seed, (uint64_t)incarnation << 16 | index);
    c.avoid = calloc(history->options.names, sizeof *c.avoid);
    while (atomic_load(&log->operations) < until) {
        client_step(&c);
        atomic_fetch_add(&log->operations, 1);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (c.slots[i].used) {
            client_release(&c, &c.slots[i]);
        }
    }
    history_end_holds(log, first, stress_now()); /* once it has ended, others may remove what it left */
    free(c.avoid);
}

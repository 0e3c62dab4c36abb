/* check_judge: histories that can be true pass the judge, and each rule refuses one that breaks it, by its own name and
 * no other. */
#include "tests/sim/judge.h"

#include "tests/support/check_main.h"

#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define TTL (10 * JUDGE_SECOND)
#define MARGIN JUDGE_SECOND

/* Processes: 1 is the first of all, of root; 2 its child, a shell of uid 1000; 3 and 4 are the shell's, 5 is of uid
 * 1001. */
enum { INIT = 1, SHELL, CHILD, OTHER, STRANGER, REMOTE, PROCESSES };

struct world {
    struct judge *judge;
    int64_t now;
    uint64_t id, handle;
};

static const struct judge_options options = {
    .ttl = TTL, .settle = 50 * JUDGE_MS, .prompt = 20 * JUDGE_MS, .margin = MARGIN, .remote = true, .out = NULL};

static const struct judge_options disk_options = {
    .ttl = TTL, .settle = 50 * JUDGE_MS, .margin = MARGIN, .keeps = true, .recovers = true, .out = NULL};

static const struct judge_options recovers_options = {
    .ttl = TTL, .settle = 50 * JUDGE_MS, .margin = MARGIN, .remote = true, .recovers = true, .out = NULL};

static const struct judge_options moves_options = {
    .ttl = TTL, .settle = 50 * JUDGE_MS, .margin = MARGIN, .remote = true, .moves = true, .out = NULL};

static struct world world_of(const struct judge_options *its)
{
    struct world w = {.judge = judge_new(its), .now = 100 * JUDGE_SECOND};
    judge_fork(w.judge, w.now, INIT, 0, 1, 0, 1);
    judge_fork(w.judge, w.now, SHELL, INIT, 100, 1000, 100);
    for (uint32_t i = CHILD; i < PROCESSES; i++) {
        bool stranger = i == STRANGER;
        judge_fork(w.judge, w.now, i, stranger ? INIT : SHELL, (pid_t)(100 + i), stranger ? 1001 : 1000, 100);
    }
    return w;
}

static struct world world_new(void)
{
    return world_of(&options);
}

/* It begins again, with leases on the host's disk. */
static void is_on_disk(struct world *w)
{
    judge_free(w->judge);
    *w = world_of(&disk_options);
}

/* It begins again, with a server that others take over from. */
static void is_moved(struct world *w)
{
    judge_free(w->judge);
    *w = world_of(&moves_options);
}

/* It begins again, with a server from which the next daemon recovers handle locks. */
static void is_recovered(struct world *w)
{
    judge_free(w->judge);
    *w = world_of(&recovers_options);
}

static void passes(struct world *w, int64_t time)
{
    w->now += time;
}

static uint64_t begin(struct world *w, struct judge_call call)
{
    w->now += JUDGE_MS;
    call.id = ++w->id;
    call.when = w->now;
    if (call.operation == JUDGE_FLOCK || call.operation == JUDGE_FUNLOCK) {
        call.end = JUDGE_BYTES_MAX;
    }
    judge_call(w->judge, &call);
    return call.id;
}

static void end_with(struct world *w, uint64_t id, int error, const char *value)
{
    w->now += JUDGE_MS;
    judge_answer(w->judge, &(struct judge_answer){.id = id,
                                                  .when = w->now,
                                                  .error = error,
                                                  .value = value,
                                                  .size = value ? strlen(value) : 0,
                                                  .stat = {.uid = 1000, .nlink = 1}});
}

static void end(struct world *w, uint64_t id, int error)
{
    end_with(w, id, error, NULL);
}

static void does(struct world *w, struct judge_call call, int error)
{
    end(w, begin(w, call), error);
}

/* A name by the process: mount 0, but for REMOTE. */
#define ON(process_, name_, operation_, ...)                                                                           \
    ((struct judge_call){.process = process_,                                                                          \
                         .mount = (process_) == REMOTE,                                                                \
                         .operation = JUDGE_##operation_,                                                              \
                         .name = name_,                                                                                \
                         ##__VA_ARGS__})
#define BY(process_, handle_, operation_, ...)                                                                         \
    ((struct judge_call){.process = process_,                                                                          \
                         .mount = (process_) == REMOTE,                                                                \
                         .operation = JUDGE_##operation_,                                                              \
                         .handle = handle_,                                                                            \
                         ##__VA_ARGS__})

static uint64_t opens(struct world *w, uint32_t process, const char *name, unsigned flags, int error)
{
    uint64_t id = begin(w, ON(process, name, OPEN, .flags = flags));
    w->now += JUDGE_MS;
    judge_answer(w->judge,
                 &(struct judge_answer){.id = id, .when = w->now, .error = error, .handle = error ? 0 : ++w->handle});
    return w->handle;
}

static uint64_t exclusive(struct world *w, uint32_t process, int error)
{
    return opens(w, process, "L", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, error);
}

static uint64_t reads(struct world *w, uint32_t process)
{
    return opens(w, process, "L", JUDGE_CREATE, 0);
}

static uint64_t flocks(struct world *w, uint32_t process, unsigned flags, int error)
{
    uint64_t handle = reads(w, process);
    does(w, BY(process, handle, FLOCK, .flags = flags), error);
    return handle;
}

static uint64_t ticket(struct world *w, uint32_t process)
{
    return opens(w, process, "q/job-", JUDGE_CREATE | JUDGE_WRITES, 0);
}

static void attribute(struct world *w, uint32_t process, uint64_t handle, const char *name, const char *value)
{
    end_with(w, begin(w, BY(process, handle, GETXATTR, .target = name)), 0, value);
}

static void set(struct world *w, uint32_t process, const char *name, const char *value, int error)
{
    does(w, ON(process, "L", SETXATTR, .target = name, .value = value, .size = strlen(value)), error);
}

static void record(struct world *w, uint32_t process, uint64_t handle, unsigned flags, int64_t start, int64_t to,
                   int error)
{
    does(w, BY(process, handle, SETLK, .flags = flags, .start = start, .end = to), error);
}

static void probe(struct world *w, uint32_t process, uint64_t handle, bool found, int64_t start, int64_t to, pid_t pid)
{
    uint64_t id = begin(w, BY(process, handle, GETLK, .start = 0, .end = JUDGE_BYTES_MAX));
    w->now += JUDGE_MS;
    judge_answer(w->judge, &(struct judge_answer){.id = id,
                                                  .when = w->now,
                                                  .conflict = {.found = found, .start = start, .end = to, .pid = pid}});
}

static void trouble(struct world *w, enum judge_trouble trouble, uint32_t mount, bool begins)
{
    w->now += JUDGE_MS;
    judge_trouble(w->judge, w->now, trouble, mount, trouble == JUDGE_FOREIGN ? "L" : NULL, begins);
}

/* --- histories that can be true ---------------------------------------------------------- */

static void good_lease(struct world *w)
{
    uint64_t mine = exclusive(w, SHELL, 0);
    exclusive(w, CHILD, EEXIST);
    exclusive(w, REMOTE, EEXIST);
    opens(w, STRANGER, "L", JUDGE_WRITES, EBUSY);
    does(w, BY(SHELL, mine, WRITE, .value = "me", .size = 2), 0);
    end_with(w, begin(w, ON(REMOTE, "L", READ)), 0, "me");
    passes(w, 3 * JUDGE_SECOND);
    opens(w, OTHER, "L", JUDGE_WRITES, 0);
    does(w, BY(SHELL, mine, CLOSE), 0);
    does(w, ON(STRANGER, "L", UNLINK), EPERM);
    does(w, ON(REMOTE, "L", UNLINK), EPERM);
    passes(w, 5 * TTL);
    does(w, ON(REMOTE, "L", STAT), 0);
    does(w, ON(CHILD, "L", UNLINK), 0);
    does(w, ON(REMOTE, "L", STAT), ENOENT);
    exclusive(w, REMOTE, 0);
}

static void good_touch(struct world *w)
{
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    uint64_t handle = opens(w, 20, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    does(w, BY(20, handle, TIMES), 0);
    does(w, BY(20, handle, CLOSE), 0);
    judge_exit(w->judge, w->now += JUDGE_MS, 20, 0);
    passes(w, 3 * TTL);
    does(w, ON(STRANGER, "L", UNLINK), EPERM);
    exclusive(w, CHILD, EEXIST);
    does(w, ON(SHELL, "L", UNLINK), 0);
    exclusive(w, CHILD, 0);
}

/* Its parent is looked at before that is its heir, and answered behind. */
static void good_helper_ends_as_its_parent_is_refused(struct world *w)
{
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    does(w, BY(20, opens(w, 20, "L", JUDGE_CREATE | JUDGE_WRITES, 0), CLOSE), 0);
    uint64_t id = begin(w, ON(SHELL, "L", UNLINK));
    judge_exit(w->judge, w->now += JUDGE_MS, 20, 0);
    end(w, id, EPERM);
    does(w, ON(SHELL, "L", UNLINK), 0);
}

static void good_break_of_what_is_being_renamed(struct world *w)
{
    exclusive(w, SHELL, 0);
    uint64_t moves = begin(w, ON(SHELL, "L", RENAME, .target = "M"));
    uint64_t breaks = begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    end(w, moves, 0);
    end(w, breaks, 0);
    does(w, ON(OTHER, "M", STAT), ENOENT);
}

static void good_provisional(struct world *w)
{
    uint64_t first = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    exclusive(w, OTHER, EEXIST);
    passes(w, 2 * JUDGE_SECOND);
    exclusive(w, OTHER, 0);
    does(w, BY(SHELL, first, CLOSE), EBUSY);
}

static void good_owner_dies(struct world *w)
{
    exclusive(w, CHILD, 0);
    passes(w, 3 * JUDGE_SECOND);
    judge_exit(w->judge, w->now, CHILD, 9);
    exclusive(w, REMOTE, EEXIST);
    passes(w, TTL - 3 * JUDGE_SECOND);
    exclusive(w, REMOTE, 0);
}

/* A child is refused times, through a file of its parent's: that may close it as before. */
static void good_times_of_child(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    does(w, BY(SHELL, a, TIMES), 0);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    does(w, BY(20, a, TIMES), EBUSY);
    uint64_t b = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    record(w, SHELL, b, JUDGE_TRY, 0, 9, 0);
    does(w, BY(SHELL, a, CLOSE), 0);
    judge_exit(w->judge, w->now, SHELL, 0);
    passes(w, JUDGE_SECOND / 2);
    does(w, ON(OTHER, "L", STAT), 0);
}

static void good_flock(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0), b = reads(w, REMOTE), c = reads(w, OTHER);
    flocks(w, CHILD, JUDGE_TRY, EAGAIN);
    uint64_t waits_b = begin(w, BY(REMOTE, b, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t waits_c = begin(w, BY(OTHER, c, FLOCK, .flags = JUDGE_SHARE));
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, a, FUNLOCK), 0);
    end(w, waits_b, 0);
    judge_exit(w->judge, w->now += JUDGE_MS, REMOTE, 9);
    passes(w, 20 * JUDGE_MS);
    end(w, waits_c, 0);
    flocks(w, SHELL, JUDGE_SHARE, 0);
    flocks(w, SHELL, JUDGE_TRY, EAGAIN);
}

/* It has two files of the lock, and lost one. */
static void good_state_of_two(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0), b = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    does(w, BY(SHELL, b, FLOCK), 0);
    uint64_t waits = begin(w, BY(SHELL, a, FLOCK, .flags = JUDGE_SHARE));
    judge_signal(w->judge, w->now, waits);
    end(w, waits, EINTR);
    judge_event(w->judge, w->now, JUDGE_HUNG_UP, SHELL, 0, NULL, a);
    attribute(w, SHELL, a, "user.lease.state", "held");
}

/* A read through a file whose lock was released by its token does not show that it holds. */
static void good_read_behind_release(struct world *w)
{
    uint64_t b = reads(w, OTHER), a = flocks(w, SHELL, 0, 0), others = begin(w, BY(OTHER, b, FLOCK));
    judge_signal(w->judge, w->now, others);
    set(w, SHELL, "user.lease.release", "7", 0); /* that, or what the other may have got behind it */
    end(w, others, EINTR);
    exclusive(w, REMOTE, 0);
    uint64_t waits = begin(w, BY(SHELL, a, FLOCK));
    judge_signal(w->judge, w->now, waits);
    end(w, waits, EINTR);
    judge_event(w->judge, w->now, JUDGE_HUNG_UP, SHELL, 0, NULL, a);
    passes(w, 2 * JUDGE_SECOND);
    does(w, BY(SHELL, a, READ), 0);
}

/* Of two claims on different mounts the later one may reach the store first. */
static void good_crossed_waits(struct world *w)
{
    flocks(w, SHELL, JUDGE_SHARE, 0);
    uint64_t b = reads(w, OTHER), c = reads(w, REMOTE);
    begin(w, BY(OTHER, b, FLOCK, .flags = JUDGE_SHARE));
    begin(w, BY(REMOTE, c, FLOCK));
    passes(w, 5 * JUDGE_SECOND);
    judge_end(w->judge, w->now, "L\n");
}

static void good_interrupt(struct world *w)
{
    flocks(w, SHELL, 0, 0);
    uint64_t b = reads(w, OTHER), waits = begin(w, BY(OTHER, b, FLOCK));
    judge_signal(w->judge, w->now, waits);
    end(w, waits, EINTR);
    does(w, BY(OTHER, b, CLOSE), 0);
}

static void good_records(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, 0, 0, 99, 0);
    record(w, OTHER, b, JUDGE_TRY, 50, 60, EAGAIN);
    record(w, OTHER, b, JUDGE_TRY, 100, 120, 0);
    does(w, BY(SHELL, a, UNLCK, .start = 40, .end = 69), 0);
    record(w, OTHER, b, JUDGE_TRY, 50, 60, 0);
    probe(w, OTHER, b, true, 0, 39, 100);
    probe(w, SHELL, a, true, 50, 60, 100 + OTHER);
    does(w, BY(SHELL, a, CLOSE), 0);
    record(w, OTHER, b, JUDGE_TRY, 0, 99, 0);
}

/* Its owner locks a part of it again while it is revoked. */
static void good_record_released(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, 0, 0, 99, 0);
    uint64_t releases = begin(w, BY(INIT, b, SETXATTR, .target = "user.lease.release", .value = "5", .size = 1));
    uint64_t shared_request = begin(w, BY(SHELL, a, SETLK, .flags = JUDGE_TRY | JUDGE_SHARE, .start = 40, .end = 59));
    end(w, releases, 0);
    does(w, BY(OTHER, b, FLOCK), 0);
    end(w, shared_request, EAGAIN);
}

static void good_deadlock(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, 0, 0, 0, 0);
    record(w, OTHER, b, 0, 1, 1, 0);
    uint64_t waits = begin(w, BY(SHELL, a, SETLK, .start = 1, .end = 1));
    passes(w, JUDGE_SECOND);
    record(w, OTHER, b, 0, 0, 0, EDEADLK);
    does(w, BY(OTHER, b, UNLCK, .start = 1, .end = 1), 0);
    end(w, waits, 0);
}

/* It would wait for what it has by another file. */
static void good_deadlock_with_itself(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, SHELL);
    record(w, SHELL, a, 0, 0, 0, 0);
    does(w, BY(SHELL, b, FLOCK), EDEADLK);
}

/* What another process, that has the file, waits for by it, its owner does. */
static void good_deadlock_of_files(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    judge_fork(w->judge, w->now, 20, OTHER, 120, 1000, 100);
    record(w, SHELL, a, JUDGE_OFD, 0, 0, 0);
    record(w, OTHER, b, JUDGE_OFD, 1, 1, 0);
    uint64_t waits = begin(w, BY(SHELL, a, SETLK, .flags = JUDGE_OFD, .start = 1, .end = 1));
    passes(w, JUDGE_SECOND);
    record(w, 20, b, JUDGE_OFD, 0, 0, EDEADLK);
    does(w, BY(OTHER, b, UNLCK, .flags = JUDGE_OFD, .start = 1, .end = 1), 0);
    end(w, waits, 0);
}

static void good_queue(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    uint64_t a = ticket(w, SHELL), b = ticket(w, OTHER);
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "job-0000000007\n");
    end_with(w, begin(w, BY(OTHER, b, READ)), 0, "job-0000000008\n");
    does(w, BY(SHELL, a, FLOCK), 0);
    does(w, BY(OTHER, b, FLOCK, .flags = JUDGE_TRY), EAGAIN);
    uint64_t waits = begin(w, BY(OTHER, b, FLOCK));
    passes(w, JUDGE_SECOND);
    does(w, ON(SHELL, "q/job-0000000007", UNLINK), 0);
    end(w, waits, 0);
    does(w, ON(SHELL, "q", SETXATTR, .target = "user.lease.width", .value = "2", .size = 1), 0);
    does(w, BY(REMOTE, ticket(w, REMOTE), FLOCK), 0);
}

static void good_cut(struct world *w)
{
    uint64_t mine = flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_AWAY, 1, true);
    exclusive(w, SHELL, EEXIST);
    passes(w, TTL);
    exclusive(w, SHELL, 0);
    attribute(w, REMOTE, mine, "user.lease.state", "lost");
    trouble(w, JUDGE_AWAY, 1, false);
    does(w, BY(REMOTE, mine, READ), ESTALE);
}

/* A lease is taken and released, of each name in turn; then the daemon is killed, and its journal's end cut off. */
static void cut_after(struct world *w, const char *const names[])
{
    is_on_disk(w);
    for (size_t i = 0; names[i]; i++) {
        uint64_t mine = opens(w, SHELL, names[i], JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
        does(w, BY(SHELL, mine, CLOSE), 0);
        does(w, ON(SHELL, names[i], UNLINK), 0);
        passes(w, JUDGE_SECOND);
    }
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_CUT, 0, true);
    trouble(w, JUDGE_FORGOT, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, 5 * TTL);
}

/* The lock that was released last exists again, and is renewed, because its owner lives. */
static void good_journal_cut(struct world *w)
{
    cut_after(w, (const char *const[]){"M", "L", NULL});
    exclusive(w, OTHER, EEXIST);
    passes(w, 2 * JUDGE_SECOND);
    uint64_t mine = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    does(w, BY(SHELL, mine, CLOSE), 0);
    opens(w, OTHER, "L", JUDGE_WRITES, 0); /* it is not new */
    does(w, ON(SHELL, "L", UNLINK), 0);
    exclusive(w, OTHER, 0);
}

/* REMOTE waits, and its daemon is killed: for a while the server cannot know. */
static uint64_t waiter_of_a_killed_daemon(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0), its = reads(w, REMOTE);
    uint64_t waits = begin(w, BY(REMOTE, its, FLOCK));
    trouble(w, JUDGE_DEAD, 1, true);
    end(w, waits, ECONNABORTED);
    return mine;
}

static void good_waiters(struct world *w)
{
    attribute(w, SHELL, waiter_of_a_killed_daemon(w), "user.lease.waiters", "1");
}

/* SHELL has a handle lock, and its daemon is dead for that long. */
static uint64_t handle_lock_of_a_killed_daemon(struct world *w, int64_t dead)
{
    is_recovered(w);
    uint64_t mine = flocks(w, SHELL, 0, 0);
    passes(w, JUDGE_SECOND);
    trouble(w, JUDGE_DEAD, 0, true);
    passes(w, dead);
    trouble(w, JUDGE_DEAD, 0, false);
    return mine;
}

/* The next daemon renews it for as long as the file is open. */
static void good_handle_lock_recovered(struct world *w)
{
    handle_lock_of_a_killed_daemon(w, JUDGE_SECOND);
    passes(w, 5 * TTL);
    flocks(w, REMOTE, JUDGE_TRY, EAGAIN);
}

/* The next daemon came in time, and has forgotten it. */
static void bad_handle_lock_forgotten(struct world *w)
{
    handle_lock_of_a_killed_daemon(w, JUDGE_SECOND);
    passes(w, 2 * TTL);
    flocks(w, REMOTE, JUDGE_TRY, 0);
}

/* The next daemon looks who has its file open, however late it comes. */
static void good_handle_lock_closed_as_its_daemon_dies(struct world *w)
{
    is_on_disk(w);
    does(w, BY(SHELL, flocks(w, SHELL, 0, 0), CLOSE), 0);
    trouble(w, JUDGE_DEAD, 0, true);
    passes(w, TTL);
    trouble(w, JUDGE_DEAD, 0, false);
    flocks(w, OTHER, JUDGE_TRY, EAGAIN);
}

/* A server keeps it for its term, as the next daemon knows nothing of a host's processes before it lost its power. */
static void handle_lock_after_a_power_cut(struct world *w, int64_t time)
{
    is_recovered(w);
    uint64_t file = flocks(w, REMOTE, 0, 0);
    attribute(w, REMOTE, file, "user.lease.token", "7");
    passes(w, 5 * TTL);
    trouble(w, JUDGE_POWER, 1, true);
    judge_exit(w->judge, w->now, REMOTE, 9);
    trouble(w, JUDGE_DEAD, 1, true);
    passes(w, JUDGE_SECOND / 10);
    trouble(w, JUDGE_DEAD, 1, false);
    passes(w, time);
    set(w, SHELL, "user.lease.check", "7", 0);
}

static void good_handle_lock_after_a_power_cut(struct world *w)
{
    handle_lock_after_a_power_cut(w, TTL - JUDGE_SECOND);
}

static void bad_handle_lock_after_a_power_cut(struct world *w)
{
    handle_lock_after_a_power_cut(w, TTL + 2 * MARGIN);
}

/* It came too late. */
static void bad_handle_lock_recovered_late(struct world *w)
{
    handle_lock_of_a_killed_daemon(w, 2 * TTL);
    passes(w, 2 * TTL);
    flocks(w, REMOTE, JUDGE_TRY, EAGAIN);
}

static void bad_handle_lock_recovered_and_closed(struct world *w)
{
    does(w, BY(SHELL, handle_lock_of_a_killed_daemon(w, JUDGE_SECOND), CLOSE), ECONNABORTED);
    passes(w, 2 * TTL);
    flocks(w, REMOTE, JUDGE_TRY, EAGAIN);
}

/* The record lock of a killed daemon: its process closes the file, which another one has open, too. */
static uint64_t record_lock_of_a_killed_daemon(struct world *w)
{
    is_recovered(w);
    uint64_t mine = reads(w, SHELL);
    does(w, BY(SHELL, mine, SETLK, .start = 4, .end = 5), 0);
    uint64_t theirs = reads(w, OTHER);
    passes(w, JUDGE_SECOND);
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    does(w, BY(SHELL, mine, CLOSE), ECONNABORTED);
    passes(w, 5 * TTL);
    return theirs;
}

static void good_record_lock_recovered(struct world *w)
{
    record_lock_of_a_killed_daemon(w);
    does(w, BY(SHELL, reads(w, SHELL), CLOSE), 0); /* no lock owner has it any more */
    flocks(w, SHELL, JUDGE_TRY, EAGAIN);
    exclusive(w, SHELL, EEXIST);
}

static void probe_of_a_record_lock_recovered(struct world *w, uint32_t process)
{
    uint64_t probes = begin(w, BY(SHELL, reads(w, SHELL), GETLK, .start = 4, .end = 4));
    judge_answer(w->judge, &(struct judge_answer){
                               .id = probes,
                               .when = w->now += JUDGE_MS,
                               .conflict = {.found = true, .start = 4, .end = 5, .pid = 100 + (pid_t)process}});
}

static void good_probe_of_a_record_lock_recovered(struct world *w)
{
    uint64_t theirs = record_lock_of_a_killed_daemon(w);
    probe_of_a_record_lock_recovered(w, OTHER);
    does(w, BY(OTHER, theirs, CLOSE), ECONNABORTED);
    probe_of_a_record_lock_recovered(w, OTHER); /* it was not looked at since */
}

static void bad_probe_of_a_record_lock_recovered(struct world *w)
{
    record_lock_of_a_killed_daemon(w);
    probe_of_a_record_lock_recovered(w, CHILD);
}

/* It took some of its record locks by another file first, which count as that file's. */
static void good_deadlock_with_record_locks_of_two_files(struct world *w)
{
    does(w, BY(SHELL, reads(w, SHELL), SETLK, .start = 3, .end = 3), 0);
    uint64_t mine = reads(w, SHELL);
    does(w, BY(SHELL, mine, SETLK, .start = 0, .end = 3, .flags = JUDGE_SHARE), 0);
    does(w, BY(SHELL, mine, FLOCK), EDEADLK);
}

static void bad_deadlock_with_record_locks_of_one_file(struct world *w)
{
    uint64_t mine = reads(w, SHELL);
    does(w, BY(SHELL, mine, SETLK, .start = 0, .end = 3, .flags = JUDGE_SHARE), 0);
    does(w, BY(SHELL, mine, FLOCK), EDEADLK);
}

static void good_tokens(struct world *w)
{
    uint64_t mine = exclusive(w, SHELL, 0);
    attribute(w, SHELL, mine, "user.lease.token", "7");
    set(w, SHELL, "user.lease.check", "7", 0);
    set(w, SHELL, "user.lease.check", "6", ESTALE);
    set(w, SHELL, "user.lease.release", "7", 0);
    attribute(w, REMOTE, exclusive(w, REMOTE, 0), "user.lease.token", "9");
    set(w, STRANGER, "user.lease.break", "1", EPERM);
    set(w, INIT, "user.lease.break", "1", 0);
    exclusive(w, SHELL, 0);
}

static void good_watch(struct world *w)
{
    exclusive(w, SHELL, 0);
    judge_event(w->judge, w->now, JUDGE_WATCHES, OTHER, 0, "L", 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    judge_event(w->judge, w->now, JUDGE_DELETED, OTHER, 0, "L", 0);
    uint64_t mine = flocks(w, SHELL, 0, 0);
    judge_event(w->judge, w->now, JUDGE_WATCHES, SHELL, 0, NULL, mine);
    set(w, INIT, "user.lease.break", "1", 0);
    judge_event(w->judge, w->now, JUDGE_HUNG_UP, SHELL, 0, NULL, mine);
    passes(w, JUDGE_SECOND);
    judge_end(w->judge, w->now, "");
}

/* Who took it by an inherited handle has ended: it is the opener's. */
static void good_probe_of_heir(struct world *w)
{
    uint64_t mine = reads(w, SHELL), other = reads(w, OTHER);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    does(w, BY(20, mine, FLOCK), 0);
    probe(w, OTHER, other, true, 0, JUDGE_BYTES_MAX, 120);
    judge_exit(w->judge, w->now += JUDGE_MS, 20, 0);
    probe(w, OTHER, other, true, 0, JUDGE_BYTES_MAX, 100);
}

/* A file of the holder's is so in whosever hands it is. */
static void good_passed(struct world *w)
{
    flocks(w, SHELL, 0, 0);
    uint64_t mine = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    judge_pass(w->judge, w->now, STRANGER, mine);
    does(w, BY(STRANGER, mine, WRITE, .value = "me", .size = 2), 0);
}

static void good_passed_lease(struct world *w)
{
    uint64_t mine = exclusive(w, SHELL, 0);
    judge_pass(w->judge, w->now, STRANGER, mine);
    does(w, BY(STRANGER, mine, TRUNCATE), 0);
}

/* A grant during a break may be broken before it is reported. */
static void good_turn_beside_break(struct world *w)
{
    flocks(w, SHELL, JUDGE_SHARE, 0);
    uint64_t b = reads(w, OTHER), waits = begin(w, BY(OTHER, b, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t breaks = begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    end(w, waits, ENOLCK);
    end(w, breaks, 0);
}

/* Nor has its handle lost what it was given as another's was broken. */
static void good_afresh_beside_break(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0), b = opens(w, OTHER, "L", JUDGE_WRITES, 0);
    flocks(w, CHILD, JUDGE_SHARE, 0);
    does(w, BY(SHELL, a, FLOCK, .flags = JUDGE_SHARE), 0);
    does(w, BY(OTHER, b, FLOCK, .flags = JUDGE_SHARE), 0);
    passes(w, JUDGE_SECOND);
    uint64_t waits = begin(w, BY(SHELL, a, SETLK, .start = 0, .end = 9));
    uint64_t breaks = begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    end(w, waits, 0);
    end(w, breaks, 0);
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, a, FSYNC), 0);
}

/* The provisional second was over before the kernel released the file. */
static void good_close_across_a_stop(struct world *w)
{
    uint64_t mine = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    uint64_t closes = begin(w, BY(SHELL, mine, CLOSE));
    trouble(w, JUDGE_STOPPED, 0, true);
    passes(w, 2 * JUDGE_SECOND);
    trouble(w, JUDGE_STOPPED, 0, false);
    end(w, closes, 0);
    flocks(w, OTHER, JUDGE_TRY, 0);
}

/* A close by who has the lock has taken nothing: what the lock becomes keeps its token. */
static void good_token_of_a_conversion(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, JUDGE_SHARE, 0);
    attribute(w, SHELL, mine, "user.lease.token", "1");
    uint64_t other = flocks(w, SHELL, JUDGE_SHARE, 0);
    does(w, BY(SHELL, mine, FLOCK, .flags = JUDGE_SHARE), 0);
    does(w, BY(SHELL, other, CLOSE), 0);
    does(w, BY(SHELL, opens(w, SHELL, "L", JUDGE_WRITES, 0), CLOSE), 0);
    passes(w, 7 * JUDGE_SECOND);
    does(w, BY(SHELL, mine, FLOCK), 0);
    attribute(w, SHELL, mine, "user.lease.token", "1");
}

/* Setting times on a lock that it does not acquire sets no term. */
static void good_term_beside_times(struct world *w)
{
    uint64_t mine = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    does(w, BY(SHELL, mine, FLOCK), 0);
    uint64_t sets = begin(w, ON(SHELL, "L", SETXATTR, .target = "user.lease.ttl", .value = "2s", .size = 2));
    does(w, BY(SHELL, mine, TIMES), 0);
    end(w, sets, 0);
    opens(w, OTHER, "L", JUDGE_WRITES, 0);
}

/* A handle that has lost one lock has another that it waited for. */
static void good_afresh(struct world *w)
{
    is_on_disk(w);
    uint64_t mine = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    record(w, SHELL, mine, JUDGE_OFD, 1, 4, 0);
    uint64_t waits = begin(w, BY(SHELL, mine, SETLK, .flags = JUDGE_SHARE, .start = 3, .end = 4));
    passes(w, JUDGE_SECOND);
    trouble(w, JUDGE_STOPPED, 0, true);
    passes(w, 2 * TTL);
    trouble(w, JUDGE_STOPPED, 0, false);
    end(w, waits, 0);
    record(w, OTHER, opens(w, OTHER, "L", JUDGE_WRITES, 0), JUDGE_SHARE, 1, 2, 0);
    end_with(w, begin(w, BY(SHELL, mine, READ)), 0, "");
}

/* A lock taken by a passed file is by its uid the file's opener's, when both have ended. */
static void good_unlink_of_a_passed_file(struct world *w)
{
    judge_fork(w->judge, w->now, 20, INIT, 120, 1001, 120);
    judge_fork(w->judge, w->now, 21, SHELL, 121, 1000, 100);
    uint64_t mine = opens(w, 21, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    judge_pass(w->judge, w->now, 20, mine);
    judge_pass(w->judge, w->now, REMOTE, mine);
    passes(w, 3 * JUDGE_SECOND);
    does(w, BY(20, mine, FLOCK), 0);
    judge_exit(w->judge, w->now += JUDGE_MS, 20, 9);
    judge_exit(w->judge, w->now += JUDGE_MS, 21, 9);
    passes(w, JUDGE_SECOND);
    does(w, ON(OTHER, "L", UNLINK), 0);
    does(w, ON(OTHER, "L", STAT), ENOENT);
}

/* A parent that is just exiting is shown as the owner of its child's lease. */
static void good_probe_of_exiting_parent(struct world *w)
{
    uint64_t other = reads(w, OTHER);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    judge_fork(w->judge, w->now, 21, 20, 121, 1000, 100);
    judge_exit(w->judge, w->now, 20, 0);
    uint64_t mine = opens(w, 21, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    does(w, BY(21, mine, CLOSE), 0);
    judge_exit(w->judge, w->now, 21, 0);
    probe(w, OTHER, other, true, 0, JUDGE_BYTES_MAX, 120);
}

/* Which of two calls was first nobody can tell. */
static void good_mode_beside_open(struct world *w)
{
    uint64_t id = begin(w, ON(SHELL, "L", OPEN, .flags = JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, .mode = 0604));
    uint64_t changes = begin(w, ON(CHILD, "L", CHMOD, .mode = 0664));
    judge_answer(w->judge, &(struct judge_answer){.id = id, .when = w->now += JUDGE_MS, .handle = ++w->handle});
    end(w, changes, 0);
    uint64_t looks = begin(w, ON(OTHER, "L", STAT));
    judge_answer(w->judge, &(struct judge_answer){.id = looks,
                                                  .when = w->now += JUDGE_MS,
                                                  .stat = {.uid = 1000, .mode = 0664, .nlink = 1}});
}

/* A file that is opened again before its end has reached the kernel is the same file, and is deleted when it is closed.
 */
static void good_watch_of_open(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0);
    judge_event(w->judge, w->now, JUDGE_WATCHES, OTHER, 0, "L", 0);
    does(w, BY(SHELL, mine, CLOSE), 0);
    reads(w, SHELL);
    passes(w, JUDGE_SECOND);
    judge_exit(w->judge, w->now, OTHER, 0);
}

/* A process' record locks are one, so the flock of a file by which it took one is beside those by another, too. */
static void good_flock_beside_records(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0), b = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    record(w, SHELL, a, 0, 5, 10, 0);
    record(w, SHELL, b, 0, 1, 3, 0);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    does(w, BY(20, b, FLOCK, .flags = JUDGE_TRY), 0);
}

/* A lock that is acquired during a break may be broken by it, and then has a lock-delay although it was closed since.
 */
/* A record lock with content and a flock, through one file; then only the flock. */
static uint64_t keeps_the_second_of_two_locks(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    passes(w, 2 * JUDGE_SECOND);
    record(w, SHELL, a, 0, 0, 9, 0);
    does(w, BY(SHELL, a, WRITE, .value = "me", .size = 2), 0);
    does(w, BY(SHELL, a, FLOCK), 0);
    does(w, BY(SHELL, a, UNLCK, .end = JUDGE_BYTES_MAX), 0);
    return a;
}

static void good_content_of_two_locks(struct world *w)
{
    end_with(w, begin(w, BY(SHELL, keeps_the_second_of_two_locks(w), READ)), 0, "");
}

static void bad_content_of_two_locks(struct world *w)
{
    end_with(w, begin(w, BY(SHELL, keeps_the_second_of_two_locks(w), READ)), 0, "me");
}

static void good_delay_of_what_a_break_met(struct world *w)
{
    does(w, ON(SHELL, "d", MKDIR), 0);
    does(w, ON(SHELL, "d", SETXATTR, .target = "user.lease.delay", .value = "3", .size = 1), 0);
    uint64_t file = opens(w, SHELL, "d/L", JUDGE_CREATE | JUDGE_WRITES, 0);
    uint64_t breaks = begin(w, ON(INIT, "d/L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    record(w, SHELL, file, 0, 5, 6, 0);
    end(w, breaks, 0);
    does(w, BY(SHELL, file, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    probe(w, OTHER, opens(w, OTHER, "d/L", 0, 0), true, 0, JUDGE_BYTES_MAX, 100);
}

/* The daemon cannot notify the kernel of an end while a call has the directory's lock, and a look-up there drops the
 * file.
 */
static void good_end_beside_rename(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0);
    judge_event(w->judge, w->now, JUDGE_WATCHES, OTHER, 0, "L", 0);
    does(w, BY(SHELL, mine, CLOSE), 0);
    does(w, ON(SHELL, "L", RENAME, .target = "M"), ENOENT);
    passes(w, 5 * JUDGE_SECOND);
    judge_end(w->judge, w->now, "");
}

/* A lease whose owner has ended is renewed by who may set its term, also to "auto". */
static void good_term_of_the_dead(struct world *w)
{
    does(w, BY(SHELL, exclusive(w, SHELL, 0), CLOSE), 0);
    passes(w, 2 * JUDGE_SECOND);
    judge_exit(w->judge, w->now, SHELL, 0);
    set(w, OTHER, "user.lease.ttl", "auto", 0);
    passes(w, TTL - JUDGE_SECOND);
    exclusive(w, OTHER, EEXIST);
}

/* An open file description's lock is not in the way of another process that has that file. */
static void good_probe_of_own_description(struct world *w)
{
    uint64_t mine = reads(w, SHELL);
    record(w, SHELL, mine, JUDGE_OFD, 2, 2, 0);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    uint64_t id = begin(w, BY(20, mine, GETLK, .flags = JUDGE_OFD, .end = JUDGE_BYTES_MAX));
    end(w, id, 0);
}

/* A file that was closed just before may show "lost", although another was closed since. */
static void good_lost_of_what_was_closed(struct world *w)
{
    uint64_t one = opens(w, SHELL, "L", JUDGE_WRITES | JUDGE_CREATE, 0), other = reads(w, SHELL);
    does(w, BY(SHELL, one, WRITE, .value = "x", .size = 1), 0);
    set(w, INIT, "user.lease.break", "1", 0);
    uint64_t else_where = opens(w, SHELL, "M", JUDGE_CREATE, 0);
    does(w, BY(SHELL, one, CLOSE), 0);
    does(w, BY(SHELL, else_where, CLOSE), 0);
    does(w, BY(SHELL, other, FLOCK), 0);
    attribute(w, SHELL, other, "user.lease.state", "lost");
    attribute(w, SHELL, other, "user.lease.token", "7");
    set(w, SHELL, "user.lease.check", "7", 0);
}

/* A process that found a lease before its rename may break it afterwards, and be answered first. */
static void good_break_behind_a_move(struct world *w)
{
    does(w, BY(SHELL, exclusive(w, SHELL, 0), CLOSE), 0);
    uint64_t moves = begin(w, ON(SHELL, "L", RENAME, .target = "M"));
    uint64_t breaks = begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    end(w, breaks, 0);
    end(w, moves, 0);
    opens(w, OTHER, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
}

/* A restarted daemon counts the first second from the provisional lock, as other mounts do. */
static void good_first_second_of_before(struct world *w)
{
    is_on_disk(w);
    uint64_t mine = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    passes(w, 900 * JUDGE_MS);
    does(w, BY(SHELL, mine, WRITE, .value = "me", .size = 2), 0);
    passes(w, 60 * JUDGE_MS);
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, 50 * JUDGE_MS);
    opens(w, OTHER, "L", JUDGE_WRITES, 0);
}

/* Its disk has not kept that the lease became a lock of a handle, so it has it again, and may lock by it at once. */
static void good_failed_disk(struct world *w)
{
    exclusive(w, SHELL, 0);
    trouble(w, JUDGE_FAILS, 0, true);
    flocks(w, SHELL, 0, 0);
    trouble(w, JUDGE_FAILS, 0, false);
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, 5 * TTL);
    begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    passes(w, JUDGE_SECOND);
    flocks(w, SHELL, JUDGE_TRY, 0);
}

/* Nor that the lease was released: it is back, is no new one, and is its owner's to renew. */
static void good_failed_disk_renewed(struct world *w)
{
    exclusive(w, SHELL, 0);
    trouble(w, JUDGE_FAILS, 0, true);
    does(w, ON(SHELL, "L", UNLINK), 0);
    trouble(w, JUDGE_FAILS, 0, false);
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, 5 * TTL);
    does(w, BY(SHELL, opens(w, SHELL, "L", JUDGE_WRITES, 0), CLOSE), 0);
    opens(w, OTHER, "L", JUDGE_WRITES, 0);
}

static void good_rename(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(STRANGER, "L", RENAME, .target = "M"), EPERM);
    does(w, ON(SHELL, "L", RENAME, .target = "M"), 0);
    does(w, ON(SHELL, "L", STAT), ENOENT);
    does(w, ON(SHELL, "M", STAT), 0);
    does(w, ON(SHELL, "M", UNLINK), 0);
}

/* Its term goes with it. */
static void good_rename_of_a_term(struct world *w)
{
    does(w, BY(CHILD, exclusive(w, CHILD, 0), CLOSE), 0);
    set(w, CHILD, "user.lease.ttl", "60s", 0);
    passes(w, 2 * JUDGE_SECOND);
    does(w, ON(CHILD, "L", RENAME, .target = "M"), 0);
    passes(w, 2 * JUDGE_SECOND);
    judge_exit(w->judge, w->now, CHILD, 0);
    passes(w, 3 * TTL);
    opens(w, REMOTE, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, EEXIST);
}

/* Nor is it longer than that. */
static void bad_reason_of_a_term_renamed(struct world *w)
{
    exclusive(w, SHELL, 0);
    set(w, SHELL, "user.lease.ttl", "2s", 0);
    does(w, ON(SHELL, "L", RENAME, .target = "M"), 0);
    passes(w, 2 * JUDGE_SECOND + 2 * MARGIN);
    opens(w, REMOTE, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, EEXIST);
}

/* A lease of one who has ended is back with an older journal: who moves it does not own it by that. */
static void good_rename_of_what_is_back(struct world *w)
{
    is_on_disk(w);
    does(w, BY(CHILD, exclusive(w, CHILD, 0), CLOSE), 0);
    does(w, ON(CHILD, "L", UNLINK), 0);
    trouble(w, JUDGE_DEAD, 0, true);
    judge_exit(w->judge, w->now, CHILD, 9);
    trouble(w, JUDGE_FORGOT, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, JUDGE_SECOND);
    does(w, BY(OTHER, opens(w, OTHER, "L", JUDGE_WRITES, 0), CLOSE), EBUSY);
    does(w, ON(OTHER, "L", RENAME, .target = "M"), 0);
    passes(w, 2 * TTL);
    does(w, ON(SHELL, "M", STAT), ENOENT);
}

/* A child sets times by its parent's file: nobody has lost anything, and the parent may take the lock by closing. */
static void good_times_by_a_child(struct world *w)
{
    uint64_t mine = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    passes(w, 2 * JUDGE_SECOND);
    does(w, BY(20, mine, TIMES), ESTALE);
    judge_exit(w->judge, w->now, 20, 0);
    does(w, BY(SHELL, mine, CLOSE), 0);
    exclusive(w, OTHER, EEXIST);
}

/* The chain of parents is read as it is acquired: one of them may have ended before that was answered. */
static void good_heir_ends_beside_write(struct world *w)
{
    judge_fork(w->judge, w->now, 20, 0, 120, 1000, 100);
    opens(w, 20, "L", JUDGE_CREATE, 0);
    judge_fork(w->judge, w->now, 21, 20, 121, 1000, 100); /* has that open, too */
    judge_fork(w->judge, w->now, 22, 20, 122, 1000, 100);
    uint64_t mine = opens(w, 22, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    uint64_t writes = begin(w, BY(22, mine, WRITE, .value = "me", .size = 2));
    judge_exit(w->judge, w->now += JUDGE_MS, 20, 9);
    end(w, writes, 0);
    does(w, BY(22, mine, CLOSE), 0);
    judge_exit(w->judge, w->now, 22, 0);
    passes(w, 3 * TTL);
    does(w, ON(REMOTE, "L", STAT), 0);
}

/* A waiter through a file whose lock is broken, which is granted by that break, starts afresh: also if the break is
 * answered first. */
static void good_turn_by_own_break(struct world *w)
{
    uint64_t a = flocks(w, SHELL, JUDGE_SHARE, 0);
    flocks(w, OTHER, JUDGE_SHARE, 0);
    uint64_t waits = begin(w, BY(SHELL, a, SETLK, .flags = JUDGE_OFD, .end = JUDGE_BYTES_MAX));
    passes(w, JUDGE_SECOND);
    set(w, OTHER, "user.lease.break", "1", 0);
    end(w, waits, 0);
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, a, FSYNC), 0);
}

/* A file whose lock was lost is not told so once it has had another since, also when that has ended. */
static void good_afresh_by_records(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_WRITES, 0), b = reads(w, SHELL), c = opens(w, OTHER, "L", JUDGE_WRITES, 0);
    record(w, SHELL, a, JUDGE_OFD, 0, 9, 0);
    uint64_t waits = begin(w, BY(SHELL, a, SETLK, .start = 5, .end = 9));
    passes(w, JUDGE_SECOND);
    trouble(w, JUDGE_STOPPED, 0, true);
    passes(w, 2 * TTL);
    trouble(w, JUDGE_STOPPED, 0, false);
    end(w, waits, 0);
    passes(w, JUDGE_SECOND);
    record(w, OTHER, c, 0, 0, 3, 0);
    does(w, BY(SHELL, b, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "");
    does(w, BY(SHELL, a, FSYNC), 0);
}

/* A holder of some bytes need not queue for others behind a waiter for those. */
static void good_order_of_bytes(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_WRITES, 0), b = opens(w, OTHER, "L", JUDGE_WRITES, 0);
    uint64_t c = opens(w, CHILD, "L", JUDGE_WRITES, 0), d = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    record(w, SHELL, a, 0, 0, 0, 0);
    record(w, OTHER, b, 0, 1, 1, 0);
    begin(w, BY(CHILD, c, SETLK, .flags = JUDGE_SHARE, .start = 0, .end = JUDGE_BYTES_MAX));
    passes(w, JUDGE_SECOND);
    uint64_t waits = begin(w, BY(SHELL, d, SETLK, .start = 1, .end = 1));
    passes(w, JUDGE_SECOND);
    does(w, BY(OTHER, b, UNLCK, .start = 1, .end = 1), 0);
    end(w, waits, 0);
}

/* A lease is taken; the wall clock is set or not, and the host loses its power. */
static void power_lost(struct world *w, bool set)
{
    is_on_disk(w);
    exclusive(w, SHELL, 0);
    passes(w, 100 * JUDGE_MS);
    if (set) {
        trouble(w, JUDGE_WALL, 0, true);
    }
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
}

/* A lease with a term of its own; the daemon is killed or the host loses its power, and the daemon is stopped for a
 * moment. */
static void term_kept(struct world *w, bool power)
{
    is_on_disk(w);
    exclusive(w, SHELL, 0);
    set(w, SHELL, "user.lease.ttl", "60s", 0);
    passes(w, 50 * JUDGE_SECOND);
    if (power) {
        trouble(w, JUDGE_POWER, 0, true);
    }
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    trouble(w, JUDGE_STOPPED, 0, true);
    trouble(w, JUDGE_STOPPED, 0, false);
}

/* After a power cut it begins again. */
static void good_term_behind_loss_of_power(struct world *w)
{
    term_kept(w, true);
    passes(w, 50 * JUDGE_SECOND);
    judge_end(w->judge, w->now, "L\n");
}

/* And is no longer than that; without one it is what it was. */
static void bad_left_behind_loss_of_power(struct world *w)
{
    term_kept(w, true);
    passes(w, 60 * JUDGE_SECOND + 2 * MARGIN);
    judge_end(w->judge, w->now, "L\n");
}

static void bad_left_behind_a_daemon(struct world *w)
{
    term_kept(w, false);
    passes(w, 50 * JUDGE_SECOND);
    judge_end(w->judge, w->now, "L\n");
}

/* So it does for what is there again with an older journal. */
static void good_term_of_what_is_back(struct world *w)
{
    is_on_disk(w);
    exclusive(w, SHELL, 0);
    set(w, SHELL, "user.lease.ttl", "60s", 0);
    passes(w, 50 * JUDGE_SECOND);
    does(w, ON(SHELL, "L", UNLINK), 0);
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_CUT, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    trouble(w, JUDGE_STOPPED, 0, true);
    trouble(w, JUDGE_STOPPED, 0, false);
    passes(w, 50 * JUDGE_SECOND);
    judge_end(w->judge, w->now, "L\n");
}

/* A lease of a term of its own is released, and another behind it; then the host loses its power, and perhaps the end
 * of its journal. */
static void terms_released(struct world *w, bool older)
{
    is_on_disk(w);
    exclusive(w, SHELL, 0);
    set(w, SHELL, "user.lease.ttl", "60s", 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    opens(w, SHELL, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
    does(w, ON(SHELL, "M", UNLINK), 0);
    trouble(w, JUDGE_POWER, 0, true);
    trouble(w, JUDGE_DEAD, 0, true);
    if (older) {
        trouble(w, JUDGE_FORGOT, 0, true);
    }
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, 50 * JUDGE_SECOND);
}

static void good_term_of_an_older_journal(struct world *w)
{
    terms_released(w, true);
    judge_end(w->judge, w->now, "L\n");
}

static void bad_left_of_an_older_journal(struct world *w)
{
    terms_released(w, true);
    passes(w, 10 * JUDGE_SECOND + 2 * MARGIN);
    judge_end(w->judge, w->now, "L\n");
}

static void bad_left_of_a_written_journal(struct world *w)
{
    terms_released(w, false);
    judge_end(w->judge, w->now, "L\n");
}

/* The daemon is killed, and its owner ends before another serves: the shell inherits what was not final. */
static void ends_without_daemon(struct world *w, int64_t age)
{
    is_on_disk(w);
    uint64_t a = exclusive(w, CHILD, 0);
    does(w, BY(CHILD, a, CLOSE), 0);
    passes(w, age);
    trouble(w, JUDGE_DEAD, 0, true);
    passes(w, 4 * JUDGE_SECOND);
    judge_exit(w->judge, w->now, CHILD, 0);
    trouble(w, JUDGE_DEAD, 0, false);
    passes(w, 3 * TTL);
    opens(w, STRANGER, "L", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, EEXIST);
}

static void good_heir_of_a_second_without_end(struct world *w)
{
    ends_without_daemon(w, JUDGE_SECOND);
}

static void bad_heir_of_a_second_that_was_over(struct world *w)
{
    ends_without_daemon(w, 2 * JUDGE_SECOND);
}

/* F_GETLK shows the process that took it, although another has moved it. */
static void probe_of_what_was_moved(struct world *w, pid_t pid)
{
    judge_fork(w->judge, w->now, 20, INIT, 120, 1000, 100);
    uint64_t mine = opens(w, 20, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
    passes(w, 2 * JUDGE_SECOND);
    judge_fork(w->judge, w->now, 21, 20, 121, 1000, 100); /* keeps it */
    does(w, BY(20, mine, CLOSE), 0);
    judge_exit(w->judge, w->now, 20, 9);
    passes(w, JUDGE_SECOND);
    does(w, ON(SHELL, "M", RENAME, .target = "L"), 0);
    uint64_t id = begin(w, BY(OTHER, reads(w, OTHER), GETLK, .end = JUDGE_BYTES_MAX));
    w->now += JUDGE_MS;
    judge_answer(w->judge, &(struct judge_answer){.id = id,
                                                  .when = w->now,
                                                  .conflict = {.found = true, .end = JUDGE_BYTES_MAX, .pid = pid}});
}

static void good_probe_of_what_was_moved(struct world *w)
{
    probe_of_what_was_moved(w, 120);
}

static void bad_probe_of_what_was_moved(struct world *w)
{
    probe_of_what_was_moved(w, 105);
}

/* The owner turns into a record lock what another breaks, and the host loses its power before the end of it is written.
 */
static void taken_then_dead(struct world *w, bool breaks)
{
    is_on_disk(w);
    does(w, BY(SHELL, exclusive(w, SHELL, 0), CLOSE), 0);
    uint64_t b = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    uint64_t id = breaks ? begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1)) : 0;
    record(w, SHELL, b, 0, 1, 5, 0);
    if (breaks) {
        end(w, id, -1);
    }
    trouble(w, JUDGE_DEAD, 0, true);
    trouble(w, JUDGE_DEAD, 0, false);
    opens(w, OTHER, "L", JUDGE_WRITES, EBUSY);
}

static void good_break_that_is_not_written(struct world *w)
{
    taken_then_dead(w, true);
}

static void bad_errno_of_what_was_made_a_record(struct world *w)
{
    taken_then_dead(w, false);
}

/* If the store does not know that the wall clock was set, a lease is old at once, or still new later. */
static void good_age_by_a_clock_that_was_set(struct world *w)
{
    power_lost(w, true);
    opens(w, OTHER, "L", JUDGE_WRITES, 0);
    passes(w, 3 * JUDGE_SECOND);
    opens(w, OTHER, "L", JUDGE_WRITES, EBUSY);
    exclusive(w, OTHER, EEXIST);
}

static void bad_first_time_behind_loss_of_power(struct world *w)
{
    power_lost(w, false);
    opens(w, OTHER, "L", JUDGE_WRITES, 0);
}

/* The age only. */
static void bad_exclusive_behind_a_clock_that_was_set(struct world *w)
{
    power_lost(w, true);
    exclusive(w, OTHER, 0);
}

/* A file that lost its name to a renamed one may have it again as soon as that is free, and go with it from then on. */
static void good_times_of_an_old_file(struct world *w)
{
    uint64_t old = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    passes(w, 2 * JUDGE_SECOND);
    uint64_t new = opens(w, SHELL, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
    does(w, BY(SHELL, new, CLOSE), 0);
    does(w, ON(SHELL, "M", RENAME, .target = "L"), 0);
    does(w, BY(SHELL, flocks(w, SHELL, 0, 0), CLOSE), 0);
    exclusive(w, SHELL, 0);
    passes(w, 100 * JUDGE_MS);
    does(w, ON(SHELL, "L", RENAME, .target = "N"), 0);
    flocks(w, OTHER, 0, 0);
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, old, TIMES), 0);
}

/* --- histories that cannot --------------------------------------------------------------- */

static void bad_exclusive(struct world *w)
{
    exclusive(w, SHELL, 0);
    exclusive(w, REMOTE, 0);
}

static void bad_exclusive_again(struct world *w)
{
    exclusive(w, SHELL, 0);
    exclusive(w, SHELL, 0);
}

static void bad_exclusive_after_death(struct world *w)
{
    exclusive(w, CHILD, 0);
    passes(w, 3 * JUDGE_SECOND);
    judge_exit(w->judge, w->now, CHILD, 9);
    passes(w, TTL / 3);
    exclusive(w, REMOTE, 0); /* it was renewed a third of the TTL ago at the latest */
}

static void bad_shared(struct world *w)
{
    flocks(w, SHELL, JUDGE_SHARE, 0);
    flocks(w, OTHER, JUDGE_SHARE, 0);
    flocks(w, REMOTE, 0, 0);
}

static void bad_range(struct world *w)
{
    record(w, SHELL, reads(w, SHELL), 0, 0, 10, 0);
    record(w, OTHER, reads(w, OTHER), JUDGE_SHARE, 10, 20, 0);
}

static void bad_range_rest(struct world *w)
{
    uint64_t a = reads(w, SHELL);
    record(w, SHELL, a, 0, 0, 99, 0);
    does(w, BY(SHELL, a, UNLCK, .start = 20, .end = 29), 0);
    record(w, OTHER, reads(w, OTHER), 0, 29, 30, 0);
}

static void bad_width(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    does(w, ON(SHELL, "q", SETXATTR, .target = "user.lease.width", .value = "2", .size = 1), 0);
    for (uint32_t i = SHELL; i < SHELL + 3; i++) {
        does(w, BY(i, ticket(w, i), FLOCK), 0);
    }
}

static void bad_delay(struct world *w)
{
    does(w, ON(SHELL, "d", MKDIR), 0);
    does(w, ON(SHELL, "d", SETXATTR, .target = "user.lease.delay", .value = "2", .size = 1), 0);
    opens(w, SHELL, "d/x", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
    passes(w, 2 * JUDGE_SECOND);
    does(w, ON(SHELL, "d/x", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1), 0);
    passes(w, JUDGE_SECOND);
    opens(w, OTHER, "d/x", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
}

/* With a flock, and a guard of 2 s, that is broken. */
static uint64_t broken_with_a_guard(struct world *w)
{
    uint64_t file = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    does(w, BY(SHELL, file, FLOCK), 0);
    does(w, BY(SHELL, file, SETXATTR, .target = "user.lease.guard", .value = "2", .size = 1), 0);
    passes(w, 2 * JUDGE_SECOND);
    does(w, ON(OTHER, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1), 0);
    passes(w, JUDGE_SECOND);
    return file;
}

static void bad_guard(struct world *w)
{
    broken_with_a_guard(w);
    opens(w, OTHER, "L", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
}

static void good_guard(struct world *w)
{
    uint64_t file = broken_with_a_guard(w);
    opens(w, OTHER, "L", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, EEXIST);
    attribute(w, SHELL, file, "user.lease.state", "lost");
    does(w, BY(SHELL, file, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    opens(w, OTHER, "L", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
}

/* Its holder asks while the break is under way. */
static void good_probe_of_a_guard(struct world *w)
{
    uint64_t file = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    does(w, BY(SHELL, file, FLOCK), 0);
    does(w, BY(SHELL, file, SETXATTR, .target = "user.lease.guard", .value = "2", .size = 1), 0);
    uint64_t breaks = begin(w, ON(OTHER, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    probe(w, SHELL, file, true, 0, JUDGE_BYTES_MAX, 100);
    judge_answer(w->judge, &(struct judge_answer){.id = breaks, .when = w->now += JUDGE_MS});
}

/* A process that closes the file gives up its record locks, but the guard goes on, as a child has the file open. */
static void good_guard_of_a_record_lock(struct world *w)
{
    uint64_t file = reads(w, CHILD);
    judge_fork(w->judge, w->now += JUDGE_MS, 20, CHILD, 120, 1000, 100);
    record(w, CHILD, file, JUDGE_SHARE, 0, JUDGE_BYTES_MAX, 0);
    does(w, BY(CHILD, file, SETXATTR, .target = "user.lease.guard", .value = "2", .size = 1), 0);
    does(w, ON(OTHER, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1), 0);
    does(w, BY(CHILD, file, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    uint64_t shared = flocks(w, OTHER, JUDGE_SHARE, 0);
    attribute(w, OTHER, shared, "user.lease.token", "8");
    attribute(w, SHELL, reads(w, SHELL), "user.lease.token", "7");
}

/* While a guard runs the name shows its token, also if the holder has locked the file again. */
static void good_lock_beside_a_guard(struct world *w)
{
    uint64_t file = flocks(w, SHELL, JUDGE_SHARE, 0), idle = reads(w, OTHER);
    does(w, BY(SHELL, file, SETXATTR, .target = "user.lease.guard", .value = "2", .size = 1), 0);
    does(w, ON(CHILD, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1), 0);
    does(w, BY(SHELL, file, FLOCK, .flags = JUDGE_SHARE), 0);
    attribute(w, OTHER, idle, "user.lease.token", "7");
    passes(w, 5 * JUDGE_SECOND);
    attribute(w, OTHER, idle, "user.lease.token", "8");
}

/* A process that unlocks a broken lock does not hold it, though a guard may run. */
static void good_unlocked_after_a_break(struct world *w)
{
    uint64_t before = flocks(w, SHELL, 0, 0);
    does(w, BY(SHELL, before, SETXATTR, .target = "user.lease.guard", .value = "2", .size = 1), 0);
    does(w, BY(SHELL, before, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    uint64_t file = flocks(w, CHILD, 0, 0);
    passes(w, JUDGE_SECOND);
    does(w, ON(OTHER, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1), 0);
    does(w, BY(CHILD, file, FUNLOCK), 0);
    flocks(w, OTHER, 0, 0);
    attribute(w, CHILD, file, "user.lease.state", "free");
    does(w, BY(CHILD, file, FSYNC), 0);
}

static void bad_token_grows(struct world *w)
{
    attribute(w, SHELL, exclusive(w, SHELL, 0), "user.lease.token", "7");
    does(w, ON(SHELL, "L", UNLINK), 0);
    attribute(w, OTHER, exclusive(w, OTHER, 0), "user.lease.token", "6");
}

static void bad_token_reused(struct world *w)
{
    attribute(w, SHELL, exclusive(w, SHELL, 0), "user.lease.token", "7");
    does(w, ON(SHELL, "L", UNLINK), 0);
    attribute(w, OTHER, exclusive(w, OTHER, 0), "user.lease.token", "7");
}

static void bad_token_check(struct world *w)
{
    attribute(w, SHELL, exclusive(w, SHELL, 0), "user.lease.token", "7");
    set(w, SHELL, "user.lease.check", "6", 0);
}

static void bad_token_refused(struct world *w)
{
    attribute(w, SHELL, exclusive(w, SHELL, 0), "user.lease.token", "7");
    set(w, SHELL, "user.lease.release", "7", ESTALE);
}

/* It was given before the server forgot, and told after. */
static void good_number_forgotten(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    uint64_t open_request = begin(w, ON(SHELL, "q/job-", OPEN, .flags = JUDGE_CREATE | JUDGE_WRITES));
    trouble(w, JUDGE_FORGOT, JUDGE_ALL, true);
    uint64_t b = ticket(w, OTHER), a = ++w->handle;
    judge_answer(w->judge, &(struct judge_answer){.id = open_request, .when = ++w->now, .handle = a});
    end_with(w, begin(w, BY(OTHER, b, READ)), 0, "job-0000000007\n");
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "job-0000000007\n");
}

/* The process's record lock may be gone by that, and what is read is what it has taken by another file since. */
static void good_read_behind_interrupted_close(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, SHELL), c = reads(w, SHELL);
    record(w, SHELL, a, 0, 0, JUDGE_BYTES_MAX, 0);
    uint64_t closes = begin(w, BY(SHELL, b, CLOSE));
    judge_signal(w->judge, w->now, closes);
    end(w, closes, EINTR);
    does(w, BY(SHELL, c, FLOCK), 0);
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "");
}

/* Two servers took themselves for the master, and one has given numbers that the other has not heard of. */
static void good_number_of_another_server(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    uint64_t a = ticket(w, SHELL);
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "job-0000000007\n");
    does(w, BY(SHELL, a, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    trouble(w, JUDGE_MOVED, JUDGE_ALL, true);
    end_with(w, begin(w, BY(OTHER, ticket(w, OTHER), READ)), 0, "job-0000000007\n");
}

/* After its ticket is over, too. */
static void bad_number_of_old(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    uint64_t a = ticket(w, SHELL);
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "job-0000000007\n");
    does(w, BY(SHELL, a, FLOCK), 0);
    does(w, BY(SHELL, a, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    does(w, ON(SHELL, "q", LIST), 0);
    end_with(w, begin(w, BY(OTHER, ticket(w, OTHER), READ)), 0, "job-0000000007\n");
}

/* The same for a directory that is made again, although the old one's ticket is read later. */
static void good_number_after_rmdir(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    uint64_t a = ticket(w, SHELL);
    does(w, BY(SHELL, a, FLOCK), 0);
    does(w, ON(SHELL, "q/job-", UNLINK), 0);
    does(w, ON(SHELL, "q", RMDIR), 0);
    does(w, ON(SHELL, "q", MKDIR), 0);
    end_with(w, begin(w, BY(SHELL, a, READ)), 0, "job-0000000007\n");
    does(w, BY(SHELL, a, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    does(w, ON(SHELL, "q", LIST), 0);
    end_with(w, begin(w, BY(OTHER, ticket(w, OTHER), READ)), 0, "job-0000000000\n");
}

static void bad_number(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    end_with(w, begin(w, BY(SHELL, ticket(w, SHELL), READ)), 0, "job-0000000007\n");
    end_with(w, begin(w, BY(OTHER, ticket(w, OTHER), READ)), 0, "job-0000000006\n");
}

static void bad_order(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0), b = reads(w, OTHER), c = reads(w, REMOTE);
    uint64_t first = begin(w, BY(OTHER, b, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t second = begin(w, BY(REMOTE, c, FLOCK));
    does(w, BY(SHELL, a, FUNLOCK), 0);
    end(w, second, 0);
    does(w, BY(REMOTE, c, FUNLOCK), 0);
    end(w, first, 0);
}

/* Two wait for what a break takes, or what its holder gives back before that is answered. */
static void order_beside_break(struct world *w, bool given_back)
{
    uint64_t a = flocks(w, SHELL, 0, 0), b = reads(w, OTHER), c = reads(w, REMOTE);
    begin(w, BY(OTHER, b, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t second = begin(w, BY(REMOTE, c, FLOCK));
    uint64_t breaks = begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.break", .value = "1", .size = 1));
    if (given_back) {
        does(w, BY(SHELL, a, CLOSE), 0);
    }
    end(w, breaks, 0);
    end(w, second, 0);
}

/* The first may have got it before the break, which ends any holder, and waits again behind the second. */
static void good_order_of_whom_a_break_met(struct world *w)
{
    order_beside_break(w, true);
}

/* The same of what is removed meanwhile by a child of the first, which may. */
static void good_order_of_what_a_child_removes(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0), b = reads(w, OTHER), c = reads(w, REMOTE);
    judge_fork(w->judge, w->now, PROCESSES, OTHER, 100 + PROCESSES, 1000, 100);
    begin(w, BY(OTHER, b, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t second = begin(w, BY(REMOTE, c, FLOCK)), removes = begin(w, ON(PROCESSES, "L", UNLINK));
    does(w, BY(SHELL, a, CLOSE), 0);
    end(w, second, 0);
    end(w, removes, 0);
}

/* What a release by its token is asked for is not always what it was when the token was read. */
static void good_order_of_what_a_token_releases(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0), b = reads(w, OTHER), c = reads(w, REMOTE);
    begin(w, BY(OTHER, b, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t second = begin(w, BY(REMOTE, c, FLOCK));
    does(w, BY(SHELL, a, CLOSE), 0);
    uint64_t release = begin(w, ON(INIT, "L", SETXATTR, .target = "user.lease.release", .value = "7", .size = 1));
    end(w, second, 0);
    end(w, release, 0);
}

/* Either may have been the last that its file was asked for. */
static void good_two_flocks_at_once_through_one_file(struct world *w)
{
    uint64_t a = reads(w, SHELL);
    judge_fork(w->judge, w->now, PROCESSES, SHELL, 100 + PROCESSES, 1000, 100);
    uint64_t first = begin(w, BY(SHELL, a, FLOCK, .flags = JUDGE_SHARE)), second = begin(w, BY(PROCESSES, a, FLOCK));
    end(w, first, 0);
    end(w, second, 0);
    flocks(w, REMOTE, JUDGE_SHARE | JUDGE_TRY, 0);
}

static void bad_order_behind_break(struct world *w)
{
    order_beside_break(w, false);
}

/* A conversion that is refused, or interrupted, leaves the lock as it was. */
static void bad_after_refused_conversion(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, JUDGE_SHARE, 0), its = flocks(w, OTHER, JUDGE_SHARE, 0);
    does(w, BY(SHELL, mine, FLOCK, .flags = JUDGE_TRY), EAGAIN);
    does(w, BY(OTHER, its, FUNLOCK), 0);
    passes(w, JUDGE_SECOND);
    flocks(w, REMOTE, JUDGE_TRY, 0);
}

static void bad_after_interrupted_conversion(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, JUDGE_SHARE, 0), its = flocks(w, OTHER, JUDGE_SHARE, 0);
    uint64_t waits = begin(w, BY(SHELL, mine, FLOCK));
    passes(w, JUDGE_SECOND);
    judge_signal(w->judge, w->now, waits);
    end(w, waits, EINTR);
    does(w, BY(OTHER, its, FUNLOCK), 0);
    passes(w, JUDGE_SECOND);
    flocks(w, REMOTE, JUDGE_TRY, 0);
}

/* The second waits on another mount. */
static uint64_t two_conversions(struct world *w, uint64_t *ret_first)
{
    uint64_t mine = flocks(w, SHELL, JUDGE_SHARE, 0), its = flocks(w, REMOTE, JUDGE_SHARE, 0);
    *ret_first = begin(w, BY(SHELL, mine, FLOCK));
    passes(w, JUDGE_SECOND);
    uint64_t second = begin(w, BY(REMOTE, its, FLOCK));
    return second;
}

static void good_second_conversion(struct world *w)
{
    uint64_t first, second = two_conversions(w, &first);
    end(w, second, EDEADLK);
    judge_signal(w->judge, w->now, first);
    end(w, first, EINTR);
}

static void bad_second_conversion(struct world *w)
{
    uint64_t first, second = two_conversions(w, &first);
    passes(w, JUDGE_SECOND);
    end(w, second, 0);
}

static void bad_order_shared(struct world *w)
{
    flocks(w, SHELL, JUDGE_SHARE, 0);
    begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    passes(w, JUDGE_SECOND);
    flocks(w, REMOTE, JUDGE_SHARE | JUDGE_TRY, 0);
}

static void bad_stuck(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0), waits = begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, a, FUNLOCK), 0);
    passes(w, JUDGE_SECOND);
    end(w, waits, 0);
}

static void bad_stuck_for_ever(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0);
    begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    judge_exit(w->judge, w->now += JUDGE_MS, SHELL, 9);
    passes(w, JUDGE_SECOND);
    judge_end(w->judge, w->now, "");
    (void)a;
}

/* The server forgot everything, and opens again once the longest term is over. */
static uint64_t waits_at_a_server_that_forgot(struct world *w)
{
    passes(w, 2 * TTL);
    trouble(w, JUDGE_FORGOT, JUDGE_ALL, true);
    trouble(w, JUDGE_AWAY, JUDGE_ALL, true);
    trouble(w, JUDGE_AWAY, JUDGE_ALL, false);
    return begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
}

static void good_wait_for_a_grace_period(struct world *w)
{
    uint64_t waits = waits_at_a_server_that_forgot(w);
    passes(w, TTL + TTL / 100);
    end(w, waits, 0);
}

static void bad_stuck_behind_a_grace_period(struct world *w)
{
    uint64_t waits = waits_at_a_server_that_forgot(w);
    passes(w, TTL + TTL / 100 + MARGIN + JUDGE_SECOND);
    end(w, waits, 0);
}

static void waits_for_a_release(struct world *w, int64_t time)
{
    uint64_t a = flocks(w, SHELL, 0, 0), waits = begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, a, FUNLOCK), 0);
    passes(w, time);
    end(w, waits, 0);
}

static void good_prompt(struct world *w)
{
    waits_for_a_release(w, 5 * JUDGE_MS);
}

static void bad_prompt(struct world *w)
{
    waits_for_a_release(w, 30 * JUDGE_MS); /* not stuck, but a heartbeat granted it */
}

static void bad_stuck_ticket(struct world *w)
{
    does(w, ON(SHELL, "q", MKDIR), 0);
    uint64_t a = ticket(w, SHELL), b = ticket(w, OTHER);
    does(w, BY(SHELL, a, FLOCK), 0);
    uint64_t waits = begin(w, BY(OTHER, b, FLOCK));
    does(w, BY(SHELL, a, CLOSE), 0);
    passes(w, JUDGE_SECOND);
    end(w, waits, 0);
}

static void bad_release_right(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(STRANGER, "L", UNLINK), 0);
}

static void bad_release_root(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(INIT, "L", UNLINK), 0);
}

static void bad_release_remote(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(REMOTE, "L", UNLINK), 0);
}

static void bad_owner_refused(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(CHILD, "L", UNLINK), EPERM);
}

static void bad_rename(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(STRANGER, "L", RENAME, .target = "M"), 0);
}

static void bad_break(struct world *w)
{
    flocks(w, SHELL, JUDGE_SHARE, 0);
    flocks(w, STRANGER, JUDGE_SHARE, 0);
    set(w, STRANGER, "user.lease.break", "1", 0);
}

static void bad_change(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(STRANGER, "L", CHMOD, .mode = 0777), 0);
}

static void bad_write(struct world *w)
{
    exclusive(w, SHELL, 0);
    passes(w, 2 * JUDGE_SECOND);
    uint64_t idle = opens(w, STRANGER, "L", JUDGE_WRITES, 0);
    does(w, BY(STRANGER, idle, WRITE, .value = "me", .size = 2), 0);
}

/* It has not gone with another that was moved while it had no name. */
static void bad_times_of_an_old_file(struct world *w)
{
    uint64_t old = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    passes(w, 2 * JUDGE_SECOND);
    uint64_t new = opens(w, SHELL, "M", JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, 0);
    does(w, BY(SHELL, new, CLOSE), 0);
    does(w, ON(SHELL, "M", RENAME, .target = "L"), 0);
    does(w, ON(SHELL, "L", RENAME, .target = "N"), 0);
    flocks(w, OTHER, 0, 0);
    passes(w, JUDGE_SECOND);
    does(w, BY(SHELL, old, TIMES), 0);
}

static void bad_read_right(struct world *w)
{
    uint64_t before = reads(w, STRANGER);
    does(w, ON(SHELL, "L", OPEN, .flags = JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, .mode = 0600), 0);
    end_with(w, begin(w, BY(STRANGER, before, READ)), 0, "");
}

static void bad_times(struct world *w)
{
    exclusive(w, SHELL, 0);
    passes(w, 2 * JUDGE_SECOND);
    uint64_t idle = opens(w, STRANGER, "L", JUDGE_WRITES, 0);
    does(w, BY(STRANGER, idle, TIMES), 0);
}

static void bad_effect(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    exclusive(w, REMOTE, EEXIST);
}

static void bad_effect_close(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, REMOTE);
    record(w, SHELL, a, 0, 0, 9, 0);
    does(w, BY(SHELL, a, CLOSE), 0);
    record(w, REMOTE, b, JUDGE_TRY, 0, 0, EAGAIN);
}

static void bad_reason(struct world *w)
{
    uint64_t a = exclusive(w, CHILD, 0);
    does(w, BY(CHILD, a, CLOSE), 0);
    passes(w, 3 * JUDGE_SECOND);
    judge_exit(w->judge, w->now, CHILD, 9);
    passes(w, TTL + 2 * MARGIN);
    exclusive(w, REMOTE, EEXIST);
}

static void bad_reason_term(struct world *w)
{
    exclusive(w, SHELL, 0);
    set(w, SHELL, "user.lease.ttl", "2s", 0);
    passes(w, 2 * JUDGE_SECOND + 2 * MARGIN);
    exclusive(w, REMOTE, EEXIST);
}

static void bad_reason_provisional(struct world *w)
{
    opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    flocks(w, OTHER, 0, 0);
    judge_exit(w->judge, w->now += JUDGE_MS, OTHER, 9);
    passes(w, 2 * JUDGE_SECOND);
    exclusive(w, REMOTE, EEXIST);
}

static void bad_ghost(struct world *w)
{
    flocks(w, SHELL, JUDGE_TRY, EAGAIN);
}

static void bad_ghost_refused(struct world *w)
{
    uint64_t id = begin(w, ON(STRANGER, "L", SYMLINK, .value = "x", .size = 1));
    end(w, id, EDQUOT);
    passes(w, JUDGE_SECOND);
    does(w, ON(SHELL, "L", STAT), 0);
}

/* It is left with the old master, which still has what was there before. */
static void good_look_at_old_master(struct world *w)
{
    is_moved(w);
    exclusive(w, SHELL, 0);
    trouble(w, JUDGE_AWAY, 1, true);
    end_with(w, begin(w, ON(REMOTE, "L", GETXATTR, .target = "user.lease.kind")), 0, "flock");
}

/* A mount knows its own. */
static void bad_look_at_own(struct world *w)
{
    is_moved(w);
    exclusive(w, SHELL, 0);
    trouble(w, JUDGE_AWAY, 1, true);
    end_with(w, begin(w, ON(OTHER, "L", GETXATTR, .target = "user.lease.kind")), 0, "flock");
}

static void bad_unseen(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(REMOTE, "L", STAT), ENOENT);
}

static void bad_unseen_list(struct world *w)
{
    exclusive(w, SHELL, 0);
    end_with(w, begin(w, ON(REMOTE, "", LIST)), 0, "M\n");
}

static void bad_content(struct world *w)
{
    uint64_t mine = exclusive(w, SHELL, 0);
    does(w, BY(SHELL, mine, WRITE, .value = "me", .size = 2), 0);
    end_with(w, begin(w, ON(REMOTE, "L", READ)), 0, "he");
}

static void bad_attribute(struct world *w)
{
    attribute(w, SHELL, exclusive(w, SHELL, 0), "user.lease.kind", "flock");
}

static void bad_waiters(struct world *w)
{
    uint64_t a = flocks(w, SHELL, 0, 0);
    begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    passes(w, JUDGE_SECOND);
    attribute(w, SHELL, a, "user.lease.waiters", "0");
}

static void bad_waiters_of_none(struct world *w)
{
    uint64_t mine = waiter_of_a_killed_daemon(w);
    trouble(w, JUDGE_DEAD, 1, false);
    passes(w, 2 * TTL + MARGIN);
    attribute(w, SHELL, mine, "user.lease.waiters", "1");
}

static void bad_probe(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, 0, 0, 9, 0);
    record(w, SHELL, a, 0, 20, 29, 0);
    probe(w, OTHER, b, true, 20, 29, 100);
}

static void bad_probe_none(struct world *w)
{
    record(w, SHELL, reads(w, SHELL), 0, 0, 9, 0);
    probe(w, OTHER, reads(w, OTHER), false, 0, 0, 0);
}

static void bad_flock_beside_records(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0), b = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    record(w, SHELL, a, 0, 5, 10, 0);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    does(w, BY(20, b, FLOCK, .flags = JUDGE_TRY), 0);
}

/* By another file of the same process, by which it took none. */
static void bad_flock_of_own_beside_records(struct world *w)
{
    uint64_t a = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0), b = opens(w, SHELL, "L", JUDGE_WRITES, 0);
    record(w, SHELL, a, 0, 5, 10, 0);
    does(w, BY(SHELL, b, FLOCK, .flags = JUDGE_TRY), 0);
}

static void bad_probe_opener(struct world *w)
{
    uint64_t mine = reads(w, SHELL);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    does(w, BY(20, mine, FLOCK), 0);
    probe(w, OTHER, reads(w, OTHER), true, 0, JUDGE_BYTES_MAX, 100);
}

static void bad_probe_pid(struct world *w)
{
    record(w, SHELL, reads(w, SHELL), 0, 0, 9, 0);
    probe(w, OTHER, reads(w, OTHER), true, 0, 9, 100 + CHILD);
}

static void bad_first_time(struct world *w)
{
    exclusive(w, SHELL, 0);
    opens(w, REMOTE, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
}

static void bad_deadlock(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, 0, 0, 0, 0);
    record(w, OTHER, b, 0, 1, 1, EDEADLK);
}

static void bad_deadlock_of_flocks(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    does(w, BY(SHELL, a, FLOCK), 0);
    does(w, BY(OTHER, b, FLOCK), EDEADLK);
}

static void bad_deadlock_of_files(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, JUDGE_OFD, 0, 0, 0);
    record(w, OTHER, b, JUDGE_OFD, 0, 0, EDEADLK);
}

static void bad_deadlock_missed(struct world *w)
{
    uint64_t a = reads(w, SHELL), b = reads(w, OTHER);
    record(w, SHELL, a, 0, 0, 0, 0);
    record(w, OTHER, b, 0, 1, 1, 0);
    begin(w, BY(SHELL, a, SETLK, .start = 1, .end = 1));
    passes(w, JUDGE_SECOND);
    begin(w, BY(OTHER, b, SETLK, .start = 0, .end = 0));
    passes(w, JUDGE_SECOND);
    judge_end(w->judge, w->now, "");
}

static void bad_errno(struct world *w)
{
    flocks(w, SHELL, 0, ENOLCK);
}

static void bad_errno_busy(struct world *w)
{
    flocks(w, SHELL, 0, 0);
    opens(w, OTHER, "L", JUDGE_WRITES, EBUSY);
}

static void bad_unanswered(struct world *w)
{
    uint64_t id = begin(w, ON(SHELL, "L", STAT));
    passes(w, 20 * JUDGE_SECOND);
    end(w, id, ENOENT);
}

static void unanswered(struct world *w, enum judge_trouble kind)
{
    trouble(w, kind, 0, true);
    uint64_t id = begin(w, ON(SHELL, "L", STAT));
    passes(w, 30 * JUDGE_SECOND);
    end(w, id, EIO);
}

static void bad_unanswered_by_a_store_that_is_away(struct world *w)
{
    unanswered(w, JUDGE_AWAY);
}

static void good_unanswered_by_a_daemon_that_is_stopped(struct world *w)
{
    unanswered(w, JUDGE_STOPPED);
}

static void bad_interrupt(struct world *w)
{
    flocks(w, SHELL, 0, 0);
    end(w, begin(w, BY(OTHER, reads(w, OTHER), FLOCK)), EINTR);
}

static void bad_interrupt_late(struct world *w)
{
    flocks(w, SHELL, 0, 0);
    uint64_t waits = begin(w, BY(OTHER, reads(w, OTHER), FLOCK));
    judge_signal(w->judge, w->now, waits);
    passes(w, JUDGE_SECOND);
    end(w, waits, EINTR);
}

static void bad_kept(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0);
    passes(w, 5 * TTL);
    attribute(w, SHELL, mine, "user.lease.state", "lost");
}

static void bad_kept_cut(struct world *w)
{
    uint64_t mine = flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_AWAY, 1, true);
    passes(w, TTL / 3);
    does(w, BY(REMOTE, mine, FSYNC), ESTALE);
}

/* --- a server that forgot ----------------------------------------------------------------- */

/* A release by token whose caller was killed ends what the lock was converted to meanwhile. */
static void good_release_behind_a_conversion(struct world *w)
{
    uint64_t file = flocks(w, SHELL, 0, 0);
    judge_fork(w->judge, w->now += JUDGE_MS, 20, REMOTE, 120, 1000, 100);
    attribute(w, SHELL, file, "user.lease.token", "7");
    struct judge_call release = ON(20, "L", SETXATTR, .target = "user.lease.release", .value = "7", .size = 1);
    release.mount = 1;
    begin(w, release);
    judge_exit(w->judge, w->now += JUDGE_MS, 20, 9);
    does(w, BY(SHELL, file, FLOCK, .flags = JUDGE_SHARE), 0);
    passes(w, JUDGE_SECOND);
    exclusive(w, REMOTE, 0);
}

/* A holder that is cut off does not know that its lock was broken, until its term is over. */
static uint64_t broken_while_cut_off(struct world *w)
{
    uint64_t file = flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_AWAY, 1, true);
    set(w, INIT, "user.lease.break", "1", 0);
    passes(w, JUDGE_SECOND);
    attribute(w, REMOTE, file, "user.lease.state", "held");
    return file;
}

static void good_broken_while_cut_off(struct world *w)
{
    broken_while_cut_off(w);
}

static void bad_broken_while_cut_off(struct world *w)
{
    uint64_t file = broken_while_cut_off(w);
    trouble(w, JUDGE_AWAY, 1, false);
    passes(w, JUDGE_SECOND);
    attribute(w, REMOTE, file, "user.lease.state", "held");
}

/* A release that the next master has not got. */
static void good_release_undone_by_a_failover(struct world *w)
{
    is_moved(w);
    flocks(w, REMOTE, 0, 0);
    trouble(w, JUDGE_AWAY, JUDGE_ALL, true);
    set(w, SHELL, "user.lease.release", "7", 0);
    trouble(w, JUDGE_MOVED, JUDGE_ALL, true);
    trouble(w, JUDGE_AWAY, JUDGE_ALL, false);
    passes(w, 5 * TTL);
    exclusive(w, OTHER, EEXIST);
}

/* What ended a lock before its answer came. */
static void good_grant_behind_a_step_of_the_clock(struct world *w)
{
    uint64_t file = reads(w, REMOTE);
    uint64_t waits = begin(w, BY(REMOTE, file, FLOCK));
    trouble(w, JUDGE_CLOCK, JUDGE_ALL, true);
    flocks(w, SHELL, 0, 0);
    end(w, waits, 0);
}

static void good_read_from_another_master(struct world *w)
{
    is_moved(w);
    uint64_t file = reads(w, STRANGER);
    trouble(w, JUDGE_AWAY, 0, true);
    does(w, ON(REMOTE, "L", OPEN, .flags = JUDGE_CREATE | JUDGE_EXCL | JUDGE_WRITES, .mode = 0600), 0);
    trouble(w, JUDGE_AWAY, 0, false);
    passes(w, JUDGE_SECOND);
    end_with(w, begin(w, BY(STRANGER, file, READ)), 0, "");
}

static void good_restored_too_late(struct world *w)
{
    uint64_t mine = flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_AWAY, 1, true);
    trouble(w, JUDGE_FORGOT, JUDGE_ALL, true);
    passes(w, TTL + TTL / 100);
    exclusive(w, SHELL, 0);
    trouble(w, JUDGE_AWAY, 1, false);
    does(w, BY(REMOTE, mine, FSYNC), ESTALE);
}

static void bad_granted_while_restored(struct world *w)
{
    flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_FORGOT, JUDGE_ALL, true);
    exclusive(w, SHELL, 0);
}

static void bad_granted_while_away(struct world *w)
{
    flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_AWAY, 1, true);
    trouble(w, JUDGE_FORGOT, JUDGE_ALL, true);
    passes(w, TTL / 3); /* it was renewed two thirds of its term ago at most */
    exclusive(w, SHELL, 0);
}

static void bad_not_restored(struct world *w)
{
    uint64_t mine = flocks(w, REMOTE, 0, 0);
    passes(w, 5 * TTL);
    trouble(w, JUDGE_FORGOT, JUDGE_ALL, true);
    passes(w, TTL / 10);
    does(w, BY(REMOTE, mine, FSYNC), ESTALE);
}

static void bad_loss(struct world *w)
{
    uint64_t mine = flocks(w, REMOTE, 0, 0);
    trouble(w, JUDGE_AWAY, 1, true);
    passes(w, 2 * TTL);
    exclusive(w, SHELL, 0);
    attribute(w, REMOTE, mine, "user.lease.state", "held");
}

static void bad_loss_unnoticed(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0);
    set(w, INIT, "user.lease.break", "1", 0);
    passes(w, 2 * JUDGE_SECOND);
    end_with(w, begin(w, BY(SHELL, mine, READ)), 0, "");
}

static void bad_kept_released(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0);
    attribute(w, SHELL, mine, "user.lease.token", "7");
    set(w, SHELL, "user.lease.release", "7", 0);
    does(w, BY(SHELL, mine, READ), ESTALE);
}

static void bad_token_of_bytes(struct world *w)
{
    uint64_t one = opens(w, SHELL, "L", JUDGE_CREATE, 0), other = opens(w, OTHER, "L", JUDGE_CREATE, 0);
    record(w, SHELL, one, 0, 0, 1, 0);
    uint64_t waits = begin(w, BY(OTHER, other, FLOCK));
    attribute(w, SHELL, one, "user.lease.token", "7");
    does(w, BY(SHELL, one, UNLCK, .start = 0, .end = 1), 0);
    end(w, waits, 0);
    attribute(w, OTHER, other, "user.lease.token", "6");
}

static void bad_close_of_child(struct world *w)
{
    uint64_t handle = opens(w, SHELL, "L", JUDGE_CREATE | JUDGE_WRITES, 0);
    passes(w, 3 * JUDGE_SECOND);
    judge_fork(w->judge, w->now, 20, SHELL, 120, 1000, 100);
    exclusive(w, OTHER, 0);
    does(w, BY(20, handle, CLOSE), EBUSY);
}

static void bad_report(struct world *w)
{
    does(w, BY(SHELL, exclusive(w, SHELL, 0), CLOSE), 0); /* what is open is deleted when it is closed */
    judge_event(w->judge, w->now, JUDGE_WATCHES, OTHER, 0, "L", 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    passes(w, JUDGE_SECOND);
    judge_end(w->judge, w->now, "");
}

static void bad_report_and_end(struct world *w)
{
    does(w, BY(SHELL, exclusive(w, SHELL, 0), CLOSE), 0);
    judge_event(w->judge, w->now, JUDGE_WATCHES, OTHER, 0, "L", 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    passes(w, JUDGE_SECOND);
    judge_exit(w->judge, w->now, OTHER, 0);
}

static void bad_report_by_poll(struct world *w)
{
    uint64_t mine = flocks(w, SHELL, 0, 0);
    judge_event(w->judge, w->now, JUDGE_WATCHES, SHELL, 0, NULL, mine);
    set(w, INIT, "user.lease.break", "1", 0);
    passes(w, JUDGE_SECOND);
    judge_event(w->judge, w->now, JUDGE_HUNG_UP, SHELL, 0, NULL, mine);
}

static void bad_journal_cut(struct world *w)
{
    cut_after(w, (const char *const[]){"L", "M", NULL});
    exclusive(w, OTHER, EEXIST);
}

static void bad_left(struct world *w)
{
    exclusive(w, SHELL, 0);
    does(w, ON(SHELL, "L", UNLINK), 0);
    judge_end(w->judge, w->now, "L\n");
}

static void bad_simulator(struct world *w)
{
    end(w, 77, 0);
}

/* --- all --------------------------------------------------------------------------------- */

static const struct {
    void (*history)(struct world *world);
    enum judge_rule rule; /* that it breaks; JUDGE_RULES: none */
} histories[] = {
    {good_lease, JUDGE_RULES},
    {good_touch, JUDGE_RULES},
    {good_provisional, JUDGE_RULES},
    {good_owner_dies, JUDGE_RULES},
    {good_break_of_what_is_being_renamed, JUDGE_RULES},
    {good_helper_ends_as_its_parent_is_refused, JUDGE_RULES},
    {good_times_of_child, JUDGE_RULES},
    {good_flock, JUDGE_RULES},
    {good_crossed_waits, JUDGE_RULES},
    {good_interrupt, JUDGE_RULES},
    {good_state_of_two, JUDGE_RULES},
    {good_read_behind_release, JUDGE_RULES},
    {good_records, JUDGE_RULES},
    {good_record_released, JUDGE_RULES},
    {good_deadlock, JUDGE_RULES},
    {good_deadlock_with_itself, JUDGE_RULES},
    {good_deadlock_of_files, JUDGE_RULES},
    {good_queue, JUDGE_RULES},
    {good_cut, JUDGE_RULES},
    {good_number_forgotten, JUDGE_RULES},
    {good_number_after_rmdir, JUDGE_RULES},
    {good_number_of_another_server, JUDGE_RULES},
    {good_read_behind_interrupted_close, JUDGE_RULES},
    {good_look_at_old_master, JUDGE_RULES},
    {good_journal_cut, JUDGE_RULES},
    {good_tokens, JUDGE_RULES},
    {good_watch, JUDGE_RULES},
    {good_probe_of_heir, JUDGE_RULES},
    {good_passed, JUDGE_RULES},
    {good_passed_lease, JUDGE_RULES},
    {good_first_second_of_before, JUDGE_RULES},
    {good_close_across_a_stop, JUDGE_RULES},
    {good_token_of_a_conversion, JUDGE_RULES},
    {good_term_beside_times, JUDGE_RULES},
    {good_afresh, JUDGE_RULES},
    {good_unlink_of_a_passed_file, JUDGE_RULES},
    {good_probe_of_exiting_parent, JUDGE_RULES},
    {good_mode_beside_open, JUDGE_RULES},
    {good_turn_beside_break, JUDGE_RULES},
    {good_afresh_beside_break, JUDGE_RULES},
    {good_watch_of_open, JUDGE_RULES},
    {good_flock_beside_records, JUDGE_RULES},
    {good_content_of_two_locks, JUDGE_RULES},
    {good_term_of_an_older_journal, JUDGE_RULES},
    {good_heir_of_a_second_without_end, JUDGE_RULES},
    {good_probe_of_what_was_moved, JUDGE_RULES},
    {good_delay_of_what_a_break_met, JUDGE_RULES},
    {good_order_of_whom_a_break_met, JUDGE_RULES},
    {good_end_beside_rename, JUDGE_RULES},
    {good_break_behind_a_move, JUDGE_RULES},
    {good_term_of_the_dead, JUDGE_RULES},
    {good_probe_of_own_description, JUDGE_RULES},
    {good_lost_of_what_was_closed, JUDGE_RULES},
    {good_failed_disk, JUDGE_RULES},
    {good_failed_disk_renewed, JUDGE_RULES},
    {good_rename, JUDGE_RULES},
    {good_times_of_an_old_file, JUDGE_RULES},
    {good_age_by_a_clock_that_was_set, JUDGE_RULES},
    {good_term_behind_loss_of_power, JUDGE_RULES},
    {good_term_of_what_is_back, JUDGE_RULES},
    {good_break_that_is_not_written, JUDGE_RULES},
    {good_order_of_bytes, JUDGE_RULES},
    {good_afresh_by_records, JUDGE_RULES},
    {good_turn_by_own_break, JUDGE_RULES},
    {good_heir_ends_beside_write, JUDGE_RULES},
    {good_times_by_a_child, JUDGE_RULES},
    {good_rename_of_what_is_back, JUDGE_RULES},
    {good_rename_of_a_term, JUDGE_RULES},
    {good_waiters, JUDGE_RULES},
    {good_handle_lock_recovered, JUDGE_RULES},
    {good_record_lock_recovered, JUDGE_RULES},
    {good_probe_of_a_record_lock_recovered, JUDGE_RULES},
    {good_deadlock_with_record_locks_of_two_files, JUDGE_RULES},
    {bad_exclusive, JUDGE_EXCLUSIVE},
    {bad_exclusive_again, JUDGE_EXCLUSIVE},
    {bad_exclusive_after_death, JUDGE_EXCLUSIVE},
    {bad_shared, JUDGE_SHARED},
    {bad_range, JUDGE_RANGE},
    {bad_range_rest, JUDGE_RANGE},
    {bad_width, JUDGE_WIDTH},
    {bad_delay, JUDGE_DELAY},
    {bad_guard, JUDGE_GUARD},
    {good_guard, JUDGE_RULES},
    {good_guard_of_a_record_lock, JUDGE_RULES},
    {good_lock_beside_a_guard, JUDGE_RULES},
    {good_unlocked_after_a_break, JUDGE_RULES},
    {good_probe_of_a_guard, JUDGE_RULES},
    {bad_token_grows, JUDGE_TOKEN_GROWS},
    {bad_token_reused, JUDGE_TOKEN_REUSED},
    {bad_token_check, JUDGE_TOKEN_CHECK},
    {bad_token_refused, JUDGE_TOKEN_CHECK},
    {bad_number, JUDGE_NUMBER},
    {bad_number_of_old, JUDGE_NUMBER},
    {bad_order, JUDGE_ORDER},
    {good_order_of_what_a_child_removes, JUDGE_RULES},
    {good_order_of_what_a_token_releases, JUDGE_RULES},
    {good_two_flocks_at_once_through_one_file, JUDGE_RULES},
    {bad_order_behind_break, JUDGE_ORDER},
    {bad_order_shared, JUDGE_ORDER},
    {bad_after_refused_conversion, JUDGE_SHARED},
    {bad_after_interrupted_conversion, JUDGE_SHARED},
    {good_second_conversion, JUDGE_RULES},
    {bad_second_conversion, JUDGE_DEADLOCK},
    {bad_stuck, JUDGE_STUCK},
    {bad_stuck_for_ever, JUDGE_STUCK},
    {bad_stuck_ticket, JUDGE_STUCK},
    {good_wait_for_a_grace_period, JUDGE_RULES},
    {bad_stuck_behind_a_grace_period, JUDGE_STUCK},
    {good_prompt, JUDGE_RULES},
    {bad_prompt, JUDGE_PROMPT},
    {good_release_behind_a_conversion, JUDGE_RULES},
    {good_broken_while_cut_off, JUDGE_RULES},
    {bad_broken_while_cut_off, JUDGE_LOSS},
    {good_release_undone_by_a_failover, JUDGE_RULES},
    {good_grant_behind_a_step_of_the_clock, JUDGE_RULES},
    {good_read_from_another_master, JUDGE_RULES},
    {good_restored_too_late, JUDGE_RULES},
    {bad_granted_while_restored, JUDGE_EXCLUSIVE},
    {bad_granted_while_away, JUDGE_EXCLUSIVE},
    {bad_not_restored, JUDGE_KEPT},
    {bad_release_right, JUDGE_RELEASE_RIGHT},
    {bad_release_root, JUDGE_RELEASE_RIGHT},
    {bad_release_remote, JUDGE_RELEASE_RIGHT},
    {bad_owner_refused, JUDGE_OWNER_REFUSED},
    {bad_rename, JUDGE_RENAME_RIGHT},
    {bad_break, JUDGE_BREAK_RIGHT},
    {bad_change, JUDGE_CHANGE_RIGHT},
    {bad_write, JUDGE_CHANGE_RIGHT},
    {bad_times, JUDGE_CHANGE_RIGHT},
    {bad_times_of_an_old_file, JUDGE_CHANGE_RIGHT},
    {bad_read_right, JUDGE_READ_RIGHT},
    {bad_effect, JUDGE_EFFECT},
    {bad_effect_close, JUDGE_EFFECT},
    {bad_reason, JUDGE_REASON},
    {bad_reason_term, JUDGE_REASON},
    {bad_handle_lock_forgotten, JUDGE_EXCLUSIVE},
    {good_handle_lock_closed_as_its_daemon_dies, JUDGE_RULES},
    {good_handle_lock_after_a_power_cut, JUDGE_RULES},
    {bad_handle_lock_after_a_power_cut, JUDGE_TOKEN_CHECK},
    {bad_handle_lock_recovered_late, JUDGE_REASON},
    {bad_handle_lock_recovered_and_closed, JUDGE_REASON},
    {bad_reason_of_a_term_renamed, JUDGE_REASON},
    {bad_reason_provisional, JUDGE_REASON},
    {bad_ghost, JUDGE_GHOST},
    {bad_ghost_refused, JUDGE_GHOST},
    {bad_unseen, JUDGE_UNSEEN},
    {bad_look_at_own, JUDGE_ATTRIBUTE},
    {bad_unseen_list, JUDGE_UNSEEN},
    {bad_content, JUDGE_CONTENT},
    {bad_content_of_two_locks, JUDGE_CONTENT},
    {bad_left_of_an_older_journal, JUDGE_LEFT},
    {bad_left_of_a_written_journal, JUDGE_LEFT},
    {bad_heir_of_a_second_that_was_over, JUDGE_REASON},
    {bad_probe_of_what_was_moved, JUDGE_PROBE},
    {bad_attribute, JUDGE_ATTRIBUTE},
    {bad_waiters, JUDGE_ATTRIBUTE},
    {bad_waiters_of_none, JUDGE_ATTRIBUTE},
    {bad_probe, JUDGE_PROBE},
    {bad_probe_none, JUDGE_PROBE},
    {bad_probe_of_a_record_lock_recovered, JUDGE_PROBE},
    {bad_deadlock_with_record_locks_of_one_file, JUDGE_DEADLOCK},
    {bad_flock_beside_records, JUDGE_RANGE},
    {bad_flock_of_own_beside_records, JUDGE_RANGE},
    {bad_probe_opener, JUDGE_PROBE},
    {bad_probe_pid, JUDGE_PROBE},
    {bad_first_time, JUDGE_FIRST_TIME},
    {bad_first_time_behind_loss_of_power, JUDGE_FIRST_TIME},
    {bad_exclusive_behind_a_clock_that_was_set, JUDGE_EXCLUSIVE},
    {bad_deadlock, JUDGE_DEADLOCK},
    {bad_deadlock_of_flocks, JUDGE_DEADLOCK},
    {bad_deadlock_of_files, JUDGE_DEADLOCK},
    {bad_deadlock_missed, JUDGE_DEADLOCK},
    {bad_errno, JUDGE_ERRNO},
    {bad_errno_busy, JUDGE_ERRNO},
    {bad_unanswered, JUDGE_UNANSWERED},
    {bad_unanswered_by_a_store_that_is_away, JUDGE_UNANSWERED},
    {good_unanswered_by_a_daemon_that_is_stopped, JUDGE_RULES},
    {bad_interrupt, JUDGE_INTERRUPT},
    {bad_interrupt_late, JUDGE_INTERRUPT},
    {bad_kept, JUDGE_KEPT},
    {bad_kept_cut, JUDGE_KEPT},
    {bad_loss, JUDGE_LOSS},
    {bad_loss_unnoticed, JUDGE_LOSS},
    {bad_kept_released, JUDGE_KEPT},
    {bad_token_of_bytes, JUDGE_TOKEN_GROWS},
    {bad_close_of_child, JUDGE_ERRNO},
    {bad_report, JUDGE_REPORT},
    {bad_report_and_end, JUDGE_REPORT},
    {bad_report_by_poll, JUDGE_REPORT},
    {bad_journal_cut, JUDGE_EFFECT},
    {bad_left, JUDGE_LEFT},
    {bad_left_behind_loss_of_power, JUDGE_LEFT},
    {bad_left_behind_a_daemon, JUDGE_LEFT},
    {bad_errno_of_what_was_made_a_record, JUDGE_ERRNO},
    {bad_simulator, JUDGE_SIMULATOR},
};

START_TEST(judges_each_history_right)
{
    struct world w = world_new();
    histories[_i].history(&w);
    for (int i = 0; i < JUDGE_RULES; i++) {
        ck_assert_msg((judge_broken(w.judge, (enum judge_rule)i) > 0) == (i == (int)histories[_i].rule),
                      "history %d: rule %s was broken %lu times", _i, judge_rule_name((enum judge_rule)i),
                      (unsigned long)judge_broken(w.judge, (enum judge_rule)i));
    }
    judge_free(w.judge);
}
END_TEST

START_TEST(every_rule_is_broken_by_a_history)
{
    for (int i = 0; i < JUDGE_RULES; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof histories / sizeof *histories; k++) {
            found = found || (int)histories[k].rule == i;
        }
        ck_assert_msg(found, "no history breaks the rule %s", judge_rule_name((enum judge_rule)i));
    }
}
END_TEST

/* --- random histories ----------------------------------------------------------------------- */

/* A lock service that is true, of one name; or that tells one lie. */
struct service {
    struct world w;
    GRand *dice;
    uint32_t lease; /* the process whose it is; 0: none */
    struct file {
        uint64_t handle, call; /* call: it waits in that one */
        uint32_t process;
        bool open, holds, shared;
        unsigned turn; /* who waits longer has the lower one */
    } files[12];
    unsigned turn;
    int lie; /* at the how manieth answer that can be one */
    bool lied;
};

static bool next_answer_lies(struct service *s)
{
    bool now = !s->lied && s->lie-- == 0;
    s->lied = s->lied || now;
    return now;
}

static bool service_compatible(const struct service *s, const struct file *file, bool shared)
{
    for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
        const struct file *other = &s->files[i];
        bool before = other->call && (!file->call || other->turn < file->turn);
        if (other != file && ((other->holds && !(other->shared && shared)) || before)) {
            return false;
        }
    }
    return !s->lease;
}

static bool service_free(const struct service *s)
{
    for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
        if (s->files[i].holds || s->files[i].call) {
            return false;
        }
    }
    return !s->lease;
}

/* Grants the lock to the waiters that may hold now. */
static void service_grants(struct service *s)
{
    for (bool granted = true; granted;) {
        granted = false;
        for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
            struct file *file = &s->files[i];
            if (file->call && service_compatible(s, file, file->shared)) {
                end(&s->w, file->call, 0);
                file->call = 0;
                file->holds = granted = true;
            }
        }
    }
}

static bool process_waits(const struct service *s, uint32_t process)
{
    for (size_t i = 0; i < G_N_ELEMENTS(s->files); i++) {
        if (s->files[i].call && s->files[i].process == process) {
            return true;
        }
    }
    return false;
}

static void service_flock(struct service *s, struct file *file, uint32_t process)
{
    bool shared = g_rand_boolean(s->dice), waits = g_rand_boolean(s->dice);
    unsigned flags = (shared ? JUDGE_SHARE : 0) | (waits ? 0 : JUDGE_TRY);
    if (!file->open) {
        file->handle = reads(&s->w, process);
        file->process = process;
        file->open = true;
    } else if (file->process == process && file->holds) {
        does(&s->w, BY(process, file->handle, FUNLOCK), 0);
        file->holds = false;
        service_grants(s);
    } else if (file->process == process && g_rand_int_range(s->dice, 0, 4) == 0) {
        does(&s->w, BY(process, file->handle, CLOSE), 0);
        file->open = false;
    } else if (file->process == process && s->lease != process) {
        bool can = service_compatible(s, file, shared);
        uint64_t call = begin(&s->w, BY(process, file->handle, FLOCK, .flags = flags));
        file->shared = shared;
        if ((can || !waits) && next_answer_lies(s)) {
            end(&s->w, call, can ? EAGAIN : 0);
        } else if (can || !waits) {
            end(&s->w, call, can ? 0 : EAGAIN);
            file->holds = can;
        } else {
            file->call = call;
            file->turn = ++s->turn;
        }
    }
}

static void service_names(struct service *s, uint32_t process)
{
    bool free = service_free(s), can = s->lease == process || (s->lease == SHELL && process != REMOTE);
    bool lie = next_answer_lies(s);
    int error;
    switch (g_rand_int_range(s->dice, 0, 3)) {
    case 0:
        error = free == !lie ? 0 : EEXIST;
        does(&s->w, ON(process, "L", SYMLINK, .value = "x", .size = 1), error);
        s->lease = free && !lie ? process : s->lease;
        break;
    case 1:
        does(&s->w, ON(process, "L", STAT), free == !lie ? ENOENT : 0);
        break;
    default:
        if (s->lease || free) {
            does(&s->w, ON(process, "L", UNLINK), free ? (lie ? 0 : ENOENT) : can == !lie ? 0 : EPERM);
            s->lease = can && !lie ? 0 : s->lease;
            service_grants(s);
        } else {
            s->lied = s->lied && !lie; /* who may remove handle locks is another matter */
        }
        break;
    }
}

/* Returns how many rules were broken; *ret_lied: whether it came to the lie. */
static uint64_t service_run(uint32_t seed, int lie, bool *ret_lied)
{
    struct service s = {.w = world_new(), .dice = g_rand_new_with_seed(seed), .lie = lie};
    static const uint32_t processes[] = {SHELL, CHILD, OTHER, REMOTE};
    for (int i = 0; i < 120; i++) {
        uint32_t process = processes[g_rand_int_range(s.dice, 0, 4)];
        passes(&s.w, g_rand_int_range(s.dice, 0, 300) * JUDGE_MS);
        if (process_waits(&s, process)) {
            continue;
        }
        if (g_rand_boolean(s.dice)) {
            service_names(&s, process);
        } else {
            service_flock(&s, &s.files[g_rand_int_range(s.dice, 0, G_N_ELEMENTS(s.files))], process);
        }
    }
    passes(&s.w, JUDGE_SECOND);
    judge_end(s.w.judge, s.w.now, service_free(&s) ? "" : "L\n");
    uint64_t broken = judge_verdict(s.w.judge, NULL);
    judge_free(s.w.judge);
    g_rand_free(s.dice);
    *ret_lied = s.lied;
    return broken;
}

START_TEST(passes_what_a_true_service_answers)
{
    for (uint32_t seed = 0; seed < 300; seed++) {
        bool lied;
        ck_assert_msg(service_run(seed, INT_MAX, &lied) == 0, "a true history is refused: seed %u", seed);
    }
}
END_TEST

/* Not every lie can be found: a refusal just when another call ended the lock may have happened before. */
START_TEST(refuses_nearly_every_single_lie)
{
    unsigned lies = 0, found = 0;
    for (uint32_t seed = 0; seed < 1000; seed++) {
        bool lied;
        uint64_t broken = service_run(seed, (int)(seed % 30), &lied);
        lies += lied;
        found += lied && broken;
    }
    printf("# %u of %u lies are found\n", found, lies);
    ck_assert_uint_gt(lies, 800);
    ck_assert_uint_ge(found * 100, lies * 95);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("judge");
    TCase *tcase = tcase_create("judge");
    tcase_add_loop_test(tcase, judges_each_history_right, 0, (int)(sizeof histories / sizeof *histories));
    tcase_add_test(tcase, every_rule_is_broken_by_a_history);
    tcase_add_test(tcase, passes_what_a_true_service_answers);
    tcase_add_test(tcase, refuses_nearly_every_single_lie);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

/* The death of a daemon: the next one goes on with what the kernel knows, and no call notices. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

START_TEST(number_of_a_node_that_was_forgotten_is_stale_for_ever)
{
    struct fuse_getattr_in in = {0};
    uint64_t node = lease_of(alice, "L");
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    wire_forget(w, node, 1);
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_GETATTR, node, &in, sizeof in, NULL, 0)), ESTALE);
    ck_assert_uint_ne(lease_of(alice, "L"), node);
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_GETATTR, node, &in, sizeof in, NULL, 0)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_LOOKUP, node, "x", 2, NULL, 0)), ESTALE);
}
END_TEST

START_TEST(number_of_a_file_that_was_closed_is_bad)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_int_eq(wire_result(w, wire_read(w, file, 0, 10)), EBADF);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    struct wire_file next = wire_created(w, "L", O_RDONLY);
    ck_assert_uint_ne(next.fh, file.fh);
}
END_TEST

/* --- between two requests ----------------------------------------------------------- */

START_TEST(flock_is_held_by_its_file_after_deaths)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    struct fuse_attr before = attributes(a.node);
    uint64_t fence = holder("L")->fence;
    for (int deaths = 0; deaths < 3; deaths++) {
        wire_advance(w, 700);
        wire_die(w);
    }
    struct fuse_attr after = attributes(a.node);
    ck_assert_uint_eq(after.ino, before.ino);
    ck_assert_uint_eq(after.ctime, before.ctime);
    ck_assert_uint_eq(holder("L")->fence, fence);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_EX | LOCK_NB)), EAGAIN);
    uint64_t waiter = wire_flock(w, b, LOCK_EX);
    ck_assert(wire_waits(w, waiter));
    wire_advance(w, 60 * SECOND); /* it is renewed */
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0); /* it is the handle's, which converts it */
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiter), 0);
}
END_TEST

START_TEST(file_that_is_closed_after_a_death_releases_its_lock)
{
    bool posix = _i;
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, posix ? wire_setlk(w, a, 7, F_WRLCK, 0, 9, false) : wire_flock(w, a, LOCK_EX)), 0);
    wire_die(w);
    ck_assert_ptr_nonnull(holder("L"));
    if (posix) {
        ck_assert_int_eq(wire_result(w, wire_flush(w, a, 7)), 0);
    } else {
        ck_assert_int_eq(wire_result(w, wire_release(w, a)), 0);
    }
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(lock_owner_goes_on_with_its_bytes_after_a_death)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_WRLCK, 0, 9, false)), 0);
    wire_die(w);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_WRLCK, 5, 19, false)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 8, F_WRLCK, 15, 15, false)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 8, F_WRLCK, 20, 29, false)), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_UNLCK, 10, 19, false)), 0);
    wire_die(w);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 8, F_WRLCK, 10, 10, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 8, F_WRLCK, 9, 9, false)), EAGAIN);
}
END_TEST

START_TEST(lease_goes_on_after_a_death)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "lease", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "content", 7)), 0);
    struct fuse_attr before = attributes(file.node);
    wire_die(w);
    struct fuse_attr after = attributes(file.node);
    ck_assert_uint_eq(after.ino, before.ino);
    ck_assert_uint_eq(after.ctime, before.ctime);
    ck_assert_uint_eq(after.size, 7);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "lease")), file.node);
    check_content(file, "content");
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 7, "!", 1)), 0);
    check_content(file, "content!");
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "lease")), EPERM);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "lease")), 0);
    ck_assert_ptr_null(holder("lease"));
}
END_TEST

START_TEST(provisional_file_is_decided_after_a_death)
{
    static const char *const ends[] = {"close", "write", "flock", "lapse"};
    w->pid = alice;
    struct wire_file file = wire_created(w, "new", O_WRONLY);
    ck_assert(held_as("new", BACKEND_PROVISIONAL));
    if (_i & 1) {
        ck_assert_int_eq(wire_result(w, wire_flush(w, file, 0)), 0);
    }
    wire_die(w);
    ck_assert(held_as("new", BACKEND_PROVISIONAL));
    const char *end = ends[_i / 2];
    if (strcmp(end, "close") == 0) {
        ck_assert_int_eq(wire_close(w, file), 0);
        ck_assert(held_as("new", BACKEND_LEASE));
    } else if (strcmp(end, "write") == 0) {
        ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
        ck_assert(held_as("new", BACKEND_LEASE));
    } else if (strcmp(end, "flock") == 0) {
        ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
        ck_assert(held_as("new", BACKEND_FLOCK));
    } else {
        wire_advance(w, 1100);
        ck_assert_ptr_null(holder("new"));
    }
}
END_TEST

START_TEST(lock_that_ended_while_no_daemon_ran_is_lost_to_its_file)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, _i ? wire_setlk(w, a, 7, F_WRLCK, 0, 9, false) : wire_flock(w, a, LOCK_EX)), 0);
    wire_turn(w);
    fake_backend_hold_events(w->fake, true);
    fake_backend_end(w->fake, "L", BACKEND_BROKEN);
    wire_die(w);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_read(w, a, 0, 10)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
}
END_TEST

START_TEST(ticket_keeps_its_place_after_a_death)
{
    char name[64];
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "q")), 0);
    w->directory = wire_node(w, wire_lookup(w, "q"));
    struct wire_file first = wire_created(w, "job-", O_RDWR);
    w->pid = bob;
    struct wire_file second = wire_created(w, "job-", O_RDWR);
    uint64_t waiter = wire_flock(w, second, LOCK_EX);
    ck_assert(wire_waits(w, waiter));
    wire_die(w);
    ck_assert(wire_waits(w, waiter));
    snprintf(name, sizeof name, "job-%010d\n", 1);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, first)), 0);
    ck_assert_int_eq(wire_result(w, waiter), 0);
    wire_die(w);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, second)), 0);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_FLOCK), 0);
}
END_TEST

static uint64_t closed_lease(const char *name)
{
    struct wire_file file = wire_created(w, name, O_WRONLY);
    ck_assert_int_eq(wire_close(w, file), 0);
    return file.node;
}

START_TEST(names_are_found_after_a_death)
{
    char deep[200] = "";
    memset(deep, 'n', sizeof deep - 1);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, deep)), 0);
    uint64_t directory = wire_node(w, wire_lookup(w, deep));
    w->directory = directory;
    uint64_t lease = closed_lease(deep), moved = closed_lease("short");
    ck_assert_int_eq(wire_result(w, wire_rename(w, "short", "another-name-that-is-quite-a-bit-longer-than-that", 0)),
                     0);
    struct fuse_attr before = attributes(directory);
    wire_die(w);
    struct fuse_attr after = attributes(directory);
    ck_assert_uint_eq(after.ino, before.ino);
    ck_assert_uint_eq(after.mtime, before.mtime);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, deep)), lease);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "another-name-that-is-quite-a-bit-longer-than-that")), moved);
    ck_assert(!wire_exists(w, "short"));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, deep)), 0);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "another-name-that-is-quite-a-bit-longer-than-that")), 0);
    w->directory = FUSE_ROOT_ID;
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, deep)), 0);
}
END_TEST

START_TEST(name_that_ended_before_a_death_is_dropped_after_it)
{
    uint64_t lease = closed_lease("gone");
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "gone")), lease);
    wire_hold_deletions(true);
    fake_backend_end(w->fake, "gone", BACKEND_EXPIRED);
    wire_turn(w);
    ck_assert(!wire_has_notification(w, FUSE_NOTIFY_DELETE, "gone"));
    wire_die(w);
    wire_hold_deletions(false);
    for (int i = 0; i < 1000 && !wire_has_notification(w, FUSE_NOTIFY_DELETE, "gone"); i++) {
        g_usleep(1000);
    }
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_DELETE, "gone"));
    guint sent = w->notices->len;
    wire_die(w);
    g_usleep(10000);
    wire_turn(w);
    ck_assert_uint_eq(w->notices->len, sent); /* and not again */
}
END_TEST

static uint64_t polled(struct wire_file file)
{
    uint64_t unique = wire_poll(w, file, 4713);
    ck_assert_int_eq(wire_result(w, unique), 0);
    return unique;
}

START_TEST(poller_looks_again_after_a_death)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_poll(w, a, 4711)), 0);
    ck_assert(!wire_has_notification(w, FUSE_NOTIFY_POLL, NULL));
    wire_die(w);
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_POLL, NULL));
    ck_assert_int_eq(wire_result(w, wire_poll(w, a, 4712)), 0);
    guint sent = w->notices->len;
    fake_backend_end(w->fake, "L", BACKEND_BROKEN);
    wire_turn(w);
    ck_assert_uint_gt(w->notices->len, sent);
    const struct fuse_poll_out *out = wire_data(w, polled(a), NULL);
    ck_assert_uint_ne(out->revents & POLLERR, 0);
}
END_TEST

/* --- requests in flight --------------------------------------------------------------- */

START_TEST(waits_outlive_deaths)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    w->pid = bob;
    uint64_t waiter = _i ? wire_setlk(w, b, 8, F_WRLCK, 0, 9, true) : wire_flock(w, b, LOCK_EX);
    ck_assert(wire_waits(w, waiter));
    for (int deaths = 0; deaths < 4; deaths++) {
        wire_die(w);
        ck_assert(wire_waits(w, waiter));
    }
    w->pid = carol;
    uint64_t third = wire_flock(w, c, LOCK_EX);
    ck_assert(wire_waits(w, third));
    wire_interrupt(w, third);
    ck_assert_int_eq(wire_result(w, third), EINTR);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiter), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
}
END_TEST

START_TEST(wait_that_has_just_been_read_does_not_stop_the_next_daemon)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    w->pid = bob;
    wire_die_at_store(w, 1);
    uint64_t waiter = wire_flock(w, b, LOCK_EX);
    ck_assert(wire_waits(w, waiter));
    ck_assert(wire_has_died(w));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiter), 0);
}
END_TEST

START_TEST(wait_that_was_interrupted_before_a_death_is_interrupted_after_it)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    w->pid = bob;
    uint64_t waiter = wire_flock(w, b, LOCK_EX);
    ck_assert(wire_waits(w, waiter));
    wire_interrupt(w, waiter);
    wire_take(w); /* it is read, and the loop does not run */
    wire_die(w);
    ck_assert_int_eq(wire_result(w, waiter), EINTR);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
}
END_TEST

/* Each row of intent.h: the daemon dies in a call of the store, before (_i even) or after (odd) the store has done it.
 * The caller's answer, and what is held afterwards, are as if it had not. */

struct row {
    enum fake_call call;
    uint64_t (*send)(void);
    void (*check)(int error);
    void (*between)(struct wire *w); /* what another mount does meanwhile */
    bool only_after;                 /* only where the store has done it */
    unsigned nth;                    /* call of that kind */
};

static struct wire_file opened;
static uint64_t known;
static pid_t other;

static void check_is_mine(const char *name, enum backend_kind kind)
{
    ck_assert_uint_eq(fake_backend_holders(w->fake, name), 1);
    ck_assert(held_as(name, kind));
    ck_assert_uint_eq(fake_backend_waiters(w->fake, name), 0);
}

static void check_made(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("new", BACKEND_LEASE);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_create(w, "new", O_WRONLY | O_EXCL)), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "new")), EPERM);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "new")), 0);
}

static uint64_t send_create(void)
{
    return wire_create(w, "new", O_WRONLY | O_EXCL);
}

static uint64_t send_symlink(void)
{
    return wire_symlink(w, "new", "target");
}

static uint64_t send_link(void)
{
    return wire_link(w, known, "new");
}

static uint64_t send_open(void)
{
    return wire_create(w, "new", O_WRONLY);
}

static void check_opened(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("new", BACKEND_PROVISIONAL);
}

static uint64_t send_write(void)
{
    return wire_write(w, opened, 0, "bytes", 5);
}

static void check_written(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("mine", BACKEND_LEASE);
    check_content(opened, "bytes");
}

static uint64_t send_append(void)
{
    struct wire_file file = opened;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "one", 3)), 0);
    file.flags |= O_APPEND;
    return wire_write(w, file, 0, "two", 3);
}

static void check_appended(int error)
{
    ck_assert_int_eq(error, 0);
    check_content(opened, "onetwo");
}

static uint64_t send_flock(void)
{
    return wire_flock(w, a, LOCK_EX | LOCK_NB);
}

static void check_flocked(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("L", BACKEND_FLOCK);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_SH | LOCK_NB)), EAGAIN);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_ptr_null(holder("L"));
}

static uint64_t send_upgrade(void)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    return wire_flock(w, a, LOCK_EX | LOCK_NB);
}

static uint64_t send_flock_of_lease(void)
{
    ck_assert_int_eq(wire_result(w, wire_write(w, opened, 0, "x", 1)), 0);
    return wire_flock(w, opened, LOCK_EX | LOCK_NB);
}

static void check_turned(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("mine", BACKEND_FLOCK);
    ck_assert_int_eq(wire_result(w, wire_release(w, opened)), 0);
    ck_assert_ptr_null(holder("mine"));
}

static uint64_t send_setlk(void)
{
    return wire_setlk(w, a, 7, F_WRLCK, 0, 9, false);
}

static void check_ranged(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("L", BACKEND_FCNTL);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_WRLCK, 10, 19, false)), 0);
    check_is_mine("L", BACKEND_FCNTL);
    ck_assert_int_eq(wire_result(w, wire_flush(w, a, 7)), 0);
    ck_assert_ptr_null(holder("L"));
}

static uint64_t send_more_bytes(void)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_WRLCK, 20, 29, false)), 0);
    return send_setlk();
}

static uint64_t send_unlock(void)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    return wire_flock(w, a, LOCK_UN);
}

static void check_unlocked(int error)
{
    ck_assert_int_eq(error, 0);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_read(w, a, 0, 9)), 0); /* and not lost */
}

static uint64_t send_unlock_bytes(void)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_WRLCK, 0, 9, false)), 0);
    return wire_setlk(w, a, 7, F_UNLCK, 0, 4, false);
}

static void check_unlocked_bytes(int error)
{
    ck_assert_int_eq(error, 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 8, F_WRLCK, 0, 4, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 8, F_WRLCK, 5, 5, false)), EAGAIN);
}

static uint64_t send_close_of_records(void)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 7, F_WRLCK, 0, 9, false)), 0);
    return wire_flush(w, a, 7);
}

static uint64_t send_unlink(void)
{
    return wire_unlink(w, "old");
}

static void occupy_old(struct wire *wire)
{
    fake_backend_occupy(wire->fake, "old", BACKEND_LEASE, BACKEND_EXCLUSIVE);
}

static void check_unlinked(int error)
{
    ck_assert_int_eq(error, 0);
    ck_assert_ptr_null(holder("old"));
}

static void check_still_held(int error)
{
    ck_assert_int_eq(error, 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "old"), 1);
}

static uint64_t send_rename(void)
{
    return wire_rename(w, "old", "renamed", 0);
}

static void check_renamed(int error)
{
    ck_assert_int_eq(error, 0);
    check_is_mine("renamed", BACKEND_LEASE);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "renamed")), known);
    ck_assert_int_eq(wire_result(w, wire_write(w, opened, 0, "x", 1)), 0);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "renamed")), 0);
}

static void check_moved(int error)
{
    ck_assert_ptr_null(holder("old"));
    ck_assert(!wire_exists(w, "old"));
    check_renamed(error);
}

static uint64_t send_rename_with_file(void)
{
    opened = wire_opened(w, known, O_WRONLY);
    return send_rename();
}

static uint64_t send_mkdir(void)
{
    return wire_mkdir(w, "d");
}

static void check_directory(int error)
{
    ck_assert_int_eq(error, 0);
    ck_assert(wire_exists(w, "d"));
}

static void make_directory(struct wire *wire)
{
    struct backend *head = fake_backend_head(wire->fake);
    struct backend_directory directory = {.width = 1};
    head->operations->mkdir(head, "d", &directory, NULL, NULL);
}

static void check_exists(int error)
{
    ck_assert_int_eq(error, EEXIST);
}

static uint64_t send_rmdir(void)
{
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "d")), 0);
    return wire_rmdir(w, "d");
}

static void check_no_directory(int error)
{
    ck_assert_int_eq(error, 0);
    ck_assert(!wire_exists(w, "d"));
}

static uint64_t send_break(void)
{
    w->pid = other;
    return wire_setxattr(w, known, "user.lease.break", "1");
}

static uint64_t send_release_by_token(void)
{
    char token[32];
    snprintf(token, sizeof token, "%lu", (unsigned long)holder("old")->fence);
    w->pid = other;
    return wire_setxattr(w, known, "user.lease.release", token);
}

static uint64_t send_ticket(void)
{
    return wire_create(w, "job-", O_RDWR);
}

static void check_ticket(int error)
{
    ck_assert_int_eq(error, 0);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_FLOCK), 1);
}

static uint64_t send_touch(void)
{
    opened = wire_created(w, "new", O_WRONLY);
    return wire_touch(w, opened.node, &opened);
}

static uint64_t send_close(void)
{
    opened = wire_created(w, "new", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, opened, 0)), 0);
    return wire_release(w, opened);
}

static uint64_t send_note(void)
{
    return wire_setxattr(w, known, "user.lease.note", "text");
}

static void check_noted(int error)
{
    ck_assert_int_eq(error, 0);
    char *note = wire_xattr(w, known, "user.lease.note");
    ck_assert_str_eq(note, "text");
    g_free(note);
}

static const struct row rows[] = {
    {FAKE_ACQUIRE, send_create, check_made, NULL, false, 0},
    {FAKE_ACQUIRE, send_symlink, check_made, NULL, false, 0},
    {FAKE_ACQUIRE, send_link, check_made, NULL, false, 0},
    {FAKE_ACQUIRE, send_open, check_opened, NULL, false, 0},
    {FAKE_CONVERT, send_write, check_written, NULL, false, 0},
    {FAKE_SET, send_append, check_appended, NULL, false, 0},
    {FAKE_ACQUIRE, send_flock, check_flocked, NULL, false, 0},
    {FAKE_CONVERT, send_upgrade, check_flocked, NULL, false, 0},
    {FAKE_CONVERT, send_flock_of_lease, check_turned, NULL, false, 0},
    {FAKE_ACQUIRE, send_setlk, check_ranged, NULL, false, 0},
    {FAKE_ACQUIRE, send_more_bytes, check_ranged, NULL, false, 1},
    {FAKE_RELEASE, send_unlock, check_unlocked, NULL, false, 0},
    {FAKE_RELEASE_RANGE, send_unlock_bytes, check_unlocked_bytes, NULL, false, 0},
    {FAKE_RELEASE, send_close_of_records, check_unlocked, NULL, false, 0},
    {FAKE_RELEASE, send_unlink, check_unlinked, NULL, false, 0},
    {FAKE_RELEASE, send_unlink, check_still_held, occupy_old, true, 0},
    {FAKE_RENAME, send_rename_with_file, check_moved, NULL, false, 0},
    {FAKE_RENAME, send_rename_with_file, check_renamed, occupy_old, true, 0},
    {FAKE_MKDIR, send_mkdir, check_directory, NULL, false, 0},
    {FAKE_MKDIR, send_mkdir, check_exists, make_directory, false, 0},
    {FAKE_RMDIR, send_rmdir, check_no_directory, NULL, false, 0},
    {FAKE_REVOKE, send_break, check_unlinked, NULL, false, 0},
    {FAKE_REVOKE, send_break, check_still_held, occupy_old, true, 0},
    {FAKE_REVOKE, send_release_by_token, check_unlinked, NULL, false, 0},
    {FAKE_REVOKE, send_release_by_token, check_still_held, occupy_old, true, 0},
    {FAKE_ACQUIRE, send_ticket, check_ticket, NULL, false, 0},
    {FAKE_SET, send_ticket, check_ticket, NULL, false, 0},
    {FAKE_CONVERT, send_touch, check_made, NULL, false, 0},
    {FAKE_CONVERT, send_close, check_made, NULL, false, 0},
    {FAKE_SET, send_note, check_noted, NULL, false, 0},
};

#define ROWS (int)(sizeof rows / sizeof *rows)

static void prepare_row(void)
{
    other = carol;
    w->pid = alice;
    known = closed_lease("old");
    opened = wire_created(w, "mine", O_RDWR);
}

START_TEST(request_whose_daemon_dies_is_answered_once)
{
    const struct row *row = &rows[_i / 2];
    bool after = _i & 1;
    if (row->only_after && !after) {
        return;
    }
    prepare_row();
    w->between = row->call == FAKE_MKDIR && after ? NULL : row->between;
    wire_die_at(w, row->call, row->nth, after);
    uint64_t unique = row->send();
    int error = wire_result(w, unique);
    ck_assert_uint_eq(keep_generation(w->keep), 2);
    w->between = NULL;
    w->pid = alice;
    if (row->check == check_exists && after) {
        check_directory(error);
    } else {
        row->check(error);
    }
}
END_TEST

#define STORES_MAX 1000

/* The same, for a death before any store into the memory that outlives the daemon. */
START_TEST(no_store_is_a_bad_moment_to_die)
{
    const struct row *row = &rows[_i];
    unsigned nth = 0;
    bool died = !row->between;
    while (died && ++nth < STORES_MAX) {
        wire_setup_files();
        prepare_row();
        wire_die_at_store(w, nth);
        uint64_t unique = row->send();
        int error = wire_result(w, unique);
        died = wire_has_died(w);
        w->pid = alice;
        row->check(error);
        wire_teardown();
    }
    ck_assert_uint_lt(nth, STORES_MAX);
}
END_TEST

static void vacate_new(struct wire *wire)
{
    fake_backend_vacate(wire->fake, "new");
}

/* A process that was refused does not hold the lock, though the name is free when the next daemon looks. */
START_TEST(refusal_whose_daemon_dies_is_a_refusal)
{
    unsigned nth = 0, refused = 0;
    bool died = true;
    while (died && ++nth < STORES_MAX) {
        wire_setup_files();
        fake_backend_occupy(w->fake, "new", BACKEND_LEASE, BACKEND_EXCLUSIVE);
        w->pid = alice;
        w->between = vacate_new;
        wire_die_at_store(w, nth);
        int error = wire_result(w, send_create());
        died = wire_has_died(w);
        ck_assert(error == 0 || error == EEXIST);
        refused += error != 0;
        ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_LEASE), error == 0);
        w->between = NULL;
        wire_teardown();
    }
    ck_assert_uint_lt(nth, STORES_MAX);
    ck_assert_uint_gt(refused, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("death");
    TCase *cases = tcase_create("numbers");
    tcase_add_checked_fixture(cases, wire_setup, wire_teardown);
    tcase_add_test(cases, number_of_a_node_that_was_forgotten_is_stale_for_ever);
    tcase_add_test(cases, number_of_a_file_that_was_closed_is_bad);
    suite_add_tcase(suite, cases);
    cases = tcase_create("deaths");
    tcase_add_checked_fixture(cases, wire_setup_files, wire_teardown);
    tcase_add_test(cases, flock_is_held_by_its_file_after_deaths);
    tcase_add_loop_test(cases, file_that_is_closed_after_a_death_releases_its_lock, 0, 2);
    tcase_add_test(cases, lock_owner_goes_on_with_its_bytes_after_a_death);
    tcase_add_test(cases, lease_goes_on_after_a_death);
    tcase_add_loop_test(cases, provisional_file_is_decided_after_a_death, 0, 8);
    tcase_add_loop_test(cases, lock_that_ended_while_no_daemon_ran_is_lost_to_its_file, 0, 2);
    tcase_add_test(cases, ticket_keeps_its_place_after_a_death);
    tcase_add_test(cases, names_are_found_after_a_death);
    tcase_add_test(cases, name_that_ended_before_a_death_is_dropped_after_it);
    tcase_add_test(cases, poller_looks_again_after_a_death);
    tcase_add_loop_test(cases, waits_outlive_deaths, 0, 2);
    tcase_add_test(cases, wait_that_has_just_been_read_does_not_stop_the_next_daemon);
    tcase_add_test(cases, wait_that_was_interrupted_before_a_death_is_interrupted_after_it);
    tcase_add_loop_test(cases, request_whose_daemon_dies_is_answered_once, 0, 2 * ROWS);
    suite_add_tcase(suite, cases);
    cases = tcase_create("stores");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, no_store_is_a_bad_moment_to_die, 0, ROWS);
    tcase_add_test(cases, refusal_whose_daemon_dies_is_a_refusal);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}

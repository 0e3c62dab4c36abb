/* Handle locks whose daemon has ended: they belong to the processes that have their file open. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fs/daemon/restart.h"
#include "fs/hold/inherit.h"
#include "fs/hold/meta.h"
#include "tests/message/fake_openers.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

static struct openers *openers;

enum { INODE = 77 }; /* in the dead mount */

static void set_up(void)
{
    wire_setup_with(WIRE_LOCAL_FEATURES | BACKEND_CAN_SHARE);
    w->fs->openers = openers = fake_openers_new(w->fs->owners);
    w->fs->device = makedev(0, 50);
    w->pid = bob;
}

/* What a daemon before this one wrote of a handle lock of alice's. */
static GBytes *meta_of(const char *boot, uint64_t inode)
{
    struct meta meta = {.pid = alice, .mode = S_IFREG | 0644, .device = makedev(0, 49), .inode = inode};
    struct owner *owner = owner_get(w->fs->owners, alice);
    owner_identity(owner, &meta.start);
    owner_unref(owner);
    strcpy(meta.command, "alice");
    strcpy(meta.host, w->fs->host);
    strcpy(meta.boot, boot);
    return meta_encode(&meta);
}

static void keep(const char *name, enum backend_kind kind, enum backend_mode mode, uint64_t inode)
{
    GBytes *meta = meta_of(w->fs->boot_id, inode);
    fake_backend_keep_handle_lock(w->fake, name, kind, mode, meta);
    g_bytes_unref(meta);
}

static void recover(const char *name)
{
    keep(name, BACKEND_FLOCK, BACKEND_EXCLUSIVE, INODE);
    recover_stop(w->fs); /* what fs_start has recovered */
    recover_leases(w->fs);
}

/* And what follows from it. */
static void walk(void)
{
    fake_openers_walk(openers);
    wire_turn(w);
}

static void check_holders(const char *name, unsigned holders)
{
    wire_turn(w);
    ck_assert_uint_eq(fake_backend_holders(w->fake, name), holders);
    ck_assert(wire_exists(w, name) == (holders > 0));
}

/* --- as long as anybody has its file open ----------------------------------------- */

START_TEST(lock_stays_until_two_walks_have_seen_nobody_with_its_file)
{
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE, carol, true); /* who has inherited it */
    recover("L");
    ck_assert_uint_eq(fake_openers_files(openers), 1);
    walk();
    check_holders("L", 1);
    wire_kill(w, alice); /* the first process ends: that is not the end */
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    check_holders("L", 1);
    fake_openers_close(openers, INODE, carol);
    walk();
    check_holders("L", 1);
    walk();
    check_holders("L", 0);
    ck_assert_uint_eq(fake_openers_files(openers), 0);
}
END_TEST

START_TEST(process_that_cannot_be_looked_into_counts)
{
    fake_openers_hide(openers, carol);
    recover("L");
    for (int i = 0; i < 3; i++) {
        walk();
    }
    check_holders("L", 1);
    fake_openers_close(openers, 0, carol);
    walk();
    walk();
    check_holders("L", 0);
}
END_TEST

START_TEST(lock_is_renewed_meanwhile)
{
    fake_openers_open(openers, INODE, carol, true);
    recover("L");
    wire_kill(w, alice); /* who took it need not live */
    for (int i = 0; i < 10; i++) {
        walk();
        wire_advance(w, LEASE_TTL_DEFAULT / 2);
    }
    check_holders("L", 1);
}
END_TEST

START_TEST(lock_of_unknown_processes_ends_with_its_term)
{
    GBytes *meta = meta_of(_i ? w->fs->boot_id : "another", _i ? 0 : INODE);
    fake_backend_keep_handle_lock(w->fake, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE, meta);
    g_bytes_unref(meta);
    recover_stop(w->fs); /* what fs_start has recovered */
    recover_leases(w->fs);
    ck_assert_uint_eq(fake_openers_files(openers), 0);
    check_holders("L", 1);
    wire_advance(w, LEASE_TTL_DEFAULT);
    check_holders("L", 0);
}
END_TEST

START_TEST(shared_locks_end_one_by_one)
{
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE + 1, carol, true);
    keep("L", BACKEND_FLOCK, BACKEND_SHARED, INODE);
    keep("L", BACKEND_FLOCK, BACKEND_SHARED, INODE + 1);
    recover_stop(w->fs); /* what fs_start has recovered */
    recover_leases(w->fs);
    walk();
    check_holders("L", 2);
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    check_holders("L", 1);
    fake_openers_close(openers, INODE + 1, carol);
    walk();
    walk();
    check_holders("L", 0);
}
END_TEST

/* A ticket that only waited has never held anything on which its processes could rely. */
START_TEST(only_tickets_that_held_survive_without_their_files)
{
    struct meta meta;
    g_autoptr(GBytes) plain = meta_of(w->fs->boot_id, INODE);
    ck_assert(meta_decode(plain, &meta));
    meta.sequence = true;
    g_autoptr(GBytes) bytes = meta_encode(&meta);
    fake_openers_open(openers, INODE, alice, true);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "q")), 0);
    if (_i) {
        fake_backend_begin_recovery(w->fake);
        recover_stop(w->fs);
        recover_leases(w->fs);
        inherit_settle(w->fs);
    }
    fake_backend_keep_ticket(w->fake, "q/job-0000000001", true, bytes);
    fake_backend_keep_ticket(w->fake, "q/job-0000000002", false, bytes);
    if (_i) { /* they are found late */
        fake_backend_end_recovery(w->fake);
    } else {
        recover_stop(w->fs);
        recover_leases(w->fs);
        inherit_settle(w->fs);
    }
    wire_turn(w);
    w->directory = wire_node(w, wire_lookup(w, "q"));
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "q/job-0000000002"), 0);
    ck_assert(!wire_exists(w, "job-0000000002"));
    ck_assert_uint_eq(fake_openers_files(openers), 1);
    walk();
    ck_assert_uint_eq(fake_backend_holders(w->fake, "q/job-0000000001"), 1);
    ck_assert(wire_exists(w, "job-0000000001"));
}
END_TEST

/* --- processes with a file of the dead mount and no lock ---------------------------- */

/* Does the log, which stderr is written to, name the process as one with a file open without a lock? */
static bool is_logged(FILE *log, pid_t pid)
{
    char text[16384];
    g_autofree char *line = g_strdup_printf("process %d [^\n]*, has a file open from the daemon before", (int)pid);
    rewind(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    return g_regex_match_simple(line, text, 0, 0);
}

START_TEST(process_whose_lock_is_found_late_is_not_logged_as_one_that_lost_it)
{
    FILE *log = tmpfile();
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE + 1, carol, true); /* without a lock */
    w->fs->dead_device = makedev(0, 49);
    fake_backend_begin_recovery(w->fake);
    recover_stop(w->fs);
    ck_assert_int_ge(dup2(fileno(log), STDERR_FILENO), 0);
    recover_leases(w->fs);
    walk();
    keep("L", BACKEND_FLOCK, BACKEND_EXCLUSIVE, INODE);
    fake_backend_end_recovery(w->fake);
    walk();
    ck_assert(!is_logged(log, carol));
    ck_assert_uint_gt(fake_openers_requested(openers), 0);
    walk();
    ck_assert(is_logged(log, carol));
    ck_assert(!is_logged(log, alice));
    fclose(log);
    check_holders("L", 1);
}
END_TEST

/* --- who asks for it --------------------------------------------------------------- */

START_TEST(waiter_is_granted_when_nobody_has_it_open)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    uint64_t waiting = wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    ck_assert_uint_gt(fake_openers_requested(openers), 0);
    ck_assert(fake_openers_is_waited_for(openers));
    walk();
    ck_assert(wire_waits(w, waiting));
    fake_openers_close(openers, INODE, alice);
    walk();
    ck_assert(wire_waits(w, waiting));
    walk();
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert(!fake_openers_is_waited_for(openers));
}
END_TEST

START_TEST(walks_every_second_end_when_the_waiter_gives_up)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    uint64_t waiting = wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    walk();
    ck_assert(fake_openers_is_waited_for(openers));
    wire_interrupt(w, waiting);
    ck_assert_int_eq(wire_result(w, waiting), EINTR);
    walk();
    ck_assert(!fake_openers_is_waited_for(openers));
}
END_TEST

/* A worker that has closed its dead descriptor locks again at once. */
START_TEST(try_waits_until_it_is_known_whether_anybody_has_it_open)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    uint64_t tried = wire_flock(w, file, LOCK_EX | LOCK_NB);
    ck_assert(wire_waits(w, tried));
    walk();
    ck_assert_int_eq(wire_result(w, tried), EAGAIN);
    fake_openers_close(openers, INODE, alice);
    tried = wire_setlk(w, file, 5, F_WRLCK, 0, 9, false);
    ck_assert(wire_waits(w, tried));
    walk();
    ck_assert(wire_waits(w, tried));
    walk();
    g_usleep(150000); /* it looks ten times a second whether the walk is over */
    ck_assert_int_eq(wire_result(w, tried), 0);
}
END_TEST

/* Its answer is late, and the lock that refused it has ended by then. */
START_TEST(try_that_was_refused_by_a_lock_that_has_ended_since_is_repeated)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t tried = wire_flock(w, file, LOCK_EX | LOCK_NB);
    ck_assert(wire_waits(w, tried));
    fake_backend_carry_out(w->fake);
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    ck_assert(wire_waits(w, tried));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, tried), 0);
    check_holders("L", 1);
}
END_TEST

/* It would wait for itself for ever. */
START_TEST(process_whose_own_descriptor_blocks_it_gets_EDEADLK)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    w->pid = alice;
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    uint64_t waiting = _i ? wire_setlk(w, file, 5, F_WRLCK, 0, 9, true) : wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    fake_openers_open(openers, INODE, carol, true);
    walk();
    ck_assert(wire_waits(w, waiting)); /* carol can close it */
    fake_openers_close(openers, INODE, carol);
    walk();
    ck_assert(wire_waits(w, waiting)); /* that walk may have begun before it closed its descriptor */
    walk();
    ck_assert_int_eq(wire_result(w, waiting), EDEADLK);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
    fake_openers_close(openers, INODE, alice);
    fake_openers_open(openers, INODE, alice, false); /* another thread may close it */
    waiting = wire_flock(w, file, LOCK_EX);
    walk();
    walk();
    ck_assert(wire_waits(w, waiting));
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(walk_that_saw_a_descriptor_before_it_was_closed_makes_no_deadlock)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    w->pid = alice;
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    uint64_t waiting = wire_flock(w, file, LOCK_EX);
    walk();
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(look_at_the_name_or_a_listing_starts_a_walk)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    ck_assert_uint_eq(fake_openers_requested(openers), 0);
    ck_assert(wire_exists(w, "L"));
    ck_assert_uint_gt(fake_openers_requested(openers), 0);
    walk();
    ck_assert_uint_eq(fake_openers_requested(openers), 0);
    struct fuse_open_in in = {.flags = O_RDONLY};
    uint64_t opened = wire_send(w, FUSE_OPENDIR, FUSE_ROOT_ID, &in, sizeof in, NULL, 0);
    ck_assert_int_eq(wire_result(w, opened), 0);
    uint64_t fh = ((const struct fuse_open_out *)wire_data(w, opened, NULL))->fh;
    struct fuse_read_in read = {.fh = fh, .size = 4096};
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_READDIR, FUSE_ROOT_ID, &read, sizeof read, NULL, 0)), 0);
    ck_assert_uint_gt(fake_openers_requested(openers), 0);
    struct fuse_release_in release = {.fh = fh};
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_RELEASEDIR, FUSE_ROOT_ID, &release, sizeof release, NULL, 0)), 0);
}
END_TEST

/* A process that only has its file open may have waited for it. */
START_TEST(touch_by_one_of_its_processes_is_refused)
{
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE, carol, true);
    recover("L");
    walk();
    for (int i = 0; i < 2; i++) {
        w->pid = i ? alice : carol;
        struct wire_file file = wire_created(w, "L", O_RDWR);
        ck_assert_int_eq(wire_close(w, file), EBUSY);
    }
    check_holders("L", 1);
}
END_TEST

/* --- its end before that -------------------------------------------------------------- */

/* Of another user, a process that has its file open may have waited for it. */
START_TEST(only_its_processes_may_remove_it)
{
    fake_openers_open(openers, INODE, carol, true);
    fake_openers_open(openers, INODE, bob, true);
    fake_openers_set_user(openers, bob, 1000);
    recover("L");
    walk();
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->pid = carol;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    check_holders("L", 0);
    ck_assert_uint_eq(fake_openers_files(openers), 0);
}
END_TEST

START_TEST(break_ends_it_at_once)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    uint64_t node = wire_node(w, wire_lookup(w, "L"));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.break", "1")), 0);
    check_holders("L", 0);
    ck_assert_uint_eq(fake_openers_files(openers), 0);
    walk();
}
END_TEST

/* --- what is seen of it ----------------------------------------------------------------- */

START_TEST(its_processes_are_its_owners)
{
    char expected[512];
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    uint64_t node = wire_node(w, wire_lookup(w, "L"));
    char *state = wire_xattr(w, node, "user.lease.state"), *owner = wire_xattr(w, node, "user.lease.owner");
    ck_assert_str_eq(state, "held");
    snprintf(expected, sizeof expected, "%s %d 0 ", w->fs->host, alice);
    ck_assert(g_str_has_prefix(owner, expected));
    ck_assert(g_str_has_suffix(owner, " (daemon restarted)"));
    g_free(owner);
    fake_openers_open(openers, INODE, carol, true);
    walk();
    owner = wire_xattr(w, node, "user.lease.owner");
    g_auto(GStrv) lines = g_strsplit(owner, "\n", -1);
    ck_assert_uint_eq(g_strv_length(lines), 2);
    snprintf(expected, sizeof expected, "%s %d 0 ", w->fs->host, carol);
    ck_assert(g_str_has_prefix(lines[1], expected));
    ck_assert(g_str_has_suffix(lines[1], " (daemon restarted)"));
    g_free(owner);
    g_free(state);
}
END_TEST

/* F_GETLK shows the process that took the lock, while it has the file open.  After that it shows another process that
 * has, but none whose open files cannot be read. */
START_TEST(probe_shows_its_taker)
{
    fake_openers_hide(openers, wire_child(w));
    fake_openers_open(openers, INODE, carol, true);
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    for (int i = 0; i < 2; i++) {
        uint64_t got = wire_getlk(w, file, 5, F_WRLCK, 0, 9);
        ck_assert_int_eq(wire_result(w, got), 0);
        const struct fuse_lk_out *out = wire_data(w, got, NULL);
        ck_assert_uint_eq(out->lk.type, F_WRLCK);
        ck_assert_int_eq((pid_t)out->lk.pid, i ? carol : alice);
        fake_openers_close(openers, INODE, alice);
        walk();
    }
}
END_TEST

/* If this daemon ends, too, the file is still that of the first one. */
START_TEST(its_file_stays_known_when_its_meta_is_written_again)
{
    struct meta meta;
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    w->pid = alice;
    uint64_t node = wire_node(w, wire_lookup(w, "L"));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.guard", "5")), 0);
    const struct backend_ticket *ticket = fake_backend_holder(w->fake, "L");
    ck_assert_ptr_nonnull(ticket);
    ck_assert(meta_decode(fake_backend_meta(ticket), &meta));
    ck_assert_uint_eq(meta.device, makedev(0, 49));
    ck_assert_uint_eq(meta.inode, INODE);
    ck_assert_uint_eq(meta.guard, 5000);
}
END_TEST

/* Of a lock that is taken now, the store knows by which file its processes are found. */
START_TEST(handle_lock_is_kept_with_its_file)
{
    struct meta meta;
    struct wire_file file = wire_created(w, "L", O_RDWR);
    size_t size;
    uint64_t got = wire_getattr(w, file.node);
    ck_assert_int_eq(wire_result(w, got), 0);
    uint64_t inode = ((const struct fuse_attr_out *)wire_data(w, got, &size))->attr.ino;
    ck_assert(meta_decode(fake_backend_meta(fake_backend_holder(w->fake, "L")), &meta));
    ck_assert_uint_eq(meta.inode, 0); /* it is only provisional */
    ck_assert_int_eq(wire_result(w, _i ? wire_setlk(w, file, 5, F_WRLCK, 0, 9, true) : wire_flock(w, file, LOCK_EX)),
                     0);
    ck_assert(meta_decode(fake_backend_meta(fake_backend_holder(w->fake, "L")), &meta));
    ck_assert_uint_eq(meta.device, makedev(0, 50));
    ck_assert_uint_eq(meta.inode, inode);
}
END_TEST

/* A symbolic link took the name since the file was opened, and the file's lock is made of that lease. */
START_TEST(handle_lock_is_kept_with_its_file_and_not_with_its_name)
{
    struct meta meta;
    struct wire_file file = wire_created(w, "L", O_RDWR);
    size_t size;
    wire_advance(w, 2000);
    uint64_t got = wire_getattr(w, file.node);
    ck_assert_int_eq(wire_result(w, got), 0);
    uint64_t inode = ((const struct fuse_attr_out *)wire_data(w, got, &size))->attr.ino;
    ck_assert_int_eq(wire_result(w, wire_symlink(w, "L", "target")), 0);
    ck_assert_int_eq(wire_result(w, _i ? wire_setlk(w, file, 5, F_WRLCK, 0, 9, true) : wire_flock(w, file, LOCK_EX)),
                     0);
    ck_assert(meta_decode(fake_backend_meta(fake_backend_holder(w->fake, "L")), &meta));
    ck_assert_uint_eq(meta.inode, inode);
    ck_assert_uint_eq(meta.heirs, 0); /* those of the lease, which was in its first second, do not inherit */
    uint64_t node = wire_node(w, wire_lookup(w, "L"));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.guard", "5")), 0);
    ck_assert(meta_decode(fake_backend_meta(fake_backend_holder(w->fake, "L")), &meta));
    ck_assert_uint_eq(meta.guard, 5000);
    ck_assert_uint_eq(meta.inode, inode);
}
END_TEST

/* --- user.lease.resume -------------------------------------------------------------------- */

static char *token_of(uint64_t fence)
{
    return g_strdup_printf("%" PRIu64, fence);
}

/* The errno of user.lease.resume by the caller, on the file that it opened last. */
static int resume(struct wire_file file, uint64_t fence)
{
    g_autofree char *token = token_of(fence);
    uint64_t resumed = wire_setxattr(w, file.node, "user.lease.resume", token);
    if (wire_waits(w, resumed)) { /* for a walk that begins later */
        walk();
    }
    return wire_result(w, resumed);
}

static struct wire_file open_as(pid_t who, int flags)
{
    w->pid = who;
    return wire_created(w, "L", flags);
}

static uint64_t fence_of_L(void)
{
    const struct backend_ticket *ticket = fake_backend_holder(w->fake, "L");
    ck_assert_ptr_nonnull(ticket);
    return ticket->fence;
}

/* A shared one is converted later, so its handle needs the identity. */
START_TEST(resumed_flock_belongs_to_the_new_file)
{
    struct meta meta;
    fake_openers_open(openers, INODE, alice, true);
    keep("L", BACKEND_FLOCK, _i ? BACKEND_SHARED : BACKEND_EXCLUSIVE, INODE);
    recover_stop(w->fs);
    recover_leases(w->fs);
    walk();
    uint64_t fence = fence_of_L();
    struct wire_file file = open_as(alice, O_RDONLY);
    ck_assert_int_eq(resume(file, fence), 0);
    ck_assert_uint_eq(fence_of_L(), fence);
    ck_assert(meta_decode(fake_backend_meta(fake_backend_holder(w->fake, "L")), &meta));
    ck_assert_uint_eq(meta.device, makedev(0, 50)); /* for the next restart */
    ck_assert_uint_eq(fake_openers_files(openers), 0);
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    check_holders("L", 1);
    g_autofree char *owner = wire_xattr(w, file.node, "user.lease.owner");
    ck_assert(!strstr(owner, "daemon restarted"));
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_uint_eq(fence_of_L(), fence);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    check_holders("L", 0);
}
END_TEST

START_TEST(resumed_lock_ends_with_the_last_close_of_the_new_file)
{
    fake_openers_open(openers, INODE, alice, true);
    keep("L", _i ? BACKEND_FCNTL : BACKEND_FLOCK, BACKEND_EXCLUSIVE, INODE);
    recover_stop(w->fs);
    recover_leases(w->fs);
    walk();
    struct wire_file file = open_as(alice, O_RDWR);
    ck_assert_int_eq(resume(file, fence_of_L()), 0);
    struct wire_file other = open_as(bob, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, other, LOCK_EX | LOCK_NB)), EAGAIN);
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, file), 0);
    check_holders("L", 0);
}
END_TEST

START_TEST(resumed_record_lock_is_unlocked_through_the_new_file)
{
    fake_openers_open(openers, INODE, alice, true);
    keep("L", BACKEND_FCNTL, BACKEND_EXCLUSIVE, INODE);
    recover_stop(w->fs);
    recover_leases(w->fs);
    walk();
    struct wire_file file = open_as(alice, O_RDWR);
    ck_assert_int_eq(resume(file, fence_of_L()), 0);
    struct wire_file second = open_as(alice, O_RDWR); /* any close by it ends the locks that it took, not this */
    ck_assert_int_eq(wire_close(w, second), 0);
    check_holders("L", 1);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 5, F_UNLCK, 0, INT64_MAX, false)), 0);
    check_holders("L", 0);
}
END_TEST

/* A walk from before the request may have seen a descriptor that was closed since. */
START_TEST(only_a_process_that_has_its_file_open_may_resume_it)
{
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE, carol, true);
    recover("L");
    walk();
    uint64_t fence = fence_of_L();
    ck_assert_int_eq(resume(open_as(bob, O_RDONLY), fence), EPERM);
    fake_openers_close(openers, INODE, carol);
    ck_assert_int_eq(resume(open_as(carol, O_RDONLY), fence), EPERM);
    fake_openers_open(openers, INODE, carol, true);
    fake_openers_set_user(openers, carol, 1000); /* who may have waited for it */
    ck_assert_int_eq(resume(open_as(carol, O_RDONLY), fence), EPERM);
    ck_assert_uint_eq(fake_openers_files(openers), 1);
    ck_assert_int_eq(resume(open_as(alice, O_RDONLY), fence), 0);
    ck_assert_int_eq(resume(open_as(bob, O_RDONLY), fence), EPERM);
}
END_TEST

START_TEST(first_process_resumes_it_and_the_others_get_EBUSY)
{
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE, carol, true);
    recover("L");
    walk();
    uint64_t fence = fence_of_L();
    g_autofree char *token = token_of(fence);
    struct wire_file file = open_as(alice, O_RDONLY), first = open_as(carol, O_RDONLY);
    uint64_t resumed = wire_setxattr(w, first.node, "user.lease.resume", token);
    ck_assert_int_eq((w->pid = alice, resume(file, fence)), EBUSY);
    ck_assert_int_eq(wire_result(w, resumed), 0);
    w->pid = carol;
    ck_assert_int_eq(resume(open_as(carol, O_RDONLY), fence), EBUSY);
    fake_openers_close(openers, INODE, carol);
    walk();
    walk();
    check_holders("L", 1);
    ck_assert_int_eq(wire_close(w, first), 0);
    check_holders("L", 0); /* alice still has the dead one open, which counts no longer */
}
END_TEST

START_TEST(resume_with_another_token_is_ESTALE)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    uint64_t fence = fence_of_L();
    struct wire_file file = open_as(alice, O_RDONLY);
    ck_assert_int_eq(resume(file, fence - 1), ESTALE);
    ck_assert_int_eq(resume(file, fence + 1), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.resume", "x")), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_int_eq(resume(file, fence), ESTALE);
}
END_TEST

START_TEST(each_shared_lock_is_resumed_with_its_own_token)
{
    uint64_t fence[2];
    fake_openers_open(openers, INODE, alice, true);
    fake_openers_open(openers, INODE + 1, carol, true);
    for (unsigned i = 0; i < 2; i++) {
        keep("L", BACKEND_FLOCK, BACKEND_SHARED, INODE + i);
        fence[i] = fence_of_L() + i; /* of the first holder */
    }
    recover_stop(w->fs);
    recover_leases(w->fs);
    walk();
    struct wire_file mine = open_as(alice, O_RDONLY);
    ck_assert_int_eq(resume(mine, fence[1]), EPERM); /* carol's */
    ck_assert_int_eq(resume(mine, fence[0]), 0);
    fake_openers_close(openers, INODE, alice);
    walk();
    walk();
    check_holders("L", 2);
    struct wire_file theirs = open_as(carol, O_RDONLY);
    ck_assert_int_eq(resume(theirs, fence[1]), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, mine, LOCK_UN)), 0);
    check_holders("L", 1);
}
END_TEST

/* A lock moves only to a file that has none. */
START_TEST(resume_needs_a_file_without_a_lock)
{
    fake_openers_open(openers, INODE, alice, true);
    recover("L");
    walk();
    uint64_t fence = fence_of_L();
    w->pid = alice;
    struct wire_file none = {.node = wire_node(w, wire_lookup(w, "L"))};
    ck_assert_int_eq(resume(none, fence), EINVAL);
    check_holders("L", 1);
    ck_assert_uint_eq(fake_openers_files(openers), 1);
}
END_TEST

/* Of a ticket, a flock and a lease: no daemon has ended. */
START_TEST(lock_that_is_no_survivor_is_not_resumed)
{
    static const char *const name[] = {"job-", "L", "L"};
    struct wire_file file = wire_created(w, name[_i], _i == 2 ? O_RDWR | O_EXCL : O_RDWR);
    if (_i < 2) {
        ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    }
    wire_advance(w, 1500); /* its owner is final */
    g_autofree char *token = wire_xattr(w, file.node, "user.lease.token");
    ck_assert_ptr_nonnull(token);
    ck_assert_int_eq(resume(file, g_ascii_strtoull(token, NULL, 10)), _i < 2 ? EPERM : ESTALE);
}
END_TEST

static Suite *survive_suite(void)
{
    Suite *suite = suite_create("survive");
    TCase *cases = tcase_create("survive");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, set_up, wire_teardown);
    tcase_add_test(cases, lock_stays_until_two_walks_have_seen_nobody_with_its_file);
    tcase_add_test(cases, process_that_cannot_be_looked_into_counts);
    tcase_add_test(cases, lock_is_renewed_meanwhile);
    tcase_add_loop_test(cases, lock_of_unknown_processes_ends_with_its_term, 0, 2);
    tcase_add_test(cases, shared_locks_end_one_by_one);
    tcase_add_loop_test(cases, only_tickets_that_held_survive_without_their_files, 0, 2);
    tcase_add_test(cases, waiter_is_granted_when_nobody_has_it_open);
    tcase_add_test(cases, walks_every_second_end_when_the_waiter_gives_up);
    tcase_add_test(cases, try_waits_until_it_is_known_whether_anybody_has_it_open);
    tcase_add_test(cases, try_that_was_refused_by_a_lock_that_has_ended_since_is_repeated);
    tcase_add_loop_test(cases, process_whose_own_descriptor_blocks_it_gets_EDEADLK, 0, 2);
    tcase_add_test(cases, walk_that_saw_a_descriptor_before_it_was_closed_makes_no_deadlock);
    tcase_add_test(cases, look_at_the_name_or_a_listing_starts_a_walk);
    tcase_add_test(cases, touch_by_one_of_its_processes_is_refused);
    tcase_add_test(cases, only_its_processes_may_remove_it);
    tcase_add_test(cases, break_ends_it_at_once);
    tcase_add_test(cases, its_processes_are_its_owners);
    tcase_add_test(cases, probe_shows_its_taker);
    tcase_add_test(cases, its_file_stays_known_when_its_meta_is_written_again);
    tcase_add_loop_test(cases, handle_lock_is_kept_with_its_file, 0, 2);
    tcase_add_loop_test(cases, handle_lock_is_kept_with_its_file_and_not_with_its_name, 0, 2);
    tcase_add_loop_test(cases, resumed_flock_belongs_to_the_new_file, 0, 2);
    tcase_add_loop_test(cases, resumed_lock_ends_with_the_last_close_of_the_new_file, 0, 2);
    tcase_add_test(cases, resumed_record_lock_is_unlocked_through_the_new_file);
    tcase_add_test(cases, only_a_process_that_has_its_file_open_may_resume_it);
    tcase_add_test(cases, first_process_resumes_it_and_the_others_get_EBUSY);
    tcase_add_test(cases, resume_with_another_token_is_ESTALE);
    tcase_add_loop_test(cases, lock_that_is_no_survivor_is_not_resumed, 0, 3);
    tcase_add_test(cases, each_shared_lock_is_resumed_with_its_own_token);
    tcase_add_test(cases, resume_needs_a_file_without_a_lock);
    tcase_add_test(cases, process_whose_lock_is_found_late_is_not_logged_as_one_that_lost_it);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return check_main(survive_suite());
}

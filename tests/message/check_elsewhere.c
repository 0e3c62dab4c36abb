/* Locks of another mount of the store, or of another client: what this mount shows of them, and what it allows.  It
 * keeps no copy of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "fs/hold/meta.h"
#include "tests/message/wire.h"
#include "tests/support/check_main.h"

static struct wire *here, *there; /* the mounts */
static pid_t alice;               /* here */
static pid_t carol;               /* there */

static void set_up(void)
{
    here = wire_new(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE);
    there = wire_new_beside(here);
    alice = here->pid = wire_child(here);
    carol = there->pid = wire_child(there);
    here->uid = 1000;
    there->uid = 1001;
}

static void tear_down(void)
{
    wire_free(here);
}

/* A lease of carol's on the other mount, older than a second. */
static struct wire_file lease_there(const char *name, const char *content)
{
    struct wire_file file = wire_created(there, name, O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(there, wire_write(there, file, 0, content, strlen(content))), 0);
    wire_advance(here, SECOND);
    return file;
}

static struct fuse_entry_out entry(struct wire *w, const char *name)
{
    uint64_t requested = wire_lookup(w, name);
    ck_assert_int_eq(wire_result(w, requested), 0);
    return *(const struct fuse_entry_out *)wire_data(w, requested, NULL);
}

static struct fuse_attr attributes(struct wire *w, uint64_t node)
{
    uint64_t requested = wire_getattr(w, node);
    ck_assert_int_eq(wire_result(w, requested), 0);
    const struct fuse_attr_out *out = wire_data(w, requested, NULL);
    ck_assert_uint_eq(out->attr_valid, 0);
    ck_assert_uint_eq(out->attr_valid_nsec, 0);
    return out->attr;
}

static void check_read(struct wire_file file, int error, const char *expected)
{
    size_t size;
    uint64_t requested = wire_read(here, file, 0, 100);
    ck_assert_int_eq(wire_result(here, requested), error);
    if (!error) {
        ck_assert_mem_eq(wire_data(here, requested, &size), expected, strlen(expected));
        ck_assert_uint_eq(size, strlen(expected));
    }
}

/* With a look-up between the two locks, or not. */
START_TEST(file_that_was_opened_on_a_lock_of_another_mount_is_stale_when_that_has_ended)
{
    struct wire_file first = lease_there("L", "one");
    struct wire_file reader = wire_opened(here, wire_node(here, wire_lookup(here, "L")), O_RDONLY);
    check_read(reader, 0, "one");
    ck_assert_uint_eq(attributes(here, reader.node).nlink, 1);
    ck_assert_int_eq(wire_close(there, first), 0);
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    if (_i & 1) {
        ck_assert(!wire_exists(here, "L"));
        ck_assert_uint_eq(attributes(here, reader.node).nlink, 0);
    }
    check_read(reader, ESTALE, NULL);
    first = lease_there("L", "two");
    check_read(reader, ESTALE, NULL);
    if (_i & 2) {
        ck_assert_uint_ne(entry(here, "L").nodeid, reader.node);
    }
    ck_assert_uint_eq(attributes(here, reader.node).nlink, 0);
    check_read(reader, ESTALE, NULL);
    uint64_t next = wire_node(here, wire_lookup(here, "L"));
    ck_assert_uint_ne(next, reader.node);
    ck_assert_uint_eq(attributes(here, next).nlink, 1);
    check_read(wire_opened(here, next, O_RDONLY), 0, "two");
    ck_assert_int_eq(wire_close(there, first), 0);
}
END_TEST

static void check_xattr(struct wire *w, uint64_t node, const char *name, const char *expected)
{
    char *value = wire_xattr(w, node, name);
    ck_assert_msg(g_pattern_match_simple(expected, value), "%s is '%s', not '%s'", name, value, expected);
    g_free(value);
}

static int setxattr_result(struct wire *w, uint64_t node, const char *name, const char *value)
{
    return wire_result(w, wire_setxattr(w, node, name, value));
}

static void change_mode(struct wire *w, struct wire_file file, uint32_t mode)
{
    struct fuse_setattr_in in = {.valid = FATTR_MODE, .mode = S_IFREG | mode};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, file.node, NULL, in)), 0);
}

/* --- showing ------------------------------------------------------------------- */

START_TEST(attributes_are_those_of_the_holder_elsewhere)
{
    struct wire_file file = lease_there("L", "content");
    ck_assert_int_eq(
        wire_result(there, wire_setattr(there, file.node, &file,
                                        (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = S_IFREG | 0640})),
        0);
    struct fuse_entry_out found = entry(here, "L");
    ck_assert_uint_eq(found.entry_valid + found.entry_valid_nsec + found.attr_valid + found.attr_valid_nsec, 0);
    struct fuse_attr theirs = attributes(there, file.node), seen = attributes(here, found.nodeid);
    ck_assert_uint_eq(seen.mode, S_IFREG | 0640);
    ck_assert_uint_eq(seen.uid, 1001);
    ck_assert_uint_eq(seen.size, strlen("content"));
    ck_assert_uint_eq(seen.nlink, 1);
    ck_assert_uint_eq(seen.mtime, theirs.mtime);
    ck_assert_uint_eq(seen.ctime, theirs.ctime);
    ck_assert_uint_eq(seen.ctimensec, theirs.ctimensec);
    ck_assert_uint_eq(seen.ino, found.attr.ino);
}
END_TEST

/* A store says how long ago it was granted, and each answer takes another time. */
START_TEST(ctime_of_a_lock_elsewhere_stays_until_there_is_another)
{
    struct wire_file file = lease_there("L", "x");
    struct fuse_entry_out found = entry(here, "L");
    uint64_t ctime = found.attr.ctime;
    uint32_t nanoseconds = found.attr.ctimensec;
    ((struct backend_ticket *)fake_backend_holder(here->fake, "L"))->acquired++;
    struct fuse_attr seen = attributes(here, found.nodeid);
    ck_assert(seen.ctime == ctime && seen.ctimensec == nanoseconds);
    ck_assert_uint_eq(entry(here, "L").attr.ctimensec, nanoseconds);
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    wire_close(there, file);
    wire_advance(here, SECOND);
    lease_there("L", "x");
    ck_assert_uint_gt(entry(here, "L").attr.ctime, ctime);
}
END_TEST

START_TEST(ctime_of_a_foreign_lock_stays)
{
    fake_backend_occupy_plainly(here->fake, "L", "random token", NULL);
    uint64_t ctime = entry(here, "L").attr.ctime;
    wire_advance(here, 5 * SECOND);
    ck_assert_uint_eq(entry(here, "L").attr.ctime, ctime);
}
END_TEST

START_TEST(times_set_elsewhere_are_shown)
{
    struct wire_file file = lease_there("L", "x");
    struct fuse_setattr_in in = {.valid = FATTR_MTIME | FATTR_ATIME, .mtime = 12345, .atime = 54321};
    ck_assert_int_eq(wire_result(there, wire_setattr(there, file.node, &file, in)), 0);
    ck_assert_uint_eq(entry(here, "L").attr.mtime, 12345);
    ck_assert_uint_eq(entry(here, "L").attr.atime, 54321);
}
END_TEST

START_TEST(nothing_of_it_is_kept)
{
    struct wire_file file = lease_there("L", "one");
    uint64_t node = entry(here, "L").nodeid;
    struct wire_file reader = wire_opened(here, node, O_RDONLY);
    ck_assert_int_eq(wire_result(there, wire_write(there, file, 0, "another", 7)), 0);
    ck_assert_uint_eq(attributes(here, node).size, 7);
    uint64_t read = wire_read(here, reader, 0, 100);
    ck_assert_int_eq(wire_result(here, read), 0);
    ck_assert_mem_eq(wire_data(here, read, NULL), "another", 7);
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    ck_assert(!wire_exists(here, "L"));
    ck_assert_uint_eq(attributes(here, node).size, 0); /* of the handle, which is idle */
    ck_assert_int_eq(wire_close(here, reader), 0);
    ck_assert_int_eq(wire_result(here, wire_getattr(here, node)), ESTALE);
}
END_TEST

START_TEST(watchers_are_notified_when_it_is_seen_that_it_went)
{
    lease_there("L", "x");
    entry(here, "L");
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    ck_assert(!wire_has_notification(here, FUSE_NOTIFY_DELETE, "L"));
    ck_assert(!wire_exists(here, "L"));
    while (!wire_has_notification(here, FUSE_NOTIFY_DELETE, "L")) {
    }
}
END_TEST

START_TEST(name_that_goes_between_look_up_and_stat_is_looked_up_again)
{
    lease_there("L", "x");
    uint64_t node = entry(here, "L").nodeid;
    here->pid = wire_child(here);
    wire_opened(here, node, O_RDONLY); /* somebody else has it open */
    here->pid = alice;
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    ck_assert_int_eq(wire_result(here, wire_getattr(here, node)), ESTALE);
}
END_TEST

START_TEST(lock_elsewhere_that_ends_before_it_is_looked_at_shows_whose_it_was)
{
    uint64_t node = 0;
    there->mode = S_IFREG | 0640;
    for (int i = 0; i < 2; i++) {
        wire_created(there, "L", O_RDWR | O_EXCL);
        node = entry(here, "L").nodeid;
        ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
        if (i == 0) {
            ck_assert_int_eq(wire_result(here, wire_getattr(here, node)), ESTALE);
        }
    }
    ck_assert_uint_eq(attributes(here, node).mode, S_IFREG | 0640);
    ck_assert_uint_eq(attributes(here, node).uid, 1001);
}
END_TEST

START_TEST(symbolic_link_elsewhere_is_one)
{
    ck_assert_int_eq(wire_result(there, wire_symlink(there, "L", "the target")), 0);
    struct fuse_entry_out found = entry(here, "L");
    ck_assert_uint_eq(found.attr.mode & S_IFMT, S_IFLNK);
    ck_assert_uint_eq(found.attr.size, strlen("the target"));
    uint64_t read = wire_send(here, FUSE_READLINK, found.nodeid, NULL, 0, NULL, 0);
    ck_assert_int_eq(wire_result(here, read), 0);
    ck_assert_mem_eq(wire_data(here, read, NULL), "the target", 10);
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    lease_there("L", "x");
    ck_assert_int_eq(wire_result(here, wire_getattr(here, found.nodeid)), ESTALE);
    ck_assert_uint_eq(entry(here, "L").attr.mode & S_IFMT, S_IFREG);
}
END_TEST

START_TEST(attributes_of_the_lease_are_shown)
{
    struct wire_file file = lease_there("L", "x");
    uint64_t node = entry(here, "L").nodeid;
    char *token = wire_xattr(there, file.node, "user.lease.token");
    char *owner = g_strdup_printf("elsewhere %d 1001 check_elsewhere", (int)carol);
    check_xattr(here, node, "user.lease.state", "held");
    check_xattr(here, node, "user.lease.kind", "lease");
    check_xattr(here, node, "user.lease.mode", "exclusive");
    check_xattr(here, node, "user.lease.guarantee", "single");
    check_xattr(here, node, "user.lease.owner", owner);
    check_xattr(here, node, "user.lease.token", token);
    check_xattr(here, node, "user.lease.remaining", "??.???");
    check_xattr(here, node, "user.lease.ttl", "30");
    check_xattr(here, node, "user.lease.acquired", "20*Z");
    check_xattr(here, node, "user.lease.waiters", "0");
    uint64_t waiting = wire_flock(here, wire_opened(here, node, O_RDONLY), LOCK_EX);
    ck_assert(wire_waits(here, waiting));
    check_xattr(there, file.node, "user.lease.waiters", "1");
    g_free(token);
    g_free(owner);
}
END_TEST

START_TEST(tab_in_a_command_begins_no_note)
{
    prctl(PR_SET_NAME, "a\tb");
    carol = there->pid = wire_child(there);
    lease_there("L", "x");
    uint64_t node = entry(here, "L").nodeid;
    g_autofree char *owner = g_strdup_printf("elsewhere %d 1001 a b", (int)carol);
    check_xattr(here, node, "user.lease.owner", owner);
    check_xattr(here, node, "user.lease.note", "");
}
END_TEST

START_TEST(ticket_elsewhere_is_one)
{
    wire_created(there, "job-", O_RDWR);
    uint64_t node = entry(here, "job-0000000001").nodeid;
    check_xattr(here, node, "user.lease.kind", "ticket");
    check_xattr(here, node, "user.lease.name", "job-0000000001");
    check_xattr(here, node, "user.lease.position", "0");
    ck_assert_int_eq(wire_result(here, wire_unlink(here, "job-0000000001")), EPERM);
}
END_TEST

START_TEST(of_a_client_that_is_no_mount_its_content_is_shown)
{
    fake_backend_occupy_plainly(here->fake, "L", "random token", NULL);
    struct fuse_entry_out found = entry(here, "L");
    ck_assert_uint_eq(found.attr.mode, S_IFREG | 0666);
    ck_assert_uint_eq(found.attr.uid, 0);
    ck_assert_uint_eq(found.attr.size, strlen("random token"));
    check_xattr(here, found.nodeid, "user.lease.state", "held");
    check_xattr(here, found.nodeid, "user.lease.kind", "lease");
    check_xattr(here, found.nodeid, "user.lease.owner", "? 0 0 ?");
    static const char *const unknown[] = {"token", "acquired", "remaining", "ttl", "position", "name"};
    for (size_t i = 0; i < G_N_ELEMENTS(unknown); i++) {
        char *name = g_strdup_printf("user.lease.%s", unknown[i]);
        ck_assert_int_eq(wire_result(here, wire_getxattr(here, found.nodeid, name)), ENODATA);
        g_free(name);
    }
    /* It is no lease in its first second: who opens it may wait with flock. */
    struct wire_file idle = wire_opened(here, found.nodeid, O_WRONLY);
    ck_assert_int_eq(wire_result(here, wire_write(here, idle, 0, "x", 1)), EBUSY);
    ck_assert_int_eq(wire_result(here, wire_flock(here, idle, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(setxattr_result(here, found.nodeid, "user.lease.check", "0"), ESTALE);
    ck_assert_int_eq(setxattr_result(here, found.nodeid, "user.lease.break", "1"), EPERM);
    here->uid = 0;
    ck_assert_int_eq(setxattr_result(here, found.nodeid, "user.lease.break", "1"), 0);
    ck_assert(!wire_exists(here, "L"));
}
END_TEST

/* What it wrote begins like the meta of a symbolic link. */
START_TEST(what_a_foreign_client_wrote_makes_no_symbolic_link)
{
    fake_backend_occupy_plainly(here->fake, "L", "random token", "1 host 1 1 1001 1001 120777 -");
    struct fuse_entry_out found = entry(here, "L");
    ck_assert_uint_eq(found.attr.mode, S_IFREG | 0666);
    ck_assert_uint_eq(attributes(here, found.nodeid).mode, S_IFREG | 0666);
}
END_TEST

static bool lists(struct wire *w, const char *name)
{
    struct fuse_open_in open = {.flags = O_RDONLY};
    uint64_t opened = wire_send(w, FUSE_OPENDIR, FUSE_ROOT_ID, &open, sizeof open, NULL, 0);
    ck_assert_int_eq(wire_result(w, opened), 0);
    uint64_t fh = ((const struct fuse_open_out *)wire_data(w, opened, NULL))->fh;
    struct fuse_read_in in = {.fh = fh, .offset = 2, .size = 4096};
    uint64_t requested = wire_send(w, FUSE_READDIR, FUSE_ROOT_ID, &in, sizeof in, NULL, 0);
    ck_assert_int_eq(wire_result(w, requested), 0);
    size_t size;
    const char *data = wire_data(w, requested, &size);
    bool found = size && memmem(data, size, name, strlen(name)) != NULL;
    struct fuse_release_in release = {.fh = fh};
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_RELEASEDIR, FUSE_ROOT_ID, &release, sizeof release, NULL, 0)), 0);
    return found;
}

START_TEST(listing_has_the_names_held_elsewhere)
{
    lease_there("far", "x");
    ck_assert(lists(here, "far"));
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "far")), 0);
    ck_assert(!lists(here, "far"));
}
END_TEST

START_TEST(getlk_shows_no_pid_of_another_host)
{
    struct wire_file file = wire_created(there, "L", O_RDWR);
    ck_assert_int_eq(wire_result(there, wire_setlk(there, file, 1, F_WRLCK, 10, 19, false)), 0);
    struct wire_file mine = wire_opened(here, entry(here, "L").nodeid, O_RDWR);
    uint64_t requested = wire_getlk(here, mine, 2, F_RDLCK, 0, 100);
    ck_assert_int_eq(wire_result(here, requested), 0);
    const struct fuse_lk_out *out = wire_data(here, requested, NULL);
    ck_assert_uint_eq(out->lk.type, F_WRLCK);
    ck_assert_uint_eq(out->lk.start, 10);
    ck_assert_uint_eq(out->lk.end, 19);
    ck_assert_int_eq((int32_t)out->lk.pid, -1);
}
END_TEST

/* --- changing --------------------------------------------------------------------- */

START_TEST(what_another_mount_holds_cannot_be_changed)
{
    lease_there("L", "theirs");
    uint64_t node = entry(here, "L").nodeid;
    here->uid = 0;
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFREG | 0600}, owner = {.valid = FATTR_UID, .uid = 5};
    ck_assert_int_eq(wire_result(here, wire_unlink(here, "L")), EPERM);
    ck_assert_int_eq(wire_result(here, wire_rename(here, "L", "M", 0)), EPERM);
    ck_assert_int_eq(wire_result(here, wire_link(here, node, "M")), EPERM);
    ck_assert_int_eq(wire_result(here, wire_setattr(here, node, NULL, mode)), EPERM);
    ck_assert_int_eq(wire_result(here, wire_setattr(here, node, NULL, owner)), EPERM);
    ck_assert_int_eq(wire_result(here, wire_setattr(here, node, NULL, (struct fuse_setattr_in){.valid = FATTR_SIZE})),
                     EPERM);
    ck_assert_int_eq(wire_result(here, wire_touch(here, node, NULL)), EBUSY);
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.ttl", "1h"), EPERM);
    struct wire_file idle = wire_opened(here, node, O_RDWR | O_TRUNC);
    ck_assert_int_eq(wire_result(here, wire_setattr(here, node, &idle, (struct fuse_setattr_in){.valid = FATTR_SIZE})),
                     EBUSY);
    ck_assert_int_eq(wire_result(here, wire_touch(here, node, &idle)), EBUSY);
    ck_assert_int_eq(wire_result(here, wire_setattr(here, node, &idle, mode)), EPERM);
    ck_assert_int_eq(wire_result(here, wire_write(here, idle, 0, "x", 1)), EBUSY);
    ck_assert_int_eq(wire_close(here, idle), EBUSY);
    ck_assert_uint_eq(attributes(here, node).size, strlen("theirs"));
    ck_assert_uint_eq(attributes(here, node).mode & 0777, entry(there, "L").attr.mode & 0777);
}
END_TEST

START_TEST(own_lease_cannot_move_onto_anothers)
{
    lease_there("L", "x");
    wire_close(here, wire_created(here, "mine", O_WRONLY));
    ck_assert_int_eq(wire_result(here, wire_rename(here, "mine", "L", 0)), EBUSY);
    ck_assert_int_eq(wire_result(here, wire_rename(here, "mine", "L", RENAME_NOREPLACE)), EEXIST);
    ck_assert_int_eq(wire_result(here, wire_mkdir(here, "L")), EEXIST);
    ck_assert_int_eq(wire_result(here, wire_symlink(here, "L", "t")), EEXIST);
    ck_assert_int_eq(wire_result(here, wire_rmdir(here, "L")), ENOTDIR);
}
END_TEST

START_TEST(token_checks_and_releases_from_anywhere)
{
    struct wire_file file = lease_there("L", "x");
    uint64_t node = entry(here, "L").nodeid;
    char *token = wire_xattr(here, node, "user.lease.token");
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.release", token), EACCES); /* it is not writable */
    change_mode(there, file, 0666);
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.check", token), 0);
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.check", "1000000"), ESTALE);
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.release", "1000000"), ESTALE);
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.release", token), 0);
    ck_assert(!wire_exists(here, "L"));
    ck_assert(!wire_exists(there, "L"));
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.check", token), ESTALE);
    ck_assert_int_eq(wire_result(there, wire_write(there, file, 0, "y", 1)), ESTALE);
    g_free(token);
}
END_TEST

/* Of this mount's user, who shares with who has held it longer on the other. */
static struct wire_file joined(const char *name, struct wire_file *ret_first)
{
    there->mode = 0640;
    *ret_first = wire_created(there, name, O_RDONLY);
    ck_assert_int_eq(wire_result(there, wire_flock(there, *ret_first, LOCK_SH)), 0);
    struct wire_file file = wire_opened(here, entry(here, name).nodeid, O_RDWR);
    ck_assert_int_eq(wire_result(here, wire_flock(here, file, LOCK_SH)), 0);
    return file;
}

START_TEST(who_joins_from_another_mount_does_not_become_the_files_owner)
{
    struct wire_file first, second = joined("L", &first);
    ck_assert_uint_eq(attributes(here, second.node).uid, 1001);
    ck_assert_uint_eq(attributes(here, second.node).mode, S_IFREG | 0640);
    ck_assert_uint_eq(attributes(there, first.node).uid, 1001);
    struct fuse_setattr_in open = {.valid = FATTR_MODE, .mode = S_IFREG | 0666};
    ck_assert_int_eq(wire_result(here, wire_setattr(here, second.node, NULL, open)), EPERM);
    ck_assert_uint_eq(attributes(there, first.node).mode, S_IFREG | 0640);
    ck_assert_int_eq(wire_result(there, wire_flock(there, first, LOCK_UN)), 0);
    ck_assert_uint_eq(attributes(here, second.node).uid, 1000); /* nobody else holds it now */
    ck_assert_uint_eq(attributes(there, first.node).uid, 1000);
}
END_TEST

START_TEST(who_shares_with_another_mounts_user_may_not_break)
{
    struct wire_file first, second = joined("L", &first);
    ck_assert_int_eq(setxattr_result(here, second.node, "user.lease.break", "1"), EPERM);
    ck_assert_int_eq(setxattr_result(there, first.node, "user.lease.break", "1"), EPERM);
    ck_assert_int_eq(wire_result(there, wire_fsync(there, first)), 0);
    ck_assert_int_eq(wire_result(here, wire_fsync(here, second)), 0);
    ck_assert_int_eq(wire_result(there, wire_flock(there, first, LOCK_UN)), 0);
    ck_assert_int_eq(setxattr_result(there, first.node, "user.lease.break", "1"), EPERM);
    ck_assert_int_eq(setxattr_result(here, second.node, "user.lease.break", "1"), 0);
}
END_TEST

START_TEST(user_breaks_what_is_all_his_on_two_mounts)
{
    there->uid = 1000;
    struct wire_file first, second = joined("L", &first);
    ck_assert_int_eq(setxattr_result(here, second.node, "user.lease.break", "1"), 0);
    ck_assert_int_eq(wire_result(there, wire_fsync(there, first)), ESTALE);
    ck_assert_int_eq(wire_result(here, wire_fsync(here, second)), ESTALE);
}
END_TEST

START_TEST(older_handle_does_not_read_what_another_mounts_user_keeps_to_himself)
{
    here->mode = 0666;
    struct wire_file old = wire_created(here, "L", O_RDONLY);
    there->mode = 0600;
    lease_there("L", "secret");
    ck_assert_int_eq(wire_result(here, wire_read(here, old, 0, 100)), EACCES);
    ck_assert_uint_eq(attributes(here, old.node).mode, S_IFREG | 0600);
}
END_TEST

static void forged(void *arg, enum backend_result result, struct backend_ticket *ticket,
                   const struct backend_info *info)
{
    (void)info;
    ck_assert_int_eq(result, BACKEND_OK);
    *(struct backend_ticket **)arg = ticket;
}

START_TEST(mode_of_a_lock_is_0777_whatever_the_store_says)
{
    struct meta meta = {.host = "h", .boot = "b", .command = "c", .uid = 1001, .mode = S_IFREG | 06755};
    GBytes *bytes = meta_encode(&meta);
    struct backend_claim claim = {.kind = BACKEND_LEASE, .ttl = 60000, .meta = bytes};
    struct backend_ticket *ticket = NULL;
    backend_acquire(fake_backend_head(there->fake), "L", &claim, forged, &ticket);
    g_bytes_unref(bytes);
    ck_assert_uint_eq(attributes(here, entry(here, "L").nodeid).mode, S_IFREG | 0755);
    backend_release(fake_backend_head(there->fake), ticket, NULL, NULL);
}
END_TEST

START_TEST(mode_changed_under_a_byte_range_is_seen_elsewhere)
{
    there->mode = 0666;
    struct wire_file file = wire_created(there, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(there, wire_setlk(there, file, 7, F_RDLCK, 0, 9, false)), 0);
    ck_assert_uint_eq(attributes(here, entry(here, "L").nodeid).mode, S_IFREG | 0666);
    change_mode(there, file, 0600);
    ck_assert_uint_eq(attributes(here, entry(here, "L").nodeid).mode, S_IFREG | 0600);
    ck_assert(!wire_has_notification(there, FUSE_NOTIFY_DELETE, "L"));
}
END_TEST

START_TEST(break_is_for_root_and_the_holders_user_elsewhere)
{
    struct wire_file file = lease_there("L", "x");
    uint64_t node = entry(here, "L").nodeid;
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.break", "1"), EPERM);
    here->uid = 1001;
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.break", "1"), 0);
    ck_assert(!wire_exists(there, "L"));
    ck_assert_int_eq(wire_result(there, wire_read(there, file, 0, 1)), ESTALE);
    check_xattr(there, file.node, "user.lease.state", "lost");
    ck_assert_int_eq(setxattr_result(here, node, "user.lease.break", "1"), ESTALE);
}
END_TEST

START_TEST(flock_waits_for_another_mount)
{
    struct wire_file theirs = wire_created(there, "L", O_RDONLY);
    struct wire_file mine = wire_created(here, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(there, wire_flock(there, theirs, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(here, wire_flock(here, mine, LOCK_EX | LOCK_NB)), EAGAIN);
    uint64_t waiting = wire_flock(here, mine, LOCK_EX);
    ck_assert(wire_waits(here, waiting));
    ck_assert_int_eq(wire_result(there, wire_flock(there, theirs, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(here, waiting), 0);
    check_xattr(here, mine.node, "user.lease.state", "held");
    check_xattr(there, theirs.node, "user.lease.kind", "flock");
}
END_TEST

START_TEST(holders_that_share_are_both_shown)
{
    struct wire_file theirs = wire_created(there, "L", O_RDONLY);
    struct wire_file mine = wire_created(here, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(there, wire_flock(there, theirs, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(here, wire_flock(here, mine, LOCK_SH | LOCK_NB)), 0);
    check_xattr(here, mine.node, "user.lease.owner", "*\nelsewhere *");
}
END_TEST

/* --- directories -------------------------------------------------------------------- */

START_TEST(directory_of_another_mount_is_seen_as_it_is)
{
    ck_assert_int_eq(wire_result(there, wire_mkdir(there, "D")), 0);
    uint64_t made = entry(there, "D").nodeid, node = entry(here, "D").nodeid;
    ck_assert_int_eq(setxattr_result(there, made, "user.lease.ttl", "5m"), 0);
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFDIR | 0700};
    ck_assert_int_eq(wire_result(there, wire_setattr(there, made, NULL, mode)), 0);
    ck_assert_uint_eq(attributes(here, node).mode, S_IFDIR | 0700);
    check_xattr(here, node, "user.lease.ttl", "300");
    ck_assert_int_eq(wire_result(there, wire_rmdir(there, "D")), 0);
    ck_assert_int_eq(wire_result(here, wire_getattr(here, node)), ENOENT);
    ck_assert(!wire_exists(here, "D"));
    ck_assert_int_eq(wire_result(here, wire_mkdir(here, "D")), 0); /* though the kernel still knows the old one */
    ck_assert_int_eq(wire_result(here, wire_rmdir(here, "D")), 0);
    lease_there("D", "a file");
    ck_assert_uint_eq(entry(here, "D").attr.mode & S_IFMT, S_IFREG);
}
END_TEST

/* Until its locks are put back, with it. */
START_TEST(directory_that_the_store_forgot_stays_where_a_lock_is_held_in_it)
{
    ck_assert_int_eq(wire_result(here, wire_mkdir(here, "D")), 0);
    uint64_t node = here->directory = entry(here, "D").nodeid;
    wire_created(here, "x", O_RDWR | O_EXCL);
    here->directory = FUSE_ROOT_ID;
    fake_backend_forget_directory(here->fake, "D");
    ck_assert_uint_eq(entry(here, "D").nodeid, node);
    ck_assert_uint_eq(attributes(here, node).mode & S_IFMT, S_IFDIR);
    ck_assert_int_eq(wire_result(there, wire_mkdir(there, "D")), 0);
    here->directory = entry(here, "D").nodeid;
    ck_assert_int_eq(wire_result(here, wire_unlink(here, "x")), 0);
    here->directory = FUSE_ROOT_ID;
    fake_backend_forget_directory(here->fake, "D");
    ck_assert(!wire_exists(here, "D"));
}
END_TEST

START_TEST(directory_made_twice_is_there_once)
{
    fake_backend_hold(here->fake, FAKE_MKDIR, true);
    uint64_t late = wire_mkdir(here, "D");
    ck_assert(wire_waits(here, late));
    there->uid = 1001;
    ck_assert_int_eq(wire_result(there, wire_mkdir(there, "D")), 0);
    uint64_t node = entry(here, "D").nodeid;
    fake_backend_answer(here->fake, FAKE_MKDIR, 0);
    ck_assert_int_eq(wire_result(here, late), EEXIST);
    ck_assert_uint_eq(entry(here, "D").nodeid, node);
    ck_assert_uint_eq(entry(here, "D").attr.uid, 1001);
}
END_TEST

START_TEST(attributes_of_a_directory_that_another_mount_has_set_stay)
{
    ck_assert_int_eq(wire_result(there, wire_mkdir(there, "D")), 0);
    uint64_t nodes[2][2] = {{FUSE_ROOT_ID, FUSE_ROOT_ID}, {entry(here, "D").nodeid, entry(there, "D").nodeid}};
    here->uid = there->uid = 0;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(setxattr_result(there, nodes[i][1], "user.lease.ttl", "5m"), 0);
        ck_assert_int_eq(setxattr_result(here, nodes[i][0], "user.lease.width", "3\n"), 0);
        struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFDIR | 0755};
        ck_assert_int_eq(setxattr_result(there, nodes[i][1], "user.lease.delay", "2s"), 0);
        ck_assert_int_eq(wire_result(here, wire_setattr(here, nodes[i][0], NULL, mode)), 0);
        check_xattr(there, nodes[i][1], "user.lease.ttl", "300");
        check_xattr(there, nodes[i][1], "user.lease.width", "3");
        check_xattr(there, nodes[i][1], "user.lease.delay", "2");
    }
}
END_TEST

/* The store has let alice in before bob, and says so after it has told of him. */
START_TEST(file_belongs_to_the_longest_holder_in_any_order_of_the_grants)
{
    static const uid_t uids[] = {1000, 1002};
    pid_t pids[] = {alice, wire_child(here)};
    struct wire_file files[2];
    uint64_t requested[2];
    fake_backend_occupy(here->fake, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    for (int i = 0; i < 2; i++) {
        here->pid = pids[i];
        here->uid = uids[i];
        files[i] = wire_created(here, "L", O_RDONLY);
        requested[i] =
            _i ? wire_setlk(here, files[i], 7 + (uint64_t)i, F_RDLCK, 0, 9, true) : wire_flock(here, files[i], LOCK_SH);
        ck_assert(wire_waits(here, requested[i]));
    }
    fake_backend_vacate(here->fake, "L");
    fake_backend_reverse_events(here->fake);
    ck_assert_int_eq(wire_result(here, requested[0]), 0);
    ck_assert_int_eq(wire_result(here, requested[1]), 0);
    ck_assert_uint_eq(attributes(here, files[0].node).uid, uids[0]);
    ck_assert_int_eq(wire_result(here, wire_release(here, files[0])), 0);
    ck_assert_uint_eq(attributes(here, files[1].node).uid, uids[1]);
}
END_TEST

/* By its path another node is found: its own symbolic link, or what it has moved there. */
START_TEST(lock_through_a_file_of_before_the_name_was_its_own_lease_has_that_files_attributes)
{
    struct wire_file file = wire_created(here, "L", O_RDWR);
    ck_assert_int_eq(wire_result(here, wire_flock(here, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(here, wire_flock(here, file, LOCK_UN)), 0);
    if (_i & 1) {
        ck_assert_int_eq(wire_result(here, wire_symlink(here, "L", "t")), 0);
    } else {
        ck_assert_int_eq(wire_close(here, wire_created(here, "M", O_RDWR | O_EXCL)), 0);
        ck_assert_int_eq(wire_result(here, wire_rename(here, "M", "L", 0)), 0);
    }
    uint64_t requested = _i & 2 ? wire_setlk(here, file, 7, F_WRLCK, 0, 9, false) : wire_flock(here, file, LOCK_EX);
    ck_assert_int_eq(wire_result(here, requested), 0);
    ck_assert_uint_eq(attributes(here, file.node).mode & S_IFMT, S_IFREG);
    ck_assert_int_eq(wire_result(here, wire_touch(here, file.node, &file)), 0);
    check_xattr(here, file.node, "user.lease.state", "held");
    ck_assert_int_eq(wire_result(here, wire_fsync(here, file)), 0);
    ck_assert_int_eq(wire_result(here, wire_write(here, file, 0, "x", 1)), 0);
    ck_assert_int_eq(wire_result(here, wire_read(here, file, 0, 9)), 0);
    ck_assert_int_eq(wire_close(here, file), 0);
    ck_assert_int_eq(wire_result(here, wire_lookup(here, "L")), ENOENT);
}
END_TEST

/* It has lost nothing, so a close that succeeds would say that it has the lock. */
START_TEST(close_fails_where_times_were_refused_since_another_has_the_name_as_a_symbolic_link)
{
    struct wire_file file = wire_created(here, "L", O_RDWR);
    wire_advance(here, 2 * SECOND);
    ck_assert_int_eq(wire_result(there, wire_symlink(there, "L", "t")), 0);
    struct fuse_setattr_in cut = {.valid = FATTR_SIZE};
    uint64_t requested = _i ? wire_setattr(here, file.node, &file, cut) : wire_touch(here, file.node, NULL);
    ck_assert_int_eq(wire_result(here, requested), EBUSY);
    ck_assert_int_eq(wire_close(here, file), EBUSY);
}
END_TEST

/* A Python program calls fstat(2) after each open(2), and ESTALE would be an exception. */
START_TEST(open_file_is_shown_while_another_mount_has_the_name_as_a_link_or_a_directory)
{
    struct wire_file file = wire_opened(here, wire_created(here, "L", O_RDONLY).node, O_RDONLY);
    ck_assert_int_eq(wire_result(there, _i ? wire_mkdir(there, "L") : wire_symlink(there, "L", "the target")), 0);
    ck_assert_uint_eq(attributes(here, file.node).mode & S_IFMT, S_IFREG);
    ck_assert_uint_eq(attributes(here, file.node).uid, 1000);
    ck_assert_uint_eq(attributes(here, file.node).size, 0);
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFREG | 0600};
    ck_assert_int_eq(wire_result(here, wire_setattr(here, file.node, NULL, mode)), _i ? 0 : EPERM);
    ck_assert_int_eq(wire_result(here, wire_lookup(here, "L")), 0);
    ck_assert_uint_eq(entry(here, "L").attr.mode & S_IFMT, _i ? S_IFDIR : S_IFLNK);
    here->pid = wire_child(here); /* it has no such file, so it means the name */
    ck_assert_int_eq(wire_result(here, wire_getattr(here, file.node)), ESTALE);
}
END_TEST

/* The one had a lock that was broken; the other never had any, and its close is asked about what the caller has now. */
START_TEST(times_are_refused_by_the_file_that_lost_nothing_where_a_process_has_two)
{
    struct wire_file lost = wire_created(here, "L", O_RDWR);
    ck_assert_int_eq(wire_result(here, wire_flock(here, lost, LOCK_EX)), 0);
    uint64_t node = entry(there, "L").nodeid;
    there->uid = 0;
    ck_assert_int_eq(setxattr_result(there, node, "user.lease.break", "1"), 0);
    there->uid = 1001;
    lease_there("L", "x");
    ck_assert_int_eq(wire_result(here, wire_touch(here, lost.node, NULL)), ESTALE);
    struct wire_file file = wire_opened(here, lost.node, O_RDWR);
    ck_assert_int_eq(wire_result(here, wire_touch(here, file.node, NULL)), EBUSY);
    ck_assert_int_eq(wire_close(here, file), EBUSY);
    ck_assert_int_eq(wire_close(here, lost), 0);
}
END_TEST

START_TEST(times_are_lost_by_a_file_that_is_open_only_for_reading)
{
    struct wire_file file = wire_created(here, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(here, wire_flock(here, file, LOCK_EX)), 0);
    uint64_t node = entry(there, "L").nodeid;
    there->uid = 0;
    ck_assert_int_eq(setxattr_result(there, node, "user.lease.break", "1"), 0);
    there->uid = 1001;
    if (_i) { /* by a process of the same mount */
        here->pid = wire_child(here);
        wire_created(here, "L", O_RDWR | O_EXCL);
        here->pid = alice;
    } else {
        lease_there("L", "x");
    }
    ck_assert_int_eq(wire_result(here, wire_touch(here, file.node, NULL)), ESTALE);
}
END_TEST

/* The kernel looks the name up again once: what it finds then is shown, however long the store takes to answer. */
START_TEST(looker_that_was_sent_back_is_shown_what_it_found_though_the_store_is_slow)
{
    struct wire_file file = lease_there("L", "one");
    uint64_t node = wire_node(here, wire_lookup(here, "L"));
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    ck_assert_int_eq(wire_result(here, wire_getattr(here, node)), ESTALE);
    ck_assert_int_eq(wire_close(there, file), 0);
    file = lease_there("L", "two");
    node = wire_node(here, wire_lookup(here, "L"));
    ck_assert_int_eq(wire_result(there, wire_unlink(there, "L")), 0);
    fake_backend_hold(here->fake, FAKE_STAT, true);
    uint64_t looked = wire_getattr(here, node);
    ck_assert(wire_waits(here, looked));
    wire_advance(here, 2 * SECOND);
    fake_backend_hold(here->fake, FAKE_STAT, false);
    fake_backend_answer(here->fake, FAKE_STAT, 0);
    ck_assert_int_eq(wire_result(here, looked), 0);
    ck_assert_int_eq(wire_close(there, file), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: held elsewhere");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, file_that_was_opened_on_a_lock_of_another_mount_is_stale_when_that_has_ended, 0, 4);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, attributes_are_those_of_the_holder_elsewhere);
    tcase_add_test(cases, ctime_of_a_lock_elsewhere_stays_until_there_is_another);
    tcase_add_test(cases, ctime_of_a_foreign_lock_stays);
    tcase_add_test(cases, times_set_elsewhere_are_shown);
    tcase_add_test(cases, nothing_of_it_is_kept);
    tcase_add_test(cases, watchers_are_notified_when_it_is_seen_that_it_went);
    tcase_add_test(cases, name_that_goes_between_look_up_and_stat_is_looked_up_again);
    tcase_add_test(cases, lock_elsewhere_that_ends_before_it_is_looked_at_shows_whose_it_was);
    tcase_add_test(cases, symbolic_link_elsewhere_is_one);
    tcase_add_test(cases, attributes_of_the_lease_are_shown);
    tcase_add_test(cases, tab_in_a_command_begins_no_note);
    tcase_add_test(cases, ticket_elsewhere_is_one);
    tcase_add_test(cases, of_a_client_that_is_no_mount_its_content_is_shown);
    tcase_add_test(cases, what_a_foreign_client_wrote_makes_no_symbolic_link);
    tcase_add_test(cases, listing_has_the_names_held_elsewhere);
    tcase_add_test(cases, getlk_shows_no_pid_of_another_host);
    tcase_add_test(cases, what_another_mount_holds_cannot_be_changed);
    tcase_add_test(cases, own_lease_cannot_move_onto_anothers);
    tcase_add_test(cases, token_checks_and_releases_from_anywhere);
    tcase_add_test(cases, who_joins_from_another_mount_does_not_become_the_files_owner);
    tcase_add_test(cases, who_shares_with_another_mounts_user_may_not_break);
    tcase_add_test(cases, user_breaks_what_is_all_his_on_two_mounts);
    tcase_add_test(cases, older_handle_does_not_read_what_another_mounts_user_keeps_to_himself);
    tcase_add_test(cases, mode_of_a_lock_is_0777_whatever_the_store_says);
    tcase_add_test(cases, mode_changed_under_a_byte_range_is_seen_elsewhere);
    tcase_add_test(cases, break_is_for_root_and_the_holders_user_elsewhere);
    tcase_add_test(cases, flock_waits_for_another_mount);
    tcase_add_test(cases, holders_that_share_are_both_shown);
    tcase_add_test(cases, directory_of_another_mount_is_seen_as_it_is);
    tcase_add_test(cases, directory_that_the_store_forgot_stays_where_a_lock_is_held_in_it);
    tcase_add_test(cases, directory_made_twice_is_there_once);
    tcase_add_test(cases, attributes_of_a_directory_that_another_mount_has_set_stay);
    tcase_add_loop_test(cases, file_belongs_to_the_longest_holder_in_any_order_of_the_grants, 0, 2);
    tcase_add_loop_test(cases, lock_through_a_file_of_before_the_name_was_its_own_lease_has_that_files_attributes, 0,
                        4);
    tcase_add_loop_test(cases, close_fails_where_times_were_refused_since_another_has_the_name_as_a_symbolic_link, 0,
                        2);
    tcase_add_loop_test(cases, open_file_is_shown_while_another_mount_has_the_name_as_a_link_or_a_directory, 0, 2);
    tcase_add_test(cases, times_are_refused_by_the_file_that_lost_nothing_where_a_process_has_two);
    tcase_add_loop_test(cases, times_are_lost_by_a_file_that_is_open_only_for_reading, 0, 2);
    tcase_add_test(cases, looker_that_was_sent_back_is_shown_what_it_found_though_the_store_is_slow);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}

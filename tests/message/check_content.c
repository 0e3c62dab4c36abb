/* The content of a lock's file where one file, or one process, has several locks on it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fs/hold/quota.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

static void set_up(void)
{
    wire_setup_with(BACKEND_CAN_RANGE | BACKEND_SOLE_AUTHORITY);
}

static void flock_by(struct wire_file file, int operation)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, operation)), 0);
}

/* Of a lock owner with the number of the process, as its FLUSH has it. */
static void records(struct wire_file file, uint32_t type, uint64_t start, uint64_t end)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, (uint64_t)w->pid, type, start, end, false)), 0);
}

static void write_at(struct wire_file file, uint64_t offset, const char *text)
{
    ck_assert_int_eq(wire_result(w, wire_write(w, file, offset, text, strlen(text))), 0);
}

static void change(uint64_t node, struct fuse_setattr_in in)
{
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, in)), 0);
}

/* A record lock, and then a flock. */
static struct wire_file locked_twice(void)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    records(file, F_WRLCK, 0, 9);
    flock_by(file, LOCK_EX | LOCK_NB);
    return file;
}

START_TEST(what_is_written_is_read_whichever_lock_came_first)
{
    struct wire_file file = locked_twice();
    write_at(file, 0, "text");
    check_content(file, "text");
    write_at(file, 2, "n");
    check_content(file, "tent");
    ck_assert_uint_eq(attributes(file.node).size, 4);
    change(file.node, (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = 2});
    check_content(file, "te");
}
END_TEST

START_TEST(content_and_rights_end_with_their_lock)
{
    uint64_t const last[] = {INT64_MAX, 9};
    for (size_t i = 0; i < G_N_ELEMENTS(last); i++) {
        struct wire_file file = locked_twice();
        struct fuse_attr before = attributes(file.node);
        write_at(file, 0, "text");
        change(file.node, (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = S_IFREG | 0600});
        change(file.node, (struct fuse_setattr_in){.valid = FATTR_ATIME | FATTR_MTIME, .atime = 7, .mtime = 8});
        records(file, F_UNLCK, 0, last[i]);
        ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
        check_content(file, "");
        struct fuse_attr seen = attributes(file.node);
        ck_assert_uint_eq(seen.size, 0);
        ck_assert_uint_eq(seen.mode, before.mode);
        ck_assert_uint_ne(seen.mtime, 8);
        ck_assert_int_eq(wire_close(w, file), 0);
        ck_assert(!wire_exists(w, "L"));
    }
}
END_TEST

START_TEST(content_ends_when_another_file_of_the_process_is_closed)
{
    struct wire_file file = locked_twice();
    write_at(file, 0, "text");
    struct wire_file other = wire_opened(w, file.node, O_RDONLY);
    ck_assert_int_eq(wire_close(w, other), 0); /* that ends the record lock */
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    check_content(file, "");
    write_at(file, 0, "s");
    check_content(file, "s");
}
END_TEST

START_TEST(content_stays_when_some_of_the_bytes_are_given_up)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    flock_by(file, LOCK_EX);
    write_at(file, 0, "text");
    records(file, F_WRLCK, 0, 9);
    records(file, F_WRLCK, 20, 29);
    flock_by(file, LOCK_UN);
    check_content(file, "");
    write_at(file, 0, "text");
    records(file, F_UNLCK, 0, 9);
    check_content(file, "text");
    records(file, F_WRLCK, 0, 9);
    check_content(file, "text");
}
END_TEST

START_TEST(content_ends_when_the_first_is_released_by_its_token)
{
    struct wire_file file = locked_twice();
    write_at(file, 0, "text");
    char *token = g_strdup_printf("%" G_GUINT64_FORMAT, fake_backend_holder(w->fake, "L")->fence);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.release", token)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_ptr_nonnull(fake_backend_holder(w->fake, "L"));
    w->pid = bob;
    struct wire_file reader = wire_opened(w, file.node, O_RDONLY);
    check_content(reader, "");
    g_free(token);
}
END_TEST

START_TEST(what_was_cut_stays_cut)
{
    struct wire_file file = locked_twice();
    write_at(file, 0, "text");
    records(file, F_WRLCK, 20, 29);
    records(file, F_UNLCK, 20, 29);
    change(file.node, (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = 0});
    records(file, F_UNLCK, 0, INT64_MAX);
    check_content(file, "");
}
END_TEST

/* A child that was forked has the file, too, and a lock owner of its own. */
START_TEST(who_locks_through_one_file_writes_what_is_shown)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    records(file, F_WRLCK, 0, 9);
    w->pid = bob;
    records(file, F_WRLCK, 10, 19);
    write_at(file, 0, "child");
    w->pid = alice;
    check_content(file, "child");
    write_at(file, 5, "ren");
    check_content(file, "children");
    records(file, F_UNLCK, 0, 9);
    check_content(file, "");
}
END_TEST

START_TEST(what_a_process_writes_through_a_second_file_is_shown_when_the_first_has_ended)
{
    struct wire_file first = wire_created(w, "L", O_RDWR), second = wire_opened(w, first.node, O_RDWR);
    flock_by(first, LOCK_SH);
    flock_by(second, LOCK_SH);
    write_at(second, 0, "text");
    check_content(first, "");
    ck_assert_int_eq(wire_close(w, first), 0);
    check_content(second, "text");
}
END_TEST

START_TEST(what_is_not_shown_yet_is_kept)
{
    w->pid = bob;
    struct wire_file others = wire_created(w, "L", O_RDWR);
    flock_by(others, LOCK_SH);
    write_at(others, 0, "bob's");
    w->pid = alice;
    struct wire_file file = wire_opened(w, others.node, O_RDWR);
    records(file, F_RDLCK, 0, 9);
    flock_by(file, LOCK_SH);
    write_at(file, 0, "tent");
    write_at(file, 2, "x");
    check_content(others, "bob's");
    flock_by(file, LOCK_UN);
    w->pid = bob;
    flock_by(others, LOCK_UN);
    check_content(file, "text");
}
END_TEST

START_TEST(strangers_content_goes_on_with_nobody)
{
    w->pid = bob;
    struct wire_file others = wire_created(w, "L", O_RDWR);
    flock_by(others, LOCK_SH);
    write_at(others, 0, "bob's");
    w->pid = alice;
    struct wire_file file = wire_opened(w, others.node, O_RDWR);
    flock_by(file, LOCK_SH);
    w->pid = bob;
    flock_by(others, LOCK_UN);
    check_content(file, "");
}
END_TEST

/* A file of another user that was passed to this process, which locks by it and by one of its own. */
START_TEST(what_is_had_through_another_users_file_goes_on_with_nothing_of_ones_own)
{
    bool const flocks[] = {true, false};
    for (size_t i = 0; i < G_N_ELEMENTS(flocks); i++) {
        w->uid = 1001;
        struct wire_file passed = wire_created(w, "L", O_RDWR);
        w->uid = 1000;
        struct wire_file own = wire_opened(w, passed.node, O_RDWR);
        flocks[i] ? flock_by(passed, LOCK_SH) : records(passed, F_RDLCK, 0, 9);
        write_at(passed, 0, "theirs");
        change(own.node, (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = S_IFREG | 0600});
        flock_by(own, LOCK_SH);
        ck_assert_uint_eq(attributes(own.node).uid, 1001);
        flocks[i] ? flock_by(passed, LOCK_UN) : records(passed, F_UNLCK, 0, INT64_MAX);
        struct fuse_attr seen = attributes(own.node);
        ck_assert_uint_eq(seen.uid, 1000);
        ck_assert_uint_eq(seen.size, 0);
        ck_assert_int_eq(wire_close(w, own), 0);
        ck_assert_int_eq(wire_close(w, passed), 0);
        ck_assert(!wire_exists(w, "L"));
    }
}
END_TEST

START_TEST(content_that_has_ended_takes_no_room)
{
    quota_free(w->fs->quota);
    w->fs->quota = quota_new(&(struct quota_limits){.user_locks = 8, .user_content = 6});
    w->uid = 1000;
    struct wire_file file = locked_twice();
    records(file, F_WRLCK, 20, 29);
    write_at(file, 0, "text");
    records(file, F_UNLCK, 20, 29);
    write_at(file, 4, "ed");
    check_content(file, "texted");
    records(file, F_UNLCK, 0, 9);
    check_content(file, "");
    write_at(file, 0, "others");
    check_content(file, "others");
}
END_TEST

START_TEST(statfs_shows_what_its_caller_may_still_have)
{
    static const struct {
        uid_t uid;
        uint64_t names, blocks;
    } callers[] = {{1000, 7, 3}, {1001, 8, 3}, {0, UINT32_MAX, UINT32_MAX}};
    quota_free(w->fs->quota);
    w->fs->quota = quota_new(&(struct quota_limits){.user_locks = 8, .user_content = 3 * 4096});
    w->uid = 1000;
    wire_created(w, "L", O_RDWR | O_EXCL);
    for (size_t i = 0; i < G_N_ELEMENTS(callers); i++) {
        w->uid = callers[i].uid;
        uint64_t got = wire_send(w, FUSE_STATFS, FUSE_ROOT_ID, NULL, 0, NULL, 0);
        ck_assert_int_eq(wire_result(w, got), 0);
        const struct fuse_statfs_out *out = wire_data(w, got, NULL);
        ck_assert_uint_eq(out->st.ffree, callers[i].names);
        ck_assert_uint_eq(out->st.bfree, callers[i].blocks);
    }
}
END_TEST

static int lease_of_user(uid_t uid, const char *name)
{
    w->uid = uid;
    return wire_result(w, wire_create(w, name, O_RDWR | O_EXCL));
}

START_TEST(total_leaves_room_for_the_next_user)
{
    quota_free(w->fs->quota);
    w->fs->quota = quota_new(&(struct quota_limits){.locks = 8, .content = 20});
    w->uid = 1000;
    uint64_t got = wire_send(w, FUSE_STATFS, FUSE_ROOT_ID, NULL, 0, NULL, 0);
    ck_assert_int_eq(wire_result(w, got), 0);
    ck_assert_uint_eq(((const struct fuse_statfs_out *)wire_data(w, got, NULL))->st.ffree, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(lease_of_user(1000, (const char *[]){"A", "B", "C", "D"}[i]), 0);
    }
    ck_assert_int_eq(lease_of_user(1000, "E"), EDQUOT); /* it has half */
    ck_assert_int_eq(lease_of_user(1001, "E"), 0);
    ck_assert_int_eq(lease_of_user(1001, "F"), 0);
    ck_assert_int_eq(lease_of_user(1001, "G"), EDQUOT);
    ck_assert_int_eq(lease_of_user(1002, "G"), 0);
    ck_assert_int_eq(lease_of_user(1002, "H"), EDQUOT);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "dir")), EDQUOT);
    ck_assert_int_eq(lease_of_user(0, "root"), 0);
    w->uid = 1000; /* one that has more than its share by now goes on with what it has */
    struct wire_file file = wire_opened(w, wire_node(w, wire_lookup(w, "A")), O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "0123456789", 10)), EDQUOT);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "D")), 0);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "C")), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "0123456789", 10)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 10, "x", 1)), EDQUOT);
    ck_assert_int_eq(lease_of_user(1003, "I"), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 3, "x", 1)), 0);
}
END_TEST

START_TEST(names_that_stay_refused_leave_the_total_when_they_are_free)
{
    struct quota *quota = quota_new(&(struct quota_limits){.locks = 4});
    quota_charge_until(quota, 1000, clock_now() + 500);
    quota_charge_until(quota, 1000, clock_now() + 500);
    quota_charge(quota, 1001, 2, 0);
    ck_assert(quota_exceeded(quota, 1001));
    wire_let_time_pass(1500);
    ck_assert(!quota_exceeded(quota, 1001));
    quota_free(quota);
}
END_TEST

START_TEST(directory_is_a_name_of_the_quota)
{
    quota_free(w->fs->quota);
    w->fs->quota = quota_new(&(struct quota_limits){.user_locks = 1});
    w->uid = 1000;
    wire_created(w, "L", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), EDQUOT);
    w->uid = 0;
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), 0);
}
END_TEST

/* While a thread of its process waits for other bytes. */
START_TEST(what_is_got_after_all_was_given_up_shows_nothing_of_before)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    records(file, F_WRLCK, 0, 9);
    struct fuse_attr before = attributes(file.node);
    w->pid = bob;
    struct wire_file others = wire_opened(w, file.node, O_RDWR);
    records(others, F_WRLCK, 20, 29);
    w->pid = alice;
    write_at(file, 0, "text");
    change(file.node, (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = S_IFREG | 0600});
    change(file.node, (struct fuse_setattr_in){.valid = FATTR_ATIME | FATTR_MTIME, .atime = 7, .mtime = 8});
    uint64_t waiting = wire_setlk(w, file, (uint64_t)alice, F_WRLCK, 20, 29, true);
    records(file, F_UNLCK, 0, 9);
    w->pid = bob;
    records(others, F_UNLCK, 20, 29);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    w->pid = alice;
    check_content(file, "");
    struct fuse_attr seen = attributes(file.node);
    ck_assert_uint_eq(seen.size, 0);
    ck_assert_uint_eq(seen.mode, before.mode);
    ck_assert_uint_ne(seen.mtime, 8);
    ck_assert_uint_eq(seen.uid, before.uid);
}
END_TEST

/* A server that lost its data, in which its mount has not restored the lease yet. */
START_TEST(lease_that_its_store_has_forgotten_is_written)
{
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL);
    write_at(file, 0, "text");
    fake_backend_hold(w->fake, FAKE_STAT, true);
    uint64_t written = wire_write(w, file, 2, "n", 1);
    wire_turn(w);
    fake_backend_refuse(w->fake, FAKE_STAT, 0, BACKEND_OK); /* the store answers that the lock does not exist */
    ck_assert_int_eq(wire_result(w, written), 0);
    fake_backend_hold(w->fake, FAKE_STAT, false);
    check_content(file, "tent");
}
END_TEST

/* --- files that were opened on the lock of another --------------------------------- */

static int read_error(struct wire_file file)
{
    return wire_result(w, wire_read(w, file, 0, 100));
}

/* A lease of alice's with this content, and bob's file of it. */
static struct wire_file found_by_bob(const char *content, int flags)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL);
    write_at(file, 0, content);
    ck_assert_int_eq(wire_close(w, file), 0);
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    return wire_opened(w, wire_node(w, wire_lookup(w, "L")), flags);
}

static void unlinked_by(pid_t pid)
{
    w->pid = pid;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}

/* An empty file would be a lock that nobody has written to yet. */
START_TEST(file_that_was_opened_on_a_lock_is_stale_when_that_has_ended)
{
    struct wire_file reader = found_by_bob("one", _i ? O_RDWR : O_RDONLY);
    check_content(reader, "one");
    ck_assert_uint_eq(attributes(reader.node).nlink, 1);
    unlinked_by(alice);
    w->pid = bob;
    ck_assert_int_eq(read_error(reader), ESTALE);
    ck_assert_uint_eq(attributes(reader.node).nlink, 0);
    w->pid = carol;
    struct wire_file next = wire_created(w, "L", O_RDWR | O_EXCL);
    write_at(next, 0, "two");
    ck_assert_uint_ne(next.node, reader.node);
    check_content(next, "two");
    w->pid = bob;
    ck_assert_int_eq(read_error(reader), ESTALE);
    ck_assert_uint_eq(attributes(reader.node).nlink, 0);
    ck_assert_uint_eq(attributes(next.node).nlink, 1);
    check_content(wire_opened(w, wire_node(w, wire_lookup(w, "L")), O_RDONLY), "two");
}
END_TEST

/* The next lock is another file: a rename of that leaves the old one its name. */
START_TEST(file_that_was_opened_on_a_lock_does_not_move_with_the_next)
{
    struct wire_file old = found_by_bob("one", O_RDWR);
    unlinked_by(alice);
    w->pid = carol;
    struct wire_file next = wire_created(w, "L", O_RDWR | O_EXCL);
    mode_t mode = attributes(next.node).mode;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "L", "M", 0)), 0);
    w->pid = bob;
    change(old.node, (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = S_IFREG | 0600});
    flock_by(old, LOCK_EX | LOCK_NB);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), old.node);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "M")), next.node);
    ck_assert_uint_eq(attributes(next.node).mode, mode);
}
END_TEST

/* The waiter's file is on the inode of the lock before. */
START_TEST(file_that_was_opened_on_a_lock_does_not_read_that_of_a_waiter)
{
    struct wire_file reader = found_by_bob("one", O_RDONLY);
    w->pid = carol;
    struct wire_file waiter = wire_opened(w, reader.node, O_RDWR);
    uint64_t waits = wire_flock(w, waiter, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    unlinked_by(alice);
    ck_assert_int_eq(wire_result(w, waits), 0);
    w->pid = carol;
    write_at(waiter, 0, "two");
    check_content(waiter, "two");
    w->pid = bob;
    ck_assert_int_eq(read_error(reader), ESTALE);
}
END_TEST

START_TEST(file_that_was_opened_on_a_lock_reads_what_it_holds_itself)
{
    struct wire_file file = found_by_bob("one", O_RDWR);
    unlinked_by(alice);
    w->pid = bob;
    ck_assert_int_eq(read_error(file), ESTALE);
    flock_by(file, LOCK_EX | LOCK_NB);
    check_content(file, "");
    write_at(file, 0, "mine");
    check_content(file, "mine");
    ck_assert_uint_eq(attributes(file.node).nlink, 1);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), file.node);
    flock_by(file, LOCK_UN);
    check_content(file, ""); /* idle, as a new file */
}
END_TEST

/* Which of two locks of one process ends does not matter, as long as it has the name. */
START_TEST(file_of_the_owner_reads_its_next_lock)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL);
    struct wire_file second = wire_opened(w, file.node, O_RDONLY);
    write_at(file, 0, "one");
    check_content(second, "one");
    unlinked_by(alice);
    ck_assert_int_eq(read_error(second), ESTALE);
    struct wire_file next = wire_created(w, "L", O_RDWR | O_EXCL);
    write_at(next, 0, "two");
    check_content(second, "two");
}
END_TEST

/* The kernel looks the name up again: it creates the file, or there is none. */
START_TEST(open_of_a_name_that_became_free_is_estale)
{
    static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR};
    struct wire_file other = {0};
    uint64_t node = lease_of(alice, "L");
    if (_i >= 3) {
        w->pid = carol;
        other = wire_opened(w, node, O_RDONLY);
    }
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    unlinked_by(alice);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_open(w, node, flags[_i % 3])), ESTALE);
    ck_assert(!wire_exists(w, "L"));
    ck_assert_ptr_null(holder("L"));
    ck_assert_uint_ne(wire_created(w, "L", flags[_i % 3]).node, node);
    if (_i >= 3) {
        w->pid = carol;
        ck_assert_int_eq(read_error(other), ESTALE);
    }
}
END_TEST

/* The kernel looks the name up only once more. */
START_TEST(open_of_what_became_free_twice_is_stale_to_read)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    unlinked_by(alice);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY)), ESTALE);
    lease_of(alice, "L");
    w->pid = bob;
    node = wire_node(w, wire_lookup(w, "L"));
    unlinked_by(alice);
    w->pid = bob;
    struct wire_file reader = wire_opened(w, node, O_RDONLY);
    ck_assert_int_eq(read_error(reader), ESTALE);
}
END_TEST

/* Two threads look up the same link, and its end gives its name another st_ino. */
START_TEST(open_of_a_link_that_ended_twice_is_estale_once)
{
    uint64_t tmp = lease_of(alice, "tmp"), node = wire_node(w, wire_link(w, tmp, "L"));
    const pid_t openers[] = {carol, bob};
    unlinked_by(alice);
    for (int i = 0; i < 2; i++) {
        w->pid = openers[i];
        ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY)), ESTALE);
    }
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_link(w, tmp, "L")), 0);
    for (int i = 0; i < 2; i++) {
        w->pid = openers[i];
        node = wire_node(w, wire_lookup(w, "L"));
    }
    w->pid = carol;
    ck_assert_int_eq(wire_close(w, wire_opened(w, node, O_RDONLY)), 0);
    unlinked_by(alice);
    w->pid = bob;
    wire_opened(w, node, O_RDONLY);
}
END_TEST

START_TEST(file_that_was_opened_on_a_lock_reads_it_under_its_next_name)
{
    pid_t family[2];
    wire_chain(w, family, 2);
    w->pid = family[0];
    struct wire_file file = wire_created(w, "tmp", O_RDWR | O_EXCL);
    write_at(file, 0, "one");
    w->pid = family[1];
    struct wire_file childs = wire_opened(w, file.node, O_RDONLY);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_rename(w, "tmp", "L", 0)), 0);
    w->pid = family[1];
    check_content(childs, "one");
    w->pid = family[0];
    ck_assert_int_eq(wire_close(w, file), 0);
    unlinked_by(family[0]);
    w->pid = family[1];
    ck_assert_int_eq(read_error(childs), ESTALE);
}
END_TEST

/* Open files would otherwise find that the name is free, and the kernel would not ask again. */
START_TEST(name_that_an_older_file_may_lock_is_not_cached_as_free)
{
    struct wire_file reader = found_by_bob("one", O_RDONLY);
    unlinked_by(alice);
    w->pid = carol;
    uint64_t requested = wire_lookup(w, "L");
    ck_assert_int_eq(wire_result(w, requested), ENOENT);
    w->pid = bob;
    flock_by(reader, LOCK_EX | LOCK_NB);
    ck_assert(wire_exists(w, "L"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: content of several locks");
    TCase *cases = tcase_create("content");
    suite_add_tcase(suite, cases);
    tcase_add_checked_fixture(cases, set_up, wire_teardown);
    tcase_add_test(cases, what_is_written_is_read_whichever_lock_came_first);
    tcase_add_test(cases, content_and_rights_end_with_their_lock);
    tcase_add_test(cases, content_ends_when_another_file_of_the_process_is_closed);
    tcase_add_test(cases, content_stays_when_some_of_the_bytes_are_given_up);
    tcase_add_test(cases, content_ends_when_the_first_is_released_by_its_token);
    tcase_add_test(cases, what_was_cut_stays_cut);
    tcase_add_test(cases, who_locks_through_one_file_writes_what_is_shown);
    tcase_add_test(cases, what_a_process_writes_through_a_second_file_is_shown_when_the_first_has_ended);
    tcase_add_test(cases, what_is_not_shown_yet_is_kept);
    tcase_add_test(cases, strangers_content_goes_on_with_nobody);
    tcase_add_test(cases, what_is_had_through_another_users_file_goes_on_with_nothing_of_ones_own);
    tcase_add_test(cases, content_that_has_ended_takes_no_room);
    tcase_add_test(cases, total_leaves_room_for_the_next_user);
    tcase_add_test(cases, names_that_stay_refused_leave_the_total_when_they_are_free);
    tcase_add_test(cases, directory_is_a_name_of_the_quota);
    tcase_add_test(cases, statfs_shows_what_its_caller_may_still_have);
    tcase_add_test(cases, what_is_got_after_all_was_given_up_shows_nothing_of_before);
    tcase_add_test(cases, lease_that_its_store_has_forgotten_is_written);
    tcase_add_loop_test(cases, file_that_was_opened_on_a_lock_is_stale_when_that_has_ended, 0, 2);
    tcase_add_test(cases, file_that_was_opened_on_a_lock_does_not_move_with_the_next);
    tcase_add_test(cases, file_that_was_opened_on_a_lock_does_not_read_that_of_a_waiter);
    tcase_add_test(cases, file_that_was_opened_on_a_lock_reads_what_it_holds_itself);
    tcase_add_test(cases, file_of_the_owner_reads_its_next_lock);
    tcase_add_loop_test(cases, open_of_a_name_that_became_free_is_estale, 0, 6);
    tcase_add_test(cases, open_of_what_became_free_twice_is_stale_to_read);
    tcase_add_test(cases, open_of_a_link_that_ended_twice_is_estale_once);
    tcase_add_test(cases, file_that_was_opened_on_a_lock_reads_it_under_its_next_name);
    tcase_add_test(cases, name_that_an_older_file_may_lock_is_not_cached_as_free);
    return check_main(suite);
}

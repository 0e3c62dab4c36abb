/* Names: directories, symbolic and hard links, renames, and what is forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "check_main.h"
#include "fs/tree.h"
#include "wire.h"

static struct wire *w;
static pid_t alice, bob; /* two processes that are no kin */

static void set_up(void)
{
    w = wire_new(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_SOLE_AUTHORITY);
    alice = wire_child(w);
    bob = wire_child(w);
    w->pid = alice;
}

static void tear_down(void)
{
    wire_free(w);
}

static const struct backend_ticket *holder(const char *name)
{
    return fake_backend_holder(w->fake, name);
}

/* A lease of this process, closed. */
static uint64_t lease_of(pid_t pid, const char *name)
{
    pid_t before = w->pid;
    w->pid = pid;
    struct wire_file file = wire_created(w, name, O_WRONLY);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(holder(name)->kind, BACKEND_LEASE);
    w->pid = before;
    return file.node;
}

static struct fuse_attr attributes(uint64_t node)
{
    uint64_t asked = wire_getattr(w, node);
    ck_assert_int_eq(wire_result(w, asked), 0);
    return ((const struct fuse_attr_out *)wire_data(w, asked, NULL))->attr;
}

static void check_content(struct wire_file file, const char *expected)
{
    uint64_t read = wire_read(w, file, 0, 1 << 17);
    ck_assert_int_eq(wire_result(w, read), 0);
    size_t size;
    const char *data = wire_data(w, read, &size);
    ck_assert_uint_eq(size, strlen(expected));
    ck_assert_mem_eq(data, expected, size);
}

/* Without .leasefs and what is in it. */
static unsigned count_nodes(void)
{
    GPtrArray *nodes = tree_all(w->fs->tree);
    unsigned count = 0;
    for (guint i = 0; i < nodes->len; i++) {
        struct node *node = g_ptr_array_index(nodes, i);
        count += !node->control;
        tree_unref(w->fs->tree, node);
    }
    g_ptr_array_free(nodes, TRUE);
    return count;
}

START_TEST(symbolic_link_is_a_lease_with_its_target)
{
    uint64_t made = wire_symlink(w, "L", "the target");
    uint64_t node = wire_node(w, made);
    ck_assert_int_eq(holder("L")->kind, BACKEND_LEASE);
    uint64_t read = wire_send(w, FUSE_READLINK, node, NULL, 0, NULL, 0);
    ck_assert_int_eq(wire_result(w, read), 0);
    size_t size;
    ck_assert_mem_eq(wire_data(w, read, &size), "the target", 10);
    ck_assert_uint_eq(size, 10);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_symlink(w, "L", "mine")), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
}
END_TEST

START_TEST(name_is_found_as_what_was_granted)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t created = wire_create(w, "L", O_WRONLY | O_EXCL);
    wire_turn(w);
    w->pid = bob;
    uint64_t linked = wire_symlink(w, "L", "target");
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    uint64_t node = wire_file(w, created).node;
    while (fake_backend_held_back(w->fake, FAKE_ACQUIRE)) {
        ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
        fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    }
    ck_assert_int_eq(wire_result(w, linked), EEXIST);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

/* Else the mount's end would leave what waits for it unanswered. */
START_TEST(node_that_gave_way_while_it_is_asked_for_is_among_all)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t linked = wire_symlink(w, "L", "target");
    ck_assert(wire_waits(w, linked));
    wire_created(w, "L", O_RDONLY);
    ck_assert_uint_eq(count_nodes(), 2);
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_uint_eq(wire_node(w, linked), wire_node(w, wire_lookup(w, "L")));
}
END_TEST

START_TEST(link_acquires_the_name_with_content_and_inode)
{
    struct wire_file file = wire_created(w, "tmp", O_WRONLY | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "pid\n", 4)), 0);
    uint64_t linked = wire_link(w, file.node, "L");
    uint64_t node = wire_node(w, linked);
    ck_assert_int_eq(holder("L")->kind, BACKEND_LEASE);
    ck_assert_uint_eq(attributes(node).nlink, 2);
    ck_assert_uint_eq(attributes(file.node).nlink, 2);
    ck_assert_uint_eq(attributes(node).ino, attributes(file.node).ino);
    check_content(wire_opened(w, node, O_RDONLY), "pid\n");
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "tmp")), 0);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert_uint_eq(attributes(node).nlink, 1);
}
END_TEST

START_TEST(link_to_a_held_name_is_refused)
{
    uint64_t node = lease_of(alice, "tmp");
    lease_of(bob, "L");
    ck_assert_int_eq(wire_result(w, wire_link(w, node, "L")), EEXIST);
    fake_backend_occupy(w->fake, "M", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_link(w, node, "M")), EEXIST);
}
END_TEST

START_TEST(rename_moves_the_callers_own_lease)
{
    struct wire_file file = wire_created(w, "from", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "moved", 5)), 0);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert_ptr_null(holder("from"));
    ck_assert_ptr_nonnull(holder("to"));
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "to")), file.node);
    ck_assert(!wire_exists(w, "from"));
    check_content(file, "moved");
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "to")), 0);
}
END_TEST

START_TEST(rename_of_anothers_or_onto_anothers_is_refused)
{
    lease_of(alice, "mine");
    lease_of(bob, "his");
    ck_assert_int_eq(wire_result(w, wire_rename(w, "his", "new", 0)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "mine", "his", 0)), EBUSY);
    fake_backend_occupy(w->fake, "far", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "mine", "far", 0)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "far", "new", 0)), EPERM);
    ck_assert_ptr_nonnull(holder("mine"));
    ck_assert_ptr_nonnull(holder("his"));
}
END_TEST

START_TEST(rename_onto_ones_own_replaces_it)
{
    lease_of(alice, "from");
    lease_of(alice, "to");
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", RENAME_NOREPLACE)), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert_ptr_null(holder("from"));
    ck_assert_uint_eq(fake_backend_holders(w->fake, "to"), 1);
}
END_TEST

START_TEST(rename_of_unknown_outcome_is_enolck)
{
    lease_of(alice, "from");
    fake_backend_fail(w->fake, FAKE_RENAME, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), ENOLCK);
    fake_backend_fail(w->fake, FAKE_RENAME, BACKEND_OK);
    ck_assert(wire_exists(w, "from"));
}
END_TEST

START_TEST(rename_whose_lease_ends_meanwhile_is_answered)
{
    lease_of(alice, "from");
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    uint64_t renamed = wire_rename(w, "from", "to", 0);
    ck_assert(wire_waits(w, renamed));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "from")), 0);
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, renamed), ESTALE);
}
END_TEST

START_TEST(names_are_at_most_255_bytes)
{
    char name[NAME_BYTES_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ck_assert_int_eq(wire_result(w, wire_lookup(w, name)), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_create(w, name, O_WRONLY | O_EXCL)), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_create(w, name, O_WRONLY)), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, name)), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_symlink(w, name, "t")), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, name)), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, name)), ENAMETOOLONG);
    uint64_t node = lease_of(alice, "L");
    ck_assert_int_eq(wire_result(w, wire_link(w, node, name)), ENAMETOOLONG);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "L", name, 0)), ENAMETOOLONG);
    name[NAME_BYTES_MAX] = '\0';
    ck_assert_int_eq(wire_result(w, wire_create(w, name, O_WRONLY | O_EXCL)), 0);
}
END_TEST

START_TEST(directories_are_made_and_removed)
{
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), 0);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_create(w, "D", O_WRONLY | O_EXCL)), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "D")), EISDIR);
    w->directory = wire_node(w, wire_lookup(w, "D"));
    wire_created(w, "L", O_WRONLY | O_EXCL);
    w->directory = FUSE_ROOT_ID;
    ck_assert_ptr_nonnull(holder("D/L"));
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "D")), ENOTEMPTY);
    w->directory = wire_node(w, wire_lookup(w, "D"));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    w->directory = FUSE_ROOT_ID;
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "D")), 0);
    ck_assert(!wire_exists(w, "D"));
}
END_TEST

START_TEST(forgetting_everything_leaves_no_node)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), 0);
    uint64_t directory = wire_node(w, wire_lookup(w, "D"));
    w->directory = directory;
    struct wire_file inner = wire_created(w, "M", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_release(w, inner)), 0);
    wire_forget(w, directory, 2);
    wire_forget(w, file.node, 1);
    wire_turn(w);
    ck_assert_uint_eq(count_nodes(), 2); /* M, and the directory it is in */
    wire_forget(w, inner.node, 1);
    wire_turn(w);
    ck_assert_uint_eq(count_nodes(), 0);
}
END_TEST

/* Else the kernel would take the new lock for the one of whose end it hears late. */
START_TEST(number_of_a_node_is_free_when_the_kernel_was_told_of_its_end)
{
    uint64_t gone[26];
    for (int i = 0; i < 26; i++) {
        gone[i] = lease_of(alice, (char[]){(char)('A' + i), '\0'});
        ck_assert_int_eq(wire_result(w, wire_setxattr(w, gone[i], "user.lease.ttl", "1s")), 0);
    }
    wire_hold_deletions(true);
    wire_advance(w, 2 * SECOND);
    for (int i = 0; i < 26; i++) {
        wire_forget(w, gone[i], GPOINTER_TO_SIZE(g_hash_table_lookup(w->lookups, GSIZE_TO_POINTER(gone[i]))));
    }
    wire_turn(w);
    for (char name[] = "a"; name[0] <= 'z'; name[0]++) {
        uint64_t node = wire_node(w, wire_symlink(w, name, "t"));
        for (int i = 0; i < 26; i++) {
            ck_assert_uint_ne(node, gone[i]);
        }
    }
    wire_hold_deletions(false);
    while (!wire_was_told(w, FUSE_NOTIFY_DELETE, "Z")) {
    }
}
END_TEST

/* READDIR of the top, where the kernel has sought to this offset. */
static uint64_t read_directory_at(uint64_t fh, uint64_t offset)
{
    struct fuse_read_in in = {.fh = fh, .offset = offset, .size = 4096};
    return wire_send(w, FUSE_READDIR, FUSE_ROOT_ID, &in, sizeof in, NULL, 0);
}

static size_t bytes_listed(uint64_t asked)
{
    size_t size;
    ck_assert_int_eq(wire_result(w, asked), 0);
    wire_data(w, asked, &size);
    return size;
}

START_TEST(seek_far_into_a_directory_leaves_the_loop_to_others_and_may_be_interrupted)
{
    lease_of(alice, "A");
    struct fuse_open_in open = {.flags = O_RDONLY};
    uint64_t opened = wire_send(w, FUSE_OPENDIR, FUSE_ROOT_ID, &open, sizeof open, NULL, 0);
    ck_assert_int_eq(wire_result(w, opened), 0);
    uint64_t fh = ((const struct fuse_open_out *)wire_data(w, opened, NULL))->fh;

    uint64_t far = read_directory_at(fh, UINT64_C(1) << 40);
    wire_take(w);
    lease_of(alice, "B");
    ck_assert(wire_waits(w, far));
    wire_interrupt(w, far);
    ck_assert_int_eq(wire_result(w, far), EINTR);
    far = read_directory_at(fh, UINT64_C(1) << 40);
    while (wire_waits(w, far)) {
        wire_advance(w, 1);
    }
    ck_assert_uint_eq(bytes_listed(far), 0);
    ck_assert_uint_eq(bytes_listed(read_directory_at(fh, 4)), 0); /* the end is the end */
    ck_assert_uint_gt(bytes_listed(read_directory_at(fh, 3)), 0);

    struct fuse_release_in release = {.fh = fh};
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_RELEASEDIR, FUSE_ROOT_ID, &release, sizeof release, NULL, 0)), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: names");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, symbolic_link_is_a_lease_with_its_target);
    tcase_add_test(cases, name_is_found_as_what_was_granted);
    tcase_add_test(cases, node_that_gave_way_while_it_is_asked_for_is_among_all);
    tcase_add_test(cases, link_acquires_the_name_with_content_and_inode);
    tcase_add_test(cases, link_to_a_held_name_is_refused);
    tcase_add_test(cases, rename_moves_the_callers_own_lease);
    tcase_add_test(cases, rename_of_anothers_or_onto_anothers_is_refused);
    tcase_add_test(cases, rename_onto_ones_own_replaces_it);
    tcase_add_test(cases, rename_of_unknown_outcome_is_enolck);
    tcase_add_test(cases, rename_whose_lease_ends_meanwhile_is_answered);
    tcase_add_test(cases, names_are_at_most_255_bytes);
    tcase_add_test(cases, directories_are_made_and_removed);
    tcase_add_test(cases, forgetting_everything_leaves_no_node);
    tcase_add_test(cases, number_of_a_node_is_free_when_the_kernel_was_told_of_its_end);
    tcase_add_test(cases, seek_far_into_a_directory_leaves_the_loop_to_others_and_may_be_interrupted);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}

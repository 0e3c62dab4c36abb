/* Names: directories, symbolic and hard links, renames, and FORGET. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fs/kernel/notify.h"
#include "fs/kernel/tree.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

static void set_up_before_linux_6_2(void)
{
    wire_setup_on_kernel(WIRE_LOCAL_FEATURES, 37);
}

/* Without .leasefs and what is in it. */
static unsigned count_nodes(void)
{
    GPtrArray *nodes = tree_all(w->fs->tree);
    unsigned count = 0;
    for (guint i = 0; i < nodes->len; i++) {
        struct node *node = g_ptr_array_index(nodes, i);
        count += !node->record->control;
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

/* A lock without content may have the name of a link that the kernel still knows. */
START_TEST(link_that_has_no_target_any_more_is_stale)
{
    uint64_t node = wire_node(w, wire_symlink(w, "L", ""));
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_READLINK, node, NULL, 0, NULL, 0)), ESTALE);
}
END_TEST

/* The next of that name is another. */
START_TEST(ticket_is_not_kept_by_the_name_that_made_it)
{
    uint64_t made = wire_symlink(w, "job-", "the target");
    ck_assert_int_eq(wire_result(w, made), 0);
    const struct fuse_entry_out *entry = wire_data(w, made, NULL);
    ck_assert_uint_ne(entry->nodeid, 0);
    ck_assert_uint_eq(entry->entry_valid + entry->entry_valid_nsec, 0);
}
END_TEST

/* The kernel does not wait for RELEASE.  By who closed it, or its child, as mv(1) is a script's. */
START_TEST(lease_that_was_closed_is_moved_once_it_is_decided)
{
    pid_t family[2];
    wire_chain(w, family, 2);
    w->pid = family[0];
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    w->pid = family[_i];
    uint64_t moved = wire_rename(w, "L", "M", 0);
    ck_assert(wire_waits(w, moved));
    wire_release(w, file);
    ck_assert_int_eq(wire_result(w, moved), 0);
    ck_assert_int_eq(holder("M")->kind, BACKEND_LEASE);
    ck_assert_ptr_null(holder("L"));
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
START_TEST(displaced_node_with_a_pending_claim_is_among_all)
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

/* Opens a file of this name, which a symbolic link then displaces. */
static struct wire_file displaced_file(const char *name)
{
    struct wire_file file = wire_created(w, name, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_symlink(w, "mine", "target")), 0);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "mine", name, 0)), 0);
    ck_assert_uint_ne(wire_node(w, wire_lookup(w, name)), file.node);
    return file;
}

/* How many displaced nodes a look-up of this name goes through. */
static unsigned steps_to(const char *name)
{
    unsigned steps = 0;
    while (tree_next_displaced(w->fs->tree, tree_root(w->fs->tree), name, &steps)) {
    }
    return steps;
}

/* Otherwise one user's open files would slow down all requests of other users. */
START_TEST(displaced_nodes_are_no_step_to_another_name)
{
    struct wire_file files[26];
    for (int i = 0; i < 26; i++) {
        files[i] = displaced_file((char[]){(char)('A' + i), '\0'});
    }
    ck_assert_uint_eq(steps_to("none"), 0);
    for (int i = 0; i < 26; i++) {
        char name[] = {(char)('A' + i), '\0'};
        ck_assert_uint_eq(steps_to(name), 1);
        ck_assert_int_eq(wire_result(w, wire_unlink(w, name)), 0);
        ck_assert_uint_ne(wire_created(w, name, O_RDONLY).node, files[i].node);
        ck_assert_uint_eq(steps_to(name), 1);
    }
}
END_TEST

START_TEST(displaced_node_that_is_renamed_leaves_its_old_name)
{
    struct tree *tree = w->fs->tree;
    struct node *root = tree_root(tree), *nodes[3];
    struct wire_file files[3];
    for (int i = 0; i < 3; i++) { /* each displaces the one before */
        files[i] = wire_created(w, (char[]){(char)('A' + i), '\0'}, O_RDONLY);
        nodes[i] = tree_node(tree, files[i].node);
        tree_rename(tree, nodes[i], root, "L");
        ck_assert_ptr_eq(tree_find(tree, root, "L"), nodes[i]);
        ck_assert_uint_eq(steps_to("L"), (unsigned)i);
    }
    tree_rename(tree, nodes[0], root, "M");
    ck_assert_ptr_eq(tree_find(tree, root, "M"), nodes[0]);
    ck_assert_uint_eq(steps_to("M"), 0);
    ck_assert_ptr_eq(tree_next_displaced(tree, root, "L", &(unsigned){0}), nodes[1]);
    ck_assert_uint_eq(steps_to("L"), 1);
    tree_rename(tree, nodes[2], root, "M"); /* displaces it under its new name */
    ck_assert_ptr_eq(tree_next_displaced(tree, root, "M", &(unsigned){0}), nodes[0]);
    ck_assert_ptr_null(tree_find(tree, root, "L"));
    tree_attach(tree, nodes[1]);
    ck_assert_ptr_eq(tree_find(tree, root, "L"), nodes[1]);
    ck_assert_uint_eq(steps_to("L"), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(wire_close(w, files[i]), 0);
        wire_forget(w, files[i].node, 1);
    }
    wire_turn(w);
    ck_assert_uint_eq(count_nodes(), 0);
    ck_assert_uint_eq(steps_to("M"), 0);
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

START_TEST(three_names_of_a_lease_are_counted_as_they_go)
{
    uint64_t node = lease_of(alice, "tmp");
    uint64_t first = wire_node(w, wire_link(w, node, "L")), second = wire_node(w, wire_link(w, node, "M"));
    ck_assert_uint_eq(attributes(node).nlink, 3);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "tmp")), 0);
    ck_assert_uint_eq(attributes(first).nlink, 2);
    ck_assert_uint_eq(attributes(second).nlink, 2);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_uint_eq(attributes(second).nlink, 1);
}
END_TEST

START_TEST(lock_of_a_name_that_was_linked_is_another_file)
{
    uint64_t node = lease_of(alice, "tmp");
    uint64_t linked = wire_node(w, wire_link(w, node, "L"));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "tmp")), 0);
    node = lease_of(bob, "tmp");
    ck_assert_uint_ne(attributes(linked).ino, attributes(node).ino);
    ck_assert_uint_eq(attributes(node).nlink, 1);
}
END_TEST

/* By it the next daemon finds who has it open: the kernel need not have asked since. */
START_TEST(file_of_a_name_that_was_linked_keeps_its_number_while_it_is_open)
{
    uint64_t node = lease_of(alice, "tmp");
    w->pid = bob;
    struct wire_file reader = wire_opened(w, node, O_RDONLY);
    uint64_t number = attributes(node).ino;
    w->pid = alice;
    uint64_t linked = wire_node(w, wire_link(w, node, "L"));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "tmp")), 0);
    ck_assert_uint_ne(lease_of(bob, "tmp"), node);
    w->pid = bob;
    ck_assert_uint_eq(attributes(node).ino, number);
    ck_assert_uint_eq(attributes(node).nlink, 1); /* its other name */
    ck_assert_uint_eq(attributes(linked).nlink, 1);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    w->pid = bob;
    ck_assert_uint_eq(attributes(node).nlink, 0);
    ck_assert_int_eq(wire_close(w, reader), 0);
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

/* The store may have the new name already. */
START_TEST(link_of_a_file_that_is_being_moved_waits)
{
    uint64_t node = lease_of(alice, "tmp");
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    uint64_t moved = wire_rename(w, "tmp", "to", 0);
    wire_turn(w);
    uint64_t linked = wire_link(w, node, "L");
    ck_assert(wire_waits(w, linked));
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, moved), 0);
    wire_node(w, linked);
    ck_assert_int_eq(holder("L")->kind, BACKEND_LEASE);
    ck_assert_int_eq(holder("to")->kind, BACKEND_LEASE);
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

/* --- rename: what is in its way --- */

/* Both are as they were, and so is what was open of them. */
static void check_both_held(const char *from, const char *to, uint64_t fence)
{
    ck_assert(wire_exists(w, from));
    ck_assert_uint_eq(fake_backend_holders(w->fake, from), 1);
    ck_assert_uint_eq(fake_backend_holders(w->fake, to), 1);
    ck_assert_uint_eq(holder(to)->fence, fence);
}

START_TEST(child_cannot_rename_over_what_its_parent_holds)
{
    pid_t family[2];
    wire_chain(w, family, 2);
    lease_of(family[0], "parents");
    lease_of(family[1], "childs");
    uint64_t fence = holder("parents")->fence;
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_rename(w, "childs", "parents", 0)), EBUSY);
    check_both_held("childs", "parents", fence);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "parents", "moved", 0)), 0); /* as mv(1) does for a script */
}
END_TEST

START_TEST(what_the_dead_leave_is_not_replaced)
{
    lease_of(carol, "hers");
    lease_of(alice, "mine");
    wire_advance(w, 2 * SECOND);
    wire_kill(w, carol);
    uint64_t fence = holder("hers")->fence;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "mine", "hers", 0)), EBUSY);
    check_both_held("mine", "hers", fence);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "hers")), 0);
}
END_TEST

/* It stays theirs, so this mount does not renew it any more. */
START_TEST(what_the_dead_leave_is_moved_by_the_same_user_as_it_is)
{
    w->uid = 1000;
    struct wire_file file = wire_created(w, "hers", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "left", 4)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "hers", "free", 0)), EPERM);
    wire_kill(w, alice);
    w->uid = 1001;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "hers", "free", 0)), EPERM);
    w->uid = 1000;
    clock_ms deadline = holder("hers")->deadline;
    char *owner = wire_xattr(w, file.node, "user.lease.owner");
    ck_assert_int_eq(wire_result(w, wire_rename(w, "hers", "free", 0)), 0);
    ck_assert(!wire_exists(w, "hers"));
    ck_assert_int_eq(holder("free")->deadline, deadline);
    char *still = wire_xattr(w, file.node, "user.lease.owner");
    ck_assert_str_eq(still, owner);
    g_free(still);
    g_free(owner);
    struct wire_file shown = wire_opened(w, wire_node(w, wire_lookup(w, "free")), O_RDONLY);
    check_content(shown, "left");
    ck_assert_int_eq(wire_close(w, shown), 0);
    wire_advance(w, deadline - clock_now() - 1);
    ck_assert_ptr_nonnull(holder("free"));
    wire_advance(w, 2);
    ck_assert_ptr_null(holder("free"));
}
END_TEST

/* What the store says: a refusal, and an outcome that it does not know. */
START_TEST(rename_that_fails_takes_nothing_from_its_target)
{
    static const enum backend_result results[] = {BACKEND_BUSY, BACKEND_UNREACHABLE, BACKEND_STALE, BACKEND_FULL};
    static const int errors[] = {EBUSY, ENOLCK, ESTALE, ENOSPC};
    lease_of(alice, "from");
    struct wire_file target = wire_created(w, "to", O_RDWR | O_EXCL);
    uint64_t fence = holder("to")->fence;
    fake_backend_fail(w->fake, FAKE_RENAME, results[_i]);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), errors[_i]);
    fake_backend_fail(w->fake, FAKE_RENAME, BACKEND_OK);
    check_both_held("from", "to", fence);
    ck_assert_int_eq(wire_result(w, wire_write(w, target, 0, "still", 5)), 0);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_RELEASE), 0);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, target, 0, "gone", 4)), ESTALE);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "to"), 1);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "to")), 0);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "to")), ENOENT);
}
END_TEST

START_TEST(who_waits_for_a_replaced_lease_waits_for_the_one_that_replaced_it)
{
    lease_of(alice, "from");
    uint64_t node = lease_of(alice, "to");
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    struct wire_file idle = wire_opened(w, node, O_RDWR);
    uint64_t waits = wire_flock(w, idle, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert(wire_waits(w, waits));
    ck_assert_int_eq(holder("to")->kind, BACKEND_LEASE);
    ck_assert_uint_ne(wire_node(w, wire_lookup(w, "to")), idle.node);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "to")), 0);
    ck_assert_int_eq(wire_result(w, waits), 0);
    ck_assert_int_eq(holder("to")->kind, BACKEND_FLOCK);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "to")), idle.node);
}
END_TEST

START_TEST(handle_locks_and_tickets_are_neither_replaced_nor_moved)
{
    lease_of(alice, "from");
    struct wire_file file = wire_created(w, "flock", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    uint64_t fence = holder("flock")->fence;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "flock", 0)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "flock", "free", 0)), EPERM);
    check_both_held("from", "flock", fence);
    struct wire_file range = wire_created(w, "range", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, range, 7, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "range", 0)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "range", "free", 0)), EPERM);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "range"), 1);
    wire_close(w, wire_created(w, "t-", O_RDWR));
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "t-0000000001", 0)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "t-", 0)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "t-0000000001", "free", 0)), EPERM);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "t-0000000001"), 1);
    ck_assert(!wire_exists(w, "free"));
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), 0);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "D", 0)), EISDIR);
    ck_assert(wire_exists(w, "from"));
}
END_TEST

START_TEST(exchange_is_refused_before_anything_is_done)
{
    lease_of(alice, "from");
    lease_of(alice, "to");
    uint64_t fence = holder("to")->fence;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", RENAME_EXCHANGE)), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", RENAME_NOREPLACE)), EEXIST);
    check_both_held("from", "to", fence);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "from", 0)), 0);
    check_both_held("from", "to", fence);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_RENAME), 0);
}
END_TEST

START_TEST(provisional_lease_of_the_caller_gives_way)
{
    lease_of(alice, "from");
    struct wire_file target = wire_created(w, "to", O_WRONLY);
    ck_assert_int_eq(holder("to")->kind, BACKEND_PROVISIONAL);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert_int_eq(holder("to")->kind, BACKEND_LEASE);
    ck_assert_int_eq(wire_close(w, target), 0); /* as for any handle whose lease has ended */
    ck_assert_uint_eq(fake_backend_holders(w->fake, "to"), 1);
}
END_TEST

START_TEST(linked_names_are_two_locks_of_which_one_can_replace_the_other)
{
    uint64_t node = lease_of(alice, "from");
    wire_node(w, wire_link(w, node, "to"));
    ck_assert_uint_eq(attributes(node).nlink, 2);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "to")), node);
    ck_assert_uint_eq(attributes(node).nlink, 1);
    ck_assert(!wire_exists(w, "from"));
    ck_assert_uint_eq(fake_backend_holders(w->fake, "to"), 1);
}
END_TEST

START_TEST(renamed_lease_counts_in_the_directory_it_is_in)
{
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), 0);
    lease_of(alice, "from");
    lease_of(alice, "to");
    ck_assert_uint_eq(tree_root(w->fs->tree)->directory->held, 2);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    ck_assert_uint_eq(tree_root(w->fs->tree)->directory->held, 1);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "to")), 0);
    ck_assert_uint_eq(tree_root(w->fs->tree)->directory->held, 0);
}
END_TEST

/* --- rename: what crosses it --- */

START_TEST(write_during_a_rename_keeps_the_old_content)
{
    struct wire_file file = wire_created(w, "from", O_RDWR | O_EXCL | O_APPEND);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "one", 3)), 0);
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    uint64_t renamed = wire_rename(w, "from", "to", 0);
    ck_assert(wire_waits(w, renamed));
    uint64_t written = wire_write(w, file, 3, "two", 3);
    uint64_t cut = wire_setattr(w, file.node, NULL, (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = 8});
    uint64_t reopened = wire_open(w, file.node, O_WRONLY | O_TRUNC);
    ck_assert(wire_waits(w, written));
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, renamed), 0);
    ck_assert_int_eq(wire_result(w, written), 0);
    ck_assert_int_eq(wire_result(w, cut), 0);
    wire_file(w, reopened);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "three", 5)), 0);
    check_content(file, "three");
    ck_assert_ptr_nonnull(holder("to"));
}
END_TEST

START_TEST(append_before_and_after_a_rename_keep_all)
{
    struct wire_file file = wire_created(w, "from", O_RDWR | O_EXCL | O_APPEND);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "one", 3)), 0);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    uint64_t written = wire_write(w, file, 3, "two", 3);
    ck_assert(wire_waits(w, written));
    uint64_t renamed = wire_rename(w, "from", "to", 0);
    ck_assert(wire_waits(w, renamed));
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_RENAME), 0); /* not before the write is done */
    fake_backend_hold(w->fake, FAKE_STAT, false);
    fake_backend_answer(w->fake, FAKE_STAT, 0);
    ck_assert_int_eq(wire_result(w, written), 0);
    ck_assert_int_eq(wire_result(w, renamed), 0);
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    renamed = wire_rename(w, "to", "third", 0);
    written = wire_write(w, file, 6, "three", 5);
    ck_assert(wire_waits(w, written));
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, renamed), 0);
    ck_assert_int_eq(wire_result(w, written), 0);
    check_content(file, "onetwothree");
}
END_TEST

/* The name shows another's lock: neither takes over anything of the other. */
START_TEST(write_of_a_lease_that_another_has_by_now_is_stale)
{
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "mine", 4)), 0);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    fake_backend_hold_events(w->fake, true);
    uint64_t written = wire_write(w, file, 4, "more", 4);
    ck_assert(wire_waits(w, written));
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    fake_backend_occupy_plainly(w->fake, "L", "theirs", NULL);
    fake_backend_hold(w->fake, FAKE_STAT, false);
    fake_backend_answer(w->fake, FAKE_STAT, 0);
    ck_assert_int_eq(wire_result(w, written), ESTALE);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_SET), 1); /* that of "mine" */
    fake_backend_hold_events(w->fake, false);
}
END_TEST

START_TEST(link_does_not_give_what_another_holds)
{
    w->pid = bob;
    struct wire_file file = wire_created(w, "his", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "secret", 6)), 0);
    w->pid = alice;
    w->uid = 1001;
    ck_assert_int_eq(wire_result(w, wire_link(w, file.node, "L")), EPERM);
    ck_assert(!wire_exists(w, "L"));
}
END_TEST

/* --- rename: who opens meanwhile --- */

START_TEST(renamed_lease_is_opened_by_all_that_look_it_up_together)
{
    uint64_t node = lease_of(alice, "from"), opened[8];
    pid_t readers[8];
    wire_advance(w, 2 * SECOND);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            readers[i] = round ? readers[i] : wire_child(w);
            w->pid = readers[i];
            ck_assert_uint_eq(wire_node(w, wire_lookup(w, "to")), node);
        }
        for (int i = 0; i < 8; i++) {
            w->pid = readers[i];
            opened[i] = wire_open(w, node, O_RDONLY);
        }
        for (int i = 0; i < 8; i++) {
            ck_assert_int_eq(wire_result(w, opened[i]), 0);
        }
    }
}
END_TEST

START_TEST(opener_on_its_way_by_the_old_name_is_sent_back_once)
{
    uint64_t node = lease_of(alice, "from");
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "from")), node);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDWR)), ESTALE);
    w->pid = alice; /* he is about to open it by one of its names */
    ck_assert_int_eq(wire_result(w, wire_rename(w, "to", "third", 0)), EBUSY);
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "to")), node);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "to", "third", 0)), EBUSY);
    lease_of(alice, "other");
    ck_assert_int_eq(wire_result(w, wire_rename(w, "other", "to", 0)), EBUSY); /* he would find another inode */
    w->pid = bob;
    struct wire_file file = wire_opened(w, node, O_RDONLY);
    ck_assert_int_eq(wire_close(w, file), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "to", "third", 0)), 0);
}
END_TEST

START_TEST(opener_of_a_name_that_goes_again_and_again_is_sent_back_once)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_getattr(w, node)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_getattr(w, node)), ESTALE); /* he has not looked it up again */
    ck_assert(!wire_exists(w, "L"));                                 /* the kernel asks twice then */
    uint64_t next = lease_of(alice, "L");
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), next);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_int_eq(wire_result(w, wire_getattr(w, next)), ESTALE); /* of somebody else */
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_getattr(w, next)), 0);
    wire_advance(w, SECOND); /* a while later it is another look, by a kept entry */
    ck_assert_int_eq(wire_result(w, wire_getattr(w, next)), ESTALE);
    ck_assert_uint_eq(lease_of(alice, "L"), next);
    struct wire_file file = wire_opened(w, next, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_close(w, file), 0);
}
END_TEST

START_TEST(opener_of_a_name_that_the_kernel_may_keep_as_missing_is_sent_back)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert(!wire_exists(w, "L"));
    w->pid = bob; /* a lock that bob took through that file could not be found or removed by its name */
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_WRONLY)), ESTALE);
    ck_assert(!wire_exists(w, "L"));
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), 0);
    ck_assert(wire_exists(w, "L"));
}
END_TEST

START_TEST(opener_that_was_sent_back_opens_what_it_found_though_the_name_is_anothers_by_then)
{
    pid_t openers[2] = {bob, wire_child(w)};
    uint64_t node = lease_of(alice, "L");
    for (int i = 0; i < 2; i++) {
        w->pid = openers[i];
        ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    }
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    for (int i = 0; i < 2; i++) {
        w->pid = openers[i];
        ck_assert_int_eq(wire_result(w, wire_getattr(w, node)), ESTALE);
    }
    uint64_t next = lease_of(alice, "L");
    for (int i = 0; i < 2; i++) {
        w->pid = openers[i];
        ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), next);
    }
    ck_assert_int_eq(wire_close(w, wire_opened(w, next, O_RDONLY)), 0); /* by the second */
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_uint_ne(lease_of(alice, "L"), next);
    w->pid = bob;
    struct wire_file file = wire_opened(w, next, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(wire_result(w, wire_open(w, next, O_RDONLY)), ESTALE); /* another call */
}
END_TEST

/* The kernel waits for the directory then; and before it looks for another, it looks whether the old one is there. */
START_TEST(opener_that_is_held_up_is_sent_back_once)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), node);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    uint64_t next = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, _i ? wire_getattr(w, node) : wire_open(w, node, O_RDONLY)), ESTALE);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    w->pid = bob;
    ck_assert(!wire_exists(w, "L"));
    wire_advance(w, 3 * SECOND);
    lease_of(alice, "M");
    w->pid = wire_child(w);
    ck_assert_int_eq(wire_result(w, wire_getattr(w, next)), ESTALE); /* and others come and go */
    next = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), next);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_getattr(w, next)), 0);
    ck_assert_int_eq(wire_close(w, wire_opened(w, next, O_RDONLY)), 0);
}
END_TEST

START_TEST(opener_that_does_not_come_back_holds_up_no_rename)
{
    uint64_t node = lease_of(alice, "from");
    wire_advance(w, 2 * SECOND);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "from", "to", 0)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY)), ESTALE);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "to", "third", 0)), EBUSY);
    w->pid = bob;
    ck_assert(!wire_exists(w, "from")); /* he meant that */
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "to", "third", 0)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY)), ESTALE);
    wire_advance(w, SECOND); /* he was killed */
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_rename(w, "third", "fourth", 0)), 0);
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
START_TEST(number_of_a_node_is_free_when_the_kernel_was_notified_of_its_end)
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
    while (!wire_has_notification(w, FUSE_NOTIFY_DELETE, "Z")) {
    }
}
END_TEST

/* Releases the lease "second" while the kernel has not taken the notification that another has gone. */
static uint64_t release_behind_a_deletion(void)
{
    uint64_t first = lease_of(alice, "first"), second = lease_of(alice, "second");
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, first, "user.lease.ttl", "1s")), 0);
    g_autofree char *token = wire_xattr(w, second, "user.lease.token");
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "second")), second); /* and is kept */
    wire_hold_deletions(true);
    wire_advance(w, 2 * SECOND);
    return wire_setxattr(w, second, "user.lease.release", token);
}

/* Otherwise a lease that was released by its token could still be seen. */
START_TEST(answer_that_cannot_wait_for_an_invalidation_makes_the_kernel_look_again)
{
    notify_enable_expire(w->fs->notify);
    uint64_t released = release_behind_a_deletion();
    ck_assert(wire_waits(w, released));
    ck_assert(!wire_has_notification(w, WIRE_NOTIFY_INC_EPOCH, NULL));
    wire_advance(w, 20);
    while (wire_waits(w, released)) { /* the loop's timer goes by another clock */
    }
    ck_assert_int_eq(wire_result(w, released), 0);
    ck_assert(wire_has_notification(w, WIRE_NOTIFY_INC_EPOCH, NULL));
    ck_assert(!wire_has_notification(w, FUSE_NOTIFY_DELETE, "second"));
    wire_hold_deletions(false);
    while (!wire_has_notification(w, FUSE_NOTIFY_DELETE, "second")) {
    }
}
END_TEST

/* On these kernels a notification takes the directory's lock, which the pending call may hold. */
START_TEST(answer_waits_for_no_invalidation_before_linux_6_2)
{
    uint64_t released = release_behind_a_deletion();
    ck_assert_int_eq(wire_result(w, released), 0);
    ck_assert(!wire_has_notification(w, FUSE_NOTIFY_DELETE, "second"));
    wire_hold_deletions(false);
}
END_TEST

/* READDIR of the top, where the kernel has sought to this offset. */
static uint64_t read_some_of_directory_at(uint64_t fh, uint64_t offset, uint32_t size)
{
    struct fuse_read_in in = {.fh = fh, .offset = offset, .size = size};
    return wire_send(w, FUSE_READDIR, FUSE_ROOT_ID, &in, sizeof in, NULL, 0);
}

static uint64_t read_directory_at(uint64_t fh, uint64_t offset)
{
    return read_some_of_directory_at(fh, offset, 4096);
}

static size_t bytes_listed(uint64_t requested)
{
    size_t size;
    ck_assert_int_eq(wire_result(w, requested), 0);
    wire_data(w, requested, &size);
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

static uint64_t directory_opened(void)
{
    struct fuse_open_in open = {.flags = O_RDONLY};
    uint64_t opened = wire_send(w, FUSE_OPENDIR, FUSE_ROOT_ID, &open, sizeof open, NULL, 0);
    ck_assert_int_eq(wire_result(w, opened), 0);
    return ((const struct fuse_open_out *)wire_data(w, opened, NULL))->fh;
}

static void directory_closed(uint64_t fh)
{
    struct fuse_release_in release = {.fh = fh};
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_RELEASEDIR, FUSE_ROOT_ID, &release, sizeof release, NULL, 0)), 0);
}

/* More open directories than the daemon keeps batches of names for. */
enum { MANY_DIRECTORIES = 300 };

static void open_many(uint64_t *ret_directories)
{
    for (int i = 0; i < MANY_DIRECTORIES; i++) {
        ret_directories[i] = directory_opened();
    }
}

static void close_many(const uint64_t *directories)
{
    for (int i = 0; i < MANY_DIRECTORIES; i++) {
        directory_closed(directories[i]);
    }
}

START_TEST(many_who_seek_far_into_a_directory_at_once_all_come_to_its_end)
{
    uint64_t directories[MANY_DIRECTORIES], far[MANY_DIRECTORIES];
    lease_of(alice, "A");
    open_many(directories);
    for (int i = 0; i < MANY_DIRECTORIES; i++) {
        far[i] = read_directory_at(directories[i], UINT64_C(1) << 40);
        ck_assert(wire_waits(w, far[i]));
    }
    unsigned lists = fake_backend_count(w->fake, FAKE_LIST);
    wire_advance(w, 1);
    for (int i = 0; i < MANY_DIRECTORIES; i++) {
        ck_assert_uint_eq(bytes_listed(far[i]), 0);
    }
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_LIST), lists + MANY_DIRECTORIES);
    close_many(directories);
}
END_TEST

/* Reads the directory; returns the first name of the reply. */
static char *first_listed(uint64_t requested)
{
    ck_assert_uint_ge(bytes_listed(requested), FUSE_NAME_OFFSET);
    const struct fuse_dirent *first = wire_data(w, requested, NULL);
    return g_strndup(first->name, first->namelen);
}

/* The kernel seeks back in this way if the caller's buffer is smaller than the reply. */
START_TEST(listing_goes_back_in_its_last_reply_though_many_others_have_listed_meanwhile)
{
    uint64_t directories[MANY_DIRECTORIES], nodes[26];
    for (int i = 0; i < 26; i++) {
        nodes[i] = lease_of(alice, (char[]){(char)('A' + i), '\0'});
    }
    uint64_t fh = directory_opened();
    ck_assert_uint_eq(bytes_listed(read_some_of_directory_at(fh, 0, 200)), 192); /* ".", ".." and A to D */
    ck_assert_uint_eq(bytes_listed(read_directory_at(fh, 6)), UINT64_C(22) * 32);
    open_many(directories);
    for (int i = 0; i < MANY_DIRECTORIES; i++) {
        ck_assert_uint_gt(bytes_listed(read_directory_at(directories[i], 0)), 0);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(wire_result(w, wire_setxattr(w, nodes[i], "user.lease.break", "1")), 0);
    }
    g_autofree char *next = first_listed(read_directory_at(fh, 12));
    ck_assert_str_eq(next, "K");
    close_many(directories);
    directory_closed(fh);
}
END_TEST

START_TEST(directory_that_is_read_in_small_parts_keeps_its_names)
{
    uint64_t directories[MANY_DIRECTORIES];
    for (char name[] = "A"; name[0] <= 'Z'; name[0]++) {
        lease_of(alice, name);
    }
    open_many(directories);
    unsigned lists = fake_backend_count(w->fake, FAKE_LIST);
    for (unsigned i = 1; i < MANY_DIRECTORIES; i++) {
        if (i % 100 == 1) {
            ck_assert_uint_gt(bytes_listed(read_some_of_directory_at(directories[0], 2 + i / 20, 200)), 0);
        }
        ck_assert_uint_gt(bytes_listed(read_directory_at(directories[i], 0)), 0);
    }
    ck_assert_uint_gt(bytes_listed(read_directory_at(directories[0], 20)), 0);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_LIST), lists + MANY_DIRECTORIES);
    close_many(directories);
}
END_TEST

/* READDIRPLUS of the top, from its beginning. */
static uint64_t list_with_attributes(uint64_t fh)
{
    struct fuse_read_in in = {.fh = fh, .size = 4096};
    return wire_send(w, FUSE_READDIRPLUS, FUSE_ROOT_ID, &in, sizeof in, NULL, 0);
}

/* The entry of a name in such an answer. */
static struct fuse_entry_out listed(uint64_t requested, const char *name)
{
    size_t size;
    ck_assert_int_eq(wire_result(w, requested), 0);
    const char *data = wire_data(w, requested, &size);
    for (const struct fuse_direntplus *at; size > 0;
         data += FUSE_DIRENTPLUS_SIZE(at), size -= FUSE_DIRENTPLUS_SIZE(at)) {
        at = (const void *)data;
        if (at->dirent.namelen == strlen(name) && memcmp(at->dirent.name, name, at->dirent.namelen) == 0) {
            return at->entry_out;
        }
    }
    ck_abort_msg("%s is not listed", name);
}

static unsigned looked_up(uint64_t node)
{
    return GPOINTER_TO_UINT(g_hash_table_lookup(w->lookups, GSIZE_TO_POINTER(node)));
}

START_TEST(listing_has_the_attributes_of_leases_and_is_a_look_up_of_each)
{
    uint64_t node = lease_of(alice, "A");
    struct fuse_attr expected = attributes(node);
    struct wire_file provisional = wire_created(w, "B", O_WRONLY), idle = wire_created(w, "D", O_RDONLY);
    fake_backend_occupy(w->fake, "C", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_flock(w, idle, LOCK_EX)), 0);
    unsigned before = looked_up(node);

    uint64_t fh = directory_opened();
    uint64_t requested = list_with_attributes(fh);
    struct fuse_entry_out lease = listed(requested, "A");
    ck_assert_uint_eq(lease.nodeid, node);
    ck_assert_uint_eq(looked_up(node), before + 1); /* which wire_free forgets, and nothing may be left then */
    ck_assert_uint_gt(lease.entry_valid, 1);
    ck_assert_uint_eq(lease.attr_valid, 1);
    ck_assert_mem_eq(&lease.attr, &expected, sizeof expected);
    static const char *const others[] = {".", "..", "B", "C", "D"}; /* they come and go unknown to the kernel */
    for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
        ck_assert_uint_eq(listed(requested, others[i]).nodeid, 0);
    }

    uint64_t unheard = list_with_attributes(fh);
    wire_lose_caller(w, unheard);
    wire_turn(w);
    directory_closed(fh);
    ck_assert_int_eq(wire_close(w, provisional), 0);
    ck_assert_int_eq(wire_close(w, idle), 0);
}
END_TEST

static void by_renewal(uint64_t node)
{
    (void)node;
    wire_advance(w, LEASE_TTL_DEFAULT / 2);
}

static void by_term(uint64_t node)
{
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "5s")), 0);
}

static void by_link(uint64_t node)
{
    wire_node(w, wire_link(w, node, "K"));
}

/* The node and its name stay. */
static void by_next_holder(uint64_t node)
{
    w->pid = bob;
    uint64_t waits = wire_flock(w, wire_opened(w, node, O_RDONLY), LOCK_EX);
    ck_assert(wire_waits(w, waits));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.break", "1")), 0);
    ck_assert_int_eq(wire_result(w, waits), 0);
}

/* What CREATE's answer lets the kernel keep of the attributes, in nanoseconds. */
static uint32_t kept_of(uint64_t created)
{
    ck_assert_int_eq(wire_result(w, created), 0);
    const struct fuse_entry_out *entry = wire_data(w, created, NULL);
    ck_assert_uint_eq(entry->attr_valid, 0);
    return entry->attr_valid_nsec;
}

START_TEST(attributes_of_what_was_made_are_kept_for_a_tick_where_the_kernel_checks_permissions)
{
    uint64_t unchecked = wire_create(w, "A", O_WRONLY | O_EXCL);
    ck_assert_uint_eq(kept_of(unchecked), 0);
    w->options.checks = true;
    uint64_t lease = wire_create(w, "B", O_WRONLY | O_EXCL), provisional = wire_create(w, "C", O_WRONLY);
    ck_assert_uint_eq(kept_of(lease), 1000000);
    ck_assert_uint_eq(kept_of(provisional), 1000000);
    w->pid = bob;
    uint64_t idle = wire_create(w, "D", O_RDONLY), of_another = wire_create(w, "B", O_RDONLY);
    ck_assert_uint_eq(kept_of(idle), 0);
    ck_assert_uint_eq(kept_of(of_another), 0);
    w->pid = alice;
    ck_assert(!wire_has_notification(w, FUSE_NOTIFY_INVAL_INODE, NULL));
    wire_node(w, wire_link(w, wire_node(w, lease), "E"));
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_INVAL_INODE, NULL)); /* with the answer: there are two links now */
}
END_TEST

START_TEST(attributes_from_a_listing_are_invalidated_when_they_change)
{
    static void (*const changes[])(uint64_t node) = {by_renewal, by_term, by_link, by_next_holder};
    uint64_t node = lease_of(alice, "A"), fh = directory_opened();
    wire_advance(w, 2 * SECOND);
    ck_assert(!wire_has_notification(w, FUSE_NOTIFY_INVAL_INODE, NULL));
    ck_assert_uint_eq(listed(list_with_attributes(fh), "A").nodeid, node);
    changes[_i](node);
    while (!wire_has_notification(w, FUSE_NOTIFY_INVAL_INODE, NULL)) {
    }
    directory_closed(fh);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: names");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, wire_setup, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, symbolic_link_is_a_lease_with_its_target);
    tcase_add_test(cases, link_that_has_no_target_any_more_is_stale);
    tcase_add_test(cases, ticket_is_not_kept_by_the_name_that_made_it);
    tcase_add_loop_test(cases, lease_that_was_closed_is_moved_once_it_is_decided, 0, 2);
    tcase_add_test(cases, name_is_found_as_what_was_granted);
    tcase_add_test(cases, displaced_node_with_a_pending_claim_is_among_all);
    tcase_add_test(cases, displaced_nodes_are_no_step_to_another_name);
    tcase_add_test(cases, displaced_node_that_is_renamed_leaves_its_old_name);
    tcase_add_test(cases, link_acquires_the_name_with_content_and_inode);
    tcase_add_test(cases, three_names_of_a_lease_are_counted_as_they_go);
    tcase_add_test(cases, lock_of_a_name_that_was_linked_is_another_file);
    tcase_add_test(cases, file_of_a_name_that_was_linked_keeps_its_number_while_it_is_open);
    tcase_add_test(cases, link_to_a_held_name_is_refused);
    tcase_add_test(cases, link_of_a_file_that_is_being_moved_waits);
    tcase_add_test(cases, rename_moves_the_callers_own_lease);
    tcase_add_test(cases, rename_of_anothers_or_onto_anothers_is_refused);
    tcase_add_test(cases, rename_onto_ones_own_replaces_it);
    tcase_add_test(cases, rename_of_unknown_outcome_is_enolck);
    tcase_add_test(cases, rename_whose_lease_ends_meanwhile_is_answered);
    tcase_add_test(cases, child_cannot_rename_over_what_its_parent_holds);
    tcase_add_test(cases, what_the_dead_leave_is_not_replaced);
    tcase_add_test(cases, what_the_dead_leave_is_moved_by_the_same_user_as_it_is);
    tcase_add_loop_test(cases, rename_that_fails_takes_nothing_from_its_target, 0, 4);
    tcase_add_test(cases, who_waits_for_a_replaced_lease_waits_for_the_one_that_replaced_it);
    tcase_add_test(cases, handle_locks_and_tickets_are_neither_replaced_nor_moved);
    tcase_add_test(cases, exchange_is_refused_before_anything_is_done);
    tcase_add_test(cases, provisional_lease_of_the_caller_gives_way);
    tcase_add_test(cases, linked_names_are_two_locks_of_which_one_can_replace_the_other);
    tcase_add_test(cases, renamed_lease_counts_in_the_directory_it_is_in);
    tcase_add_test(cases, write_during_a_rename_keeps_the_old_content);
    tcase_add_test(cases, append_before_and_after_a_rename_keep_all);
    tcase_add_test(cases, write_of_a_lease_that_another_has_by_now_is_stale);
    tcase_add_test(cases, link_does_not_give_what_another_holds);
    tcase_add_test(cases, renamed_lease_is_opened_by_all_that_look_it_up_together);
    tcase_add_test(cases, opener_on_its_way_by_the_old_name_is_sent_back_once);
    tcase_add_test(cases, opener_of_a_name_that_goes_again_and_again_is_sent_back_once);
    tcase_add_test(cases, opener_of_a_name_that_the_kernel_may_keep_as_missing_is_sent_back);
    tcase_add_test(cases, opener_that_was_sent_back_opens_what_it_found_though_the_name_is_anothers_by_then);
    tcase_add_loop_test(cases, opener_that_is_held_up_is_sent_back_once, 0, 2);
    tcase_add_test(cases, opener_that_does_not_come_back_holds_up_no_rename);
    tcase_add_test(cases, names_are_at_most_255_bytes);
    tcase_add_test(cases, directories_are_made_and_removed);
    tcase_add_test(cases, forgetting_everything_leaves_no_node);
    tcase_add_test(cases, number_of_a_node_is_free_when_the_kernel_was_notified_of_its_end);
    tcase_add_test(cases, answer_that_cannot_wait_for_an_invalidation_makes_the_kernel_look_again);
    tcase_add_test(cases, seek_far_into_a_directory_leaves_the_loop_to_others_and_may_be_interrupted);
    tcase_add_test(cases, many_who_seek_far_into_a_directory_at_once_all_come_to_its_end);
    tcase_add_test(cases, listing_goes_back_in_its_last_reply_though_many_others_have_listed_meanwhile);
    tcase_add_test(cases, directory_that_is_read_in_small_parts_keeps_its_names);
    tcase_add_test(cases, listing_has_the_attributes_of_leases_and_is_a_look_up_of_each);
    tcase_add_test(cases, attributes_of_what_was_made_are_kept_for_a_tick_where_the_kernel_checks_permissions);
    tcase_add_loop_test(cases, attributes_from_a_listing_are_invalidated_when_they_change, 0, 4);
    suite_add_tcase(suite, cases);
    TCase *old = tcase_create("old");
    tcase_add_checked_fixture(old, set_up_before_linux_6_2, wire_teardown);
    tcase_add_test(old, answer_waits_for_no_invalidation_before_linux_6_2);
    suite_add_tcase(suite, old);
    return check_main(suite);
}

/* The directory .leasefs: who sees it, what it shows, and that it stays right while it is read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

static uint64_t control; /* the node of .leasefs */

static void set_up(void)
{
    wire_setup();
    control = wire_node(w, wire_lookup(w, ".leasefs"));
}

static uint64_t node_of(const char *name)
{
    uint64_t before = w->directory;
    w->directory = control;
    uint64_t node = wire_node(w, wire_lookup(w, name));
    w->directory = before;
    return node;
}

/* At most `size` bytes from there, to be freed. */
static char *read_at(struct wire_file file, uint64_t offset, uint32_t size, size_t *ret_size)
{
    uint64_t unique = wire_read(w, file, offset, size);
    ck_assert_int_eq(wire_result(w, unique), 0);
    const void *data = wire_data(w, unique, ret_size);
    return g_strndup(data, *ret_size);
}

/* The rest of the file. */
static GString *read_on(struct wire_file file, uint64_t offset, uint32_t size)
{
    GString *text = g_string_new(NULL);
    size_t got;
    do {
        char *part = read_at(file, offset + text->len, size, &got);
        g_string_append_len(text, part, (gssize)got);
        g_free(part);
    } while (got);
    return text;
}

static char *contents(const char *name)
{
    struct wire_file file = wire_opened(w, node_of(name), O_RDONLY);
    GString *text = read_on(file, 0, 4096);
    ck_assert_int_eq(wire_close(w, file), 0);
    return g_string_free(text, FALSE);
}

static unsigned lines(const char *text)
{
    unsigned count = 0;
    for (; *text; text++) {
        count += *text == '\n';
    }
    return count;
}

/* The fields of the line that begins with this name; NULL if there is none. */
static char **fields(const char *text, const char *name)
{
    g_auto(GStrv) all = g_strsplit(text, "\n", -1);
    char **found = NULL;
    for (size_t i = 0; all[i]; i++) {
        char **line = g_strsplit(all[i], "\t", -1);
        if (line[0] && strcmp(line[0], name) == 0) {
            ck_assert_ptr_null(found);
            found = line;
        } else {
            g_strfreev(line);
        }
    }
    return found;
}

/* Of a sample of .leasefs/metrics, by its name with labels. */
static double metric(const char *name)
{
    g_autofree char *text = contents("metrics"), *line = g_strconcat("\n", name, " ", NULL);
    const char *at = strstr(text, line);
    ck_assert_msg(at != NULL, "no %s", name);
    return g_ascii_strtod(at + strlen(line), NULL);
}

static char *lock_name(unsigned number)
{
    return g_strdup_printf("lock-number-%04ux", number);
}

static struct wire_file lock(unsigned number)
{
    g_autofree char *name = lock_name(number);
    return wire_created(w, name, O_WRONLY | O_EXCL);
}

/* --- names ----------------------------------------------------------------------- */

START_TEST(files_are_found_and_read_only)
{
    static const char *const names[] = {"status", "locks", "waiters", "metrics"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        uint64_t node = node_of(names[i]);
        size_t size;
        uint64_t unique = wire_getattr(w, node);
        ck_assert_int_eq(wire_result(w, unique), 0);
        const struct fuse_attr_out *out = wire_data(w, unique, &size);
        ck_assert_uint_eq(out->attr.mode, S_IFREG | 0444);
        ck_assert_uint_eq(out->attr.size, 0);
        ck_assert_int_eq(wire_result(w, wire_open(w, node, O_WRONLY)), EPERM);
        ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDWR)), EPERM);
        ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY | O_TRUNC)), EPERM);
    }
    w->directory = control;
    ck_assert_int_eq(wire_result(w, wire_lookup(w, "other")), ENOENT);
    ck_assert_int_eq(wire_result(w, wire_lookup(w, ".leasefs")), ENOENT);
}
END_TEST

START_TEST(who_may_read_the_root_may_read_them)
{
    static const struct {
        uint32_t root, directory, file;
    } modes[] = {{0755, 0555, 0444}, {0700, 0500, 0400}, {01777, 0555, 0444}, {0711, 0500, 0400}, {0750, 0550, 0440}};
    for (size_t i = 0; i < G_N_ELEMENTS(modes); i++) {
        struct fuse_setattr_in in = {.valid = FATTR_MODE, .mode = S_IFDIR | modes[i].root};
        size_t size;
        ck_assert_int_eq(wire_result(w, wire_setattr(w, FUSE_ROOT_ID, NULL, in)), 0);
        uint64_t directory = wire_getattr(w, control), file = wire_getattr(w, node_of("locks"));
        wire_turn(w);
        const struct fuse_attr_out *out = wire_data(w, directory, &size);
        ck_assert_uint_eq(out->attr.mode, S_IFDIR | modes[i].directory);
        out = wire_data(w, file, &size);
        ck_assert_uint_eq(out->attr.mode, S_IFREG | modes[i].file);
    }
}
END_TEST

static void check_names_refused(const char *name)
{
    ck_assert_int_eq(wire_result(w, wire_create(w, name, O_WRONLY)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_create(w, name, O_WRONLY | O_EXCL)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, name)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_symlink(w, name, "x")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, name)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, name)), EPERM);
}

START_TEST(nothing_is_made_moved_or_removed_there)
{
    lock(1);
    g_autofree char *mine = lock_name(1);
    uint64_t node = wire_node(w, wire_lookup(w, mine)), status = node_of("status");
    check_names_refused(".leasefs");
    ck_assert_int_eq(wire_result(w, wire_rename(w, mine, ".leasefs", 0)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_rename(w, ".leasefs", "other", 0)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_link(w, node, ".leasefs")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_link(w, status, "other")), EPERM);
    w->directory = control;
    check_names_refused("status");
    check_names_refused("other");
    check_names_refused("queue-");
    w->directory = FUSE_ROOT_ID;
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_ACQUIRE), 1);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_MKDIR), 0);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_RMDIR), 0);
}
END_TEST

START_TEST(name_is_free_below_the_root)
{
    w->directory = wire_node(w, wire_mkdir(w, "d"));
    wire_created(w, ".leasefs", O_WRONLY | O_EXCL);
    ck_assert(wire_exists(w, ".leasefs"));
}
END_TEST

START_TEST(files_cannot_be_changed_or_locked)
{
    uint64_t node = node_of("locks");
    struct wire_file file = wire_opened(w, node, O_RDONLY);
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = 0777}, cut = {.valid = FATTR_SIZE};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, mode)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, &file, cut)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, control, NULL, mode)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_touch(w, node, NULL)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "1s")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, control, "user.lease.width", "3")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_getxattr(w, node, "user.lease.state")), ENODATA);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_SH | LOCK_NB)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 1, F_RDLCK, 0, 9, true)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_getlk(w, file, 1, F_RDLCK, 0, 9)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_poll(w, file, 7)), 0);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, file)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_ACQUIRE), 0);
}
END_TEST

START_TEST(user_has_not_more_than_16_open_and_keeps_nobody_else_out)
{
    struct wire_file files[16];
    uint64_t node = node_of("status");
    w->uid = 1234;
    for (size_t i = 0; i < G_N_ELEMENTS(files); i++) {
        files[i] = wire_opened(w, node, O_RDONLY);
    }
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY)), EDQUOT);
    w->uid = 1235;
    wire_opened(w, node, O_RDONLY);
    w->uid = 0;
    for (int i = 0; i < 100; i++) {
        wire_opened(w, node, O_RDONLY);
    }
    w->uid = 1234;
    ck_assert_int_eq(wire_close(w, files[5]), 0);
    wire_opened(w, node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_open(w, node, O_RDONLY)), EDQUOT);
}
END_TEST

START_TEST(open_whose_caller_is_gone_is_closed)
{
    uint64_t unique = wire_open(w, node_of("status"), O_RDONLY);
    wire_lose_caller(w, unique);
    wire_turn(w);
    ck_assert_uint_eq(w->fs->control->open, 0);
}
END_TEST

/* --- tables ------------------------------------------------------------------------ */

START_TEST(locks_shows_locks_and_their_holders)
{
    g_autofree char *pid = g_strdup_printf("%d", alice);
    w->uid = 1234;
    wire_created(w, "a\nb\tc\\", O_WRONLY | O_EXCL);
    struct wire_file file = wire_created(w, "shared", O_RDONLY), ranged = wire_created(w, "ranged", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, ranged, 5, F_WRLCK, 3, 4, false)), 0);
    wire_advance(w, 1500);
    g_autofree char *text = contents("locks");
    ck_assert_uint_eq(lines(text), 4);
    ck_assert_int_eq(strncmp(text, "name\tkind\tmode\thost\tpid\tuid\tcommand\tage\tremaining\twaiters\n", 56), 0);
    g_auto(GStrv) lease = fields(text, "a\\x0ab\\x09c\\x5c"), flocked = fields(text, "shared"),
                  ranges = fields(text, "ranged");
    ck_assert_str_eq(lease[1], "lease");
    ck_assert_str_eq(lease[2], "exclusive");
    ck_assert_str_eq(lease[3], w->fs->host);
    ck_assert_str_eq(lease[4], pid);
    ck_assert_str_eq(lease[5], "1234");
    ck_assert_str_eq(lease[7], "1.500");
    ck_assert_str_eq(lease[9], "0");
    ck_assert_str_eq(lease[10], "-");
    ck_assert_ptr_null(lease[11]);
    ck_assert_str_eq(flocked[1], "flock");
    ck_assert_str_eq(flocked[2], "shared");
    ck_assert_str_eq(ranges[1], "fcntl");
    ck_assert_str_eq(ranges[2], "exclusive");
    ck_assert_str_eq(ranges[8], flocked[8]);
}
END_TEST

START_TEST(fcntl_lock_goes_from_the_table_with_its_last_range)
{
    struct wire_file file = wire_created(w, "ranged", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 5, F_WRLCK, 3, 4, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 5, F_RDLCK, 7, 9, false)), 0);
    ck_assert_double_eq(metric("leasefs_held{kind=\"fcntl\"}"), 1);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 5, F_UNLCK, 0, UINT64_MAX >> 1, false)), 0);
    g_autofree char *text = contents("locks");
    ck_assert_uint_eq(lines(text), 1);
    ck_assert_double_eq(metric("leasefs_held{kind=\"fcntl\"}"), 0);
    ck_assert_double_eq(metric("leasefs_released_total{kind=\"fcntl\"}"), 1);
}
END_TEST

START_TEST(waiters_are_shown_in_order_with_their_position)
{
    struct wire_file file = wire_created(w, "queue", O_RDONLY), ranged = wire_created(w, "ranged", O_RDWR);
    uint64_t waits[3], ranges;
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, ranged, 5, F_WRLCK, 0, 9, false)), 0);
    for (int i = 0; i < 3; i++) {
        w->pid = wire_child(w);
        struct wire_file other = wire_opened(w, file.node, O_RDONLY);
        waits[i] = wire_flock(w, other, i == 1 ? LOCK_SH : LOCK_EX);
        ck_assert(wire_waits(w, waits[i]));
    }
    w->pid = bob;
    ranges = wire_setlk(w, wire_opened(w, ranged.node, O_RDWR), 6, F_RDLCK, 5, 5, true);
    ck_assert(wire_waits(w, ranges));
    g_autofree char *text = contents("waiters"), *locks = contents("locks");
    g_auto(GStrv) all = g_strsplit(text, "\n", -1);
    ck_assert_uint_eq(lines(text), 5);
    for (int i = 0; i < 3; i++) {
        g_auto(GStrv) line = g_strsplit(all[i + 1], "\t", -1);
        g_autofree char *place = g_strdup_printf("%d", i + 1);
        ck_assert_str_eq(line[0], "queue");
        ck_assert_str_eq(line[1], "flock");
        ck_assert_str_eq(line[2], i == 1 ? "shared" : "exclusive");
        ck_assert_str_eq(line[8], place);
    }
    g_auto(GStrv) ranging = fields(text, "ranged"), held = fields(locks, "queue"), held_range = fields(locks, "ranged");
    ck_assert_int_eq(atoi(ranging[4]), bob);
    ck_assert_str_eq(ranging[2], "shared");
    ck_assert_str_eq(ranging[8], "-");
    ck_assert_str_eq(held[9], "3");
    ck_assert_str_eq(held_range[9], "1");
    ck_assert_double_eq(metric("leasefs_waiting"), 4);

    wire_interrupt(w, waits[0]);
    wire_interrupt(w, ranges);
    ck_assert_int_eq(wire_result(w, waits[0]), EINTR);
    ck_assert_int_eq(wire_result(w, ranges), EINTR);
    g_autofree char *later = contents("waiters");
    ck_assert_uint_eq(lines(later), 3);
    ck_assert_double_eq(metric("leasefs_waiting"), 2);
    ck_assert_double_eq(metric("leasefs_wait_seconds_count"), 2);
}
END_TEST

START_TEST(tickets_hold_or_wait_for_their_turn)
{
    w->directory = wire_node(w, wire_mkdir(w, "q"));
    struct wire_file first = wire_created(w, "job-", O_RDWR | O_CREAT);
    wire_created(w, "job-", O_RDWR | O_CREAT);
    wire_created(w, "job-", O_RDWR | O_CREAT);
    w->directory = FUSE_ROOT_ID;
    g_autofree char *locks = contents("locks"), *waiters = contents("waiters");
    ck_assert_uint_eq(lines(locks), 2);
    ck_assert_uint_eq(lines(waiters), 3);
    ck_assert_ptr_nonnull(strstr(locks, "\tticket\t"));
    ck_assert_ptr_nonnull(strstr(waiters, "\t2\n"));
    wire_result(w, wire_release(w, first));
    wire_turn(w);
    g_autofree char *after = contents("locks");
    ck_assert_uint_eq(lines(after), 2);
    ck_assert_double_eq(metric("leasefs_acquired_total{kind=\"ticket\"}"), 2);
    ck_assert_double_eq(metric("leasefs_waiting"), 1);
}
END_TEST

enum { MANY = 1000 };

/* The first, the last, the next to be shown (a slice is an even number), and many between. */
static bool goes(unsigned number)
{
    return number % 2 == 0 || number == MANY - 1;
}

/* While `locks` is read a part at a time, others come and go. */
START_TEST(table_stays_right_while_it_is_read_slowly)
{
    struct wire_file files[MANY];
    char *seen = g_malloc0(MANY * 2);
    for (unsigned i = 0; i < MANY; i++) {
        files[i] = lock(i);
    }
    struct wire_file table = wire_opened(w, node_of("locks"), O_RDONLY);
    size_t got;
    g_autofree char *first = read_at(table, 0, 4096, &got);
    ck_assert_uint_eq(got, 4096);
    for (unsigned i = MANY; i-- > 0;) { /* those that were read last */
        if (!goes(i)) {
            continue;
        }
        g_autofree char *name = lock_name(i);
        ck_assert_int_eq(wire_result(w, wire_unlink(w, name)), 0);
        lock(i + MANY);
    }
    for (unsigned i = 1; i < MANY - 1; i += 2) { /* changed in place */
        ck_assert_int_eq(wire_result(w, wire_flock(w, files[i], LOCK_EX)), 0);
    }
    GString *rest = read_on(table, got, 4096);
    GString *again = read_on(table, 0, 65536);
    ck_assert_int_eq(strncmp(again->str, first, got), 0);
    ck_assert_str_eq(again->str + got, rest->str);
    g_auto(GStrv) all = g_strsplit(again->str, "\n", -1);
    for (size_t i = 1; all[i] && *all[i]; i++) {
        unsigned number;
        ck_assert_int_eq(sscanf(all[i], "lock-number-%4ux\t", &number), 1);
        ck_assert_uint_lt(number, MANY);
        ck_assert(!seen[number]);
        seen[number] = 1;
    }
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert(seen[i] || goes(i));
    }
    g_string_free(rest, TRUE);
    g_string_free(again, TRUE);
    g_free(seen);
}
END_TEST

/* Otherwise each line of a lock would go through all holders and waiters of the lock. */
START_TEST(waiters_of_a_lock_are_counted_once_for_a_table)
{
    struct wire_file first = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_SH)), 0);
    for (unsigned i = 1; i < MANY; i++) {
        ck_assert_int_eq(wire_result(w, wire_flock(w, wire_opened(w, first.node, O_RDONLY), LOCK_SH)), 0);
    }
    w->pid = bob;
    uint64_t waits = wire_flock(w, wire_opened(w, first.node, O_RDONLY), LOCK_EX);
    ck_assert(wire_waits(w, waits));
    struct wire_file table = wire_opened(w, node_of("locks"), O_RDONLY);
    wire_interrupt(w, waits);
    ck_assert_int_eq(wire_result(w, waits), EINTR);
    GString *text = read_on(table, 0, 4096);
    g_auto(GStrv) all = g_strsplit(text->str, "\n", -1);
    ck_assert_uint_eq(lines(text->str), MANY + 1);
    for (unsigned i = 1; i <= MANY; i++) {
        g_auto(GStrv) line = g_strsplit(all[i], "\t", -1);
        ck_assert_str_eq(line[9], "1");
    }
    g_autofree char *later = contents("locks");
    ck_assert_ptr_null(strstr(later, "\t1\t-\n"));
    g_string_free(text, TRUE);
}
END_TEST

START_TEST(read_far_ahead_lets_others_go_first)
{
    for (unsigned i = 0; i < MANY; i++) {
        lock(i);
    }
    struct wire_file table = wire_opened(w, node_of("locks"), O_RDONLY);
    struct wire_file other = wire_opened(w, node_of("locks"), O_RDONLY);
    uint64_t far = wire_read(w, table, 50000, 10), lost = wire_read(w, other, 1 << 30, 10);
    wire_getattr(w, FUSE_ROOT_ID);
    wire_take(w); /* the loop has not run: one slice of each was written, and the third is answered */
    ck_assert_uint_eq(w->fs->requests, 2);
    wire_interrupt(w, lost);
    for (unsigned i = 0; i < MANY && w->fs->requests; i++) {
        wire_turn(w); /* a slice moves nothing that the wire sees */
    }
    ck_assert_int_eq(wire_result(w, far), 0);
    size_t size;
    wire_data(w, far, &size);
    ck_assert_uint_eq(size, 10);
    ck_assert_int_eq(wire_result(w, lost), EINTR);
    uint64_t end = wire_read(w, table, 1 << 30, 10);
    for (unsigned i = 0; i < MANY && (i == 0 || w->fs->requests); i++) {
        wire_turn(w);
    }
    ck_assert_int_eq(wire_result(w, end), 0);
    wire_data(w, end, &size);
    ck_assert_uint_eq(size, 0);
}
END_TEST

START_TEST(daemon_ends_while_a_table_is_read)
{
    for (unsigned i = 0; i < MANY; i++) {
        lock(i);
    }
    struct wire_file table = wire_opened(w, node_of("locks"), O_RDONLY);
    wire_read(w, table, 1 << 30, 10);
    wire_take(w);
}
END_TEST

/* --- counting ------------------------------------------------------------------------ */

START_TEST(ends_are_counted_by_their_reason)
{
    struct wire_file files[4] = {lock(0), lock(1), lock(2), lock(3)};
    (void)files;
    ck_assert_double_eq(metric("leasefs_held{kind=\"lease\"}"), 4);
    ck_assert_double_eq(metric("leasefs_acquired_total{kind=\"lease\"}"), 4);
    g_auto(GStrv) names = g_new0(char *, 5);
    for (unsigned i = 0; i < 4; i++) {
        names[i] = lock_name(i);
    }
    wire_advance(w, 3000);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, names[0])), 0);
    fake_backend_end(w->fake, names[1], BACKEND_EXPIRED);
    fake_backend_end(w->fake, names[2], BACKEND_LOST);
    wire_turn(w);
    w->uid = 0;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, wire_node(w, wire_lookup(w, names[3])), "user.lease.break", "1")),
                     0);
    wire_turn(w);
    ck_assert_double_eq(metric("leasefs_held{kind=\"lease\"}"), 0);
    ck_assert_double_eq(metric("leasefs_released_total{kind=\"lease\"}"), 1);
    ck_assert_double_eq(metric("leasefs_expired_total{kind=\"lease\"}"), 1);
    ck_assert_double_eq(metric("leasefs_lost_total{kind=\"lease\"}"), 1);
    ck_assert_double_eq(metric("leasefs_broken_total{kind=\"lease\"}"), 1);
    ck_assert_double_eq(metric("leasefs_hold_seconds_count"), 4);
    ck_assert_double_eq(metric("leasefs_hold_seconds_sum"), 12);
    ck_assert_double_eq(metric("leasefs_hold_seconds_bucket{le=\"2.048\"}"), 0);
    ck_assert_double_eq(metric("leasefs_hold_seconds_bucket{le=\"4.096\"}"), 4);
}
END_TEST

START_TEST(change_of_mode_is_no_new_lock)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_SH)), 0);
    ck_assert_double_eq(metric("leasefs_acquired_total{kind=\"flock\"}"), 1);
    ck_assert_double_eq(metric("leasefs_held{kind=\"flock\"}"), 1);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    ck_assert_double_eq(metric("leasefs_released_total{kind=\"flock\"}"), 1);
    ck_assert_double_eq(metric("leasefs_held{kind=\"flock\"}"), 0);
}
END_TEST

START_TEST(requests_are_counted_by_operation_and_answer)
{
    lock(0);
    g_autofree char *name = lock_name(0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_create(w, name, O_WRONLY | O_EXCL)), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, name)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "none")), ENOENT);
    ck_assert_double_eq(metric("leasefs_requests_total{operation=\"create\",result=\"ok\"}"), 1);
    ck_assert_double_eq(metric("leasefs_requests_total{operation=\"create\",result=\"refused\"}"), 1);
    ck_assert_double_eq(metric("leasefs_requests_total{operation=\"unlink\",result=\"denied\"}"), 1);
    ck_assert_double_eq(metric("leasefs_requests_total{operation=\"unlink\",result=\"missing\"}"), 1);
    ck_assert_double_eq(metric("leasefs_refused_total"), 1);
    ck_assert_double_eq(metric("leasefs_request_seconds_count{group=\"acquire\"}"), 2);
    ck_assert_double_eq(metric("leasefs_request_seconds_count{group=\"remove\"}"), 2);
    /* Requests about .leasefs do not count as work for locks. */
    ck_assert_double_eq(metric("leasefs_requests_total{operation=\"read\",result=\"ok\"}"), 0);
}
END_TEST

START_TEST(status_shows_what_is_mounted_and_how_it_is)
{
    lock(0);
    g_autofree char *text = contents("status"), *pid = g_strdup_printf("\npid: %d\n", getpid());
    ck_assert_ptr_nonnull(strstr(text, "version: "));
    ck_assert_ptr_nonnull(strstr(text, "\nstate: connected\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nsafety: single\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nheld: 1\nwaiting: 0\n"));
    ck_assert_ptr_nonnull(strstr(text, pid));
}
END_TEST

START_TEST(store_of_one_mount_shows_that_mount_and_its_age)
{
    wire_advance(w, 61234);
    g_autofree char *mounts = wire_xattr(w, FUSE_ROOT_ID, "user.lease.mounts");
    ck_assert(g_str_has_prefix(mounts, w->fs->host));
    ck_assert(g_str_has_suffix(mounts, "\t61.234\n"));
}
END_TEST

static Suite *control_suite(void)
{
    Suite *suite = suite_create("fs control");
    TCase *names = tcase_create("names"), *tables = tcase_create("tables"), *counts = tcase_create("counts");

    tcase_add_checked_fixture(names, set_up, wire_teardown);
    tcase_add_test(names, files_are_found_and_read_only);
    tcase_add_test(names, who_may_read_the_root_may_read_them);
    tcase_add_test(names, nothing_is_made_moved_or_removed_there);
    tcase_add_test(names, name_is_free_below_the_root);
    tcase_add_test(names, files_cannot_be_changed_or_locked);
    tcase_add_test(names, user_has_not_more_than_16_open_and_keeps_nobody_else_out);
    tcase_add_test(names, open_whose_caller_is_gone_is_closed);
    suite_add_tcase(suite, names);

    tcase_add_checked_fixture(tables, set_up, wire_teardown);
    tcase_set_timeout(tables, 60);
    tcase_add_test(tables, locks_shows_locks_and_their_holders);
    tcase_add_test(tables, fcntl_lock_goes_from_the_table_with_its_last_range);
    tcase_add_test(tables, waiters_are_shown_in_order_with_their_position);
    tcase_add_test(tables, tickets_hold_or_wait_for_their_turn);
    tcase_add_test(tables, table_stays_right_while_it_is_read_slowly);
    tcase_add_test(tables, waiters_of_a_lock_are_counted_once_for_a_table);
    tcase_add_test(tables, read_far_ahead_lets_others_go_first);
    tcase_add_test(tables, daemon_ends_while_a_table_is_read);
    suite_add_tcase(suite, tables);

    tcase_add_checked_fixture(counts, set_up, wire_teardown);
    tcase_add_test(counts, ends_are_counted_by_their_reason);
    tcase_add_test(counts, change_of_mode_is_no_new_lock);
    tcase_add_test(counts, requests_are_counted_by_operation_and_answer);
    tcase_add_test(counts, status_shows_what_is_mounted_and_how_it_is);
    tcase_add_test(counts, store_of_one_mount_shows_that_mount_and_its_age);
    suite_add_tcase(suite, counts);
    return suite;
}

int main(void)
{
    return check_main(control_suite());
}

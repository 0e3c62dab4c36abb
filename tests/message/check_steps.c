/* check_steps: no request costs fs/ more beside a thousand holders, waiters or open files of a name than beside ten;
 * see tests/support/steps.h.  The store is the fake one, whose steps do not count. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"
#include "tests/support/steps.h"

enum { FEW = 10, MANY = 1000, GROWTH = 2 };

static struct wire_file mine;
static GArray *files; /* struct wire_file, of carol */

static void open_many(unsigned n, int flags)
{
    for (unsigned i = 0; i < n; i++) {
        struct wire_file file = wire_opened(w, mine.node, flags);
        g_array_append_val(files, file);
    }
}

static void make_files(unsigned n)
{
    w->pid = carol;
    open_many(n, O_RDONLY);
    w->pid = alice;
}

static void make_sharers(unsigned n)
{
    w->pid = carol;
    open_many(n, O_RDWR);
    for (unsigned i = 0; i < n; i++) {
        ck_assert_int_eq(wire_result(w, wire_flock(w, g_array_index(files, struct wire_file, i), LOCK_SH)), 0);
    }
    w->pid = alice;
}

static void make_waiters(unsigned n)
{
    w->pid = bob;
    struct wire_file holder = wire_opened(w, mine.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, holder, LOCK_EX)), 0);
    w->pid = carol;
    open_many(n, O_RDWR);
    for (unsigned i = 0; i < n; i++) {
        wire_flock(w, g_array_index(files, struct wire_file, i), LOCK_EX);
    }
    wire_turn(w);
    w->pid = alice;
}

static void open_and_close(void)
{
    wire_close(w, wire_opened(w, mine.node, O_RDWR));
}

static void look(void)
{
    attributes(mine.node);
    wire_result(w, wire_lookup(w, "L"));
}

static void read_attributes(void)
{
    static const char *const names[] = {"state", "kind", "mode", "token", "acquired", "waiters", "note"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *name = g_strconcat("user.lease.", names[i], NULL);
        g_free(wire_xattr(w, mine.node, name));
    }
}

static void read_owners(void)
{
    g_free(wire_xattr(w, mine.node, "user.lease.owner"));
}

static void flock_and_unlock(void)
{
    wire_result(w, wire_flock(w, mine, LOCK_SH | LOCK_NB));
    wire_result(w, wire_flock(w, mine, LOCK_EX | LOCK_NB));
    wire_result(w, wire_flock(w, mine, LOCK_UN));
}

static void wait_interrupted(void)
{
    uint64_t waiting = wire_flock(w, mine, LOCK_EX);
    wire_turn(w);
    wire_interrupt(w, waiting);
    wire_turn(w);
}

static void record_locks(void)
{
    wire_result(w, wire_getlk(w, mine, 7, F_WRLCK, 0, 9));
    wire_result(w, wire_setlk(w, mine, 7, F_RDLCK, 0, 9, false));
    wire_result(w, wire_setlk(w, mine, 7, F_UNLCK, 0, 9, false));
}

static void set_attributes(void)
{
    wire_result(w, wire_setxattr(w, mine.node, "user.lease.note", "text"));
    wire_result(w, wire_touch(w, mine.node, NULL));
}

static void expire_one(void)
{
    struct wire_file file = g_array_index(files, struct wire_file, files->len - 1);
    g_array_set_size(files, files->len - 1);
    wire_result(w, wire_release(w, file));
}

static const struct {
    const char *what;
    void (*make)(unsigned n);
    void (*call)(void);
    unsigned extra;
} cases[] = {
    {"open and close beside sharers", make_sharers, open_and_close, 0},
    {"stat and look-up beside sharers", make_sharers, look, 0},
    {"attributes beside sharers", make_sharers, read_attributes, 64 * 100},
    {"owners of sharers", make_sharers, read_owners, 64 * 200},
    {"flock beside sharers", make_sharers, flock_and_unlock, 64 * 20},
    {"record locks beside sharers", make_sharers, record_locks, 0},
    {"setting attributes beside sharers", make_sharers, set_attributes, 64 * 100},
    {"the end of a sharer", make_sharers, expire_one, 0},
    {"open and close beside waiters", make_waiters, open_and_close, 0},
    {"stat and look-up beside waiters", make_waiters, look, 0},
    {"flock beside waiters", make_waiters, flock_and_unlock, 0},
    {"a wait beside waiters", make_waiters, wait_interrupted, 0},
    {"open and close beside open files", make_files, open_and_close, 0},
    {"stat and look-up beside open files", make_files, look, 0},
    {"attributes beside open files", make_files, read_attributes, 0},
    {"flock beside open files", make_files, flock_and_unlock, 0},
};

/* The least of some calls, because the first may make what the others find. */
static uint64_t measure(int i, unsigned n)
{
    uint64_t least = UINT64_MAX;
    wire_setup();
    files = g_array_new(FALSE, FALSE, sizeof(struct wire_file));
    mine = wire_created(w, "L", O_RDONLY);
    cases[i].make(n);
    for (int round = 0; round < 3; round++) {
        uint64_t before = steps_now();
        cases[i].call();
        least = MIN(least, steps_now() - before);
    }
    wire_end(w);
    g_array_free(files, TRUE);
    return least;
}

START_TEST(a_request_beside_very_many_costs_little_more_than_beside_few)
{
    uint64_t few = measure(_i, FEW), many = measure(_i, MANY);
    printf("# %s: %" G_GUINT64_FORMAT " steps beside %d, %" G_GUINT64_FORMAT " beside %d\n", cases[_i].what, few, FEW,
           many, MANY);
    ck_assert_msg(many <= GROWTH * few + cases[_i].extra, "%s: %" G_GUINT64_FORMAT " steps, not %" G_GUINT64_FORMAT,
                  cases[_i].what, many, few);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steps");
    TCase *cases_of = tcase_create("steps");
    tcase_set_timeout(cases_of, 120);
    tcase_add_loop_test(cases_of, a_request_beside_very_many_costs_little_more_than_beside_few, 0, G_N_ELEMENTS(cases));
    suite_add_tcase(suite, cases_of);
    return check_main(suite);
}

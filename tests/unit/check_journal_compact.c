/* check_journal_compact: the journal is replaced by a shorter one while it is in use, and no crash, power cut or error
 * meanwhile loses anything.
 *
 * A power cut leaves each file with its content of the last sync, under its name then or its present one; disk.h knows
 * both.
 */
#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/journal/journal.h"
#include "tests/support/check_main.h"
#include "tests/support/disk.h"
#include "tests/support/scratch.h"

static char *directory;
static char error[512];

static void setup(void)
{
    directory = scratch_new();
    disk_remember("journal");
}

static void teardown(void)
{
    scratch_free(directory);
}

static struct journal *open_good(const char *where, journal_replay *replay, void *arg)
{
    struct journal *j = NULL;
    uint64_t cut = 0;

    ck_assert_msg(journal_open(where, replay, arg, &j, &cut, error, sizeof(error)) == 0, "%s", error);
    return j;
}

/* A state: which of 64 keys are set, to what.  Record type 1 sets, 2 removes. */
enum { KEYS = 64 };

struct state {
    uint32_t value[KEYS]; /* 0: not set */
};

static int apply(void *arg, uint8_t type, const void *payload, size_t length)
{
    struct state *state = arg;
    uint32_t words[2];

    if (length != sizeof(words))
        return -EPROTO;
    memcpy(words, payload, sizeof(words));
    state->value[words[0]] = type == 1 ? words[1] : 0;
    return 0;
}

static void change(struct journal *j, struct state *state, GRand *random)
{
    uint32_t words[2] = {(uint32_t)g_rand_int_range(random, 0, KEYS), g_rand_int(random) | 1};
    uint8_t type = g_rand_int_range(random, 0, 3) ? 1 : 2;

    ck_assert_int_eq(journal_append(j, type, words, sizeof(words)), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    apply(state, type, words, sizeof(words));
}

/* What a daemon would find that starts after this one was killed now. */
static void check_after_crash(const struct state *expected, const char *when)
{
    char *copy = scratch_copy(directory);
    struct state found = {{0}};
    struct journal *j = open_good(copy, apply, &found);

    ck_assert_msg(memcmp(&found, expected, sizeof(found)) == 0, "other state after a crash %s", when);
    journal_close(j);
    scratch_free(copy);
}

/* Copies a part of the state; the next key, or KEYS at the end. */
static uint32_t copy_part(struct journal *j, const struct state *state, uint32_t key, uint32_t count)
{
    for (; key < KEYS && count--; key++) {
        uint32_t words[2] = {key, state->value[key]};

        if (words[1])
            ck_assert_int_eq(journal_compact_append(j, 1, words, sizeof(words)), 0);
    }
    ck_assert_int_eq(journal_commit(j), 0);
    return key;
}

static void wait_ready(struct journal *j)
{
    while (!journal_compact_ready(j))
        g_usleep(100);
}

START_TEST(crash_at_any_step_of_compaction_finds_the_same_state)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    uint64_t before;

    for (int i = 0; i < 500; i++)
        change(j, &state, random);
    before = journal_size(j);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(journal_compact_begin(j), -EALREADY);
    check_after_crash(&state, "when compaction has begun");
    for (uint32_t key = 0; key < KEYS;) {
        key = copy_part(j, &state, key, 7);
        check_after_crash(&state, "after a part");
        change(j, &state, random);
        check_after_crash(&state, "after a change between two parts");
    }
    ck_assert_int_eq(journal_compact_swap(j), -EAGAIN);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    copy_part(j, &state, 0, KEYS);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    check_after_crash(&state, "before the sync");
    change(j, &state, random);
    wait_ready(j);
    check_after_crash(&state, "when it is ready");
    change(j, &state, random);
    check_after_crash(&state, "after a change when it is ready");
    ck_assert_int_eq(journal_compact_swap(j), 0);
    check_after_crash(&state, "after the swap");
    ck_assert_uint_lt(journal_size(j), before);
    change(j, &state, random);
    check_after_crash(&state, "after a change after the swap");
    journal_close(j);
    check_after_crash(&state, "at the end");
    g_rand_free(random);
}
END_TEST

START_TEST(sequence_grows_across_compaction)
{
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    GRand *random = g_rand_new_with_seed(1);

    for (int i = 0; i < 10; i++)
        change(j, &state, random);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    wait_ready(j);
    ck_assert_int_eq(journal_compact_swap(j), 0);
    change(j, &state, random);
    ck_assert_uint_eq(journal_sequence(j), 11);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    ck_assert_uint_eq(journal_synced(j), 11);
    journal_close(j);
    g_rand_free(random);
}
END_TEST

START_TEST(compaction_that_cannot_write_leaves_the_journal_in_use)
{
    GRand *random = g_rand_new_with_seed(2);
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    struct stat st;
    char *path = g_build_filename(directory, "journal.new", NULL);

    change(j, &state, random);
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(journal_compact_begin(j), -ENOSPC);
    disk_fail_writes(0);
    ck_assert_int_eq(g_stat(path, &st), -1);
    change(j, &state, random);

    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(g_stat(path, &st), 0);
    copy_part(j, &state, 0, KEYS);
    disk_fail_syncs(EIO, st.st_ino);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    wait_ready(j);
    ck_assert_int_eq(journal_compact_swap(j), -EIO);
    disk_fail_syncs(0, 0);
    ck_assert_int_eq(g_stat(path, &st), -1);

    ck_assert_int_eq(journal_compact_begin(j), 0);
    copy_part(j, &state, 0, KEYS);
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(journal_append(j, 2, (uint32_t[]){1, 1}, 8), 0); /* dropped, but from the journal alone */
    ck_assert_int_eq(journal_commit(j), -ENOSPC);
    disk_fail_writes(0);
    ck_assert_int_eq(journal_compact_finish(j), -ENOSPC);
    ck_assert_int_eq(journal_compact_swap(j), -ENOSPC);
    ck_assert_int_eq(g_stat(path, &st), -1);

    change(j, &state, random);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    check_after_crash(&state, "after compactions that failed");
    journal_close(j);
    g_free(path);
    g_rand_free(random);
}
END_TEST

static gint syncs_begun;

static void count_sync(void)
{
    g_atomic_int_inc(&syncs_begun);
}

/* Its file is still being synced, in vain, when the next compaction asks for a sync. */
START_TEST(sync_of_an_aborted_compaction_does_not_count_for_the_next)
{
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    char *path = g_build_filename(directory, "journal.new", NULL);
    struct stat aborted;

    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(g_stat(path, &aborted), 0);
    disk_hold_syncs(true);
    disk_fail_syncs(EIO, aborted.st_ino);
    disk_plan(DISK_SYNC, 0, 0, count_sync);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    while (!g_atomic_int_get(&syncs_begun))
        g_usleep(100);
    journal_compact_abort(j);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    disk_hold_syncs(false);
    wait_ready(j);
    ck_assert_int_eq(journal_compact_swap(j), 0);
    disk_fail_syncs(0, 0);
    journal_close(j);
    g_free(path);
}
END_TEST

/* Checks what a power cut would leave now: the journal under its last synced name, or under its present name. */
static void check_after_power_cut(uint64_t reported_synced, const GArray *history)
{
    char *path = g_build_filename(directory, "journal", NULL);
    struct stat st;
    ino_t names[2] = {disk_durable_name()};

    ck_assert_int_eq(g_stat(path, &st), 0);
    names[1] = st.st_ino;
    for (int i = 0; i < 2; i++) {
        GBytes *bytes = disk_durable(names[i]);
        char *after = scratch_new();
        struct state found = {{0}};
        struct journal *j;
        bool some = false;

        ck_assert_ptr_nonnull(bytes);
        scratch_write(after, "journal", g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes));
        j = open_good(after, apply, &found);
        journal_close(j);
        /* it is the state after some change, not older than the last confirmed one */
        for (guint k = (guint)reported_synced; k < history->len && !some; k++)
            some = memcmp(&g_array_index(history, struct state, k), &found, sizeof(found)) == 0;
        ck_assert_msg(some, "a power cut loses what was told to be synced (%s name)", i ? "new" : "synced");
        g_bytes_unref(bytes);
        scratch_free(after);
    }
    g_free(path);
}

START_TEST(power_cut_loses_nothing_that_was_reported_as_synced)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    GArray *history = g_array_new(FALSE, FALSE, sizeof(struct state)); /* state by sequence */
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    enum { IDLE, COPYING, FINISHING } step = IDLE;
    uint32_t key = 0;
    guint swaps = 0;

    g_array_append_val(history, state);
    for (int i = 0; i < 4000; i++) {
        int choice = g_rand_int_range(random, 0, 100);

        if (choice < 50) {
            change(j, &state, random);
            g_array_append_val(history, state);
        } else if (choice < 60) {
            journal_sync(j);
        } else if (choice < 65) {
            ck_assert_int_eq(journal_sync_wait(j), 0);
        } else if (choice < 70) {
            check_after_power_cut(journal_synced(j), history);
        } else if (step == IDLE) {
            ck_assert_int_eq(journal_compact_begin(j), 0);
            key = 0;
            step = COPYING;
        } else if (step == COPYING && key < KEYS) {
            key = copy_part(j, &state, key, 20);
        } else if (step == COPYING) {
            ck_assert_int_eq(journal_compact_finish(j), 0);
            step = FINISHING;
        } else if (journal_compact_ready(j)) {
            ck_assert_int_eq(journal_compact_swap(j), 0);
            check_after_power_cut(journal_synced(j), history);
            swaps++;
            step = IDLE;
        }
    }
    ck_assert_uint_gt(swaps, 10);
    journal_close(j);
    g_array_unref(history);
    g_rand_free(random);
}
END_TEST

START_TEST(random_use_with_crashes_agrees_with_a_plain_model)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    bool compacting = false;

    for (int i = 0; i < 20000; i++) {
        int choice = g_rand_int_range(random, 0, 1000);

        if (choice < 950) {
            change(j, &state, random);
        } else if (choice < 970 && !compacting) {
            ck_assert_int_eq(journal_compact_begin(j), 0);
            copy_part(j, &state, 0, KEYS);
            ck_assert_int_eq(journal_compact_finish(j), 0);
            compacting = true;
        } else if (choice < 980 && compacting && journal_compact_ready(j)) {
            ck_assert_int_eq(journal_compact_swap(j), 0);
            compacting = false;
        } else if (choice < 983 && compacting) {
            journal_compact_abort(j);
            compacting = false;
        } else if (choice >= 990) {
            struct state found = {{0}};
            uint32_t never_committed[2] = {1, 1};

            journal_append(j, 1, never_committed, sizeof(never_committed));
            journal_close(j);
            j = open_good(directory, apply, &found);
            ck_assert_msg(memcmp(&found, &state, sizeof(state)) == 0, "other state after %d operations", i);
            compacting = false;
        }
    }
    journal_close(j);
    g_rand_free(random);
}
END_TEST

static Suite *compact_suite(void)
{
    Suite *suite = suite_create("journal compaction");
    TCase *compaction = tcase_create("compaction");

    tcase_add_checked_fixture(compaction, setup, teardown);
    tcase_set_timeout(compaction, 120);
    tcase_add_test(compaction, crash_at_any_step_of_compaction_finds_the_same_state);
    tcase_add_test(compaction, sequence_grows_across_compaction);
    tcase_add_test(compaction, compaction_that_cannot_write_leaves_the_journal_in_use);
    tcase_add_test(compaction, sync_of_an_aborted_compaction_does_not_count_for_the_next);
    tcase_add_test(compaction, power_cut_loses_nothing_that_was_reported_as_synced);
    tcase_add_test(compaction, random_use_with_crashes_agrees_with_a_plain_model);
    suite_add_tcase(suite, compaction);
    return suite;
}

int main(void)
{
    return check_main(compact_suite());
}

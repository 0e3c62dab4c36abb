/* check_lockspace_tree: names and directories, renaming, and how a store writes
 * a lockspace out and reads it back.  The random part compares with a plain set
 * of paths, from a printed seed (CHECK_SEED repeats one). */
#include "tests/unit/lock_world.h"

#include <stdio.h>
#include <string.h>

static struct lock_world world;
static struct lock_world *const w = &world;

static void setup(void)
{
    lock_world_init(w);
}

static void teardown(void)
{
    lock_world_clear(w);
}

static struct backend_claim ex(const char *who)
{
    return lock_world_claim(who, BACKEND_EXCLUSIVE);
}

static struct backend_claim lease(const char *who)
{
    struct backend_claim claim = ex(who);
    claim.kind = BACKEND_LEASE;
    claim.wait = false;
    return claim;
}

START_TEST(directories_hold_locks_and_directories)
{
    struct backend_directory attributes = {.width = 1};
    lock_world_mkdir(w, "d");
    lock_world_mkdir(w, "d/e");
    struct backend_ticket *a = lock_world_hold(w, "d/a", ex("A"));
    lock_world_hold(w, "d-", ex("B"));
    ck_assert_str_eq(lock_world_list(w, ""), "d/ d- ");
    ck_assert_str_eq(lock_world_list(w, "d"), "a e/ ");
    ck_assert_int_eq(lock_world_stat(w, "d").type, BACKEND_DIRECTORY);
    ck_assert_int_eq(lock_world_stat(w, "").type, BACKEND_DIRECTORY);
    ck_assert_int_eq(lockspace_mkdir(w->space, "d", &attributes), BACKEND_EXISTS);
    ck_assert_int_eq(lockspace_mkdir(w->space, "d/a", &attributes), BACKEND_EXISTS);
    ck_assert_int_eq(lockspace_mkdir(w->space, "x/y", &attributes), BACKEND_MISSING);
    ck_assert_int_eq(lockspace_mkdir(w->space, "d/a/b", &attributes), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(lock_world_try(w, "d", ex("C"), NULL), BACKEND_IS_DIRECTORY);
    ck_assert_int_eq(lock_world_try(w, "x/y", ex("C"), NULL), BACKEND_MISSING);
    ck_assert_int_eq(lock_world_try(w, "d/a/b", ex("C"), NULL), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(lockspace_rmdir(w->space, "d"), BACKEND_NOT_EMPTY);
    ck_assert_int_eq(lockspace_rmdir(w->space, "d/a"), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(lockspace_rmdir(w->space, "x"), BACKEND_MISSING);
    ck_assert_int_eq(lockspace_rmdir(w->space, ""), BACKEND_INVALID);
    ck_assert_int_eq(lockspace_list(w->space, "x", "", 1, NULL), -BACKEND_MISSING);
    ck_assert_int_eq(lockspace_list(w->space, "d/a", "", 1, NULL), -BACKEND_NOT_DIRECTORY);
    lock_world_release(w, a);
    ck_assert_int_eq(lockspace_rmdir(w->space, "d/e"), BACKEND_OK);
    ck_assert_int_eq(lockspace_rmdir(w->space, "d"), BACKEND_OK);
    ck_assert_int_eq(lock_world_stat(w, "d").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(names_that_cannot_be_are_refused)
{
    static const char *const bad[] = {"/a", "a/", "a//b", "/"};
    lock_world_hold(w, "b", ex("B"));
    lock_world_mkdir(w, "a");
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        ck_assert_int_eq(lock_world_try(w, bad[i], ex("A"), NULL), BACKEND_INVALID);
        ck_assert_int_eq(lock_world_stat(w, bad[i]).type, BACKEND_NOTHING);
    }
    ck_assert_int_eq(lock_world_try(w, "", ex("A"), NULL), BACKEND_IS_DIRECTORY);
}
END_TEST

START_TEST(the_attributes_of_a_directory_are_kept)
{
    GBytes *meta = g_bytes_new_static("meta", 4);
    struct backend_directory attributes = {.ttl = 5, .delay = 7, .sequence = 9, .meta = meta};
    ck_assert_int_eq(lockspace_mkdir(w->space, "d", &attributes), BACKEND_OK);
    attributes = lock_world_stat(w, "d").directory;
    ck_assert_int_eq(attributes.ttl, 5);
    ck_assert_int_eq(attributes.delay, 7);
    ck_assert_uint_eq(attributes.sequence, 9);
    ck_assert_uint_eq(attributes.width, 1);
    ck_assert_ptr_eq(attributes.meta, meta);
    attributes = (struct backend_directory){.width = 3, .sequence = 2};
    ck_assert_int_eq(lockspace_set_directory(w->space, 0, "d", &attributes), BACKEND_OK);
    ck_assert_int_eq(lockspace_set_directory(w->space, 0, "", &attributes), BACKEND_OK);
    ck_assert_int_eq(lockspace_set_directory(w->space, 0, "x", &attributes), BACKEND_MISSING);
    attributes = lock_world_stat(w, "d").directory;
    ck_assert_int_eq(attributes.ttl, 0);
    ck_assert_uint_eq(attributes.width, 3);
    ck_assert_uint_eq(attributes.sequence, 9);
    ck_assert_ptr_null(attributes.meta);
    ck_assert_uint_eq(lock_world_stat(w, "").directory.width, 3);
    g_bytes_unref(meta);
}
END_TEST

START_TEST(a_tree_may_be_deeper_than_any_path)
{
    enum { DEPTH = 3000 };
    GString *path = g_string_new("d");
    char small[64];
    for (int i = 0; i < DEPTH; i++) {
        lock_world_mkdir(w, path->str);
        g_string_append(path, "/d");
    }
    struct backend_ticket *ticket = lock_world_hold(w, path->str, ex("A"));
    char *name = g_malloc(path->len + 1);
    ck_assert(!lockspace_ticket_name(ticket, small, sizeof(small)));
    ck_assert(!lockspace_ticket_name(ticket, name, path->len));
    ck_assert(lockspace_ticket_name(ticket, name, path->len + 1));
    ck_assert_str_eq(name, path->str);
    g_free(name);
    g_string_free(path, TRUE);
}
END_TEST

START_TEST(a_rename_moves_token_content_and_waiters_stay)
{
    GBytes *content = g_bytes_new_static("text", 4);
    struct backend_claim claim = lease("A");
    claim.content = content;
    lock_world_mkdir(w, "d");
    struct backend_ticket *a = lock_world_hold(w, "a", claim);
    struct backend_ticket *b = lock_world_wait(w, "a", ex("B"));
    g_string_truncate(w->log, 0);
    uint64_t highest = b->fence;
    ck_assert_int_eq(lockspace_rename(w->space, 0, a, "d/c", NULL), BACKEND_OK);
    lock_world_reported(w, "granted B; ");
    ck_assert_ptr_eq(lock_world_stat(w, "d/c").ticket, a);
    ck_assert_ptr_eq(lock_world_stat(w, "d/c").content, content);
    ck_assert_ptr_eq(lock_world_stat(w, "a").ticket, b);
    ck_assert_uint_gt(a->fence, highest);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 2);
    g_bytes_unref(content);
}
END_TEST

START_TEST(a_rename_needs_a_free_name)
{
    struct backend_ticket *a = lock_world_hold(w, "a", ex("A"));
    struct backend_ticket *b = lock_world_hold(w, "b", ex("B"));
    struct backend_ticket *waiter = lock_world_wait(w, "b", ex("C"));
    uint64_t fence = a->fence;
    lock_world_mkdir(w, "d");
    ck_assert_int_eq(lockspace_rename(w->space, 0, a, "b", NULL), BACKEND_BUSY);
    ck_assert_int_eq(lockspace_rename(w->space, 0, a, "d", NULL), BACKEND_IS_DIRECTORY);
    ck_assert_int_eq(lockspace_rename(w->space, 0, a, "x/a", NULL), BACKEND_MISSING);
    ck_assert_int_eq(lockspace_rename(w->space, 0, waiter, "c", NULL), BACKEND_STALE);
    ck_assert_int_eq(lockspace_rename(w->space, 0, a, "a", NULL), BACKEND_OK);
    ck_assert_uint_eq(a->fence, fence);
    g_string_truncate(w->log, 0);
    lockspace_renew(w->space, 0, a, 10 * WORLD_TTL, 0);
    lock_world_release(w, waiter);
    ck_assert_ptr_eq(lock_world_stat(w, "b").ticket, b);
    w->now = WORLD_TTL;
    ck_assert_int_eq(lockspace_rename(w->space, w->now, a, "b", NULL), BACKEND_OK);
    lock_world_reported(w, "ended B expired; ");
    ck_assert_str_eq(lock_world_list(w, ""), "b d/ ");
}
END_TEST

START_TEST(a_lease_is_restored_as_it_was)
{
    struct backend_ticket *ticket = NULL;
    struct backend_claim claim = lease("A");
    claim.due = 10;
    w->now = 100;
    ck_assert_int_eq(lockspace_restore(w->space, 100, "a", &claim, NULL, 77, -5, 300, &ticket), BACKEND_OK);
    ck_assert(ticket->held);
    ck_assert_uint_eq(ticket->fence, 77);
    ck_assert_int_eq(ticket->acquired, -5);
    ck_assert_int_eq(ticket->deadline, 300);
    ck_assert_int_eq(ticket->ttl, WORLD_TTL);
    ck_assert_uint_eq(lockspace_next_fence(w->space), 78);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 1);
    ck_assert_int_eq(lockspace_restore(w->space, 100, "a", &claim, NULL, 80, 0, 300, &ticket), BACKEND_BUSY);
    ck_assert_int_eq(lockspace_restore(w->space, 100, "x/a", &claim, NULL, 80, 0, 300, &ticket), BACKEND_MISSING);
    ck_assert_uint_eq(lockspace_next_fence(w->space), 78);
    lock_world_tick(w, 110);
    lock_world_reported(w, "due A; ");
    lock_world_tick(w, 299);
    lock_world_reported(w, "");
    lock_world_tick(w, 300);
    lock_world_reported(w, "ended A expired; ");
}
END_TEST

START_TEST(shared_leases_of_one_name_are_restored_together)
{
    struct backend_ticket *ticket = NULL;
    struct backend_claim claim = lease("A");
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(lockspace_restore(w->space, 0, "a", &claim, NULL, 5, 0, 300, &ticket), BACKEND_OK);
    ck_assert_int_eq(lockspace_restore(w->space, 0, "a", &claim, NULL, 3, 0, 300, &ticket), BACKEND_OK);
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 2);
    ck_assert_uint_eq(lock_world_stat(w, "a").fence, 3);
}
END_TEST

/* Collects the visited paths, one a line. */
static void visit_directory(void *arg, const char *name, const struct backend_directory *directory)
{
    ck_assert_uint_ge(directory->width, 1);
    g_string_append_printf(arg, "%s/\n", name);
}

static void visit_lease(void *arg, const char *name, struct backend_ticket *ticket)
{
    char own[4096];
    ck_assert(lockspace_ticket_name(ticket, own, sizeof(own)));
    ck_assert_str_eq(own, name);
    g_string_append_printf(arg, "%s\n", name);
}

START_TEST(directories_leases_and_handle_locks_that_hold_are_visited)
{
    char cursor[64] = "";
    GString *visited = g_string_new(NULL);
    lock_world_mkdir(w, "a");
    lock_world_mkdir(w, "a/b");
    lock_world_hold(w, "a/b/c", lease("A"));
    lock_world_hold(w, "a-", lease("B"));
    lock_world_hold(w, "b", ex("C"));
    lock_world_wait(w, "b", ex("E"));
    lock_world_hold(w, "c", lease("D"));
    ck_assert_uint_eq(lockspace_visit(w->space, cursor, sizeof(cursor), 100, visit_directory, visit_lease, visited), 6);
    ck_assert_str_eq(visited->str, "/\na/\na/b/\na/b/c\na-\nb\nc\n");
    ck_assert_uint_eq(lockspace_visit(w->space, cursor, sizeof(cursor), 100, visit_directory, visit_lease, visited), 0);
    g_string_free(visited, TRUE);
}
END_TEST

START_TEST(a_visit_passes_over_what_its_cursor_has_no_room_for)
{
    char cursor[8] = "";
    GString *visited = g_string_new(NULL);
    lock_world_mkdir(w, "abc");
    lock_world_hold(w, "abc/def", lease("A"));
    lock_world_hold(w, "abc/defg", lease("B"));
    lock_world_hold(w, "abd", lease("C"));
    lock_world_mkdir(w, "directory");
    lock_world_hold(w, "directory/e", lease("D"));
    lock_world_hold(w, "f", lease("E"));
    while (lockspace_visit(w->space, cursor, sizeof(cursor), 1, visit_directory, visit_lease, visited) == 1) {
    }
    ck_assert_str_eq(visited->str, "/\nabc/\nabc/def\nabd\nf\n");
    g_string_free(visited, TRUE);
}
END_TEST

/* The naive model of a tree: paths, and for each a ticket or NULL (a directory). */
struct tree {
    GHashTable *paths;
    GHashTable *kept; /* there since the visit began */
    GString *visited;
    GRand *rand;
};

static int compare_paths(gconstpointer a, gconstpointer b)
{
    const char *x = a, *y = b;
    while (*x && *x == *y) {
        x++;
        y++;
    }
    unsigned p = *x == '/' ? 1 : (unsigned char)*x, q = *y == '/' ? 1 : (unsigned char)*y;
    return (p > q) - (p < q);
}

static bool has_children(const struct tree *tree, const char *path)
{
    GHashTableIter iter;
    gpointer other;
    size_t length = strlen(path);
    g_hash_table_iter_init(&iter, tree->paths);
    while (g_hash_table_iter_next(&iter, &other, NULL)) {
        const char *name = other;
        if (strncmp(name, path, length) == 0 && name[length] == '/') {
            return true;
        }
    }
    return false;
}

/* OK if the path may be made, else why not. */
static enum backend_result may_make(const struct tree *tree, const char *path, bool directory)
{
    gpointer ticket = NULL;
    char *parent = g_path_get_dirname(path);
    enum backend_result result = BACKEND_OK;
    if (strcmp(parent, ".") != 0) {
        if (!g_hash_table_lookup_extended(tree->paths, parent, NULL, &ticket)) {
            char *grand = g_path_get_dirname(parent);
            gpointer above = NULL;
            bool is_lock = g_hash_table_lookup_extended(tree->paths, grand, NULL, &above) && above;
            result = is_lock ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING;
            g_free(grand);
        } else if (ticket) {
            result = BACKEND_NOT_DIRECTORY;
        }
    }
    if (result == BACKEND_OK && g_hash_table_lookup_extended(tree->paths, path, NULL, &ticket)) {
        result = directory ? BACKEND_EXISTS : ticket ? BACKEND_BUSY : BACKEND_IS_DIRECTORY;
    }
    g_free(parent);
    return result;
}

static void random_path(const struct tree *tree, char *path, size_t size)
{
    static const char *const names[] = {"a", "a-", "ab", "b", "a.b"};
    size_t length = 0;
    int depth = g_rand_int_range(tree->rand, 1, 4);
    for (int i = 0; i < depth; i++) {
        const char *name = names[g_rand_int_range(tree->rand, 0, G_N_ELEMENTS(names))];
        length += (size_t)g_snprintf(path + length, size - length, "%s%s", i > 0 ? "/" : "", name);
    }
}

static void forget(struct tree *tree, const char *path)
{
    g_hash_table_remove(tree->kept, path);
    g_hash_table_remove(tree->paths, path);
}

static void change_tree(struct tree *tree)
{
    char path[64];
    gpointer ticket = NULL;
    random_path(tree, path, sizeof(path));
    bool there = g_hash_table_lookup_extended(tree->paths, path, NULL, &ticket);
    switch (g_rand_int_range(tree->rand, 0, 5)) {
    case 0: {
        struct backend_directory attributes = {.width = 1};
        enum backend_result result = may_make(tree, path, true);
        ck_assert_int_eq(lockspace_mkdir(w->space, path, &attributes), result);
        if (result == BACKEND_OK) {
            g_hash_table_insert(tree->paths, g_strdup(path), NULL);
        }
        break;
    }
    case 1:
    case 2: {
        struct backend_ticket *made = NULL;
        struct backend_claim claim = lease("A");
        enum backend_result result = may_make(tree, path, false);
        ck_assert_int_eq(lock_world_try(w, path, claim, &made), result);
        if (result == BACKEND_OK) {
            g_hash_table_insert(tree->paths, g_strdup(path), made);
        }
        break;
    }
    case 3:
        if (there && ticket) {
            lock_world_release(w, ticket);
            forget(tree, path);
        }
        break;
    default:
        if (there && !ticket) {
            enum backend_result result = has_children(tree, path) ? BACKEND_NOT_EMPTY : BACKEND_OK;
            ck_assert_int_eq(lockspace_rmdir(w->space, path), result);
            if (result == BACKEND_OK) {
                forget(tree, path);
            }
        }
    }
}

/* All listings together are the model's paths, each once and in order. */
static void assert_listings_agree(const struct tree *tree)
{
    GHashTableIter iter;
    gpointer path, ticket;
    unsigned reported = 0, locks = 0;
    GQueue directories = G_QUEUE_INIT;
    g_queue_push_tail(&directories, g_strdup(""));
    while (!g_queue_is_empty(&directories)) {
        char *directory = g_queue_pop_head(&directories);
        char **entries = g_strsplit(lock_world_list(w, directory), " ", -1);
        for (unsigned i = 0; entries[i] && *entries[i]; i++, reported++) {
            size_t length = strlen(entries[i]);
            bool is_directory = entries[i][length - 1] == '/';
            entries[i][length - is_directory] = '\0';
            ck_assert(i == 0 || strcmp(entries[i - 1], entries[i]) < 0);
            char *whole = g_strdup_printf("%s%s%s", directory, *directory ? "/" : "", entries[i]);
            ck_assert(g_hash_table_lookup_extended(tree->paths, whole, NULL, &ticket));
            ck_assert_int_eq(is_directory, ticket == NULL);
            if (is_directory) {
                g_queue_push_tail(&directories, whole);
            } else {
                g_free(whole);
            }
        }
        g_strfreev(entries);
        g_free(directory);
    }
    ck_assert_uint_eq(reported, g_hash_table_size(tree->paths));
    g_hash_table_iter_init(&iter, tree->paths);
    while (g_hash_table_iter_next(&iter, &path, &ticket)) {
        ck_assert_int_eq(lock_world_stat(w, path).type, ticket ? BACKEND_LOCK : BACKEND_DIRECTORY);
        locks += ticket != NULL;
    }
    ck_assert_uint_eq(lockspace_counts(w->space).locks, locks);
}

/* Visits in steps with changes in between: in order, nothing twice, and nothing
 * left out that was there all the time. */
static void assert_visit_agrees(struct tree *tree)
{
    char cursor[64] = "";
    size_t max, visited;
    GHashTableIter iter;
    gpointer path;
    g_hash_table_remove_all(tree->kept);
    g_hash_table_iter_init(&iter, tree->paths);
    while (g_hash_table_iter_next(&iter, &path, NULL)) {
        g_hash_table_add(tree->kept, g_strdup(path));
    }
    g_string_truncate(tree->visited, 0);
    do {
        max = (size_t)g_rand_int_range(tree->rand, 1, 6);
        visited = lockspace_visit(w->space, cursor, sizeof(cursor), max, visit_directory, visit_lease, tree->visited);
        for (int i = g_rand_int_range(tree->rand, 0, 4); i > 0; i--) {
            change_tree(tree);
        }
    } while (visited == max);
    char **lines = g_strsplit(tree->visited->str, "\n", -1);
    ck_assert_str_eq(lines[0], "/");
    for (unsigned i = 1; *lines[i]; i++) {
        size_t length = strlen(lines[i]);
        lines[i][lines[i][length - 1] == '/' ? length - 1 : length] = '\0';
        ck_assert_msg(i == 1 || compare_paths(lines[i - 1], lines[i]) < 0, "%s, then %s", lines[i - 1], lines[i]);
        g_hash_table_remove(tree->kept, lines[i]);
    }
    ck_assert_uint_eq(g_hash_table_size(tree->kept), 0);
    g_strfreev(lines);
}

START_TEST(random_trees_agree_with_a_set_of_paths)
{
    const char *given = g_getenv("CHECK_SEED");
    uint32_t seed = given ? (uint32_t)g_ascii_strtoull(given, NULL, 10) : (uint32_t)g_get_monotonic_time();
    struct tree tree = {.paths = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                        .kept = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                        .visited = g_string_new(NULL),
                        .rand = g_rand_new_with_seed(seed)};
    printf("# CHECK_SEED=%u\n", seed);
    fflush(stdout);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 20; i++) {
            change_tree(&tree);
        }
        assert_listings_agree(&tree);
        assert_visit_agrees(&tree);
    }
    g_hash_table_destroy(tree.paths);
    g_hash_table_destroy(tree.kept);
    g_string_free(tree.visited, TRUE);
    g_rand_free(tree.rand);
}
END_TEST

#define SCENARIO(name) tcase_add_test(tcase, name)

int main(void)
{
    Suite *suite = suite_create("lockspace_tree");
    TCase *tcase = tcase_create("tree");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    SCENARIO(directories_hold_locks_and_directories);
    SCENARIO(names_that_cannot_be_are_refused);
    SCENARIO(the_attributes_of_a_directory_are_kept);
    SCENARIO(a_tree_may_be_deeper_than_any_path);
    SCENARIO(a_rename_moves_token_content_and_waiters_stay);
    SCENARIO(a_rename_needs_a_free_name);
    SCENARIO(a_lease_is_restored_as_it_was);
    SCENARIO(shared_leases_of_one_name_are_restored_together);
    SCENARIO(directories_leases_and_handle_locks_that_hold_are_visited);
    SCENARIO(a_visit_passes_over_what_its_cursor_has_no_room_for);
    SCENARIO(random_trees_agree_with_a_set_of_paths);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

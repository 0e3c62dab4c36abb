/* check_nametable: nodes by name against GLib's hash table, under random operations from
 * a printed seed (CHECK_SEED repeats one); and what no operation may cost. */
#include "fs/kernel/nametable.h"

#include <stdio.h>
#include <string.h>

#include "fs/kernel/tree.h"
#include "tests/support/check_main.h"

enum { NAMES = 6000, STEPS = 60000, PAIRS = 12 };

static struct node_record parent_records[2] = {{.ino = 1}, {.ino = 2}};
static struct node parents[2] = {{.record = &parent_records[0]}, {.record = &parent_records[1]}};

static struct node *node_of(struct node *parent, const char *name)
{
    struct node *node = g_malloc0(sizeof *node + strlen(name) + 1);
    node->parent = parent;
    node->record = g_new0(struct node_record, 1);
    node->record->long_name = 1; /* so its name is made_as */
    strcpy(node->made_as, name);
    return node;
}

/* The most nodes in one bucket. */
static unsigned longest(const struct nametable *table)
{
    unsigned most = 0;
    for (guint i = 0; i < table->segments->len; i++) {
        struct node *const *segment = g_ptr_array_index(table->segments, i);
        for (unsigned j = 0; j < 512; j++) {
            unsigned count = 0;
            for (const struct node *node = segment[j]; node; node = node->next) {
                count++;
            }
            most = MAX(most, count);
        }
    }
    return most;
}

static void count_one(void *count, struct node *node)
{
    ck_assert_uint_lt(node->references, 2); /* no node is visited twice */
    node->references++;
    ++*(unsigned *)count;
}

static void assert_same(const struct nametable *table, struct node *const *nodes, const bool *in)
{
    unsigned count = 0, expected = 0;
    nametable_each(table, count_one, &count);
    for (int i = 0; i < NAMES; i++) {
        ck_assert_uint_eq(nodes[i]->references, in[i]);
        nodes[i]->references = 0;
        expected += in[i];
    }
    ck_assert_uint_eq(count, expected);
}

START_TEST(random_operations_agree_with_flags_and_move_few_nodes)
{
    static struct node *nodes[NAMES];
    static bool in[NAMES];
    const char *given = g_getenv("CHECK_SEED");
    uint32_t seed = given ? (uint32_t)g_ascii_strtoull(given, NULL, 10) : (uint32_t)g_get_monotonic_time();
    printf("# CHECK_SEED=%u\n", seed);
    fflush(stdout);
    GRand *rand = g_rand_new_with_seed(seed);
    struct nametable table;
    nametable_init(&table);
    for (int i = 0; i < NAMES; i++) { /* each name in both directories */
        char name[32];
        snprintf(name, sizeof name, "%.*s%d", i % 17, "a-long-long-name-", i / 2);
        nodes[i] = node_of(&parents[i % 2], name);
    }
    for (int step = 0; step < STEPS; step++) {
        int i = g_rand_int_range(rand, 0, NAMES);
        bool growing = step / 20000 % 2 == 0, change = g_rand_int_range(rand, 0, 4) != 0;
        uint32_t before = table.buckets;
        if (in[i] && change != growing) {
            nametable_remove(&table, nodes[i]);
            in[i] = false;
            ck_assert_uint_le(before - table.buckets, 2);
        } else if (!in[i] && change == growing) {
            nametable_add(&table, nodes[i]);
            in[i] = true;
            ck_assert_uint_le(table.buckets - before, 1);
        }
        i = g_rand_int_range(rand, 0, NAMES);
        ck_assert_ptr_eq(nametable_find(&table, nodes[i]->parent, tree_name(nodes[i])), in[i] ? nodes[i] : NULL);
        if (step % 5000 == 0) {
            assert_same(&table, nodes, in);
            ck_assert_uint_le(longest(&table), 16);
        }
    }
    for (int i = 0; i < NAMES; i++) {
        if (in[i]) {
            nametable_remove(&table, nodes[i]);
        }
        g_free(nodes[i]->record);
        g_free(nodes[i]);
    }
    ck_assert_uint_eq(table.segments->len, 1);
    nametable_clear(&table);
    g_rand_free(rand);
}
END_TEST

/* Which all have the same hash, where that is times 33 plus the next byte. */
START_TEST(names_made_up_to_collide_do_not)
{
    static struct node *nodes[1 << PAIRS];
    struct nametable table;
    nametable_init(&table);
    for (unsigned i = 0; i < 1u << PAIRS; i++) {
        char name[2 * PAIRS + 1] = "";
        for (unsigned bit = 0; bit < PAIRS; bit++) {
            strcat(name, i >> bit & 1 ? "aB" : "b!");
        }
        ck_assert_uint_eq(g_str_hash(name), g_str_hash("b!b!b!b!b!b!b!b!b!b!b!b!"));
        nodes[i] = node_of(&parents[0], name);
        nametable_add(&table, nodes[i]);
    }
    ck_assert_uint_le(longest(&table), 16);
    nametable_clear(&table);
    for (unsigned i = 0; i < 1u << PAIRS; i++) {
        g_free(nodes[i]->record);
        g_free(nodes[i]);
    }
}
END_TEST

START_TEST(names_that_were_expected_move_no_others)
{
    static struct node *nodes[NAMES];
    struct nametable table;
    nametable_init(&table);
    nametable_expect(&table, NAMES);
    uint32_t buckets = table.buckets;
    ck_assert_uint_ge(buckets, NAMES);
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        nodes[i] = node_of(&parents[0], name);
        nametable_add(&table, nodes[i]);
    }
    ck_assert_uint_eq(table.buckets, buckets);
    for (int i = 0; i < NAMES; i++) {
        ck_assert_ptr_eq(nametable_find(&table, &parents[0], tree_name(nodes[i])), nodes[i]);
        nametable_remove(&table, nodes[i]);
        g_free(nodes[i]->record);
        g_free(nodes[i]);
    }
    ck_assert_uint_eq(table.segments->len, 1);
    nametable_clear(&table);
}
END_TEST

START_TEST(set_of_nodes_of_one_name_has_short_chains_too)
{
    static struct node *nodes[NAMES];
    static bool in[NAMES];
    struct nametable table;
    nametable_init(&table);
    for (int i = 0; i < NAMES; i++) {
        uint32_t before = table.buckets;
        nodes[i] = node_of(&parents[0], "name");
        nodes[i]->record->ino = (uint64_t)i + 1;
        nametable_add_nameless(&table, nodes[i]);
        in[i] = true;
        ck_assert_uint_le(table.buckets - before, 1);
    }
    ck_assert_uint_le(longest(&table), 2);
    for (int i = 0; i < NAMES; i += 2) {
        nodes[i]->record->ino = 0; /* may change meanwhile */
        nametable_remove(&table, nodes[i]);
        in[i] = false;
    }
    assert_same(&table, nodes, in);
    nametable_clear(&table);
    for (int i = 0; i < NAMES; i++) {
        g_free(nodes[i]->record);
        g_free(nodes[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nametable");
    TCase *tcase = tcase_create("nametable");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, random_operations_agree_with_flags_and_move_few_nodes);
    tcase_add_test(tcase, names_made_up_to_collide_do_not);
    tcase_add_test(tcase, names_that_were_expected_move_no_others);
    tcase_add_test(tcase, set_of_nodes_of_one_name_has_short_chains_too);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

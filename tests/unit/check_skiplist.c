/* check_skiplist: the skiplist against a sorted array, under random operations
 * from a printed seed (CHECK_SEED repeats one). */
#include "backend/skiplist.h"

#include "tests/support/check_main.h"

#include <glib.h>
#include <stdio.h>

enum { ITEMS = 700, STEPS = 12000 };

static int compare_numbers(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The naive model: the numbers that are in, in order. */
struct model {
    int *numbers[ITEMS];
    unsigned length;
};

static unsigned model_rank(const struct model *m, int number)
{
    unsigned rank = 0;
    while (rank < m->length && *m->numbers[rank] < number) {
        rank++;
    }
    return rank;
}

static bool model_has(const struct model *m, int number)
{
    unsigned rank = model_rank(m, number);
    return rank < m->length && *m->numbers[rank] == number;
}

static void model_insert(struct model *m, int *number)
{
    unsigned rank = model_rank(m, *number);
    for (unsigned i = m->length++; i > rank; i--) {
        m->numbers[i] = m->numbers[i - 1];
    }
    m->numbers[rank] = number;
}

static void model_remove(struct model *m, int number)
{
    unsigned rank = model_rank(m, number);
    m->length--;
    for (unsigned i = rank; i < m->length; i++) {
        m->numbers[i] = m->numbers[i + 1];
    }
}

static void *model_at(const struct model *m, unsigned rank)
{
    return rank < m->length ? m->numbers[rank] : NULL;
}

static uint32_t seed_of_run(void)
{
    const char *given = g_getenv("CHECK_SEED");
    uint32_t seed = given ? (uint32_t)g_ascii_strtoull(given, NULL, 10) : (uint32_t)g_get_monotonic_time();
    printf("# CHECK_SEED=%u\n", seed);
    fflush(stdout);
    return seed;
}

static void assert_same(const struct skiplist *list, const struct model *m)
{
    const struct skiplist_node *node = skiplist_first(list);
    ck_assert_uint_eq(skiplist_length(list), m->length);
    for (unsigned i = 0; i < m->length; i++, node = skiplist_next(node)) {
        ck_assert_ptr_eq(skiplist_item(node), m->numbers[i]);
        ck_assert_ptr_eq(skiplist_item(skiplist_previous(node)), i > 0 ? m->numbers[i - 1] : NULL);
        ck_assert_uint_eq(skiplist_rank(list, m->numbers[i]), i);
    }
    ck_assert_ptr_null(node);
    ck_assert_ptr_eq(skiplist_item(skiplist_last(list)), model_at(m, m->length - 1));
}

static void assert_searches_agree(const struct skiplist *list, const struct model *m, int key)
{
    unsigned rank = model_rank(m, key);
    bool has = model_has(m, key);
    ck_assert_uint_eq(skiplist_rank(list, &key), rank);
    ck_assert_ptr_eq(skiplist_item(skiplist_seek(list, compare_numbers, &key, false)), model_at(m, rank));
    ck_assert_ptr_eq(skiplist_item(skiplist_seek(list, compare_numbers, &key, true)), model_at(m, rank + has));
}

START_TEST(random_operations_agree_with_a_sorted_array)
{
    static int numbers[ITEMS];
    struct model model = {.length = 0};
    struct skiplist list;
    uint32_t seed = seed_of_run();
    GRand *rand = g_rand_new_with_seed(seed);
    skiplist_init(&list, compare_numbers, seed);
    for (int i = 0; i < ITEMS; i++) {
        numbers[i] = 2 * i; /* odd keys are never in */
    }
    for (int step = 0; step < STEPS; step++) {
        int *number = &numbers[g_rand_int_range(rand, 0, ITEMS)];
        bool growing = (step / 2000) % 2 == 0;
        if (model_has(&model, *number)) {
            if (!growing || g_rand_int_range(rand, 0, 3) == 0) {
                ck_assert(skiplist_remove(&list, number));
                model_remove(&model, *number);
            }
        } else if (growing || g_rand_int_range(rand, 0, 3) == 0) {
            ck_assert_ptr_eq(skiplist_item(skiplist_insert(&list, number)), number);
            model_insert(&model, number);
        } else {
            ck_assert(!skiplist_remove(&list, number));
        }
        assert_searches_agree(&list, &model, g_rand_int_range(rand, -1, 2 * ITEMS + 1));
        if (step % 100 == 0) {
            assert_same(&list, &model);
        }
    }
    assert_same(&list, &model);
    skiplist_clear(&list);
    g_rand_free(rand);
}
END_TEST

START_TEST(an_empty_list_has_nothing_and_owns_nothing)
{
    int number = 1;
    struct skiplist list;
    skiplist_init(&list, compare_numbers, 1);
    for (int round = 0; round < 2; round++) {
        ck_assert_uint_eq(skiplist_length(&list), 0);
        ck_assert_ptr_null(list.head);
        ck_assert_ptr_null(skiplist_first(&list));
        ck_assert_ptr_null(skiplist_last(&list));
        ck_assert_ptr_null(skiplist_seek(&list, compare_numbers, &number, false));
        ck_assert_uint_eq(skiplist_rank(&list, &number), 0);
        ck_assert(!skiplist_remove(&list, &number));
        ck_assert_ptr_null(skiplist_item(NULL));
        skiplist_insert(&list, &number);
        ck_assert(skiplist_remove(&list, &number));
    }
}
END_TEST

START_TEST(a_removal_takes_the_very_item)
{
    int number = 1, equal = 1;
    struct skiplist list;
    skiplist_init(&list, compare_numbers, 1);
    skiplist_insert(&list, &number);
    ck_assert(!skiplist_remove(&list, &equal));
    ck_assert(skiplist_remove(&list, &number));
}
END_TEST

START_TEST(a_node_stays_valid_while_others_come_and_go)
{
    static int numbers[ITEMS];
    struct skiplist list;
    skiplist_init(&list, compare_numbers, 7);
    numbers[ITEMS / 2] = ITEMS / 2;
    struct skiplist_node *node = skiplist_insert(&list, &numbers[ITEMS / 2]);
    for (int i = 0; i < ITEMS; i++) {
        numbers[i] = i;
        if (i != ITEMS / 2) {
            skiplist_insert(&list, &numbers[i]);
        }
    }
    ck_assert_ptr_eq(skiplist_item(node), &numbers[ITEMS / 2]);
    ck_assert_ptr_eq(skiplist_item(skiplist_previous(node)), &numbers[ITEMS / 2 - 1]);
    ck_assert_ptr_eq(skiplist_item(skiplist_next(node)), &numbers[ITEMS / 2 + 1]);
    for (int i = 0; i < ITEMS; i++) {
        if (i != ITEMS / 2) {
            ck_assert(skiplist_remove(&list, &numbers[i]));
        }
    }
    ck_assert_ptr_eq(skiplist_first(&list), node);
    ck_assert_ptr_null(skiplist_previous(node));
    ck_assert_ptr_null(skiplist_next(node));
    skiplist_clear(&list);
}
END_TEST

/* Counts comparisons, so that this tests the shape and not the machine. */
static unsigned comparisons;

static int compare_and_count(const void *a, const void *b)
{
    comparisons++;
    return compare_numbers(a, b);
}

static unsigned comparisons_a_search(unsigned length, bool backwards)
{
    int removed = -1;
    int *numbers = g_new(int, length);
    struct skiplist list;
    skiplist_init(&list, compare_and_count, 42);
    for (unsigned i = 0; i < length; i++) {
        numbers[i] = (int)(backwards ? length - i : i);
        skiplist_insert(&list, &numbers[i]);
    }
    skiplist_insert(&list, &removed);
    skiplist_remove(&list, &removed);
    comparisons = 0;
    for (unsigned i = 0; i < length; i++) {
        skiplist_rank(&list, &numbers[i]);
    }
    skiplist_clear(&list);
    g_free(numbers);
    return comparisons / length;
}

START_TEST(a_search_compares_with_a_logarithm_of_the_items)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        ck_assert_uint_le(comparisons_a_search(1000, backwards), 20);
        ck_assert_uint_le(comparisons_a_search(100000, backwards), 32);
    }
}
END_TEST

START_TEST(the_same_seed_and_calls_give_the_same_list)
{
    unsigned first = comparisons_a_search(5000, false);
    ck_assert_uint_eq(comparisons_a_search(5000, false), first);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("skiplist");
    TCase *tcase = tcase_create("skiplist");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, random_operations_agree_with_a_sorted_array);
    tcase_add_test(tcase, an_empty_list_has_nothing_and_owns_nothing);
    tcase_add_test(tcase, a_removal_takes_the_very_item);
    tcase_add_test(tcase, a_node_stays_valid_while_others_come_and_go);
    tcase_add_test(tcase, a_search_compares_with_a_logarithm_of_the_items);
    tcase_add_test(tcase, the_same_seed_and_calls_give_the_same_list);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

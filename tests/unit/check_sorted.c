/* check_sorted: the ordered set in blocks against an array of flags, under random
 * operations from a printed seed (CHECK_SEED repeats one); and what it costs. */
#include "backend/sorted.h"

#include "tests/support/check_main.h"
#include "tests/support/heap.h"

#include <glib.h>
#include <stdio.h>

enum { ITEMS = 3000, STEPS = 40000, MANY = 200000 };

static unsigned comparisons;

static int compare_numbers(const void *a, const void *b)
{
    const int *x = a, *y = b;
    comparisons++;
    return (*x > *y) - (*x < *y);
}

/* The naive model: which of the even numbers are in. */
struct model {
    int numbers[ITEMS];
    bool in[ITEMS];
};

/* The first that is in and not below the key. */
static void *model_from(struct model *m, int key)
{
    for (int i = MAX(key + 1, 0) / 2; i < ITEMS; i++) {
        if (m->in[i]) {
            return &m->numbers[i];
        }
    }
    return NULL;
}

static void assert_same(struct sorted *set, struct model *m)
{
    struct sorted_position place = sorted_first(set);
    void *last = NULL;
    for (int i = 0; i < ITEMS; i++) {
        if (m->in[i]) {
            ck_assert_ptr_eq(sorted_item(place), &m->numbers[i]);
            last = &m->numbers[i];
            place = sorted_next(place);
        }
    }
    ck_assert_ptr_null(sorted_item(place));
    ck_assert_ptr_eq(sorted_last(set), last);
    ck_assert_int_eq(sorted_is_empty(set), !last);
}

static void assert_searches_agree(struct sorted *set, struct model *m, int key)
{
    void *from = model_from(m, key);
    ck_assert_ptr_eq(sorted_item(sorted_seek(set, compare_numbers, &key, false)), from);
    ck_assert_ptr_eq(sorted_item(sorted_seek(set, compare_numbers, &key, true)), model_from(m, key + 1));
    ck_assert_ptr_eq(sorted_find(set, compare_numbers, &key), from && *(int *)from == key ? from : NULL);
}

START_TEST(random_operations_agree_with_an_array)
{
    static struct model m;
    struct sorted set;
    const char *given = g_getenv("CHECK_SEED");
    uint32_t seed = given ? (uint32_t)g_ascii_strtoull(given, NULL, 10) : (uint32_t)g_get_monotonic_time();
    printf("# CHECK_SEED=%u\n", seed);
    fflush(stdout);
    GRand *rand = g_rand_new_with_seed(seed);
    sorted_init(&set, compare_numbers, seed);
    for (int i = 0; i < ITEMS; i++) {
        m.numbers[i] = 2 * i; /* odd keys are never in */
    }
    int at = 0;
    for (int step = 0; step < STEPS; step++) {
        bool growing = step / 10000 % 2 == 0, in_order = step / 5000 % 2 == 0;
        at = in_order ? (at + 1) % ITEMS : g_rand_int_range(rand, 0, ITEMS);
        bool change = g_rand_int_range(rand, 0, 4) != 0;
        if (m.in[at] && change != growing) {
            ck_assert(sorted_remove(&set, &m.numbers[at]));
            m.in[at] = false;
        } else if (!m.in[at] && change == growing) {
            sorted_insert(&set, &m.numbers[at]);
            m.in[at] = true;
        } else if (!m.in[at]) {
            ck_assert(!sorted_remove(&set, &m.numbers[at]));
        }
        assert_searches_agree(&set, &m, g_rand_int_range(rand, -1, 2 * ITEMS + 1));
        if (step % 500 == 0) {
            assert_same(&set, &m);
        }
    }
    for (int i = 0; i < ITEMS; i++) {
        ck_assert_int_eq(sorted_remove(&set, &m.numbers[i]), m.in[i]);
        m.in[i] = false;
    }
    assert_same(&set, &m);
    sorted_clear(&set); /* the block that an emptied set keeps */
    g_rand_free(rand);
}
END_TEST

START_TEST(an_empty_set_has_nothing)
{
    int number = 1, equal = 1;
    struct sorted set;
    sorted_init(&set, compare_numbers, 1);
    for (int round = 0; round < 2; round++) {
        ck_assert(sorted_is_empty(&set));
        ck_assert_ptr_null(sorted_last(&set));
        ck_assert_ptr_null(sorted_item(sorted_first(&set)));
        ck_assert_ptr_null(sorted_find(&set, compare_numbers, &number));
        ck_assert(!sorted_remove(&set, &number));
        sorted_insert(&set, &number);
        ck_assert(!sorted_remove(&set, &equal)); /* the very item */
        ck_assert(sorted_remove(&set, &number));
    }
    sorted_insert(&set, &number);
    sorted_clear(&set);
    ck_assert_ptr_null(set.blocks.head); /* it owns nothing */
    ck_assert(sorted_is_empty(&set));
    ck_assert_ptr_null(sorted_find(&set, compare_numbers, &number));
}
END_TEST

enum order { RISING, RISING_INSIDE, FALLING, SCATTERED, ORDERS };

/* The nth of MANY numbers in that order; 7919 has no divisor in common with MANY. */
static int nth(unsigned n, enum order order)
{
    switch (order) {
    case RISING:
        return (int)n;
    case RISING_INSIDE: /* before one that is greater than all of them */
        return n == 0 ? MANY - 1 : (int)n - 1;
    case FALLING:
        return MANY - 1 - (int)n;
    default:
        return (int)(n * 7919u % MANY);
    }
}

/* Counts and bytes, so that this tests the shape and not the machine. */
START_TEST(an_item_costs_few_comparisons_and_bytes)
{
    enum order order = (enum order)_i;
    int *numbers = g_new(int, MANY);
    struct sorted set;
    size_t before = heap_bytes();
    sorted_init(&set, compare_numbers, 42);
    for (int i = 0; i < MANY; i++) {
        int at = nth((unsigned)i, order);
        numbers[at] = 2 * at;
        sorted_insert(&set, &numbers[at]);
    }
    if (HEAP_IS_MEASURED) {
        ck_assert_uint_le((heap_bytes() - before) / MANY, order == SCATTERED ? 12 : 9);
    }
    comparisons = 0;
    for (int i = 0; i < MANY; i++) {
        int key = 2 * nth((unsigned)i, SCATTERED) + 1;
        ck_assert_ptr_null(sorted_find(&set, compare_numbers, &key));
    }
    ck_assert_uint_le(comparisons / MANY, 34);
    comparisons = 0;
    for (int i = 0; i < MANY; i++) { /* to come back to the same place costs a third of that */
        int key = 2 * nth(0, SCATTERED) + 1;
        ck_assert_ptr_null(sorted_find(&set, compare_numbers, &key));
    }
    ck_assert_uint_le(comparisons / MANY, 10);
    sorted_clear(&set);
    g_free(numbers);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sorted");
    TCase *tcase = tcase_create("sorted");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, random_operations_agree_with_an_array);
    tcase_add_test(tcase, an_empty_set_has_nothing);
    tcase_add_loop_test(tcase, an_item_costs_few_comparisons_and_bytes, 0, ORDERS);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

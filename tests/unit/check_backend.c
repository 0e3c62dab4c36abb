/* check_backend: how a store reads the meta of a ticket, also of a ticket that another program has written. */
#include "backend/backend.h"
#include "tests/support/check_main.h"

static const struct {
    const char *word;
    int64_t guard;
    bool fixed;
} words[] = {
    {"4", 1, false},
    {"5", 1, true},
    {"240000", 60000, false},
    {"3000000", 60000, false},
    {"99999999999999999999", 60000, false},
    {"12x", 0, false},
    {"-4", 0, false},
    {"", 0, false},
};

START_TEST(guard_is_a_number_up_to_its_maximum)
{
    char text[128];
    int length = g_snprintf(text, sizeof text, "1 2 3 4 5 6 7 %s 9", words[_i].word);
    GBytes *meta = g_bytes_new(text, (gsize)length);
    ck_assert_int_eq(backend_parse_guard(meta), words[_i].guard);
    if (words[_i].guard < BACKEND_GUARD_MAX) {
        ck_assert_int_eq(backend_parse_fixed(meta), words[_i].fixed);
    }
    g_bytes_unref(meta);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backend");
    TCase *tcase = tcase_create("meta");
    tcase_add_loop_test(tcase, guard_is_a_number_up_to_its_maximum, 0, G_N_ELEMENTS(words));
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

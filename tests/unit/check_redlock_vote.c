/* check_redlock_vote: the verdict on votes, how long a server is held off, and URIs of several servers. */
#include <errno.h>
#include <string.h>

#include "backend/redlock/private.h"
#include "tests/support/check_main.h"

enum { WORDS = 4 };
static const char *const words[WORDS] = {"ok", "held a", "held b", NULL}; /* NULL: absent */

/* Of "ok": the votes in order, a letter each: o, a, b, - for an absence, and . for one that is still open. */
static enum vote_verdict verdict_of(const char *votes, const char **ret_word)
{
    static struct vote vote;

    vote_init(&vote, (unsigned)strlen(votes));
    for (unsigned i = 0; votes[i]; i++)
        if (votes[i] != '.')
            vote_cast(&vote, i,
                      votes[i] == '-'   ? NULL
                      : votes[i] == 'o' ? "ok"
                      : votes[i] == 'a' ? "held a"
                                        : "held b");
    return vote_verdict(&vote, "ok", ret_word);
}

START_TEST(more_than_half_of_all_decide)
{
    static const struct {
        const char *votes;
        enum vote_verdict verdict;
        const char *word;
    } cases[] = {
        {"...", VOTE_OPEN, NULL},       {"o..", VOTE_OPEN, NULL},       {"oo.", VOTE_WON, "ok"},
        {"o-.", VOTE_OPEN, NULL},       {"o--", VOTE_AWAY, NULL},       {"o-o", VOTE_WON, "ok"},
        {"a..", VOTE_OPEN, NULL},       {"aa.", VOTE_LOST, "held a"},   {"ab.", VOTE_LOST, "held a"},
        {"oab", VOTE_SPLIT, NULL},      {"oa.", VOTE_OPEN, NULL},       {"a-.", VOTE_LOST, "held a"},
        {"oo..", VOTE_OPEN, NULL},      {"oo--", VOTE_AWAY, NULL},      {"ooo.", VOTE_WON, "ok"},
        {"ooaa", VOTE_SPLIT, NULL},     {"oo...", VOTE_OPEN, NULL},     {"oo--.", VOTE_OPEN, NULL},
        {"oo---", VOTE_AWAY, NULL},     {"ooo--", VOTE_WON, "ok"},      {"ooaab", VOTE_SPLIT, NULL},
        {"ooaaa", VOTE_LOST, "held a"}, {"ooa--", VOTE_LOST, "held a"}, {"oaab.", VOTE_LOST, "held a"},
        {"---..", VOTE_AWAY, NULL},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const char *word = NULL;

        ck_assert_msg(verdict_of(cases[i].votes, &word) == cases[i].verdict, "%s", cases[i].votes);
        if (cases[i].word)
            ck_assert_msg(g_strcmp0(word, cases[i].word) == 0, "%s: %s", cases[i].votes, word);
    }
}
END_TEST

/* All ways in which so many servers can vote, as numbers to the base WORDS. */
static unsigned ways(unsigned servers)
{
    unsigned count = 1;

    while (servers-- > 0)
        count *= WORDS;
    return count;
}

static const char *word_of(unsigned way, unsigned server)
{
    while (server-- > 0)
        way /= WORDS;
    return words[way % WORDS];
}

START_TEST(what_was_decided_stays_whatever_votes_come_late)
{
    for (unsigned servers = 3; servers <= 6; servers++)
        for (unsigned way = 0; way < ways(servers); way++) {
            enum vote_verdict decided = VOTE_OPEN;
            struct vote vote;

            vote_init(&vote, servers);
            for (unsigned i = 0; i < servers; i++) {
                enum vote_verdict verdict;

                vote_cast(&vote, i, word_of(way, i));
                vote_cast(&vote, i, "ok"); /* the first counts */
                verdict = vote_verdict(&vote, "ok", NULL);
                ck_assert(decided == VOTE_OPEN || (verdict == VOTE_WON) == (decided == VOTE_WON));
                decided = verdict;
            }
            ck_assert_int_ne(decided, VOTE_OPEN);
        }
}
END_TEST

START_TEST(never_do_two_win)
{
    for (unsigned servers = 3; servers <= 6; servers++)
        for (unsigned way = 0; way < ways(servers); way++) {
            struct vote vote;
            unsigned winners = 0;

            vote_init(&vote, servers);
            for (unsigned i = 0; i < servers; i++)
                vote_cast(&vote, i, word_of(way, i));
            for (unsigned i = 0; words[i]; i++)
                winners += vote_verdict(&vote, words[i], NULL) == VOTE_WON;
            ck_assert_uint_le(winners, 1);
        }
}
END_TEST

START_TEST(majority_of_any_number_meets_any_other)
{
    for (unsigned servers = 3; servers <= VOTE_SERVERS; servers++) {
        ck_assert_uint_gt(2 * vote_majority(servers), servers);
        ck_assert_uint_le(2 * (vote_majority(servers) - 1), servers);
    }
}
END_TEST

START_TEST(question_is_answered_by_what_most_say_and_nothing_is_the_weakest)
{
    const char *word;
    struct vote vote;

    vote_init(&vote, 5);
    vote_cast(&vote, 0, VOTE_NOTHING);
    vote_cast(&vote, 1, VOTE_NOTHING);
    ck_assert_int_eq(vote_verdict(&vote, NULL, NULL), VOTE_OPEN);
    vote_cast(&vote, 2, "held a");
    vote_cast(&vote, 3, "held a");
    ck_assert_int_eq(vote_verdict(&vote, NULL, NULL), VOTE_OPEN);
    vote_cast(&vote, 4, NULL); /* it may have it, too */
    ck_assert_int_eq(vote_verdict(&vote, NULL, &word), VOTE_WON);
    ck_assert_str_eq(word, "held a");

    vote_init(&vote, 5);
    for (unsigned i = 0; i < 3; i++)
        vote_cast(&vote, i, VOTE_NOTHING);
    ck_assert_int_eq(vote_verdict(&vote, NULL, &word), VOTE_WON);
    ck_assert_str_eq(word, VOTE_NOTHING);

    vote_init(&vote, 3);
    vote_cast(&vote, 0, "held a");
    vote_cast(&vote, 1, "held b");
    vote_cast(&vote, 2, VOTE_NOTHING);
    ck_assert_int_eq(vote_verdict(&vote, NULL, NULL), VOTE_SPLIT);

    vote_init(&vote, 3);
    vote_cast(&vote, 0, NULL);
    vote_cast(&vote, 1, NULL);
    vote_cast(&vote, 2, "held a");
    ck_assert_int_eq(vote_verdict(&vote, NULL, NULL), VOTE_AWAY);
}
END_TEST

START_TEST(server_is_held_off_until_all_terms_are_over_that_it_may_have_known)
{
    const int64_t term = 30000, drift = term / 100 + 2, slack = 1000; /* uptimes are whole seconds */

    ck_assert_int_eq(redlock_node_hold_off(5000, 5000, term), term + drift + slack);
    ck_assert_int_gt(redlock_node_hold_off(5000 + term, 5000, term), 0);
    ck_assert_int_gt(redlock_node_hold_off(5000 + term + drift, 5000, term), 0);
    ck_assert_int_eq(redlock_node_hold_off(5000 + term + drift + slack - 1, 5000, term), 1);
    ck_assert_int_eq(redlock_node_hold_off(5000 + term + drift + slack, 5000, term), 0);
    ck_assert_int_eq(redlock_node_hold_off(INT64_C(1) << 40, 5000, term), 0);
}
END_TEST

/* --- addresses --- */

START_TEST(servers_are_named_in_one_address)
{
    char error[256] = "";
    struct redlock_uri uri;

    ck_assert_int_eq(redlock_uri_parse(&uri, "redlock://a,b:7000,[::1]:7001", error, sizeof(error)), 0);
    ck_assert_uint_eq(uri.count, 3);
    ck_assert_str_eq(uri.servers[0].host, "a");
    ck_assert_uint_eq(uri.servers[0].port, 6379);
    ck_assert_uint_eq(uri.servers[1].port, 7000);
    ck_assert_str_eq(uri.servers[2].host, "::1");
    ck_assert_int_eq(uri.servers[2].database, 0);
    redlock_uri_clear(&uri);
    ck_assert_int_eq(redlock_uri_parse(&uri, "REDLOCK://me@a,b,c,d,e/7", error, sizeof(error)), 0);
    ck_assert_uint_eq(uri.count, 5);
    for (unsigned i = 0; i < uri.count; i++) {
        ck_assert_str_eq(uri.servers[i].user, "me");
        ck_assert_int_eq(uri.servers[i].database, 7);
    }
    redlock_uri_clear(&uri);
}
END_TEST

START_TEST(address_that_is_none_is_refused_with_the_reason)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"redlock://a", "fewer than 3 servers"},
        {"redlock://a,b/1", "fewer than 3 servers"},
        {"redlock://a,b,a", "names a server twice"},
        {"redlock://a,b,A:6379", "names a server twice"},
        {"redlock://a,,b", "names no host"},
        {"redlock://a,b,c/x", "is not a database"},
        {"redlock://a,b,c:0", "port"},
        {"redlock://u:secret@a,b,c", "a password in the URI"},
        {"redlock://a,b,c d", "host"},
        {"redis://a,b,c", "does not begin with redlock://"},
        {"redlock://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", "more than 15"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        char error[256] = "";
        struct redlock_uri uri;

        ck_assert_int_eq(redlock_uri_parse(&uri, cases[i].text, error, sizeof(error)), -EINVAL);
        ck_assert_msg(strstr(error, cases[i].why) && !strstr(error, "secret"), "%s: %s", cases[i].text, error);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redlock");
    TCase *tcase = tcase_create("vote");

    tcase_add_test(tcase, more_than_half_of_all_decide);
    tcase_add_test(tcase, what_was_decided_stays_whatever_votes_come_late);
    tcase_add_test(tcase, never_do_two_win);
    tcase_add_test(tcase, majority_of_any_number_meets_any_other);
    tcase_add_test(tcase, question_is_answered_by_what_most_say_and_nothing_is_the_weakest);
    tcase_add_test(tcase, server_is_held_off_until_all_terms_are_over_that_it_may_have_known);
    tcase_add_test(tcase, servers_are_named_in_one_address);
    tcase_add_test(tcase, address_that_is_none_is_refused_with_the_reason);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

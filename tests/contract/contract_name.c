/* contract_name: directories, listings and renaming. */
#include "tests/contract/contract.h"

START_TEST(directories_are_made_and_removed)
{
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_stat("d").type, BACKEND_DIRECTORY);
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_EXISTS);
    ck_assert_int_eq(contract_mkdir("d/e", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_mkdir("no/e", NULL), BACKEND_MISSING);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_NOT_EMPTY);
    ck_assert_int_eq(contract_rmdir("d/e"), BACKEND_OK);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_OK);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_MISSING);
    ck_assert_int_eq(contract_stat("d").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(directory_with_a_lock_in_it_stays)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket;

    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ticket = contract_get("d/a", BACKEND_FLOCK, &log);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_NOT_EMPTY);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_OK);
}
END_TEST

START_TEST(directory_stays_while_a_name_in_it_is_refused_for_a_delay)
{
    struct backend_directory delayed = {.width = 1, .delay = 4 * CONTRACT_SHORT};
    struct contract_log log = {0}, waits = {0};

    ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_OK);
    contract_get("d/a", BACKEND_LEASE, &log);
    struct backend_ticket *waiter = contract_queue("d/a", BACKEND_EXCLUSIVE, &waits);
    ck_assert_int_eq(contract_revoke("d/a", 0), BACKEND_OK);
    CONTRACT_UNTIL(log.ended > 0);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_NOT_EMPTY);
    CONTRACT_UNTIL(waits.granted > 0);
    ck_assert_int_eq(contract_release(waiter), BACKEND_OK);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_OK);
}
END_TEST

START_TEST(lock_is_no_directory)
{
    struct contract_log log = {0}, other = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &other);

    contract_get("a", BACKEND_LEASE, &log);
    ck_assert_int_eq(contract_mkdir("a", NULL), BACKEND_EXISTS);
    ck_assert_int_eq(contract_rmdir("a"), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(contract_mkdir("a/d", NULL), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(contract_acquire("a/b", &claim).result, BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(contract_list_result("a"), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(contract_list_result("no"), BACKEND_MISSING);
}
END_TEST

START_TEST(attributes_of_directories_are_kept)
{
    const uint32_t width = contract_can(BACKEND_CAN_SEQUENCE) ? UINT32_MAX : 1;
    const int64_t delay = contract_can(BACKEND_CAN_SHARE) ? 55 : 0;
    struct backend_directory directory = {.ttl = 1234, .width = width, .delay = delay, .meta = contract_bytes("drwx")};
    struct backend_info info;

    ck_assert_int_eq(contract_mkdir("d", &directory), BACKEND_OK);
    info = contract_stat("d");
    ck_assert_int_eq(info.directory.ttl, 1234);
    ck_assert_uint_eq(info.directory.width, width);
    ck_assert_int_eq(info.directory.delay, delay);
    ck_assert(contract_equal(info.directory.meta, "drwx"));

    directory = (struct backend_directory){.width = 1, .meta = contract_bytes("d---")};
    ck_assert_int_eq(contract_set_directory("d", &directory), BACKEND_OK);
    ck_assert_int_eq(contract_set_directory("", &directory), BACKEND_OK);
    ck_assert_int_eq(contract_set_directory("no", &directory), BACKEND_MISSING);
    info = contract_stat("d");
    ck_assert_int_eq(info.directory.ttl, 0);
    ck_assert_uint_eq(info.directory.width, 1);
    ck_assert(contract_equal(info.directory.meta, "d---"));
    ck_assert(contract_equal(contract_stat("").directory.meta, "d---"));
}
END_TEST

START_TEST(listing_shows_held_names_in_order_and_in_parts)
{
    static const char *const names[] = {"b", "z", "a", "ab", "a-", "C"};
    struct contract_log log = {0};
    struct backend_ticket *ticket[G_N_ELEMENTS(names)];

    ck_assert_str_eq(contract_list("", 10), "");
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        ticket[i] = contract_get(names[i], i % 2 ? BACKEND_LEASE : BACKEND_FLOCK, &log);
    ck_assert_int_eq(contract_mkdir("aa", NULL), BACKEND_OK);
    contract_get("aa/x", BACKEND_LEASE, &log);
    for (size_t part = 1; part < 10; part++)
        ck_assert_str_eq(contract_list("", part), "C a a- aa/ ab b z");
    ck_assert_str_eq(contract_list("aa", 10), "x");
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    ck_assert_int_eq(contract_release(ticket[1]), BACKEND_OK);
    ck_assert_str_eq(contract_list("", 3), "C a a- aa/ ab");
}
END_TEST

START_TEST(renamed_lease_keeps_content_and_frees_its_name)
{
    struct contract_log log = {0}, waiting = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_ticket *ticket;
    uint64_t fence;
    struct backend_info info;

    claim.meta = contract_bytes("me");
    claim.content = contract_bytes("text");
    ticket = contract_acquire("a", &claim).ticket;
    fence = ticket->fence;
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    ck_assert_int_eq(contract_rename(ticket, "b"), BACKEND_OK);
    ck_assert_uint_ge(ticket->fence, fence);
    info = contract_stat("b");
    ck_assert_ptr_eq(info.ticket, ticket);
    ck_assert_uint_eq(info.fence, ticket->fence);
    ck_assert(contract_equal(info.meta, "me"));
    ck_assert(contract_equal(info.content, "text"));
    CONTRACT_UNTIL(waiting.granted);
    ck_assert(contract_is_busy("b"));
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert(!contract_is_busy("b"));
}
END_TEST

START_TEST(rename_to_a_held_name_is_busy_and_changes_nothing)
{
    struct contract_log log = {0}, other = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    uint64_t fence = ticket->fence;

    contract_get("b", BACKEND_FLOCK, &other);
    ck_assert_int_eq(contract_rename(ticket, "b"), BACKEND_BUSY);
    ck_assert_int_eq(contract_rename(ticket, "no/b"), BACKEND_MISSING);
    ck_assert_ptr_eq(contract_stat("a").ticket, ticket);
    ck_assert_uint_eq(contract_stat("a").fence, fence);
}
END_TEST

START_TEST(rename_replaces_a_ticket_that_is_named_and_no_other)
{
    struct contract_log log = {0}, mine = {0}, waiting = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_ticket *ticket, *replaced, *waiter;
    uint64_t seen;

    claim.content = contract_bytes("text");
    ticket = contract_acquire("a", &claim).ticket;
    replaced = contract_get("b", BACKEND_LEASE, &mine);
    waiter = contract_queue("b", BACKEND_EXCLUSIVE, &waiting);
    seen = MAX(replaced->fence, waiter->fence);
    ck_assert_int_eq(contract_rename(ticket, "b"), BACKEND_BUSY);
    ck_assert_int_eq(contract_rename_over(ticket, "b", ticket), BACKEND_BUSY);
    ck_assert_int_eq(contract_rename_over(ticket, "no/b", replaced), BACKEND_MISSING);
    ck_assert_ptr_eq(contract_stat("a").ticket, ticket);
    ck_assert_ptr_eq(contract_stat("b").ticket, replaced);

    ck_assert_int_eq(contract_rename_over(ticket, "b", replaced), BACKEND_OK);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_ptr_eq(contract_stat("b").ticket, ticket);
    ck_assert(contract_equal(contract_stat("b").content, "text"));
    ck_assert_uint_gt(ticket->fence, seen);
    ck_assert_uint_eq(contract_stat("b").fence, ticket->fence);
    CONTRACT_UNTIL(mine.ended);
    ck_assert_int_eq(mine.why, BACKEND_RELEASED);
    ck_assert_uint_eq(waiting.granted, 0); /* it waits for the one that has moved there */
    seen = ticket->fence;
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_uint_gt(waiter->fence, seen);
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(release_of_a_replaced_ticket_silences_its_end)
{
    struct contract_log log = {0}, mine = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    struct backend_ticket *replaced = contract_get("b", BACKEND_LEASE, &mine);
    struct backend_info info;

    ck_assert_int_eq(contract_rename_over(ticket, "b", replaced), BACKEND_OK);
    if (!mine.ended)
        ck_assert_int_eq(contract_release(replaced), BACKEND_OK);
    info = contract_stat("b");
    ck_assert_ptr_eq(info.ticket, ticket);
    ck_assert_uint_eq(info.holders, 1);
    ck_assert_str_eq(contract_list("", 10), "b");
}
END_TEST

START_TEST(rename_over_one_of_several_holders_is_busy)
{
    struct contract_log log[3] = {{0}};

    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]);
    struct backend_ticket *shared = contract_get_shared("b", BACKEND_FLOCK, &log[1]);
    contract_get_shared("b", BACKEND_FLOCK, &log[2]);
    ck_assert_int_eq(contract_rename_over(ticket, "b", shared), BACKEND_BUSY);
    ck_assert_uint_eq(contract_stat("b").holders, 2);
    ck_assert_ptr_eq(contract_stat("a").ticket, ticket);
    ck_assert_uint_eq(log[1].ended, 0);
}
END_TEST

/* The one that is named has gone, and another has come. */
START_TEST(rename_over_a_ticket_that_is_elsewhere_takes_nothing)
{
    struct contract_log log[4] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]);
    struct backend_ticket *elsewhere = contract_get("c", BACKEND_LEASE, &log[1]);
    struct backend_ticket *holder = contract_get("b", BACKEND_LEASE, &log[2]);

    ck_assert_int_eq(contract_rename_over(ticket, "b", elsewhere), BACKEND_BUSY);
    ck_assert_int_eq(contract_rename_over(ticket, "d", elsewhere), BACKEND_OK);
    ck_assert_ptr_eq(contract_stat("b").ticket, holder);
    ck_assert_ptr_eq(contract_stat("c").ticket, elsewhere);
    ck_assert_ptr_eq(contract_stat("d").ticket, ticket);
}
END_TEST

static void count_done(void *arg, enum backend_result result)
{
    ck_assert_int_eq(result, BACKEND_OK);
    ++*(unsigned *)arg;
    contract_end_turn();
}

START_TEST(change_that_crosses_a_rename_is_not_lost)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    struct backend_change before = {.set = BACKEND_SET_META, .meta = contract_bytes("meta")},
                          after = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("content")};
    unsigned done = 0;

    backend_set(contract_backend, ticket, &before, count_done, &done);
    backend_rename(contract_backend, ticket, "b", NULL, count_done, &done);
    backend_set(contract_backend, ticket, &after, count_done, &done);
    CONTRACT_UNTIL(done == 3);
    ck_assert(contract_equal(contract_stat("b").meta, "meta"));
    ck_assert(contract_equal(contract_stat("b").content, "content"));
}
END_TEST

static void note_result(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result + 1;
}

/* The loop stands still until the term is over, as after a SIGSTOP.  A store that answers at once was in time. */
START_TEST(rename_that_is_answered_after_its_term_is_stale)
{
    struct contract_log log = {0}, mine = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    bool over = _i && contract_can(BACKEND_CAN_REPLACE);
    struct backend_ticket *replaced = over ? contract_get("b", BACKEND_LEASE, &mine) : NULL;
    int renamed = 0;

    claim.ttl = CONTRACT_TERM; /* it is sent in time on a busy machine, too */
    struct backend_ticket *ticket = contract_get_soon("a", &claim);
    clock_ms deadline = ticket->deadline;
    backend_rename(contract_backend, ticket, "b", replaced, note_result, &renamed);
    bool in_time = renamed || contract_can(BACKEND_SOLE_AUTHORITY); /* such a store renames at once, and answers late */
    while (clock_now() < deadline)
        g_usleep(1000);
    CONTRACT_UNTIL(renamed && log.ended && (!over || mine.ended));
    ck_assert_int_eq(renamed - 1, in_time ? BACKEND_OK : BACKEND_STALE);
    ck_assert_uint_eq(log.ended, 1);
    if (over)
        ck_assert_int_eq(mine.why, in_time ? BACKEND_RELEASED : BACKEND_LOST);
    CONTRACT_UNTIL(!contract_is_busy("a") && !contract_is_busy("b"));
}
END_TEST

START_TEST(token_of_a_renamed_lease_is_not_behind_what_its_name_has_seen)
{
    struct contract_log log[2] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]), *other;
    uint64_t seen;

    other = contract_get("b", BACKEND_LEASE, &log[1]);
    seen = other->fence;
    ck_assert_int_eq(contract_release(other), BACKEND_OK);
    ck_assert_int_eq(contract_rename(ticket, "b"), BACKEND_OK);
    ck_assert_uint_gt(ticket->fence, seen);
}
END_TEST

START_TEST(name_of_a_ticket_is_known)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket;
    char name[64];

    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ticket = contract_get("d/a", BACKEND_LEASE, &log);
    ck_assert(backend_ticket_name(contract_backend, ticket, name, sizeof(name)));
    ck_assert_str_eq(name, "d/a");
    ck_assert(!backend_ticket_name(contract_backend, ticket, name, 3));
}
END_TEST

START_TEST(long_names_work_or_are_refused)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    char *name = g_strnfill(255, 'n');
    GString *deep = g_string_new(NULL);

    ck_assert_int_eq(contract_acquire(name, &claim).result, BACKEND_OK);
    ck_assert(contract_is_busy(name));
    for (int i = 0; i < 3000; i++)
        g_string_append(deep, "d/");
    g_string_append(deep, "x");
    ck_assert_int_ne(contract_acquire(deep->str, &claim).result, BACKEND_OK);
    ck_assert_int_ne(contract_mkdir(deep->str, NULL), BACKEND_OK);
    g_string_free(deep, TRUE);
    g_free(name);
}
END_TEST

TCase *contract_name_case(void)
{
    TCase *tcase = tcase_create("name");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_add_test(tcase, directories_are_made_and_removed);
    tcase_add_test(tcase, directory_with_a_lock_in_it_stays);
    tcase_add_test(tcase, lock_is_no_directory);
    tcase_add_test(tcase, attributes_of_directories_are_kept);
    tcase_add_test(tcase, listing_shows_held_names_in_order_and_in_parts);
    tcase_add_test(tcase, name_of_a_ticket_is_known);
    tcase_add_test(tcase, long_names_work_or_are_refused);
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, directory_stays_while_a_name_in_it_is_refused_for_a_delay);
    }
    if (contract_has(BACKEND_CAN_RENAME)) {
        tcase_add_test(tcase, renamed_lease_keeps_content_and_frees_its_name);
        tcase_add_test(tcase, rename_to_a_held_name_is_busy_and_changes_nothing);
        tcase_add_test(tcase, rename_over_a_ticket_that_is_elsewhere_takes_nothing);
        tcase_add_test(tcase, change_that_crosses_a_rename_is_not_lost);
        tcase_add_loop_test(tcase, rename_that_is_answered_after_its_term_is_stale, 0, 2);
        tcase_add_test(tcase, token_of_a_renamed_lease_is_not_behind_what_its_name_has_seen);
    }
    if (contract_has(BACKEND_CAN_REPLACE)) {
        tcase_add_test(tcase, rename_replaces_a_ticket_that_is_named_and_no_other);
        tcase_add_test(tcase, release_of_a_replaced_ticket_silences_its_end);
        tcase_add_test(tcase, rename_over_one_of_several_holders_is_busy);
    }
    return tcase;
}

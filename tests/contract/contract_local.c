/* contract_local: the contract for the local backend; and what it has after it was closed and opened again. */
#include <string.h>

#include "backend/local/local.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"

/* contract_local_sync.c is this with sync=always */
#ifndef LOCAL_SYNC_ALWAYS
#define LOCAL_SYNC_ALWAYS false
#define LOCAL_NAME "local"
#endif

static char *directory;

static struct backend *open_directory(void)
{
    struct local_options options = {.directory = directory, .seed = 1, .sync_always = LOCAL_SYNC_ALWAYS};
    struct backend *b = NULL;
    char error[512] = "";

    ck_assert_msg(local_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

static struct backend *open_local(void)
{
    directory = scratch_new();
    return open_directory();
}

static void clean_local(void)
{
    scratch_free(directory);
}

static void restart(void)
{
    backend_free(contract_backend);
    contract_start(open_directory());
}

/* What backend_recover finds: name -> ticket. */
static bool found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    static struct contract_log log[100];
    GHashTable *all = arg;

    (void)meta;
    if (!ticket) {
        return false; /* a directory */
    }
    ck_assert_ptr_nonnull(content);
    ck_assert_uint_lt(g_hash_table_size(all), G_N_ELEMENTS(log));
    ticket->user = &log[g_hash_table_size(all)];
    memset(ticket->user, 0, sizeof(log[0]));
    g_hash_table_insert(all, g_strdup(name), ticket);
    return false;
}

static GHashTable *recover(void)
{
    GHashTable *all = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    backend_recover(contract_backend, found, all);
    return all;
}

START_TEST(leases_are_what_they_were)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_ticket *ticket, before;
    GHashTable *all;
    struct backend_info info;

    claim.meta = contract_bytes("me");
    claim.content = contract_bytes("text");
    before = *contract_acquire("a", &claim).ticket;
    restart();
    all = recover();
    ck_assert_uint_eq(g_hash_table_size(all), 1);
    ticket = g_hash_table_lookup(all, "a");
    ck_assert_ptr_nonnull(ticket);
    ck_assert(ticket->held);
    ck_assert_uint_eq(ticket->fence, before.fence);
    ck_assert_int_eq(ticket->acquired, before.acquired);
    ck_assert_int_eq(ticket->deadline, before.deadline);
    ck_assert_int_eq(ticket->ttl, before.ttl);
    ck_assert_int_eq(ticket->kind, BACKEND_LEASE);
    info = contract_stat("a");
    ck_assert(contract_equal(info.meta, "me"));
    ck_assert(contract_equal(info.content, "text"));
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));
    g_hash_table_unref(all);
}
END_TEST

/* The data of a handle lock on which its processes rely: kind, mode, token. */
START_TEST(handle_locks_are_there_again_and_what_was_provisional_is_not)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    struct backend_ticket *ticket;
    uint64_t fence;

    fence = contract_get("flock", BACKEND_FLOCK, &log)->fence;
    contract_get("fcntl", BACKEND_FCNTL, &log);
    contract_get("provisional", BACKEND_PROVISIONAL, &log);
    ck_assert_int_eq(contract_release(contract_get("released", BACKEND_FLOCK, &log)), BACKEND_OK);
    ticket = contract_get("was-lease", BACKEND_LEASE, &log);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    claim.mode = BACKEND_SHARED;
    ticket = contract_get("was-exclusive", BACKEND_FLOCK, &log);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    claim.mode = BACKEND_EXCLUSIVE;
    claim.kind = BACKEND_LEASE;
    ticket = contract_get("is-lease", BACKEND_PROVISIONAL, &log);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    restart();
    ck_assert_str_eq(contract_list("", 10), "fcntl flock is-lease was-exclusive was-lease");
    ck_assert_uint_eq(contract_stat("flock").fence, fence);
    ck_assert_int_eq(contract_stat("flock").kind, BACKEND_FLOCK);
    ck_assert_int_eq(contract_stat("fcntl").kind, BACKEND_FCNTL);
    ck_assert_int_eq(contract_stat("was-lease").kind, BACKEND_FLOCK);
    ck_assert_int_eq(contract_stat("was-exclusive").mode, BACKEND_SHARED);
    ck_assert(contract_is_busy("flock"));
    ck_assert_int_eq(contract_revoke("flock", 0), BACKEND_OK);
    restart();
    ck_assert_str_eq(contract_list("", 10), "fcntl is-lease was-exclusive was-lease");
}
END_TEST

/* Tickets of one handle or lock owner hold together, and no new one is compatible with them. */
START_TEST(byte_ranges_are_there_again_as_they_were)
{
    enum { ONE = 1, OTHER };
    struct contract_log log[4] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log[0]);
    struct backend_info info;
    GHashTable *all;

    claim.handle = claim.lock_owner = ONE;
    claim.end = 99;
    struct backend_ticket *ticket = contract_acquire("a", &claim).ticket;
    uint64_t fence = ticket->fence;
    ck_assert_int_eq(contract_release_range(ticket, 10, 19), BACKEND_OK);
    claim.start = 50;
    claim.end = 149;
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim.lock_owner = claim.handle = OTHER;
    claim.start = 10;
    claim.end = 19;
    claim.mode = BACKEND_EXCLUSIVE;
    claim.user = &log[1];
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim.kind = BACKEND_FLOCK; /* of one handle: beside its record lock */
    claim.lock_owner = 0;
    claim.user = &log[2];
    claim.handle = OTHER;
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK);
    claim.kind = BACKEND_FCNTL;
    claim.lock_owner = OTHER;
    claim.user = &log[3];
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK);
    for (int i = 0; i < 2; i++) {
        restart();
        all = recover();
        ck_assert_uint_eq(contract_stat("a").holders, 2);
        ck_assert_uint_eq(contract_stat("b").holders, 2);
        claim = contract_claim(BACKEND_FCNTL, NULL);
        claim.handle = claim.lock_owner = ONE; /* another's by now */
        claim.end = BACKEND_RANGE_MAX;
        info = contract_test("a", &claim);
        ck_assert_uint_eq(info.start, 0);
        ck_assert_uint_eq(info.end, 9);
        ck_assert_int_eq(info.mode, BACKEND_EXCLUSIVE);
        ck_assert_uint_eq(info.fence, fence);
        claim.start = 19;
        ck_assert_uint_eq(contract_test("a", &claim).end, 19);
        claim.start = 50;
        claim.mode = BACKEND_SHARED;
        ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
        claim.mode = BACKEND_EXCLUSIVE;
        ck_assert_uint_eq(contract_test("a", &claim).end, 149);
        claim.start = 150;
        ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
        g_hash_table_unref(all);
    }
}
END_TEST

START_TEST(handle_lock_that_waited_is_there_again_if_it_was_granted)
{
    enum { ONE = 1, OTHER };
    struct contract_log log[5] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log[3]);
    struct backend_ticket *first = contract_get("a", BACKEND_FLOCK, &log[0]);
    struct backend_ticket *second = contract_queue("a", BACKEND_EXCLUSIVE, &log[1]);

    contract_queue("a", BACKEND_EXCLUSIVE, &log[2]);
    ck_assert_int_eq(contract_release(first), BACKEND_OK);
    CONTRACT_UNTIL(log[1].granted);
    uint64_t fence = second->fence;
    /* one that joins its lock owner's earlier ticket when it is reported */
    claim.handle = claim.lock_owner = ONE;
    claim.end = 9;
    uint64_t joined = contract_acquire("b", &claim).ticket->fence;
    claim.handle = claim.lock_owner = OTHER;
    claim.start = claim.end = 20;
    claim.user = &log[4];
    struct backend_ticket *in_the_way = contract_acquire("b", &claim).ticket;
    claim.handle = claim.lock_owner = ONE;
    claim.user = &log[3];
    claim.wait = true;
    claim.start = 15;
    claim.end = 25;
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_QUEUED);
    ck_assert_int_eq(contract_release(in_the_way), BACKEND_OK);
    CONTRACT_UNTIL(log[3].granted);
    restart();
    ck_assert_uint_eq(contract_stat("a").fence, fence);
    ck_assert_uint_eq(contract_stat("a").holders, 1);
    ck_assert_uint_eq(contract_stat("a").waiters, 0);
    ck_assert_uint_eq(contract_stat("b").holders, 1);
    ck_assert_uint_eq(contract_stat("b").fence, joined);
    claim = contract_claim(BACKEND_FCNTL, NULL);
    claim.start = 10;
    claim.end = 24;
    struct backend_info info = contract_test("b", &claim);
    ck_assert_uint_eq(info.start, 15);
    ck_assert_uint_eq(info.end, 25);
}
END_TEST

START_TEST(what_was_released_does_not_come_back)
{
    struct contract_log log[4] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[3]);

    ck_assert_int_eq(contract_release(contract_get("released", BACKEND_LEASE, &log[0])), BACKEND_OK);
    contract_get("revoked", BACKEND_LEASE, &log[1]);
    ck_assert_int_eq(contract_revoke("revoked", log[1].ended), BACKEND_OK);
    contract_get("kept", BACKEND_LEASE, &log[2]);
    claim.ttl = CONTRACT_SHORT;
    ck_assert_int_eq(contract_acquire("expired", &claim).result, BACKEND_OK);
    CONTRACT_UNTIL(log[3].ended);
    restart();
    ck_assert_str_eq(contract_list("", 10), "kept");
}
END_TEST

static bool found_alive(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    found(arg, name, ticket, meta, content);
    return strcmp(name, "alive") == 0;
}

/* On a store that alone decides nobody can have had it meanwhile. */
START_TEST(what_ran_out_while_no_daemon_was_there_goes_on_if_it_is_renewed)
{
    static const char *const names[] = {"alive", "dead"};
    struct contract_log log[2] = {{0}}, waits = {0};
    GHashTable *all = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    struct backend_renewal renewal = {.ttl = CONTRACT_LONG};
    uint64_t fence[2];
    clock_ms deadline = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[i]);
        claim.ttl = CONTRACT_SHORT;
        claim.due = CONTRACT_SHORT / 2;
        struct backend_ticket *ticket = contract_acquire(names[i], &claim).ticket;
        fence[i] = ticket->fence;
        deadline = ticket->deadline;
    }
    backend_free(contract_backend);
    while (clock_now() < deadline + CONTRACT_SHORT)
        g_usleep(1000);
    contract_start(open_directory());
    backend_recover(contract_backend, found_alive, all);
    renewal.ticket = g_hash_table_lookup(all, "alive");
    backend_renew(contract_backend, &renewal, 1); /* as when it is due */
    ck_assert_int_eq(contract_stat("dead").type, BACKEND_NOTHING);
    ck_assert_uint_eq(contract_stat("alive").fence, fence[0]);
    ck_assert(contract_is_busy("alive"));
    ck_assert_uint_gt(contract_get("dead", BACKEND_LEASE, &waits)->fence, fence[1]);
    restart();
    ck_assert_uint_eq(contract_stat("alive").fence, fence[0]);
    g_hash_table_unref(all);
}
END_TEST

START_TEST(lease_expires_at_its_old_deadline_and_is_reported)
{
    struct contract_log log = {0}, *again;
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    clock_ms deadline;
    GHashTable *all;

    claim.ttl = 4 * CONTRACT_SHORT;
    deadline = contract_acquire("a", &claim).ticket->deadline;
    restart();
    all = recover();
    again = ((struct backend_ticket *)g_hash_table_lookup(all, "a"))->user;
    CONTRACT_UNTIL(again->ended);
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_int_eq(again->why, BACKEND_EXPIRED);
    g_hash_table_unref(all);
}
END_TEST

START_TEST(recovered_leases_are_due_at_once_and_can_be_renewed)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ttl = 2 * CONTRACT_LONG};
    clock_ms deadline;
    GHashTable *all;

    contract_get("a", BACKEND_LEASE, &log);
    restart();
    all = recover();
    renewal.ticket = g_hash_table_lookup(all, "a");
    CONTRACT_UNTIL(((struct contract_log *)renewal.ticket->user)->due);
    backend_renew(contract_backend, &renewal, 1);
    deadline = renewal.ticket->deadline;
    ck_assert_int_gt(deadline, clock_now() + CONTRACT_LONG);
    restart();
    ck_assert_int_eq(contract_stat("a").deadline, deadline);
    ck_assert_int_eq(contract_stat("a").ttl, 2 * CONTRACT_LONG);
    g_hash_table_unref(all);
}
END_TEST

START_TEST(changes_are_there_again)
{
    struct contract_log log[2] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]);
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("new")};
    uint64_t fence;

    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    change = (struct backend_change){.set = BACKEND_SET_META, .meta = contract_bytes("me")};
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    ck_assert_int_eq(contract_rename(ticket, "b"), BACKEND_OK);
    fence = ticket->fence;
    contract_get("a", BACKEND_LEASE, &log[1]);
    restart();
    ck_assert_str_eq(contract_list("", 10), "a b");
    ck_assert_uint_eq(contract_stat("b").fence, fence);
    ck_assert(contract_equal(contract_stat("b").content, "new"));
    ck_assert(contract_equal(contract_stat("b").meta, "me"));
    ck_assert_ptr_null(contract_stat("a").content);
}
END_TEST

/* The journal's content, without the reserved room. */
static char *read_journal(const char *path, gsize *ret_length)
{
    struct backend_status status;
    char *text;

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    backend_status(contract_backend, &status);
    *ret_length = status.journal_bytes;
    backend_status_clear(&status);
    return text;
}

/* Of a rename over another lease a torn journal shows all or nothing. */
START_TEST(rename_over_a_lease_is_whole_wherever_the_journal_is_torn)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    char *path = g_build_filename(directory, "journal", NULL), *text;
    gsize before, after;
    struct backend_ticket *ticket, *replaced;
    unsigned moved = 0;

    claim.content = contract_bytes("text");
    ticket = contract_acquire("a", &claim).ticket;
    replaced = contract_get("b", BACKEND_LEASE, &log[1]);
    text = read_journal(path, &before);
    g_free(text);
    ck_assert_int_eq(contract_rename_over(ticket, "b", replaced), BACKEND_OK);
    text = read_journal(path, &after);
    ck_assert_uint_gt(after, before);
    for (gsize length = before; length <= after; length++) {
        backend_free(contract_backend);
        ck_assert(g_file_set_contents(path, text, (gssize)length, NULL));
        contract_start(open_directory());
        if (contract_stat("a").type == BACKEND_NOTHING) {
            ck_assert(contract_equal(contract_stat("b").content, "text"));
            moved++;
        } else {
            ck_assert(contract_equal(contract_stat("a").content, "text"));
            ck_assert_int_eq(contract_stat("b").type, BACKEND_LOCK);
            ck_assert_ptr_null(contract_stat("b").content);
        }
    }
    ck_assert_uint_gt(moved, 0);
    ck_assert_uint_lt(moved, after - before);
    g_free(text);
    g_free(path);
}
END_TEST

START_TEST(directories_are_there_again)
{
    struct contract_log log = {0};
    struct backend_directory wide = {.ttl = 9000, .width = 3, .delay = 4, .meta = contract_bytes("m")};
    struct backend_info info;

    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_mkdir("d/e", &wide), BACKEND_OK);
    ck_assert_int_eq(contract_mkdir("gone", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_rmdir("gone"), BACKEND_OK);
    ck_assert_int_eq(contract_set_directory("", &wide), BACKEND_OK);
    contract_get("d/e/a", BACKEND_LEASE, &log);
    restart();
    ck_assert_str_eq(contract_list("", 10), "d/");
    ck_assert_str_eq(contract_list("d/e", 10), "a");
    for (int i = 0; i < 2; i++) {
        info = contract_stat(i ? "" : "d/e");
        ck_assert_int_eq(info.directory.ttl, 9000);
        ck_assert_uint_eq(info.directory.width, 3);
        ck_assert_int_eq(info.directory.delay, 4);
        ck_assert(contract_equal(info.directory.meta, "m"));
    }
}
END_TEST

START_TEST(tokens_continue_at_the_clock_after_a_clean_end)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    uint64_t fence = ticket->fence;

    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    restart();
    uint64_t before = clock_wall_us(), next = contract_get("a", BACKEND_LEASE, &log)->fence;
    ck_assert_uint_gt(next, fence);
    ck_assert_uint_ge(next, before);
    ck_assert_uint_le(next, clock_wall_us()); /* without a gap for what was reserved */
}
END_TEST

START_TEST(queue_comes_back_in_its_order)
{
    struct contract_log log[4] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, NULL);
    char before[256];
    GHashTable *all;

    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    for (int i = 0; i < 4; i++) {
        claim.user = &log[i];
        claim.kind = i == 1 ? BACKEND_FLOCK : BACKEND_LEASE;
        ck_assert_ptr_nonnull(contract_acquire("q/job-", &claim).ticket);
    }
    g_strlcpy(before, contract_list("q", 10), sizeof(before));
    ck_assert_str_eq(before, "job-0000000000 job-0000000001 job-0000000002 job-0000000003");
    restart();
    ck_assert_str_eq(contract_list("q", 10), before);
    all = recover();
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"q/job-0000000000", "q/job-0000000001", "q/job-0000000002",
                                            "q/job-0000000003"};
        struct backend_ticket *ticket = g_hash_table_lookup(all, names[i]);

        ck_assert_ptr_nonnull(ticket);
        if (i)
            CONTRACT_UNTIL(((struct contract_log *)ticket->user)->granted);
        ck_assert(ticket->held);
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    }
    claim.user = &log[0];
    ck_assert_ptr_nonnull(contract_acquire("q/job-", &claim).ticket);
    ck_assert_str_eq(contract_list("q", 10), "job-0000000004");
    g_hash_table_unref(all);
}
END_TEST

START_TEST(turn_that_comes_with_the_restart_is_kept)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_PROVISIONAL, &log[0]);
    struct backend_info info;

    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_OK);
    claim.kind = BACKEND_LEASE;
    claim.user = &log[1];
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_QUEUED);
    restart();
    info = contract_stat("q/job-0000000001");
    ck_assert(info.ticket->held);
    restart();
    ck_assert_int_eq(contract_stat("q/job-0000000001").deadline, info.deadline);
    ck_assert_int_eq(contract_stat("q/job-0000000001").acquired, info.acquired);
}
END_TEST

START_TEST(who_waited_does_not_join_who_held_behind_it)
{
    struct contract_log log[3] = {{0}};
    struct backend_directory narrow = {.width = 4};
    struct backend_claim claim = contract_claim(BACKEND_PROVISIONAL, NULL);
    struct backend_ticket *waiter, *holder;
    GHashTable *all;

    ck_assert_int_eq(contract_mkdir("q", &narrow), BACKEND_OK);
    claim.sequence = claim.wait = true;
    for (int i = 0; i < 3; i++) {
        claim.user = &log[i];
        claim.mode = i == 1 ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        ck_assert_int_eq(contract_acquire("q/job-", &claim).result, i == 1 ? BACKEND_QUEUED : BACKEND_OK);
        claim.kind = BACKEND_LEASE;
    }
    narrow.width = 1;
    ck_assert_int_eq(contract_set_directory("q", &narrow), BACKEND_OK);
    restart(); /* the first ends with its daemon */
    all = recover();
    waiter = g_hash_table_lookup(all, "q/job-0000000001");
    holder = g_hash_table_lookup(all, "q/job-0000000002");
    ck_assert(holder->held);
    ck_assert(!waiter->held);
    ck_assert_int_eq(contract_release(holder), BACKEND_OK);
    CONTRACT_UNTIL(((struct contract_log *)waiter->user)->granted);
    g_hash_table_unref(all);
}
END_TEST

static TCase *restart_case(void)
{
    TCase *tcase = tcase_create("restart");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_add_test(tcase, leases_are_what_they_were);
    tcase_add_test(tcase, handle_locks_are_there_again_and_what_was_provisional_is_not);
    tcase_add_test(tcase, byte_ranges_are_there_again_as_they_were);
    tcase_add_test(tcase, handle_lock_that_waited_is_there_again_if_it_was_granted);
    tcase_add_test(tcase, what_was_released_does_not_come_back);
    tcase_add_test(tcase, what_ran_out_while_no_daemon_was_there_goes_on_if_it_is_renewed);
    tcase_add_test(tcase, lease_expires_at_its_old_deadline_and_is_reported);
    tcase_add_test(tcase, recovered_leases_are_due_at_once_and_can_be_renewed);
    tcase_add_test(tcase, changes_are_there_again);
    tcase_add_test(tcase, rename_over_a_lease_is_whole_wherever_the_journal_is_torn);
    tcase_add_test(tcase, directories_are_there_again);
    tcase_add_test(tcase, tokens_continue_at_the_clock_after_a_clean_end);
    tcase_add_test(tcase, queue_comes_back_in_its_order);
    tcase_add_test(tcase, turn_that_comes_with_the_restart_is_kept);
    tcase_add_test(tcase, who_waited_does_not_join_who_held_behind_it);
    return tcase;
}

int main(void)
{
    static const struct contract local = {
        .name = LOCAL_NAME, .open = open_local, .clean = clean_local, .open_again = open_directory, .term = 500};
    Suite *suite = contract_suite(&local);

    suite_add_tcase(suite, restart_case());
    return check_main(suite);
}

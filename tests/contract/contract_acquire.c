/* contract_acquire: acquire, convert, set and revoke. */
#include "tests/contract/contract.h"

START_TEST(free_name_is_granted)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);

    ck_assert_int_eq(ticket->kind, BACKEND_LEASE);
    ck_assert_int_eq(ticket->ttl, CONTRACT_LONG);
    ck_assert_int_le(ticket->deadline, clock_now() + CONTRACT_LONG);
    ck_assert_int_gt(ticket->deadline, clock_now() + CONTRACT_LONG / 2);
    ck_assert_int_le(ticket->acquired, clock_now());
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_uint_eq(log.granted + log.ended, 0);
}
END_TEST

START_TEST(held_name_is_busy_and_names_its_holder)
{
    struct contract_log log = {0}, other = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &other);
    struct contract_acquired acquired = contract_acquire("a", &claim);

    ck_assert_int_eq(acquired.result, BACKEND_BUSY);
    ck_assert_int_eq(acquired.kind, BACKEND_LEASE);
    ck_assert_uint_eq(acquired.fence, ticket->fence);
    ck_assert_ptr_eq(acquired.holding, ticket);
}
END_TEST

START_TEST(every_kind_excludes_every_kind)
{
    static const enum backend_kind kinds[] = {BACKEND_PROVISIONAL, BACKEND_LEASE, BACKEND_FLOCK, BACKEND_FCNTL};

    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        struct contract_log log = {0}, other = {0};
        struct backend_claim claim = contract_claim(kinds[i], &log);
        struct backend_ticket *ticket;

        claim.end = BACKEND_RANGE_MAX;
        claim.lock_owner = kinds[i] == BACKEND_FCNTL ? 1 : 0;
        ticket = contract_acquire("a", &claim).ticket;
        ck_assert_ptr_nonnull(ticket);
        for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
            claim = contract_claim(kinds[k], &other);
            claim.end = BACKEND_RANGE_MAX;
            claim.lock_owner = kinds[k] == BACKEND_FCNTL ? 2 : 0;
            ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
        }
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    }
}
END_TEST

START_TEST(released_name_is_free_again)
{
    struct contract_log log = {0};

    ck_assert_int_eq(contract_release(contract_get("a", BACKEND_LEASE, &log)), BACKEND_OK);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(other_names_are_free)
{
    struct contract_log log = {0};

    contract_get("a", BACKEND_LEASE, &log);
    ck_assert(!contract_is_busy("b"));
    ck_assert(!contract_is_busy("A"));
    ck_assert(!contract_is_busy("a "));
}
END_TEST

START_TEST(fencing_tokens_of_a_name_only_grow)
{
    uint64_t last = 0;

    for (int i = 0; i < 20; i++) {
        struct contract_log log = {0};
        struct backend_ticket *ticket = contract_get("a", i % 2 ? BACKEND_LEASE : BACKEND_FLOCK, &log);

        ck_assert_uint_gt(ticket->fence, last);
        last = ticket->fence;
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    }
}
END_TEST

/* So a move from another store does not go back. */
START_TEST(fencing_tokens_of_a_new_store_begin_at_the_clock)
{
    struct contract_log log = {0};

    ck_assert_uint_ge(contract_get("a", BACKEND_LEASE, &log)->fence, contract_began);
}
END_TEST

/* In .leasefs/status they stand beside the daemon's. */
START_TEST(status_of_a_store_has_keys_of_its_own)
{
    static const char *const daemons[] = {"version", "mount",   "host",    "pid",   "started",    "backend",
                                          "address", "safety",  "state",   "since", "reason",     "warning",
                                          "sandbox", "held",    "waiting", "ttl",   "user-locks", "user-content",
                                          "locks",   "content", "user",    "owner"};
    GHashTable *keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    struct backend_status status;
    for (size_t i = 0; i < G_N_ELEMENTS(daemons); i++) {
        g_hash_table_add(keys, g_strdup(daemons[i]));
    }
    backend_status(contract_backend, &status);
    for (guint i = 0; i < status.details->len; i++) {
        const char *line = status.details->pdata[i], *colon = strchr(line, ':');
        ck_assert_ptr_nonnull(colon);
        g_autofree char *key = g_strndup(line, (gsize)(colon - line));
        ck_assert_msg(!g_hash_table_contains(keys, key), "%s is there twice", key);
    }
    backend_status_clear(&status);
    g_hash_table_unref(keys);
}
END_TEST

START_TEST(name_in_a_missing_directory_is_missing)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);

    ck_assert_int_eq(contract_acquire("no/a", &claim).result, BACKEND_MISSING);
    ck_assert_int_eq(contract_stat("no/a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(name_of_a_directory_is_refused)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);

    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_acquire("d", &claim).result, BACKEND_IS_DIRECTORY);
}
END_TEST

START_TEST(tickets_of_one_handle_do_not_exclude_each_other)
{
    struct contract_log log[2] = {{0}}, other = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[0]);
    struct backend_ticket *ticket;

    claim.handle = 7;
    ticket = contract_acquire("a", &claim).ticket;
    ck_assert_ptr_nonnull(ticket);
    claim = contract_claim(BACKEND_FCNTL, &log[1]);
    claim.handle = 7;
    claim.lock_owner = 8;
    claim.end = BACKEND_RANGE_MAX;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim = contract_claim(BACKEND_FLOCK, &other);
    claim.handle = 9;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
}
END_TEST

START_TEST(two_lock_owners_on_one_handle_exclude_each_other)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log[0]);

    claim.handle = 7;
    claim.lock_owner = 8;
    claim.end = 9;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim = contract_claim(BACKEND_FCNTL, &log[1]);
    claim.handle = 7;
    claim.lock_owner = 9;
    claim.end = 9;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    claim.start = 10;
    claim.end = 19;
    ck_assert_int_eq(contract_acquire("a", &claim).result, contract_can(BACKEND_CAN_RANGE) ? BACKEND_OK : BACKEND_BUSY);
}
END_TEST

/* By that handle, asked by whom. */
static struct contract_acquired get_by(uint64_t handle, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    static struct contract_log log;
    struct backend_claim claim = contract_claim(lock_owner ? BACKEND_FCNTL : BACKEND_FLOCK, &log);

    claim.handle = handle;
    claim.lock_owner = lock_owner;
    claim.start = start;
    claim.end = end;
    return contract_acquire("a", &claim);
}

static enum backend_result ask_by(uint64_t handle, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    return get_by(handle, lock_owner, start, end).result;
}

START_TEST(lock_owner_is_compatible_with_its_first_handle)
{
    ck_assert_int_eq(ask_by(1, 8, 0, 9), BACKEND_OK);
    ck_assert_int_eq(ask_by(2, 8, 0, 4), BACKEND_OK);
    ck_assert_int_eq(ask_by(3, 0, 0, 0), BACKEND_BUSY);
    ck_assert_int_eq(ask_by(2, 0, 0, 0), BACKEND_BUSY);
    struct contract_acquired flock = get_by(1, 0, 0, 0);
    ck_assert_int_eq(flock.result, BACKEND_OK);
    ck_assert_int_eq(ask_by(2, 0, 0, 0), BACKEND_BUSY); /* a flock of another handle */
    ck_assert_int_eq(contract_release(flock.ticket), BACKEND_OK);
    ck_assert_int_eq(ask_by(1, 9, 0, 9), BACKEND_BUSY);
}
END_TEST

START_TEST(lock_owner_is_excluded_by_the_flock_of_another_handle)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log);

    ck_assert_int_eq(ask_by(1, 0, 0, 0), BACKEND_OK);
    ck_assert_int_eq(ask_by(1, 8, 0, 9), BACKEND_OK);
    claim.handle = 2;
    claim.lock_owner = 8;
    claim.start = 20;
    claim.end = 29;
    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_LOCK);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    claim.handle = 1;
    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
}
END_TEST

START_TEST(handle_that_waits_is_granted_beside_its_own_lock_owner)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log[0]);
    struct backend_ticket *other;

    ck_assert_int_eq(ask_by(1, 8, 0, 9), BACKEND_OK);
    ck_assert_int_eq(ask_by(2, 8, 20, 29), BACKEND_OK);
    claim.handle = 3;
    claim.lock_owner = 9;
    claim.start = 40;
    claim.end = 49;
    other = contract_acquire("a", &claim).ticket;
    ck_assert_ptr_nonnull(other);
    claim = contract_claim(BACKEND_FLOCK, &log[1]);
    claim.handle = 1;
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    ck_assert_int_eq(contract_release(other), BACKEND_OK);
    CONTRACT_UNTIL(log[1].granted);
}
END_TEST

START_TEST(handle_that_waits_for_a_lock_owner_waits_on_when_that_claims_through_it)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);

    ck_assert_int_eq(ask_by(1, 8, 0, 9), BACKEND_OK);
    claim.handle = 2;
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    struct contract_acquired all = get_by(2, 8, 20, 29);
    ck_assert_int_eq(all.result, BACKEND_OK);
    contract_pass(50);
    ck_assert_uint_eq(log.granted, 0);
    ck_assert_int_eq(contract_release(all.ticket), BACKEND_OK);
    CONTRACT_UNTIL(log.granted);
}
END_TEST

START_TEST(meta_and_content_are_what_was_claimed_and_set)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("second")};
    struct backend_ticket *ticket;
    struct backend_info info;

    claim.meta = contract_bytes("me");
    claim.content = contract_bytes("first");
    ticket = contract_acquire("a", &claim).ticket;
    info = contract_stat("a");
    ck_assert(contract_equal(info.meta, "me"));
    ck_assert(contract_equal(info.content, "first"));

    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    info = contract_stat("a");
    ck_assert(contract_equal(info.meta, "me"));
    ck_assert(contract_equal(info.content, "second"));

    change = (struct backend_change){.set = BACKEND_SET_META, .meta = contract_bytes("mine")};
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    info = contract_stat("a");
    ck_assert(contract_equal(info.meta, "mine"));
    ck_assert(contract_equal(info.content, "second"));
}
END_TEST

START_TEST(content_may_be_64_kib_of_any_bytes)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    uint8_t *data = g_malloc(65536);
    struct backend_change change = {.set = BACKEND_SET_CONTENT};
    struct backend_info info;

    for (size_t i = 0; i < 65536; i++)
        data[i] = (uint8_t)(i ^ i >> 8);
    change.content = g_bytes_new_take(data, 65536);
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    info = contract_stat("a");
    ck_assert(g_bytes_equal(info.content, change.content));
    g_bytes_unref(change.content);
}
END_TEST

START_TEST(stat_shows_the_holder)
{
    struct contract_log log = {0};
    bool shares = contract_can(BACKEND_CAN_SHARE);
    struct backend_ticket *ticket;
    struct backend_info info = contract_stat("a");

    ck_assert_int_eq(info.type, BACKEND_NOTHING);
    ticket = (shares ? contract_get_shared : contract_get)("a", BACKEND_LEASE, &log);
    info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_int_eq(info.kind, BACKEND_LEASE);
    ck_assert_int_eq(info.mode, shares ? BACKEND_SHARED : BACKEND_EXCLUSIVE);
    ck_assert_uint_eq(info.fence, ticket->fence);
    ck_assert_int_eq(info.ttl, CONTRACT_LONG);
    ck_assert_int_eq(info.deadline, ticket->deadline);
    ck_assert_int_eq(info.acquired, ticket->acquired);
    ck_assert_ptr_eq(info.ticket, ticket);
    ck_assert_uint_eq(info.holders, 1);
    ck_assert_uint_eq(info.waiters, 0);
    ck_assert_int_eq(contract_stat("").type, BACKEND_DIRECTORY);
}
END_TEST

START_TEST(test_shows_the_conflict_and_takes_nothing)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, NULL);
    struct backend_ticket *ticket;

    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
    ticket = contract_get("a", BACKEND_LEASE, &log);
    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_LOCK);
    ck_assert_uint_eq(contract_test("a", &claim).fence, ticket->fence);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(converting_keeps_the_token_and_never_lets_go)
{
    struct contract_log log = {0}, other = {0}, waiting = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_PROVISIONAL, &log);
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &other);
    uint64_t fence = ticket->fence;
    struct backend_info info;

    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    claim.meta = contract_bytes("me");
    claim.content = contract_bytes("text");
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    ck_assert_uint_eq(ticket->fence, fence);
    ck_assert_int_eq(ticket->kind, BACKEND_LEASE);
    ck_assert_ptr_eq(ticket->user, &other);
    info = contract_stat("a");
    ck_assert_int_eq(info.kind, BACKEND_LEASE);
    ck_assert(contract_equal(info.meta, "me"));
    ck_assert(contract_equal(info.content, "text"));

    claim = contract_claim(BACKEND_FLOCK, &other);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    ck_assert(contract_equal(contract_stat("a").meta, "me"));
    ck_assert_uint_eq(waiting.granted, 0);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
}
END_TEST

START_TEST(upgrade_is_busy_while_others_share)
{
    struct contract_log log = {0}, other = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);

    struct backend_ticket *ticket = contract_get_shared("a", BACKEND_FLOCK, &log);
    struct backend_ticket *sharing = contract_get_shared("a", BACKEND_LEASE, &other);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_BUSY);
    ck_assert_int_eq(ticket->kind, BACKEND_FLOCK);
    ck_assert_int_eq(ticket->mode, BACKEND_SHARED);
    claim.kind = BACKEND_FLOCK;
    ck_assert_int_eq(contract_convert(sharing, &claim), BACKEND_BUSY);
    ck_assert_int_eq(sharing->kind, BACKEND_LEASE);
    ck_assert_int_eq(contract_release(sharing), BACKEND_OK);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    ck_assert_int_eq(ticket->mode, BACKEND_EXCLUSIVE);
    ck_assert(contract_is_busy("a"));
}
END_TEST

START_TEST(revoking_by_token_releases_and_reports_to_the_holder)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);

    ck_assert_int_eq(contract_revoke("a", ticket->fence + 1000), BACKEND_STALE);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_revoke("a", ticket->fence), BACKEND_OK);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_RELEASED);
    ck_assert(!contract_is_busy("a"));
    ck_assert_int_eq(contract_revoke("a", 1), BACKEND_MISSING);
    ck_assert_uint_eq(log.ended, 1);
}
END_TEST

/* How often the end of a ticket had been reported when its revocation completed. */
struct seen {
    const struct contract_log *log;
    bool reported;
    unsigned ended;
};

static void on_revoked(void *arg, enum backend_result result)
{
    struct seen *seen = arg;

    ck_assert_int_eq(result, BACKEND_OK);
    seen->reported = true;
    seen->ended = seen->log->ended;
    contract_end_turn();
}

START_TEST(revoking_is_complete_when_the_holders_have_the_event)
{
    for (unsigned i = 0; i < 100; i++) {
        struct contract_log log = {0};
        struct backend_ticket *ticket = contract_get("a", i % 3 ? BACKEND_LEASE : BACKEND_FLOCK, &log);
        struct seen seen = {.log = &log};

        backend_revoke(contract_backend, "a", i % 2 ? ticket->fence : 0, on_revoked, &seen);
        CONTRACT_UNTIL(seen.reported);
        ck_assert_uint_eq(seen.ended, 1);
    }
}
END_TEST

START_TEST(breaking_ends_all_holders)
{
    struct contract_log log[2] = {{0}}, waiting = {0};

    contract_get_shared("a", BACKEND_LEASE, &log[0]);
    contract_get_shared("a", BACKEND_FLOCK, &log[1]);
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(log[0].ended && log[1].ended && waiting.granted);
    ck_assert_int_eq(log[0].why, BACKEND_BROKEN);
    ck_assert_int_eq(log[1].why, BACKEND_BROKEN);
    ck_assert_uint_eq(waiting.ended, 0);
    ck_assert_int_eq(contract_revoke("b", 0), BACKEND_MISSING);
}
END_TEST

static struct backend_ticket *get_with_meta(const char *meta, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, log);

    claim.mode = BACKEND_SHARED;
    claim.meta = contract_bytes(meta);
    struct contract_acquired acquired = contract_acquire("a", &claim);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    return acquired.ticket;
}

START_TEST(what_matches_ends_if_all_of_it_does)
{
    struct contract_log log[3] = {{0}};

    struct backend_ticket *first = get_with_meta("1 red 17 x", &log[0]);
    struct backend_ticket *second = get_with_meta("1 blue 17", &log[1]);

    ck_assert_int_eq(contract_revoke_matching("a", 0, 2, "red"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke_matching("a", second->fence, 2, "red"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke_matching("a", 0, 2, "1"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke_matching("a", 0, 3, "1"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke_matching("a", 0, 4, "x"), BACKEND_BUSY);
    ck_assert_uint_eq(log[0].ended + log[1].ended, 0);
    ck_assert_uint_eq(contract_stat("a").holders, 2);
    ck_assert_int_eq(contract_revoke_matching("a", second->fence + 1000, 2, "red"), BACKEND_STALE);
    ck_assert_int_eq(contract_revoke_matching("b", 0, 2, "red"), BACKEND_MISSING);
    ck_assert_int_eq(contract_revoke_matching("a", first->fence, 2, "red"), BACKEND_OK);
    CONTRACT_UNTIL(log[0].ended);
    ck_assert_int_eq(log[0].why, BACKEND_RELEASED);
    get_with_meta("2 blue 17", &log[2]);
    ck_assert_int_eq(contract_revoke_matching("a", 0, 3, "17"), BACKEND_OK);
    CONTRACT_UNTIL(log[1].ended && log[2].ended);
    ck_assert_int_eq(log[1].why, BACKEND_BROKEN);
    ck_assert_int_eq(log[2].why, BACKEND_BROKEN);
}
END_TEST

static void set_flag(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result + 1;
    contract_end_turn();
}

/* Between the end of a ticket and its event its user does not know yet. */
START_TEST(ticket_that_has_ended_is_stale_until_its_end_is_reported)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    struct backend_renewal renewal = {.ticket = ticket, .ttl = CONTRACT_LONG};
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("late")};
    int revoked = 0, converted = 0, set = 0, renamed = 0;

    backend_revoke(contract_backend, "a", ticket->fence, set_flag, &revoked);
    backend_convert(contract_backend, ticket, &claim, set_flag, &converted);
    backend_set(contract_backend, ticket, &change, set_flag, &set);
    backend_rename(contract_backend, ticket, "b", NULL, set_flag, &renamed);
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(log.ended && revoked && converted && set && renamed);
    ck_assert_int_eq(revoked - 1, BACKEND_OK);
    ck_assert_int_eq(converted - 1, BACKEND_STALE);
    ck_assert_int_eq(set - 1, BACKEND_STALE);
    ck_assert_int_eq(renamed - 1, contract_can(BACKEND_CAN_RENAME) ? BACKEND_STALE : BACKEND_UNSUPPORTED);
    ck_assert_uint_eq(log.ended, 1);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(release_of_a_ticket_that_has_ended_silences_its_event)
{
    struct contract_log log = {0}, other = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    int revoked = 0, released = 0;

    backend_revoke(contract_backend, "a", ticket->fence, set_flag, &revoked);
    backend_release(contract_backend, ticket, set_flag, &released);
    CONTRACT_UNTIL(revoked && released);
    /* a later end has been reported */
    contract_get("b", BACKEND_LEASE, &other);
    ck_assert_int_eq(contract_revoke("b", 0), BACKEND_OK);
    CONTRACT_UNTIL(other.ended);
    ck_assert_uint_eq(log.ended, 0);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

/* Behind a release in flight somebody of the same mount takes the lock. */
START_TEST(release_that_an_acquire_follows_at_once_is_done)
{
    for (int i = 0; i < 20; i++) {
        struct contract_log log = {0}, other = {0};
        struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
        struct backend_claim claim = contract_claim(BACKEND_FLOCK, &other);
        int released = 0;

        claim.mode = contract_can(BACKEND_CAN_SHARE) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        backend_release(contract_backend, ticket, set_flag, &released);
        contract_poll(); /* sends it */
        struct contract_acquired acquired = contract_acquire("a", &claim);
        CONTRACT_UNTIL(released);
        ck_assert_int_eq(released - 1, BACKEND_OK);
        if (acquired.result == BACKEND_OK) {
            ck_assert_int_eq(contract_release(acquired.ticket), BACKEND_OK);
        } else {
            ck_assert_int_eq(acquired.result, BACKEND_BUSY); /* it was asked for first */
        }
    }
}
END_TEST

START_TEST(counts_follow)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]);

    contract_get("b", BACKEND_FLOCK, &log[1]);
    contract_queue("b", BACKEND_EXCLUSIVE, &log[2]);
    ck_assert_uint_eq(backend_counts(contract_backend).locks, 2);
    ck_assert_uint_eq(backend_counts(contract_backend).waiting, 1);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_uint_eq(backend_counts(contract_backend).locks, 1);
}
END_TEST

TCase *contract_acquire_case(void)
{
    TCase *tcase = tcase_create("acquire");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_add_test(tcase, free_name_is_granted);
    tcase_add_test(tcase, held_name_is_busy_and_names_its_holder);
    tcase_add_test(tcase, every_kind_excludes_every_kind);
    tcase_add_test(tcase, released_name_is_free_again);
    tcase_add_test(tcase, other_names_are_free);
    tcase_add_test(tcase, fencing_tokens_of_a_name_only_grow);
    tcase_add_test(tcase, fencing_tokens_of_a_new_store_begin_at_the_clock);
    tcase_add_test(tcase, status_of_a_store_has_keys_of_its_own);
    tcase_add_test(tcase, name_in_a_missing_directory_is_missing);
    tcase_add_test(tcase, name_of_a_directory_is_refused);
    tcase_add_test(tcase, tickets_of_one_handle_do_not_exclude_each_other);
    tcase_add_test(tcase, two_lock_owners_on_one_handle_exclude_each_other);
    tcase_add_test(tcase, lock_owner_is_compatible_with_its_first_handle);
    tcase_add_test(tcase, lock_owner_is_excluded_by_the_flock_of_another_handle);
    tcase_add_test(tcase, handle_that_waits_for_a_lock_owner_waits_on_when_that_claims_through_it);
    tcase_add_test(tcase, meta_and_content_are_what_was_claimed_and_set);
    tcase_add_test(tcase, content_may_be_64_kib_of_any_bytes);
    tcase_add_test(tcase, stat_shows_the_holder);
    tcase_add_test(tcase, test_shows_the_conflict_and_takes_nothing);
    tcase_add_test(tcase, converting_keeps_the_token_and_never_lets_go);
    tcase_add_test(tcase, revoking_by_token_releases_and_reports_to_the_holder);
    tcase_add_test(tcase, revoking_is_complete_when_the_holders_have_the_event);
    tcase_add_test(tcase, ticket_that_has_ended_is_stale_until_its_end_is_reported);
    tcase_add_test(tcase, release_of_a_ticket_that_has_ended_silences_its_event);
    tcase_add_test(tcase, release_that_an_acquire_follows_at_once_is_done);
    tcase_add_test(tcase, counts_follow);
    if (contract_has(BACKEND_CAN_RANGE)) {
        tcase_add_test(tcase, handle_that_waits_is_granted_beside_its_own_lock_owner);
    }
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, upgrade_is_busy_while_others_share);
        tcase_add_test(tcase, breaking_ends_all_holders);
        tcase_add_test(tcase, what_matches_ends_if_all_of_it_does);
    }
    return tcase;
}

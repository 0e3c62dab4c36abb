/* check_redlock_answers: a mount of several Redis servers whose answers the check sets: split votes, servers that fail
 * after a vote, late answers, and impossible answers. */
#include <ev.h>
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redlock/private.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/unit/fake_redis.h"

enum { SERVERS = 3 };
static struct fake_redis *fakes[SERVERS];
static GPtrArray *texts; /* that rules have borrowed */

#define FAILS "-ERR it fails\r\n"

static const char *text_of(char *text)
{
    g_ptr_array_add(texts, text);
    return text;
}

/* An array of words, as scripts answer. */
static const char *words(const char *line)
{
    char **split = g_strsplit(line, " ", -1);
    GString *reply = g_string_new(NULL);
    g_string_printf(reply, "*%u\r\n", g_strv_length(split));
    for (char **word = split; *word; word++) {
        g_string_append_printf(reply, "$%zu\r\n%s\r\n", strlen(*word), *word);
    }
    g_strfreev(split);
    return text_of(g_string_free(reply, FALSE));
}

/* The first bytes of calls of that script. */
static const char *call_of(enum redlock_script_id script)
{
    char *hash = g_compute_checksum_for_string(G_CHECKSUM_SHA1, redlock_scripts[script].text, -1);
    const char *call = text_of(g_strdup_printf("EVALSHA %s ", hash));
    g_free(hash);
    return call;
}

static void rule(unsigned server, enum redlock_script_id script, const char *answer, unsigned times)
{
    fake_redis_rule(fakes[server], call_of(script), answer, times);
}

/* The next call of that script is answered so, by each server. */
static void once(enum redlock_script_id script, const char *a, const char *b, const char *c)
{
    rule(0, script, a, 1);
    rule(1, script, b, 1);
    rule(2, script, c, 1);
}

/* From then on: as servers where nobody holds. */
static void then_usual(void)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_ACQUIRE, words("ok 7"), FAKE_REDIS_ALWAYS);
        rule(i, REDLOCK_HOLD, words("ok"), FAKE_REDIS_ALWAYS);
        rule(i, REDLOCK_RELEASE, "*2\r\n+ok\r\n:1\r\n", FAKE_REDIS_ALWAYS);
        rule(i, REDLOCK_LOOK, words("nothing"), FAKE_REDIS_ALWAYS);
        rule(i, REDLOCK_LIST, words("names"), FAKE_REDIS_ALWAYS);
        rule(i, REDLOCK_DIRECTORY, words("ok"), FAKE_REDIS_ALWAYS);
    }
}

/* How often it was called on a server. */
static unsigned calls(unsigned server, enum redlock_script_id script)
{
    char **said = g_strsplit(fake_redis_commands(fakes[server]), call_of(script), -1);
    unsigned count = g_strv_length(said);
    g_strfreev(said);
    return count ? count - 1 : 0;
}

static const char *bulk(const char *text)
{
    return text_of(g_strdup_printf("$%zu\r\n%s\r\n", strlen(text), text));
}

/* What greet.lua answers. */
static const char *greeting(unsigned server, const char *more)
{
    char *info = g_strdup_printf("redis_version:7.0.15\r\nrole:master\r\nrun_id:r%u\r\n%s", server, more);
    const char *reply = bulk(info);
    g_free(info);
    return reply;
}

/* --- the mount --- */

/* Whether the status of the store or of a server has that. */
static bool says(const char *part)
{
    struct backend_status status;
    bool has = false;
    backend_status(contract_backend, &status);
    for (guint i = 0; i < status.details->len; i++) {
        has = has || strstr(status.details->pdata[i], part);
    }
    backend_status_clear(&status);
    return has;
}

static struct backend *open_mount_as(const char *identity)
{
    char error[256] = "",
         *text = g_strdup_printf("redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", fake_redis_port(fakes[0]),
                                 fake_redis_port(fakes[1]), fake_redis_port(fakes[2]));
    struct redlock_uri uri;
    struct backend *opened = NULL;
    ck_assert_msg(redlock_uri_parse(&uri, text, error, sizeof error) == 0, "%s", error);
    const struct redlock_options options = {
        .uri = &uri, .conn = {.timeout = 5000}, .ttl = CONTRACT_LONG, .identity = identity, .grace = 1, .seed = 1};
    ck_assert_msg(redlock_new(&options, &opened, error, sizeof error) == 0, "%s", error);
    redlock_uri_clear(&uri);
    g_free(text);
    return opened;
}

static struct backend *open_mount(void)
{
    return open_mount_as(NULL);
}

static const struct contract subject = {.name = "redlock", .lacks = CONTRACT_FEATURES};

static void setup(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    texts = g_ptr_array_new_with_free_func(g_free);
    contract_use(&subject);
    contract_setup();
    for (unsigned i = 0; i < SERVERS; i++) {
        fakes[i] = fake_redis_new(contract_loop);
    }
}

static void teardown(void)
{
    backend_free(contract_backend);
    contract_backend = NULL;
    for (unsigned i = 0; i < SERVERS; i++) {
        fake_redis_free(fakes[i]);
    }
    contract_teardown();
    g_ptr_array_unref(texts);
}

/* With servers that were started long ago. */
static void mount_as(const char *identity)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        fake_redis_rule(fakes[i], "EVAL ", greeting(i, "uptime_in_seconds:1000\r\n"), FAKE_REDIS_ALWAYS);
    }
    contract_start(open_mount_as(identity));
    CONTRACT_UNTIL(says("servers: 3, 3 of them there"));
}

static void mount(void)
{
    mount_as(NULL);
}

struct waited {
    bool reported;
    enum backend_result result;
    struct backend_ticket *ticket;
};

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    struct waited *waited = arg;
    (void)holder;
    *waited = (struct waited){.reported = true, .result = result, .ticket = ticket};
    contract_end_turn();
}

static void on_done(void *arg, enum backend_result result)
{
    on_acquired(arg, result, NULL, NULL);
}

/* --- votes that come one after the other, of delayed servers --- */

static const struct redlock_poll *poll_now(void)
{
    const struct redlock *r = (const struct redlock *)contract_backend;
    return LIST_EMPTY(&r->flows) ? NULL : LIST_FIRST(&r->flows)->poll;
}

/* When that has come. */
static void say(unsigned server, const char *answer)
{
    const struct redlock_poll *poll = poll_now();
    unsigned open = poll->open;
    fake_redis_say(fakes[server], answer);
    CONTRACT_UNTIL(poll_now() != poll || poll->open < open);
}

/* Until each has been called so often. */
static void await_calls(enum redlock_script_id script, unsigned count)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        CONTRACT_UNTIL(calls(i, script) == count);
    }
}

/* --- taking --- */

START_TEST(votes_that_are_split_are_repeated)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct waited taken = {0};
    once(REDLOCK_ACQUIRE, FAKE_REDIS_LATE, FAKE_REDIS_LATE, FAKE_REDIS_LATE);
    then_usual();
    mount();
    backend_acquire(contract_backend, "a", &claim, on_acquired, &taken);
    await_calls(REDLOCK_ACQUIRE, 1);
    say(2, words("ok 5"));
    say(0, words("held 1 x"));
    say(1, words("held 1 y"));
    CONTRACT_UNTIL(taken.reported);
    ck_assert_int_eq(taken.result, BACKEND_OK);
    ck_assert_uint_eq(taken.ticket->fence, 7);
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_uint_eq(calls(i, REDLOCK_ACQUIRE), 2);
        ck_assert_uint_eq(calls(i, REDLOCK_RELEASE), 1); /* of the first try, also where it seems to be refused */
    }
}
END_TEST

START_TEST(lock_of_which_the_votes_stay_split_is_busy)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct waited taken = {0};
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_ACQUIRE, FAKE_REDIS_LATE, FAKE_REDIS_ALWAYS);
    }
    then_usual();
    mount();
    backend_acquire(contract_backend, "a", &claim, on_acquired, &taken);
    for (unsigned i = 1; i <= REDLOCK_TRIES; i++) {
        ck_assert(!taken.reported);
        await_calls(REDLOCK_ACQUIRE, i);
        say(2, words("ok 5"));
        say(0, words("held 1 x"));
        say(1, words("held 1 y"));
    }
    CONTRACT_UNTIL(taken.reported);
    ck_assert_int_eq(taken.result, BACKEND_BUSY);
}
END_TEST

/* The digest of what the latest release removes. */
static const char *digest_of_release(void)
{
    const char *commands = fake_redis_commands(fakes[0]), *last = NULL, *at = commands;
    while ((at = strstr(at, call_of(REDLOCK_RELEASE)))) {
        last = at++;
    }
    ck_assert_ptr_nonnull(last);
    char **parts = g_strsplit(last, " ", 10); /* EVALSHA, hash, 5, five keys, digest */
    const char *digest = text_of(g_strdup(parts[8]));
    g_strfreev(parts);
    return digest;
}

/* _i: how often the servers say that they still have it. */
START_TEST(claim_that_meets_the_key_of_an_earlier_one_of_this_mount_is_repeated)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    once(REDLOCK_ACQUIRE, words("ok 7"), FAILS, FAILS);
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_RELEASE, "-BUSY with a script\r\n", FAKE_REDIS_ALWAYS); /* so it is sent again later */
    }
    mount();
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    CONTRACT_UNTIL(calls(0, REDLOCK_RELEASE) > 0);
    const char *held = text_of(g_strdup_printf("held 1 %s", digest_of_release()));
    for (int i = 0; i < _i; i++) {
        once(REDLOCK_ACQUIRE, words(held), words(held), words(held));
    }
    then_usual();
    ck_assert_int_eq(contract_acquire("a", &claim).result, _i < REDLOCK_TRIES ? BACKEND_OK : BACKEND_UNREACHABLE);
    ck_assert_uint_eq(calls(0, REDLOCK_ACQUIRE), 1 + MIN((unsigned)_i + 1, REDLOCK_TRIES));
}
END_TEST

START_TEST(server_that_fails_behind_its_vote_makes_no_majority_of_the_number)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    once(REDLOCK_HOLD, words("ok"), FAILS, FAILS);
    then_usual();
    mount();
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    for (unsigned i = 0; i < SERVERS; i++) {
        CONTRACT_UNTIL(calls(i, REDLOCK_RELEASE) == 1);
    }
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
}
END_TEST

START_TEST(lock_that_is_deleted_after_its_vote_is_claimed_again)
{
    struct contract_log log = {0};
    once(REDLOCK_HOLD, words("ok"), words("gone"), FAILS); /* no majority of anything */
    once(REDLOCK_HOLD, words("gone"), words("gone"), words("ok"));
    then_usual();
    mount();
    contract_get("a", BACKEND_LEASE, &log);
    ck_assert_uint_eq(calls(0, REDLOCK_ACQUIRE), 3);
}
END_TEST

START_TEST(number_that_no_server_knows_is_the_first)
{
    struct contract_log log = {0};
    once(REDLOCK_ACQUIRE, words("ok"), words("ok 0"), words("ok -3"));
    then_usual();
    mount();
    ck_assert_uint_eq(contract_get("a", BACKEND_LEASE, &log)->fence, 1);
}
END_TEST

/* A claim of handle 7; several of its tickets hold together. */
static struct backend_claim claim_of_handle(enum backend_kind kind, uint64_t lock_owner, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(kind, log);
    claim.handle = 7;
    claim.lock_owner = lock_owner;
    claim.end = BACKEND_RANGE_MAX;
    return claim;
}

START_TEST(claim_joins_nothing_of_which_no_majority_answers)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim flock = claim_of_handle(BACKEND_FLOCK, 0, &log[0]),
                         fcntl = claim_of_handle(BACKEND_FCNTL, 1, &log[1]);
    once(REDLOCK_HOLD, words("ok"), words("ok"), words("ok")); /* the number */
    once(REDLOCK_HOLD, words("gone"), FAILS, words("ok"));
    then_usual();
    mount();
    ck_assert_int_eq(contract_acquire("a", &flock).result, BACKEND_OK);
    ck_assert_int_eq(contract_acquire("a", &fcntl).result, BACKEND_UNREACHABLE);
    ck_assert_uint_eq(log[0].ended, 0);
    ck_assert_int_eq(contract_acquire("a", &fcntl).result, BACKEND_OK);
}
END_TEST

START_TEST(holder_leaves_the_lock_to_a_claim_that_is_still_joining)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim flock = claim_of_handle(BACKEND_FLOCK, 0, &log[0]),
                         fcntl = claim_of_handle(BACKEND_FCNTL, 1, &log[1]);
    struct waited joined = {0};
    once(REDLOCK_HOLD, words("ok"), words("ok"), words("ok")); /* the number */
    once(REDLOCK_HOLD, FAKE_REDIS_LATE, FAKE_REDIS_LATE, FAKE_REDIS_LATE);
    then_usual();
    mount();
    const struct contract_acquired first = contract_acquire("a", &flock);
    backend_acquire(contract_backend, "a", &fcntl, on_acquired, &joined);
    CONTRACT_UNTIL(calls(0, REDLOCK_HOLD) == 2);
    ck_assert_int_eq(contract_release(first.ticket), BACKEND_OK);
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_uint_eq(calls(i, REDLOCK_RELEASE), 0); /* the key is that of both */
        fake_redis_say(fakes[i], words("ok"));
    }
    CONTRACT_UNTIL(joined.reported);
    ck_assert_int_eq(joined.result, BACKEND_OK);
}
END_TEST

START_TEST(release_of_which_no_majority_answers_is_unknown)
{
    struct contract_log log = {0};
    struct waited released = {0};
    for (unsigned i = 0; i < 3; i++)
        once(REDLOCK_RELEASE, words("ok 1"), FAILS, FAILS);
    then_usual();
    mount();
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    backend_release(contract_backend, ticket, on_done, &released);
    CONTRACT_UNTIL(released.reported);
    ck_assert_int_eq(released.result, BACKEND_UNREACHABLE);
    CONTRACT_UNTIL(calls(1, REDLOCK_RELEASE) == 4); /* it is tried behind that until a majority has done it */
}
END_TEST

/* --- renewing --- */

/* A lease whose renewal has begun.  Its deadline grows when it is renewed. */
static struct backend_ticket *renew(struct contract_log *log)
{
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, log);
    backend_renew(contract_backend, &(struct backend_renewal){.ticket = ticket, .ttl = 2 * CONTRACT_LONG}, 1);
    ck_assert_int_le(ticket->deadline, clock_now() + CONTRACT_LONG);
    return ticket;
}

START_TEST(renewal_is_confirmed_by_a_majority_after_an_error_of_the_first_server)
{
    struct contract_log log = {0};
    once(REDLOCK_RENEW, FAILS, FAKE_REDIS_LATE, FAKE_REDIS_LATE);
    then_usual();
    mount();
    const struct backend_ticket *ticket = renew(&log);
    await_calls(REDLOCK_RENEW, 1);
    CONTRACT_UNTIL(poll_now()->open == 2);
    say(1, words("ok 1"));
    say(2, words("ok 1"));
    ck_assert_int_gt(ticket->deadline, clock_now() + CONTRACT_LONG);
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(renewal_that_no_majority_answers_is_sent_again)
{
    struct contract_log log = {0};
    once(REDLOCK_RENEW, FAILS, FAILS, words("ok 1"));
    once(REDLOCK_RENEW, words("ok 1"), words("ok 1"), words("ok 1"));
    then_usual();
    mount();
    const struct backend_ticket *ticket = renew(&log);
    CONTRACT_UNTIL(ticket->deadline > clock_now() + CONTRACT_LONG);
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

/* --- waiting --- */

/* The holder on all servers. */
static void held_by_another(unsigned times)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_ACQUIRE, words("held 1 x"), times);
    }
}

START_TEST(waiter_tries_again_when_a_majority_reports_a_change_of_the_key)
{
    static const char reported[] = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\n";
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    claim.wait = true;
    held_by_another(1);
    for (unsigned i = 0; i < SERVERS; i++) { /* whether it is there, as it is watched */
        fake_redis_rule(fakes[i], "EXISTS a", i == 0 ? FAILS : i == 1 ? "+OK\r\n" : ":1\r\n", FAKE_REDIS_ALWAYS);
    }
    then_usual();
    mount();
    struct backend_ticket *ticket = contract_acquire("a", &claim).ticket;
    ck_assert_ptr_nonnull(ticket);
    for (unsigned i = 0; i < SERVERS; i++) {
        CONTRACT_UNTIL(strstr(fake_redis_commands(fakes[i]), "EXISTS a"));
    }
    for (unsigned i = 0; i < SERVERS; i++) {
        fake_redis_push(fakes[i], text_of(g_strconcat(reported, "b\r\n", NULL))); /* for which nobody waits */
        fake_redis_push(fakes[i], text_of(g_strconcat(reported, "a\r\n", NULL)));
    }
    CONTRACT_UNTIL(log.granted);
    const struct redlock *r = (const struct redlock *)contract_backend;
    fake_redis_push(fakes[0], text_of(g_strconcat(reported, "a\r\n", NULL)));
    CONTRACT_UNTIL(g_hash_table_size(r->changes) > 0);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_uint_eq(g_hash_table_size(r->changes), 0); /* what one server has told of a name is forgotten with it */
}
END_TEST

START_TEST(waiter_that_no_majority_answers_gets_an_error)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    claim.wait = true;
    once(REDLOCK_ACQUIRE, words("held 1 x"), FAILS, FAILS);
    once(REDLOCK_ACQUIRE, words("missing"), words("missing"), words("missing"));
    then_usual();
    mount();
    ck_assert_int_eq(contract_acquire("d/a", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_acquire("d/a", &claim).result, BACKEND_MISSING);
}
END_TEST

START_TEST(waiters_of_one_mount_ask_as_one)
{
    struct contract_log log[3] = {{0}};
    struct backend_claim claim[3];
    held_by_another(3);
    then_usual();
    mount();
    for (unsigned i = 0; i < G_N_ELEMENTS(log); i++) {
        claim[i] = contract_claim(BACKEND_FLOCK, &log[i]);
        claim[i].wait = true;
        claim[i].handle = i + 1;
        ck_assert_int_eq(contract_acquire("a", &claim[i]).result, BACKEND_QUEUED);
    }
    CONTRACT_UNTIL(log[0].granted);
    ck_assert_uint_eq(log[1].granted + log[2].granted, 0);
}
END_TEST

START_TEST(waiter_is_converted_where_it_waits)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    claim.wait = true;
    held_by_another(FAKE_REDIS_ALWAYS);
    then_usual();
    mount();
    struct backend_ticket *ticket = contract_acquire("a", &claim).ticket;
    ck_assert_ptr_nonnull(ticket);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_STALE); /* it has no record */
    ck_assert_uint_eq(calls(0, REDLOCK_HOLD), 0);
}
END_TEST

START_TEST(break_of_a_lock_that_is_waited_for_here_lets_the_waiter_in)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[1]);
    claim.wait = true;
    claim.handle = 2;
    once(REDLOCK_ACQUIRE, words("ok 7"), words("ok 7"), words("ok 7"));
    held_by_another(1);
    then_usual();
    mount();
    contract_get("a", BACKEND_LEASE, &log[0]);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ck_assert_int_eq(log[0].why, BACKEND_BROKEN);
    CONTRACT_UNTIL(log[1].granted);
}
END_TEST

/* --- revoking --- */

START_TEST(lock_of_another_mount_is_broken_only_if_it_is_the_one_that_is_meant)
{
    const char *held = words("held 8 digest 0123456789abcdef0123456789abcdef 5000 9 1 10 30000 1 host content");
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_LOOK, held, FAKE_REDIS_ALWAYS);
    }
    then_usual();
    mount();
    ck_assert_int_eq(contract_revoke_matching("a", 0, 0, "another"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke("a", 8), BACKEND_STALE);
    ck_assert_int_eq(contract_revoke_matching("a", 9, 0, "another"), BACKEND_BUSY);
    ck_assert_uint_eq(calls(0, REDLOCK_RELEASE), 0);
    ck_assert_int_eq(contract_revoke("a", 9), BACKEND_OK);
}
END_TEST

START_TEST(break_of_which_no_majority_answers_is_unknown)
{
    struct contract_log log = {0};
    once(REDLOCK_RELEASE, words("ok 1"), FAILS, FAILS);
    once(REDLOCK_LOOK, words("nothing"), FAILS, FAILS);
    then_usual();
    mount();
    contract_get("a", BACKEND_LEASE, &log);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_UNREACHABLE);
    ck_assert_uint_eq(log.ended, 0);
    ck_assert_int_eq(contract_revoke("b", 0), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_revoke("b", 0), BACKEND_MISSING);
}
END_TEST

/* --- directories --- */

/* Says each of the next `tries` that a directory was made here, and by others there. */
static void split_makers(unsigned tries)
{
    for (unsigned i = 0; i < tries; i++) {
        await_calls(REDLOCK_DIRECTORY, 2 * i + 1); /* each is undone */
        say(2, words("ok"));
        say(0, words("exists x"));
        say(1, words("exists y"));
    }
}

START_TEST(directory_with_another_maker_on_each_server_is_requested_again)
{
    struct waited made = {0};
    once(REDLOCK_DIRECTORY, FAKE_REDIS_LATE, FAKE_REDIS_LATE, FAKE_REDIS_LATE);
    then_usual();
    mount();
    backend_mkdir(contract_backend, "d", NULL, on_done, &made);
    split_makers(1);
    CONTRACT_UNTIL(made.reported);
    ck_assert_int_eq(made.result, BACKEND_OK);
    ck_assert_uint_eq(calls(2, REDLOCK_DIRECTORY), 3);
}
END_TEST

START_TEST(directory_of_which_the_makers_stay_split_exists)
{
    struct waited made = {0};
    for (unsigned i = 0; i < REDLOCK_TRIES; i++) {
        once(REDLOCK_DIRECTORY, FAKE_REDIS_LATE, FAKE_REDIS_LATE, FAKE_REDIS_LATE);
        once(REDLOCK_DIRECTORY, words("ok"), words("ok"), words("ok"));
    }
    then_usual();
    mount();
    backend_mkdir(contract_backend, "d", NULL, on_done, &made);
    split_makers(REDLOCK_TRIES);
    CONTRACT_UNTIL(made.reported);
    ck_assert_int_eq(made.result, BACKEND_EXISTS);
}
END_TEST

START_TEST(change_of_a_directory_of_which_no_majority_answers_is_unknown)
{
    const struct backend_directory directory = {.width = 1, .ttl = 5000};
    once(REDLOCK_DIRECTORY, words("ok"), words("ok"), words("ok"));
    once(REDLOCK_DIRECTORY, words("ok"), FAILS, FAILS); /* it is set */
    once(REDLOCK_DIRECTORY, words("ok"), FAILS, FAILS); /* it is removed */
    then_usual();
    mount();
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_set_directory("d", &directory), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_UNREACHABLE);
    CONTRACT_UNTIL(calls(0, REDLOCK_DIRECTORY) == 4); /* some may have removed it: only there it is made again */
    ck_assert(strstr(strrchr(fake_redis_commands(fakes[0]), ';'), " undo ") != NULL);
}
END_TEST

/* Each has removed it on one server, and another server still has the name of a lock that was released. */
START_TEST(removal_that_crosses_that_of_another_mount_is_repeated)
{
    once(REDLOCK_DIRECTORY, words("ok"), words("missing"), words("notempty"));
    then_usual();
    mount();
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_OK);
    ck_assert_uint_eq(calls(0, REDLOCK_DIRECTORY), 3);
}
END_TEST

START_TEST(directory_that_is_changed_while_it_is_looked_at_is_looked_at_again)
{
    const struct backend_directory directory = {.width = 1, .ttl = 5000};
    const char *was = words("directory maker 1000 1 meta");
    struct waited made[2] = {{0}};
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_LOOK, was, 1);
        rule(i, REDLOCK_LOOK, FAKE_REDIS_LATE, 1);
        rule(i, REDLOCK_LOOK, words("directory maker 5000 2 meta"), FAKE_REDIS_ALWAYS);
        rule(i, REDLOCK_DIRECTORY, FAKE_REDIS_LATE, 2);
    }
    rule(0, REDLOCK_RELEASE, FAKE_REDIS_CLOSE, 1);
    then_usual();
    mount();
    ck_assert_int_eq(contract_stat("d").directory.ttl, 1000);
    contract_release(contract_get("a", BACKEND_LEASE, &(struct contract_log){0}));
    await_calls(REDLOCK_LOOK, 2);
    backend_mkdir(contract_backend, "other", &directory, on_done, &made[0]); /* which is none of its business */
    backend_mkdir(contract_backend, "d", &directory, on_done, &made[1]);
    await_calls(REDLOCK_DIRECTORY, 2);
    for (unsigned i = 0; i < SERVERS; i++) {
        fake_redis_say(fakes[i], was);
        fake_redis_say(fakes[i], words("ok"));
        fake_redis_say(fakes[i], words("ok"));
    }
    await_calls(REDLOCK_LOOK, 3);
    CONTRACT_UNTIL(made[0].reported && made[1].reported);
    ck_assert_int_eq(made[1].result, BACKEND_OK);
    ck_assert_int_eq(contract_stat("d").directory.ttl, 5000);
}
END_TEST

START_TEST(listing_without_an_answer_of_a_majority_is_unknown)
{
    once(REDLOCK_LIST, words("names a"), FAILS, FAILS);
    once(REDLOCK_LIST, words("notdirectory"), words("notdirectory"), words("names"));
    once(REDLOCK_LIST, words("missing"), words("missing"), words("missing"));
    then_usual();
    mount();
    ck_assert_int_eq(contract_list_result("d"), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_list_result("d"), BACKEND_NOT_DIRECTORY);
    ck_assert_int_eq(contract_list_result("d"), BACKEND_MISSING);
}
END_TEST

/* --- answers that cannot be --- */

START_TEST(answers_of_another_form_are_no_votes)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    once(REDLOCK_ACQUIRE, ":1\r\n", "$-1\r\n", "*0\r\n");
    once(REDLOCK_ACQUIRE, "-OOM command not allowed\r\n", "-ERR x: -OOM command not allowed\r\n", FAILS);
    once(REDLOCK_ACQUIRE, "*2\r\n+ok\r\n:9\r\n", "*2\r\n+ok\r\n*0\r\n", FAILS);
    then_usual();
    mount();
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_FULL);
    const struct contract_acquired given = contract_acquire("a", &claim);
    ck_assert_int_eq(given.result, BACKEND_OK);
    ck_assert_uint_eq(given.ticket->fence, 9);
}
END_TEST

/* --- what servers say of themselves --- */

/* The third was started just now, and answers so when it is asked whether it keeps all on its disk. */
static void mount_new_servers(const char *configuration)
{
    fake_redis_rule(fakes[2], "EVAL ", greeting(2, ""), FAKE_REDIS_ALWAYS);
    fake_redis_rule(fakes[2], "CONFIG GET", configuration, FAKE_REDIS_ALWAYS);
    then_usual();
    mount();
    CONTRACT_UNTIL(strstr(fake_redis_commands(fakes[2]), "CONFIG GET"));
    contract_release(contract_get("a", BACKEND_LEASE, &(struct contract_log){0})); /* behind that */
}

START_TEST(server_that_was_started_lately_votes_if_it_keeps_all_on_its_disk)
{
    mount_new_servers(words("appendonly yes appendfsync always"));
    CONTRACT_UNTIL(!says("its vote does not count"));
}
END_TEST

START_TEST(server_that_does_not_say_so_has_no_vote)
{
    static const char *const replies[] = {FAILS, ":1\r\n", "*1\r\n+appendonly\r\n",
                                          "*4\r\n:1\r\n$3\r\nyes\r\n$11\r\nappendfsync\r\n:1\r\n"};
    mount_new_servers(replies[_i]);
    ck_assert(says("its vote does not count"));
}
END_TEST

START_TEST(server_that_keeps_less_than_all_has_no_vote)
{
    static const char *const lines[] = {"appendonly no appendfsync always", "appendonly yes appendfsync everysec"};
    mount_new_servers(words(lines[_i]));
    ck_assert(says("its vote does not count"));
}
END_TEST

START_TEST(servers_that_are_one_process_have_one_vote)
{
    for (unsigned i = 1; i < SERVERS; i++) {
        fake_redis_rule(fakes[i], "EVAL ", greeting(1, "uptime_in_seconds:1000\r\n"), FAKE_REDIS_ALWAYS);
    }
    fake_redis_rule(fakes[0], "EVAL ", ":1\r\n", FAKE_REDIS_ALWAYS); /* which tells nothing of itself: it may be used */
    then_usual();
    contract_start(open_mount());
    CONTRACT_UNTIL(says("is the same server") || says("servers: 3, 2 of them there"));
    for (int i = 0; i < 50; i++) {
        contract_poll();
    }
    ck_assert(!says("servers: 3, 3 of them there"));
}
END_TEST

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)arg, (void)name, (void)ticket, (void)meta, (void)content;
    ck_abort();
    return false;
}

/* The locks of a mount that has ended run out: the next mount finds none of them. */
START_TEST(mount_shows_its_servers_and_finds_nothing_of_before)
{
    static const int64_t terms[] = {100, 2000, CONTRACT_LONG};
    char error[256] = "";
    struct redlock_uri uri;
    ck_assert_int_eq(redlock_uri_parse(&uri, "redlock://[::1]:1,localhost:2,127.0.0.1:3/4", error, sizeof error), 0);
    for (size_t i = 0; i < G_N_ELEMENTS(terms); i++) { /* a server may take a part of this */
        const struct redlock_options options = {.uri = &uri, .ttl = terms[i]};
        struct backend *opened = NULL;
        struct backend_status status;
        ck_assert_int_eq(redlock_new(&options, &opened, error, sizeof error), 0);
        backend_status(opened, &status);
        ck_assert_str_eq(status.address, "redlock://[::1]:1,localhost:2,127.0.0.1:3/4");
        backend_status_clear(&status);
        backend_recover(opened, on_found, NULL);
        backend_free(opened);
    }
    redlock_uri_clear(&uri);
}
END_TEST

/* --- the notes of the daemon before --- */

#define PART 500 /* notes of one answer */

/* Notes of so many locks, of numbers from `first` on. */
static const char *notes(unsigned first, unsigned count)
{
    GString *line = g_string_new("notes");
    for (unsigned i = first; i < first + count; i++) {
        g_string_append_printf(line, " %032x n%u 4711", i, i);
    }
    char **split = g_strsplit(line->str, " ", -1);
    GString *reply = g_string_new(NULL);
    g_string_printf(reply, "*%u\r\n$5\r\nnotes\r\n", 1 + 2 * count);
    for (unsigned i = 1; split[i]; i += 3) {
        size_t length = strlen(split[i]) + 1 + strlen(split[i + 1]);
        g_string_append_printf(reply, "$%zu\r\n%s %s\r\n$4\r\n4711\r\n", length, split[i], split[i + 1]);
    }
    g_strfreev(split);
    g_string_free(line, TRUE);
    return text_of(g_string_free(reply, FALSE));
}

static GString *found_names;

static bool on_found_name(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)arg, (void)ticket, (void)meta, (void)content;
    g_string_append_printf(found_names, "%s ", name);
    return false;
}

/* The slow server answers as soon as another one has returned all its notes. */
static void on_tick(struct ev_loop *loop, ev_timer *tick, int events)
{
    (void)events;
    if (calls(1, REDLOCK_NOTES) == 2) {
        fake_redis_say(fakes[2], notes(7000, 1));
        for (unsigned more = calls(2, REDLOCK_NOTES); more > 1; more--) {
            fake_redis_say(fakes[2], notes(0, 0));
        }
        ev_timer_stop(loop, tick);
    }
}

/* The last lock is noted by the first server, which fails before it returns that note, and by the last one, which is
 * slow and has fewer notes.  A majority has each part of the notes. */
START_TEST(note_is_found_though_another_majority_returns_each_part)
{
    found_names = g_string_new(NULL);
    mount_as("host:/mnt/locks");
    rule(0, REDLOCK_NOTES, notes(0, PART), 1);
    rule(0, REDLOCK_NOTES, FAILS, FAKE_REDIS_ALWAYS);
    rule(1, REDLOCK_NOTES, notes(0, PART), 1);
    rule(1, REDLOCK_NOTES, notes(PART, 1), 1);
    rule(2, REDLOCK_NOTES, FAKE_REDIS_LATE, FAKE_REDIS_ALWAYS);
    for (unsigned i = 0; i < SERVERS; i++) {
        rule(i, REDLOCK_RECOVER, words("ok 5 3 0 60000 60000 1 m c"), FAKE_REDIS_ALWAYS);
    }
    then_usual();
    ev_timer tick;
    ev_timer_init(&tick, on_tick, 0.01, 0.01);
    ev_timer_start(contract_loop, &tick);
    backend_recover(contract_backend, on_found_name, NULL);
    CONTRACT_UNTIL(strstr(found_names->str, "n7000 "));
    CONTRACT_UNTIL(strstr(found_names->str, "n500 "));
    g_string_free(found_names, TRUE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redlock");
    TCase *cases = tcase_create("answers");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, votes_that_are_split_are_repeated);
    tcase_add_test(cases, lock_of_which_the_votes_stay_split_is_busy);
    tcase_add_loop_test(cases, claim_that_meets_the_key_of_an_earlier_one_of_this_mount_is_repeated, 1,
                        REDLOCK_TRIES + 1);
    tcase_add_test(cases, server_that_fails_behind_its_vote_makes_no_majority_of_the_number);
    tcase_add_test(cases, lock_that_is_deleted_after_its_vote_is_claimed_again);
    tcase_add_test(cases, number_that_no_server_knows_is_the_first);
    tcase_add_test(cases, claim_joins_nothing_of_which_no_majority_answers);
    tcase_add_test(cases, holder_leaves_the_lock_to_a_claim_that_is_still_joining);
    tcase_add_test(cases, release_of_which_no_majority_answers_is_unknown);
    tcase_add_test(cases, renewal_is_confirmed_by_a_majority_after_an_error_of_the_first_server);
    tcase_add_test(cases, renewal_that_no_majority_answers_is_sent_again);
    tcase_add_test(cases, waiter_tries_again_when_a_majority_reports_a_change_of_the_key);
    tcase_add_test(cases, waiter_that_no_majority_answers_gets_an_error);
    tcase_add_test(cases, waiters_of_one_mount_ask_as_one);
    tcase_add_test(cases, waiter_is_converted_where_it_waits);
    tcase_add_test(cases, break_of_a_lock_that_is_waited_for_here_lets_the_waiter_in);
    tcase_add_test(cases, lock_of_another_mount_is_broken_only_if_it_is_the_one_that_is_meant);
    tcase_add_test(cases, break_of_which_no_majority_answers_is_unknown);
    tcase_add_test(cases, directory_with_another_maker_on_each_server_is_requested_again);
    tcase_add_test(cases, directory_of_which_the_makers_stay_split_exists);
    tcase_add_test(cases, change_of_a_directory_of_which_no_majority_answers_is_unknown);
    tcase_add_test(cases, removal_that_crosses_that_of_another_mount_is_repeated);
    tcase_add_test(cases, directory_that_is_changed_while_it_is_looked_at_is_looked_at_again);
    tcase_add_test(cases, listing_without_an_answer_of_a_majority_is_unknown);
    tcase_add_test(cases, answers_of_another_form_are_no_votes);
    tcase_add_test(cases, server_that_was_started_lately_votes_if_it_keeps_all_on_its_disk);
    tcase_add_loop_test(cases, server_that_does_not_say_so_has_no_vote, 0, 4);
    tcase_add_loop_test(cases, server_that_keeps_less_than_all_has_no_vote, 0, 2);
    tcase_add_test(cases, servers_that_are_one_process_have_one_vote);
    tcase_add_test(cases, mount_shows_its_servers_and_finds_nothing_of_before);
    tcase_add_test(cases, note_is_found_though_another_majority_returns_each_part);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}

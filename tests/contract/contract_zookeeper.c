/* contract_zookeeper: the contract for a ZooKeeper server; and two mounts of one server. */
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/zookeeper/zookeeper.h"
#include "config.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/relay.h"
#include "tests/support/scratch.h"
#include "tests/support/zookeeper_server.h"

static struct zookeeper_server *server; /* each check has a root of its own in it */

static int64_t term = CONTRACT_LONG / 2; /* ms, of a session */

static char *state; /* the directory of open_again; or NULL */

static struct backend *open_mount_by(const char *host, uint16_t port, const char *below, uint32_t seed, bool background,
                                     const char *directory)
{
    char error[256] = "", *text = g_strdup_printf("zookeeper://%s:%u/check/%d%s", host, port, contract_world(), below);
    struct zookeeper_uri uri;
    struct backend *b = NULL;

    ck_assert_msg(zookeeper_uri_parse(&uri, text, error, sizeof(error)) == 0, "%s", error);
    const struct zookeeper_options options = {
        .uri = &uri, .ttl = term, .seed = seed, .background = background, .state = directory};
    ck_assert_msg(zookeeper_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    zookeeper_uri_clear(&uri);
    g_free(text);
    return b;
}

static struct backend *open_mount_of(uint16_t port, const char *below, uint32_t seed, bool background,
                                     const char *directory)
{
    return open_mount_by("127.0.0.1", port, below, seed, background, directory);
}

static struct backend *open_mount_at(uint16_t port, const char *below, uint32_t seed, bool background)
{
    return open_mount_of(port, below, seed, background, NULL);
}

static struct backend *open_again(void)
{
    static uint32_t seed = 3;
    state = state ? state : scratch_new();
    return open_mount_of(zookeeper_server_port(server), "", seed++, false, state);
}

static void clean_zookeeper(void)
{
    g_clear_pointer(&state, scratch_free);
}

static struct backend *open_mount(uint32_t seed)
{
    return open_mount_at(zookeeper_server_port(server), "", seed, false);
}

static struct backend *open_relayed(void)
{
    return open_mount_at(relay_port(relay_to(contract_loop, zookeeper_server_port(server))), "", 1, true);
}

static struct backend *open_zookeeper(void)
{
    return open_mount(1);
}

static struct backend *open_other(void)
{
    return open_mount(2);
}

static struct zookeeper_server *shared; /* that the other checks have */

static void begin_own_server(void)
{
    shared = server;
    server = zookeeper_server_start();
    term = 9000; /* so that a check sees the end of its session */
}

static void end_own_server(void)
{
    zookeeper_server_free(server);
    server = shared;
    term = CONTRACT_LONG / 2;
}

static void restart(bool empty)
{
    zookeeper_server_restart(server, empty);
}

/* The processes that took it may believe in it for its term. */
START_TEST(end_of_a_mount_keeps_what_it_held_and_nothing_else)
{
    struct contract_log log[2] = {{0}}, waiting = {0}, last = {0};

    contract_get("held", BACKEND_LEASE, &log[0]);
    backend_free(contract_one);
    contract_one = open_mount(3);
    contract_start(contract_one);
    ck_assert(contract_is_busy("held"));
    contract_backend = contract_other;
    ck_assert(contract_is_busy("held"));
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[1]);
    contract_backend = contract_one;
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    contract_backend = contract_other;
    contract_queue("a", BACKEND_EXCLUSIVE, &last);
    backend_free(contract_one);
    contract_one = open_mount(4);
    contract_start(contract_one);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(last.granted);
}
END_TEST

static void never_answered(void *arg, enum backend_result result, struct backend_ticket *ticket,
                           const struct backend_info *holder)
{
    (void)arg, (void)result, (void)ticket, (void)holder;
    ck_abort_msg("a claim is answered by a mount that has ended");
}

START_TEST(mount_ends_while_claims_are_not_answered)
{
    ck_assert(!contract_is_busy("asked")); /* its session is there */
    for (int i = 0; i < 20; i++) {
        struct contract_log log = {0};
        struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
        char name[16];
        snprintf(name, sizeof(name), "asked%d", i);
        backend_acquire(contract_one, name, &claim, never_answered, NULL);
    }
    backend_free(contract_one);
    contract_one = open_mount(3);
    contract_start(contract_one);
    contract_backend = contract_one;
    struct contract_log log = {0};
    contract_get("free", BACKEND_LEASE, &log);
}
END_TEST

/* The lock is free for strangers only after its delay, whoever gives up waiting for it meanwhile. */
START_TEST(waiter_that_gives_up_leaves_the_delay_of_a_lock_that_was_broken)
{
    struct contract_log held = {0}, waiting = {0};
    struct backend_directory delayed = {.width = 1, .delay = 20 * CONTRACT_LONG};
    ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_OK);
    contract_get("d/x", BACKEND_FLOCK, &held);
    contract_backend = contract_other;
    struct backend_ticket *waiter = contract_queue("d/x", BACKEND_EXCLUSIVE, &waiting);
    ck_assert_int_eq(contract_revoke("d/x", 0), BACKEND_OK);
    ck_assert_int_eq(contract_revoke("d/x", 0), BACKEND_MISSING);
    ck_assert_int_eq(contract_release(waiter), BACKEND_OK);
    ck_assert(!waiting.granted);
    ck_assert(contract_is_busy("d/x"));
    contract_backend = contract_one;
    ck_assert(contract_is_busy("d/x"));
}
END_TEST

START_TEST(delay_is_that_of_all_that_share)
{
    struct contract_log held = {0}, waiting = {0}, last = {0};
    struct backend_directory delayed = {.width = 1, .delay = 20 * CONTRACT_LONG};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &last);
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_OK);
    contract_get("d/x", BACKEND_FLOCK, &held);
    contract_queue("d/x", BACKEND_SHARED, &waiting);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke("d/x", 0), BACKEND_OK);
    ck_assert_int_eq(contract_acquire("d/x", &claim).result, BACKEND_BUSY);
    ck_assert(!waiting.granted);
}
END_TEST

static void on_well(void *arg, enum backend_result result)
{
    ck_assert_int_eq(result, BACKEND_OK);
    *(bool *)arg = true;
}

/* A renewal that comes too late does not mark the lock as held. */
START_TEST(delay_does_not_run_where_what_is_being_renewed_is_released_from_another_mount)
{
    struct backend_directory delayed = {.width = 1, .delay = 20 * CONTRACT_LONG};
    ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_OK);
    for (int i = 0; i < 20; i++) {
        struct contract_log held = {0}, waiting = {0};
        char name[16];
        bool released = false;
        snprintf(name, sizeof(name), "d/x%d", i);
        contract_backend = contract_one;
        struct backend_ticket *ticket = contract_get(name, BACKEND_LEASE, &held);
        const struct backend_renewal renewal = {.ticket = ticket, .ttl = CONTRACT_LONG, .due = CONTRACT_LONG / 3};
        contract_backend = contract_other;
        contract_queue(name, BACKEND_EXCLUSIVE, &waiting);
        backend_revoke(contract_other, name, ticket->fence, on_well, &released);
        while (!held.ended) {
            backend_renew(contract_one, &renewal, 1);
            contract_turn();
        }
        CONTRACT_UNTIL(released && waiting.granted);
    }
}
END_TEST

static void on_queued(void *arg, enum backend_result result, struct backend_ticket *ticket,
                      const struct backend_info *holder)
{
    struct contract_log *log = arg;
    (void)ticket, (void)holder;
    ck_assert(result == BACKEND_OK || result == BACKEND_QUEUED);
    log->granted += result == BACKEND_OK;
}

/* Claims it without waiting for the answer; `log` records the grant. */
static struct backend_ticket *ask_for(struct backend *b, const char *name, bool sequence, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, log);
    claim.wait = true;
    claim.sequence = sequence;
    return backend_acquire(b, name, &claim, on_queued, log);
}

/* Lets some of what is under way be answered. */
static void proceed(unsigned turns)
{
    for (unsigned i = 0; i < turns; i++) {
        g_usleep(200);
        contract_poll();
    }
}

/* Each watch that is left costs the server and the mount memory for good, and is set again after a lost connection. */
START_TEST(nothing_is_watched_when_all_has_been_released)
{
    struct contract_log log[100] = {{0}};
    struct backend_ticket *held = contract_get("x", BACKEND_FLOCK, &log[0]);
    unsigned before = zookeeper_server_watches(server);
    for (unsigned i = 1; i < G_N_ELEMENTS(log); i++) {
        struct backend_ticket *next = ask_for(i % 2 ? contract_other : contract_one, "x", false, &log[i]);
        proceed(i % 8);
        contract_backend = i % 2 ? contract_one : contract_other;
        ck_assert_int_eq(contract_release(held), BACKEND_OK);
        CONTRACT_UNTIL(log[i].granted);
        held = next;
    }
    ck_assert_uint_le(zookeeper_server_watches(server), before + 4);
}
END_TEST

START_TEST(place_in_a_queue_holds_when_its_width_grows_while_it_is_taken)
{
    struct backend_directory narrow = {.width = 1}, wide = {.width = 2};
    for (unsigned i = 0; i < 40; i++) {
        struct contract_log first = {0}, second = {0};
        char queue[16], name[24];
        bool widened = false;
        snprintf(queue, sizeof(queue), "q%u", i);
        snprintf(name, sizeof(name), "q%u/a-", i);
        ck_assert_int_eq(contract_mkdir(queue, &narrow), BACKEND_OK);
        ask_for(contract_one, name, true, &first);
        CONTRACT_UNTIL(first.granted);
        ask_for(contract_one, name, true, &second);
        proceed(i % 8);
        backend_set_directory(contract_other, queue, &wide, on_well, &widened);
        CONTRACT_UNTIL(widened && second.granted);
    }
}
END_TEST

/* One that is broken has all of a handle's locks taken away. */
START_TEST(break_ends_all_locks_of_one_handle_from_another_mount)
{
    struct contract_log logs[2] = {{0}};
    struct backend_claim flock = contract_claim(BACKEND_FLOCK, &logs[0]),
                         record = contract_claim(BACKEND_FCNTL, &logs[1]);
    flock.handle = record.handle = 7;
    record.lock_owner = 9;
    record.end = BACKEND_RANGE_MAX;
    ck_assert_int_eq(contract_acquire("both", &flock).result, BACKEND_OK);
    ck_assert_int_eq(contract_acquire("both", &record).result, BACKEND_OK);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke("both", 0), BACKEND_OK);
    ck_assert(!contract_is_busy("both"));
}
END_TEST

START_TEST(token_means_the_same_to_all_mounts)
{
    struct contract_log log[3] = {{0}};
    uint64_t fence = contract_get("a", BACKEND_LEASE, &log[0])->fence;
    contract_backend = contract_other;
    ck_assert_uint_eq(contract_stat("a").fence, fence);
    ck_assert_uint_gt(contract_get("b", BACKEND_LEASE, &log[1])->fence, fence);
    ck_assert_int_eq(contract_revoke("a", fence + 1), BACKEND_STALE);
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    backend_free(contract_one);
    contract_one = open_mount(3);
    contract_start(contract_one);
    contract_backend = contract_one;
    ck_assert_uint_gt(contract_get("a", BACKEND_LEASE, &log[2])->fence, fence);
}
END_TEST

/* Or what is held there by such a version, and after it, would have tokens that go back. */
START_TEST(node_that_an_older_version_has_made_gives_small_tokens_for_ever)
{
    struct contract_log log = {0};
    ck_assert_int_eq(contract_mkdir("old", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_mkdir("old/.leasefs", NULL), BACKEND_OK); /* it says nothing of a base */
    backend_free(contract_one);
    contract_one = open_mount_at(zookeeper_server_port(server), "/old", 3, false);
    contract_start(contract_one);
    contract_backend = contract_one;
    ck_assert_uint_lt(contract_get("a", BACKEND_LEASE, &log)->fence, UINT64_C(1) << 40);
}
END_TEST

/* Whether a mount of that directory is refused. */
static void assert_refused(const char *below, const char *words)
{
    char error[512] = "", *text = g_strdup_printf("zookeeper://127.0.0.1:%u/check/%d%s", zookeeper_server_port(server),
                                                  contract_world(), below);
    struct zookeeper_uri uri;
    struct backend *b = NULL;
    ck_assert_int_eq(zookeeper_uri_parse(&uri, text, error, sizeof error), 0);
    const struct zookeeper_options options = {.uri = &uri, .ttl = term, .seed = 5};
    ck_assert_int_eq(zookeeper_new(&options, &b, error, sizeof error), -EPROTONOSUPPORT);
    ck_assert_msg(strstr(error, words) != NULL, "%s", error);
    zookeeper_uri_clear(&uri);
    g_free(text);
}

/* The hidden node of a mount of that directory, with this line behind its first. */
static void make_hidden_node(const char *directory, const char *line)
{
    char *hidden = g_strconcat(directory, "/.leasefs", NULL);
    GBytes *meta = g_bytes_new(line, strlen(line));
    const struct backend_directory attributes = {.width = 1, .meta = meta};
    ck_assert_int_eq(contract_mkdir(directory, NULL), BACKEND_OK);
    ck_assert_int_eq(contract_mkdir(hidden, &attributes), BACKEND_OK);
    g_bytes_unref(meta);
    g_free(hidden);
}

static bool says_why(struct backend *b, const char *words)
{
    struct backend_status status;
    backend_status(b, &status);
    bool says = status.away && status.why && strstr(status.why, words);
    backend_status_clear(&status);
    return says;
}

START_TEST(data_of_a_higher_format_are_refused_by_the_name_of_what_made_them)
{
    const char *words = "the store, made by leasefs 9.9.9 hostb, has format version 2, and leasefs " PACKAGE_VERSION
                        " knows format versions up to 1: upgrade leasefs on this host";
    make_hidden_node("new", "format 2 9.9.9 hostb\n");
    assert_refused("/new", words);
    backend_free(contract_one);
    contract_one = open_mount_at(zookeeper_server_port(server), "/new", 3, true); /* it looks when it connects */
    contract_start(contract_one);
    CONTRACT_UNTIL(says_why(contract_one, words));
}
END_TEST

START_TEST(mount_without_a_format_number_is_refused_while_its_session_lives)
{
    make_hidden_node("old", "");
    ck_assert_int_eq(contract_mkdir("old/.leasefs/check-0123456789abcdef", NULL), BACKEND_OK); /* that is no mount */
    backend_free(open_mount_at(zookeeper_server_port(server), "/old", 3, false));
    ck_assert_int_eq(contract_mkdir("old/.leasefs/0123456789abcdef", NULL), BACKEND_OK);
    assert_refused("/old", "the store is in use by a mount (session 0x0123456789abcdef) of a leasefs older than 1.0.0");
}
END_TEST

/* --- the loop does not stand still --- */

static int64_t busy_since, longest; /* us: a turn of the loop, from its wait to the next */

static void turn_begins(struct ev_loop *loop, ev_check *check, int events)
{
    (void)loop, (void)check, (void)events;
    busy_since = g_get_monotonic_time();
}

static void note_turn(void)
{
    longest = busy_since ? MAX(longest, g_get_monotonic_time() - busy_since) : 0;
}

static void turn_ends(struct ev_loop *loop, ev_prepare *prepare, int events)
{
    (void)loop, (void)prepare, (void)events;
    note_turn();
}

#define PAUSE_MAX 300000 /* us */

static ev_check begins;
static ev_prepare ends;

static void measure_turns(void)
{
    busy_since = longest = 0;
    ev_check_init(&begins, turn_begins);
    ev_set_priority(&begins, EV_MAXPRI);
    ev_prepare_init(&ends, turn_ends);
    ev_set_priority(&ends, EV_MINPRI);
    ev_check_start(contract_loop, &begins);
    ev_prepare_start(contract_loop, &ends);
}

static void assert_no_long_turn(void)
{
    ev_check_stop(contract_loop, &begins);
    ev_prepare_stop(contract_loop, &ends);
    note_turn(); /* the last */
    ck_assert_int_lt(longest, PAUSE_MAX);
}

/* The address of the name moving.test; NULL: it has none.  Each look-up takes so long, us. */
static _Atomic(const char *) address;
static atomic_uint look_up_time, look_ups;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    if (hints->ai_flags & AI_NUMERICHOST || strcmp(host, "moving.test") != 0) {
        return __real_getaddrinfo(host, port, hints, found);
    }
    usleep(look_up_time);
    look_ups++;
    return address ? __real_getaddrinfo(address, port, hints, found) : EAI_AGAIN;
}

static bool is_up(struct backend *mount)
{
    struct backend_status status;
    backend_status(mount, &status);
    bool up = !status.away;
    backend_status_clear(&status);
    return up;
}

/* _i: at first the name has no address, or that of a host that refuses. */
START_TEST(server_is_found_where_its_name_is_now)
{
    backend_free(contract_one);
    look_up_time = 0;
    address = _i ? "127.0.0.2" : NULL;
    contract_one = open_mount_by("moving.test", zookeeper_server_port(server), "", 1, true, NULL);
    look_up_time = 1000000;
    look_ups = 0;
    measure_turns();
    contract_start(contract_one);
    CONTRACT_UNTIL(look_ups >= 1);
    ck_assert(!is_up(contract_one));
    address = "127.0.0.1";
    CONTRACT_UNTIL(is_up(contract_one));
    assert_no_long_turn();
}
END_TEST

static void ignore_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                            const struct backend_info *holder)
{
    (void)arg, (void)result, (void)ticket, (void)holder;
}

/* The server has stopped.  _i: its connection is full, so the end of the session cannot be sent either. */
START_TEST(loop_goes_on_while_a_session_is_given_up)
{
    struct contract_log log = {0};
    int64_t before = term;
    char large[65536] = "";
    GBytes *content = g_bytes_new_static(large, sizeof large);
    backend_free(contract_one);
    term = 1000;
    contract_one = open_relayed();
    term = before;
    contract_start(contract_one);
    CONTRACT_UNTIL(is_up(contract_one));
    contract_get("L", BACKEND_LEASE, &log);
    relay_stop();
    measure_turns();
    struct backend_claim claim = contract_claim(BACKEND_LEASE, NULL);
    claim.content = content;
    for (int i = 0; _i && i < 200; i++) {
        char name[16];
        g_snprintf(name, sizeof name, "large%d", i);
        backend_acquire(contract_one, name, &claim, ignore_acquired, NULL);
    }
    g_bytes_unref(content);
    CONTRACT_UNTIL(log.ended);
    assert_no_long_turn();
    relay_continue();
}
END_TEST

static TCase *zookeeper_case(void)
{
    TCase *tcase = tcase_create("zookeeper");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup_two, contract_teardown_two);
    tcase_add_test(tcase, break_ends_all_locks_of_one_handle_from_another_mount);
    tcase_add_test(tcase, data_of_a_higher_format_are_refused_by_the_name_of_what_made_them);
    tcase_add_test(tcase, delay_does_not_run_where_what_is_being_renewed_is_released_from_another_mount);
    tcase_add_test(tcase, delay_is_that_of_all_that_share);
    tcase_add_test(tcase, end_of_a_mount_keeps_what_it_held_and_nothing_else);
    tcase_add_loop_test(tcase, loop_goes_on_while_a_session_is_given_up, 0, 2);
    tcase_add_loop_test(tcase, server_is_found_where_its_name_is_now, 0, 2);
    tcase_add_test(tcase, mount_ends_while_claims_are_not_answered);
    tcase_add_test(tcase, mount_without_a_format_number_is_refused_while_its_session_lives);
    tcase_add_test(tcase, nothing_is_watched_when_all_has_been_released);
    tcase_add_test(tcase, place_in_a_queue_holds_when_its_width_grows_while_it_is_taken);
    tcase_add_test(tcase, node_that_an_older_version_has_made_gives_small_tokens_for_ever);
    tcase_add_test(tcase, token_means_the_same_to_all_mounts);
    tcase_add_test(tcase, waiter_that_gives_up_leaves_the_delay_of_a_lock_that_was_broken);
    return tcase;
}

int main(void)
{
    static const struct contract zookeeper = {.name = "zookeeper",
                                              .open = open_zookeeper,
                                              .clean = clean_zookeeper,
                                              .open_other = open_other,
                                              .open_again = open_again,
                                              .open_relayed = open_relayed,
                                              .begin_own_servers = begin_own_server,
                                              .end_own_servers = end_own_server,
                                              .restart = restart,
                                              .lacks = BACKEND_CAN_RANGE | BACKEND_CAN_REPLACE,
                                              .sessions = true,
                                              .timeout = 5000,
                                              .pace = 30};

    if (!zookeeper_server_exists()) {
        puts("1..0 # skip there is no ZooKeeper server");
        return 0;
    }
    server = zookeeper_server_start();
    Suite *suite = contract_suite(&zookeeper);
    suite_add_tcase(suite, zookeeper_case());
    int result = check_main(suite);
    zookeeper_server_free(server);
    return result;
}

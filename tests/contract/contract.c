/* contract: the loop, the fixtures and the calls of the scenarios. */
#include "tests/contract/contract.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIME_LIMIT 20.0 /* seconds, for each wait */
#define TICK 0.02       /* seconds, of a turn in which nothing happens */

struct backend *contract_backend, *contract_one, *contract_other;

static const struct contract *subject;
struct ev_loop *contract_loop;
uint64_t contract_began;
static ev_timer time_limit, tick;
static GPtrArray *kept; /* GBytes that end with the scenario */
static GString *listing;
static unsigned event_number;

void contract_end_turn(void)
{
    ev_break(contract_loop, EVBREAK_ONE);
}

void contract_use(const struct contract *of)
{
    subject = of;
}

unsigned contract_many(unsigned many)
{
    return many / MAX(subject->pace, 1);
}

int64_t contract_term(void)
{
    return subject->term ? subject->term : 2000;
}

int contract_world(void)
{
    static pid_t process;
    static int world;
    if (process != getpid()) {
        process = getpid();
        world = (int)(clock_wall_us() / 100 % INT_MAX);
    }
    return world;
}

bool contract_has(enum backend_feature feature)
{
    return !(subject->lacks & (unsigned)feature);
}

bool contract_can(enum backend_feature feature)
{
    return contract_backend->features & (unsigned)feature;
}

/* Of a ticket without a log (one that was read back) nothing is noted. */
static void note(struct backend_ticket *ticket, size_t count)
{
    struct contract_log *log = ticket->user;

    contract_end_turn();
    if (!log)
        return;
    ++*(unsigned *)((char *)log + count);
    log->when = ++event_number;
}

static void on_granted(void *context, struct backend_ticket *ticket)
{
    (void)context;
    ck_assert_msg(ticket->held, "granted, but does not hold");
    note(ticket, offsetof(struct contract_log, granted));
}

static void on_due(void *context, struct backend_ticket *ticket)
{
    (void)context;
    note(ticket, offsetof(struct contract_log, due));
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct contract_log *log = ticket->user;

    (void)context;
    if (log) {
        log->why = why;
        log->guarded = ticket->guarded;
        ck_assert(!ticket->guarded || ticket->guarded == 1 + why);
    }
    note(ticket, offsetof(struct contract_log, ended));
}

static void on_wanted(void *context, struct backend_ticket *ticket)
{
    (void)context;
    note(ticket, offsetof(struct contract_log, wanted));
}

static void on_gone(void *context, const char *name)
{
    (void)context, (void)name;
}

static const struct backend_events events = {
    .granted = on_granted, .due = on_due, .ended = on_ended, .wanted = on_wanted, .gone = on_gone};

static void on_time_limit(struct ev_loop *l, ev_timer *timer, int revents)
{
    (void)l, (void)timer, (void)revents;
    ck_abort_msg("waited %g s for what did not happen", TIME_LIMIT);
}

/* A condition may be met by an event of the call that looked for it: no other event ends the next turn. */
static void on_tick(struct ev_loop *l, ev_timer *timer, int revents)
{
    (void)l, (void)timer, (void)revents;
}

void contract_restart_time_limit(void)
{
    ev_now_update(contract_loop);
    ev_timer_again(contract_loop, &time_limit);
}

void contract_start(struct backend *b)
{
    contract_backend = b;
    contract_restart_time_limit();
    ck_assert_uint_eq(b->features & CONTRACT_FEATURES, CONTRACT_FEATURES & ~subject->lacks);
    backend_start(b, contract_loop, &events, NULL);
}

void contract_setup(void)
{
    contract_began = clock_wall_us();
    contract_loop = ev_loop_new(EVFLAG_AUTO);
    ev_init(&time_limit, on_time_limit);
    time_limit.repeat = TIME_LIMIT;
    ev_timer_init(&tick, on_tick, TICK, TICK);
    ev_timer_start(contract_loop, &tick);
    kept = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
    listing = g_string_new(NULL);
    if (subject->open)
        contract_start(subject->open());
}

void contract_teardown(void)
{
    backend_free(contract_backend);
    contract_backend = NULL;
    ev_timer_stop(contract_loop, &time_limit);
    ev_timer_stop(contract_loop, &tick);
    ev_loop_destroy(contract_loop);
    g_ptr_array_unref(kept);
    g_string_free(listing, TRUE);
    if (subject->clean)
        subject->clean();
}

void contract_setup_two(void)
{
    contract_setup();
    contract_one = contract_backend;
    contract_other = subject->open_other();
    contract_start(contract_other);
    contract_backend = contract_one;
}

void contract_teardown_two(void)
{
    backend_free(contract_other);
    contract_backend = contract_one;
    contract_teardown();
}

void contract_turn(void)
{
    ev_run(contract_loop, EVRUN_ONCE);
}

void contract_poll(void)
{
    ev_run(contract_loop, EVRUN_NOWAIT);
}

/* --- calls --- */

struct answer {
    bool reported;
    const struct backend_claim *claim; /* of an acquire */
    struct contract_acquired acquired;
    enum backend_result result;
    struct backend_info info;
    size_t listed;
    char *last;
};

static void on_done(void *arg, enum backend_result result)
{
    struct answer *answer = arg;

    ck_assert_msg(!answer->reported, "completed twice");
    answer->reported = true;
    contract_end_turn();
    answer->result = result;
}

static enum backend_result wait_done(struct answer *answer)
{
    CONTRACT_UNTIL(answer->reported);
    return answer->result;
}

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    struct answer *answer = arg;

    ck_assert_msg(!answer->reported, "completed twice");
    ck_assert_msg((ticket != NULL) == (result == BACKEND_OK || result == BACKEND_QUEUED), "ticket with %s",
                  backend_result_name(result));
    ck_assert_msg((holder != NULL) == (result == BACKEND_BUSY), "holder with %s", backend_result_name(result));
    answer->reported = true;
    contract_end_turn();
    answer->acquired = (struct contract_acquired){.result = result, .ticket = ticket, .holder = holder != NULL};
    if (ticket) { /* now: it may end in the loop's same turn */
        ck_assert_int_eq(ticket->held, result == BACKEND_OK);
        ck_assert_uint_gt(ticket->fence, 0);
        ck_assert_ptr_eq(ticket->user, answer->claim->user);
    }
    if (holder) {
        answer->acquired.kind = holder->kind;
        answer->acquired.fence = holder->fence;
        answer->acquired.holding = holder->ticket;
    }
}

struct backend_claim contract_claim(enum backend_kind kind, struct contract_log *log)
{
    return (struct backend_claim){.kind = kind, .user = log, .ttl = CONTRACT_LONG};
}

struct contract_acquired contract_acquire(const char *name, const struct backend_claim *claim)
{
    struct answer answer = {.claim = claim};
    struct backend_ticket *ticket = backend_acquire(contract_backend, name, claim, on_acquired, &answer);

    ck_assert_msg(ticket || answer.reported, "neither a ticket nor an answer");
    CONTRACT_UNTIL(answer.reported);
    if (answer.acquired.ticket) {
        ck_assert_ptr_eq(answer.acquired.ticket, ticket);
    }
    return answer.acquired;
}

static struct backend_ticket *get(const char *name, const struct backend_claim *claim, enum backend_result expected)
{
    struct contract_acquired acquired = contract_acquire(name, claim);

    ck_assert_msg(acquired.result == expected, "%s: %s", name, backend_result_name(acquired.result));
    return acquired.ticket;
}

struct backend_ticket *contract_get(const char *name, enum backend_kind kind, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(kind, log);

    return get(name, &claim, BACKEND_OK);
}

struct backend_ticket *contract_get_soon(const char *name, const struct backend_claim *claim)
{
    struct contract_acquired acquired;

    while ((acquired = contract_acquire(name, claim)).result == BACKEND_UNREACHABLE)
        ck_assert_int_lt(claim->ttl, CONTRACT_LONG);
    ck_assert_msg(acquired.result == BACKEND_OK, "%s: %s", name, backend_result_name(acquired.result));
    return acquired.ticket;
}

void contract_pass(int64_t ttl)
{
    struct contract_log marker = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &marker);

    claim.ttl = ttl;
    contract_get_soon(CONTRACT_MARKER, &claim);
    CONTRACT_UNTIL(marker.ended);
}

struct backend_ticket *contract_get_shared(const char *name, enum backend_kind kind, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(kind, log);

    claim.mode = BACKEND_SHARED;
    return get(name, &claim, BACKEND_OK);
}

struct backend_ticket *contract_queue(const char *name, enum backend_mode mode, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, log);

    claim.mode = mode;
    claim.wait = true;
    return get(name, &claim, BACKEND_QUEUED);
}

bool contract_is_busy(const char *name)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct contract_acquired acquired = contract_acquire(name, &claim);

    if (acquired.result == BACKEND_BUSY)
        return true;
    ck_assert_msg(acquired.result == BACKEND_OK, "%s: %s", name, backend_result_name(acquired.result));
    ck_assert_int_eq(contract_release(acquired.ticket), BACKEND_OK);
    return false;
}

enum backend_result contract_release(struct backend_ticket *ticket)
{
    struct answer answer = {0};

    backend_release(contract_backend, ticket, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_convert(struct backend_ticket *ticket, const struct backend_claim *claim)
{
    struct answer answer = {0};

    backend_convert(contract_backend, ticket, claim, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_set(struct backend_ticket *ticket, const struct backend_change *change)
{
    struct answer answer = {0};

    backend_set(contract_backend, ticket, change, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_revoke(const char *name, uint64_t fence)
{
    struct answer answer = {0};

    backend_revoke(contract_backend, name, fence, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_revoke_matching(const char *name, uint64_t fence, unsigned word, const char *text)
{
    struct answer answer = {0};
    struct backend_match match = {.word = word};

    g_strlcpy(match.text, text, sizeof match.text);
    backend_revoke_matching(contract_backend, name, fence, &match, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_rename(struct backend_ticket *ticket, const char *name)
{
    return contract_rename_over(ticket, name, NULL);
}

enum backend_result contract_rename_over(struct backend_ticket *ticket, const char *name,
                                         struct backend_ticket *replaced)
{
    struct answer answer = {0};

    backend_rename(contract_backend, ticket, name, replaced, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_mkdir(const char *name, const struct backend_directory *directory)
{
    static const struct backend_directory plain = {.width = 1};
    struct answer answer = {0};

    backend_mkdir(contract_backend, name, directory ? directory : &plain, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_rmdir(const char *name)
{
    struct answer answer = {0};

    backend_rmdir(contract_backend, name, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_set_directory(const char *name, const struct backend_directory *directory)
{
    struct answer answer = {0};

    backend_set_directory(contract_backend, name, directory, on_done, &answer);
    return wait_done(&answer);
}

enum backend_result contract_release_range(struct backend_ticket *ticket, uint64_t start, uint64_t end)
{
    struct answer answer = {0};

    bool left = backend_release_range(contract_backend, ticket, start, end, on_done, &answer);
    enum backend_result result = wait_done(&answer);

    return left ? result : BACKEND_MISSING;
}

/* --- questions --- */

static GBytes *keep(GBytes *bytes)
{
    if (bytes)
        g_ptr_array_add(kept, g_bytes_ref(bytes));
    return bytes;
}

GBytes *contract_bytes(const char *text)
{
    GBytes *bytes = g_bytes_new(text, strlen(text));

    g_ptr_array_add(kept, bytes);
    return bytes;
}

bool contract_equal(GBytes *bytes, const char *text)
{
    return bytes && g_bytes_get_size(bytes) == strlen(text) &&
           memcmp(g_bytes_get_data(bytes, NULL), text, strlen(text)) == 0;
}

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct answer *answer = arg;

    ck_assert_msg(!answer->reported, "completed twice");
    ck_assert_int_eq(result, BACKEND_OK);
    answer->reported = true;
    contract_end_turn();
    answer->info = *info;
    keep(info->meta);
    keep(info->content);
    keep(info->directory.meta);
}

struct backend_info contract_stat(const char *name)
{
    struct answer answer = {0};

    backend_stat(contract_backend, name, on_known, &answer);
    CONTRACT_UNTIL(answer.reported);
    return answer.info;
}

struct backend_info contract_test_and_release(const char *name, const struct backend_claim *claim,
                                              struct backend_ticket *ticket)
{
    struct answer answer = {0};

    backend_test(contract_backend, name, claim, on_known, &answer);
    if (ticket)
        backend_release(contract_backend, ticket, NULL, NULL);
    CONTRACT_UNTIL(answer.reported);
    return answer.info;
}

struct backend_info contract_test(const char *name, const struct backend_claim *claim)
{
    return contract_test_and_release(name, claim, NULL);
}

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct answer *answer = arg;

    ck_assert_msg(!answer->reported, "completed twice");
    answer->reported = true;
    contract_end_turn();
    answer->result = result;
    answer->listed = count;
    for (size_t i = 0; i < count; i++)
        g_string_append_printf(listing, "%s%s%s", listing->len ? " " : "", entries[i].name,
                               entries[i].type == BACKEND_DIRECTORY ? "/" : "");
    if (count) {
        g_free(answer->last);
        answer->last = g_strdup(entries[count - 1].name);
    }
}

const char *contract_list(const char *directory, size_t part)
{
    struct answer answer = {.listed = part};

    g_string_truncate(listing, 0);
    while (answer.listed) {
        answer.reported = false;
        backend_list(contract_backend, directory, answer.last ? answer.last : "", part, on_listed, &answer);
        ck_assert_int_eq(wait_done(&answer), BACKEND_OK);
        ck_assert_uint_le(answer.listed, part);
    }
    g_free(answer.last);
    return listing->str;
}

static void on_tickets(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct answer *answer = arg;

    answer->reported = true;
    contract_end_turn();
    answer->result = result;
    answer->listed = count;
    for (size_t i = 0; i < count; i++) {
        const struct backend_info *info = entries[i].info;
        if (info->type != BACKEND_LOCK)
            continue;
        ck_assert_int_le(clock_now() - info->acquired, 60000);
        ck_assert_ptr_nonnull(info->meta);
        g_string_append_printf(listing, "%s%s %s", listing->len ? ", " : "", entries[i].name,
                               info->holders > 0 ? "held" : "waits");
    }
    if (count) {
        g_free(answer->last);
        answer->last = g_strdup(entries[count - 1].name);
    }
}

const char *contract_tickets(const char *directory, size_t part)
{
    struct answer answer = {.listed = part};

    g_string_truncate(listing, 0);
    while (answer.listed) {
        answer.reported = false;
        backend_tickets(contract_backend, directory, answer.last ? answer.last : "", part, on_tickets, &answer);
        ck_assert_int_eq(wait_done(&answer), BACKEND_OK);
        ck_assert_uint_le(answer.listed, part);
    }
    g_free(answer.last);
    return listing->str;
}

enum backend_result contract_list_result(const char *directory)
{
    struct answer answer = {0};

    backend_list(contract_backend, directory, "", 10, on_listed, &answer);
    wait_done(&answer);
    g_free(answer.last);
    return answer.result;
}

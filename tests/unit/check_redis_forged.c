/* check_redis_forged: answers of the Redis server that were changed on their way.
 *
 * A proxy before a mount changes real answers: a word, number, name or id for another, lengths, nesting, bytes, or all
 * of it.  Nothing that arrives may harm the daemon's memory (run it with --enable-sanitizers), be reported twice or
 * never, or end the locks of a mount without the proxy.
 *
 * FORGED_ANSWERS is how many are changed (default 400), FORGED_SEED selects them.
 */
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "tests/support/check_main.h"
#include "tests/support/relay.h"
#include "tests/unit/hosts_fixture.h"

enum { NAMES = 6, TICKETS = 24, LOCK_OWNERS = 3, MEMORY = 64 };

static const char *const names[NAMES] = {"a", "b", "d/a", "d/b", "e", "{t}x"};

static struct relay *proxy;
static GRand *source;

static unsigned dice(unsigned sides)
{
    return (unsigned)g_rand_int_range(source, 0, (gint32)sides);
}

static void setup(void)
{
    hosts_setup();
    log_set_level(LOG_LEVEL_ERROR);
    source = g_rand_new_with_seed(1);
    proxy = relay_to(hosts_loop, redis_server_port(hosts_server));
    hosts_until_up(1);
    hosts_reach_by(relay_port(proxy));
    hosts_options.conn.retry_max = 1;
    hosts_until_up(0);
}

static void teardown(void)
{
    relay_forge(proxy, NULL, NULL);
    hosts_close(0);
    relay_end();
    g_rand_free(source);
    hosts_teardown();
}

/* --- one forged answer --- */

struct swap {
    const char *about, *to; /* instead of pieces that have `about` in them */
    unsigned done;
};

/* The id of an uncontended holder, one hexadecimal digit at a time. */
static void read_token(const char *key, char token[33])
{
    for (int i = 1; i <= 32; i++) {
        char script[128];

        g_snprintf(script, sizeof(script), "return tonumber(redis.call('GET', '%s'):sub(%d, %d), 16)", key, i + 12,
                   i + 12);
        g_snprintf(token + i - 1, 2, "%llx", redis_server_do(hosts_server, "EVAL %s 0", script));
    }
}

static void answer_always_with(void *arg, GString *piece)
{
    struct swap *s = arg;

    if (memmem(piece->str, piece->len, s->about, strlen(s->about))) {
        s->done++;
        g_string_assign(piece, s->to);
    }
}

/* Changes the last string of a reply that contains it, because others come before it. */
static void end_with(void *arg, GString *piece)
{
    struct swap *s = arg;
    const char *at = memmem(piece->str, piece->len, s->about, strlen(s->about));

    if (at) {
        while (*at != '$')
            at--;
        s->done++;
        g_string_truncate(piece, (gsize)(at - piece->str));
        g_string_append(piece, s->to);
    }
}

static void answer_with(void *arg, GString *piece)
{
    const struct swap *s = arg;

    if (s->done == 0)
        answer_always_with(arg, piece);
}

START_TEST(grant_with_the_token_of_another_lock_frees_nothing)
{
    struct hosts_record *a = hosts_get(0, "a", HOSTS_LONG), *b;
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    char token[33], *forged;
    struct swap s = {.about = "granted "};

    read_token("h:a", token);
    s.to = forged = g_strdup_printf("*5\r\n$7\r\ngranted\r\n$32\r\n%s\r\n$1\r\n1\r\n$0\r\n\r\n$0\r\n\r\n", token);
    relay_forge(proxy, end_with, &s);
    b = hosts_acquire(0, "b", &claim);
    relay_forge(proxy, NULL, NULL);
    ck_assert_uint_ge(s.done, 1);
    ck_assert_int_eq(b->result, BACKEND_UNREACHABLE);
    hosts_until_up(0);
    ck_assert_ptr_nonnull(a->ticket);
    ck_assert_int_eq(hosts_stat(0, "a").type, BACKEND_LOCK);
    ck_assert_int_eq(hosts_release(a), BACKEND_OK);
    HOSTS_UNTIL(!hosts_exists("h:a") && !hosts_exists("h:b"));
    hosts_release(hosts_get(0, "b", HOSTS_LONG));
    g_free(forged);
}
END_TEST

/* Each instead of an answer to stat. */
static const char *const monsters[] = {
    "*2000000000\r\n",
    "*60000\r\n*60000\r\n*60000\r\n",
    "*65537\r\n",
    "$900000000000\r\n",
    "$9000000\r\nx",
    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    "*-5\r\n",
    "$-7\r\n",
    ":99999999999999999999999999\r\n",
    "*2\r\n$4\r\nlock\r\n*3\r\n:1\r\n:2\r\n",
    "\xff\xff\xff\xff\r\n",
};

START_TEST(answer_that_is_too_large_or_invalid_only_ends_the_connection)
{
    struct swap s = {.about = "\r\nlock\r\n", .to = monsters[_i]};
    struct hosts_record *a = hosts_get(0, "a", HOSTS_LONG);
    clock_ms requested = clock_now();

    relay_forge(proxy, answer_with, &s);
    ck_assert_int_eq(hosts_stat(0, "a").type, BACKEND_LOCK); /* asked again on the next connection */
    relay_forge(proxy, NULL, NULL);
    if (_i < 5) /* at once, not when patience ends */
        ck_assert_int_lt(clock_now() - requested, HOSTS_COMMAND_TIMEOUT);
    ck_assert_uint_eq(a->ended, 0);
    hosts_release(a);
}
END_TEST

/* A lock that says of itself what cannot be. */
static struct backend_info record_info;

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    if (info) {
        record_info = *info;
        record_info.meta = record_info.content = NULL;
        *(gsize *)arg = info->content ? g_bytes_get_size(info->content) : 0;
    }
    ck_assert_int_eq(result, BACKEND_OK);
    record_info.waiters += 1000000000; /* the counts are reported */
}

START_TEST(numbers_and_contents_beyond_all_bounds_are_cut)
{
    GString *content = g_string_new("*16\r\n$4\r\nlock\r\n:77\r\n:9\r\n:99999999999999999\r\n"
                                    ":9223372036854775807\r\n:9223372036854775807\r\n:9223372036854775807\r\n"
                                    "$1\r\nm\r\n$1\r\nx\r\n$40\r\nffffffffffffffffffffffffffffffffffffffff\r\n"
                                    "$1\r\n0\r\n$1\r\ny\r\n$100000\r\n");
    struct swap s = {.about = ":0\r\n"}; /* nothing is there */
    gsize size = 0;

    for (int i = 0; i < 100000; i++)
        g_string_append_c(content, 'c');
    g_string_append(content, "\r\n:-1\r\n:-1\r\n:99999999999\r\n");
    s.to = content->str;
    hosts_stat(0, "b"); /* what else the server had to say has been said */
    relay_forge(proxy, answer_with, &s);
    record_info.waiters = 0;
    backend_stat(hosts_mount(0), "a", on_known, &size);
    HOSTS_UNTIL(record_info.waiters);
    ck_assert_int_eq(record_info.type, BACKEND_LOCK);
    ck_assert_int_le(record_info.kind, BACKEND_FCNTL);
    ck_assert_int_le(record_info.deadline, clock_now() + INT64_C(316000000000));
    ck_assert_uint_eq(record_info.fence, 0);
    ck_assert_uint_le(size, 65536);
    ck_assert_uint_eq(record_info.holders, 0);
    g_string_free(content, TRUE);
}
END_TEST

START_TEST(content_that_another_client_has_written_is_cut_where_it_is)
{
    static const char *const write[] = {
        "local t = redis.call('GET', 'h:a') redis.call('HSET', 'lfs:i:h:a', 'c:' .. t, string.rep('c', 3000000))",
        "local t = redis.call('GET', 'h:a') redis.call('HSET', 'lfs:i:h:a', 'c:' .. t, string.rep('c', 9000000))",
        "local v = redis.call('GET', 'h:a') local at = v:match('^%d+ %d+ %d+ ()', 45) "
        "local t = cmsgpack.unpack(v:sub(at)) t.content = string.rep('c', 1000000) "
        "redis.call('SET', 'h:a', v:sub(1, at - 1) .. cmsgpack.pack(t), 'PX', 60000)"};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *a = hosts_get(0, "a", HOSTS_LONG);
    gsize size = 0;

    if (_i < 2) /* from then on it has side keys */
        ck_assert_int_eq(hosts_acquire(1, "a", &claim)->result, BACKEND_BUSY);
    redis_server_do(hosts_server, "EVAL %s 0", write[_i]);
    record_info.waiters = 0;
    backend_stat(hosts_mount(0), "a", on_known, &size);
    HOSTS_UNTIL(record_info.waiters);
    ck_assert_uint_eq(size, 65536);
    hosts_release(a);
}
END_TEST

/* --- many, at random --- */

static GPtrArray *seen; /* what was said before: GString */
static uint64_t changed;

static void remember(const char *data, size_t length)
{
    if (length == 0 || length > 4096)
        return;
    if (seen->len >= MEMORY)
        g_ptr_array_remove_index_fast(seen, dice(seen->len));
    g_ptr_array_add(seen, g_string_new_len(data, (gssize)length));
}

/* The nth (counted from 0) line that begins a value, or -1. */
static gssize find_value(const GString *piece, unsigned nth)
{
    for (gsize i = 0; i < piece->len; i++)
        if (strchr("*$:+-", piece->str[i]) && piece->str[i] && (i == 0 || piece->str[i - 1] == '\n') && nth-- == 0)
            return (gssize)i;
    return -1;
}

static unsigned count_values(const GString *piece)
{
    unsigned count = 0;

    for (gsize i = 0; i < piece->len; i++)
        count += piece->str[i] && strchr("*$:+-", piece->str[i]) && (i == 0 || piece->str[i - 1] == '\n');
    return count;
}

static gsize line_end(const GString *piece, gsize from)
{
    const char *end = memmem(piece->str + from, piece->len - from, "\r\n", 2);

    return end ? (gsize)(end - piece->str) + 2 : piece->len;
}

static const char *const words[] = {"granted", "queued",  "busy", "ok",        "stale",        "missing", "exists",
                                    "lock",    "nothing", "free", "directory", "notdirectory", "invalid", ""};
static const char *const numbers[] = {"0",
                                      "1",
                                      "2",
                                      "-1",
                                      "-2",
                                      "77",
                                      "65535",
                                      "4294967295",
                                      "4294967296",
                                      "9007199254740993",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "18446744073709551615",
                                      "1e300",
                                      "nan"};

static void put_bulk(GString *piece, gsize at, gsize end, const char *data, gsize length)
{
    char head[32];

    g_string_erase(piece, (gssize)at, (gssize)(end - at));
    g_snprintf(head, sizeof(head), "$%zu\r\n", length);
    g_string_insert_len(piece, (gssize)at, "\r\n", 2);
    g_string_insert_len(piece, (gssize)at, data, (gssize)length);
    g_string_insert(piece, (gssize)at, head);
}

/* Changes one string for a word, a number, another that was seen, or a long one; the rest stays as it is. */
static void change_string(GString *piece, gsize at)
{
    gsize body = line_end(piece, at), length = (gsize)MAX(g_ascii_strtoll(piece->str + at + 1, NULL, 10), 0);
    gsize end = MIN(body + MIN(length, piece->len) + 2, piece->len);
    const GString *other = seen->len ? seen->pdata[dice(seen->len)] : NULL;
    char *copy;

    remember(piece->str + body, MIN(length, piece->len - MIN(body, piece->len)));
    switch (dice(6)) {
    case 0:
        put_bulk(piece, at, end, words[dice(G_N_ELEMENTS(words))], 0);
        break;
    case 1: {
        const char *word = words[dice(G_N_ELEMENTS(words))];

        put_bulk(piece, at, end, word, strlen(word));
        break;
    }
    case 2: {
        const char *number = numbers[dice(G_N_ELEMENTS(numbers))];

        put_bulk(piece, at, end, number, strlen(number));
        break;
    }
    case 3:
        copy = g_strnfill(1u << dice(20), "a/.:0"[dice(5)]);
        put_bulk(piece, at, end, copy, strlen(copy));
        g_free(copy);
        break;
    default:
        if (other) {
            copy = g_memdup2(other->str, other->len);
            put_bulk(piece, at, end, copy, other->len);
            g_free(copy);
        }
    }
}

static void change_value(GString *piece)
{
    gssize found = find_value(piece, dice(MAX(count_values(piece), 1)));
    gsize at = (gsize)found, end;

    if (found < 0)
        return;
    if (piece->str[at] == '$' && dice(8)) {
        change_string(piece, at);
        return;
    }
    end = line_end(piece, at);
    g_string_erase(piece, (gssize)at + 1, (gssize)(end - at - 1));
    g_string_insert(piece, (gssize)at + 1, "\r\n");
    g_string_insert(piece, (gssize)at + 1,
                    dice(8) ? numbers[dice(G_N_ELEMENTS(numbers))] : "2000000000000000000000000");
    if (dice(4) == 0)
        piece->str[at] = "*$:+-"[dice(5)];
}

static void change_bytes(GString *piece)
{
    gsize at = dice((unsigned)piece->len), length = dice(8) + 1u;

    switch (dice(5)) {
    case 0:
        piece->str[at] = (char)dice(256);
        break;
    case 1:
        g_string_truncate(piece, at);
        break;
    case 2:
        g_string_erase(piece, (gssize)at, (gssize)MIN(piece->len - at, length));
        break;
    case 3:
        g_string_insert(piece, (gssize)at, monsters[dice(G_N_ELEMENTS(monsters))]);
        break;
    default: {
        char *copy = g_strndup(piece->str, piece->len);

        g_string_insert_len(piece, (gssize)at, copy, (gssize)MIN(piece->len, 512));
        g_free(copy);
    }
    }
}

/* Three of four answers arrive as they are: or nothing would be held that could be harmed. */
static void change(void *arg, GString *piece)
{
    (void)arg;
    if (dice(4))
        return;
    changed++;
    if (dice(12))
        change_value(piece);
    else
        change_bytes(piece);
    if (piece->len == 0)
        g_string_append_c(piece, '\n');
}

static struct hosts_record *tickets[TICKETS];
static unsigned open_calls;

static void on_done(void *arg, enum backend_result result)
{
    (void)arg, (void)result;
    open_calls--;
}

static void on_any_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    (void)arg;
    if (result == BACKEND_OK && info->ticket) {
        char name[8192];

        ck_assert(info->ticket->fence < UINT64_MAX);
        backend_ticket_name(hosts_mount(0), info->ticket, name, sizeof(name));
    }
    open_calls--;
}

static void on_any_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    (void)arg, (void)result;
    for (size_t i = 0; i < count; i++)
        ck_assert(*entries[i].name && !strchr(entries[i].name, '/') && strlen(entries[i].name) <= 255);
    open_calls--;
}

static void take(struct hosts_record **slot)
{
    static const enum backend_kind kinds[] = {BACKEND_PROVISIONAL, BACKEND_LEASE, BACKEND_FLOCK, BACKEND_FCNTL};
    struct backend_claim claim = hosts_claim(kinds[dice(4)], 10000);
    const char *name = names[dice(NAMES)];

    claim.mode = dice(3) ? BACKEND_EXCLUSIVE : BACKEND_SHARED;
    claim.wait = dice(2);
    claim.handle = dice(3);
    if (claim.kind == BACKEND_FCNTL) {
        claim.lock_owner = 1 + dice(LOCK_OWNERS);
        claim.handle = 0;
        claim.start = dice(10);
        claim.end = claim.start + dice(10);
    } else if (dice(3) == 0) {
        claim.sequence = true;
        name = dice(2) ? "d/s-" : "s-";
    }
    *slot = hosts_request(0, name, &claim);
    if (claim.kind == BACKEND_FCNTL) { /* the lock owner keeps it */
        (*slot)->renews = false;
        *slot = NULL;
    }
}

static void change_ticket(struct hosts_record **slot)
{
    struct hosts_record *record = *slot;
    struct backend_ticket *ticket = record->ticket;
    struct backend_claim claim = hosts_claim(dice(2) ? BACKEND_LEASE : BACKEND_FLOCK, 10000);
    struct backend_change what = {.set = BACKEND_SET_CONTENT, .content = NULL};
    struct backend_renewal renewal = {.ticket = ticket, .ttl = 5000 + dice(5000), .due = 1000};

    if (!ticket) {
        *slot = NULL; /* refused, or ended */
        return;
    }
    if (!record->answered && dice(4))
        return;
    switch (record->answered ? dice(6) : 0) {
    case 0:
    case 1:
        record->ticket = NULL;
        open_calls++;
        backend_release(hosts_mount(0), ticket, on_done, NULL);
        *slot = NULL;
        break;
    case 2:
        if (ticket->held) {
            claim.user = record;
            open_calls++;
            backend_convert(hosts_mount(0), ticket, &claim, on_done, NULL);
        }
        break;
    case 3:
        what.content = g_bytes_new_static("content", 7);
        open_calls++;
        backend_set(hosts_mount(0), ticket, &what, on_done, NULL);
        g_bytes_unref(what.content);
        break;
    case 4:
        backend_renew(hosts_mount(0), &renewal, 1);
        break;
    default:
        if (ticket->held) {
            open_calls++;
            backend_rename(hosts_mount(0), ticket, names[dice(NAMES)], NULL, on_done, NULL);
        }
    }
}

static void ask_something(void)
{
    struct backend *b = hosts_mount(0);
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, 2000);
    struct backend_directory directory = {.width = 1 + dice(3), .delay = dice(2)};
    const char *name = names[dice(NAMES)];
    struct hosts_record *holder;
    struct backend_ticket *ticket;

    claim.lock_owner = 1 + dice(LOCK_OWNERS);
    holder = hosts_of_lock_owner(0, name, claim.lock_owner);
    open_calls++;
    switch (dice(8)) {
    case 0:
        backend_test(b, name, &claim, on_any_known, NULL);
        break;
    case 1:
        backend_list(b, dice(2) ? "d" : "", "", 10, on_any_listed, NULL);
        break;
    case 2:
        backend_revoke(b, name, dice(2), on_done, NULL);
        break;
    case 3:
        backend_set_directory(b, dice(2) ? "d" : "", &directory, on_done, NULL);
        break;
    case 4:
        if (holder) {
            uint64_t first = dice(8), last = 8 + dice(8);
            if (!backend_release_range(b, holder->ticket, first, last, on_done, NULL)) {
                holder->ticket = NULL;
            }
            break;
        }
        G_GNUC_FALLTHROUGH;
    case 5:
        if (holder) {
            ticket = holder->ticket;
            holder->ticket = NULL;
            backend_release(b, ticket, on_done, NULL);
            break;
        }
        G_GNUC_FALLTHROUGH;
    default:
        backend_stat(b, dice(8) ? name : "s-0000000000", on_any_known, NULL);
    }
}

static void act(void)
{
    struct hosts_record **slot = &tickets[dice(TICKETS)];

    if (dice(3) == 0)
        ask_something();
    else if (*slot)
        change_ticket(slot);
    else
        take(slot);
}

static uint64_t wanted(void)
{
    const char *count = g_getenv("FORGED_ANSWERS");

    return count ? g_ascii_strtoull(count, NULL, 10) : 400;
}

static void free_seen(gpointer piece)
{
    g_string_free(piece, TRUE);
}

START_TEST(forged_answers_harm_nobody)
{
    const char *seed = g_getenv("FORGED_SEED");
    struct backend_directory directory = {.width = 2};
    struct hosts_record *bystander;
    clock_ms said = clock_now();

    g_rand_set_seed(source, seed ? (guint32)g_ascii_strtoull(seed, NULL, 10) : 1);
    seen = g_ptr_array_new_with_free_func(free_seen);
    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    bystander = hosts_get(1, "bystander", HOSTS_LONG);
    relay_forge(proxy, change, NULL);
    while (changed < wanted()) {
        for (unsigned i = dice(6); i > 0 && open_calls < 64; i--)
            act();
        hosts_restart_time_limit();
        hosts_turn();
        if (clock_now() - said > 20000) {
            said = clock_now();
            fprintf(stderr, "# %llu answers forged\n", (unsigned long long)changed);
        }
    }
    relay_forge(proxy, NULL, NULL);
    hosts_until_up(0);
    HOSTS_UNTIL(open_calls == 0);
    ck_assert_uint_eq(bystander->ended, 0);
    ck_assert_int_eq(hosts_release(bystander), BACKEND_OK);
    hosts_until_open(0);                              /* a version that is forged is another one */
    hosts_release(hosts_get(0, "after", HOSTS_LONG)); /* it goes on */
    g_ptr_array_unref(seen);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_forged");
    TCase *tcase = tcase_create("forged");

    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, grant_with_the_token_of_another_lock_frees_nothing);
    tcase_add_loop_test(tcase, answer_that_is_too_large_or_invalid_only_ends_the_connection, 0, G_N_ELEMENTS(monsters));
    tcase_add_test(tcase, numbers_and_contents_beyond_all_bounds_are_cut);
    tcase_add_loop_test(tcase, content_that_another_client_has_written_is_cut_where_it_is, 0, 3);
    tcase_add_test(tcase, forged_answers_harm_nobody);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

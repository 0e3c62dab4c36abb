/* version: whether the server has forgotten what it was told.
 *
 * Its data have a version (script/enter.lua), which every script that changes a lock compares with the one that this
 * mount knows.  When a server is restarted without all of its data, flushed, or replaced by a replica, the first mount
 * to notice closes the store: nothing new is granted, while each mount puts back what it believes in, by its old ticket
 * and number.  Who has known it to be closed for as long as the longest renewable term opens it: no holder that was
 * away all that time believes in its own any more.  That time is counted by this host's clock, from when the closed
 * version was heard of, so steps of the server's do not matter.
 *
 * With `wait` of n data nodes, half of n rounded down, it is counted from when so many replicas were known to have the
 * closed version.  Any term that was believed in on an older master was known to as many nodes, so to one of those;
 * that one had heard of the term before it followed the new master.  So the term had begun before the count.
 */
#include <errno.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/pack.h"
#include "backend/redis/private.h"

/* --- asking --- */

static void version_fill(struct redis_call *call, struct redis *r)
{
    char fresh[REDIS_STAMP_MAX + 1];
    g_snprintf(fresh, sizeof fresh, "%08x%08x", g_random_int(), g_random_int());
    *call = (struct redis_call){.r = r, .script = REDIS_ENTER};
    redis_call_key(call, 'v', "");
    redis_call_key(call, 'r', "");
    redis_call_text(call, "version", r->version);
    redis_call_number(call, "longest", r->longest);
    redis_call_number(call, "most", r->grace);
    redis_call_text(call, "fresh", fresh);
    redis_call_number(call, "closed", r->closed ? clock_now() - r->closed : 0);
    redis_call_flag(call, "strict", r->strict);
}

void redis_version_greet(void *context)
{
    struct redis *r = context;
    struct redis_call call;
    size_t keys, count;
    version_fill(&call, r);
    const struct redis_argument *arguments = redis_call_arguments(&call, &keys, &count);
    redis_conn_greet(r->conn, keys, arguments, count);
    redis_call_end(r);
}

/* As enter.lua says. */
static int64_t version_left(const struct redis *r)
{
    int64_t closed = r->longest + r->longest / 100 + 2;
    return r->closed ? MAX(r->closed + closed - clock_now(), 0) : closed;
}

/* How long it is closed is counted from here: the reply has come, so what was granted before it was closed was
 * granted earlier.  If replicas have to have it, they do if it is `confirmed`. */
static void version_set(struct redis *r, const char *version, char state, int64_t longest, bool confirmed)
{
    bool changed = strcmp(version, r->version) != 0, forgotten = changed && *r->version;
    bool was_closed = redis_is_closed(r), closes = state == 'c' && (changed || !was_closed);
    r->longest = longest;
    if (closes || state != 'c') {
        r->closed = 0;
    }
    if (state == 'c' && !r->closed && confirmed) {
        r->closed = clock_now();
    }
    if (closes) {
        log_warning(
            "the Redis server has forgotten, or may have: nothing new is granted for %.1f s, while what is held is "
            "put back",
            (double)version_left(r) / 1000);
    } else if (state != 'c' && was_closed) {
        log_info("the Redis server grants locks again");
    }
    g_strlcpy(r->version, version, sizeof r->version);
    redis_conn_stamp(r->conn, version);
    r->state = state;
    r->renewed = r->renewed || forgotten;
    r->noted = changed ? 0 : r->noted;
    ev_timer_stop(r->remote.loop, &r->opening);
    if (r->closed) {
        ev_timer_set(&r->opening, (double)MAX(version_left(r), 1) / 1000, 0);
        ev_timer_start(r->remote.loop, &r->opening);
    }
}

static bool version_take(struct redis *r, const redisReply *reply, bool confirmed)
{
    const char *version = redis_text(reply, 0), *state = redis_text(reply, 1);
    int64_t longest = redis_time(reply, 2);
    if (strlen(version) != 16 || strspn(version, "0123456789abcdef") != 16 || strlen(state) != 1 ||
        !strchr("fco", *state) || longest < 0) {
        return false;
    }
    version_set(r, version, *state, MIN(longest, r->grace), confirmed);
    return true;
}

bool redis_version_greeted(void *context, const redisReply *reply)
{
    struct redis *r = context;
    return version_take(r, reply, r->wait == 0);
}

static void version_on_looked(void *arg, const struct redis_answer *answer)
{
    struct redis *r = arg;
    bool was_closed = redis_is_closed(r);
    if (answer->outcome != REMOTE_ANSWERED || !version_take(r, answer->reply, true)) {
        redis_failure(r, answer);
        if (was_closed || answer->outcome == REMOTE_UNKNOWN) {
            ev_timer_stop(r->remote.loop, &r->opening);
            ev_timer_set(&r->opening, (double)REMOTE_RENEW_RETRY / 1000, 0);
            ev_timer_start(r->remote.loop, &r->opening);
        }
    } else if (r->renewed) {
        redis_version_up(r);
        remote_up(&r->remote);
    } else if (was_closed && !redis_is_closed(r)) {
        remote_changed(&r->remote, NULL);
    }
}

static void version_ask(struct redis *r)
{
    struct redis_call call;
    version_fill(&call, r);
    redis_call_send(&call, 0, version_on_looked, r);
}

static void version_on_opening(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    version_ask(timer->data);
}

static char *version_key(struct redis *r)
{
    char *root = redis_key(r, ""), *key = g_strconcat("lfs:v:", root, NULL);
    g_free(root);
    return key;
}

bool redis_version_is_key(struct redis *r, const char *key, size_t length)
{
    char *own = version_key(r);
    bool is = length == strlen(own) && memcmp(key, own, length) == 0;
    g_free(own);
    return is;
}

/* What changes behind the watch is told. */
void redis_version_look(struct redis *r)
{
    char *key = version_key(r);
    redis_conn_watch(r->conn, key, strlen(key), NULL, NULL, NULL);
    g_free(key);
    version_ask(r);
}

/* --- what was there --- */

/* The directory and those that it is in, from the top. */
static void version_restore(struct redis *r, GHashTable *done, const char *name)
{
    const char *leaf;
    if (!g_hash_table_add(done, g_strdup(name))) {
        return;
    }
    if (*name) {
        char *parent = remote_parent(name, &leaf);
        version_restore(r, done, parent);
        g_free(parent);
    }
    redis_restore_directory(r, name);
}

/* What is held is asked for behind this. */
void redis_version_up(struct redis *r)
{
    GHashTable *done;
    GHashTableIter each;
    const struct remote_ticket *t;
    if (!r->renewed) {
        return;
    }
    r->renewed = false;
    done = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_iter_init(&each, r->remote.tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        const char *leaf;
        char *directory = remote_parent(remote_ticket_name(t), &leaf);
        version_restore(r, done, directory);
        g_free(directory);
    }
    g_hash_table_unref(done);
}

/* --- beginning and end --- */

void redis_version_init(struct redis *r)
{
    ev_timer_init(&r->opening, version_on_opening, 0, 0);
    r->opening.data = r;
}

void redis_version_clear(struct redis *r)
{
    if (r->remote.loop) {
        ev_timer_stop(r->remote.loop, &r->opening);
    }
}

void redis_version_status(struct redis *r, GPtrArray *details)
{
    g_ptr_array_add(details, g_strdup_printf("version: %s", *r->version ? r->version : "not known"));
    if (redis_is_closed(r)) {
        g_ptr_array_add(details, g_strdup_printf("closed: %.1f s more", (double)version_left(r) / 1000));
    }
    g_ptr_array_add(details, g_strdup_printf("reclaimed: %" G_GUINT64_FORMAT, r->reclaimed));
    g_ptr_array_add(details, g_strdup_printf("lost: %" G_GUINT64_FORMAT, r->lost));
}

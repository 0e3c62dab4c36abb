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

/* --- terms --- */

#define VERSION_TERM_KEPT 60000  /* as in enter.lua */
#define VERSION_LOWER_AFTER 0.05 /* s: locks that are taken again and again are one */

/* Of all that this mount may be granted, or believes in; at least that of the next lock. */
static int64_t version_own_term(const struct redis *r, int64_t enough)
{
    GHashTableIter each;
    const struct remote_ticket *t;
    const struct remote_op *op;
    int64_t own = r->base;
    LIST_FOREACH(op, &r->remote.ops, link) {
        if (op->procedure == REMOTE_CONVERT && op->claim.due > 0) {
            own = MAX(own, MIN(op->claim.ttl, r->grace));
        }
    }
    g_hash_table_iter_init(&each, r->remote.tickets);
    while (own < enough && g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->due_after > 0 && t->state != REMOTE_WAITING) {
            own = MAX(own, MIN(t->head.ttl, r->grace));
        }
    }
    return own;
}

/* --- asking --- */

static void version_fill(struct redis_call *call, struct redis *r)
{
    char fresh[REDIS_STAMP_MAX + 1];
    g_snprintf(fresh, sizeof fresh, "%08x%08x", g_random_int(), g_random_int());
    *call = (struct redis_call){.r = r, .script = REDIS_ENTER};
    redis_call_key(call, 'v', "");
    redis_call_key(call, 'r', "");
    redis_call_key(call, 'g', "");
    redis_call_text(call, "version", r->version);
    redis_call_text(call, "mount", r->mount);
    redis_call_number(call, "term", r->term);
    redis_call_number(call, "others", r->others);
    redis_call_number(call, "count", r->terms);
    redis_call_number(call, "most", r->grace);
    redis_call_text(call, "fresh", fresh);
    redis_call_number(call, "closed", r->closed ? clock_now() - r->closed : 0);
    redis_call_flag(call, "back", g_hash_table_size(r->missing) == 0);
    redis_call_flag(call, "single", r->kind == REDIS_SERVER && r->wait == 0);
    redis_call_flag(call, "strict", r->strict);
    r->told_until = clock_now() + r->term + VERSION_TERM_KEPT;
    r->back = g_hash_table_size(r->missing) == 0;
}

void redis_version_greet(void *context)
{
    struct redis *r = context;
    struct redis_call call;
    size_t keys, count;
    r->term = version_own_term(r, INT64_MAX);
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

/* While it is closed.  Programs read this line. */
static char *version_describe(const struct redis *r)
{
    return g_strdup_printf("grace period: no new lock for %" G_GINT64_FORMAT " s, %s", (version_left(r) + 999) / 1000,
                           r->lost_data ? "the server lost data" : "the server was restarted");
}

/* What is believed in, and not put back yet. */
static void version_note_missing(struct redis *r)
{
    GHashTableIter each;
    const struct remote_ticket *t;
    g_hash_table_remove_all(r->missing);
    g_hash_table_iter_init(&each, r->remote.tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state == REMOTE_HELD && t->head.deadline > clock_now()) {
            g_hash_table_add(r->missing, g_strdup(t->token));
        }
    }
}

static gboolean version_is_over(gpointer token, gpointer unused, gpointer arg)
{
    struct redis *r = arg;
    const struct remote_ticket *t = remote_ticket_find(&r->remote, token);
    (void)unused;
    return !t || t->state != REMOTE_HELD || t->head.deadline <= clock_now();
}

void redis_version_put_back(struct redis *r, const char *token)
{
    if (g_hash_table_remove(r->missing, token) && g_hash_table_size(r->missing) == 0 && redis_is_closed(r)) {
        ev_timer_stop(r->remote.loop, &r->opening);
        ev_timer_set(&r->opening, 0, 0);
        ev_timer_start(r->remote.loop, &r->opening);
    }
}

/* When it is asked again: once all is put back, then when it may open; others tell of what they have put back. */
static void version_schedule(struct redis *r)
{
    ev_timer_stop(r->remote.loop, &r->opening);
    if (!redis_is_closed(r)) {
        return;
    }
    bool missing = g_hash_table_size(r->missing) > 0;
    if (r->closed || missing || !r->back) {
        double left = (double)MAX(version_left(r), 1) / 1000, soon = missing ? (double)REMOTE_RENEW_RETRY / 1000 : 0;
        ev_timer_set(&r->opening, missing || !r->back ? MIN(left, soon) : left, 0);
        ev_timer_start(r->remote.loop, &r->opening);
    }
}

/* A server that was restarted is open again in a moment if every mount is there: that is no news. */
static void version_announce(struct redis *r)
{
    if (redis_is_closed(r) && !r->announced && (r->lost_data || r->back)) {
        char *text = version_describe(r);
        r->announced = true;
        log_warning("%s: %s; mounts that are there put back the locks that they have", r->address, text);
        g_free(text);
    } else if (!redis_is_closed(r) && r->announced) {
        r->announced = false;
        log_info("%s: the grace period is over: locks are granted again", r->address);
    }
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
    g_strlcpy(r->version, version, sizeof r->version);
    redis_conn_stamp(r->conn, version);
    r->state = state;
    r->renewed = r->renewed || forgotten;
    r->noted = changed ? 0 : r->noted;
    if (closes) {
        version_note_missing(r);
        r->back = false;
    } else if (state != 'c') {
        g_hash_table_remove_all(r->missing);
    }
    version_schedule(r);
    version_announce(r);
}

static bool version_take(struct redis *r, const redisReply *reply, bool confirmed)
{
    const char *version = redis_text(reply, 0), *state = redis_text(reply, 1);
    int64_t longest = redis_time(reply, 2), others = redis_time(reply, 4), terms = redis_number(reply, 5);
    if (strlen(version) != 16 || strspn(version, "0123456789abcdef") != 16 || strlen(state) != 1 ||
        !strchr("fco", *state) || longest < 0 || others < 0 || terms < 0) {
        return false;
    }
    r->lost_data = redis_number(reply, 6) == 1;
    /* what a server that lost data does not know of may be believed in all the same */
    r->others = MIN(r->lost_data ? MAX(others, r->others) : others, r->grace);
    r->terms = MAX(r->terms, MIN(terms, INT64_C(1) << 53));
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
        r->told_until = 0;
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
    struct redis *r = timer->data;
    (void)loop, (void)events;
    g_hash_table_foreach_remove(r->missing, version_is_over, r);
    if (g_hash_table_size(r->missing) > 0 && r->closed && version_left(r) > 0) {
        version_schedule(r);
    } else {
        version_ask(r);
    }
}

/* --- terms that come and go --- */

void redis_version_use_term(struct redis *r, int64_t ttl, bool renewable)
{
    int64_t term = MIN(ttl, r->grace);
    if (renewable && (term > r->term || clock_now() + term > r->told_until)) {
        r->term = term > r->term ? term : MAX(term, version_own_term(r, INT64_MAX));
        r->told_until = clock_now() + r->term + VERSION_TERM_KEPT;
        if (redis_conn_is_up(r->conn)) { /* else it is told on the next connection, before what is asked for */
            version_ask(r);
        }
    }
}

void redis_version_drop_term(struct redis *r, int64_t ttl)
{
    if (MIN(ttl, r->grace) >= r->term && r->term > r->base && !ev_is_active(&r->lowering)) {
        ev_timer_set(&r->lowering, VERSION_LOWER_AFTER, 0);
        ev_timer_start(r->remote.loop, &r->lowering);
    }
}

static void version_on_lowering(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct redis *r = timer->data;
    int64_t own = version_own_term(r, r->term);
    (void)loop, (void)events;
    if (own < r->term && redis_conn_is_up(r->conn)) {
        r->term = own;
        version_ask(r);
    }
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
    ev_timer_init(&r->lowering, version_on_lowering, 0, 0);
    r->opening.data = r->lowering.data = r;
    r->missing = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

void redis_version_clear(struct redis *r)
{
    if (r->remote.loop) {
        ev_timer_stop(r->remote.loop, &r->opening);
        ev_timer_stop(r->remote.loop, &r->lowering);
    }
    g_clear_pointer(&r->missing, g_hash_table_unref);
}

void redis_version_status(struct redis *r, struct backend_status *status)
{
    GPtrArray *details = status->details;
    g_ptr_array_add(details, g_strdup_printf("epoch: %s", *r->version ? r->version : "not known"));
    if (redis_is_closed(r)) {
        status->grace = MAX(version_left(r), 1);
        g_ptr_array_add(details, version_describe(r));
    }
    g_ptr_array_add(details, g_strdup_printf("reclaimed: %" G_GUINT64_FORMAT, r->reclaimed));
    g_ptr_array_add(details, g_strdup_printf("lost: %" G_GUINT64_FORMAT, r->lost));
}

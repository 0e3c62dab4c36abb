/* epoch: which version of its data a store has, and the grace period; see epoch.h. */
#include "backend/remote/epoch.h"

#include <string.h>

#include "backend/log.h"

#define LOWER_AFTER 0.05 /* s: a lock that is taken again and again has one term */

static void epoch_set_timer(struct epoch *e, ev_timer *timer, double after)
{
    ev_timer_stop(e->remote->loop, timer);
    ev_timer_set(timer, after, 0);
    ev_timer_start(e->remote->loop, timer);
}

/* --- terms --- */

/* A fixed term is not renewed, though its mount looks at the lease once more, when its owner is final. */
static bool epoch_counts(const struct remote_ticket *t)
{
    return t->due_after > 0 && t->ends == CLOCK_NEVER;
}

/* The longest renewable term that this mount may be granted, or holds; at least its own.  Stops at `enough`. */
static int64_t epoch_find_longest_term(const struct epoch *e, int64_t enough)
{
    GHashTableIter each;
    const struct remote_ticket *t;
    const struct remote_request *request;
    int64_t longest = e->own_term;
    LIST_FOREACH(request, &e->remote->requests, link) {
        if (request->procedure == REMOTE_CONVERT && request->update.claim.due > 0) {
            longest = MAX(longest, MIN(request->update.claim.ttl, e->grace_max));
        }
    }
    g_hash_table_iter_init(&each, e->remote->tickets);
    while (longest < enough && g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (epoch_counts(t) && t->state != REMOTE_WAITING) {
            longest = MAX(longest, MIN(t->head.ttl, e->grace_max));
        }
    }
    return longest;
}

void epoch_use_term(struct epoch *e, int64_t term)
{
    term = MIN(term, e->grace_max);
    if (term > e->term || clock_now() + term > e->term_until) {
        e->term = term > e->term ? term : MAX(term, epoch_find_longest_term(e, INT64_MAX));
        e->term_until = clock_now() + e->term + EPOCH_TERM_KEPT;
        if (e->remote->store->is_up(e->remote)) { /* else the next connection reports it, before the request */
            epoch_ask(e);
        }
    }
}

static void epoch_drop_term(struct epoch *e, int64_t term)
{
    if (MIN(term, e->grace_max) >= e->term && e->term > e->own_term && !ev_is_active(&e->lower_timer)) {
        epoch_set_timer(e, &e->lower_timer, LOWER_AFTER);
    }
}

static void epoch_on_lower(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct epoch *e = timer->data;
    int64_t longest = epoch_find_longest_term(e, e->term);
    (void)loop, (void)events;
    if (longest < e->term && e->remote->store->is_up(e->remote)) {
        e->term = longest;
        epoch_ask(e);
    }
}

void epoch_before_request(struct epoch *e, const struct remote_request *request, const struct remote_ticket *t)
{
    switch (request->procedure) {
    case REMOTE_ACQUIRE:
    case REMOTE_RENEW:
        if (epoch_counts(t)) {
            epoch_use_term(e, t->head.ttl);
        }
        break;
    case REMOTE_CONVERT:
        if (request->update.claim.due > 0) {
            epoch_use_term(e, request->update.claim.ttl);
        }
        break;
    case REMOTE_RELEASE:
        epoch_drop_term(e, request->ttl);
        break;
    default:
        break;
    }
}

/* --- the grace period --- */

/* ms.  A hundredth more, because the clocks of two hosts may differ. */
static int64_t epoch_grace_left(const struct epoch *e)
{
    int64_t grace = e->longest + e->longest / 100 + 2;
    return e->closed_since ? MAX(e->closed_since + grace - clock_now(), 0) : grace;
}

/* While it is closed.  Programs read this line. */
static char *epoch_describe_grace(const struct epoch *e)
{
    return g_strdup_printf("grace period: no new lock for %" G_GINT64_FORMAT " s, %s",
                           (epoch_grace_left(e) + 999) / 1000,
                           e->lost_data ? "the server lost data" : "the server was restarted");
}

/* After a restart the server is open again in a moment if every mount is there: the log need not mention that. */
static void epoch_announce(struct epoch *e)
{
    if (epoch_is_closed(e) && !e->announced && (e->lost_data || e->reported_restored)) {
        char *text = epoch_describe_grace(e);
        e->announced = true;
        log_warning("%s: %s; mounts that are there restore the locks that they hold", e->address, text);
        g_free(text);
    } else if (!epoch_is_closed(e) && e->announced) {
        e->announced = false;
        log_info("%s: the grace period is over: locks are granted again", e->address);
    }
}

static void epoch_list_missing(struct epoch *e)
{
    GHashTableIter each;
    const struct remote_ticket *t;
    g_hash_table_remove_all(e->missing);
    g_hash_table_iter_init(&each, e->remote->tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state == REMOTE_HELD && t->head.deadline > clock_now()) {
            g_hash_table_add(e->missing, g_strdup(t->id));
        }
    }
}

static gboolean epoch_has_ended(gpointer ticket_id, gpointer unused, gpointer epoch)
{
    const struct epoch *e = epoch;
    const struct remote_ticket *t = remote_ticket_find(e->remote, ticket_id);
    (void)unused;
    return !t || t->state != REMOTE_HELD || t->head.deadline <= clock_now();
}

/* Asks again once all is restored, then when the store may open; other mounts report what they have restored. */
static void epoch_schedule(struct epoch *e)
{
    bool missing = g_hash_table_size(e->missing) > 0;
    ev_timer_stop(e->remote->loop, &e->ask_timer);
    if (epoch_is_closed(e) && (e->closed_since || missing || !e->reported_restored)) {
        double left = (double)MAX(epoch_grace_left(e), 1) / 1000,
               soon = missing ? (double)REMOTE_RENEW_RETRY / 1000 : 0;
        epoch_set_timer(e, &e->ask_timer, missing || !e->reported_restored ? MIN(left, soon) : left);
    }
}

static void epoch_on_ask_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct epoch *e = timer->data;
    (void)loop, (void)events;
    g_hash_table_foreach_remove(e->missing, epoch_has_ended, e);
    if (g_hash_table_size(e->missing) > 0 && e->closed_since && epoch_grace_left(e) > 0) {
        epoch_schedule(e);
    } else {
        epoch_ask(e);
    }
}

void epoch_on_confirmed(struct epoch *e, const char *ticket_id, bool restored)
{
    e->restored += restored;
    if (g_hash_table_remove(e->missing, ticket_id) && g_hash_table_size(e->missing) == 0 && epoch_is_closed(e)) {
        epoch_set_timer(e, &e->ask_timer, 0);
    }
}

void epoch_on_missing(struct epoch *e)
{
    e->lost += epoch_is_closed(e);
}

/* --- the marker --- */

void epoch_on_connect(struct epoch *e)
{
    e->term = epoch_find_longest_term(e, INT64_MAX);
}

void epoch_report(struct epoch *e, struct epoch_report *ret)
{
    bool restored = g_hash_table_size(e->missing) == 0;
    *ret = (struct epoch_report){
        .stamp = e->stamp,
        .term = e->term,
        .others = e->others,
        .reports = e->reports,
        .grace_max = e->grace_max,
        .closed_for = e->closed_since ? clock_now() - e->closed_since : 0,
        .restored = restored,
        .strict = e->strict,
    };
    g_snprintf(ret->fresh, sizeof ret->fresh, "%08x%08x", g_random_int(), g_random_int());
    e->term_until = clock_now() + e->term + EPOCH_TERM_KEPT;
    e->reported_restored = restored;
}

/* The grace period is measured from here.  The answer has come, so what was granted before the store was closed was
 * granted earlier. */
void epoch_set_marker(struct epoch *e, const struct epoch_marker *marker, bool confirmed)
{
    bool changed = strcmp(marker->stamp, e->stamp) != 0, was_closed = epoch_is_closed(e);
    bool closed = marker->state == EPOCH_CLOSED, closes = closed && (changed || !was_closed);
    e->lost_data = marker->lost_data;
    /* a server that lost data may not know of a term that its mount still relies on */
    e->others = MIN(e->lost_data ? MAX(marker->others, e->others) : marker->others, e->grace_max);
    e->reports = MAX(e->reports, MIN(marker->reports, INT64_C(1) << 53));
    e->longest = MIN(marker->longest, e->grace_max);
    if (closes || !closed) {
        e->closed_since = 0;
    }
    if (closed && !e->closed_since && confirmed) {
        e->closed_since = clock_now();
    }
    e->changed = e->changed || (changed && *e->stamp);
    e->state = marker->state;
    g_strlcpy(e->stamp, marker->stamp, sizeof e->stamp);
    e->store->set_stamp(e->remote, e->stamp, changed);
    if (closes) {
        epoch_list_missing(e);
        e->reported_restored = false;
    } else if (!closed) {
        g_hash_table_remove_all(e->missing);
    }
    epoch_schedule(e);
    epoch_announce(e);
}

void epoch_ask(struct epoch *e)
{
    e->store->ask(e->remote);
}

void epoch_on_marker(struct epoch *e, const struct epoch_marker *marker)
{
    bool was_closed = epoch_is_closed(e);
    epoch_set_marker(e, marker, true);
    if (e->changed) {
        epoch_restore(e);
        remote_on_up(e->remote);
    } else if (was_closed && !epoch_is_closed(e)) {
        remote_retry_waiter(e->remote, NULL);
    }
}

void epoch_on_failure(struct epoch *e, bool unknown)
{
    e->term_until = 0;
    if (epoch_is_closed(e) || unknown) {
        epoch_set_timer(e, &e->ask_timer, (double)REMOTE_RENEW_RETRY / 1000);
    }
}

/* --- directories --- */

/* The directory and those that it is in, from the top. */
static void epoch_restore_directory(struct epoch *e, GHashTable *done, const char *name)
{
    const char *leaf;
    if (!g_hash_table_add(done, g_strdup(name))) {
        return;
    }
    if (*name) {
        char *parent = remote_parent(name, &leaf);
        epoch_restore_directory(e, done, parent);
        g_free(parent);
    }
    const struct remote_directory *known = remote_directory_cache_find(e->remote, name);
    if (*name || known) { /* of the root, the attributes */
        remote_send_directory(e->remote, *name ? REMOTE_MKDIR : REMOTE_SET_DIRECTORY, name,
                              known ? &known->attributes : NULL);
    }
}

void epoch_restore(struct epoch *e)
{
    GHashTableIter each;
    const struct remote_ticket *t;
    if (!e->changed) {
        return;
    }
    e->changed = false;
    GHashTable *done = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_iter_init(&each, e->remote->tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        const char *leaf;
        char *directory = remote_parent(remote_ticket_name(t), &leaf);
        epoch_restore_directory(e, done, directory);
        g_free(directory);
    }
    g_hash_table_unref(done);
}

/* --- beginning and end --- */

void epoch_init(struct epoch *e, struct remote *r, const struct epoch_store *store, const char *address,
                int64_t own_term, int64_t grace_max, bool strict)
{
    *e = (struct epoch){.remote = r, .store = store, .address = address, .grace_max = grace_max, .strict = strict};
    e->own_term = e->term = MIN(own_term, grace_max);
    ev_timer_init(&e->ask_timer, epoch_on_ask_timer, 0, 0);
    ev_timer_init(&e->lower_timer, epoch_on_lower, 0, 0);
    e->ask_timer.data = e->lower_timer.data = e;
    e->missing = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

void epoch_clear(struct epoch *e)
{
    if (e->remote->loop) {
        ev_timer_stop(e->remote->loop, &e->ask_timer);
        ev_timer_stop(e->remote->loop, &e->lower_timer);
    }
    g_clear_pointer(&e->missing, g_hash_table_unref);
}

void epoch_fill_status(const struct epoch *e, struct backend_status *status)
{
    GPtrArray *details = status->details;
    g_ptr_array_add(details, g_strdup_printf("epoch: %s", *e->stamp ? e->stamp : "not known"));
    if (epoch_is_closed(e)) {
        status->grace = MAX(epoch_grace_left(e), 1);
        g_ptr_array_add(details, epoch_describe_grace(e));
    }
    g_ptr_array_add(details, g_strdup_printf("reclaimed: %" G_GUINT64_FORMAT, e->restored));
    g_ptr_array_add(details, g_strdup_printf("lost: %" G_GUINT64_FORMAT, e->lost));
}

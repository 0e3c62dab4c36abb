/* uncontended: short scripts for a lock with one ticket.
 *
 * Most locks have one ticket at a time.  Such a lock has no side keys but its fencing token: the value of its key names
 * its holder, and is what the mount packed, so the server packs and compares nothing.  Each of the
 * scripts uncontended_*.lua does one operation on such a lock, and changes nothing and answers nil (in a list: 0) if
 * the lock is another; then the mount sends the full script, which begins with look.lua and common.lua.
 *
 * A lock is on this path from a grant of uncontended_acquire.lua on: an exclusive lock of a whole file, with at most
 * 512 bytes of content, on a name at which nobody held or waited.  It leaves the path, and gets side keys (unfold of
 * common.lua), when a full script changes it or compares it with another ticket: another claim, even one that is
 * refused; a conversion to shared or to a range; a content that is longer; a rename; a break; another lock-delay.  A
 * full script that only reads does not end it.  It returns to the path when it is free again: with its last ticket the
 * side keys go, and the next grant is by the short script.
 *
 * The mount knows only its own side of that.  It sends the short script of acquire if it has no other ticket of the
 * name, watches no other holder of it, and the store is not closed; that of release as long as it has had no other
 * ticket of the name and the server has not reported a waiter (remote_ticket.uncontended); that of renew for every
 * exclusive lock whose renewal nobody waits for, many in one request.
 */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define CONTENT_MAX 512    /* as in head.lua */
#define GRANTED "granted " /* and the fencing token: an answer of uncontended_acquire.lua */
#define NOTE_LEASES_EVERY                                                                                              \
    3600000 /* ms between the times that the expiry of the set of this mount's leases is renewed */

/* A release by uncontended_release.lua that is pending. */
struct uncontended_release {
    struct remote_request *request;
    uint64_t call;
};

/* --- acquire --- */

static bool uncontended_takes(const struct remote_ticket *t)
{
    return t->head.mode == BACKEND_EXCLUSIVE && !t->lock->sequence && !t->lock_owner && !t->head.fence &&
           (!t->head.content || g_bytes_get_size(t->head.content) <= CONTENT_MAX) &&
           !remote_is_numbered(remote_leaf(t->lock->name));
}

static bool uncontended_may_be_free(struct redis *r, const struct remote_ticket *t)
{
    bool only = LIST_FIRST(&t->lock->tickets) == t && !LIST_NEXT(t, link);
    return uncontended_takes(t) && t->state == REMOTE_ACQUIRING && only && !epoch_is_closed(&r->epoch) &&
           !remote_watches(&r->remote, t->lock->name);
}

static void uncontended_add_note(struct redis_call *call, const char *id, const char *name, enum backend_kind kind,
                                 GBytes *meta)
{
    char *note = redis_note(id, false, name, kind, meta);
    redis_call_word(call, note);
    g_free(note);
}

/* ' MOUNT TICKET+', as FENCE has it. */
static void uncontended_add_fence(struct redis_call *call, const char *id)
{
    char fence[sizeof call->r->mount + REMOTE_ID_SIZE + 3];
    char *end = stpcpy(fence + 1, call->r->mount);
    fence[0] = *end = ' ';
    strcpy(stpcpy(end + 1, id), "+");
    redis_call_word(call, fence);
}

static void uncontended_fill_acquire(struct redis_call *call, const struct remote_ticket *t)
{
    struct redis *r = call->r;
    const char *name = t->lock->name, *leaf;
    char *directory = remote_parent(name, &leaf);
    clock_ms *noted = &r->uncontended.leases_noted;
    bool note = t->head.kind != BACKEND_PROVISIONAL && (*noted == 0 || clock_now() - *noted >= NOTE_LEASES_EVERY);
    call->script = REDIS_UNCONTENDED_ACQUIRE;
    redis_call_key(call, 0, name);
    redis_call_sides(call, "of", name);
    redis_call_sides(call, "dl", directory);
    redis_call_key(call, 'd', name);
    redis_call_key(call, 'm', NULL);
    redis_call_text(call, "mount", r->mount); /* these two first: see claim.lua */
    redis_call_number(call, "ttl", t->head.ttl);
    redis_call_text(call, "path", name);
    redis_call_number(call, "kind", (int64_t)t->head.kind);
    redis_call_number(call, "mode", (int64_t)t->head.mode);
    redis_call_unsigned(call, "handle", t->handle);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
    uncontended_add_fence(call, t->id);
    redis_call_word_number(call, t->head.ttl);
    redis_call_word(call, leaf);
    uncontended_add_note(call, t->id, name, t->head.kind, t->meta);
    if (leaf != name || note) {
        redis_call_word(call, leaf == name ? "m" : note ? "nm" : "n");
    }
    *noted = note ? clock_now() : *noted;
    g_free(directory);
}

/* The request goes on with the full script; `repeated`: the short one was sent twice. */
static void uncontended_send_in_full(struct remote_request *request, struct remote_ticket *t, bool repeated)
{
    request->repeated = repeated;
    uint64_t call = redis_procedure_send(request, t, 0);
    if (request->procedure == REMOTE_ACQUIRE) {
        t->acquiring_call = call;
    }
}

/* If the server did not carry out the script, it did not note the lease either.  Does the request go on in full? */
static bool uncontended_is_declined(struct redis *r, const struct redis_answer *given)
{
    bool answered = given->outcome == REMOTE_ANSWERED, declined = answered && given->reply->type == REDIS_REPLY_NIL;
    if (declined || !answered) {
        r->uncontended.leases_noted = 0;
    }
    return declined;
}

static void uncontended_on_acquire(void *arg, const struct redis_answer *given)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    struct remote_ticket *t = remote_ticket_find(&r->remote, request->id);
    struct remote_answer answer = {.outcome = given->outcome, .sent = given->sent, .repeated = given->repeated};
    if (uncontended_is_declined(r, given)) {
        uncontended_send_in_full(request, t, given->repeated);
        return;
    }
    const char *text = given->outcome == REMOTE_ANSWERED ? redis_text(given->reply, 0) : "";
    if (g_str_has_prefix(text, GRANTED) && uncontended_takes(t) &&
        redis_fence_of(text + strlen(GRANTED), &answer.fence)) {
        t->uncontended = true;
        request->on_answer(request, &answer);
    } else {
        redis_procedure_answer(request, given);
    }
}

/* --- release --- */

static void uncontended_fill_release(struct redis_call *call, const struct remote_request *request)
{
    const char *leaf;
    char *directory = remote_parent(request->name, &leaf);
    call->script = REDIS_UNCONTENDED_RELEASE;
    redis_call_key(call, 0, request->name);
    redis_call_key(call, 'f', request->name);
    redis_call_key(call, 'l', directory);
    redis_call_key(call, 'm', NULL);
    uncontended_add_fence(call, request->id);
    redis_call_word(call, remote_leaf(request->release.ticket_name));
    uncontended_add_note(call, request->id, request->name, request->release.kind, request->release.meta);
    g_free(directory);
}

static void uncontended_forget_release(struct remote_request *request)
{
    GHashTable *releases = redis_of(request)->uncontended.releases;
    const struct uncontended_release *release = g_hash_table_lookup(releases, request->name);
    if (release && release->request == request) {
        g_hash_table_remove(releases, request->name);
    }
}

static void uncontended_on_release(void *arg, const struct redis_answer *given)
{
    struct remote_request *request = arg;
    uncontended_forget_release(request);
    if (uncontended_is_declined(redis_of(request), given)) {
        uncontended_send_in_full(request, NULL, given->repeated);
    } else {
        redis_procedure_answer(request, given);
    }
}

static uint64_t uncontended_send_release(struct redis_call *call, struct remote_request *request, int64_t timeout)
{
    struct uncontended_release *release = g_new(struct uncontended_release, 1);
    uncontended_fill_release(call, request);
    *release = (struct uncontended_release){request, redis_call_send(call, timeout, uncontended_on_release, request)};
    g_hash_table_replace(call->r->uncontended.releases, request->name, release);
    return release->call;
}

/* A pending release may need the full script.  That would be sent behind the request that is sent now about the name,
 * so the full script goes first. */
static void uncontended_finish_release(struct redis *r, const char *name)
{
    const struct uncontended_release *release = g_hash_table_lookup(r->uncontended.releases, name);
    if (release) {
        struct remote_request *request = release->request;
        request->repeated = true; /* its answer is not awaited: it may have ended the ticket */
        redis_conn_forget(r->conn, release->call);
        g_hash_table_remove(r->uncontended.releases, name);
        redis_procedure_send(request, NULL, 0);
    }
}

/* --- renew, many in one request --- */

static bool uncontended_may_renew(const struct remote_request *request, const struct remote_ticket *t)
{
    return request->background_cost > 0 && !t->lock->sequence && !t->segments &&
           request->renewal.mode == BACKEND_EXCLUSIVE && !epoch_is_closed(&redis_of(request)->epoch);
}

static void uncontended_renew_in_full(struct remote_request *request)
{
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    if (t) {
        redis_procedure_send(request, t, 0);
    } else { /* it was released meanwhile */
        request->on_answer(request, &(struct remote_answer){.outcome = REMOTE_ANSWERED, .result = BACKEND_STALE});
    }
}

static void uncontended_on_renewals(void *arg, const struct redis_answer *given)
{
    struct remote_batch *batch = arg;
    struct redis *r = (struct redis *)batch->r;
    size_t others = 0; /* that the script has not renewed, and that come before `i` */
    for (unsigned i = 0; i < batch->count; i++) {
        struct remote_request *request = batch->requests[i];
        if (given->outcome != REMOTE_ANSWERED) {
            redis_procedure_answer(request, given);
        } else if (given->reply->type == REDIS_REPLY_ARRAY && redis_number(given->reply, others) != i + 1) {
            epoch_on_confirmed(&r->epoch, request->id, false);
            request->on_answer(
                request,
                &(struct remote_answer){.outcome = given->outcome, .sent = given->sent, .repeated = given->repeated});
        } else {
            others++;
            uncontended_renew_in_full(request);
        }
    }
    remote_batch_free(batch);
}

static void uncontended_fill_terms(struct redis_call *call, const struct remote_batch *batch, const char *key,
                                   bool left)
{
    guint begin = redis_call_array(call, key);
    for (unsigned i = 0; i < batch->count; i++) {
        pack_number(call->r->packed, left ? batch->requests[i]->renewal.left : batch->requests[i]->ttl);
    }
    pack_count(call->r->packed, begin, batch->count);
}

void redis_uncontended_renew(struct remote *remote, struct remote_batch *batch)
{
    struct redis *r = (struct redis *)remote;
    struct redis_call call = {.r = r, .script = REDIS_UNCONTENDED_RENEW_MANY};
    bool same_ttl = true, all_full = true;
    guint begin = redis_call_array(&call, "tickets");
    for (unsigned i = 0; i < batch->count; i++) {
        const struct remote_request *request = batch->requests[i];
        redis_call_key(&call, 0, request->name);
        pack_text(r->packed, request->id, strlen(request->id));
        same_ttl = same_ttl && request->ttl == batch->requests[0]->ttl;
        all_full = all_full && request->renewal.left == request->ttl;
    }
    pack_count(r->packed, begin, batch->count);
    if (same_ttl) {
        redis_call_number(&call, "ttl", batch->requests[0]->ttl);
    } else {
        uncontended_fill_terms(&call, batch, "ttls", false);
    }
    if (!all_full) {
        uncontended_fill_terms(&call, batch, "lefts", true);
    }
    redis_call_text(&call, "mount", r->mount);
    redis_call_key(&call, 'm', NULL);
    redis_call_send(&call, 0, uncontended_on_renewals, batch);
}

/* --- recover --- */

void redis_uncontended_add_lease(struct redis_call *call, const char *id, const char *path)
{
    redis_call_key(call, 0, path);
    redis_call_key(call, 'f', path);
    pack_text(call->r->packed, id, strlen(id));
}

/* --- every request --- */

uint64_t redis_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    struct redis *r = redis_of(request);
    struct redis_call call = {.r = r};
    enum remote_procedure procedure = request->procedure;
    epoch_before_request(&r->epoch, request, t);
    if (procedure == REMOTE_ACQUIRE && uncontended_may_be_free(r, t)) {
        uncontended_fill_acquire(&call, t);
        return redis_call_send(&call, timeout, uncontended_on_acquire, request);
    }
    if (procedure == REMOTE_RELEASE && request->release.uncontended) {
        return uncontended_send_release(&call, request, timeout);
    }
    if (procedure == REMOTE_RENEW && uncontended_may_renew(request, t)) {
        remote_batch_add(&r->remote, request);
        return 0;
    }
    if (procedure == REMOTE_ACQUIRE || procedure == REMOTE_RENAME) {
        uncontended_finish_release(r, procedure == REMOTE_ACQUIRE ? t->lock->name : request->name);
    }
    return redis_procedure_send(request, t, timeout);
}

/* --- beginning and end --- */

void redis_uncontended_init(struct redis *r)
{
    struct redis_uncontended *u = &r->uncontended;
    u->releases = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
}

void redis_uncontended_clear(struct redis *r)
{
    g_hash_table_unref(r->uncontended.releases);
}

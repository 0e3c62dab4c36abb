/* revoke: ends the tickets of any mount, and waits until their mounts know it; see private.h.
 *
 * A message of a change: 8 bytes, the revocation that its reader confirms (0: none); 16 bytes, the mount that sends it;
 * then for each ticket of the reader that has ended 16 bytes id, 1 byte 1 + the reason.  A confirmation has no key, and
 * the first two of these.
 */
#include <string.h>

#include "backend/record/private.h"

enum { HEAD = 24, END = 17 };

struct revocation {
    LIST_ENTRY(revocation) link; /* engine->revocations */
    struct engine *engine;
    uint64_t serial;
    GArray *mounts; /* struct record_id: have not confirmed */
    ev_timer limit;
    backend_done *done;
    void *arg;
};

static void revocation_free(struct revocation *v)
{
    ev_timer_stop(v->engine->loop, &v->limit);
    LIST_REMOVE(v, link);
    g_array_unref(v->mounts);
    g_free(v);
}

void revoke_clear(struct engine *e)
{
    while (!LIST_EMPTY(&e->revocations)) {
        revocation_free(LIST_FIRST(&e->revocations));
    }
}

static void revocation_finish(struct revocation *v)
{
    backend_done *done = v->done;
    void *arg = v->arg;
    revocation_free(v);
    done(arg, BACKEND_OK);
}

static void revocation_on_limit(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    revocation_finish(timer->data); /* those mounts cannot be reached */
}

static void revocation_start(struct op *op)
{
    struct engine *e = op->lock->engine;
    struct revocation *v = g_new0(struct revocation, 1);
    v->engine = e;
    v->serial = op->serial;
    v->mounts = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    v->done = op->done;
    v->arg = op->arg;
    op->done = NULL;
    for (guint i = 0; i < op->targets->len; i++) {
        struct record_id mount = g_array_index(op->targets, struct scratch_end, i).mount;
        bool there = record_id_equal(mount, e->store->mount);
        for (guint k = 0; k < v->mounts->len && !there; k++) {
            there = record_id_equal(g_array_index(v->mounts, struct record_id, k), mount);
        }
        if (!there) {
            g_array_append_val(v->mounts, mount);
        }
    }
    ev_timer_init(&v->limit, revocation_on_limit, ENGINE_REVOKE / 1e3, 0);
    v->limit.data = v;
    LIST_INSERT_HEAD(&e->revocations, v, link);
    if (v->mounts->len) {
        ev_timer_start(e->loop, &v->limit);
    } else {
        revocation_finish(v);
    }
}

/* --- the op --- */

static bool revoke_is_target(const struct op *op, const struct backend_ticket *ticket)
{
    const struct record_ticket *tag = ticket->user;
    for (guint i = 0; i < op->targets->len; i++) {
        const struct scratch_end *target = &g_array_index(op->targets, struct scratch_end, i);
        if (record_id_equal(target->id, tag->id) && target->why == ticket->guarded) {
            return true;
        }
    }
    return false;
}

/* A repeated revocation ends what the first attempt was about, and nobody who came after that. */
static GPtrArray *revoke_choose(struct op *op, struct scratch *s, const char *path)
{
    GPtrArray *found = record_revoked(s->space, path, op->fence);
    bool first = !op->tried || !op->targets;
    if (first) {
        g_clear_pointer(&op->targets, g_array_unref);
        op->targets = g_array_new(FALSE, FALSE, sizeof(struct scratch_end));
    }
    for (guint i = found->len; i > 0; i--) {
        struct backend_ticket *ticket = found->pdata[i - 1];
        const struct record_ticket *tag = ticket->user;
        if (ticket->kind == RECORD_FOREIGN_HOLDER || (!first && !revoke_is_target(op, ticket))) {
            g_ptr_array_remove_index(found, i - 1);
        } else if (first) {
            struct scratch_end target = {.id = tag->id, .mount = tag->mount, .why = ticket->guarded};
            g_array_append_val(op->targets, target);
        }
    }
    return found;
}

/* The lock of another client: only a break without conditions removes it. */
static void revoke_foreign(struct op *op, struct scratch *s)
{
    struct backend_ticket *holder = scratch_find(s, op->lock, (struct record_id){{0}});
    op->result = op->fence ? BACKEND_STALE : op->match || !holder ? BACKEND_BUSY : BACKEND_OK;
    if (op->result == BACKEND_OK) {
        s->foreign_broken = s->dirty = true;
        lockspace_release(s->space, s->now, holder);
        scratch_settle_grants(s);
    }
}

static void revoke_apply(struct op *op, struct scratch *s)
{
    g_autofree char *path = scratch_path(s, op->lock, op->leaf);
    op->result = scratch_check_name(s, op);
    if (op->result != BACKEND_OK || (op->lock->lock.state == STORE_FOREIGN && !op->tried)) {
        if (op->result == BACKEND_OK) {
            revoke_foreign(op, s);
        }
        return;
    }
    bool match = op->tried || !op->match || lockspace_revoked_match(s->space, path, op->fence, op->match);
    if (!match) {
        op->result = BACKEND_BUSY;
        return;
    }
    struct backend_info info;
    lockspace_stat(s->space, path, &info);
    GPtrArray *found = revoke_choose(op, s, path);
    bool none = op->targets->len == 0;
    op->result = !none ? BACKEND_OK : op->fence && info.type == BACKEND_LOCK ? BACKEND_STALE : BACKEND_MISSING;
    for (guint i = 0; i < found->len; i++) {
        s->dirty = true;
        record_revoke(s->space, s->now, found->pdata[i], op->fence ? BACKEND_RELEASED : BACKEND_BROKEN);
    }
    s->ack = found->len ? op->serial : s->ack;
    if (found->len) {
        record_grant(s->space, s->now, scratch_directory(s, op->lock));
        scratch_settle_grants(s);
    }
    g_ptr_array_unref(found);
}

static void revoke_settle(struct op *op)
{
    if (op->result == BACKEND_OK && op->done && op->targets) {
        revocation_start(op);
    } else {
        op_answer(op, op->result);
    }
}

static const struct op_type op_revoke = {
    .apply = revoke_apply, .settle = revoke_settle, .is_late = true, .is_single = true};

void engine_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                   backend_done *done, void *arg)
{
    struct engine *e = (struct engine *)b;
    const char *leaf;
    if (!*name || !engine_allows_name(e, name)) {
        done(arg, *name ? BACKEND_MISSING : BACKEND_IS_DIRECTORY);
        return;
    }
    struct lock *lock = lock_obtain(e, name, &leaf);
    lock_end_expired(lock);
    struct op *op = op_new(e, &op_revoke, lock, NULL);
    op->leaf = g_strdup(leaf);
    op->fence = fence;
    op->match = match ? g_memdup2(match, sizeof *match) : NULL;
    op->done = done;
    op->arg = arg;
    op_push(op);
}

/* --- messages --- */

static void revoke_on_confirmed(struct engine *e, uint64_t serial, struct record_id mount)
{
    struct revocation *v;
    LIST_FOREACH(v, &e->revocations, link) {
        for (guint i = 0; i < v->mounts->len && v->serial == serial; i++) {
            if (record_id_equal(g_array_index(v->mounts, struct record_id, i), mount)) {
                g_array_remove_index(v->mounts, i);
                if (!v->mounts->len) {
                    revocation_finish(v);
                }
                return;
            }
        }
    }
}

/* Another mount has ended this ticket. */
static void revoke_end_own(struct engine *e, struct record_id id, uint8_t why)
{
    struct ticket *t = ticket_find(e, id);
    bool revoked = why == 1 + BACKEND_BROKEN || why == 1 + BACKEND_RELEASED;
    if (!t || why < 1 || why > 1 + BACKEND_LOST) {
        return;
    }
    t->why = why;
    if (revoked && t->state == TICKET_HOLDS) {
        t->head.guarded = backend_parse_guard(t->meta) > 0 ? why : 0;
        ticket_end(t, (enum backend_end)(why - 1));
    }
}

void engine_on_message(void *context, const struct store_key *key, const struct store_value *value, GBytes *text)
{
    struct engine *e = context;
    gsize size = 0;
    const uint8_t *data = g_bytes_get_data(text, &size);
    uint64_t ack;
    struct record_id from;
    if (size < HEAD || (size - HEAD) % END != 0 || !e->up) {
        return;
    }
    memcpy(&ack, data, sizeof ack);
    memcpy(&from, data + sizeof ack, sizeof from);
    if (!key) {
        revoke_on_confirmed(e, GUINT64_FROM_LE(ack), from);
        return;
    }
    for (gsize at = HEAD; at < size; at += END) {
        struct record_id id;
        memcpy(&id, data + at, sizeof id);
        revoke_end_own(e, id, data[at + END - 1]);
    }
    if (ack) {
        GByteArray *reply = g_byte_array_new();
        g_byte_array_append(reply, (const guint8 *)&ack, sizeof ack);
        g_byte_array_append(reply, (const guint8 *)&e->store->mount, sizeof from);
        GBytes *bytes = g_byte_array_free_to_bytes(reply);
        e->store->operations->send(e->store, from, bytes);
        g_bytes_unref(bytes);
    }
    struct lock *lock = lock_find(e, key->name);
    if (lock && value) {
        flight_take_value(lock, value);
    }
}

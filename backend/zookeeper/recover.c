/* recover: the leases that the daemon before this one held in the session that it left.
 *
 * The servers do not tell what belongs to a session, so all nodes are looked at once, many at a time, before the mount
 * is there.  Handle locks have no handles any more, but who has looked at what remained of their term may believe in
 * them until then: their nodes stay for as long, as tickets without a user.  A session of which not all is known is
 * given up: it ends by itself, and what it holds with it.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define RECOVER_CONNECT 5000 /* ms, for the session to be there */
#define RECOVER_TIMEOUT 30.0 /* s, for all nodes then */
#define RECOVER_PART 64      /* nodes that are looked at together */

struct recovery {
    bool ended, complete;
    guint before; /* of the queue that is looked at: so many stand in it already */
    guint found;
    backend_recover_each *tell;
    void *arg;
};

struct recover_flow {
    struct zk_call call;
    GPtrArray *entries; /* struct recover_entry, of the whole tree as far as it is known */
    guint looked_at;    /* so many of them */
    GPtrArray *ended;   /* nodes to remove: they are of tickets that have ended */
};

static struct recover_flow *recover_of(struct zk_call *call)
{
    return (struct recover_flow *)call;
}

static void recover_clear(struct zk_call *call)
{
    struct recover_flow *flow = recover_of(call);
    g_clear_pointer(&flow->entries, g_ptr_array_unref);
    g_clear_pointer(&flow->ended, g_ptr_array_unref);
}

/* One that is to be looked at. */
struct recover_entry {
    char *path;
    bool ticket, first; /* of its queue, */
    bool sequence;      /* which is that of a directory */
    uint32_t width;     /* of that */
    int64_t delay;      /* of the directory of the lock */
};

static void recover_entry_free(gpointer data)
{
    struct recover_entry *entry = data;
    g_free(entry->path);
    g_free(entry);
}

static void recover_add(struct zk_call *call, const char *path, const char *leaf, struct recover_entry entry)
{
    entry.path = node_child(path, leaf);
    g_ptr_array_add(recover_of(call)->entries, g_memdup2(&entry, sizeof entry));
}

static void recover_end(struct zk_call *call, bool complete)
{
    struct recovery *recovery = call->op->arg;
    recovery->ended = true;
    recovery->complete = complete;
    remote_op_free(call->op);
    call->op = NULL;
    if (complete) {
        call_end(call);
    }
}

static void recover_failed(struct zk_call *call, enum remote_outcome outcome)
{
    (void)outcome;
    recover_end(call, false);
}

/* False: it has ended meanwhile, or has not held and cannot any more. */
static bool recover_restore(struct zk_call *call, const struct recover_entry *entry, const struct zk_data *data,
                            const struct Stat *stat)
{
    struct zookeeper *z = call->z;
    struct recovery *recovery = call->op->arg;
    clock_ms now = clock_now(), written = MIN(stat->mtime - z->server_time, now);
    if (remote_ticket_find(&z->remote, data->token)) {
        return true; /* told before the connection was lost */
    }
    /* a handle lock may have waited since it was written, and been granted just now */
    bool lease = data->kind == BACKEND_LEASE;
    int64_t left = data->ttl - (lease && !data->automatic ? now - written : 0);
    bool holds = recovery->before < entry->width;
    bool may_hold = holds || (!lease && data->mode == BACKEND_SHARED);
    if (left <= 0 || !(may_hold || (lease && entry->sequence))) {
        return false;
    }
    const char *leaf;
    char *path = g_strdup(entry->path + strlen(z->chroot) + 1), *place = remote_parent(path, &leaf);
    struct backend_claim claim = {.kind = data->kind,
                                  .mode = data->mode,
                                  .sequence = entry->sequence,
                                  .ttl = data->ttl,
                                  .meta = data->meta,
                                  .content = data->content};
    const char *name = entry->sequence ? path : place;
    struct remote_ticket *t = remote_ticket_new(&z->remote, name, &claim);
    remote_ticket_adopt(&z->remote, t, data->token);
    remote_ticket_turn(&z->remote, t, may_hold ? REMOTE_HELD : REMOTE_WAITING);
    t->wait = true;
    t->refresh = may_hold ? CLOCK_NEVER : now + REMOTE_REFRESH_MIN;
    t->head.fence = node_fence(z, NULL, stat);
    t->head.acquired = MIN(stat->ctime - z->server_time, now);
    t->head.deadline = now + left - (data->ttl / 100 + 2);
    remote_ticket_fix_term(t);
    t->due = lease ? now : CLOCK_NEVER; /* so that it is renewed, if it is to be */
    remote_ticket_schedule(&z->remote, t);
    struct zk_node *node = node_note(z, t, entry->path, t->head.fence);
    node->automatic = data->automatic;
    node->delay = entry->sequence ? 0 : entry->delay;
    node->marked = may_hold && node->delay > 0;
    watch_node(z, entry->path, t->token);
    if (lease) {
        recovery->found++;
        recovery->tell(recovery->arg, name, &t->head, data->meta, NULL);
    }
    g_free(place);
    g_free(path);
    return true;
}

static void recover_ticket(struct zk_call *call, const struct recover_entry *entry, const struct zk_reply *get)
{
    struct recovery *recovery = call->op->arg;
    struct zk_data data;
    recovery->before = entry->first ? 0 : recovery->before;
    if (get->rc != ZOK) {
        return;
    }
    node_decode(get->data, &data);
    bool ours = get->stat.ephemeralOwner == zoo_client_id(call->z->handle)->client_id;
    if (ours && data.guards) {
        clock_ms written = MIN(get->stat.mtime - call->z->server_time, clock_now());
        revoke_end_guard_in(call->z, entry->path, written + data.ttl - clock_now(), entry->delay, data.broken);
    }
    bool stays = !ours || data.guards || (data.ours && recover_restore(call, entry, &data, &get->stat));
    if (stays) {
        recovery->before++;
    } else {
        g_ptr_array_add(recover_of(call)->ended, g_strdup(entry->path));
    }
    node_data_clear(&data);
}

/* A lock, or a directory: what stands in its queue, in order, and the directory's other names. */
static void recover_node(struct zk_call *call, const struct recover_entry *entry, const struct zk_reply *get,
                         const struct zk_reply *list)
{
    GPtrArray *queue = node_queue(list->children);
    struct zk_data data;
    node_decode(get->data, &data);
    bool root = recover_of(call)->entries->pdata[0] == entry, directory = data.directory || root;
    uint32_t width = directory ? data.attributes.width : 1;
    int32_t number;
    for (guint i = 0; i < queue->len; i++) {
        recover_add(call, entry->path, queue->pdata[i],
                    (struct recover_entry){
                        .ticket = true, .first = i == 0, .sequence = directory, .width = width, .delay = entry->delay});
    }
    if (directory) {
        watch_directory(call->z, entry->path);
    }
    for (char **child = list->children; directory && child && *child; child++) {
        if (!node_number(*child, &number) && !(root && node_is_hidden(call->z, *child))) {
            recover_add(call, entry->path, *child, (struct recover_entry){.delay = data.attributes.delay});
        }
    }
    g_ptr_array_unref(queue);
    node_data_clear(&data);
}

static void recover_next(struct zk_call *call);

static void recover_on_part(struct zk_call *call)
{
    struct recover_flow *flow = recover_of(call);
    guint answer = 0, end = MIN(flow->looked_at + RECOVER_PART, flow->entries->len);
    g_ptr_array_set_size(flow->ended, 0);
    for (guint i = flow->looked_at; i < end; i++) {
        const struct recover_entry *entry = flow->entries->pdata[i];
        if (entry->ticket) {
            recover_ticket(call, entry, call_reply(call, answer));
        } else {
            recover_node(call, entry, call_reply(call, answer), call_reply(call, answer + 1));
        }
        answer += entry->ticket ? 1 : 2;
    }
    flow->looked_at = end;
    recover_next(call);
}

static void recover_next(struct zk_call *call)
{
    const struct recover_flow *flow = recover_of(call);
    guint end = MIN(flow->looked_at + RECOVER_PART, flow->entries->len);
    if (flow->looked_at == end && flow->ended->len == 0) {
        recover_end(call, true);
        return;
    }
    for (guint i = flow->looked_at; i < end; i++) {
        const struct recover_entry *entry = flow->entries->pdata[i];
        call_get(call, entry->path);
        if (!entry->ticket) {
            call_children(call, entry->path, false);
        }
    }
    for (guint i = 0; i < flow->ended->len; i++) {
        call_delete(call, flow->ended->pdata[i], -1);
    }
    call_then(call, recover_on_part);
}

static void recover_begin(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    struct recover_flow *flow = recover_of(call);
    recover_clear(call);
    if (!z->resumes) { /* the session has ended before */
        recover_end(call, true);
        return;
    }
    flow->entries = g_ptr_array_new_with_free_func(recover_entry_free);
    flow->ended = g_ptr_array_new_with_free_func(g_free);
    flow->looked_at = 0;
    ev_timer_stop(z->remote.loop, &call->limit);
    ev_timer_set(&call->limit, RECOVER_TIMEOUT, 0);
    ev_timer_start(z->remote.loop, &call->limit);
    struct recover_entry root = {.path = g_strdup(call->path)};
    g_ptr_array_add(flow->entries, g_memdup2(&root, sizeof root));
    call_sync(call, call->path);
    call_then(call, recover_next);
}

void zk_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    struct zookeeper *z = (struct zookeeper *)b;
    static const struct zk_flow recover = {sizeof(struct recover_flow), .begin = recover_begin,
                                           .failed = recover_failed, .clear = recover_clear};
    struct recovery recovery = {.tell = found, .arg = arg};
    if (!z->resumes) {
        return;
    }
    struct zk_call *call = call_new(z, &recover, remote_op_done(&z->remote, NULL, NULL, &recovery));
    call->path = node_path(z, "");
    call_start(call, RECOVER_CONNECT);
    while (!recovery.ended) {
        ev_run(z->remote.loop, EVRUN_ONCE);
    }
    if (z->resumes && recovery.complete) {
        log_info("this mount goes on with its session, and with %u leases in it", recovery.found);
    } else if (z->resumes) {
        session_abandon(z, "the servers do not tell in time which leases this mount held before: they will run out");
    }
    z->resumes = false;
}

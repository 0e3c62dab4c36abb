/* resume: restores the leases and handle locks in the session that this mount's last daemon left.
 *
 * The servers do not list the nodes of a session, so all nodes are read once, many at a time, before the mount answers
 * requests.  A restored handle lock has no identity, because no handle of this mount has it.  A provisional lock ends,
 * because its open file is gone.  If a node cannot be read, the mount leaves the session, and all that it holds, to
 * time out.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define RESUME_CONNECT 5000 /* ms, until the session is ready */
#define RESUME_TIMEOUT 30.0 /* s, to read all nodes then */
#define RESUME_PART 64      /* nodes that are read together */

struct recovery {
    bool ended, complete;
    guint before; /* number of nodes read so far of the present queue */
    bool blocked; /* one of them is exclusive */
    guint found;
    backend_recover_each *report;
    void *arg;
};

struct resume_flow {
    struct zk_batch batch;
    GPtrArray *entries; /* struct resume_entry: the nodes to read that are known so far */
    guint looked_at;    /* how many of them are done */
    GPtrArray *ended;   /* nodes to remove: their tickets have ended */
};

static struct resume_flow *resume_of(struct zk_batch *batch)
{
    return (struct resume_flow *)batch;
}

static void resume_clear(struct zk_batch *batch)
{
    struct resume_flow *flow = resume_of(batch);
    g_clear_pointer(&flow->entries, g_ptr_array_unref);
    g_clear_pointer(&flow->ended, g_ptr_array_unref);
}

/* A node to read. */
struct resume_entry {
    char *path;
    bool ticket, first; /* first: of its queue */
    bool sequence;      /* its queue is a directory's */
    uint32_t width;     /* of that directory */
    int64_t delay;      /* lock-delay of the lock's directory */
};

static void resume_entry_free(gpointer data)
{
    struct resume_entry *entry = data;
    g_free(entry->path);
    g_free(entry);
}

static void resume_add_entry(struct zk_batch *batch, const char *path, const char *leaf, struct resume_entry entry)
{
    entry.path = node_child(path, leaf);
    g_ptr_array_add(resume_of(batch)->entries, g_memdup2(&entry, sizeof entry));
}

static void resume_end(struct zk_batch *batch, bool complete)
{
    struct recovery *recovery = batch->request->arg;
    recovery->ended = true;
    recovery->complete = complete;
    remote_request_free(batch->request);
    batch->request = NULL;
    if (complete) {
        batch_end(batch);
    }
}

static void resume_failed(struct zk_batch *batch, enum remote_outcome outcome)
{
    (void)outcome;
    resume_end(batch, false);
}

/* False: the ticket has ended, is provisional, or waited for a handle that is closed. */
static bool resume_restore(struct zk_batch *batch, const struct resume_entry *entry, const struct zk_data *data,
                           const struct Stat *stat)
{
    struct zookeeper *z = batch->z;
    struct recovery *recovery = batch->request->arg;
    clock_ms now = clock_now(), written = MIN(stat->mtime - z->server_time, now);
    if (remote_ticket_find(&z->remote, data->id)) {
        return true; /* restored before the connection was lost */
    }
    /* a handle lock may have waited since its node was written, and been granted just now */
    bool lease = data->kind == BACKEND_LEASE;
    int64_t left = data->ttl - (lease && !data->automatic ? now - written : 0);
    bool holds = recovery->before < entry->width;
    bool may_hold = holds || (!lease && data->mode == BACKEND_SHARED && !recovery->blocked);
    if (left <= 0 || data->kind == BACKEND_PROVISIONAL || !(may_hold || (lease && entry->sequence))) {
        return false;
    }
    const char *leaf;
    char *path = g_strdup(entry->path + strlen(z->chroot) + 1), *lock = remote_parent(path, &leaf);
    struct backend_claim claim = {.kind = data->kind,
                                  .mode = data->mode,
                                  .sequence = entry->sequence,
                                  .ttl = data->ttl,
                                  .meta = data->meta,
                                  .content = data->content};
    const char *name = entry->sequence ? path : lock;
    struct remote_ticket *t = remote_ticket_restore(
        &z->remote, name, &claim,
        &(struct remote_restored){.id = data->id,
                                  .waits = !may_hold,
                                  .fence = node_fence(z, NULL, stat),
                                  .acquired = MIN(stat->ctime - z->server_time, now),
                                  .deadline = remote_deadline(now + left - data->ttl, data->ttl)});
    t->due = now; /* renewed now, if its owner lives, or a process has its file open */
    remote_ticket_schedule(&z->remote, t);
    struct zk_node *node = node_register(z, t, entry->path, t->head.fence);
    node->automatic = data->automatic;
    node->unconfirmed = !lease; /* its node still has an identity: the first renewal removes that */
    node->delay = entry->sequence ? 0 : entry->delay;
    node->marked = may_hold && node->delay > 0;
    watch_node(z, entry->path, t->id);
    recovery->found++;
    recovery->report(recovery->arg, name, &t->head, data->meta, NULL);
    g_free(lock);
    g_free(path);
    return true;
}

static void resume_ticket(struct zk_batch *batch, const struct resume_entry *entry, const struct zk_reply *get)
{
    struct recovery *recovery = batch->request->arg;
    struct zk_data data;
    recovery->before = entry->first ? 0 : recovery->before;
    recovery->blocked = recovery->blocked && !entry->first;
    if (get->rc != ZOK) {
        return;
    }
    node_decode(get->data, &data);
    bool ours = get->stat.ephemeralOwner == zoo_client_id(batch->z->handle)->client_id;
    if (ours && data.guards) {
        clock_ms written = MIN(get->stat.mtime - batch->z->server_time, clock_now());
        revoke_end_guard_in(batch->z, entry->path, written + data.ttl - clock_now(), entry->delay, data.broken);
    }
    bool stays = !ours || data.guards || (data.ours && resume_restore(batch, entry, &data, &get->stat));
    if (stays) {
        recovery->before++;
        recovery->blocked = recovery->blocked || !data.ours || data.upgrading || data.mode == BACKEND_EXCLUSIVE;
    } else {
        g_ptr_array_add(resume_of(batch)->ended, g_strdup(entry->path));
    }
    node_data_clear(&data);
}

/* Adds the queue of a lock or directory, in order, and the directory's other names. */
static void resume_node(struct zk_batch *batch, const struct resume_entry *entry, const struct zk_reply *get,
                        const struct zk_reply *list)
{
    GPtrArray *queue = node_queue(list->children);
    struct zk_data data;
    node_decode(get->data, &data);
    bool root = resume_of(batch)->entries->pdata[0] == entry, directory = data.directory || root;
    uint32_t width = directory ? data.attributes.width : 1;
    int32_t number;
    for (guint i = 0; i < queue->len; i++) {
        resume_add_entry(
            batch, entry->path, queue->pdata[i],
            (struct resume_entry){
                .ticket = true, .first = i == 0, .sequence = directory, .width = width, .delay = entry->delay});
    }
    if (directory) {
        watch_directory(batch->z, entry->path);
    }
    for (char **child = list->children; directory && child && *child; child++) {
        if (!node_parse_number(*child, &number) && !(root && node_is_hidden(batch->z, *child))) {
            resume_add_entry(batch, entry->path, *child, (struct resume_entry){.delay = data.attributes.delay});
        }
    }
    g_ptr_array_unref(queue);
    node_data_clear(&data);
}

static void resume_next(struct zk_batch *batch);

static void resume_on_part(struct zk_batch *batch)
{
    struct resume_flow *flow = resume_of(batch);
    guint answer = 0, end = MIN(flow->looked_at + RESUME_PART, flow->entries->len);
    g_ptr_array_set_size(flow->ended, 0);
    for (guint i = flow->looked_at; i < end; i++) {
        const struct resume_entry *entry = flow->entries->pdata[i];
        if (entry->ticket) {
            resume_ticket(batch, entry, batch_reply(batch, answer));
        } else {
            resume_node(batch, entry, batch_reply(batch, answer), batch_reply(batch, answer + 1));
        }
        answer += entry->ticket ? 1 : 2;
    }
    flow->looked_at = end;
    resume_next(batch);
}

static void resume_next(struct zk_batch *batch)
{
    const struct resume_flow *flow = resume_of(batch);
    guint end = MIN(flow->looked_at + RESUME_PART, flow->entries->len);
    if (flow->looked_at == end && flow->ended->len == 0) {
        resume_end(batch, true);
        return;
    }
    for (guint i = flow->looked_at; i < end; i++) {
        const struct resume_entry *entry = flow->entries->pdata[i];
        batch_get(batch, entry->path);
        if (!entry->ticket) {
            batch_children(batch, entry->path, false);
        }
    }
    for (guint i = 0; i < flow->ended->len; i++) {
        batch_delete(batch, flow->ended->pdata[i], -1);
    }
    batch_then(batch, resume_on_part);
}

static void resume_begin(struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    struct resume_flow *flow = resume_of(batch);
    resume_clear(batch);
    if (!z->resumes) { /* the session has expired before */
        resume_end(batch, true);
        return;
    }
    flow->entries = g_ptr_array_new_with_free_func(resume_entry_free);
    flow->ended = g_ptr_array_new_with_free_func(g_free);
    flow->looked_at = 0;
    ev_timer_stop(z->remote.loop, &batch->limit);
    ev_timer_set(&batch->limit, RESUME_TIMEOUT, 0);
    ev_timer_start(z->remote.loop, &batch->limit);
    struct resume_entry root = {.path = g_strdup(batch->path)};
    g_ptr_array_add(flow->entries, g_memdup2(&root, sizeof root));
    batch_sync(batch, batch->path);
    batch_then(batch, resume_next);
}

void zk_recover(struct remote *remote, backend_recover_each *found, void *arg)
{
    struct zookeeper *z = (struct zookeeper *)remote;
    static const struct zk_flow recover = {sizeof(struct resume_flow), .begin = resume_begin, .failed = resume_failed,
                                           .clear = resume_clear};
    struct recovery recovery = {.report = found, .arg = arg};
    if (!z->resumes) {
        return;
    }
    struct remote_request *request = remote_request_new(remote, REMOTE_NO_PROCEDURE, NULL, NULL);
    struct zk_batch *batch = batch_new(z, &recover, request);
    request->arg = &recovery;
    batch->path = node_path(z, "");
    batch_start(batch, RESUME_CONNECT);
    while (!recovery.ended) {
        ev_run(z->remote.loop, EVRUN_ONCE);
    }
    if (z->resumes && recovery.complete) {
        log_info("this mount goes on with its session, and with %u locks in it", recovery.found);
    } else if (z->resumes) {
        session_abandon(z, "the servers do not report in time which locks this mount held before: they will run out");
    }
    z->resumes = false;
}

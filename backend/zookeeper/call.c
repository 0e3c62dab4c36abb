/* call: requests that go together, and are repeated when the connection was lost.
 *
 * The library answers each request once, with ZCONNECTIONLOSS if nobody knows what has come of it.  A call with such
 * an answer waits until the session is there again, and begins anew: so what it does must find out what an earlier
 * try has done.  When its time is up its caller is told; answers that come later are let go.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

#define CALL_QUOTA_EXCEEDED (-125) /* ZQUOTAEXCEEDED, which 3.8's header does not have */
#define CALL_COMPLAIN_EVERY 1000   /* ms between logged errors */

static void call_reply_free(gpointer data)
{
    struct zk_reply *reply = data;
    g_free(reply->name);
    g_strfreev(reply->children);
    g_clear_pointer(&reply->data, g_bytes_unref);
    g_free(reply);
}

static void call_free(struct zk_call *call)
{
    g_ptr_array_unref(call->replies);
    g_ptr_array_unref(call->before);
    if (call->flow->clear) {
        call->flow->clear(call);
    }
    g_free(call->path);
    g_clear_pointer(&call->draft, node_free);
    g_free(call);
}

static void call_begin(struct zk_call *call)
{
    ev_timer_stop(call->z->remote.loop, &call->soon);
    call->parked = call->flow->urgent ? !call->z->connected : !call->z->ready;
    if (!call->parked) {
        call->flow->begin(call);
    }
}

/* From the loop, as if an answer had come. */
static void call_soon(struct zk_call *call, zk_step *next)
{
    call->next = next;
    ev_timer_set(&call->soon, 0, 0);
    ev_timer_start(call->z->remote.loop, &call->soon);
}

/* Another may write to that node now. */
static void call_end_writing(struct zk_call *call)
{
    struct zk_call *other;
    g_clear_pointer(&call->writes, g_free);
    TAILQ_FOREACH(other, &call->z->calls, link) {
        if (other->parked && call->z->ready) {
            call_soon(other, call_begin);
        }
    }
}

void call_end(struct zk_call *call)
{
    if (!call->ended) {
        call->ended = true;
        TAILQ_REMOVE(&call->z->calls, call, link);
        ev_timer_stop(call->z->remote.loop, &call->limit);
        ev_timer_stop(call->z->remote.loop, &call->soon);
        if (call->writes) {
            call_end_writing(call);
        }
    }
    if (call->open == 0 && !call->sending) {
        call_free(call);
    }
}

/* All is answered. */
static void call_go_on(struct zk_call *call)
{
    if (call->ended) {
        call_free(call);
    } else if (call->lost) {
        call->was_sent = true;
        call_begin(call);
    } else {
        call->next(call);
    }
}

static void call_on_limit(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct zk_call *call = timer->data;
    (void)loop, (void)events;
    enum remote_outcome outcome = call->was_sent || !call->parked ? REMOTE_UNKNOWN : REMOTE_NOT_SENT;
    if (call->op) {
        call->flow->failed(call, outcome);
        call->op = NULL;
    }
    if (!call->flow->persists) {
        call_end(call);
    }
}

static void call_on_soon(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    call_go_on(timer->data);
}

void *call_new(struct zookeeper *z, const struct zk_flow *flow, struct remote_op *op)
{
    struct zk_call *call = g_malloc0(flow->size);
    call->z = z;
    call->op = op;
    call->flow = flow;
    call->replies = g_ptr_array_new_with_free_func(call_reply_free);
    call->before = g_ptr_array_new_with_free_func(call_reply_free);
    ev_init(&call->limit, call_on_limit);
    ev_init(&call->soon, call_on_soon);
    call->limit.data = call->soon.data = call;
    TAILQ_INSERT_TAIL(&z->calls, call, link);
    return call;
}

void call_start(struct zk_call *call, int64_t timeout)
{
    ev_timer_set(&call->limit, (double)(timeout ? timeout : ZOOKEEPER_TIMEOUT) / 1000, 0);
    ev_timer_start(call->z->remote.loop, &call->limit);
    call_begin(call);
}

void call_resume_all(struct zookeeper *z)
{
    for (struct zk_call *call = TAILQ_FIRST(&z->calls), *next; call && z->ready; call = next) {
        next = TAILQ_NEXT(call, link);
        if (call->parked) {
            call_begin(call);
        }
    }
}

void call_end_all(struct zookeeper *z)
{
    while (!TAILQ_EMPTY(&z->calls)) {
        call_end(TAILQ_FIRST(&z->calls));
    }
}

/* --- answers --- */

static bool call_is_lost(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZSESSIONEXPIRED || rc == ZCLOSING ||
           rc == ZINVALIDSTATE || rc == ZSESSIONMOVED;
}

static void call_answered(const struct zk_reply *constant, int rc, const struct Stat *stat)
{
    struct zk_reply *reply = (struct zk_reply *)constant;
    struct zk_call *call = reply->call;
    reply->rc = rc;
    if (stat) {
        reply->stat = *stat;
    }
    call->lost = call->lost || call_is_lost(rc);
    if (--call->open == 0) {
        call_go_on(call);
    }
}

static void call_on_void(int rc, const void *reply)
{
    call_answered(reply, rc, NULL);
}

static void call_on_stat(int rc, const struct Stat *stat, const void *reply)
{
    call_answered(reply, rc, rc == ZOK ? stat : NULL);
}

static void call_on_data(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    struct zk_reply *reply = (struct zk_reply *)data;
    if (rc == ZOK) {
        reply->data = g_bytes_new(value, length > 0 ? (gsize)length : 0);
    }
    call_answered(reply, rc, rc == ZOK ? stat : NULL);
}

static void call_on_children(int rc, const struct String_vector *strings, const struct Stat *stat, const void *data)
{
    struct zk_reply *reply = (struct zk_reply *)data;
    if (rc == ZOK) {
        reply->children = g_new0(char *, (gsize)strings->count + 1);
        for (int i = 0; i < strings->count; i++) {
            reply->children[i] = g_strdup(strings->data[i]);
        }
    }
    call_answered(reply, rc, rc == ZOK ? stat : NULL);
}

static void call_on_created(int rc, const char *name, const struct Stat *stat, const void *data)
{
    struct zk_reply *reply = (struct zk_reply *)data;
    reply->name = rc == ZOK ? g_strdup(name) : NULL;
    call_answered(reply, rc, rc == ZOK ? stat : NULL);
}

static void call_on_string(int rc, const char *name, const void *reply)
{
    (void)name;
    call_answered(reply, rc, NULL);
}

/* --- requests --- */

static struct zk_reply *call_ask(struct zk_call *call)
{
    struct zk_reply *reply = g_new0(struct zk_reply, 1);
    if (!call->sending) { /* the first of this step; the answers before are still looked at */
        g_ptr_array_unref(call->before);
        call->before = call->replies;
        call->replies = g_ptr_array_new_with_free_func(call_reply_free);
        call->sending = true;
        call->lost = false;
        call->sent = clock_now();
    }
    reply->call = call;
    g_ptr_array_add(call->replies, reply);
    call->open++;
    call->z->requests++;
    return reply;
}

/* One that the library did not take is not answered either. */
static void call_asked(struct zk_reply *reply, int rc)
{
    if (rc != ZOK) {
        reply->rc = rc;
        reply->call->open--;
        reply->call->lost = reply->call->lost || call_is_lost(rc);
    }
}

static struct ACL_vector *call_acl(const struct zookeeper *z)
{
    return z->digest ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

static const char *call_bytes(GBytes *data, int *ret_length)
{
    gsize length = 0;
    const char *bytes = data ? g_bytes_get_data(data, &length) : NULL;
    *ret_length = (int)length;
    return bytes ? bytes : "";
}

void call_create(struct zk_call *call, const char *path, GBytes *data, int mode)
{
    struct zk_reply *reply = call_ask(call);
    int length;
    const char *bytes = call_bytes(data, &length);
    call_asked(reply,
               zoo_acreate2(call->z->handle, path, bytes, length, call_acl(call->z), mode, call_on_created, reply));
}

void call_delete(struct zk_call *call, const char *path, int version)
{
    struct zk_reply *reply = call_ask(call);
    call_asked(reply, zoo_adelete(call->z->handle, path, version, call_on_void, reply));
}

void call_set(struct zk_call *call, const char *path, GBytes *data, int version)
{
    struct zk_reply *reply = call_ask(call);
    int length;
    const char *bytes = call_bytes(data, &length);
    call_asked(reply, zoo_aset(call->z->handle, path, bytes, length, version, call_on_stat, reply));
}

void call_get(struct zk_call *call, const char *path)
{
    struct zk_reply *reply = call_ask(call);
    call_asked(reply, zoo_aget(call->z->handle, path, 0, call_on_data, reply));
}

/* What is not there, or may not be read, is not watched; of what it was before all has been told. */
static void call_on_watched(int rc, const char *value, int length, const struct Stat *stat, const void *data)
{
    const struct zk_reply *reply = data;
    if (rc == ZNONODE || rc == ZNOAUTH) {
        g_hash_table_remove(reply->call->z->watches, reply->name);
    }
    call_on_data(rc, value, length, stat, data);
}

void call_watch(struct zk_call *call, const char *path, const char *token)
{
    struct zk_reply *reply = call_ask(call);
    reply->name = g_strdup(path);
    if (token) {
        node_note_watch(call->z, path, token);
    }
    call_asked(reply, zoo_aget(call->z->handle, path, 1, call_on_watched, reply));
}

void call_exists(struct zk_call *call, const char *path)
{
    struct zk_reply *reply = call_ask(call);
    call_asked(reply, zoo_aexists(call->z->handle, path, 0, call_on_stat, reply));
}

void call_children(struct zk_call *call, const char *path, bool watch)
{
    struct zk_reply *reply = call_ask(call);
    call_asked(reply, zoo_aget_children2(call->z->handle, path, watch, call_on_children, reply));
}

void call_sync(struct zk_call *call, const char *path)
{
    struct zk_reply *reply = call_ask(call);
    call_asked(reply, zoo_async(call->z->handle, path, call_on_string, reply));
}

/* A node that says `data`. */
static void call_make_ops(struct zk_reply *reply, int *count, const char *path, GBytes *data)
{
    int length;
    const char *bytes = call_bytes(data, &length);
    zoo_create_op_init(&reply->operations[(*count)++], path, "", 0, call_acl(reply->call->z), ZOO_PERSISTENT,
                       reply->buffer, sizeof reply->buffer);
    zoo_set_op_init(&reply->operations[(*count)++], path, bytes, length, 0, &reply->stat);
}

static void call_multi(struct zk_reply *reply, int count)
{
    call_asked(reply,
               zoo_amulti(reply->call->z->handle, count, reply->operations, reply->results, call_on_void, reply));
}

void call_make(struct zk_call *call, const char *path, GBytes *data, int replace)
{
    struct zk_reply *reply = call_ask(call);
    int count = 0;
    if (replace >= 0) {
        zoo_delete_op_init(&reply->operations[count++], path, replace);
    }
    call_make_ops(reply, &count, path, data);
    if (replace == 1) {
        int length;
        const char *bytes = call_bytes(data, &length);
        zoo_set_op_init(&reply->operations[count++], path, bytes, length, 1, &reply->stat);
    }
    call_multi(reply, count);
}

static char *call_lock(const struct zk_node *node)
{
    return g_strndup(node->path, (gsize)(node->leaf - node->path - 1));
}

/* If nobody else stands in the lock it is removed, too, or made anew: what it was might end while it is empty. */
void call_end_hold(struct zk_call *call, const char *path, const char *lock, int64_t delay)
{
    GBytes *mark = node_encode_mark(NULL, 0, delay);
    for (int alone = 1; alone >= 0; alone--) {
        struct zk_reply *reply = call_ask(call);
        int length, count = 0;
        const char *bytes = call_bytes(mark, &length);
        zoo_delete_op_init(&reply->operations[count++], path, -1);
        if (alone) {
            zoo_delete_op_init(&reply->operations[count++], lock, -1);
        } else {
            zoo_set_op_init(&reply->operations[count++], lock, bytes, length, -1, &reply->stat);
        }
        if (alone && delay > 0) {
            call_make_ops(reply, &count, lock, mark);
        }
        call_multi(reply, count);
    }
    g_bytes_unref(mark);
}

void call_guard(struct zk_call *call, const char *path, const char *guard, GBytes *data)
{
    struct zk_reply *reply = call_ask(call);
    int length;
    const char *bytes = call_bytes(data, &length);
    zoo_delete_op_init(&reply->operations[0], path, -1);
    zoo_create_op_init(&reply->operations[1], guard, bytes, length, call_acl(call->z), ZOO_EPHEMERAL, reply->buffer,
                       sizeof reply->buffer);
    call_multi(reply, 2);
}

void call_move(struct zk_call *call, const struct zk_node *from, const struct zk_node *to, GBytes *data)
{
    struct zk_reply *reply = call_ask(call);
    int length, mark_length;
    GBytes *mark = node_encode_mark(NULL, 0, 0);
    char *lock = call_lock(from);
    const char *bytes = call_bytes(data, &length), *mark_bytes = call_bytes(mark, &mark_length);
    zoo_delete_op_init(&reply->operations[0], from->path, -1);
    zoo_set_op_init(&reply->operations[1], to->path, bytes, length, -1, &reply->stat);
    zoo_set_op_init(&reply->operations[2], lock, mark_bytes, mark_length, -1, NULL);
    call_multi(reply, from->marked ? 3 : 2);
    g_bytes_unref(mark);
    g_free(lock);
}

void call_mark(struct zk_call *call, struct zk_node *node)
{
    if (node->delay > 0 || node->marked) {
        node->marked = true;
        char *path = call_lock(node);
        int64_t bound = node->delay > 0 ? zoo_recv_timeout(call->z->handle) + node->ttl / 3 : 0;
        GBytes *mark = node_encode_mark(node->leaf, bound, node->delay);
        struct zk_reply *reply = call_ask(call);
        int length;
        const char *bytes = call_bytes(mark, &length);
        zoo_check_op_init(&reply->operations[0], node->path, -1);
        zoo_set_op_init(&reply->operations[1], path, bytes, length, -1, &reply->stat);
        call_multi(reply, 2);
        g_bytes_unref(mark);
        g_free(path);
    }
}

void call_leave(struct zk_call *call, const struct zk_node *node, bool lost)
{
    if (node->marked) {
        char *lock = call_lock(node);
        call_end_hold(call, node->path, lock, lost ? node->delay : 0);
        g_free(lock);
    } else {
        call_delete(call, node->path, -1);
    }
}

void call_wait(struct zk_call *call, int64_t ms, zk_step *next)
{
    call->next = next;
    call->lost = false;
    ev_timer_set(&call->soon, (double)ms / 1000, 0);
    ev_now_update(call->z->remote.loop);
    ev_timer_start(call->z->remote.loop, &call->soon);
}

void call_then(struct zk_call *call, zk_step *next)
{
    call->lost = call->sending && call->lost;
    call->sending = false;
    call->next = next;
    if (call->open == 0) { /* nothing left here */
        call_soon(call, next);
    }
}

const struct zk_reply *call_reply(const struct zk_call *call, guint index)
{
    return call->replies->pdata[index];
}

enum backend_result call_result(struct zk_call *call, int rc)
{
    switch (rc) {
    case ZOK:
        return BACKEND_OK;
    case ZNONODE:
        return BACKEND_MISSING;
    case ZNODEEXISTS:
        return BACKEND_EXISTS;
    case ZNOTEMPTY:
        return BACKEND_NOT_EMPTY;
    case ZBADARGUMENTS:
    case ZMARSHALLINGERROR:
        return BACKEND_INVALID;
    case CALL_QUOTA_EXCEEDED:
        return BACKEND_FULL;
    default:
        if (clock_now() - call->z->complained >= CALL_COMPLAIN_EVERY) {
            call->z->complained = clock_now();
            log_error("the ZooKeeper server refuses a request in %s: %s", call->z->address, zerror(rc));
        }
        return BACKEND_UNREACHABLE;
    }
}

/* --- one write to a node at a time --- */

static const struct zk_call *call_writer(const struct zookeeper *z, const char *token)
{
    const struct zk_call *call;
    TAILQ_FOREACH(call, &z->calls, link) {
        if (g_strcmp0(call->writes, token) == 0) {
            return call;
        }
    }
    return NULL;
}

bool call_is_written(const struct zookeeper *z, const char *token)
{
    return call_writer(z, token);
}

bool call_may_write(struct zk_call *call, const char *token)
{
    const struct zk_call *writer = call_writer(call->z, token);
    if (writer) {
        call->parked = writer != call;
    } else {
        g_free(call->writes);
        call->writes = g_strdup(token);
    }
    return !call->parked;
}

struct zk_node *call_draft(struct zk_call *call)
{
    g_clear_pointer(&call->draft, node_free);
    call->draft = node_copy(node_of(call->z, call->writes));
    return call->draft;
}

void call_write(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, call->writes);
    GBytes *bytes = node_encode(call->draft, call->writes);
    node->unsure = true;
    node->lax = node->lax || call->draft->mode == BACKEND_SHARED;
    call_set(call, node->path, bytes, -1);
    g_bytes_unref(bytes);
}

enum backend_result call_written(struct zk_call *call)
{
    int rc = call_reply(call, 0)->rc;
    struct zk_node *node = node_of(call->z, call->writes);
    if (rc == ZOK && node) {
        node_accept(node, call->draft);
    }
    return rc == ZNONODE || (rc == ZOK && !node) ? BACKEND_STALE : call_result(call, rc);
}

/* --- answers to remote.h --- */

void call_answer(struct zk_call *call, enum backend_result result)
{
    struct remote_op *op = call->op;
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = result, .sent = call->sent};
    answer.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
    answer.repeated = call->was_sent;
    call->op = NULL;
    if (op) {
        op->answered(op, &answer);
    }
    call_end(call);
}

static void call_on_settled(struct zk_call *call)
{
    call_answer(call, call->result);
}

void call_settle(struct zk_call *call, enum backend_result result)
{
    call->result = result;
    call_then(call, call_on_settled);
}

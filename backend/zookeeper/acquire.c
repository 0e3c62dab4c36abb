/* acquire: taking a lock, and waiting for it: the recipe of Curator's mutex.
 *
 * A ticket is a node behind those that were made before.  Who has made it sees all of these when it lists them (a
 * session sees no less than what its own write came after), so what it finds before itself is all that will ever
 * stand there; turn.c looks at that.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

/* --- its node --- */

static void acquire_on_created(struct zk_call *call);

/* There was no node of the lock: it is made, if its directory is there, and the ticket's in it. */
static void acquire_on_parent(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 0), *made = call_reply(call, 1), *create = call_reply(call, 2);
    const struct remote_ticket *t = turn_ticket(call);
    bool in_root = !strchr(t->place->name, '/');
    struct zk_data data;
    node_decode(get->data, &data);
    bool well = in_root || data.directory;
    node_data_clear(&data);
    if (well && (made->rc == ZOK || made->rc == ZNODEEXISTS)) {
        g_ptr_array_remove_range(call->replies, 0, 2);
        acquire_on_created(call);
    } else if (well) {
        turn_tell(call, call_result(call, made->rc));
    } else {
        call->result = made->rc == ZNOCHILDRENFOREPHEMERALS || (get->rc == ZOK && get->stat.numChildren > 0)
                           ? BACKEND_NOT_DIRECTORY
                           : BACKEND_MISSING;
        if (create->rc == ZOK) {
            call_delete(call, create->name, -1);
        }
        if (made->rc == ZOK) {
            call_delete(call, call->path, 0);
        }
        call_then(call, turn_on_undone);
    }
}

static void acquire_send_create(struct zk_call *call)
{
    const struct remote_ticket *t = turn_ticket(call);
    char *prefix = node_prefix(call->z, t);
    struct zk_node *node = node_note(call->z, t, NULL, 0);
    GBytes *bytes = node_encode(node, t->token);
    call_create(call, prefix, bytes, ZOO_EPHEMERAL_SEQUENTIAL);
    call_children(call, call->path, false);
    call_get(call, call->path);
    turn_get_directory(call);
    g_bytes_unref(bytes);
    node_free(node);
    g_free(prefix);
}

/* What would be removed once it is empty could not tell of a lock-delay. */
static void acquire_make_lock(struct zk_call *call, bool delays)
{
    const struct remote_ticket *t = turn_ticket(call);
    int32_t number;
    const char *leaf = remote_leaf(t->place->name);
    if (t->place->sequence || node_number(leaf, &number)) { /* which would be a ticket of the directory */
        turn_tell(call, t->place->sequence ? BACKEND_MISSING : BACKEND_INVALID);
    } else {
        turn_get_directory(call);
        call_create(call, call->path, NULL, delays ? ZOO_PERSISTENT : ZOO_CONTAINER);
        acquire_send_create(call);
        call_then(call, acquire_on_parent);
    }
}

/* The servers count in 32 bits, and then go on giving the last number. */
static bool acquire_is_in_order(const char *path)
{
    int32_t number;
    return node_number(path, &number) && number < INT32_MAX;
}

static void acquire_on_created(struct zk_call *call)
{
    const struct zk_reply *create = call_reply(call, 0), *list = call_reply(call, 1), *get = call_reply(call, 2),
                          *directory = call_reply(call, 3);
    const struct remote_ticket *t = turn_ticket(call);
    if (create->rc == ZNONODE) {
        acquire_make_lock(call, node_delay_of(directory->data) > 0);
    } else if (create->rc == ZNOCHILDRENFOREPHEMERALS) {
        turn_busy_with_ticket(call);
    } else if (create->rc != ZOK) {
        turn_tell(call, call_result(call, create->rc));
    } else if (!acquire_is_in_order(create->name)) {
        call->result = BACKEND_FULL;
        call_delete(call, create->name, -1);
        call_then(call, turn_on_undone);
    } else {
        node_note(call->z, t, create->name, node_fence(call->z, NULL, &create->stat));
        if (list->rc != ZOK) {
            turn_look(call);
        } else if (!turn_is_misplaced(call, get)) {
            turn_judge(call, list, get, directory);
        }
    }
}

static void acquire_create(struct zk_call *call)
{
    acquire_send_create(call);
    call_then(call, acquire_on_created);
}

/* --- what an earlier try has made, of which the answer was lost, or its session is over --- */

static void acquire_remove_found(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    for (guint i = 0; i < change->made->len; i++) {
        if (change->made->pdata[i]) {
            call_delete(call, change->made->pdata[i], -1);
        }
    }
    call_then(call, change->then);
}

/* A sequence file's name does not tell whose it is. */
static void acquire_on_data(struct zk_call *call)
{
    struct zk_change *change = zk_change_of(call);
    for (guint i = 0, answers = call->replies->len; i < answers; i++) {
        struct zk_data data;
        node_decode(call_reply(call, i)->data, &data);
        if (strcmp(data.token, change->token) != 0) {
            g_clear_pointer(&change->made->pdata[i], g_free);
        }
        node_data_clear(&data);
    }
    acquire_remove_found(call);
}

static void acquire_on_searched(struct zk_call *call)
{
    struct zk_change *change = zk_change_of(call);
    node_take_queue(&change->made, call->path, call_reply(call, 1)->children);
    for (guint i = change->made->len; i-- > 0;) {
        if (!change->sequence && !node_is_of(strrchr(change->made->pdata[i], '/') + 1, change->token)) {
            g_ptr_array_remove_index(change->made, i);
        }
    }
    if (!change->sequence) {
        acquire_remove_found(call);
        return;
    }
    for (guint i = 0; i < change->made->len; i++) {
        call_get(call, change->made->pdata[i]);
    }
    call_then(call, change->made->len > 0 ? acquire_on_data : change->then);
}

void acquire_remove(struct zk_call *call, zk_step *next)
{
    zk_change_of(call)->then = next;
    call_sync(call, call->path);
    call_children(call, call->path, false);
    call_then(call, acquire_on_searched);
}

/* A flock that holds beside what its lock owner has got by that handle excludes what it asks for by another. */
static bool acquire_is_excluded(const struct remote_ticket *t)
{
    const struct remote_ticket *other;
    LIST_FOREACH(other, &t->place->tickets, link) {
        bool shared = other->head.mode == BACKEND_SHARED && t->head.mode == BACKEND_SHARED;
        if (other->state == REMOTE_HELD && !shared &&
            !backend_identity_matches(BACKEND_IDENTITY(other), BACKEND_IDENTITY(t))) {
            return true;
        }
    }
    return false;
}

void acquire_begin(struct zk_call *call)
{
    const struct remote_ticket *t = turn_ticket(call), *was = remote_ticket_joins(t);
    if (!call->path) {
        call->path = node_path(call->z, t->place->name);
    }
    const struct zk_node *held = was && !acquire_is_excluded(t) ? node_of(call->z, was->token) : NULL;
    enum backend_mode mode = held ? turn_joined_mode(t, was) : BACKEND_EXCLUSIVE;
    if (held && held->lax && mode == BACKEND_EXCLUSIVE && t->head.mode == BACKEND_SHARED) {
        call->parked = true; /* until what has made it weaker is undone */
    } else if (held && !call_may_write(call, was->token)) {
        return;
    } else if (held && (!held->lax || mode == BACKEND_SHARED)) {
        turn_join(call, was, node_of(call->z, t->token));
    } else if (node_of(call->z, t->token)) {
        turn_look(call);
    } else if (call->was_sent) {
        acquire_remove(call, acquire_create);
    } else {
        acquire_create(call);
    }
}

/* --- the operation --- */

/* What the servers could not keep, or would take for a ticket. */
static enum backend_result acquire_check(const char *name, const struct backend_claim *claim)
{
    const char *leaf = remote_leaf(name);
    if (!*name) {
        return BACKEND_IS_DIRECTORY;
    }
    if (claim->sequence && (!g_str_has_suffix(leaf, "-") || strlen(leaf) + 10 > 255)) {
        return BACKEND_INVALID;
    }
    return node_is_name(name) ? BACKEND_OK : BACKEND_INVALID;
}

struct backend_ticket *zk_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                  backend_acquire_done *done, void *arg)
{
    struct zookeeper *z = (struct zookeeper *)b;
    enum backend_result result = acquire_check(name, claim);
    if (result != BACKEND_OK) {
        done(arg, result, NULL, NULL);
        return NULL;
    }
    if (claim->kind == BACKEND_FCNTL && (claim->start > 0 || claim->end < BACKEND_RANGE_MAX) && !z->told_of_ranges) {
        log_notice("a lock of a range of bytes covers the whole lock on ZooKeeper");
        z->told_of_ranges = true;
    }
    remote_tell_expired(&z->remote, name);
    struct remote_ticket *t = remote_ticket_new(&z->remote, name, claim);
    remote_acquire(&z->remote, t, done, arg);
    return &t->head;
}

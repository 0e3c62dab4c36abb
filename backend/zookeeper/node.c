/* node: names and data of nodes.
 *
 * Data of a ticket: the line "leasefs1 KIND MODE TTL TOKEN META-LENGTH HANDLE LOCK-OWNER", then meta and content.
 *   MODE   NODE_RAISES: shared, and wants to be exclusive
 *   TTL    from the last write; negative: renewed with the session, without a write
 *   HANDLE, LOCK-OWNER   the identity: tickets of one mount with the same handle or lock owner are compatible
 * The line of a guard ends with "guard FENCING-TOKEN GRANTED BROKEN".
 * Data of a directory: "leasefs1 directory TTL WIDTH DELAY NONCE", then meta.
 * Data of the hidden node: "leasefs1 made MICROSECONDS", and the line "format NUMBER VERSION HOST" of the mount that
 * made it. Data of a session's node: "NUMBER VERSION HOST" of its mount, and the line "session MS", its timeout. A node
 * with other data is another client's. It counts as a handle lock, and ends with its session.
 */
#include <stdio.h>
#include <string.h>

#include "backend/format.h"
#include "backend/zookeeper/private.h"

#define NODE_DIGITS 10
#define NODE_FORMAT "format "
#define NODE_SESSION "session "
#define NODE_RAISES 2u
#define NODE_HEAD_MAX 400
#define NODE_BOUND_MAX ((int64_t)3600 * 1000) /* ms: a longer session in a node's data counts as this */

char *node_path(const struct zookeeper *z, const char *name)
{
    return *name ? g_strconcat(z->chroot, "/", name, NULL) : g_strdup(*z->chroot ? z->chroot : "/");
}

char *node_child(const char *path, const char *leaf)
{
    return g_strconcat(strcmp(path, "/") == 0 ? "" : path, "/", leaf, NULL);
}

char *node_prefix(const struct zookeeper *z, const struct remote_ticket *t)
{
    const char *k = t->id;
    if (t->lock->sequence) {
        const char *leaf;
        char *directory = remote_parent(t->name, &leaf), *base = node_path(z, directory);
        gsize length = strlen(leaf);
        int32_t number;
        length -= node_parse_number(leaf, &number) ? NODE_DIGITS : 0; /* the name has its earlier number */
        char *path = g_strdup_printf("%s/%.*s", *directory ? base : z->chroot, (int)length, leaf);
        g_free(base);
        g_free(directory);
        return path;
    }
    if (z->kazoo) {
        return g_strdup_printf("%s/%s/%s__lock__", z->chroot, t->lock->name, k);
    }
    return g_strdup_printf("%s/%s/_c_%.8s-%.4s-%.4s-%.4s-%s-lock-", z->chroot, t->lock->name, k, k + 8, k + 12, k + 16,
                           k + 20);
}

uint64_t node_fence(const struct zookeeper *z, const struct zk_data *data, const struct Stat *stat)
{
    return data && data->guards ? data->guards : z->base + (uint64_t)stat->czxid;
}

GBytes *node_encode_base(void)
{
    char *about = format_describe_mount(ZOOKEEPER_FORMAT);
    char *text = g_strdup_printf("leasefs1 made %" G_GUINT64_FORMAT "\n" NODE_FORMAT "%s\n", clock_wall_us(), about);
    g_free(about);
    return g_bytes_new_take(text, strlen(text));
}

char *node_format(const char *bytes, gssize size)
{
    char *text = g_strndup(bytes, (gsize)CLAMP(size, 0, NODE_HEAD_MAX)), *at = strstr(text, "\n" NODE_FORMAT);
    char *format = at ? g_strdup(at + strlen("\n" NODE_FORMAT)) : NULL;
    g_free(text);
    return format ? g_strchomp(format) : NULL;
}

uint64_t node_base(GBytes *data, const struct Stat *stat)
{
    gsize size = 0;
    const char *bytes = data ? g_bytes_get_data(data, &size) : NULL;
    char *text = g_strndup(bytes, MIN(size, NODE_HEAD_MAX));
    uint64_t made = 0;
    bool made_known = sscanf(text, "leasefs1 made %" G_GUINT64_FORMAT, &made) == 1;
    g_free(text);
    return made_known ? made - (uint64_t)stat->czxid : 0;
}

char *node_session_path(const struct zookeeper *z, int64_t session)
{
    return g_strdup_printf("%s/" ZOOKEEPER_HIDDEN "/%016" G_GINT64_MODIFIER "x", z->chroot, (guint64)session);
}

GBytes *node_encode_session(int timeout)
{
    char *about = format_describe_mount(ZOOKEEPER_FORMAT);
    char *text = g_strdup_printf("%s\n" NODE_SESSION "%d\n", about, timeout);
    g_free(about);
    return g_bytes_new_take(text, strlen(text));
}

int64_t node_session_timeout(GBytes *data)
{
    gsize size = 0;
    const char *bytes = data ? g_bytes_get_data(data, &size) : NULL;
    char *text = g_strndup(bytes, MIN(size, NODE_HEAD_MAX)), *at = strstr(text, "\n" NODE_SESSION);
    int64_t timeout = at ? g_ascii_strtoll(at + strlen("\n" NODE_SESSION), NULL, 10) : 0;
    g_free(text);
    return CLAMP(timeout, 0, NODE_BOUND_MAX);
}

/* The server keeps names as UTF-16: other bytes would be refused, or become another name. */
bool node_is_name(const char *name)
{
    if (strcmp(name, ZOOKEEPER_HIDDEN) == 0 || g_str_has_prefix(name, ZOOKEEPER_HIDDEN "/")) {
        return false;
    }
    if (!g_utf8_validate(name, -1, NULL)) {
        return false;
    }
    for (const char *at = name; *at; at = g_utf8_next_char(at)) {
        gunichar c = g_utf8_get_char(at);
        if (c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0xd800 && c <= 0xf8ff) || c >= 0xfff0) {
            return false;
        }
    }
    return true;
}

bool node_is_hidden(const struct zookeeper *z, const char *leaf)
{
    return strcmp(leaf, ZOOKEEPER_HIDDEN) == 0 || (!*z->chroot && strcmp(leaf, "zookeeper") == 0);
}

bool node_parse_number(const char *leaf, int32_t *ret_number)
{
    size_t length = strlen(leaf);
    if (length < NODE_DIGITS || strspn(leaf + length - NODE_DIGITS, "0123456789") != NODE_DIGITS) {
        return false;
    }
    gint64 number = g_ascii_strtoll(leaf + length - NODE_DIGITS, NULL, 10);
    *ret_number = (int32_t)number;
    return number <= INT32_MAX;
}

bool node_has_token(const char *leaf, const char *id)
{
    size_t found = 0;
    if (g_str_has_prefix(leaf, "_c_")) {
        leaf += strlen("_c_");
    }
    for (; *leaf && found < REMOTE_ID_SIZE - 1; leaf++) {
        if (*leaf == '-') {
            continue;
        }
        if (*leaf != id[found]) {
            return false;
        }
        found++;
    }
    return found == REMOTE_ID_SIZE - 1;
}

static int node_compare(gconstpointer a, gconstpointer b)
{
    int32_t x = 0, y = 0;
    node_parse_number(*(const char *const *)a, &x);
    node_parse_number(*(const char *const *)b, &y);
    return (x > y) - (x < y);
}

GPtrArray *node_queue(char *const *children)
{
    GPtrArray *queue = g_ptr_array_new();
    int32_t number;
    for (; children && *children; children++) {
        if (node_parse_number(*children, &number)) {
            g_ptr_array_add(queue, *children);
        }
    }
    g_ptr_array_sort(queue, node_compare);
    return queue;
}

void node_replace_queue(GPtrArray **paths, const char *path, char *const *children)
{
    GPtrArray *queue = node_queue(children);
    g_clear_pointer(paths, g_ptr_array_unref);
    *paths = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len; i++) {
        g_ptr_array_add(*paths, node_child(path, queue->pdata[i]));
    }
    g_ptr_array_unref(queue);
}

/* --- data --- */

static void node_append(GByteArray *to, GBytes *bytes)
{
    gsize size = 0;
    const void *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    g_byte_array_append(to, data, (guint)size);
}

static GBytes *node_join(char *head, GBytes *meta, GBytes *content)
{
    GByteArray *bytes = g_byte_array_new();
    g_byte_array_append(bytes, (const guint8 *)head, (guint)strlen(head));
    node_append(bytes, meta);
    node_append(bytes, content);
    g_free(head);
    return g_byte_array_free_to_bytes(bytes);
}

GBytes *node_encode(const struct zk_node *node, const char *id)
{
    char *head = g_strdup_printf(
        "leasefs1 %u %u %" G_GINT64_FORMAT " %s %u %" G_GINT64_MODIFIER "x %" G_GINT64_MODIFIER "x\n", node->kind,
        node->upgrading ? NODE_RAISES : node->mode, node->automatic ? -node->ttl : node->ttl, id,
        node->meta ? (unsigned)g_bytes_get_size(node->meta) : 0, node->handle, node->lock_owner);
    return node_join(head, node->meta, node->content);
}

GBytes *node_encode_guard(const struct zookeeper *z, const struct zk_data *data, const struct Stat *stat, bool broken,
                          int64_t left)
{
    char id[REMOTE_ID_SIZE];
    remote_make_id(id); /* not the holder's id: its requests are not about this node */
    char *head = g_strdup_printf("leasefs1 %u %u %" G_GINT64_FORMAT " %s %u 0 0 guard %" G_GUINT64_FORMAT
                                 " %" G_GINT64_FORMAT " %d\n",
                                 data->kind, data->mode, left, id, (unsigned)g_bytes_get_size(data->meta),
                                 node_fence(z, data, stat), (int64_t)stat->ctime, broken);
    return node_join(head, data->meta, data->content);
}

char *node_guard_path(const struct zookeeper *z, const char *path, bool sequence)
{
    char *guard = g_strdup(path);
    if (!sequence) {
        strrchr(guard, '/')[z->kazoo ? 1 : 1 + strlen("_c_")] = 'g'; /* a token has no such letter */
    }
    return guard;
}

GBytes *node_encode_directory(const struct backend_directory *d, uint64_t nonce, const char *further)
{
    char *head =
        g_strdup_printf("leasefs1 directory %" G_GINT64_FORMAT " %u %" G_GINT64_FORMAT " %" G_GUINT64_FORMAT "%s\n",
                        d->ttl, d->width, d->delay, nonce, further ? further : "");
    return node_join(head, d->meta, NULL);
}

GBytes *node_encode_mark(const char *leaf, int64_t bound, int64_t delay)
{
    char *text = g_strdup_printf("leasefs1 held %s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT "\n", leaf ? leaf : "-",
                                 bound, delay);
    return g_bytes_new_take(text, strlen(text));
}

clock_ms node_delay(const struct zookeeper *z, GBytes *bytes, const struct Stat *stat, char *const *children)
{
    struct zk_data data;
    node_decode(bytes, &data);
    node_data_clear(&data);
    if (!*data.held || g_strv_contains((const char *const *)children, data.held)) {
        return 0;
    }
    clock_ms end = MIN(stat->mtime - z->server_time, clock_now()) + data.lost_after + data.delay;
    return end > clock_now() ? end : 0;
}

int64_t node_read_delay(GBytes *directory)
{
    struct zk_data data;
    node_decode(directory, &data);
    node_data_clear(&data);
    return data.attributes.delay;
}

static void node_decode_guard(struct zk_data *data, const char *text)
{
    int broken = 0;
    if (sscanf(text, " guard %" G_GUINT64_FORMAT " %" G_GINT64_FORMAT " %d", &data->guards, &data->granted, &broken) ==
        3) {
        data->granted = CLAMP(data->granted, 0, INT64_MAX / 4);
        data->broken = broken;
    } else {
        data->guards = 0;
    }
}

void node_decode(GBytes *bytes, struct zk_data *data)
{
    gsize size = 0;
    const char *text = bytes ? g_bytes_get_data(bytes, &size) : NULL, *end = text ? memchr(text, '\n', size) : NULL;
    unsigned kind, mode, length, width;
    int further = 0;
    int64_t ttl, delay;
    *data = (struct zk_data){.kind = BACKEND_FLOCK, .attributes = {.width = 1}};
    if (!end || end - text > NODE_HEAD_MAX) {
        return;
    }
    char *head = g_strndup(text, (gsize)(end - text));
    gsize at = (gsize)(end + 1 - text), rest = size - at;
    if (sscanf(head, "leasefs1 directory %" G_GINT64_FORMAT " %u %" G_GINT64_FORMAT " %" G_GUINT64_FORMAT "%n", &ttl,
               &width, &delay, &data->nonce, &further) == 4) {
        data->ours = data->directory = true;
        data->further = g_strdup(head + further);
        data->attributes = (struct backend_directory){
            .ttl = CLAMP(ttl, 0, INT64_MAX / 4), .width = MAX(width, 1), .delay = CLAMP(delay, 0, INT64_MAX / 4)};
        data->attributes.meta = rest ? g_bytes_new_from_bytes(bytes, at, MIN(rest, ZOOKEEPER_META_MAX)) : NULL;
    } else if (sscanf(head, "leasefs1 held %255s %" G_GINT64_FORMAT " %" G_GINT64_FORMAT, data->held, &data->lost_after,
                      &data->delay) == 3) {
        data->lost_after = CLAMP(data->lost_after, 0, NODE_BOUND_MAX);
        data->delay = CLAMP(data->delay, 0, INT64_MAX / 4);
    } else if (data->held[0] = '\0',
               sscanf(head,
                      "leasefs1 %u %u %" G_GINT64_FORMAT " %32s %u %" G_GINT64_MODIFIER "x %" G_GINT64_MODIFIER "x%n",
                      &kind, &mode, &ttl, data->id, &length, &data->handle, &data->lock_owner, &further) >= 5 &&
                   kind <= BACKEND_FCNTL && length <= MIN(rest, ZOOKEEPER_META_MAX) && ttl != 0 &&
                   remote_is_id(data->id)) {
        data->ours = true;
        node_decode_guard(data, head + further);
        data->kind = (enum backend_kind)kind;
        data->mode = mode ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        data->upgrading = mode == NODE_RAISES;
        data->automatic = ttl < 0;
        data->ttl = ABS(CLAMP(ttl, -INT64_MAX / 4, INT64_MAX / 4));
        data->meta = g_bytes_new_from_bytes(bytes, at, length);
        data->content = g_bytes_new_from_bytes(bytes, at + length, MIN(rest - length, ZOOKEEPER_CONTENT_MAX));
    }
    g_free(head);
}

void node_data_clear(struct zk_data *data)
{
    g_clear_pointer(&data->meta, g_bytes_unref);
    g_clear_pointer(&data->content, g_bytes_unref);
    g_clear_pointer(&data->attributes.meta, g_bytes_unref);
    g_clear_pointer(&data->further, g_free);
}

static bool node_excludes(const struct zk_data *a, const struct Stat *a_stat, const struct zk_data *b,
                          const struct Stat *b_stat)
{
    bool ours = a->ours && b->ours, compatible = backend_identity_matches(BACKEND_IDENTITY(a), BACKEND_IDENTITY(b));
    bool shared = a->mode == BACKEND_SHARED && b->mode == BACKEND_SHARED;
    return !ours || !(shared || (compatible && a_stat->ephemeralOwner == b_stat->ephemeralOwner));
}

GArray *node_holders(const GPtrArray *replies)
{
    GArray *holds = g_array_new(FALSE, TRUE, sizeof(bool));
    struct zk_data *data = g_new0(struct zk_data, replies->len + 1);
    g_array_set_size(holds, replies->len);
    guint sharing = 0; /* the number of nodes at the front that are compatible with a shared one */
    for (guint i = 0; i < replies->len; i++) {
        const struct zk_reply *get = replies->pdata[i];
        bool *here = &g_array_index(holds, bool, i);
        node_decode(get->data, &data[i]);
        bool shared = data[i].ours && data[i].mode == BACKEND_SHARED;
        *here = get->rc == ZOK;
        for (guint k = shared ? sharing : 0; k < i && *here; k++) {
            const struct zk_reply *before = replies->pdata[k];
            *here = before->rc != ZOK || !node_excludes(&data[k], &before->stat, &data[i], &get->stat);
        }
        sharing += sharing == i && (shared || get->rc != ZOK);
    }
    for (guint i = 0; i < replies->len; i++) {
        node_data_clear(&data[i]);
    }
    g_free(data);
    return holds;
}

/* --- nodes of this mount --- */

struct zk_node *node_find(struct zookeeper *z, const char *id)
{
    return g_hash_table_lookup(z->nodes, id);
}

struct remote_ticket *node_ticket(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat)
{
    const struct zk_node *node = data->ours ? node_find(z, data->id) : NULL;
    bool ours = node && node->fence == node_fence(z, NULL, stat);
    struct remote_ticket *t = ours ? remote_ticket_find(&z->remote, data->id) : NULL;
    return t && t->head.user ? t : NULL;
}

bool node_is_compatible(struct zookeeper *z, const struct remote_ticket *t, const char *leaf)
{
    const struct remote_ticket *other;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        bool compatible = other == t || backend_identity_matches(BACKEND_IDENTITY(t), BACKEND_IDENTITY(other));
        const struct zk_node *node = compatible ? node_find(z, other->id) : NULL;
        if (node && strcmp(node->leaf, leaf) == 0) {
            return true;
        }
    }
    return false;
}

void node_free(gpointer data)
{
    struct zk_node *node = data;
    g_free(node->path);
    g_free(node->lock);
    g_clear_pointer(&node->meta, g_bytes_unref);
    g_clear_pointer(&node->content, g_bytes_unref);
    g_free(node);
}

struct zk_node *node_register(struct zookeeper *z, const struct remote_ticket *t, const char *path, uint64_t fence)
{
    struct zk_node *node = g_new0(struct zk_node, 1);
    node->path = g_strdup(path);
    node->leaf = path ? strrchr(node->path, '/') + 1 : "";
    node_parse_number(node->leaf, &node->sequence);
    node->fence = fence;
    node->kind = t->head.kind;
    node->mode = t->head.mode;
    node->ttl = t->head.ttl;
    node->meta = t->meta ? g_bytes_ref(t->meta) : NULL;
    node->content = t->head.content ? g_bytes_ref(t->head.content) : NULL;
    node->lock = g_strdup(t->lock->name);
    node->handle = t->handle;
    node->lock_owner = t->lock_owner;
    node->may_be_shared = node->mode == BACKEND_SHARED;
    if (path) {
        g_hash_table_replace(z->nodes, g_strdup(t->id), node);
    }
    return node;
}

struct zk_node *node_copy(const struct zk_node *node)
{
    struct zk_node *copy = g_memdup2(node, sizeof *node);
    copy->path = g_strdup(node->path);
    copy->leaf = strrchr(copy->path, '/') + 1;
    copy->lock = g_strdup(node->lock);
    copy->meta = node->meta ? g_bytes_ref(node->meta) : NULL;
    copy->content = node->content ? g_bytes_ref(node->content) : NULL;
    return copy;
}

void node_confirm(struct zk_node *node, const struct zk_node *draft)
{
    node_change(node, &(struct backend_change){.set = BACKEND_SET_META | BACKEND_SET_CONTENT,
                                               .meta = draft->meta,
                                               .content = draft->content});
    node->handle = draft->handle;
    node->lock_owner = draft->lock_owner;
    node->kind = draft->kind;
    node->mode = draft->mode;
    node->automatic = draft->automatic;
    node->ttl = draft->ttl;
    node->marked = node->marked || draft->marked;
    node->may_be_shared = node->mode == BACKEND_SHARED;
    node->unconfirmed = false;
}

void node_move(struct zk_node *node, const struct zk_node *to)
{
    g_free(node->path);
    g_free(node->lock);
    node->path = g_strdup(to->path);
    node->leaf = strrchr(node->path, '/') + 1;
    node->lock = g_strdup(to->lock);
    node->sequence = to->sequence;
    node->fence = to->fence;
    node->version = to->version;
    node->delay = to->delay;
    node->marked = to->marked;
}

void node_change(struct zk_node *node, const struct backend_change *change)
{
    if (change->set & BACKEND_SET_META) {
        g_clear_pointer(&node->meta, g_bytes_unref);
        node->meta = change->meta ? g_bytes_ref(change->meta) : NULL;
    }
    if (change->set & BACKEND_SET_CONTENT) {
        g_clear_pointer(&node->content, g_bytes_unref);
        node->content = change->content ? g_bytes_ref(change->content) : NULL;
    }
}

void node_add_watch(struct zookeeper *z, const char *path, const char *id)
{
    GPtrArray *ids = g_hash_table_lookup(z->watches, path);
    if (!ids) {
        ids = g_ptr_array_new_with_free_func(g_free);
        g_hash_table_insert(z->watches, g_strdup(path), ids);
    }
    if (!g_ptr_array_find_with_equal_func(ids, id, g_str_equal, NULL)) {
        g_ptr_array_add(ids, g_strdup(id));
    }
}

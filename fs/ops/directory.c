/* directory: making, removing and listing directories; see directory.h. */
#include "fs/ops/directory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/hold/entry.h"
#include "fs/hold/meta.h"
#include "fs/hold/quota.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"

/* Entries of one request to the backend; more on the way to an offset further on.  Each request has its own turn of the
 * loop, so that others are served meanwhile. */
#define DIRECTORY_BATCH 256
#define DIRECTORY_SKIP 1024
/* The number of open directories that keep their last batch of names: those that were read most recently.  A limit,
 * because a user may open many directories. */
#define DIRECTORY_KEPT_MAX 256

/* Offsets of "." and "..", which the kernel passes to continue after them. */
enum { DIRECTORY_AFTER_SELF = 1, DIRECTORY_AFTER_PARENT = 2 };

/* An open directory.  Offset 2 + n is after the nth name that was returned.  The last
 * batch of names is kept, because the next reply may need the rest of it, and the kernel may seek back in it. */
struct directory_cursor {
    uint64_t fh;                        /* its key in fs->cursors */
    TAILQ_ENTRY(directory_cursor) kept; /* link in fs->kept_cursors */
    bool is_kept;
    GPtrArray *names; /* the batch; NULL: none is kept */
    GArray *types;
    uint64_t first; /* how many names were returned before this batch */
    uint64_t from;  /* how many names were returned before the last reply, to which the kernel may seek back */
    char after[NAME_BYTES_MAX + 1]; /* the last name before this batch; "": none */
};

/* --- attributes ------------------------------------------------------------ */

void directory_load(struct node *node, const struct backend_directory *directory)
{
    struct backend_directory *own = &node->directory->attributes;
    struct meta meta;
    if (own->meta) {
        g_bytes_unref(own->meta);
    }
    *own = *directory;
    node->directory->loaded = clock_now();
    own->meta = directory->meta ? g_bytes_ref(directory->meta) : NULL;
    /* The top's mode and owner are the mount's. */
    if (node->parent && meta_decode(own->meta, &meta)) {
        node->directory->uid = meta.uid;
        node->directory->gid = meta.gid;
        node->record->mode = (uint16_t)(S_IFDIR | (meta.mode & 07777));
        tree_set_changed(node, meta.times[1]);
    }
}

/* Made by the caller. */
static GBytes *directory_meta(struct request *r, gid_t gid, mode_t mode)
{
    struct meta meta = {.uid = request_uid(r), .gid = gid, .mode = mode, .has_times = true};
    struct owner *maker = request_caller(r);
    g_strlcpy(meta.host, r->fs->host, sizeof meta.host);
    g_strlcpy(meta.boot, r->fs->boot_id, sizeof meta.boot);
    g_strlcpy(meta.command, "-", sizeof meta.command);
    if (maker) {
        meta.pid = owner_identity(maker, &meta.start);
    }
    struct intent *intent = request_intent(r);
    clock_gettime(CLOCK_REALTIME, &meta.times[1]);
    if (request_begun_before(r)) { /* the same as when an earlier daemon made it */
        meta.times[1] =
            (struct timespec){.tv_sec = clock_time(r->before->when[0]), .tv_nsec = (long)r->before->when[1]};
    }
    intent->when[0] = meta.times[1].tv_sec;
    intent->when[1] = meta.times[1].tv_nsec;
    meta.times[0] = meta.times[1];
    return meta_encode(&meta);
}

/* The same maker, and the node's present owner, mode and time. */
static GBytes *directory_changed_meta(const struct fs *fs, const struct node *node)
{
    struct meta meta;
    if (!meta_decode(node->directory->attributes.meta, &meta)) {
        meta = (struct meta){0};
        g_strlcpy(meta.host, fs->host, sizeof meta.host);
        g_strlcpy(meta.boot, fs->boot_id, sizeof meta.boot);
        g_strlcpy(meta.command, "-", sizeof meta.command);
    }
    meta.uid = node->directory->uid;
    meta.gid = node->directory->gid;
    meta.mode = node->record->mode;
    meta.has_times = true;
    meta.times[0] = meta.times[1] = tree_changed(node);
    return meta_encode(&meta);
}

bool directory_is_made_by_caller(struct request *r)
{
    const struct node *node = r->node;
    struct owner *caller = request_caller(r);
    struct meta meta;
    uint64_t start;
    return node->parent && caller && meta_decode(node->directory->attributes.meta, &meta) &&
           strcmp(meta.host, r->fs->host) == 0 && strcmp(meta.boot, r->fs->boot_id) == 0 &&
           owner_identity(caller, &start) == meta.pid && start == meta.start;
}

static void directory_was(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (result == BACKEND_OK && info->type == BACKEND_DIRECTORY) {
        directory_load(r->node, &info->directory);
    }
    r->next_step(r);
}

static void directory_stored(void *arg, enum backend_result result)
{
    request_resume(arg, result);
}

void directory_reload(struct request *r, request_step *answer)
{
    r->next_step = answer;
    request_stat(r, directory_was);
}

void directory_store(struct request *r, request_step *answer)
{
    char path[TREE_PATH_MAX];
    const struct node *node = r->node;
    struct backend_directory *own = &node->directory->attributes;
    GBytes *meta = directory_changed_meta(r->fs, node);
    if (own->meta) {
        g_bytes_unref(own->meta);
    }
    own->meta = meta;
    node->directory->loaded = clock_now();
    r->next_step = answer;
    if (request_path(r, path)) {
        backend_set_directory(r->fs->backend, path, own, directory_stored, r);
    }
}

/* --- mkdir and rmdir --------------------------------------------------------- */

/* The node is taken when the directory is there: until then, and if it is made
 * elsewhere meanwhile, the name may be another's. */
static void directory_made(void *arg, enum backend_result result);

/* The name is taken: by the directory that this request made when an earlier daemon handled it? */
static void directory_is_there(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    const GBytes *meta = result == BACKEND_OK && info->type == BACKEND_DIRECTORY ? info->directory.meta : NULL;
    bool made = meta && g_bytes_equal(meta, r->directory.meta);
    r->before->begun = false;
    directory_made(r, made ? BACKEND_OK : BACKEND_EXISTS);
}

static void directory_made(void *arg, enum backend_result result)
{
    struct request *r = arg;
    if (result == BACKEND_EXISTS && request_begun_before(r)) {
        request_stat_in(r, directory_is_there);
        return;
    }
    struct node *parent = r->other;
    struct fuse_entry_param entry;
    char path[TREE_PATH_MAX];
    if (result == BACKEND_OK) {
        r->node = tree_get(r->fs->tree, tree_find(r->fs->tree, parent, r->name), parent, r->name, S_IFDIR);
        directory_load(r->node, &r->directory);
        tree_touch(parent);
        entry_fill(r->fs, r->node, &entry);
        if (tree_path(r->node, path, sizeof path)) {
            quota_add_directory(r->fs->quota, path, r->node->directory->uid);
        }
    }
    g_bytes_unref(r->directory.meta);
    if (result == BACKEND_OK) {
        request_reply_entry(r, &entry);
    } else {
        request_reply(r, result == BACKEND_BUSY ? -EEXIST : fs_error(result));
    }
}

/* How many directories are looked for before a user is refused. */
#define DIRECTORY_RECOUNTS 64

static void directory_recount(struct request *r);

static void directory_recounted(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (result == BACKEND_OK && info->type != BACKEND_DIRECTORY) {
        quota_drop_directory(r->fs->quota, r->value);
        directory_make(r);
    } else {
        directory_recount(r);
    }
}

/* The user has reached the limit.  Another mount may have removed directories that are charged here: looks for some. */
static void directory_recount(struct request *r)
{
    const char *path = quota_some_directory(r->fs->quota, request_uid(r));
    if (!path || r->fs->backend->features & BACKEND_SOLE_AUTHORITY || r->tries == DIRECTORY_RECOUNTS) {
        request_reply(r, -EDQUOT);
        return;
    }
    r->tries++;
    g_free(r->value);
    r->value = g_strdup(path);
    backend_stat(r->fs->backend, r->value, directory_recounted, r);
}

void directory_make(struct request *r)
{
    char path[TREE_PATH_MAX];
    const struct node *parent = r->other;
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    struct node *there = tree_find(r->fs->tree, parent, r->name);
    gid_t gid = parent->record->mode & S_ISGID ? parent->directory->gid : context->gid;
    mode_t mode = S_IFDIR | (r->mode & 07777) | (parent->record->mode & S_ISGID);
    if (there && !there->directory && (hold_find_first(there) || hold_find_lease(there))) {
        request_reply(r, -EEXIST);
        return;
    }
    if (!request_path_in(r, path)) {
        return;
    }
    if (!quota_allows_directory(r->fs->quota, context->uid)) {
        directory_recount(r);
        return;
    }
    KEEP_STORE(request_intent(r)->begun, 1);
    r->directory = (struct backend_directory){.width = 1};
    r->directory.meta = directory_meta(r, gid, mode);
    backend_mkdir(r->fs->backend, path, &r->directory, directory_made, r);
}

static void directory_removed(void *arg, enum backend_result result)
{
    struct request *r = arg;
    char path[TREE_PATH_MAX];
    if (result == BACKEND_MISSING && request_begun_before(r)) {
        result = BACKEND_OK; /* an earlier daemon has removed it */
    }
    if ((result == BACKEND_OK || result == BACKEND_MISSING) && tree_child_path(r->other, r->name, path, sizeof path)) {
        quota_drop_directory(r->fs->quota, path);
    }
    if (result == BACKEND_OK && r->node && r->node->directory) { /* a lock may have moved on since */
        tree_touch(r->node->parent);
        tree_detach(r->fs->tree, r->node);
    }
    request_done(r, result);
}

/* A directory is removed by its owner and root, sticky bit or not. */
static void directory_remove_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    char path[TREE_PATH_MAX];
    struct meta meta;
    bool root = request_uid(r) == 0;
    bool directory = result == BACKEND_OK && info->type == BACKEND_DIRECTORY;
    if (!root && result != BACKEND_OK) {
        request_reply(r, fs_error(result));
    } else if (!root && directory && !(meta_decode(info->directory.meta, &meta) && meta.uid == request_uid(r))) {
        request_reply(r, -EPERM);
    } else if (request_path_in(r, path)) {
        KEEP_STORE(request_intent(r)->begun, 1);
        backend_rmdir(r->fs->backend, path, directory_removed, r);
    }
}

void directory_remove(struct request *r)
{
    struct node *node = tree_find(r->fs->tree, r->other, r->name);
    r->node = node ? tree_ref(node) : NULL;
    request_stat_in(r, directory_remove_known);
}

/* --- listing ------------------------------------------------------------------- */

static struct directory_cursor *directory_cursor_new(struct fs *fs, uint64_t fh)
{
    struct directory_cursor *cursor = g_new0(struct directory_cursor, 1);
    cursor->fh = fh;
    g_hash_table_insert(fs->cursors, &cursor->fh, cursor);
    return cursor;
}

/* For a directory that was opened before this daemon began, the names are counted from the first again. */
static struct directory_cursor *directory_cursor(const struct request *r)
{
    struct directory_cursor *cursor = g_hash_table_lookup(r->fs->cursors, &r->file.fh);
    return cursor ? cursor : directory_cursor_new(r->fs, r->file.fh);
}

static uint64_t directory_length(const struct directory_cursor *cursor)
{
    return cursor->names ? cursor->names->len : 0;
}

/* Frees the batch, and sets the cursor behind the first `count` names of it. */
static void directory_drop(struct directory_cursor *cursor, uint64_t count)
{
    if (count > 0) {
        g_strlcpy(cursor->after, g_ptr_array_index(cursor->names, count - 1), sizeof cursor->after);
    }
    cursor->first += count;
    g_clear_pointer(&cursor->names, g_ptr_array_unref);
    g_clear_pointer(&cursor->types, g_array_unref);
}

static void directory_unkeep(struct fs *fs, struct directory_cursor *cursor)
{
    if (cursor->is_kept) {
        TAILQ_REMOVE(&fs->kept_cursors, cursor, kept);
        cursor->is_kept = false;
        fs->kept_count--;
    }
}

static void directory_keep(struct fs *fs, struct directory_cursor *cursor)
{
    directory_unkeep(fs, cursor);
    TAILQ_INSERT_HEAD(&fs->kept_cursors, cursor, kept);
    cursor->is_kept = true;
    if (++fs->kept_count > DIRECTORY_KEPT_MAX) {
        struct directory_cursor *last = TAILQ_LAST(&fs->kept_cursors, directory_cursor_queue);
        directory_unkeep(fs, last);
        directory_drop(last, last->from - last->first);
    }
}

static void directory_cursor_free(struct fs *fs, struct directory_cursor *cursor)
{
    directory_unkeep(fs, cursor);
    directory_drop(cursor, 0);
    g_hash_table_remove(fs->cursors, &cursor->fh);
    g_free(cursor);
}

void directory_open(struct request *r)
{
    struct fs *fs = r->fs;
    struct directory_cursor *cursor = directory_cursor_new(fs, fs_next_fh(fs));
    r->handle = NULL;
    r->file.fh = cursor->fh;
    if (!request_reply_open(r, NULL)) {
        directory_cursor_free(fs, cursor);
    }
}

void directory_close(struct request *r)
{
    directory_cursor_free(r->fs, directory_cursor(r));
    request_reply(r, 0);
}

void directory_close_all(struct fs *fs)
{
    GList *cursors = g_hash_table_get_values(fs->cursors);
    for (GList *at = cursors; at; at = at->next) {
        directory_cursor_free(fs, at->data);
    }
    g_list_free(cursors);
    g_hash_table_destroy(fs->cursors);
}

static uint64_t directory_is_listed(const struct request *r)
{
    return r->read.offset < DIRECTORY_AFTER_PARENT ? 0 : (uint64_t)r->read.offset - DIRECTORY_AFTER_PARENT;
}

/* Adds to the reply; each function returns false when that is full. */
struct directory_reply {
    struct request *r;
    char *buffer;
    size_t used;
    GPtrArray *known; /* the nodes that the kernel knows by it */
};

static bool directory_add(struct directory_reply *reply, const char *name, const struct fuse_entry_param *entry,
                          uint64_t next)
{
    size_t left = reply->r->read.size - reply->used;
    size_t need = request_add_name(reply->r, reply->buffer + reply->used, left, name, entry, (off_t)next);
    reply->used += need <= left ? need : 0;
    return need <= left;
}

static bool directory_add_dots(struct directory_reply *reply)
{
    const struct node *self = reply->r->node, *up = self->parent ? self->parent : self;
    off_t offset = reply->r->read.offset;
    struct fuse_entry_param entry = {.attr = {.st_ino = self->record->ino, .st_mode = S_IFDIR}};
    if (offset < DIRECTORY_AFTER_SELF && !directory_add(reply, ".", &entry, DIRECTORY_AFTER_SELF)) {
        return false;
    }
    entry.attr.st_ino = up->record->ino;
    return offset >= DIRECTORY_AFTER_PARENT || directory_add(reply, "..", &entry, DIRECTORY_AFTER_PARENT);
}

/* The nth name of the batch. */
static bool directory_add_name(struct directory_reply *reply, uint64_t n)
{
    struct request *r = reply->r;
    const struct directory_cursor *cursor = directory_cursor(r);
    const char *name = g_ptr_array_index(cursor->names, n);
    struct node *node = tree_find(r->fs->tree, r->node, name);
    struct fuse_entry_param entry;
    bool known = r->read.plus && node && entry_fill_listed(r->fs, node, &entry);
    if (!known) {
        /* 0xffffffff: "not known", as libfuse has it; no type: DT_UNKNOWN. */
        entry = (struct fuse_entry_param){
            .attr = {.st_ino = node ? node->record->ino : 0xffffffff, .st_mode = node ? node->record->mode : 0}};
    }
    if (g_array_index(cursor->types, enum backend_type, n) == BACKEND_DIRECTORY) {
        entry.attr.st_mode = S_IFDIR;
    }
    if (!directory_add(reply, name, &entry, DIRECTORY_AFTER_PARENT + cursor->first + n + 1)) {
        return false;
    }
    if (known) {
        tree_add_lookup(node);
        g_ptr_array_add(reply->known, node);
    }
    return true;
}

/* Fills the reply from the names of the batch, beginning with number `listed`. */
static void directory_reply(struct request *r, uint64_t listed)
{
    struct directory_cursor *cursor = directory_cursor(r);
    struct fs *fs = r->fs;
    struct directory_reply reply = {.r = r, .buffer = g_malloc(r->read.size + 1), .known = g_ptr_array_new()};
    bool room = directory_add_dots(&reply);
    cursor->from = listed;
    for (uint64_t n = listed - cursor->first; room && n < directory_length(cursor); n++) {
        room = directory_add_name(&reply, n);
    }
    directory_keep(fs, cursor);
    if (!request_reply_buffer(r, reply.buffer, reply.used)) {
        for (guint i = 0; i < reply.known->len; i++) {
            tree_forget(fs->tree, reply.known->pdata[i], 1);
        }
    }
    g_ptr_array_free(reply.known, TRUE);
    g_free(reply.buffer);
}

static void directory_fetch(struct request *r, size_t max);

static void directory_read_on(struct request *r)
{
    directory_fetch(r, DIRECTORY_SKIP);
}

static void directory_fetched(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct request *r = arg;
    struct directory_cursor *cursor = directory_cursor(r);
    if (result != BACKEND_OK) {
        bool gone = result == BACKEND_MISSING || result == BACKEND_NOT_DIRECTORY; /* a lock may be there now */
        request_reply(r, gone ? -ENOENT : -EIO);
        return;
    }
    uint64_t listed = directory_is_listed(r);
    if (listed >= cursor->first + count && count > 0) {
        /* After a seekdir to further on. */
        g_strlcpy(cursor->after, entries[count - 1].name, sizeof cursor->after);
        cursor->first += count;
        request_sleep(r, clock_now() + 1, directory_read_on, request_reply_interrupted);
        return;
    }
    cursor->names = g_ptr_array_new_full((guint)count, g_free);
    cursor->types = g_array_sized_new(FALSE, FALSE, sizeof(enum backend_type), (guint)count);
    for (size_t i = 0; i < count; i++) {
        g_ptr_array_add(cursor->names, g_strdup(entries[i].name));
        g_array_append_val(cursor->types, entries[i].type);
    }
    directory_reply(r, MIN(listed, cursor->first + count));
}

static void directory_fetch(struct request *r, size_t max)
{
    char path[TREE_PATH_MAX], after[NAME_BYTES_MAX + 1];
    struct directory_cursor *cursor = directory_cursor(r);
    directory_unkeep(r->fs, cursor);
    directory_drop(cursor, directory_length(cursor));
    g_strlcpy(after, cursor->after, sizeof after);
    if (request_path(r, path)) {
        backend_list(r->fs->backend, path, after, max, directory_fetched, r);
    }
}

static void directory_rewind(struct fs *fs, struct directory_cursor *cursor)
{
    directory_unkeep(fs, cursor);
    directory_drop(cursor, 0);
    cursor->first = 0;
    cursor->after[0] = '\0';
}

void directory_read(struct request *r)
{
    struct directory_cursor *cursor = directory_cursor(r);
    uint64_t listed = directory_is_listed(r);
    if (listed < cursor->first || r->read.offset < DIRECTORY_AFTER_PARENT) {
        directory_rewind(r->fs, cursor); /* or a seekdir to before the batch: read the directory from its beginning */
        survivors_check(r->fs, NULL);
    }
    if (listed < cursor->first + directory_length(cursor)) {
        directory_reply(r, listed);
    } else {
        directory_fetch(r, DIRECTORY_BATCH);
    }
}

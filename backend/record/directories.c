/* directories: makes, removes and changes directories; see private.h. */
#include <string.h>

#include "backend/record/private.h"

static struct engine *engine_of(struct backend *b)
{
    return (struct engine *)b;
}

static void directory_settle(struct op *op)
{
    op_answer(op, op->result);
}

static void mkdir_apply(struct op *op, struct scratch *s)
{
    const struct lock *lock = op->lock;
    bool own = record_id_equal(lock->record->made, op->made);
    op->result = BACKEND_OK;
    if (lock_is_directory(lock)) {
        op->result = op->tried && own ? BACKEND_OK : BACKEND_EXISTS;
    } else if (lock->in_lock) {
        op->result = BACKEND_NOT_DIRECTORY;
    } else if (lock->lock.state == STORE_FOREIGN || lock->record->tickets->len > 0) {
        op->result = BACKEND_EXISTS;
    } else if (strchr(lock->name, '/') && lock->parent_known && lock->parent.state == STORE_ABSENT) {
        op->result = BACKEND_MISSING;
    }
    if (op->result == BACKEND_OK && !lock_is_directory(lock)) {
        s->make = s->dirty = true;
        s->made = record_new(true);
        s->made->made = op->made;
        s->made->attributes = op->directory;
        s->made->attributes.width = MAX(op->directory.width, 1);
        s->made->attributes.meta = op->directory.meta ? g_bytes_ref(op->directory.meta) : NULL;
    }
}

static void rmdir_apply(struct op *op, struct scratch *s)
{
    const struct lock *lock = op->lock;
    bool other = op->tried && record_id_is_set(op->made) && !record_id_equal(lock->record->made, op->made);
    op->result = BACKEND_OK;
    if (!lock_is_directory(lock) || other) {
        op->result = op->tried                                           ? BACKEND_OK
                     : lock->in_lock || lock->lock.state != STORE_ABSENT ? BACKEND_NOT_DIRECTORY
                                                                         : BACKEND_MISSING;
        return;
    }
    struct record *record = record_save(s->space, scratch_directory(s, lock), lock->record);
    bool empty = record->tickets->len == 0;
    record_free(record);
    if (!empty) {
        op->result = BACKEND_NOT_EMPTY;
        return;
    }
    op->made = lock->record->made;
    s->remove = s->dirty = true;
}

static void set_directory_apply(struct op *op, struct scratch *s)
{
    const struct lock *lock = op->lock;
    if (!lock_is_directory(lock)) {
        bool is_lock = lock->in_lock || lock->lock.state != STORE_ABSENT;
        op->result = is_lock ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING;
        return;
    }
    op->result = lockspace_set_directory(s->space, s->now, scratch_directory(s, lock), &op->directory);
    s->dirty = true;
    scratch_settle_grants(s);
}

static const struct op_type op_mkdir = {.apply = mkdir_apply, .settle = directory_settle, .is_single = true};
static const struct op_type op_rmdir = {.apply = rmdir_apply, .settle = directory_settle, .is_single = true};
static const struct op_type op_set_directory = {.apply = set_directory_apply, .settle = directory_settle};

static void directory_push(struct engine *e, const struct op_type *type, const char *name,
                           const struct backend_directory *directory, backend_done *done, void *arg)
{
    struct op *op = op_new(e, type, lock_obtain_named(e, name), NULL);
    if (directory) {
        op->directory = *directory;
        op->directory.meta = directory->meta ? g_bytes_ref(directory->meta) : NULL;
        op->made = engine_new_id(e);
    }
    op->done = done;
    op->arg = arg;
    op_push(op);
}

void engine_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
                  void *arg)
{
    if (!*name || !engine_allows_name(engine_of(b), name)) {
        done(arg, *name ? BACKEND_INVALID : BACKEND_EXISTS);
        return;
    }
    directory_push(engine_of(b), &op_mkdir, name, directory, done, arg);
}

void engine_rmdir(struct backend *b, const char *name, backend_done *done, void *arg)
{
    if (!*name || !engine_allows_name(engine_of(b), name)) {
        done(arg, *name ? BACKEND_MISSING : BACKEND_INVALID);
        return;
    }
    directory_push(engine_of(b), &op_rmdir, name, NULL, done, arg);
}

void engine_set_directory_op(struct backend *b, const char *name, const struct backend_directory *directory,
                             backend_done *done, void *arg)
{
    if (!engine_allows_name(engine_of(b), name)) {
        done(arg, BACKEND_MISSING);
        return;
    }
    directory_push(engine_of(b), &op_set_directory, name, directory, done, arg);
}

void engine_restore_directories(struct engine *e)
{
    GHashTableIter each;
    const struct ticket *t;
    GHashTable *names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_iter_init(&each, e->tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        const char *leaf;
        char *name = t->leaf ? g_strdup(t->lock->name) : engine_parent(t->lock->name, &leaf);
        while (*name && t->state == TICKET_HOLDS) {
            char *above = engine_parent(name, &leaf);
            g_hash_table_add(names, name);
            name = above;
        }
        g_free(name);
    }
    GList *sorted = g_list_sort(g_hash_table_get_keys(names), (GCompareFunc)strcmp); /* "a" is before "a/b" */
    static const struct backend_directory plain = {.width = 1};
    for (GList *at = sorted; at; at = at->next) {
        const struct backend_directory *known = engine_directory(e, at->data);
        directory_push(e, &op_mkdir, at->data, known ? known : &plain, NULL, NULL);
    }
    g_list_free(sorted);
    g_hash_table_unref(names);
}

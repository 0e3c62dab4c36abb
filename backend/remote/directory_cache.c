/* directory_cache: the directories that this mount has seen, to restore them on a server that has lost them. */
#include "backend/remote/remote.h"

#define DIRECTORIES_MAX 65536 /* then it forgets all */

void remote_directory_cache_free(gpointer data)
{
    struct remote_directory *d = data;
    g_clear_pointer(&d->attributes.meta, g_bytes_unref);
    g_free(d->mark);
    g_free(d);
}

struct remote_directory *remote_directory_cache_find(const struct remote *r, const char *name)
{
    return g_hash_table_lookup(r->directories, name);
}

void remote_directory_cache_add(struct remote *r, const char *name, const struct remote_directory *directory)
{
    const struct remote_directory *known = remote_directory_cache_find(r, name);
    struct remote_directory *d = g_new(struct remote_directory, 1);
    *d = *directory;
    d->mark = g_strdup(directory->mark);
    d->attributes.meta = d->attributes.meta ? g_bytes_ref(d->attributes.meta) : NULL;
    d->attributes.sequence = MAX(d->attributes.sequence, known ? known->attributes.sequence : 0);
    if (!known && g_hash_table_size(r->directories) >= DIRECTORIES_MAX) {
        g_hash_table_remove_all(r->directories);
    }
    g_hash_table_replace(r->directories, g_strdup(name), d);
}

void remote_directory_cache_remove(struct remote *r, const char *name)
{
    g_hash_table_remove(r->directories, name);
}

/* directory_cache: the directories that a majority of the servers has reported to this mount. */
#include "backend/redlock/private.h"

void redlock_directory_cache_free(gpointer data)
{
    struct redlock_directory *directory = data;
    g_clear_pointer(&directory->meta, g_bytes_unref);
    g_free(directory->made);
    g_free(directory);
}

void redlock_directory_cache_add(struct redlock *r, const char *name, const char *made, int64_t revision,
                                 const struct backend_directory *attributes)
{
    struct redlock_directory *directory = g_new0(struct redlock_directory, 1);
    directory->made = g_strdup(made);
    directory->revision = revision;
    directory->ttl = attributes->ttl;
    directory->meta = attributes->meta ? g_bytes_ref(attributes->meta) : NULL;
    g_hash_table_replace(r->directories, g_strdup(name), directory);
}

void redlock_directory_cache_remove(struct redlock *r, const char *name)
{
    g_hash_table_remove(r->directories, name);
}

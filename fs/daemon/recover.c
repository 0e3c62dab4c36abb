/* recover: taking over the leases that the backend kept; see recover.h. */
#include "fs/daemon/recover.h"

#include <string.h>
#include <sys/stat.h>

#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/hold/quota.h"
#include "fs/kernel/tree.h"
#include "fs/ops/directory.h"

struct recovery {
    struct fs *fs;
    GPtrArray *holds;
};

/* The root's defaults; its mode and owner are the mount options'. */
static void recover_root(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct node *root = arg;
    if (result == BACKEND_OK && info->type == BACKEND_DIRECTORY) {
        struct backend_directory attributes = info->directory;
        attributes.meta = NULL;
        directory_load(root, &attributes);
    }
}

static struct node *recover_node(struct fs *fs, const char *name, mode_t type)
{
    g_auto(GStrv) parts = g_strsplit(name, "/", -1);
    struct node *node = tree_ref(tree_root(fs->tree));
    for (size_t i = 0; parts[i]; i++) {
        struct node *parent = node;
        node =
            tree_get(fs->tree, tree_find(fs->tree, parent, parts[i]), parent, parts[i], parts[i + 1] ? S_IFDIR : type);
        tree_unref(fs->tree, parent);
    }
    return node;
}

/* Was the owner final when the last daemon ended?  At the end of the first second
 * it renews what is in use; what it did not get to is to be settled now, or the
 * lease of a touch would belong to nobody.  A fixed term shows no renewal. */
static bool recover_settled(const struct backend_ticket *ticket, bool fixed)
{
    clock_ms renewed = fixed ? clock_now() : ticket->deadline - ticket->ttl;
    return renewed - ticket->acquired >= SECOND;
}

static void recover_lease(void *arg, const char *name, struct backend_ticket *ticket, GBytes *bytes)
{
    struct recovery *recovery = arg;
    struct fs *fs = recovery->fs;
    struct meta meta;
    bool known = meta_decode(bytes, &meta);
    if (!ticket) {
        quota_add_directory(fs->quota, name, known ? meta.uid : 0);
        return;
    }
    if (!known || S_ISDIR(meta.mode)) {
        memset(&meta, 0, sizeof meta);
        meta.mode = S_IFREG | 0644;
    }
    /* After a reboot the pids mean nothing: nobody renews, it runs out. */
    bool here = meta.pid && strcmp(meta.boot, fs->boot_id) == 0 && strcmp(meta.host, fs->host) == 0;
    struct node *node = recover_node(fs, name, S_ISLNK(meta.mode) ? S_IFLNK : S_IFREG);
    struct owner *owner = here ? owner_restore(fs->owners, meta.pid, meta.start, meta.command) : NULL;
    struct hold *hold = hold_new(fs, node, ticket->kind, owner, meta.uid, meta.gid, meta.mode);
    ticket->user = hold;
    hold_granted(fs, hold, ticket);
    hold->since = ticket->acquired;
    hold->fixed = meta.fixed;
    hold->sequence = meta.sequence;
    hold->closed = true;
    hold->settled = !here || recover_settled(ticket, meta.fixed);
    if (meta.has_times) {
        hold->times = g_memdup2(meta.times, sizeof meta.times);
    }
    if (!hold->settled) {
        hold->heirs = g_new0(struct hold_heirs, 1);
        for (size_t i = 0; i < meta.heirs; i++) {
            hold->heirs->heir[hold->heirs->count++] =
                owner_restore(fs->owners, meta.heir[i].pid, meta.heir[i].start, "?");
        }
    }
    g_ptr_array_add(recovery->holds, hold);
    owner_unref(owner);
    tree_unref(fs->tree, node);
}

struct recover_question {
    struct fs *fs;
    struct hold *hold; /* counted */
};

static void recover_size(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct recover_question *question = arg;
    struct hold *hold = question->hold;
    if (result == BACKEND_OK && info->content && info->ticket && info->ticket->user == hold) {
        hold_set_size(question->fs, hold, g_bytes_get_size(info->content));
    }
    hold_unref(question->fs, hold);
    g_free(question);
}

void recover_leases(struct fs *fs)
{
    char path[TREE_PATH_MAX];
    struct recovery recovery = {.fs = fs, .holds = g_ptr_array_new()};
    backend_recover(fs->backend, recover_lease, &recovery); /* before a call that ends those that have expired since */
    backend_stat(fs->backend, "", recover_root, tree_root(fs->tree));
    for (guint i = 0; i < recovery.holds->len; i++) {
        struct hold *hold = g_ptr_array_index(recovery.holds, i);
        if (!hold->settled && clock_now() - hold->since >= SECOND) {
            hold_settle(fs, hold);
        }
        if (tree_path(hold->node, path, sizeof path)) {
            struct recover_question *question = g_new(struct recover_question, 1);
            *question = (struct recover_question){fs, hold_ref(hold)};
            backend_stat(fs->backend, path, recover_size, question);
        }
    }
    g_ptr_array_free(recovery.holds, TRUE);
}

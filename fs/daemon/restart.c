/* restart: recovers the leases that the backend kept; see restart.h. */
#include "fs/daemon/restart.h"

#include <string.h>
#include <sys/stat.h>

#include "backend/log.h"
#include "fs/hold/guard.h"
#include "fs/hold/hold.h"
#include "fs/hold/inherit.h"
#include "fs/hold/meta.h"
#include "fs/hold/quota.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"
#include "fs/ops/directory.h"

/* Most leases are like the one before: of the same holder, and in the same directory. */
struct recovery {
    struct fs *fs;
    bool serving;         /* the mount is there: names come and go beside what is found */
    bool complete;        /* all locks are found */
    GPtrArray *unsettled; /* holds; NULL while it serves */
    GPtrArray *unknown;   /* holds of whose content the store has told nothing; NULL while it serves */
    GBytes *bytes;        /* the last meta, counted, */
    struct meta meta;
    bool known;          /* and what it says, if it is of our form */
    struct owner *owner; /* whom it names, counted; NULL until asked for */
    char *directory;
    struct node *parent;   /* counted */
    struct node *greatest; /* counted: of the leases in it the one with the greatest name; NULL: there is none, */
    bool ordered;          /* or it is not known */
};

static void recover_warn_of_ttl(const struct options *options, int64_t ttl)
{
    if (ttl && options->has_ttl && ttl != options->ttl) {
        log_warning("option ttl= (%.3f s) has no effect: user.lease.ttl of the top directory is %.3f s; to use the "
                    "option, run: setfattr -n user.lease.ttl -v auto %s",
                    (double)options->ttl / 1000, (double)ttl / 1000,
                    options->mountpoint ? options->mountpoint : "MOUNTPOINT");
    }
}

/* The root's defaults; its mode and owner are the mount options'. */
static void recover_root(void *arg, enum backend_result result, const struct backend_info *info)
{
    const struct fs *fs = arg;
    struct node *root = tree_root(fs->tree);
    if (result == BACKEND_OK && info->type == BACKEND_DIRECTORY) {
        recover_warn_of_ttl(fs->options, info->directory.ttl);
        struct backend_directory attributes = info->directory;
        attributes.meta = NULL;
        directory_load(root, &attributes);
    }
}

static const struct meta *recover_meta(struct recovery *recovery, GBytes *bytes)
{
    if (!bytes) {
        return NULL;
    }
    if (bytes != recovery->bytes) {
        g_clear_pointer(&recovery->bytes, g_bytes_unref);
        g_clear_pointer(&recovery->owner, owner_unref);
        recovery->bytes = g_bytes_ref(bytes);
        recovery->known = meta_decode(bytes, &recovery->meta);
    }
    return recovery->known ? &recovery->meta : NULL;
}

/* Of the meta that recover_meta was asked for last. */
static struct owner *recover_owner(struct recovery *recovery)
{
    const struct meta *meta = &recovery->meta;
    if (!recovery->owner) {
        recovery->owner = owner_restore(recovery->fs->owners, meta->pid, meta->start, meta->command);
    }
    return recovery->owner;
}

static struct node *recover_child(struct tree *tree, struct node *parent, const char *name, mode_t type)
{
    return tree_get(tree, tree_find(tree, parent, name), parent, name, type);
}

static void recover_enter(struct recovery *recovery, const char *path, size_t length)
{
    struct tree *tree = recovery->fs->tree;
    struct node *node = tree_ref(tree_root(tree));
    g_free(recovery->directory);
    recovery->directory = g_strndup(path, length);
    g_auto(GStrv) parts = g_strsplit(recovery->directory, "/", -1);
    for (size_t i = 0; parts[i]; i++) {
        struct node *parent = node;
        node = recover_child(tree, parent, parts[i], S_IFDIR);
        tree_unref(tree, parent);
    }
    /* nobody else refers to a new one */
    recovery->ordered = !recovery->serving && tree->restored->len == 0 && (!recovery->parent || node->references == 1);
    tree_unref(tree, recovery->greatest);
    recovery->greatest = NULL;
    tree_unref(tree, recovery->parent);
    recovery->parent = node;
}

static void recover_leave(struct recovery *recovery)
{
    g_clear_pointer(&recovery->directory, g_free);
    tree_unref(recovery->fs->tree, recovery->greatest);
    recovery->greatest = NULL;
    tree_unref(recovery->fs->tree, recovery->parent);
    recovery->parent = NULL;
}

/* Names that come in order are new ones, and not looked for. */
static struct node *recover_leaf(struct recovery *recovery, const char *name, mode_t type)
{
    struct tree *tree = recovery->fs->tree;
    if (!recovery->ordered || (recovery->greatest && strcmp(name, tree_name(recovery->greatest)) <= 0)) {
        return recover_child(tree, recovery->parent, name, type);
    }
    struct node *node = tree_get(tree, NULL, recovery->parent, name, type);
    tree_unref(tree, recovery->greatest);
    recovery->greatest = tree_ref(node);
    return node;
}

static struct node *recover_node(struct recovery *recovery, const char *name, mode_t type)
{
    const char *slash = strrchr(name, '/');
    size_t length = slash ? (size_t)(slash - name) : 0;
    if (!recovery->parent || strncmp(recovery->directory, name, length) != 0 || recovery->directory[length] != '\0') {
        recover_enter(recovery, name, length);
    }
    return recover_leaf(recovery, slash ? slash + 1 : name, type);
}

/* This daemon has not acquired it. */
static void recover_grant(struct fs *fs, struct hold *hold, struct backend_ticket *ticket)
{
    uint64_t acquired[METRICS_KINDS];
    struct timespec changed = tree_changed(hold->node->parent);
    memcpy(acquired, fs->metrics->acquired, sizeof acquired);
    hold_mark_granted(fs, hold, ticket);
    memcpy(fs->metrics->acquired, acquired, sizeof acquired);
    tree_set_changed(hold->node->parent, changed);
    hold->since = ticket->acquired;
}

/* Was the owner final when the last daemon ended?  At the end of the first second
 * it renews what is in use.  If it did not reach this lease, the owner must be found
 * now, or the lease of a touch would have none.  A fixed term shows no renewal. */
static bool recover_settled(const struct backend_ticket *ticket, bool fixed)
{
    clock_ms renewed = fixed ? clock_now() : ticket->deadline - ticket->ttl;
    return renewed - ticket->acquired >= SECOND;
}

static struct owner *recover_heir(struct fs *fs, const struct meta *meta, size_t i)
{
    return owner_restore(fs->owners, meta->heir[i].pid, meta->heir[i].start, NULL);
}

static void recover_heirs(struct fs *fs, struct hold *hold, const struct meta *meta)
{
    struct owner *heir[META_HEIRS_MAX];
    for (size_t i = 0; i < meta->heirs + meta->partners; i++) {
        heir[i] = recover_heir(fs, meta, i);
    }
    if (!hold->owner_final) {
        hold_set_heirs(hold, heir, meta->heirs);
    }
    hold_set_partners(hold, heir + meta->heirs, meta->partners);
    for (size_t i = 0; i < meta->heirs + meta->partners; i++) {
        owner_unref(heir[i]);
    }
}

/* It belongs to the processes that have its file open.  After a reboot there is none. */
static bool recover_handle_lock(struct fs *fs, struct hold *hold, const struct meta *meta)
{
    bool here = strcmp(meta->boot, fs->boot_id) == 0;
    struct owner *opener = here && meta->heirs ? recover_heir(fs, meta, 0)
                           : hold->owner       ? owner_ref(hold->owner)
                                               : NULL;
    hold_set_handle_owner(hold, hold->owner, opener);
    hold->owner_final = true;
    survivor_new(fs, hold, here ? meta->device : 0, here ? meta->inode : 0, opener);
    owner_unref(opener);
    return here && meta->inode;
}

static bool recover_lease(void *arg, const char *name, struct backend_ticket *ticket, GBytes *bytes, GBytes *content)
{
    struct recovery *recovery = arg;
    struct fs *fs = recovery->fs;
    static const struct meta nobodys = {.mode = S_IFREG | 0644};
    const struct meta *meta = recover_meta(recovery, bytes);
    if (!ticket) {
        quota_add_directory(fs->quota, name, meta ? meta->uid : 0);
        return false;
    }
    if (!meta || S_ISDIR(meta->mode)) {
        meta = &nobodys;
    }
    /* After a reboot the pids mean nothing: nobody renews, it runs out. */
    bool here = meta->pid && strcmp(meta->boot, fs->boot_id) == 0 && strcmp(meta->host, fs->host) == 0;
    struct node *node = recover_node(recovery, name, S_ISLNK(meta->mode) ? S_IFLNK : S_IFREG);
    struct owner *owner = here ? recover_owner(recovery) : NULL;
    struct hold *hold = hold_new(fs, node, ticket->kind, owner, meta->uid, meta->gid, meta->mode);
    ticket->user = hold;
    recover_grant(fs, hold, ticket);
    hold->fixed = meta->fixed;
    hold->sequence = meta->sequence;
    guard_set(hold, meta->guard);
    hold_set_note(hold, meta->note);
    hold->closed = true;
    bool handle_lock = ticket->kind == BACKEND_FLOCK || ticket->kind == BACKEND_FCNTL;
    hold->owner_final = !here || handle_lock || recover_settled(ticket, meta->fixed);
    if (meta->has_times) {
        hold_extra(hold)->times = g_memdup2(meta->times, sizeof meta->times);
    }
    if (here && !handle_lock) {
        recover_heirs(fs, hold, meta);
    }
    if (!hold->owner_final && !recovery->serving) {
        g_ptr_array_add(recovery->unsettled, hold_ref(hold)); /* a store across a network may tell its end meanwhile */
    }
    if (content) {
        hold_set_size(fs, hold, g_bytes_get_size(content));
    } else if (!recovery->serving) {
        g_ptr_array_add(recovery->unknown, hold_ref(hold));
    }
    bool kept = inherit_lock(fs, hold, meta) && handle_lock;
    bool survives = kept || (handle_lock && recover_handle_lock(fs, hold, meta));
    tree_unref(fs->tree, node);
    if (recovery->serving) {
        recover_leave(recovery);
    }
    return handle_lock ? survives : !hold->fixed && hold_needs_renewal(hold);
}

struct recover_question {
    LIST_ENTRY(recover_question) link; /* in fs->recovering */
    struct fs *fs;
    struct hold *hold; /* counted */
};

static void recover_answered(struct recover_question *question)
{
    LIST_REMOVE(question, link);
    hold_unref(question->fs, question->hold);
    g_free(question);
}

static void recover_size(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct recover_question *question = arg;
    struct hold *hold = question->hold;
    if (result == BACKEND_OK && info->content && info->ticket && info->ticket->user == hold) {
        hold_set_size(question->fs, hold, g_bytes_get_size(info->content));
    }
    recover_answered(question);
}

static void recover_request(struct fs *fs, struct hold *hold, const char *path)
{
    struct recover_question *question = g_new(struct recover_question, 1);
    *question = (struct recover_question){.fs = fs, .hold = hold_ref(hold)};
    LIST_INSERT_HEAD(&fs->recovering, question, link);
    backend_stat(fs->backend, path, recover_size, question);
}

/* Settles the leases that backend_recover has found before it returned; later ones are settled when they are due. */
static void recover_settle(struct recovery *recovery)
{
    struct fs *fs = recovery->fs;
    for (guint i = 0; i < recovery->unsettled->len; i++) {
        struct hold *hold = g_ptr_array_index(recovery->unsettled, i);
        if (hold->ticket && clock_now() - hold->since >= SECOND) {
            hold_finalize_owner(fs, hold);
        }
        hold_unref(fs, hold);
    }
    g_clear_pointer(&recovery->unsettled, g_ptr_array_unref);
}

static void recover_read_sizes(struct recovery *recovery)
{
    char path[TREE_PATH_MAX];
    for (guint i = 0; i < recovery->unknown->len; i++) {
        struct hold *hold = g_ptr_array_index(recovery->unknown, i);
        if (hold->ticket && tree_path(hold->node, path, sizeof path)) {
            recover_request(recovery->fs, hold, path);
        }
        hold_unref(recovery->fs, hold);
    }
    g_clear_pointer(&recovery->unknown, g_ptr_array_unref);
}

#define RECOVER_LOGGED_MAX 10 /* processes that the log names */

/* A process with a file of the dead mount, on which this daemon has found no handle lock, may rely on a lock that is
 * lost.  A walk knows only the locks that were found before it began. */
static void recover_log_processes(struct openers_file *file, const struct openers_found *found, void *arg)
{
    struct fs *fs = arg;
    size_t named = 0, more = 0;
    if (!fs->recovery->complete) {
        fs->recovery->complete = !backend_counts(fs->backend).recovering;
        openers_ask(fs->openers);
        return;
    }
    for (size_t i = 0; i < found->count; i++) {
        const struct openers_process *process = &found->processes[i];
        char command[OWNER_COMMAND_MAX * 4];
        if (process->unseen || named++ >= RECOVER_LOGGED_MAX) {
            more += !process->unseen;
            continue;
        }
        log_warning(
            "process %d (%s), uid %u, has a file open from the daemon before, on which this daemon has found no "
            "flock or record lock: if the process had such a lock, it is lost",
            owner_pid(process->owner), log_escape(command, sizeof command, owner_command(process->owner)),
            process->uid);
    }
    if (more > 0) {
        log_warning("%zu more processes have such files open", more);
    }
    openers_remove(file);
}

void recover_leases(struct fs *fs)
{
    struct recovery *recovery = fs->recovery = g_new0(struct recovery, 1);
    *recovery = (struct recovery){.fs = fs, .unsettled = g_ptr_array_new(), .unknown = g_ptr_array_new()};
    nametable_expect(&fs->tree->names, backend_counts(fs->backend).locks);
    backend_recover(fs->backend, recover_lease, recovery); /* before a call that ends those that have expired since */
    backend_stat(fs->backend, "", recover_root, fs);
    recover_settle(recovery);
    recover_read_sizes(recovery);
    recover_leave(recovery);
    recovery->serving = true;
    recovery->complete = !backend_counts(fs->backend).recovering;
    if (fs->dead_device && fs->openers) { /* behind the files of surviving locks */
        openers_add(fs->openers, fs->dead_device, OPENERS_OTHER, NULL, false, recover_log_processes, fs);
    }
}

void recover_stop(struct fs *fs)
{
    while (!LIST_EMPTY(&fs->recovering)) {
        recover_answered(LIST_FIRST(&fs->recovering));
    }
    if (fs->recovery) {
        g_clear_pointer(&fs->recovery->bytes, g_bytes_unref);
        g_clear_pointer(&fs->recovery->owner, owner_unref);
        g_clear_pointer(&fs->recovery, g_free);
    }
}

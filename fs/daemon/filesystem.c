/* filesystem: makes, starts, stops and frees struct fs; see filesystem.h. */
#include "fs/daemon/filesystem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/daemon/restart.h"
#include "fs/hold/guard.h"
#include "fs/hold/handle.h"
#include "fs/hold/hold.h"
#include "fs/hold/inherit.h"
#include "fs/hold/quota.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/notify.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/ops/directory.h"
#include "fs/ops/opening.h"

static void fs_read_identity(struct fs *fs)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || fscanf(file, "%39s", fs->boot_id) != 1) {
        strcpy(fs->boot_id, "-");
    }
    if (file) {
        fclose(file);
    }
    if (gethostname(fs->host, sizeof fs->host - 1) != 0 || !fs->host[0]) {
        strcpy(fs->host, "localhost");
    }
}

static void fs_cancel_interrupted(struct ev_loop *loop, ev_idle *idle, int events)
{
    struct fs *fs = idle->data;
    (void)events;
    ev_idle_stop(loop, idle);
    request_cancel_interrupted(fs);
}

static void fs_check_signalled(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    request_check_signalled(timer->data);
}

static void fs_reply_invalidated(struct ev_loop *loop, ev_idle *idle, int events)
{
    (void)events;
    ev_idle_stop(loop, idle);
    request_reply_invalidated(idle->data);
}

static void fs_invalidate_timed_out(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    request_reply_invalidated(timer->data);
}

static void fs_wake(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    request_wake_due(timer->data);
}

/* A process that leases rest on. */
static void fs_owner_ended(void *arg, pid_t pid)
{
    struct fs *fs = arg;
    backend_wake(fs->backend, (uint32_t)pid);
}

static void fs_check_owners(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    owner_table_check(io->data);
}

void fs_keep_sizes(struct keep_sizes *sizes)
{
    keep_default_sizes(sizes);
    uint64_t nodes = sizeof(void *) > sizeof(uint32_t) ? 1 << 24 : 1 << 18;
    sizes->tables[KEEP_NODES] = (struct keep_table_size){sizeof(struct node_record), nodes};
    sizes->tables[KEEP_NAMES] = (struct keep_table_size){sizeof(struct node_name), nodes};
    sizes->tables[KEEP_DIRECTORIES] = (struct keep_table_size){sizeof(struct node_directory_record), nodes / 4};
    sizes->tables[KEEP_NOTICES] = (struct keep_table_size){sizeof(struct notify_record), 1 << 16};
    sizes->tables[KEEP_HANDLES] = (struct keep_table_size){sizeof(struct handle_record), nodes / 4};
}

struct fs *fs_new(struct ev_loop *loop, struct backend *backend, const struct options *options, struct keep *keep)
{
    struct fs *fs = g_new0(struct fs, 1);
    fs->keep = keep;
    fs->started = clock_now();
    fs->loop = loop;
    fs->backend = backend;
    fs->options = options;
    fs->owners = owner_table_new();
    ev_io_init(&fs->owners_ended, fs_check_owners, owner_table_descriptor(fs->owners), EV_READ);
    fs->owners_ended.data = fs->owners;
    fs->tree = tree_new(keep);
    fs->quota = quota_new(&(struct quota_limits){.user_locks = options->user_locks,
                                                 .user_content = options->user_content,
                                                 .locks = options->locks,
                                                 .content = options->content});
    fs->notify = notify_new(NULL, loop, keep);
    fs->openings = openings_new(fs->tree);
    fs->records = hold_records_table();
    fs->opened = handle_table();
    fs->cursors = g_hash_table_new(g_int64_hash, g_int64_equal);
    fs->next_fh = (uint64_t)keep_generation(keep) << 40;
    fs->survivors = survivors_new(fs);
    TAILQ_INIT(&fs->interrupted);
    ev_idle_init(&fs->interrupts, fs_cancel_interrupted);
    ev_set_priority(&fs->interrupts, EV_MAXPRI); /* requests that keep coming do not put it off */
    fs->interrupts.data = fs;
    TAILQ_INIT(&fs->signalled);
    ev_timer_init(&fs->signals, fs_check_signalled, 0, 0);
    fs->signals.data = fs;
    TAILQ_INIT(&fs->sleeping);
    ev_timer_init(&fs->alarm, fs_wake, 0, 0);
    fs->alarm.data = fs;
    TAILQ_INIT(&fs->invalidating);
    TAILQ_INIT(&fs->kept_cursors);
    ev_idle_init(&fs->invalidate_idle, fs_reply_invalidated);
    ev_set_priority(&fs->invalidate_idle, EV_MAXPRI);
    fs->invalidate_idle.data = fs;
    ev_timer_init(&fs->invalidate_timeout, fs_invalidate_timed_out, 0, 0);
    fs->invalidate_timeout.data = fs;
    fs_read_identity(fs);
    struct node *root = tree_root(fs->tree);
    root->record->mode = (uint16_t)(S_IFDIR | options->mode);
    root->directory->uid = options->uid;
    root->directory->gid = options->gid;
    tree_touch(root);
    fs->metrics = g_new0(struct metrics, 1);
    fs->control = control_new(fs);
    return fs;
}

void fs_start(struct fs *fs, struct fuse_session *session)
{
    notify_free(fs->notify);
    fs->session = session;
    fs->notify = notify_new(session, fs->loop, fs->keep);
    tree_set_notify(fs->tree, fs->notify); /* what is recovered may have ended for the kernel */
    backend_start(fs->backend, fs->loop, &hold_events, fs);
    if (owner_table_descriptor(fs->owners) >= 0) {
        owner_table_on_ended(fs->owners, fs_owner_ended, fs);
        ev_io_start(fs->loop, &fs->owners_ended);
    }
    inherit_handles(fs);
    recover_leases(fs);
    inherit_settle(fs);
    tree_drop_unknown(fs->tree);
}

/* Those that wait, and those that the backend has not answered, whose completions it does not call any more. */
void fs_stop(struct fs *fs)
{
    struct request *r;
    notify_finish(fs->notify);
    request_reply_invalidated(fs);
    control_stop(fs);
    while ((r = LIST_FIRST(&fs->unanswered))) {
        request_reply(r, fs->replaced ? -ENOTCONN : -ENOLCK);
    }
}

/* Frees all holds.  The locks stay in the store, as after kill -9. */
static void fs_drop_holds(struct fs *fs)
{
    GPtrArray *nodes = tree_all(fs->tree);
    for (guint i = 0; i < nodes->len; i++) {
        struct node *node = g_ptr_array_index(nodes, i);
        while (!LIST_EMPTY(&node->holds)) {
            hold_free(fs, LIST_FIRST(&node->holds));
        }
        while (!LIST_EMPTY(&node->waiting)) {
            hold_free(fs, LIST_FIRST(&node->waiting));
        }
        tree_unref(fs->tree, node);
    }
    g_ptr_array_free(nodes, TRUE);
    while (!LIST_EMPTY(&fs->ended)) {
        LIST_FIRST(&fs->ended)->references = 1; /* the others are of completions that are not called any more */
        hold_unref(fs, LIST_FIRST(&fs->ended));
    }
}

void fs_free(struct fs *fs)
{
    if (!fs) {
        return;
    }
    ev_io_stop(fs->loop, &fs->owners_ended);
    owner_table_on_ended(fs->owners, NULL, NULL);
    ev_idle_stop(fs->loop, &fs->interrupts);
    ev_timer_stop(fs->loop, &fs->signals);
    ev_idle_stop(fs->loop, &fs->invalidate_idle);
    ev_timer_stop(fs->loop, &fs->invalidate_timeout);
    ev_timer_stop(fs->loop, &fs->alarm);
    recover_stop(fs);
    survivors_stop(fs);
    inherit_stop(fs);
    struct handle *h;
    LIST_FOREACH(h, &fs->handles, all) {
        handle_leave(h);
    }
    fs_drop_holds(fs);
    survivors_free(fs);
    openers_free(fs->openers);
    while (!LIST_EMPTY(&fs->handles)) {
        handle_free_left(fs, LIST_FIRST(&fs->handles));
    }
    guard_free_all(fs);
    g_hash_table_destroy(fs->records);
    g_hash_table_destroy(fs->opened);
    directory_close_all(fs);
    control_free(fs);
    openings_free(fs->openings);
    tree_set_notify(fs->tree, NULL);
    notify_free(fs->notify);
    tree_free(fs->tree);
    hold_heirs_unref(fs->last_heirs);
    owner_table_free(fs->owners);
    quota_free(fs->quota);
    g_clear_pointer(&fs->last_meta_bytes, g_bytes_unref);
    g_free(fs->last_meta);
    g_free(fs->metrics);
    g_free(fs);
}

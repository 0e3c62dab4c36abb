/* control: the directory .leasefs in the root; see control.h.  table.c, text.c and
 * metrics.c write the content of its files. */
#include "fs/control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/control/report.h"
#include "fs/hold/guard.h"
#include "fs/hold/hold.h"
#include "fs/hold/quota.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"

/* Lines of a table written at once, at an open or a read.  One that seeks far ahead may have to write a million lines:
 * between any two other requests there is one such part of it. */
#define CONTROL_SLICE 64
#define CONTROL_CHUNK 65536
#define CONTROL_KEPT (1 << 20)
/* The names never change; the attributes follow the root's. */
#define CONTROL_KEEP_SECONDS 3600.0
static const char *const control_names[CONTROL_NODES] = {
    [CONTROL_DIRECTORY] = CONTROL_NAME, [CONTROL_STATUS] = "status",   [CONTROL_LOCKS] = "locks",
    [CONTROL_WAITERS] = "waiters",      [CONTROL_METRICS] = "metrics",
};

/* A part of a file's text; `start`: its offset in the file. */
struct control_chunk {
    uint64_t start;
    GString *text;
};

/* An open file: the text so far, and where a table goes on.  Of a long text the daemon keeps the last CONTROL_KEPT
 * bytes in front of where it is read. */
struct control_file {
    TAILQ_ENTRY(control_file) link; /* control->files */
    uint64_t fh;
    uid_t uid; /* who opened it */
    enum control_node what;
    GArray *chunks;
    enum control_list lists[2];
    struct observed *last[2]; /* of each list, when the file was opened; NULL: nothing */
    unsigned count, stage;    /* of the lists */
    struct observed *next;    /* to be written; NULL: all is */
    GHashTable *counts;       /* see control_add_held */
};

static struct hold *control_hold_of(struct observed *link)
{
    return (struct hold *)((char *)link - offsetof(struct hold, listed));
}

static struct guard *control_guard_of(struct observed *link)
{
    return (struct guard *)((char *)link - offsetof(struct guard, listed));
}

static struct request *control_request_of(struct observed *link)
{
    return (struct request *)((char *)link - offsetof(struct request, listed));
}

/* --- writing ----------------------------------------------------------------------- */

static GString *control_text(struct control_file *file)
{
    struct control_chunk *last =
        file->chunks->len ? &g_array_index(file->chunks, struct control_chunk, file->chunks->len - 1) : NULL;
    if (!last || last->text->len >= CONTROL_CHUNK) {
        struct control_chunk chunk = {.start = last ? last->start + last->text->len : 0, .text = g_string_new(NULL)};
        g_array_append_val(file->chunks, chunk);
        return chunk.text;
    }
    return last->text;
}

/* Goes on to the next list when this one is through. */
static void control_settle(struct control *control, struct control_file *file)
{
    while (!file->next && ++file->stage < file->count) {
        file->next = file->last[file->stage] ? TAILQ_FIRST(&control->lists[file->lists[file->stage]]) : NULL;
    }
}

static void control_step(struct control *control, struct control_file *file)
{
    file->next = file->next == file->last[file->stage] ? NULL : TAILQ_NEXT(file->next, link);
    control_settle(control, file);
}

static void control_write_line(struct fs *fs, struct control_file *file)
{
    GString *text = control_text(file);
    switch (file->lists[file->stage]) {
    case CONTROL_HELD:
        control_add_held(fs, text, control_hold_of(file->next), file->counts);
        break;
    case CONTROL_GUARDED:
        control_add_guarded(fs, text, control_guard_of(file->next), file->counts);
        break;
    case CONTROL_WAITING:
        control_add_waiting(fs, text, control_hold_of(file->next), file->counts);
        break;
    default:
        control_add_request(fs, text, control_request_of(file->next));
        break;
    }
}

static void control_write_slice(struct fs *fs, struct control_file *file, int lines)
{
    for (int i = 0; i < lines && file->next; i++) {
        control_write_line(fs, file);
        control_step(fs->control, file);
    }
}

static void control_begin_table(struct fs *fs, struct control_file *file, const enum control_list *lists,
                                unsigned count)
{
    file->count = count;
    for (unsigned i = 0; i < count; i++) {
        file->lists[i] = lists[i];
        file->last[i] = TAILQ_LAST(&fs->control->lists[lists[i]], observed_list);
    }
    file->next = file->last[0] ? TAILQ_FIRST(&fs->control->lists[lists[0]]) : NULL;
    control_settle(fs->control, file);
    control_write_slice(fs, file, CONTROL_SLICE);
}

static void control_begin(struct fs *fs, struct control_file *file)
{
    static const enum control_list held[] = {CONTROL_GUARDED, CONTROL_HELD},
                                   waiting[] = {CONTROL_WAITING, CONTROL_REQUESTS};
    file->chunks = g_array_new(FALSE, FALSE, sizeof(struct control_chunk));
    file->counts = g_hash_table_new(NULL, NULL);
    file->stage = 0;
    GString *text = control_text(file);
    if (file->what == CONTROL_STATUS) {
        control_add_status(fs, text);
    } else if (file->what == CONTROL_METRICS) {
        control_add_metrics(fs, text);
    } else if (file->what == CONTROL_LOCKS) {
        g_string_append(text, control_locks_header);
        control_begin_table(fs, file, held, G_N_ELEMENTS(held));
    } else {
        g_string_append(text, control_waiters_header);
        control_begin_table(fs, file, waiting, G_N_ELEMENTS(waiting));
    }
}

static struct control_file *control_file_new(struct fs *fs, enum control_node what, uid_t uid, uint64_t fh)
{
    struct control_file *file = g_new0(struct control_file, 1);
    TAILQ_INSERT_TAIL(&fs->control->files, file, link);
    fs->control->open++;
    file->what = what;
    file->uid = uid;
    file->fh = fh;
    quota_charge_open(fs->quota, uid, 1);
    control_begin(fs, file);
    return file;
}

/* Frees the first `count` parts. */
static void control_drop(struct control_file *file, guint count)
{
    for (guint i = 0; i < count; i++) {
        g_string_free(g_array_index(file->chunks, struct control_chunk, i).text, TRUE);
    }
    g_array_remove_range(file->chunks, 0, count);
}

static void control_end(struct fs *fs, struct control_file *file)
{
    GHashTableIter iter;
    gpointer node;
    control_drop(file, file->chunks->len);
    g_array_free(file->chunks, TRUE);
    g_hash_table_iter_init(&iter, file->counts);
    while (g_hash_table_iter_next(&iter, &node, NULL)) {
        tree_unref(fs->tree, node);
    }
    g_hash_table_destroy(file->counts);
}

static void control_file_free(struct fs *fs, struct control_file *file)
{
    control_end(fs, file);
    TAILQ_REMOVE(&fs->control->files, file, link);
    fs->control->open--;
    quota_charge_open(fs->quota, file->uid, -1);
    g_free(file);
}

static struct control_file *control_find_file(const struct request *r)
{
    struct control_file *file;
    TAILQ_FOREACH(file, &r->fs->control->files, link) {
        if (file->fh == r->file.fh) {
            break;
        }
    }
    return file;
}

/* The text of one that was opened before this daemon began is written again. */
static struct control_file *control_file_of(struct request *r)
{
    struct control_file *file = control_find_file(r);
    return file ? file
                : control_file_new(r->fs, (enum control_node)r->node->record->control, request_uid(r), r->file.fh);
}

/* --- the lists ---------------------------------------------------------------------- */

static void control_leave(struct fs *fs, enum control_list list, struct observed *link)
{
    struct control *control = fs->control;
    struct control_file *file;
    TAILQ_FOREACH(file, &control->files, link) {
        if (file->next == link) {
            control_step(control, file);
        }
        for (unsigned i = 0; i < file->count; i++) {
            if (file->last[i] == link) {
                file->last[i] = TAILQ_PREV(link, observed_list, link);
            }
        }
    }
    TAILQ_REMOVE(&control->lists[list], link, link);
}

static unsigned control_kind(const struct hold *hold, enum backend_kind kind)
{
    return hold->sequence ? METRICS_TICKET : kind;
}

static void control_unlist(struct fs *fs, struct hold *hold)
{
    if (hold->list == CONTROL_HELD) {
        fs->metrics->held[control_kind(hold, hold->kind)]--;
    } else if (hold->list == CONTROL_WAITING) {
        fs->metrics->waiting--;
    }
    if (hold->list != CONTROL_UNLISTED) {
        control_leave(fs, hold->list, &hold->listed);
        hold->list = CONTROL_UNLISTED;
    }
}

static void control_on_queued(struct fs *fs, struct hold *hold)
{
    if (hold->list == CONTROL_UNLISTED) {
        TAILQ_INSERT_TAIL(&fs->control->lists[CONTROL_WAITING], &hold->listed, link);
        hold->list = CONTROL_WAITING;
        fs->metrics->waiting++;
    }
}

static void control_on_granted(struct fs *fs, struct hold *hold, enum backend_kind kind)
{
    unsigned before = control_kind(hold, hold->kind), now = control_kind(hold, kind);
    if (hold->ticket && !hold->ticket->held) {
        control_on_queued(fs, hold); /* a ticket in its directory's queue */
        return;
    }
    if (hold->list != CONTROL_HELD) {
        control_unlist(fs, hold);
        TAILQ_INSERT_TAIL(&fs->control->lists[CONTROL_HELD], &hold->listed, link);
        hold->list = CONTROL_HELD;
        hold->ended = false;
    } else if (before == now) {
        return;
    } else {
        fs->metrics->held[before]--;
    }
    fs->metrics->held[now]++;
    fs->metrics->acquired[now]++;
}

static void control_on_gone(struct fs *fs, struct hold *hold)
{
    if (hold->list == CONTROL_HELD) {
        metrics_held_for(fs->metrics, clock_now() - hold->since);
        fs->metrics->released[control_kind(hold, hold->kind)] += !hold->ended;
    }
    control_unlist(fs, hold);
}

static void control_on_request_queued(struct request *r)
{
    TAILQ_INSERT_TAIL(&r->fs->control->lists[CONTROL_REQUESTS], &r->listed, link);
    r->listed_waiting = true;
    r->fs->metrics->waiting++;
}

static void control_on_request_dequeued(struct request *r)
{
    control_leave(r->fs, CONTROL_REQUESTS, &r->listed);
    r->listed_waiting = false;
    r->fs->metrics->waiting--;
}

static void control_on_guarded(struct fs *fs, struct guard *guard)
{
    TAILQ_INSERT_TAIL(&fs->control->lists[CONTROL_GUARDED], &guard->listed, link);
}

static void control_on_unguarded(struct fs *fs, struct guard *guard)
{
    control_leave(fs, CONTROL_GUARDED, &guard->listed);
}

static void control_on_ended(struct fs *fs, struct hold *hold, enum backend_end why)
{
    unsigned kind = control_kind(hold, hold->kind);
    struct metrics *m = fs->metrics;
    if (hold->list == CONTROL_HELD) {
        uint64_t *counters[] = {[BACKEND_EXPIRED] = &m->expired[kind],
                                [BACKEND_RELEASED] = &m->released[kind],
                                [BACKEND_BROKEN] = &m->broken[kind],
                                [BACKEND_LOST] = &m->lost[kind]};
        (*counters[why])++;
        hold->ended = true;
        report_ended(fs, hold, why);
    }
}

/* Of each lease once, and of all together not often: it is for who tries it out. */
#define CONTROL_CONTENDED_EVERY 10000

static void control_on_contended(struct request *r, struct hold *lease)
{
    struct control *control = r->fs->control;
    clock_ms now = clock_now();
    if (!lease->contended && (!control->contended || now - control->contended >= CONTROL_CONTENDED_EVERY)) {
        lease->contended = true;
        control->contended = now;
        report_contended(r, lease);
    }
}

static const struct observer control_observer = {
    .granted = control_on_granted,
    .queued = control_on_queued,
    .ended = control_on_ended,
    .gone = control_on_gone,
    .guarded = control_on_guarded,
    .unguarded = control_on_unguarded,
    .contended = control_on_contended,
    .request_queued = control_on_request_queued,
    .request_dequeued = control_on_request_dequeued,
};

/* --- names ----------------------------------------------------------------------------- */

static void control_attributes(struct fs *fs, const struct node *node, struct stat *st)
{
    const struct node *root = tree_root(fs->tree);
    mode_t reads = root->record->mode & 0444;
    *st = (struct stat){.st_ino = node->record->ino,
                        .st_uid = root->directory->uid,
                        .st_gid = root->directory->gid,
                        .st_blksize = 4096};
    st->st_nlink = node->directory ? 2 : 1;
    st->st_mode = node->directory ? S_IFDIR | reads | reads >> 2 : S_IFREG | reads;
    int64_t wall = fs_wall(fs, node->directory ? fs->started : clock_now());
    st->st_mtim = st->st_ctim = st->st_atim = clock_timespec(wall);
}

void control_lookup(struct request *r)
{
    struct fuse_entry_param entry = {.entry_timeout = CONTROL_KEEP_SECONDS};
    for (int what = CONTROL_DIRECTORY; what < CONTROL_NODES; what++) {
        struct node *node = r->fs->control->nodes[what];
        if (node->parent == r->other && strcmp(r->name, control_names[what]) == 0) {
            r->node = tree_ref(node);
            entry.ino = tree_id(r->fs->tree, node);
            control_attributes(r->fs, node, &entry.attr);
            request_reply_entry(r, &entry);
            return;
        }
    }
    request_reply(r, -ENOENT);
}

void control_getattr(struct request *r)
{
    struct stat st;
    control_attributes(r->fs, r->node, &st);
    request_reply_attr(r, &st, 0);
}

void control_readdir(struct request *r)
{
    char buffer[4096];
    size_t used = 0, size = MIN(sizeof buffer, r->read.size);
    for (int i = (int)r->read.offset; i >= 0 && i < CONTROL_NODES; i++) {
        const struct node *node = i == 0   ? r->node
                                  : i == 1 ? r->node->parent
                                           : r->fs->control->nodes[CONTROL_DIRECTORY + i - 1];
        const char *name = i == 0 ? "." : i == 1 ? ".." : control_names[CONTROL_DIRECTORY + i - 1];
        struct fuse_entry_param entry = {.attr = {.st_ino = node->record->ino, .st_mode = node->record->mode}};
        size_t need = request_add_name(r, buffer + used, size - used, name, &entry, i + 1);
        if (need > size - used) {
            break;
        }
        used += need;
    }
    request_reply_buffer(r, buffer, used);
}

void control_listxattr(struct request *r)
{
    if (r->xattr.size == 0) {
        request_reply_xattr_size(r, 0);
    } else {
        request_reply_buffer(r, "", 0);
    }
}

void control_refuse(struct request *r)
{
    switch (r->operation) {
    case METRICS_FLOCK:
    case METRICS_SETLK:
    case METRICS_GETLK:
        request_reply(r, -ENOLCK);
        break;
    case METRICS_GETXATTR:
    case METRICS_REMOVEXATTR:
        request_reply(r, -ENODATA);
        break;
    default:
        request_reply(r, -EPERM);
        break;
    }
}

/* --- open files -------------------------------------------------------------------------- */

void control_open(struct request *r)
{
    r->file.fh = 0;
    r->file.direct_io = 1; /* the size is not known: reads tell the end */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 11)
    r->file.noflush = 1; /* nothing of it can be locked, so closing it ends nothing */
#endif
    if (r->node->directory) {
        request_reply_open(r, NULL);
    } else if ((r->file.flags & O_ACCMODE) != O_RDONLY || r->file.flags & O_TRUNC) {
        request_reply(r, -EPERM);
    } else if (!quota_allows_open(r->fs->quota, request_uid(r))) {
        request_reply(r, -EDQUOT);
    } else {
        struct fs *fs = r->fs;
        r->file.fh = fs_next_fh(fs);
        struct control_file *file = control_file_new(fs, r->node->record->control, request_uid(r), r->file.fh);
        if (!request_reply_open(r, NULL)) {
            control_file_free(fs, file);
        }
    }
}

static size_t control_copy(const struct control_file *file, uint64_t offset, char *buffer, size_t size)
{
    size_t used = 0;
    guint low = 0, high = file->chunks->len; /* the chunk is in [low, high) */
    while (high - low > 1) {
        guint middle = low + (high - low) / 2;
        if (g_array_index(file->chunks, struct control_chunk, middle).start <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    for (; low < file->chunks->len && used < size; low++) {
        const struct control_chunk *chunk = &g_array_index(file->chunks, struct control_chunk, low);
        uint64_t from = offset + used - chunk->start;
        if (from < chunk->text->len) {
            size_t part = (size_t)MIN(size - used, chunk->text->len - from);
            memcpy(buffer + used, chunk->text->str + from, part);
            used += part;
        }
    }
    return used;
}

/* Answers a read, unless what it wants is still to be written. */
static bool control_answer(struct request *r)
{
    struct control_file *file = control_file_of(r);
    if ((uint64_t)r->read.offset < g_array_index(file->chunks, struct control_chunk, 0).start) {
        control_end(r->fs, file); /* that text is no longer kept: write a new table */
        control_begin(r->fs, file);
    }
    while (file->chunks->len > 1 &&
           g_array_index(file->chunks, struct control_chunk, 1).start + CONTROL_KEPT <= (uint64_t)r->read.offset) {
        control_drop(file, 1);
    }
    char *buffer = g_malloc(r->read.size);
    size_t used = control_copy(file, (uint64_t)r->read.offset, buffer, r->read.size);
    bool answers = used > 0 || !file->next || r->read.size == 0;
    if (answers) {
        request_reply_buffer(r, buffer, used);
    }
    g_free(buffer);
    return answers;
}

void control_read(struct request *r)
{
    struct fs *fs = r->fs;
    if (!control_answer(r)) {
        control_write_slice(fs, control_file_of(r), CONTROL_SLICE);
        if (!control_answer(r)) {
            request_park(r, &fs->control->reads, control_read, request_reply_interrupted);
            ev_idle_start(fs->loop, &fs->control->slices);
        }
    }
}

/* One slice for whoever has sought far ahead, then the loop looks at the others. */
static void control_slice(struct ev_loop *loop, ev_idle *idle, int events)
{
    struct fs *fs = idle->data;
    struct request_queue *reads = &fs->control->reads;
    struct request *r = TAILQ_FIRST(reads);
    (void)events;
    if (!r) {
        ev_idle_stop(loop, idle);
        return;
    }
    control_write_slice(fs, control_file_of(r), CONTROL_SLICE);
    TAILQ_REMOVE(reads, r, parked);
    TAILQ_INSERT_TAIL(reads, r, parked);
    control_answer(r);
}

/* Nothing ever changes. */
void control_poll(struct request *r)
{
    request_reply_poll(r, POLLIN | POLLRDNORM);
}

void control_release(struct request *r)
{
    if (control_find_file(r)) {
        control_file_free(r->fs, control_find_file(r));
    }
    request_reply(r, 0);
}

/* --- beginning and ending ------------------------------------------------------------------ */

struct control *control_new(struct fs *fs)
{
    struct control *control = g_new0(struct control, 1);
    struct node *parent = tree_root(fs->tree);
    for (int list = 0; list < CONTROL_LISTS; list++) {
        TAILQ_INIT(&control->lists[list]);
    }
    for (int what = CONTROL_DIRECTORY; what < CONTROL_NODES; what++) {
        struct node *node = tree_restored_control(fs->tree, (uint8_t)what);
        if (!node) {
            node = tree_make(fs->tree, parent, control_names[what], what == CONTROL_DIRECTORY ? S_IFDIR : S_IFREG);
            node->record->control = (uint8_t)what;
        }
        control->nodes[what] = node;
        parent = control->nodes[CONTROL_DIRECTORY];
    }
    TAILQ_INIT(&control->files);
    TAILQ_INIT(&control->reads);
    ev_idle_init(&control->slices, control_slice);
    ev_set_priority(&control->slices, EV_MAXPRI); /* requests that keep coming do not put it off */
    control->slices.data = fs;
    fs->observer = &control_observer;
    return control;
}

void control_stop(struct fs *fs)
{
    struct request *r;
    while ((r = TAILQ_FIRST(&fs->control->reads))) {
        request_reply(r, -EIO);
    }
}

void control_free(struct fs *fs)
{
    struct control *control = fs->control;
    while (!TAILQ_EMPTY(&control->files)) {
        control_file_free(fs, TAILQ_FIRST(&control->files));
    }
    ev_idle_stop(fs->loop, &control->slices);
    for (int what = CONTROL_NODES - 1; what >= CONTROL_DIRECTORY; what--) {
        tree_unref(fs->tree, control->nodes[what]);
    }
    g_free(control);
}

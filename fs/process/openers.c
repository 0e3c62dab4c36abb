/* openers: see openers.h. */
#include "fs/process/openers.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "backend/clock.h"
#include "backend/log.h"
#include "fs/process/owner.h"
#include "fs/process/process.h"
#include "fs/process/walker.h"

#define OPENERS_TOGETHER 100    /* milliseconds: who asks within them shares a walk */
#define OPENERS_WAITED_FOR 1000 /* milliseconds from walk to walk while somebody waits, */
#define OPENERS_IDLE 10000      /* and while nobody does */
#define OPENERS_RETRY_MAX 1000  /* milliseconds from walk to walk while a file stays unsure and nobody waits */
#define OPENERS_SHARE 10        /* walks use one part of so many of a processor */
#define OPENERS_EMPTY_WALKS 2   /* so many in a row are certain */
#define OPENERS_PIECE 65536

/* A process that has a file open; shared by its files. */
struct openers_known {
    struct openers *openers;
    struct owner *owner; /* counted */
    uid_t uid;
    bool single_threaded;
    bool unseen;
    bool ended; /* before the present walk began */
    int pidfd;  /* -1: no free descriptor */
    ev_io end;
    uint32_t references; /* of inodes */
};

TAILQ_HEAD(openers_files, openers_file);

struct openers_inode {
    uint64_t device, inode;
    struct openers_files files;
    GPtrArray *known;    /* counted: who has it open, by the last walk */
    uint32_t references; /* files, and the list */
    uint32_t empty;      /* walks in a row that are certain of seeing nobody */
    bool settled;        /* nobody has it, for good */
};

struct openers_file {
    struct openers *openers;
    struct openers_inode *inode;
    TAILQ_ENTRY(openers_file) next;
    struct owner *opener; /* counted, or NULL */
    bool hidden;
    bool removed; /* in a callback */
    openers_callback *callback;
    void *arg;
};

struct openers {
    struct ev_loop *loop;
    struct owner_table *owners;
    struct process_reader reader;
    int socket; /* -1: lost */
    ev_io readable, writable;
    ev_timer timer;
    GHashTable *inodes;   /* set of struct openers_inode */
    GHashTable *known;    /* owner → struct openers_known */
    GPtrArray *listed;    /* counted: the files of the last list that was sent, in its order */
    GPtrArray *removed;   /* files that were removed in a callback */
    GByteArray *out, *in; /* to send, received */
    dev_t own_device;
    bool changed;    /* the list is no longer what was sent */
    bool walking;    /* a walk is not answered */
    bool wanted;     /* one that begins later than now is wanted */
    bool waited_for; /* every second */
    bool reporting;
    clock_ms began; /* the last walk; CLOCK_NEVER: none yet */
    int64_t retry;  /* milliseconds to the next walk while a file is unsure; 0: none is */
    struct openers_metrics metrics;
};

/* --- processes ------------------------------------------------------------------ */

static void openers_ended(struct ev_loop *loop, ev_io *io, int events)
{
    struct openers_known *known = io->data;
    (void)events;
    ev_io_stop(loop, io);
    openers_ask(known->openers);
}

static struct openers_known *openers_know(struct openers *o, const struct walk_opener *seen)
{
    uint64_t start;
    struct owner *owner = owner_get(o->owners, seen->pid);
    struct openers_known *known = owner ? g_hash_table_lookup(o->known, owner) : NULL;
    if (!owner) {
        return NULL;
    }
    if (known) {
        owner_unref(owner);
    } else {
        known = g_new0(struct openers_known, 1);
        *known = (struct openers_known){.openers = o, .owner = owner, .pidfd = -1};
        g_hash_table_insert(o->known, owner, known);
        if (process_identify(&o->reader, seen->pid, &start, &known->pidfd) == 0 && known->pidfd >= 0) {
            ev_io_init(&known->end, openers_ended, known->pidfd, EV_READ);
            known->end.data = known;
            ev_io_start(o->loop, &known->end);
        }
    }
    known->uid = seen->uid;
    known->single_threaded = seen->single_threaded;
    known->unseen = seen->file == WALK_UNSEEN;
    known->references++;
    return known;
}

static void openers_forget(gpointer data)
{
    struct openers_known *known = data;
    struct openers *o = known->openers;
    if (--known->references > 0) {
        return;
    }
    g_hash_table_remove(o->known, known->owner);
    if (known->pidfd >= 0) {
        ev_io_stop(o->loop, &known->end);
        close(known->pidfd);
    }
    owner_unref(known->owner);
    g_free(known);
}

/* --- files ------------------------------------------------------------------------ */

static guint openers_hash(gconstpointer key)
{
    const struct openers_inode *inode = key;
    return (guint)(inode->inode * 31 + inode->device);
}

static gboolean openers_equal(gconstpointer a, gconstpointer b)
{
    const struct openers_inode *left = a, *right = b;
    return left->inode == right->inode && left->device == right->device;
}

static void openers_unref_inode(gpointer data)
{
    struct openers_inode *inode = data;
    if (--inode->references == 0) {
        g_ptr_array_unref(inode->known);
        g_free(inode);
    }
}

static struct openers_inode *openers_get_inode(struct openers *o, dev_t device, ino_t number)
{
    struct openers_inode key = {.device = device, .inode = number};
    struct openers_inode *inode = g_hash_table_lookup(o->inodes, &key);
    if (!inode) {
        inode = g_new0(struct openers_inode, 1);
        *inode = key;
        inode->known = g_ptr_array_new_with_free_func(openers_forget);
        TAILQ_INIT(&inode->files);
        g_hash_table_add(o->inodes, inode);
        o->changed = true;
    }
    return inode;
}

struct openers_file *openers_add(struct openers *o, dev_t device, ino_t inode, struct owner *opener, bool hidden,
                                 openers_callback *callback, void *arg)
{
    struct openers_file *file = g_new0(struct openers_file, 1);
    *file = (struct openers_file){
        .openers = o,
        .inode = openers_get_inode(o, device, inode),
        .opener = opener ? owner_ref(opener) : NULL,
        .hidden = hidden,
        .callback = callback,
        .arg = arg,
    };
    TAILQ_INSERT_TAIL(&file->inode->files, file, next);
    file->inode->references++;
    openers_ask(o);
    return file;
}

static void openers_delete_file(struct openers_file *file)
{
    struct openers *o = file->openers;
    struct openers_inode *inode = file->inode;
    TAILQ_REMOVE(&inode->files, file, next);
    if (TAILQ_EMPTY(&inode->files)) {
        g_hash_table_remove(o->inodes, inode);
        g_ptr_array_set_size(inode->known, 0);
        o->changed = true;
    }
    openers_unref_inode(inode);
    owner_unref(file->opener);
    g_free(file);
}

void openers_remove(struct openers_file *file)
{
    if (file && file->openers->reporting) {
        file->removed = true;
        g_ptr_array_add(file->openers->removed, file);
    } else if (file) {
        openers_delete_file(file);
    }
}

/* --- what a walk found -------------------------------------------------------------- */

struct openers_report {
    const struct walker_reply *reply;
    const struct walk_opener *seen, *unseen; /* the rest of `seen` */
    size_t unseen_count;
    const struct walker_mount *mounts;
};

static int openers_compare_pids(const void *key, const void *element)
{
    pid_t pid = *(const pid_t *)key, other = ((const struct walk_opener *)element)->pid;
    return pid < other ? -1 : pid > other;
}

static bool openers_has(const GPtrArray *known, const struct owner *owner)
{
    for (guint i = 0; i < known->len; i++) {
        if (((const struct openers_known *)known->pdata[i])->owner == owner) {
            return true;
        }
    }
    return false;
}

static void openers_take(GPtrArray *known, struct openers_known *process)
{
    if (openers_has(known, process->owner)) {
        process->references--;
    } else {
        g_ptr_array_add(known, process);
    }
}

/* Without CAP_SYS_PTRACE most processes cannot be looked into.  Of these only one counts that has opened the file, or
 * that had it when it could be looked into. */
static void openers_take_suspect(struct openers *o, const struct openers_report *report, struct owner *owner,
                                 GPtrArray *ret_known)
{
    pid_t pid = owner ? owner_pid(owner) : 0;
    const struct walk_opener *unseen =
        owner ? bsearch(&pid, report->unseen, report->unseen_count, sizeof *unseen, openers_compare_pids) : NULL;
    struct openers_known *known = unseen && owner_alive(owner) ? openers_know(o, unseen) : NULL;
    if (known && owner_is_same(known->owner, owner)) {
        openers_take(ret_known, known);
    } else if (known) {
        openers_forget(known);
    }
}

static void openers_take_unseen(struct openers *o, const struct openers_report *report, struct openers_inode *inode,
                                GPtrArray *ret_known)
{
    const struct openers_file *file;
    if (!report->reply->blind) {
        for (size_t i = 0; i < report->unseen_count; i++) {
            struct openers_known *known = openers_know(o, &report->unseen[i]);
            if (known) {
                openers_take(ret_known, known);
            }
        }
        return;
    }
    TAILQ_FOREACH(file, &inode->files, next) {
        openers_take_suspect(o, report, file->opener, ret_known);
    }
    for (guint i = 0; i < inode->known->len; i++) {
        openers_take_suspect(o, report, ((struct openers_known *)inode->known->pdata[i])->owner, ret_known);
    }
}

static bool openers_is_gone(const struct openers *o, const struct openers_report *report, uint64_t device)
{
    bool gone = device == o->own_device;
    for (uint32_t i = 0; i < report->reply->mounts; i++) {
        gone |= report->mounts[i].device == device && report->mounts[i].state == WALKER_GONE;
    }
    return gone;
}

/* A process that had it has ended since the walk began, and may have forked just before. */
static bool openers_is_disturbed(const struct openers_inode *inode)
{
    for (guint i = 0; i < inode->known->len; i++) {
        const struct openers_known *known = inode->known->pdata[i];
        if (!known->ended && !owner_alive(known->owner)) {
            return true;
        }
    }
    return false;
}

static bool openers_is_hidden(const struct openers_inode *inode)
{
    const struct openers_file *file = TAILQ_FIRST(&inode->files);
    while (file && !file->hidden) {
        file = TAILQ_NEXT(file, next);
    }
    return file != NULL;
}

/* `*seen`: the next process of the reply; moves on behind those of this file. */
static void openers_judge(struct openers *o, const struct openers_report *report, struct openers_inode *inode,
                          uint32_t index, const struct walk_opener **seen)
{
    GPtrArray *known = g_ptr_array_new_with_free_func(openers_forget);
    bool disturbed = openers_is_disturbed(inode);
    for (; *seen < report->unseen && (*seen)->file == index; ++*seen) {
        struct openers_known *process = openers_know(o, *seen);
        if (process) {
            openers_take(known, process);
        } else {
            disturbed = true;
        }
    }
    openers_take_unseen(o, report, inode, known);
    bool certain = report->reply->settled && !report->reply->in_flight && !disturbed && !openers_is_hidden(inode);
    inode->empty = known->len == 0 && certain ? inode->empty + 1 : 0;
    inode->settled = inode->empty >= OPENERS_EMPTY_WALKS || openers_is_gone(o, report, inode->device);
    g_ptr_array_unref(inode->known);
    inode->known = known;
    o->changed |= inode->settled;
}

static gint openers_compare_processes(gconstpointer a, gconstpointer b)
{
    pid_t left = owner_pid(((const struct openers_process *)a)->owner);
    pid_t right = owner_pid(((const struct openers_process *)b)->owner);
    return left < right ? -1 : left > right;
}

static void openers_tell(struct openers_inode *inode)
{
    GArray *processes = g_array_new(FALSE, FALSE, sizeof(struct openers_process));
    for (guint i = 0; !inode->settled && i < inode->known->len; i++) {
        const struct openers_known *known = inode->known->pdata[i];
        struct openers_process process = {known->owner, known->uid, known->single_threaded, known->unseen};
        g_array_append_val(processes, process);
    }
    g_array_sort(processes, openers_compare_processes);
    struct openers_found found = {
        .verdict = inode->settled       ? OPENERS_NOBODY
                   : processes->len > 0 ? OPENERS_SOME
                                        : OPENERS_UNSURE,
        .processes = (const struct openers_process *)(const void *)processes->data,
        .count = processes->len,
    };
    struct openers_file *last = TAILQ_LAST(&inode->files, openers_files), *file = TAILQ_FIRST(&inode->files);
    for (; file; file = file == last ? NULL : TAILQ_NEXT(file, next)) {
        if (!file->removed) {
            file->callback(file, &found, file->arg);
        }
    }
    g_array_free(processes, TRUE);
}

static void openers_report(struct openers *o, const struct openers_report *report)
{
    const struct walk_opener *seen = report->seen;
    bool unsure = false;
    o->reporting = true;
    for (guint i = 0; i < o->listed->len; i++) {
        struct openers_inode *inode = o->listed->pdata[i];
        if (TAILQ_EMPTY(&inode->files)) { /* removed meanwhile */
            for (; seen < report->unseen && seen->file == i; seen++) {
            }
            continue;
        }
        openers_judge(o, report, inode, i, &seen);
        unsure |= !inode->settled && inode->known->len == 0;
        openers_tell(inode);
    }
    o->reporting = false;
    for (guint i = 0; i < o->removed->len; i++) {
        openers_delete_file(o->removed->pdata[i]);
    }
    g_ptr_array_set_size(o->removed, 0);
    o->retry = !unsure ? 0 : o->retry ? MIN(o->retry * 2, OPENERS_RETRY_MAX) : OPENERS_TOGETHER;
}

/* --- messages --------------------------------------------------------------------- */

/* Until the child is there again there is nobody who could look. */
static void openers_lose(struct openers *o)
{
    if (!o->metrics.lost) {
        log_warning(
            "the process that looks into other processes is gone: locks of the daemon before this one stay until "
            "they are broken");
    }
    o->metrics.lost = true;
    ev_io_stop(o->loop, &o->readable);
    ev_io_stop(o->loop, &o->writable);
    ev_timer_stop(o->loop, &o->timer);
}

static void openers_flush(struct openers *o)
{
    ssize_t put = write(o->socket, o->out->data, o->out->len);
    if (put > 0) {
        g_byte_array_remove_range(o->out, 0, (guint)put);
    } else if (put < 0 && errno != EAGAIN && errno != EINTR) {
        openers_lose(o);
        return;
    }
    if (o->out->len > 0) {
        ev_io_start(o->loop, &o->writable);
    } else {
        ev_io_stop(o->loop, &o->writable);
    }
}

static void openers_writable(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    openers_flush(io->data);
}

static gint openers_compare_inodes(gconstpointer a, gconstpointer b)
{
    const struct openers_inode *left = *(struct openers_inode *const *)a, *right = *(struct openers_inode *const *)b;
    struct walk_file one = {left->device, left->inode}, other = {right->device, right->inode};
    return walk_compare_files(&one, &other);
}

static void openers_list(struct openers *o)
{
    GHashTableIter all;
    gpointer key;
    g_ptr_array_set_size(o->listed, 0);
    g_hash_table_iter_init(&all, o->inodes);
    while (g_hash_table_iter_next(&all, &key, NULL)) {
        struct openers_inode *inode = key;
        if (!inode->settled) {
            inode->references++;
            g_ptr_array_add(o->listed, inode);
        }
    }
    g_ptr_array_sort(o->listed, openers_compare_inodes);
    o->changed = false;
}

/* From here on an end of a known process counts as one during the walk. */
static void openers_note_ends(struct openers *o)
{
    GHashTableIter all;
    gpointer value;
    g_hash_table_iter_init(&all, o->known);
    while (g_hash_table_iter_next(&all, NULL, &value)) {
        struct openers_known *known = value;
        known->ended = !owner_alive(known->owner);
    }
}

static void openers_walk(struct openers *o)
{
    struct walker_request request = {.files = WALKER_SAME_FILES};
    bool changed = o->changed;
    if (changed) {
        openers_list(o);
        request.files = o->listed->len;
    }
    o->wanted = false;
    if (o->listed->len == 0) {
        o->retry = 0;
        return;
    }
    openers_note_ends(o);
    g_byte_array_append(o->out, (const guint8 *)&request, sizeof request);
    for (guint i = 0; changed && i < o->listed->len; i++) {
        const struct openers_inode *inode = o->listed->pdata[i];
        struct walk_file file = {inode->device, inode->inode};
        g_byte_array_append(o->out, (const guint8 *)&file, sizeof file);
    }
    o->walking = true;
    o->began = clock_now();
    openers_flush(o);
}

static void openers_due(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop;
    (void)events;
    openers_walk(timer->data);
}

/* When the next walk begins, in CLOCK_BOOTTIME. */
static clock_ms openers_next(const struct openers *o)
{
    int64_t pause = MAX(OPENERS_TOGETHER, o->metrics.last_ns * OPENERS_SHARE / 1000000);
    int64_t wish = o->wanted ? 0 : o->waited_for ? OPENERS_WAITED_FOR : OPENERS_IDLE;
    if (o->retry > 0) {
        wish = MIN(wish, o->retry);
    }
    return o->began == CLOCK_NEVER ? 0 : o->began + MAX(wish, pause);
}

static void openers_schedule(struct openers *o)
{
    if (o->metrics.lost || o->walking || o->reporting) {
        return;
    }
    ev_timer_stop(o->loop, &o->timer);
    clock_ms next = openers_next(o);
    if (o->changed || o->listed->len > 0) {
        ev_timer_set(&o->timer, (double)MAX(next - clock_now(), 0) / 1000, 0);
        ev_timer_start(o->loop, &o->timer);
    }
}

static void openers_answered(struct openers *o, const struct walker_reply *reply, const guint8 *data)
{
    struct openers_report report = {
        .reply = reply,
        .seen = (const void *)data,
        .mounts = (const void *)(data + reply->openers * sizeof(struct walk_opener)),
    };
    size_t count = reply->openers;
    while (count > 0 && report.seen[count - 1].file == WALK_UNSEEN) {
        count--;
    }
    report.unseen = report.seen + count;
    report.unseen_count = reply->openers - count;
    o->walking = false;
    o->metrics.blind = reply->blind;
    if (reply->failed) {
        o->retry = OPENERS_RETRY_MAX;
    } else {
        o->metrics.walks++;
        o->metrics.last_ns = (int64_t)reply->processor_ns;
        openers_report(o, &report);
    }
    openers_schedule(o);
}

static void openers_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct openers *o = io->data;
    struct walker_reply reply;
    guint8 piece[OPENERS_PIECE];
    (void)loop;
    (void)events;
    ssize_t got = read(o->socket, piece, sizeof piece);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        openers_lose(o);
        return;
    }
    g_byte_array_append(o->in, piece, (guint)got);
    if (o->in->len < sizeof reply) {
        return;
    }
    memcpy(&reply, o->in->data, sizeof reply);
    size_t size =
        sizeof reply + reply.openers * sizeof(struct walk_opener) + reply.mounts * sizeof(struct walker_mount);
    if (o->in->len < size) {
        return;
    }
    g_autofree guint8 *data = g_malloc(size);
    memcpy(data, o->in->data + sizeof reply, size - sizeof reply);
    g_byte_array_remove_range(o->in, 0, (guint)size);
    openers_answered(o, &reply, data);
}

/* --- all ------------------------------------------------------------------------------ */

struct openers *openers_new(struct ev_loop *loop, struct owner_table *owners, int socket)
{
    struct openers *o = g_new0(struct openers, 1);
    *o = (struct openers){
        .loop = loop,
        .owners = owners,
        .socket = socket,
        .inodes = g_hash_table_new(openers_hash, openers_equal),
        .known = g_hash_table_new(NULL, NULL),
        .listed = g_ptr_array_new_with_free_func(openers_unref_inode),
        .removed = g_ptr_array_new(),
        .out = g_byte_array_new(),
        .in = g_byte_array_new(),
        .began = CLOCK_NEVER,
        .metrics.lost = socket < 0,
    };
    process_open(&o->reader);
    ev_timer_init(&o->timer, openers_due, 0, 0);
    ev_io_init(&o->readable, openers_readable, socket, EV_READ);
    ev_io_init(&o->writable, openers_writable, socket, EV_WRITE);
    o->timer.data = o->readable.data = o->writable.data = o;
    if (socket >= 0) {
        fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
        ev_io_start(loop, &o->readable);
    }
    return o;
}

void openers_free(struct openers *o)
{
    if (!o) {
        return;
    }
    g_autoptr(GList) inodes = g_hash_table_get_keys(o->inodes);
    for (GList *at = inodes; at; at = at->next) {
        struct openers_inode *inode = at->data;
        inode->references++;
        while (!TAILQ_EMPTY(&inode->files)) {
            openers_delete_file(TAILQ_FIRST(&inode->files));
        }
        openers_unref_inode(inode);
    }
    ev_timer_stop(o->loop, &o->timer);
    if (o->socket >= 0) {
        ev_io_stop(o->loop, &o->readable);
        ev_io_stop(o->loop, &o->writable);
        close(o->socket);
    }
    g_ptr_array_unref(o->listed);
    g_ptr_array_unref(o->removed);
    g_hash_table_destroy(o->inodes);
    g_hash_table_destroy(o->known);
    g_byte_array_unref(o->out);
    g_byte_array_unref(o->in);
    process_close(&o->reader);
    g_free(o);
}

void openers_set_own_device(struct openers *o, dev_t device)
{
    o->own_device = device;
}

void openers_ask(struct openers *o)
{
    o->wanted = true;
    openers_schedule(o);
}

bool openers_is_wanted(const struct openers *o)
{
    return (o->walking || o->wanted) && !o->metrics.lost;
}

void openers_set_waited_for(struct openers *o, bool waited_for)
{
    o->waited_for = waited_for;
    openers_schedule(o);
}

void openers_measure(const struct openers *o, struct openers_metrics *ret_metrics)
{
    *ret_metrics = o->metrics;
    ret_metrics->files = g_hash_table_size(o->inodes);
}

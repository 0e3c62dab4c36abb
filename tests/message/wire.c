/* wire: the kernel's side of a FUSE connection without a mount; see wire.h. */
#include "tests/message/wire.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/ops/ops.h"

#define WIRE_MESSAGE_MAX (1 << 20)
/* Enough for every message, and every event that follows from another. */
#define WIRE_TURNS_MAX 10000

/* The whole program's: clock_now has no other way to it. */
static clock_ms wire_clock = 1000000;
static uint64_t wire_lost_caller;
static atomic_bool wire_deletions_held;

/* In place of backend/clock.c. */
clock_ms clock_now(void)
{
    return wire_clock;
}

void wire_let_time_pass(int64_t milliseconds)
{
    wire_clock += milliseconds;
}

int64_t clock_wall(void)
{
    return 1700000000000 + wire_clock;
}

/* --- the filesystem's end ---------------------------------------------------------- */

static GHashTable *wire_daemons; /* struct fs -> struct wire, of those that live */
static pthread_mutex_t wire_daemons_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct wire *wire_of(const void *fs)
{
    pthread_mutex_lock(&wire_daemons_mutex);
    struct wire *w = g_hash_table_lookup(wire_daemons, fs);
    pthread_mutex_unlock(&wire_daemons_mutex);
    return w;
}

static void wire_set_daemon(struct wire *w, bool lives)
{
    pthread_mutex_lock(&wire_daemons_mutex);
    wire_daemons = wire_daemons ? wire_daemons : g_hash_table_new(NULL, NULL);
    if (lives) {
        g_hash_table_insert(wire_daemons, w->fs, w);
    } else {
        g_hash_table_remove(wire_daemons, w->fs);
    }
    pthread_mutex_unlock(&wire_daemons_mutex);
}

static struct wire_exchange *wire_exchange(struct wire *w, uint64_t unique)
{
    return g_hash_table_lookup(w->exchanges, GSIZE_TO_POINTER(unique));
}

static ssize_t wire_writev(int fd, struct iovec *iov, int count, void *userdata)
{
    const struct fuse_out_header *header = iov[0].iov_base;
    while (!header->unique && ((header->error == FUSE_NOTIFY_DELETE && wire_deletions_held) || !wire_of(userdata))) {
        sched_yield(); /* the thread that tells; that of a dead daemon never does */
    }
    struct wire *w = wire_of(userdata);
    struct wire_exchange *e = header->unique ? wire_exchange(w, header->unique) : NULL;
    if ((header->unique && header->unique == wire_lost_caller) || (e && e->replier && e->replier != w->fs)) {
        errno = ENOENT; /* as the kernel says when nobody waits for it, or an earlier daemon has replied */
        return -1;
    }
    if (e) {
        e->replier = w->fs;
    }
    return writev(fd, iov, count);
}

static ssize_t wire_readv(int fd, void *buffer, size_t size, void *userdata)
{
    (void)userdata;
    ssize_t got = read(fd, buffer, size);
    if (got >= 0) {
        /* Nothing of earlier messages behind this one. */
        memset((char *)buffer + got, 0, MIN(size - (size_t)got, 4096));
    }
    return got;
}

/* --- answers ------------------------------------------------------------------------ */

static void wire_exchange_free(gpointer pointer)
{
    struct wire_exchange *exchange = pointer;
    if (exchange->data) {
        g_bytes_unref(exchange->data);
    }
    g_free(exchange);
}

static uint64_t wire_count_of(GHashTable *counts, uint64_t key)
{
    return (uint64_t)(uintptr_t)g_hash_table_lookup(counts, GSIZE_TO_POINTER(key));
}

static void wire_note_entry(struct wire *w, uint64_t node)
{
    if (node) {
        g_hash_table_insert(w->lookups, GSIZE_TO_POINTER(node), GSIZE_TO_POINTER(wire_count_of(w->lookups, node) + 1));
    }
}

static void wire_note_open(struct wire *w, uint64_t node, const struct fuse_open_out *out, uint32_t flags)
{
    struct wire_file *file = g_new(struct wire_file, 1);
    *file = (struct wire_file){node, out->fh, flags};
    ck_assert_msg(g_hash_table_insert(w->opened, GSIZE_TO_POINTER(out->fh), file), "a file handle is used twice");
}

static void wire_note_listing(struct wire *w, const char *data, size_t size)
{
    while (size > 0) {
        const struct fuse_direntplus *name = (const void *)data;
        ck_assert_uint_ge(size, FUSE_NAME_OFFSET_DIRENTPLUS);
        ck_assert_uint_ge(size, FUSE_DIRENTPLUS_SIZE(name));
        wire_note_entry(w, name->entry_out.nodeid);
        data += FUSE_DIRENTPLUS_SIZE(name);
        size -= FUSE_DIRENTPLUS_SIZE(name);
    }
}

/* Remembers what the kernel would: nodes and open files. */
static void wire_note_answer(struct wire *w, struct wire_exchange *e)
{
    gsize size;
    const char *data = g_bytes_get_data(e->data, &size);
    const struct fuse_entry_out *entry = (const void *)data;
    if (e->error) {
        ck_assert_uint_eq(size, 0);
        return;
    }
    switch (e->opcode) {
    case FUSE_LOOKUP:
    case FUSE_MKDIR:
    case FUSE_MKNOD:
    case FUSE_SYMLINK:
    case FUSE_LINK:
        ck_assert_uint_eq(size, sizeof *entry);
        wire_note_entry(w, entry->nodeid);
        break;
    case FUSE_CREATE:
        ck_assert_uint_eq(size, sizeof *entry + sizeof(struct fuse_open_out));
        wire_note_entry(w, entry->nodeid);
        wire_note_open(w, entry->nodeid, (const void *)(data + sizeof *entry), e->flags);
        break;
    case FUSE_READDIRPLUS:
        wire_note_listing(w, data, size);
        break;
    case FUSE_OPEN:
        ck_assert_uint_eq(size, sizeof(struct fuse_open_out));
        wire_note_open(w, e->node, (const void *)data, e->flags);
        break;
    default:
        break;
    }
}

static void wire_note_notice(struct wire *w, int code, const char *body)
{
    struct wire_notice notice = {.code = code};
    if (code == FUSE_NOTIFY_DELETE) {
        const struct fuse_notify_delete_out *out = (const void *)body;
        notice.parent = out->parent;
        notice.child = out->child;
        g_strlcpy(notice.name, body + sizeof *out, sizeof notice.name);
    } else if (code == FUSE_NOTIFY_INVAL_ENTRY) {
        const struct fuse_notify_inval_entry_out *out = (const void *)body;
        notice.parent = out->parent;
        g_strlcpy(notice.name, body + sizeof *out, sizeof notice.name);
    } else if (code == FUSE_NOTIFY_INVAL_INODE) {
        const struct fuse_notify_inval_inode_out *out = (const void *)body;
        ck_assert_int_lt(out->off, 0); /* of its pages the kernel would wait for us */
        notice.child = out->ino;
    } else if (code != WIRE_NOTIFY_INC_EPOCH) {
        ck_assert_int_eq(code, FUSE_NOTIFY_POLL);
        notice.poll = ((const struct fuse_notify_poll_wakeup_out *)(const void *)body)->kh;
    }
    g_array_append_val(w->notices, notice);
}

/* Reads all that was answered. */
static void wire_collect(struct wire *w)
{
    static _Alignas(16) char message[WIRE_MESSAGE_MAX];
    const struct fuse_out_header *header = (const void *)message;
    ssize_t got;
    while ((got = recv(w->kernel, message, sizeof message, MSG_DONTWAIT)) > 0) {
        const char *body = message + sizeof *header;
        ck_assert_uint_ge((size_t)got, sizeof *header);
        ck_assert_uint_eq(header->len, (size_t)got);
        if (header->unique == 0) {
            wire_note_notice(w, header->error, body);
            continue;
        }
        struct wire_exchange *e = wire_exchange(w, header->unique);
        ck_assert_msg(e != NULL, "an answer to no request: %lu", (unsigned long)header->unique);
        ck_assert_msg(!e->answered, "a second answer to request %lu (opcode %u)", (unsigned long)header->unique,
                      e->opcode);
        ck_assert_msg(header->error <= 0 && header->error > -512, "error %d", header->error);
        e->answered = true;
        e->error = -header->error;
        e->data = g_bytes_new(body, (gsize)got - sizeof *header);
        wire_note_answer(w, e);
    }
    ck_assert(errno == EAGAIN);
}

/* --- deaths --------------------------------------------------------------------------- */

/* Its thread, if it has one, never gets on: see wire_writev. */
static void wire_bury(struct wire *w)
{
    wire_collect(w);
    wire_set_daemon(w, false);
    g_ptr_array_add(w->graves, w->fs);
    g_ptr_array_add(w->graves, w->session);
    g_ptr_array_add(w->graves, w->loop);
    g_ptr_array_add(w->graves, w->keep);
    g_ptr_array_add(w->graves, w->fake);
}

static void wire_begin(struct wire *w);

static void wire_begin_next(struct wire *w)
{
    char error[256];
    struct keep *before = w->keep;
    w->fake = fake_backend_die(w->fake);
    if (w->between) {
        w->between(w);
    }
    ck_assert_msg(keep_attach(dup(keep_fd(before)), &w->keep, error, sizeof error) == 0, "%s", error);
    keep_begin(w->keep);
    w->loop = ev_loop_new(EVFLAG_AUTO);
    wire_begin(w);
    ck_assert_msg(channel_resume(&w->channel, error, sizeof error) == 0, "%s", error);
}

static struct wire *wire_dying;

static void wire_death(void)
{
    struct wire *w = wire_dying;
    jmp_buf *living = w->living;
    wire_bury(w);
    ck_assert_ptr_nonnull(living);
    longjmp(*living, 1);
}

void wire_die_at(struct wire *w, enum fake_call call, unsigned nth, bool after)
{
    wire_dying = w;
    fake_backend_die_at(w->fake, call, nth, after, wire_death);
}

static unsigned wire_stores_left;

static void wire_count_store(void)
{
    if (getpid() == gettid() && wire_dying->living && --wire_stores_left == 0) {
        keep_on_store = NULL;
        wire_death();
    }
}

void wire_die_at_store(struct wire *w, unsigned nth)
{
    wire_dying = w;
    wire_stores_left = nth;
    keep_on_store = wire_count_store;
}

bool wire_has_died(const struct wire *w)
{
    keep_on_store = NULL;
    return keep_generation(w->keep) > 1;
}

void wire_die(struct wire *w)
{
    wire_bury(w);
    wire_turn(w);
}

/* --- moving --------------------------------------------------------------------------- */

static bool wire_take_some(struct wire *w)
{
    int error = 0;
    bool took = false;
    while (channel_read(&w->channel, &error)) {
        channel_process(&w->channel);
        wire_collect(w);
        took = true;
    }
    ck_assert_int_eq(error, -EAGAIN);
    return took;
}

void wire_take(struct wire *w)
{
    wire_take_some(w);
}

static bool wire_turn_living(struct wire *w)
{
    bool moved = wire_take_some(w);
    request_wake_due(w->fs);
    ev_run(w->loop, EVRUN_NOWAIT);
    moved |= fake_backend_deliver(w->fake);
    wire_collect(w);
    while (!wire_deletions_held && !TAILQ_EMPTY(&w->fs->invalidating)) { /* the thread goes on by itself */
        moved = true;
        ev_run(w->loop, EVRUN_ONCE);
        wire_collect(w);
    }
    return moved || ev_pending_count(w->loop) || !TAILQ_EMPTY(&w->fs->interrupted);
}

/* Has anything moved? */
static bool wire_turn_one(struct wire *w)
{
    jmp_buf death;
    bool moved = false;
    if (wire_of(w->fs)) {
        w->living = &death;
        moved = setjmp(death) == 0 && wire_turn_living(w);
        w->living = NULL;
    }
    if (!wire_of(w->fs)) {
        wire_begin_next(w);
        moved = true;
    }
    return moved;
}

void wire_turn(struct wire *w)
{
    unsigned turns = 0;
    bool moved;
    do {
        moved = wire_turn_one(w);
        moved |= w->beside && wire_turn_one(w->beside);
        ck_assert_uint_lt(++turns, WIRE_TURNS_MAX);
    } while (moved);
}

void wire_advance(struct wire *w, int64_t milliseconds)
{
    wire_turn(w);
    fake_backend_advance(w->fake, milliseconds);
    wire_turn(w);
}

bool wire_waits(struct wire *w, uint64_t unique)
{
    wire_turn(w);
    return !wire_exchange(w, unique)->answered;
}

int wire_result(struct wire *w, uint64_t unique)
{
    wire_turn(w);
    const struct wire_exchange *e = wire_exchange(w, unique);
    ck_assert_msg(e->answered, "no answer to request %lu (opcode %u)", (unsigned long)unique, e->opcode);
    return e->error;
}

const void *wire_data(struct wire *w, uint64_t unique, size_t *ret_size)
{
    gsize size;
    const void *data = g_bytes_get_data(wire_exchange(w, unique)->data, &size);
    if (ret_size) {
        *ret_size = size;
    }
    return data;
}

struct wire_file wire_file(struct wire *w, uint64_t unique)
{
    ck_assert_int_eq(wire_result(w, unique), 0);
    const struct wire_exchange *e = wire_exchange(w, unique);
    const char *data = wire_data(w, unique, NULL);
    struct wire_file file = {.node = e->node, .flags = e->flags};
    if (e->opcode == FUSE_CREATE) {
        file.node = ((const struct fuse_entry_out *)(const void *)data)->nodeid;
        data += sizeof(struct fuse_entry_out);
    }
    file.fh = ((const struct fuse_open_out *)(const void *)data)->fh;
    return file;
}

uint64_t wire_node(struct wire *w, uint64_t unique)
{
    ck_assert_int_eq(wire_result(w, unique), 0);
    return ((const struct fuse_entry_out *)wire_data(w, unique, NULL))->nodeid;
}

bool wire_has_notification(struct wire *w, int code, const char *name)
{
    wire_turn(w);
    for (guint i = 0; i < w->notices->len; i++) {
        const struct wire_notice *notice = &g_array_index(w->notices, struct wire_notice, i);
        if (notice->code == code && (!name || strcmp(notice->name, name) == 0)) {
            return true;
        }
    }
    return false;
}

void wire_hold_deletions(bool hold)
{
    wire_deletions_held = hold;
}

void wire_lose_caller(struct wire *w, uint64_t unique)
{
    (void)w;
    wire_lost_caller = unique;
}

/* --- processes -------------------------------------------------------------------------- */

static void wire_sleep(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        pause();
    }
}

static void wire_chain_links(int pipe, size_t count, bool session)
{
    if (session) {
        setsid();
    }
    for (;;) {
        pid_t self = getpid();
        if (write(pipe, &self, sizeof self) != sizeof self || --count == 0 || fork() != 0) {
            break;
        }
    }
    for (;;) {
        pause();
    }
}

static void wire_start_chain(struct wire *w, pid_t *ret_pids, size_t count, bool session)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid < 0) /* and no assertion of the child: it would write among our messages */
        ck_abort_msg("cannot fork");
    if (pid == 0) {
        close(ends[0]);
        wire_chain_links(ends[1], count, session);
    }
    close(ends[1]);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(read(ends[0], &ret_pids[i], sizeof *ret_pids), sizeof *ret_pids);
        g_array_append_val(w->children, ret_pids[i]);
    }
    close(ends[0]);
}

void wire_chain(struct wire *w, pid_t *ret_pids, size_t count)
{
    wire_start_chain(w, ret_pids, count, false);
}

void wire_session(struct wire *w, pid_t *ret_pids, size_t count)
{
    wire_start_chain(w, ret_pids, count, true);
}

pid_t wire_sleeper(void)
{
    pid_t pid = fork();
    if (pid < 0) /* and no assertion of the child: it would write among our messages */
        ck_abort_msg("cannot fork");
    if (pid == 0) {
        wire_sleep();
    }
    return pid;
}

pid_t wire_child(struct wire *w)
{
    pid_t pid = wire_sleeper();
    g_array_append_val(w->children, pid);
    return pid;
}

static void wire_forget_child(struct wire *w, pid_t pid)
{
    for (guint i = 0; i < w->children->len; i++) {
        if (g_array_index(w->children, pid_t, i) == pid) {
            g_array_remove_index_fast(w->children, i);
            return;
        }
    }
}

/* SIGKILL is sent at once; the end of the process must be waited for. */
void wire_kill(struct wire *w, pid_t pid)
{
    char path[64], line[512] = "";
    kill(pid, SIGKILL);
    wire_forget_child(w, pid);
    if (waitpid(pid, NULL, 0) == pid) {
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (FILE *file; (file = fopen(path, "re")); sched_yield()) {
        const char *state = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        fclose(file);
        if (!state || state[2] == 'Z' || state[2] == 'X') {
            return;
        }
    }
}

/* --- beginning and ending ------------------------------------------------------------------ */

static void wire_greet(struct wire *w, unsigned minor)
{
    struct fuse_init_in in = {.major = FUSE_KERNEL_VERSION,
                              .minor = minor,
                              .max_readahead = 131072,
                              .flags = FUSE_FLOCK_LOCKS | FUSE_POSIX_LOCKS | FUSE_ATOMIC_O_TRUNC | FUSE_ASYNC_READ |
                                       FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_DO_READDIRPLUS};
    uint64_t greeting = wire_send(w, FUSE_INIT, 0, &in, sizeof in, NULL, 0);
    ck_assert_int_eq(wire_result(w, greeting), 0);
    const struct fuse_init_out *out = wire_data(w, greeting, NULL);
    ck_assert_uint_ne(out->flags & FUSE_FLOCK_LOCKS, 0);
    ck_assert_uint_ne(out->flags & FUSE_POSIX_LOCKS, 0);
}

static void wire_make_keep(struct wire *w)
{
    struct keep_sizes sizes;
    char error[256];
    fs_keep_sizes(&sizes);
    sizes.small = 1024;
    sizes.large = 8;
    for (int i = 0; i < KEEP_TABLES; i++) {
        sizes.tables[i].count = 1 << 16;
    }
    ck_assert_msg(keep_create(&sizes, &w->keep, error, sizeof error) == 0, "%s", error);
    keep_begin(w->keep);
}

static void wire_begin(struct wire *w)
{
    static const struct fuse_custom_io io = {.writev = wire_writev, .read = wire_readv};
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    w->fs = fs_new(w->loop, fake_backend_head(w->fake), &w->options, w->keep);
    wire_set_daemon(w, true);
    fuse_opt_add_arg(&args, "wire");
    w->session = fuse_session_new(&args, &ops_table, sizeof ops_table, w->fs);
    fuse_opt_free_args(&args);
    ck_assert_ptr_nonnull(w->session);
    ck_assert_int_eq(fuse_session_custom_io(w->session, &io, w->end), 0);
    channel_open(&w->channel, w->session, w->keep);
    fs_start(w->fs, w->session);
}

static struct wire *wire_new_on(unsigned features, const struct fake_backend *store, unsigned minor)
{
    struct wire *w = g_new0(struct wire, 1);
    int ends[2], room = 4 * WIRE_MESSAGE_MAX;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
        setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
    w->kernel = ends[0];
    w->end = ends[1];
    w->loop = ev_loop_new(EVFLAG_AUTO);
    w->options = (struct options){.ttl = LEASE_TTL_DEFAULT, .mode = 0777};
    w->fake = fake_backend_new(&wire_clock, features, store);
    w->exchanges = g_hash_table_new_full(NULL, NULL, NULL, wire_exchange_free);
    w->lookups = g_hash_table_new(NULL, NULL);
    w->opened = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    w->notices = g_array_new(FALSE, FALSE, sizeof(struct wire_notice));
    w->children = g_array_new(FALSE, FALSE, sizeof(pid_t));
    w->graves = g_ptr_array_new();
    w->next_unique = 2;
    w->directory = FUSE_ROOT_ID;
    w->mode = 0644;
    w->pid = getpid();
    wire_make_keep(w);
    wire_begin(w);
    wire_greet(w, minor);
    return w;
}

struct wire *wire_new(unsigned features)
{
    return wire_new_on_kernel(features, FUSE_KERNEL_MINOR_VERSION);
}

struct wire *wire_new_on_kernel(unsigned features, unsigned minor)
{
    return wire_new_on(features, NULL, minor);
}

struct wire *wire_new_beside(struct wire *first)
{
    struct wire *w = wire_new_on(fake_backend_head(first->fake)->features, first->fake, FUSE_KERNEL_MINOR_VERSION);
    first->beside = w;
    w->beside = first;
    strcpy(w->fs->host, "elsewhere");
    return w;
}

static bool wire_is_open(uint64_t unique, const struct wire_exchange *e)
{
    bool has_answer = e->opcode != FUSE_FORGET && e->opcode != FUSE_BATCH_FORGET && e->opcode != FUSE_INTERRUPT;
    return has_answer && !e->answered && unique != wire_lost_caller;
}

/* A file is released when no request on it is open any more. */
static void wire_interrupt_all(struct wire *w)
{
    GHashTableIter iter;
    gpointer key, value;
    GArray *open = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_hash_table_iter_init(&iter, w->exchanges);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        uint64_t unique = (uint64_t)(uintptr_t)key;
        if (wire_is_open(unique, value)) {
            g_array_append_val(open, unique);
        }
    }
    for (guint i = 0; i < open->len; i++) {
        wire_interrupt(w, g_array_index(open, uint64_t, i));
    }
    g_array_free(open, TRUE);
    wire_turn(w);
}

/* As the kernel does it before an unmount. */
static void wire_close_all(struct wire *w)
{
    GHashTableIter iter;
    gpointer key, value;
    wire_interrupt_all(w);
    w->directory = FUSE_ROOT_ID;
    GList *files = g_hash_table_get_values(w->opened);
    for (GList *at = files; at; at = at->next) {
        struct wire_file file = *(struct wire_file *)at->data;
        ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    }
    g_list_free(files);
    g_hash_table_iter_init(&iter, w->lookups);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        struct fuse_forget_in in = {.nlookup = (uint64_t)(uintptr_t)value};
        wire_send(w, FUSE_FORGET, (uint64_t)(uintptr_t)key, &in, sizeof in, NULL, 0);
    }
    wire_turn(w);
}

static void wire_check_answered(struct wire *w)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, w->exchanges);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const struct wire_exchange *e = value;
        ck_assert_msg(!wire_is_open((uint64_t)(uintptr_t)key, e), "no answer to request %zu (opcode %u)",
                      (size_t)(uintptr_t)key, e->opcode);
    }
    ck_assert_uint_eq(w->fs->requests, 0);
}

/* The kernel knows no node any more. */
static void wire_check_forgotten(struct wire *w)
{
    GPtrArray *nodes = tree_all(w->fs->tree);
    for (guint i = 0; i < nodes->len; i++) {
        struct node *node = g_ptr_array_index(nodes, i);
        ck_assert_msg(node->record->lookups == 0, "%s is not forgotten", tree_name(node));
        tree_unref(w->fs->tree, node);
    }
    g_ptr_array_free(nodes, TRUE);
}

void wire_free(struct wire *w)
{
    if (w->beside) {
        struct wire *other = w->beside;
        w->beside = other->beside = NULL;
        wire_free(other);
    }
    for (int call = 0; call < FAKE_CALLS; call++) {
        fake_backend_hold(w->fake, (enum fake_call)call, false);
        fake_backend_fail(w->fake, (enum fake_call)call, BACKEND_OK);
        while (fake_backend_held_back(w->fake, (enum fake_call)call)) {
            fake_backend_answer(w->fake, (enum fake_call)call, 0);
        }
    }
    fake_backend_hold_events(w->fake, false);
    wire_turn(w);
    wire_close_all(w);
    wire_check_forgotten(w);
    wire_end(w);
}

void wire_end(struct wire *w)
{
    fs_stop(w->fs);
    wire_collect(w);
    wire_check_answered(w);
    fuse_session_destroy(w->session);
    wire_set_daemon(w, false);
    fs_free(w->fs);
    keep_free(w->keep);
    backend_free(fake_backend_head(w->fake));
    while (w->children->len) {
        wire_kill(w, g_array_index(w->children, pid_t, w->children->len - 1));
    }
    g_hash_table_destroy(w->exchanges);
    g_hash_table_destroy(w->lookups);
    g_hash_table_destroy(w->opened);
    g_array_free(w->notices, TRUE);
    g_array_free(w->children, TRUE);
    close(w->kernel);
    ev_loop_destroy(w->loop);
    g_free(w);
}

/* --- sending ---------------------------------------------------------------------------------- */

uint64_t wire_send(struct wire *w, uint32_t opcode, uint64_t node, const void *arg, size_t arg_size, const void *data,
                   size_t data_size)
{
    struct fuse_in_header header = {.len = (uint32_t)(sizeof header + arg_size + data_size),
                                    .opcode = opcode,
                                    .unique = w->next_unique,
                                    .nodeid = node,
                                    .uid = w->uid,
                                    .gid = w->uid,
                                    .pid = (uint32_t)w->pid};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)arg, arg_size}, {(void *)data, data_size}};
    struct wire_exchange *e = g_new0(struct wire_exchange, 1);
    w->next_unique += 2; /* as the kernel's; an INTERRUPT has the odd one */
    e->opcode = opcode;
    e->node = node;
    g_hash_table_insert(w->exchanges, GSIZE_TO_POINTER(header.unique), e);
    ck_assert_int_eq(writev(w->kernel, parts, G_N_ELEMENTS(parts)), header.len);
    return header.unique;
}

/* owner: the table of processes behind owner.h; facts come from process.h.
 *
 * A known process is looked at again when that was OWNER_FRESH_NS ago, give or take a
 * tick of the kernel.  In less time a pid cannot come back: the kernel gives pids in a ring,
 * and making that many processes takes longer.
 *
 * Parents are pointers from owner to owner.  They stay true while the parent
 * lives, since a process gets another one only by the death of its own, and
 * they form no cycle, since a parent is always older.
 */
#include <errno.h>
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "backend/system.h"
#include "fs/process/owner.h"
#include "fs/process/process.h"

#define OWNER_FRESH_NS 5000000     /* 5 ms */
#define OWNER_RECENT_MAX 256       /* owners kept without a reference */
#define OWNER_RECENT_KEEP 224      /* how many are left when there were more */
#define OWNER_STATM_CHECKS 3       /* from the third question on statm is kept open */
#define OWNER_STATM_MAX 64         /* for so many processes at once */
#define OWNER_SPARED 64            /* descriptors never taken for pidfds */
#define OWNER_THREADS 256          /* thread ids remembered; a power of two */
#define OWNER_CHAIN_MAX 1024       /* generations looked at */
#define OWNER_HELPER_NS 1010000000 /* how long after owner_heirs the children count that a process leaves: a second */
#define OWNER_ADOPTED_MAX 256      /* of the processes that another has got, so many are looked at */
#define OWNER_PID_MAX 32768        /* where the kernel does not tell it */
#define OWNER_PIDS_A_SECOND 4096   /* a host begins fewer processes */
#define OWNER_ORPHANS_MAX 8

G_STATIC_ASSERT(OWNER_COMMAND_MAX == PROCESS_COMMAND_MAX);

TAILQ_HEAD(owner_list, owner);

struct owner_thread {
    pid_t tid, pid;
};

struct owner_table {
    GHashTable *living; /* pid -> owner */
    GHashTable *ended;  /* set, by pid and start, of those that still have references */
    struct owner_list recent;
    uint32_t recent_count;
    uint32_t pidfds, pidfds_max, statms;
    bool first_is_init; /* pid 1 is the machine's, and inherits nothing */
    pid_t pid_max;      /* process numbers are below it */
    struct process_reader reader;
    void (*on_ended)(void *arg, pid_t pid);
    void *on_ended_arg;
    struct owner_thread threads[OWNER_THREADS];
};

static int64_t owner_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static guint owner_hash(gconstpointer key)
{
    const struct owner *owner = key;
    return (guint)owner->pid * 31 + (guint)owner->start;
}

static gboolean owner_equal(gconstpointer a, gconstpointer b)
{
    const struct owner *left = a, *right = b;
    return left->pid == right->pid && left->start == right->start;
}

static struct owner *owner_lookup(struct owner_table *table, pid_t pid)
{
    return g_hash_table_lookup(table->living, GINT_TO_POINTER(pid));
}

/* --- coming and going ------------------------------------------------------- */

static void owner_close_pidfd(struct owner *owner)
{
    if (owner->pidfd >= 0) {
        close(owner->pidfd);
        owner->pidfd = -1;
        owner->table->pidfds--;
    }
}

static void owner_free(struct owner *owner)
{
    if (owner->orphans) {
        g_ptr_array_free(owner->orphans, TRUE);
    }
    g_free(owner);
}

/* A living owner without a reference becomes a recent one. */
static void owner_rest(struct owner *owner)
{
    if (owner->dead) {
        owner_close_pidfd(owner);
        g_hash_table_remove(owner->table->ended, owner);
        owner_free(owner);
    } else {
        TAILQ_INSERT_TAIL(&owner->table->recent, owner, recent);
        owner->table->recent_count++;
    }
}

static void owner_forget_parent(struct owner *owner)
{
    struct owner *parent = owner->parent;
    owner->parent = NULL;
    owner->heirs_seen = 0;
    if (parent && --parent->references == 0) {
        owner_rest(parent);
    }
}

/* The process has ended, or its record is no longer needed: frees all but the pidfd of
 * one whose end is not known yet. */
static void owner_strip(struct owner *owner)
{
    struct owner_table *table = owner->table;
    if (owner_lookup(table, owner->pid) == owner) {
        g_hash_table_remove(table->living, GINT_TO_POINTER(owner->pid));
    }
    if (owner->statm >= 0) {
        close(owner->statm);
        owner->statm = -1;
        table->statms--;
    }
    owner_forget_parent(owner);
}

/* Frees a recent one. */
static void owner_discard(struct owner *owner)
{
    TAILQ_REMOVE(&owner->table->recent, owner, recent);
    owner->table->recent_count--;
    owner_strip(owner);
    owner_close_pidfd(owner);
    owner_free(owner);
}

/* One that is dead: how it ended, once that is known. */
static void owner_read_end(struct owner *owner)
{
    int status;
    int result = owner->pidfd < 0 ? 0 : process_wait_status(owner->pidfd, &status);
    if (owner->pidfd >= 0 && result == 0) {
        owner->failed = status != 0;
    }
    if (result != -EAGAIN) {
        owner_close_pidfd(owner);
    }
}

static void owner_report_end(struct owner *owner)
{
    if (owner->watched && owner->table->on_ended) {
        owner->table->on_ended(owner->table->on_ended_arg, owner->pid);
    }
    owner->watched = false;
}

static void owner_find_orphans(struct owner *owner);

/* Its process has ended.  Without a reference it is freed. */
static void owner_bury(struct owner *owner)
{
    owner_report_end(owner);
    if (owner->references == 0) {
        owner_discard(owner);
        return;
    }
    owner->references++; /* perhaps only its children refer to it */
    owner->dead = true;
    owner_find_orphans(owner);
    owner_strip(owner);
    owner_read_end(owner);
    g_hash_table_add(owner->table->ended, owner);
    owner_unref(owner);
}

/* Too many recent ones: first those that have ended go, then the oldest. */
static void owner_trim(struct owner_table *table)
{
    if (table->recent_count <= OWNER_RECENT_MAX) {
        return;
    }
    /* One that goes may put its parent at the end. */
    struct owner *next;
    for (struct owner *owner = TAILQ_FIRST(&table->recent); owner; owner = next) {
        next = TAILQ_NEXT(owner, recent);
        if (owner->pidfd >= 0 && process_has_ended(owner->pidfd)) {
            owner_discard(owner);
        }
    }
    while (table->recent_count > OWNER_RECENT_KEEP) {
        owner_discard(TAILQ_FIRST(&table->recent));
    }
}

/* One that is in execve(2) has the start 0: see owner_read_start. */
static int owner_identify(struct owner_table *table, pid_t pid, uint64_t *ret_start, int *ret_pidfd)
{
    *ret_pidfd = -1;
    int result = process_identify(&table->reader, pid, ret_start, table->pidfds < table->pidfds_max ? ret_pidfd : NULL);
    table->pidfds += *ret_pidfd >= 0;
    if (result == -EBUSY && *ret_pidfd >= 0) {
        *ret_start = 0;
        return 0;
    }
    return result;
}

/* A process that was in execve(2) when it was met first: it is the same one as long
 * as its pidfd says that it lives. */
uint64_t owner_read_start(struct owner *owner)
{
    uint64_t start;
    if (!owner->dead && owner->pidfd >= 0 && !process_has_ended(owner->pidfd) &&
        process_identify(&owner->table->reader, owner->pid, &start, NULL) == 0) {
        owner->start = start;
    }
    return owner->start;
}

/* The answer of the kernel; what it cannot tell is taken to be unchanged. */
static bool owner_lives(struct owner *owner)
{
    if (owner->pidfd >= 0) {
        return !process_has_ended(owner->pidfd);
    }
    uint64_t start = owner->start;
    int result = owner_identify(owner->table, owner->pid, &start, &owner->pidfd);
    return result != -ESRCH && start == owner->start;
}

/* Does it live, as of at most OWNER_FRESH_NS ago?  If not it is buried: without
 * a reference of one's own it is not to be used any more. */
static bool owner_confirm(struct owner *owner, int64_t now)
{
    if (owner->dead) {
        return false;
    }
    if (now - owner->alive_at > OWNER_FRESH_NS) {
        if (!owner_lives(owner)) {
            owner_bury(owner);
            return false;
        }
        owner->alive_at = now;
    }
    return true;
}

static struct owner *owner_new(struct owner_table *table, pid_t pid, uint64_t start, const char *command)
{
    struct owner *owner = g_new0(struct owner, 1);
    owner->table = table;
    owner->pid = pid;
    owner->start = start;
    owner->pidfd = -1;
    owner->statm = -1;
    owner->references = 1;
    g_strlcpy(owner->command, command, sizeof owner->command);
    return owner;
}

static struct owner *owner_insert(struct owner *owner)
{
    owner->alive_at = owner_clock();
    g_hash_table_insert(owner->table->living, GINT_TO_POINTER(owner->pid), owner);
    owner_trim(owner->table);
    return owner;
}

/* --- the table ------------------------------------------------------------------ */

struct owner_table *owner_table_new(void)
{
    struct owner_table *table = g_new0(struct owner_table, 1);
    table->living = g_hash_table_new(NULL, NULL);
    table->ended = g_hash_table_new(owner_hash, owner_equal);
    table->first_is_init = process_first_is_init();
    table->pid_max = process_pid_max();
    table->pid_max = table->pid_max > 0 ? table->pid_max : OWNER_PID_MAX;
    TAILQ_INIT(&table->recent);
    process_open(&table->reader);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > OWNER_SPARED) {
        table->pidfds_max = (uint32_t)MIN((limit.rlim_cur - OWNER_SPARED) / 4 * 3, 1 << 20);
    }
    return table;
}

void owner_table_free(struct owner_table *table)
{
    if (!table) {
        return;
    }
    while (!TAILQ_EMPTY(&table->recent)) {
        owner_discard(TAILQ_FIRST(&table->recent));
    }
    g_hash_table_destroy(table->living);
    g_hash_table_destroy(table->ended);
    process_close(&table->reader);
    g_free(table);
}

void owner_table_on_ended(struct owner_table *table, void (*ended)(void *arg, pid_t pid), void *arg)
{
    table->on_ended = ended;
    table->on_ended_arg = arg;
}

int owner_table_descriptor(const struct owner_table *table)
{
    return table->reader.ended;
}

void owner_table_check(struct owner_table *table)
{
    struct owner *owner;
    while ((owner = process_next_ended(&table->reader))) {
        if (!owner->dead) {
            owner_bury(owner);
        }
    }
}

bool owner_watch(struct owner *owner)
{
    if (!owner->watched && !owner->dead && owner->pidfd >= 0 && owner->table->on_ended) {
        owner->watched = process_watch(&owner->table->reader, owner->pidfd, owner) == 0;
    }
    return owner->watched;
}

void owner_on_first_ref(struct owner *owner)
{
    TAILQ_REMOVE(&owner->table->recent, owner, recent);
    owner->table->recent_count--;
}

void owner_on_last_unref(struct owner *owner)
{
    struct owner_table *table = owner->table;
    owner_rest(owner);
    owner_trim(table);
}

/* The process of a thread, or 0 if it is gone.  *ret_status is filled when the
 * thread is its process's first. */
static pid_t owner_group(struct owner_table *table, pid_t tid, struct process_status *ret_status)
{
    struct owner_thread *known = &table->threads[tid & (OWNER_THREADS - 1)];
    /* Signal 0 asks the kernel whether it still is a thread of that process;
     * EPERM is a yes. */
    if (known->tid == tid && (tgkill(known->pid, tid, 0) == 0 || errno == EPERM)) {
        return known->pid;
    }
    if (process_status(&table->reader, tid, ret_status) != 0) {
        return 0;
    }
    if (ret_status->group != tid) {
        *known = (struct owner_thread){.tid = tid, .pid = ret_status->group};
    }
    return ret_status->group;
}

struct owner *owner_get(struct owner_table *table, pid_t tid)
{
    if (tid <= 0) {
        return NULL;
    }
    int64_t now = owner_clock();
    struct owner *owner = owner_lookup(table, tid);
    if (owner && owner_confirm(owner, now)) {
        return owner_ref(owner);
    }
    struct process_status status;
    pid_t pid = owner_group(table, tid, &status);
    if (pid <= 0) {
        return NULL;
    }
    if (pid != tid) {
        owner = owner_lookup(table, pid);
        if (owner && owner_confirm(owner, now)) {
            return owner_ref(owner);
        }
        if (process_status(&table->reader, pid, &status) != 0) {
            return NULL;
        }
    }
    uint64_t start;
    int pidfd;
    if (owner_identify(table, pid, &start, &pidfd) != 0) {
        return NULL;
    }
    owner = owner_new(table, pid, start, status.command);
    owner->pidfd = pidfd;
    owner->status_at = now;
    owner->first_parent = status.parent;
    return owner_insert(owner);
}

struct owner *owner_restore(struct owner_table *table, pid_t pid, uint64_t start, const char *command)
{
    struct owner *owner = owner_lookup(table, pid);
    bool known = owner && owner_confirm(owner, owner_clock());
    if (known && owner->start == start) {
        return owner_ref(owner);
    }
    struct owner key = {.pid = pid, .start = start};
    owner = g_hash_table_lookup(table->ended, &key);
    if (owner) {
        return owner_ref(owner);
    }
    owner = owner_new(table, pid, start, command ? command : "?");
    uint64_t present = start;
    int result = known || pid <= 0 ? -ESRCH : owner_identify(table, pid, &present, &owner->pidfd);
    if (result == -ESRCH || present != start) {
        owner_bury(owner);
        return owner;
    }
    struct process_status status;
    if (!command && process_status(&table->reader, pid, &status) == 0) {
        g_strlcpy(owner->command, status.command, sizeof owner->command);
    }
    return owner_insert(owner);
}

/* A program that runs a command, which is what its lock is for.  leaserun's ticket of a queue belongs to its first
 * process; the next one already has the command's name. */
static bool owner_is_wrapper_name(const char *command)
{
    return strcmp(command, "flock") == 0 || strcmp(command, "leaserun") == 0;
}

bool owner_is_wrapper(const struct owner *owner)
{
    return !owner->dead && owner_is_wrapper_name(owner->command);
}

const char *owner_command(struct owner *owner)
{
    char command[OWNER_COMMAND_MAX];
    if (owner_is_wrapper(owner) && process_child_command(&owner->table->reader, owner->pid, command) == 0 &&
        !owner_is_wrapper_name(command) && owner_lives(owner)) { /* else the pid may be another process's by now */
        g_strlcpy(owner->command, command, sizeof owner->command);
    }
    return owner->command;
}

bool owner_is_same(struct owner *a, struct owner *b)
{
    return a && b && a->pid == b->pid && owner_start(a) == owner_start(b);
}

/* --- questions -------------------------------------------------------------------- */

bool owner_alive(struct owner *owner)
{
    if (!owner->dead && !owner_lives(owner)) {
        owner_bury(owner);
    }
    return !owner->dead;
}

enum owner_end owner_end(struct owner *owner)
{
    if (owner_alive(owner)) {
        return OWNER_LIVES;
    }
    if (owner->pidfd >= 0) {
        owner_read_end(owner);
    }
    if (owner->pidfd >= 0) {
        return OWNER_UNREAPED;
    }
    return owner->failed && !owner->is_part ? OWNER_FAILED : OWNER_EXITED;
}

/* The process that is its parent now; borrowed.  NULL: none that can be seen. */
static struct owner *owner_parent(struct owner *owner, int64_t now)
{
    if (owner->dead || owner->rootless) {
        return NULL;
    }
    if (owner->parent && owner_confirm(owner->parent, now)) {
        return owner->parent;
    }
    owner_forget_parent(owner);
    /* The parent's pid was read a moment ago: in so little time no other process gets it. */
    if (owner->first_parent > 0 && now - owner->status_at <= OWNER_FRESH_NS) {
        owner->parent = owner_get(owner->table, owner->first_parent);
    }
    owner->first_parent = 0;
    /* The parent may die between the two readings: then there is another. */
    for (int attempt = 0; attempt < 3 && !owner->parent; attempt++) {
        struct process_status status;
        if (process_status(&owner->table->reader, owner->pid, &status) != 0 || status.group != owner->pid) {
            return NULL;
        }
        if (status.parent < 1) {
            owner->rootless = true;
            return NULL;
        }
        owner->parent = owner_get(owner->table, status.parent);
    }
    return owner->parent;
}

/* May one of the chain inherit?  `session` is that of the first of them. */
static bool owner_may_inherit(struct owner *heir, pid_t session, bool is_first, int64_t now)
{
    if (heir->pid == 1) {
        return !heir->table->first_is_init && (is_first || getsid(1) == session);
    }
    const struct owner *parent = is_first ? NULL : owner_parent(heir, now);
    return !parent || parent->pid != 1 || getsid(heir->pid) == session;
}

/* The process with which sudo(8) watches a command on a terminal of its own always ends with status 1 (exec_monitor of
 * its sources): a leader of a session that bears its parent's name. */
static void owner_note_part(struct owner *owner, const struct owner *parent)
{
    owner->is_part = parent && strcmp(owner->command, parent->command) == 0 && getsid(owner->pid) == owner->pid;
}

/* How many of the chain that begins with this one inherit. */
static uint32_t owner_count_heirs(struct owner *heir, int64_t now)
{
    uint32_t count = 0;
    pid_t session = getsid(heir->pid);
    while (heir && count < OWNER_CHAIN_MAX && owner_may_inherit(heir, session, count == 0, now)) {
        struct owner *parent = owner_parent(heir, now);
        owner_note_part(heir, parent);
        heir = parent;
        count++;
    }
    return count;
}

/* --- children that stay ----------------------------------------------------------- */

static void owner_unref_item(gpointer owner)
{
    owner_unref(owner);
}

static void owner_add_orphan(struct owner *owner, struct owner *orphan)
{
    owner->orphans = owner->orphans ? owner->orphans : g_ptr_array_new_with_free_func(owner_unref_item);
    if (owner->orphans->len < OWNER_ORPHANS_MAX && !g_ptr_array_find(owner->orphans, orphan, NULL)) {
        g_ptr_array_add(owner->orphans, owner_ref(orphan));
    }
}

void owner_note_children(struct owner *owner)
{
    pid_t child[OWNER_ORPHANS_MAX];
    for (size_t i = process_children(&owner->table->reader, owner->pid, child, OWNER_ORPHANS_MAX); i-- > 0;) {
        struct owner *orphan = owner_get(owner->table, child[i]);
        if (orphan) {
            owner_add_orphan(owner, orphan);
        }
        owner_unref(orphan);
    }
}

/* Can the process have begun in the second after the owner, by their numbers?  Saves two system calls for each of the
 * many that init has got. */
static bool owner_precedes(const struct owner *owner, pid_t pid)
{
    pid_t distance = pid - owner->pid + (pid < owner->pid ? owner->table->pid_max : 0);
    return distance < OWNER_PIDS_A_SECOND;
}

/* A job of this session and process group, or any process by its parent as it was seen before. */
static bool owner_left(const struct owner *owner, pid_t pid)
{
    const struct owner *known = owner_lookup(owner->table, pid);
    struct process_job job = process_job(pid);
    return (known && known->parent == owner) || (job.session == owner->job.session && job.group == owner->job.group);
}

static bool owner_is_among_parents(const struct owner *owner, const struct owner *ancestor)
{
    while (owner && owner != ancestor) {
        owner = owner->parent;
    }
    return owner;
}

/* Of the processes that the adopter has got, the last first, as it has just got them. */
static void owner_find_adopted(struct owner *owner, pid_t adopter)
{
    pid_t child[OWNER_ADOPTED_MAX];
    for (size_t i = process_children(&owner->table->reader, adopter, child, OWNER_ADOPTED_MAX); i-- > 0;) {
        bool left = owner_precedes(owner, child[i]) && owner_left(owner, child[i]);
        struct owner *orphan = left ? owner_get(owner->table, child[i]) : NULL;
        bool younger = orphan && (!owner_start(orphan) || owner_start(orphan) >= owner->start);
        if (younger && !owner_is_among_parents(owner, orphan)) {
            owner_add_orphan(owner, orphan);
        }
        owner_unref(orphan);
    }
}

/* In the session only the leader may adopt, such as the first process of a container: other members of the session have
 * only children that they made.  A process that the parent adopts descends from the heir already. */
static bool owner_may_adopt(const struct owner *owner, const struct owner *ancestor)
{
    pid_t session = process_job(ancestor->pid).session;
    return session != owner->job.session || (session == ancestor->pid && ancestor != owner->parent);
}

static void owner_find_orphans(struct owner *owner)
{
    int64_t now = owner_clock();
    if (!owner->took_at || now - owner->took_at > OWNER_HELPER_NS) {
        g_clear_pointer(&owner->orphans, g_ptr_array_unref);
        return;
    }
    owner_find_adopted(owner, 1);
    for (struct owner *ancestor = owner->parent; ancestor; ancestor = owner_parent(ancestor, now)) {
        if (ancestor->pid != 1 && owner_may_adopt(owner, ancestor)) {
            owner_find_adopted(owner, ancestor->pid);
        }
    }
    for (guint i = 0; owner->orphans && i < owner->orphans->len; i++) {
        struct owner *orphan = g_ptr_array_index(owner->orphans, i);
        owner_forget_parent(orphan);
        orphan->parent = owner->parent ? owner_ref(owner->parent) : NULL;
    }
}

/* It takes a lease: notes what shows its children if it ends within a second. */
static void owner_note_taking(struct owner *owner, int64_t now)
{
    if (now - owner->took_at > OWNER_FRESH_NS) {
        owner->took_at = now;
        owner->job = process_job(owner->pid);
        owner_watch(owner);
    }
}

size_t owner_heirs(struct owner *owner, struct owner **ret_heirs, size_t max)
{
    int64_t now = owner_clock();
    owner_note_taking(owner, now);
    struct owner *parent = owner_parent(owner, now);
    if (parent && now - parent->heirs_seen > OWNER_FRESH_NS) {
        parent->heirs = owner_count_heirs(parent, now);
        parent->heirs_seen = now;
    }
    size_t count = 0;
    for (struct owner *heir = parent; heir && count < MIN(parent->heirs, max); heir = heir->parent) {
        ret_heirs[count++] = owner_ref(heir);
    }
    return count;
}

bool owner_descends(struct owner *owner, struct owner *ancestor)
{
    int64_t now = owner_clock();
    for (int step = 0; owner && step < OWNER_CHAIN_MAX; step++) {
        if (owner_equal(owner, ancestor)) {
            return true;
        }
        owner = owner_parent(owner, now);
    }
    return false;
}

bool owner_has_uid(struct owner *owner, uid_t uid)
{
    uid_t own;
    return owner_alive(owner) && process_uid(&owner->table->reader, owner->pid, &own) == 0 && own == uid;
}

mode_t owner_umask(struct owner *owner)
{
    mode_t mask;
    bool known = owner_alive(owner) && process_umask(&owner->table->reader, owner->pid, &mask) == 0;
    return known ? mask : OWNER_UMASK_USUAL;
}

bool owner_is_single_threaded(struct owner *owner)
{
    return owner_alive(owner) && process_threads(&owner->table->reader, owner->pid) == 1;
}

bool owner_in_group(struct owner *owner, gid_t group)
{
    return owner_alive(owner) && process_in_group(&owner->table->reader, owner->pid, group);
}

bool owner_thread_is_killed(struct owner_table *table, pid_t tid)
{
    return process_is_killed(&table->reader, tid);
}

bool owner_thread_is_exiting(struct owner_table *table, pid_t tid)
{
    int statm = -1;
    struct owner *owner = owner_lookup(table, tid);
    if (owner && owner_confirm(owner, owner_clock())) {
        if (owner->statm < 0 && table->statms < OWNER_STATM_MAX && ++owner->exit_checks >= OWNER_STATM_CHECKS) {
            owner->exit_checks = 0;
            owner->statm = process_keep_statm(&table->reader, tid);
            table->statms += owner->statm >= 0;
        }
        statm = owner->statm;
    }
    /* If it is not known, a close counts as explicit, because programs rely on it. */
    return process_exiting(&table->reader, tid, statm) > 0;
}

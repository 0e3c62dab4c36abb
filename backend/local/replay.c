/* replay: gathers the records, then fills a lockspace; see replay.h. */
#include "backend/local/replay.h"

#include <errno.h>
#include <string.h>

#include "backend/sorted.h"

/* So many leases become due in each millisecond, so that `due` is not reported for all of them at once; but each before
 * half of its remaining time is over. */
#define REPLAY_DUE 50

#define REPLAY_CHUNK (1024 * 1024)

struct kept_lease {
    struct local_lease lease; /* owns meta and content */
    guint session;            /* of its record */
    bool untimed;             /* a later renewal may be missing */
    char name[];
};

struct local_replay {
    struct sorted leases;    /* struct kept_lease, by fence */
    GPtrArray *chunks;       /* the memory of all struct kept_lease, freed together */
    size_t left;             /* unused bytes of the last chunk */
    GHashTable *directories; /* name -> struct backend_directory */
    GArray *sessions;        /* struct local_session */
    GBytes *last_meta;       /* of the last LEASE record: most leases share it with the one before */
    GBytes *last_change;     /* the same for CHANGE */
    uint64_t next;           /* fencing token */
    uint64_t number;         /* bound of the numbers of all queues */
    bool clean;              /* the last record is that of a clean end */
};

static int replay_compare(const void *a, const void *b)
{
    const struct kept_lease *x = a, *y = b;
    return (x->lease.fence > y->lease.fence) - (x->lease.fence < y->lease.fence);
}

static int replay_probe(const void *item, const void *key)
{
    const struct kept_lease *kept = item;
    const uint64_t *fence = key;
    return (kept->lease.fence > *fence) - (kept->lease.fence < *fence);
}

static struct kept_lease *replay_find(struct local_replay *replay, uint64_t fence)
{
    return sorted_find(&replay->leases, replay_probe, &fence);
}

static struct kept_lease *replay_lease_new(struct local_replay *replay, const char *name)
{
    size_t length = strlen(name) + 1, align = _Alignof(struct kept_lease);
    size_t size = (sizeof(struct kept_lease) + length + align - 1) / align * align;
    if (replay->left < size) {
        replay->left = MAX(size, REPLAY_CHUNK);
        g_ptr_array_add(replay->chunks, g_malloc(replay->left));
    }
    replay->left -= size;
    struct kept_lease *kept =
        (void *)((char *)g_ptr_array_index(replay->chunks, replay->chunks->len - 1) + replay->left);
    *kept = (struct kept_lease){.session = replay->sessions->len - 1};
    memcpy(kept->name, name, length);
    return kept;
}

static void replay_lease_clear(struct kept_lease *kept)
{
    g_clear_pointer(&kept->lease.meta, g_bytes_unref);
    g_clear_pointer(&kept->lease.content, g_bytes_unref);
    g_clear_pointer(&kept->lease.segments, g_array_unref);
}

static void replay_forget(struct local_replay *replay, uint64_t fence)
{
    struct kept_lease *kept = replay_find(replay, fence);
    if (kept) {
        sorted_remove(&replay->leases, kept);
        replay_lease_clear(kept);
    }
}

static void replay_directory_free(void *arg)
{
    struct backend_directory *directory = arg;
    g_clear_pointer(&directory->meta, g_bytes_unref);
    g_free(directory);
}

struct local_replay *local_replay_new(void)
{
    struct local_replay *replay = g_new0(struct local_replay, 1);
    sorted_init(&replay->leases, replay_compare, 1);
    replay->chunks = g_ptr_array_new_with_free_func(g_free);
    replay->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, replay_directory_free);
    replay->sessions = g_array_new(FALSE, FALSE, sizeof(struct local_session));
    replay->next = 1;
    return replay;
}

void local_replay_free(struct local_replay *replay)
{
    if (!replay) {
        return;
    }
    for (guint i = 0; i < replay->sessions->len; i++) {
        g_free((char *)g_array_index(replay->sessions, struct local_session, i).boot_id);
    }
    g_array_unref(replay->sessions);
    g_clear_pointer(&replay->last_meta, g_bytes_unref);
    g_clear_pointer(&replay->last_change, g_bytes_unref);
    g_hash_table_unref(replay->directories);
    for (struct sorted_position at = sorted_first(&replay->leases); sorted_item(at); at = sorted_next(at)) {
        replay_lease_clear(sorted_item(at));
    }
    sorted_clear(&replay->leases);
    g_ptr_array_unref(replay->chunks);
    g_free(replay);
}

static void replay_session(struct local_replay *replay, struct local_reader *in)
{
    struct local_session session;
    local_read_session(in, &session);
    session.boot_id = g_strdup(session.boot_id);
    g_array_append_val(replay->sessions, session);
}

static void replay_fence(struct local_replay *replay, struct local_reader *in)
{
    uint64_t before = replay->next;
    replay->next = local_read_u64(in);
    replay->number = in->left ? local_read_u64(in) : replay->next;
    replay->clean = replay->next < before; /* only a clean end gives reserved numbers back */
}

static void replay_lease(struct local_replay *replay, struct local_reader *in)
{
    struct local_lease lease;
    local_read_lease(in, &replay->last_meta, &lease);
    struct kept_lease *kept = replay_lease_new(replay, lease.name);
    kept->lease = lease;
    kept->lease.name = kept->name;
    in->bad |= !replay->sessions->len;
    if (lease.replaces) {
        replay_forget(replay, lease.replaces);
    }
    if (lease.flags & LOCAL_LEASE_TARGET) {
        replay_forget(replay, lease.target);
    }
    replay_forget(replay, lease.fence);
    sorted_insert(&replay->leases, kept);
    replay->next = MAX(replay->next, lease.fence + 1);
}

static void replay_renewals(struct local_replay *replay, struct local_reader *in)
{
    while (in->left && !in->bad) {
        uint64_t fence = local_read_u64(in);
        int64_t ttl = local_read_time(in), deadline = local_read_time(in);
        struct kept_lease *kept = replay_find(replay, fence);
        if (kept && !in->bad) {
            kept->lease.ttl = ttl;
            kept->lease.deadline = deadline;
            kept->untimed = false;
        }
    }
}

static void replay_set_bytes(GBytes **kept, GBytes *bytes, bool change)
{
    if (!change) {
        g_clear_pointer(&bytes, g_bytes_unref);
        return;
    }
    g_clear_pointer(kept, g_bytes_unref);
    *kept = bytes;
}

static void replay_change(struct local_replay *replay, struct local_reader *in)
{
    uint64_t fence = local_read_u64(in);
    uint8_t set = local_read_u8(in);
    GBytes *meta = local_read_shared(in, &replay->last_change), *content = local_read_bytes(in), *ignored = NULL;
    struct kept_lease *kept = replay_find(replay, fence);
    replay_set_bytes(kept ? &kept->lease.meta : &ignored, meta, kept && set & BACKEND_SET_META);
    replay_set_bytes(kept ? &kept->lease.content : &ignored, content, kept && set & BACKEND_SET_CONTENT);
}

static void replay_directory(struct local_replay *replay, struct local_reader *in)
{
    struct backend_directory *directory = g_new0(struct backend_directory, 1);
    const char *name = local_read_directory(in, directory);
    g_hash_table_replace(replay->directories, g_strdup(name), directory);
}

static void replay_untimed(struct local_replay *replay)
{
    struct kept_lease *kept;
    for (struct sorted_position at = sorted_first(&replay->leases); (kept = sorted_item(at)); at = sorted_next(at)) {
        kept->untimed = true;
    }
}

int local_replay_record(void *arg, uint8_t type, const void *payload, size_t length)
{
    struct local_replay *replay = arg;
    struct local_reader in = {.at = payload, .left = length};
    replay->clean = false;
    switch ((enum local_record)type) {
    case LOCAL_SESSION:
        replay_session(replay, &in);
        break;
    case LOCAL_FENCE:
        replay_fence(replay, &in);
        break;
    case LOCAL_LEASE:
        replay_lease(replay, &in);
        break;
    case LOCAL_END:
        replay_forget(replay, local_read_u64(&in));
        break;
    case LOCAL_RENEWALS:
        replay_renewals(replay, &in);
        break;
    case LOCAL_CHANGE:
        replay_change(replay, &in);
        break;
    case LOCAL_DIRECTORY:
        replay_directory(replay, &in);
        break;
    case LOCAL_RMDIR:
        g_hash_table_remove(replay->directories, local_read_string(&in));
        break;
    case LOCAL_UNTIMED:
        replay_untimed(replay);
        break;
    default:
        return -EPROTO;
    }
    return in.bad || in.left ? -EPROTO : 0;
}

static void replay_restore_directories(struct local_replay *replay, struct lockspace *space, clock_ms now)
{
    GList *names = g_list_sort(g_hash_table_get_keys(replay->directories), (GCompareFunc)strcmp);
    /* strcmp puts a directory before its contents */
    for (GList *l = names; l; l = l->next) {
        const char *name = l->data;
        const struct backend_directory *directory = g_hash_table_lookup(replay->directories, name);
        if (*name) {
            lockspace_mkdir(space, name, directory);
        } else {
            lockspace_set_directory(space, now, name, directory);
        }
    }
    g_list_free(names);
}

/* After a loss of power the journal may lack the last numbers of queues.  One synced record reserves numbers for all
 * queues together, so each goes on behind that. */
static void replay_pass_lost_numbers(struct local_replay *replay, struct lockspace *space, clock_ms now)
{
    GHashTableIter iter;
    gpointer name;
    if (!g_hash_table_contains(replay->directories, "")) { /* the root may have no record */
        struct backend_directory *root = g_new0(struct backend_directory, 1);
        root->width = 1;
        g_hash_table_replace(replay->directories, g_strdup(""), root);
    }
    g_hash_table_iter_init(&iter, replay->directories);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        struct backend_info info;
        lockspace_stat(space, name, &info);
        info.directory.sequence = MAX(info.directory.sequence, replay->number);
        lockspace_set_directory(space, now, name, &info.directory);
    }
}

static bool replay_is_same_boot(const struct local_session *a, const struct local_session *b)
{
    return *a->boot_id && strcmp(a->boot_id, b->boot_id) == 0;
}

/* The last session of the same boot, because the wall clock may have been set since the lease's record. */
static const struct local_session *replay_session_of(const struct local_replay *replay, const struct kept_lease *kept)
{
    const struct local_session *own = &g_array_index(replay->sessions, struct local_session, kept->session);
    for (guint i = replay->sessions->len; i-- > kept->session;) {
        const struct local_session *session = &g_array_index(replay->sessions, struct local_session, i);
        if (replay_is_same_boot(session, own)) {
            return session;
        }
    }
    return own;
}

/* Restores one lease, also after its deadline: it goes on if backend_recover finds that its owner lives.  False if it
 * cannot be restored. */
static bool replay_restore_lease(const struct kept_lease *kept, const struct local_session *then,
                                 struct lockspace *space, const struct local_session *now,
                                 struct local_restored *restored)
{
    const struct local_lease *lease = &kept->lease;
    bool same = restored->same_boot || replay_is_same_boot(then, now);
    clock_ms full = now->boottime + lease->ttl;
    bool guard = lease->flags & (LOCAL_LEASE_BROKEN | LOCAL_LEASE_RELEASED);
    bool handle_lock = lease->flags & LOCAL_LEASE_HANDLE;
    bool endless = (handle_lock || lease->deadline == LOCAL_RESTING) && !guard;
    clock_ms deadline = !same || endless          ? full
                        : kept->untimed && !guard ? MAX(full, lease->deadline)
                                                  : lease->deadline;
    clock_ms acquired = lease->acquired;
    bool late = deadline <= now->boottime;
    struct backend_ticket *ticket;
    struct backend_claim claim = {
        .kind = (enum backend_kind)lease->kind,
        .mode = lease->flags & LOCAL_LEASE_SHARED ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
        .end = BACKEND_RANGE_MAX,
        .wait = !(lease->flags & LOCAL_LEASE_HELD),
        .sequence = lease->flags & LOCAL_LEASE_SEQUENCE,
        .ttl = lease->ttl,
        .due = guard || late ? 0 : 1 + MIN((int64_t)restored->leases / REPLAY_DUE, (deadline - now->boottime) / 2),
        .meta = lease->meta,
        .content = lease->content,
    };
    if (!same) {
        acquired += then->wall - then->boottime - (now->wall - now->boottime);
    }
    if ((guard && late) || ((guard || handle_lock) && !same) || (handle_lock && claim.wait && !claim.sequence)) {
        /* no process outlives a reboot, and who waits asks again */
        return false;
    }
    enum backend_result result = lockspace_restore(space, now->boottime, lease->name, &claim, lease->segments,
                                                   lease->fence, acquired, deadline, &ticket);
    if (result == BACKEND_OK && guard) {
        lockspace_restore_guard(ticket, lease->flags & LOCAL_LEASE_BROKEN ? BACKEND_BROKEN : BACKEND_RELEASED);
    } else if (result == BACKEND_OK && claim.wait) {
        g_ptr_array_add(restored->granted, ticket);
    }
    restored->late += late;
    return result == BACKEND_OK || result == BACKEND_QUEUED;
}

static uint64_t replay_lease_size(const struct local_lease *lease)
{
    return 96 + strlen(lease->name) + (lease->meta ? g_bytes_get_size(lease->meta) : 0) +
           (lease->content ? g_bytes_get_size(lease->content) : 0);
}

/* Restores the holders, or the waiters, in the order of their fencing tokens. */
static void replay_restore_leases(struct local_replay *replay, bool held, struct lockspace *space,
                                  const struct local_session *now, struct local_restored *restored)
{
    const struct kept_lease *kept;
    for (struct sorted_position at = sorted_first(&replay->leases); (kept = sorted_item(at)); at = sorted_next(at)) {
        const struct local_session *then = replay_session_of(replay, kept);
        if (!(kept->lease.flags & LOCAL_LEASE_HELD) == held) {
            continue;
        }
        bool handle_lock = kept->lease.flags & LOCAL_LEASE_HANDLE;
        restored->untimed |= kept->untimed && !handle_lock;
        if (replay_restore_lease(kept, then, space, now, restored)) {
            restored->leases += !handle_lock;
            restored->handle_locks += handle_lock;
            restored->bytes += replay_lease_size(&kept->lease);
            restored->rebooted += !restored->same_boot && !replay_is_same_boot(then, now);
        } else {
            g_array_append_val(restored->gone, kept->lease.fence);
        }
        restored->next = MAX(restored->next, kept->lease.fence + 1);
    }
}

void local_replay_restore(struct local_replay *replay, struct lockspace *space, const struct local_session *now,
                          struct local_restored *ret_restored)
{
    *ret_restored = (struct local_restored){.next = replay->next, .same_boot = true};
    ret_restored->granted = g_ptr_array_new();
    ret_restored->gone = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (guint i = 0; i < replay->sessions->len; i++) {
        ret_restored->same_boot &= replay_is_same_boot(&g_array_index(replay->sessions, struct local_session, i), now);
    }
    replay_restore_directories(replay, space, now->boottime);
    if (!ret_restored->same_boot && !replay->clean) {
        replay_pass_lost_numbers(replay, space, now->boottime);
    }

    /* holders first, so that queues come out as they were */
    replay_restore_leases(replay, true, space, now, ret_restored);
    replay_restore_leases(replay, false, space, now, ret_restored);
    lockspace_raise_fence(space, ret_restored->next);
}

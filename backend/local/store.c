/* store: writes leases down as they change, reserves fencing tokens ahead,
 * and compacts the journal while it is in use.
 *
 * Fencing tokens are reserved in steps by a synced record, the next step when
 * half of this one is used up; so they never go back, not even after a power
 * cut, and no request waits for the disk.
 */
#include "backend/local/store.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "backend/journal/journal.h"
#include "backend/local/replay.h"
#include "backend/log.h"

#define FENCE_STEP (1 << 20)
#define FENCE_SPARE 1024 /* at most so many are used by one request */
#define NUMBER_STEP 1024 /* numbers of sequence tickets reserved at a time */
#define COMPACT_MIN (1024 * 1024)
#define SPARE 131072         /* room kept for what is written on a full disk, */
#define SPARE_END 32         /* with the end of each lease, */
#define USUAL_LEASE 2048     /* beside a lease that is still to be decided, */
#define RECORD_FRAME 32      /* and what is around a record */
#define COMPACT_PART 512     /* tickets copied in one step, */
#define COMPACT_BYTES 262144 /* unless these are more */

enum compacting { COMPACT_IDLE, COMPACT_COPYING, COMPACT_FINISHING };

struct local_store {
    struct journal *journal;
    struct lockspace *space;
    char *directory;
    char *boot_id;
    bool sync_always;
    bool pending;    /* the batch is not empty */
    bool full;       /* the last that asked for room found none */
    bool roomless;   /* the filesystem gives no room ahead: writing tells whether there is any */
    bool untimed;    /* the journal says that renewals may be missing, and has none since */
    GArray *ends;    /* uint64_t: fencing tokens of ends not yet written */
    bool unwritten;  /* they are in no batch */
    bool reported;   /* that the journal failed, */
    clock_ms failed; /* then */
    clock_ms looked; /* when the files were last seen in their place */
    bool displaced;  /* they are not any more, */
    clock_ms missed; /* as was noticed then */
    GByteArray *record;
    uint64_t fence_step;
    uint64_t reserved;           /* fencing tokens below this may be used */
    uint64_t reserving;          /* and will be below this, */
    uint64_t reserving_sequence; /* once the journal is synced up to here; 0: nothing asked for */
    GHashTable *numbers;         /* directory -> uint64_t: numbers below this are reserved */
    uint64_t compact_min;
    uint64_t compact_at;       /* the journal's size at which compaction begins */
    uint64_t compact_most;     /* the most locks since the last one, */
    uint64_t compact_sequence; /* and the last record before it */
    enum compacting compacting;
    int compact_error;
    uint64_t compact_bytes; /* copied in this step */
    char cursor[LOCAL_NAME_MAX];
};

/* --- records --- */

static void store_report_failure(struct local_store *store)
{
    int failed = journal_failed(store->journal);
    if (!failed || store->reported) {
        return;
    }
    store->reported = true;
    store->failed = clock_now();
    log_error("%s/journal: %s: no new lease is granted, and what is renewed or released from now on is not kept, so it "
              "may be lost or come back: replace the disk, then unmount and mount again",
              store->directory, g_strerror(failed));
}

static uint64_t store_locks(const struct local_store *store)
{
    struct backend_counts counts = lockspace_counts(store->space);
    return counts.locks + counts.waiting;
}

static void store_set_full(struct local_store *store, int error)
{
    if (store->full == (error != 0)) {
        return;
    }
    store->full = error != 0;
    if (store->full) {
        log_error("%s/journal: %s: no new lease is granted until there is room again; what is held is renewed and "
                  "released as before",
                  store->directory, g_strerror(-error));
        store->compact_at = 0; /* it may be full of what has ended */
    } else {
        log_info("%s/journal has room again: leases are granted", store->directory);
        if (store->untimed) {
            store->compact_at = 0; /* the deadlines, as they are by now */
        }
    }
}

/* Whether a record may be added; what must be written on a full disk keeps its
 * room behind it, but for the part that is left out. */
static enum backend_result store_make_room(struct local_store *store, size_t length, uint64_t part)
{
    int r = journal_make_room(store->journal, length + RECORD_FRAME, SPARE + store_locks(store) * SPARE_END - part);
    if (r < 0 && journal_failed(store->journal)) {
        store_report_failure(store);
        return BACKEND_UNREACHABLE;
    }
    store->roomless = r > 0;
    if (r <= 0) {
        store_set_full(store, r);
    }
    return r < 0 ? BACKEND_FULL : BACKEND_OK;
}

/* Ends that found no room go before anything else. */
static void store_put_unwritten(struct local_store *store)
{
    if (!store->unwritten) {
        return;
    }
    store->unwritten = false;
    for (guint i = 0; i < store->ends->len; i++) {
        uint64_t fence = GUINT64_TO_LE(g_array_index(store->ends, uint64_t, i));
        journal_append(store->journal, LOCAL_END, &fence, sizeof(fence));
    }
    store->pending = true;
}

static enum backend_result store_put(struct local_store *store, enum local_record type, const void *payload,
                                     size_t length)
{
    store_put_unwritten(store);
    int r = journal_append(store->journal, (uint8_t)type, payload, length);
    if (r == -EMSGSIZE) {
        return BACKEND_FULL;
    }
    if (r < 0) {
        store_report_failure(store);
        return BACKEND_UNREACHABLE;
    }
    store->pending = true;
    return BACKEND_OK;
}

static GByteArray *store_fresh_record(struct local_store *store)
{
    g_byte_array_set_size(store->record, 0);
    return store->record;
}

static enum backend_result store_put_record(struct local_store *store, enum local_record type)
{
    return store_put(store, type, store->record->data, store->record->len);
}

/* One that may be refused. */
static enum backend_result store_put_with_room(struct local_store *store, enum local_record type, uint64_t part)
{
    enum backend_result result = store_make_room(store, store->record->len, part);
    if (result == BACKEND_OK) {
        result = store_put_record(store, type);
    }
    if (result == BACKEND_OK && (type == LOCAL_LEASE || type == LOCAL_RENEWALS)) {
        store->untimed = false; /* of this one it is not true any more, and may be again */
    }
    return result;
}

/* Instead of renewals, on a full disk: one does for all that follow. */
static enum backend_result store_put_untimed(struct local_store *store)
{
    enum backend_result result = BACKEND_OK;
    if (!store->untimed) {
        result = store_put(store, LOCAL_UNTIMED, "", 0);
    }
    store->untimed = result == BACKEND_OK;
    return result;
}

/* Deadlines: they can do without a record of their own. */
static enum backend_result store_put_timed(struct local_store *store, enum local_record type)
{
    enum backend_result result = store_put_with_room(store, type, 0);
    return result == BACKEND_FULL ? store_put_untimed(store) : result;
}

enum backend_result local_store_may_keep(struct local_store *store)
{
    return store_make_room(store, USUAL_LEASE, 0);
}

bool local_store_may_renew(struct local_store *store, size_t count)
{
    return store_make_room(store, count * 3 * sizeof(uint64_t) + RECORD_FRAME, 0) != BACKEND_FULL;
}

/* It is a lock already: half of the spare room is for those. */
enum backend_result local_store_put_lease(struct local_store *store, const struct local_lease *lease)
{
    local_record_lease(store_fresh_record(store), lease);
    return store_put_with_room(store, LOCAL_LEASE, SPARE / 2);
}

static void store_describe_ticket(const struct backend_ticket *ticket, const char *name, struct local_lease *ret_lease)
{
    bool sequence = lockspace_ticket_sequence(ticket);
    *ret_lease = (struct local_lease){
        .name = name,
        .fence = ticket->fence,
        .flags = (uint8_t)((ticket->held ? LOCAL_LEASE_HELD : 0) | (sequence ? LOCAL_LEASE_SEQUENCE : 0) |
                           (ticket->mode == BACKEND_SHARED ? LOCAL_LEASE_SHARED : 0)),
        .ttl = ticket->ttl,
        .acquired = ticket->acquired,
        .deadline = ticket->deadline,
        .meta = lockspace_ticket_meta(ticket),
        .content = lockspace_ticket_content(ticket),
    };
}

enum backend_result local_store_put_ticket(struct local_store *store, const struct backend_ticket *ticket,
                                           uint64_t replaces)
{
    char name[LOCAL_NAME_MAX];
    struct local_lease lease;
    if (!lockspace_ticket_name(ticket, name, sizeof(name))) {
        return BACKEND_INVALID;
    }
    store_describe_ticket(ticket, name, &lease);
    lease.replaces = replaces;
    local_record_lease(store_fresh_record(store), &lease);
    return store_put_with_room(store, LOCAL_LEASE, 0);
}

/* What is to be found after a restart follows from the queue as it was, too. */
enum backend_result local_store_put_granted(struct local_store *store, const struct backend_ticket *ticket)
{
    enum backend_result result = local_store_put_ticket(store, ticket, 0);
    return result == BACKEND_FULL ? store_put_untimed(store) : result;
}

enum backend_result local_store_put_end(struct local_store *store, uint64_t fence)
{
    uint64_t le = GUINT64_TO_LE(fence);
    enum backend_result result = store_put(store, LOCAL_END, &le, sizeof(le));
    if (result == BACKEND_OK) {
        g_array_append_val(store->ends, fence);
    }
    return result;
}

enum backend_result local_store_put_renewals(struct local_store *store, struct backend_ticket *const *tickets,
                                             size_t count)
{
    GByteArray *record = store_fresh_record(store);
    for (size_t i = 0; i < count; i++) {
        local_record_u64(record, tickets[i]->fence);
        local_record_u64(record, (uint64_t)tickets[i]->ttl);
        local_record_u64(record, (uint64_t)tickets[i]->deadline);
    }
    return store_put_timed(store, LOCAL_RENEWALS);
}

enum backend_result local_store_put_change(struct local_store *store, uint64_t fence,
                                           const struct backend_change *change)
{
    GByteArray *record = store_fresh_record(store);
    uint8_t set = (uint8_t)change->set;
    local_record_u64(record, fence);
    g_byte_array_append(record, &set, 1);
    local_record_bytes(record, change->set & BACKEND_SET_META ? change->meta : NULL);
    local_record_bytes(record, change->set & BACKEND_SET_CONTENT ? change->content : NULL);
    return store_put_with_room(store, LOCAL_CHANGE, 0);
}

/* The directory as it is to be found after a crash: its numbers go on behind
 * those that are reserved. */
static void store_record_directory(struct local_store *store, const char *name,
                                   const struct backend_directory *directory)
{
    struct backend_directory kept = *directory;
    const uint64_t *reserved = g_hash_table_lookup(store->numbers, name);
    if (reserved) {
        kept.sequence = MAX(kept.sequence, *reserved);
    }
    local_record_directory(store_fresh_record(store), name, &kept);
}

enum backend_result local_store_put_directory(struct local_store *store, const char *name,
                                              const struct backend_directory *directory)
{
    store_record_directory(store, name, directory);
    return store_put_with_room(store, LOCAL_DIRECTORY, 0);
}

enum backend_result local_store_put_rmdir(struct local_store *store, const char *name)
{
    g_hash_table_remove(store->numbers, name);
    local_record_string(store_fresh_record(store), name);
    return store_put_with_room(store, LOCAL_RMDIR, SPARE / 2);
}

enum backend_result local_store_put_number(struct local_store *store, const struct backend_ticket *ticket)
{
    char name[LOCAL_NAME_MAX];
    struct backend_info info;
    if (!lockspace_ticket_name(ticket, name, sizeof(name))) {
        return BACKEND_INVALID;
    }
    char *slash = strrchr(name, '/');
    (slash ? slash : name)[0] = '\0';
    lockspace_stat(store->space, name, &info);
    const uint64_t *reserved = g_hash_table_lookup(store->numbers, name);
    if (reserved && info.directory.sequence <= *reserved) {
        return BACKEND_OK;
    }
    uint64_t next = info.directory.sequence + NUMBER_STEP;
    g_hash_table_replace(store->numbers, g_strdup(name), g_memdup2(&next, sizeof(next)));
    enum backend_result result = local_store_put_directory(store, name, &info.directory);
    if (result != BACKEND_OK) {
        g_hash_table_remove(store->numbers, name); /* to be asked for again */
    }
    return result;
}

enum backend_result local_store_commit(struct local_store *store, uint64_t *ret_sequence)
{
    *ret_sequence = 0;
    if (!store->pending) {
        return BACKEND_OK;
    }
    store->pending = false;
    int r = journal_commit(store->journal);
    if (r < 0 && !journal_failed(store->journal)) {
        store->unwritten = store->ends->len > 0;
        store->untimed = false;
        g_hash_table_remove_all(store->numbers);
        store_set_full(store, r);
        return BACKEND_FULL;
    }
    g_array_set_size(store->ends, 0);
    if (r < 0) {
        store_report_failure(store);
        return BACKEND_UNREACHABLE;
    }
    if (store->roomless) {
        store_set_full(store, 0);
    }
    *ret_sequence = journal_sequence(store->journal);
    if (store->sync_always) {
        journal_sync(store->journal);
    }
    return BACKEND_OK;
}

/* Looked at once in a millisecond: no daemon starts within that. */
bool local_store_in_place(struct local_store *store)
{
    clock_ms now = clock_now();
    if (store->displaced || store->looked == now) {
        return !store->displaced;
    }
    store->looked = now;
    store->displaced = !journal_in_place(store->journal);
    if (store->displaced) {
        store->missed = now;
        log_error("%s was removed or replaced under this mount: another leasefs may grant the same names there, so "
                  "nothing is granted here any more: unmount, and mount again",
                  store->directory);
    }
    return !store->displaced;
}

bool local_store_failed(const struct local_store *store)
{
    return journal_failed(store->journal) != 0;
}

void local_store_status(struct local_store *store, struct backend_status *status)
{
    int failed = journal_failed(store->journal);
    store_report_failure(store); /* if nobody has noticed yet */
    status->address = g_strconcat("local:", store->directory, NULL);
    status->has_journal = true;
    status->journal_bytes = journal_size(store->journal);
    status->journal_records = journal_sequence(store->journal);
    if (failed) {
        status->away = true;
        status->since = store->failed;
        status->why = g_strdup_printf("%s/journal: %s", store->directory, g_strerror(failed));
    } else if (!local_store_in_place(store)) {
        status->away = true;
        status->since = store->missed;
        status->why = g_strdup_printf("%s was removed or replaced", store->directory);
    }
    local_store_may_keep(store); /* perhaps there is room by now */
    if (store->full) {
        g_ptr_array_add(
            status->warnings,
            g_strdup_printf("%s/journal: the disk is full: new leases are refused until there is room%s",
                            store->directory,
                            store->unwritten ? ", and leases released meanwhile come back after a crash" : ""));
    }
}

uint64_t local_store_synced(const struct local_store *store)
{
    return journal_synced(store->journal);
}

void local_store_on_synced(struct local_store *store, void (*synced)(void *arg), void *arg)
{
    journal_on_synced(store->journal, synced, arg);
}

/* --- fencing tokens --- */

static int store_put_fence(struct local_store *store, uint64_t next)
{
    uint64_t le = GUINT64_TO_LE(next), sequence;
    enum backend_result result = store_put(store, LOCAL_FENCE, &le, sizeof(le));
    if (result == BACKEND_OK) {
        result = local_store_commit(store, &sequence);
    }
    return result == BACKEND_OK ? 0 : result == BACKEND_FULL ? -ENOSPC : -journal_failed(store->journal);
}

/* Asks for the next step, and takes it over once it is safe. */
static void store_reserve(struct local_store *store, uint64_t next)
{
    if (store->reserving_sequence && journal_synced(store->journal) >= store->reserving_sequence) {
        store->reserved = store->reserving;
        store->reserving_sequence = 0;
    }
    if (store->reserving_sequence || next + store->fence_step / 2 < store->reserved) {
        return;
    }
    store->reserving = MAX(next, store->reserved) + store->fence_step;
    if (store_put_fence(store, store->reserving) < 0) {
        return;
    }
    store->reserving_sequence = journal_sequence(store->journal);
    journal_sync(store->journal);
}

bool local_store_may_number(struct local_store *store)
{
    uint64_t next = lockspace_next_fence(store->space);
    if (!local_store_in_place(store)) {
        return false;
    }
    if (next + store->fence_step / 2 < store->reserved) {
        return true;
    }
    store_reserve(store, next);
    if (next + FENCE_SPARE < store->reserved) {
        return true;
    }
    if (!store->reserving_sequence || journal_sync_wait(store->journal) < 0) {
        store_report_failure(store);
        return false;
    }
    store_reserve(store, next);
    return next + FENCE_SPARE < store->reserved;
}

/* --- compaction --- */

static void store_copy_record(struct local_store *store, enum local_record type)
{
    int r = journal_compact_append(store->journal, (uint8_t)type, store->record->data, store->record->len);
    if (r < 0 && !store->compact_error) {
        store->compact_error = r;
    }
    store->compact_bytes += store->record->len;
}

static void store_copy_directory(void *arg, const char *name, const struct backend_directory *directory)
{
    store_record_directory(arg, name, directory);
    store_copy_record(arg, LOCAL_DIRECTORY);
}

static void store_copy_lease(void *arg, const char *name, struct backend_ticket *ticket)
{
    struct local_store *store = arg;
    struct local_lease lease;
    store_describe_ticket(ticket, name, &lease);
    local_record_lease(store_fresh_record(store), &lease);
    store_copy_record(store, LOCAL_LEASE);
}

static struct local_session store_present_session(const struct local_store *store)
{
    return (struct local_session){.boottime = clock_now(), .wall = clock_wall(), .boot_id = store->boot_id};
}

static int store_begin_compaction(struct local_store *store)
{
    struct local_session session = store_present_session(store);
    int r = journal_compact_begin(store->journal);
    if (r < 0) {
        return r;
    }
    store->cursor[0] = '\0';
    store->compact_error = 0;
    store->untimed = false; /* the new file does not say so yet */
    local_record_session(store_fresh_record(store), &session);
    store_copy_record(store, LOCAL_SESSION);
    g_byte_array_set_size(store->record, 0);
    local_record_u64(store->record, MAX(store->reserved, store->reserving));
    store_copy_record(store, LOCAL_FENCE);
    store->compacting = COMPACT_COPYING;
    return store->compact_error;
}

/* Copies a part of the state; 1 if more is to come, 0 at the end, or -errno. */
static int store_copy_part(struct local_store *store)
{
    size_t copied = 0, visited;
    const size_t at_once = 32;
    store->compact_bytes = 0;
    do {
        visited = lockspace_visit(store->space, store->cursor, sizeof(store->cursor), at_once, store_copy_directory,
                                  store_copy_lease, store);
        copied += visited;
    } while (visited == at_once && copied < COMPACT_PART && store->compact_bytes < COMPACT_BYTES);
    if (!store->compact_error) {
        store->compact_error = journal_commit(store->journal);
    }
    return store->compact_error ? store->compact_error : visited == at_once;
}

static void store_end_compaction(struct local_store *store, int error)
{
    uint64_t size = journal_size(store->journal);
    store->compacting = COMPACT_IDLE;
    store->compact_at = 2 * size + store->compact_min;
    if (error < 0) {
        journal_compact_abort(store->journal);
        if (store->full) { /* its room is missed now */
            store->compact_at = size + store->compact_min;
        }
        log_warning("%s/journal cannot be compacted: %s: it will be tried again later", store->directory,
                    g_strerror(-error));
    } else {
        log_debug("%s/journal was compacted to %" G_GUINT64_FORMAT " bytes", store->directory, size);
    }
}

/* It has grown, or much of what made it grow has ended: half, or on a full disk an eighth. */
static bool store_wants_compaction(struct local_store *store)
{
    uint64_t size = journal_size(store->journal), now = store_locks(store);
    store->compact_most = MAX(store->compact_most, now);
    uint64_t part = MAX(store->compact_most / (store->full ? 8 : 2), 1);
    if (journal_failed(store->journal)) {
        return false;
    }
    return size >= store->compact_at ||
           ((store->full || size >= store->compact_min) && now + part <= store->compact_most &&
            journal_sequence(store->journal) - store->compact_sequence >= part);
}

/* On a full disk the room that is kept spare may be enough for what is left. */
static int store_begin_anywhere(struct local_store *store)
{
    store->compact_most = store_locks(store);
    store->compact_sequence = journal_sequence(store->journal);
    if (store->full) {
        journal_give_room_back(store->journal);
    }
    return store_begin_compaction(store);
}

bool local_store_step(struct local_store *store)
{
    int r = 0;
    store_report_failure(store);
    switch (store->compacting) {
    case COMPACT_IDLE:
        if (!store_wants_compaction(store)) {
            return false;
        }
        r = store_begin_anywhere(store);
        break;
    case COMPACT_COPYING:
        r = store_copy_part(store);
        if (r == 0 && store->untimed) { /* behind all deadlines */
            store->untimed = false;
            store_put_untimed(store);
        }
        if (r == 0) {
            r = journal_compact_finish(store->journal);
            store->compacting = COMPACT_FINISHING;
        }
        break;
    case COMPACT_FINISHING:
        if (!journal_compact_ready(store->journal)) {
            return false;
        }
        r = journal_compact_swap(store->journal);
        store_end_compaction(store, r);
        return false;
    }
    if (r < 0) {
        store_end_compaction(store, r);
    }
    return store->compacting == COMPACT_COPYING;
}

/* Rewrites the journal now, before anybody is served. */
static int store_rewrite(struct local_store *store)
{
    int r = store_begin_compaction(store);
    if (r == 0) {
        do {
            r = store_copy_part(store);
        } while (r > 0);
    }
    if (r == 0) {
        r = journal_compact_finish(store->journal);
    }
    if (r == 0) {
        r = journal_sync_wait(store->journal);
    }
    if (r == 0) {
        r = journal_compact_swap(store->journal);
    }
    if (r < 0) {
        journal_compact_abort(store->journal);
    }
    store->compacting = COMPACT_IDLE;
    return r;
}

/* --- opening and closing --- */

static char *store_read_boot_id(const struct local_options *options)
{
    char *id = NULL;
    if (options->boot_id) {
        return g_strdup(options->boot_id);
    }
    /* without it every start counts as a reboot: terms get longer, never shorter */
    if (!g_file_get_contents("/proc/sys/kernel/random/boot_id", &id, NULL, NULL)) {
        return g_strdup("");
    }
    return g_strstrip(id);
}

static void store_log_restored(struct local_store *store, const struct local_restored *restored, uint64_t cut)
{
    if (cut) {
        log_warning("%s/journal ended in the middle of a record: bytes that were cut off: %" G_GUINT64_FORMAT,
                    store->directory, cut);
    }
    if (restored->leases || restored->gone->len) {
        log_info("%s: leases that are there again: %zu; that have ended meanwhile: %u", store->directory,
                 restored->leases, restored->gone->len);
    }
    if (restored->rebooted) {
        log_info("%s: the host has rebooted: leases that begin a full term: %zu", store->directory, restored->rebooted);
    }
}

/* Adds to the journal that a session begins, what has ended since the last one, and
 * which fencing tokens are reserved. */
static int store_continue_journal(struct local_store *store, const struct local_session *session,
                                  const struct local_restored *restored)
{
    local_record_session(store_fresh_record(store), session);
    if (store_put_record(store, LOCAL_SESSION) != BACKEND_OK) {
        return -journal_failed(store->journal);
    }
    for (guint i = 0; i < restored->gone->len; i++) {
        local_store_put_end(store, g_array_index(restored->gone, uint64_t, i));
    }
    for (guint i = 0; i < restored->granted->len; i++) {
        local_store_put_granted(store, restored->granted->pdata[i]);
    }
    return store_put_fence(store, store->reserving);
}

/* After a reboot no deadline of the journal means anything, and of renewals that are
 * missing none can be told: it is written anew, the second only if there is room. */
static int store_begin_session(struct local_store *store, const struct local_session *session,
                               const struct local_restored *restored)
{
    store->reserving = restored->next + store->fence_step;
    bool anew = !restored->same_boot || restored->untimed;
    int r = anew ? store_rewrite(store) : 0;
    bool full = r == -ENOSPC || r == -EDQUOT;
    if (restored->same_boot && (!anew || full)) {
        r = store_continue_journal(store, session, restored);
    }
    if (r == 0) {
        r = journal_sync_wait(store->journal);
    }
    if (r == 0) {
        store->reserved = store->reserving;
    }
    return r;
}

static int store_restore(struct local_store *store, struct local_replay *replay, uint64_t cut, char *error,
                         size_t error_size)
{
    struct local_session session = store_present_session(store);
    struct local_restored restored;
    local_replay_restore(replay, store->space, &session, &restored);
    store_log_restored(store, &restored, cut);
    int r = store_begin_session(store, &session, &restored);
    g_ptr_array_unref(restored.granted);
    g_array_unref(restored.gone);
    if (r < 0) {
        g_snprintf(error, error_size,
                   "%s/journal cannot be written: %s: make room, or give another directory with "
                   "local:DIR",
                   store->directory, g_strerror(-r));
    }
    store->compact_at = 2 * restored.bytes + store->compact_min;
    return r;
}

int local_store_open(const struct local_options *options, struct lockspace *space, struct local_store **ret_store,
                     char *error, size_t error_size)
{
    struct local_store *store = g_new0(struct local_store, 1);
    struct local_replay *replay = local_replay_new();
    uint64_t cut;
    store->space = space;
    store->directory = g_strdup(options->directory);
    store->boot_id = store_read_boot_id(options);
    store->sync_always = options->sync_always;
    store->compact_min = options->compact_min ? options->compact_min : COMPACT_MIN;
    store->fence_step = options->fence_step ? options->fence_step : FENCE_STEP;
    store->record = g_byte_array_new();
    store->ends = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    store->numbers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

    int r = journal_open(options->directory, local_replay_record, replay, &store->journal, &cut, error, error_size);
    if (r == 0) {
        r = store_restore(store, replay, cut, error, error_size);
    }
    local_replay_free(replay);
    malloc_trim(0); /* what was gathered is as large as what is kept */
    if (r < 0) {
        journal_close(store->journal);
        store->journal = NULL;
        local_store_close(store);
        return r;
    }
    journal_rest(store->journal);
    *ret_store = store;
    return 0;
}

/* After a clean end numbers go on without a gap. */
static void store_write_exact_numbers(struct local_store *store)
{
    GHashTableIter iter;
    void *name;
    g_hash_table_iter_init(&iter, store->numbers);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        struct backend_info info;
        lockspace_stat(store->space, name, &info);
        if (info.type != BACKEND_DIRECTORY) {
            continue;
        }
        local_record_directory(store_fresh_record(store), name, &info.directory);
        store_put_record(store, LOCAL_DIRECTORY);
    }
    store_put_fence(store, lockspace_next_fence(store->space));
}

void local_store_close(struct local_store *store)
{
    if (!store) {
        return;
    }
    if (store->journal && !journal_failed(store->journal)) {
        journal_on_synced(store->journal, NULL, NULL);
        store_write_exact_numbers(store);
        journal_sync_wait(store->journal);
    }
    journal_close(store->journal);
    g_hash_table_unref(store->numbers);
    g_byte_array_unref(store->record);
    g_array_unref(store->ends);
    g_free(store->boot_id);
    g_free(store->directory);
    g_free(store);
}

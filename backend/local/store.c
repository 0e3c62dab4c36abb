/* store: restores locks from the journal, reserves fencing tokens ahead, and compacts
 * the journal while it is in use; see store.h.
 *
 * Fencing tokens follow the wall clock, in microseconds.  They are reserved by a synced
 * record in steps of 10 s, and the next step when half of this one is used up.  So they
 * never go back, even if the clock does after a loss of power.  The first request after
 * a pause waits for the sync; the others do not.  The same records reserve the numbers
 * of queues, which count from 0.
 */
#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "backend/journal/journal.h"
#include "backend/local/replay.h"
#include "backend/local/store_private.h"
#include "backend/log.h"
#include "config.h"

#define FENCE_STEP 10000000 /* us */
#define NUMBER_STEP 65536
#define SPARE 16384 /* more than are used between two checks */
#define COMPACT_MIN (1024 * 1024)
#define COMPACT_PART 512     /* tickets copied in one step, */
#define COMPACT_BYTES 262144 /* unless these are more */

/* --- fencing tokens, and numbers of queues --- */

static int store_put_marks(struct local_store *store, struct local_marks marks)
{
    uint64_t le[] = {GUINT64_TO_LE(marks.fence), GUINT64_TO_LE(marks.number)}, sequence;
    enum backend_result result = local_store_put(store, LOCAL_FENCE, le, sizeof(le));
    if (result == BACKEND_OK) {
        result = local_store_commit(store, &sequence);
    }
    return result == BACKEND_OK ? 0 : result == BACKEND_FULL ? -ENOSPC : -journal_failed(store->journal);
}

/* The next numbers to give out. */
static struct local_marks store_next(const struct local_store *store)
{
    return (struct local_marks){.fence = lockspace_next_fence(store->space),
                                .number = lockspace_next_number(store->space)};
}

/* Are so many from the next on below the marks? */
static bool store_covers(const struct local_marks *marks, const struct local_marks *next, uint64_t fences,
                         uint64_t numbers)
{
    return next->fence + fences <= marks->fence && next->number + numbers <= marks->number;
}

static struct local_marks store_next_reservation(const struct local_store *store)
{
    struct local_marks next = store_next(store);
    return (struct local_marks){.fence = MAX(next.fence + store->fence_step, store->reserving.fence),
                                .number = MAX(next.number + NUMBER_STEP, store->reserving.number)};
}

static void store_finish_reservation(struct local_store *store)
{
    if (store->reserving_sequence && journal_synced(store->journal) >= store->reserving_sequence) {
        store->reserved = store->reserving;
        store->reserving_sequence = 0;
    }
}

/* Reserves the next step when half of this one is used up, and another if the sync takes so long that the pending
 * step is nearly used up as well. */
static void store_reserve(struct local_store *store)
{
    struct local_marks next = store_next(store), ahead = store_next_reservation(store);
    store_finish_reservation(store);
    if (store_covers(&store->reserved, &next, store->fence_step / 2, NUMBER_STEP / 2) ||
        (store->reserving_sequence && store_covers(&store->reserving, &next, SPARE, SPARE))) {
        return;
    }
    if (store_put_marks(store, ahead) < 0) {
        return;
    }
    store->reserving = ahead;
    store->reserving_sequence = journal_sequence(store->journal);
    journal_sync(store->journal);
}

bool local_store_may_number(struct local_store *store)
{
    if (!local_store_in_place(store)) {
        return false;
    }
    store_reserve(store);
    struct local_marks next = store_next(store);
    const struct local_marks *marks = store->reserving_sequence ? &store->reserving : &store->reserved;
    if (store_covers(marks, &next, SPARE, SPARE) && (!store->reserving_sequence || !journal_failed(store->journal))) {
        return true;
    }
    local_store_report_failure(store);
    return false;
}

uint64_t local_store_fence_sequence(struct local_store *store)
{
    struct local_marks next = store_next(store);
    store_finish_reservation(store);
    return store_covers(&store->reserved, &next, SPARE, SPARE) ? 0 : store->reserving_sequence;
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
    local_store_record_directory(arg, name, directory);
    store_copy_record(arg, LOCAL_DIRECTORY);
}

static void store_copy_ticket(void *arg, const char *name, struct backend_ticket *ticket)
{
    struct local_store *store = arg;
    struct local_lease lease;
    local_store_describe_ticket(ticket, name, &lease);
    local_record_lease(local_store_fresh_record(store), &lease);
    store_copy_record(store, LOCAL_LEASE);
}

static int store_begin_compaction(struct local_store *store)
{
    struct local_session session = local_store_present_session(store);
    int r = journal_compact_begin(store->journal);
    if (r < 0) {
        return r;
    }
    store->cursor[0] = '\0';
    store->compact_error = 0;
    store->untimed = false; /* the new file does not say so yet */
    local_record_session(local_store_fresh_record(store), &session);
    store_copy_record(store, LOCAL_SESSION);
    g_byte_array_set_size(store->record, 0);
    local_record_u64(store->record, store->reserving.fence);
    local_record_u64(store->record, store->reserving.number);
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
                                  store_copy_ticket, store);
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
        if (store->full) { /* try again soon, because room is needed */
            store->compact_at = size + store->compact_min;
        }
        log_warning("%s/journal cannot be compacted: %s: it will be tried again later", store->directory,
                    g_strerror(-error));
    } else {
        log_debug("%s/journal was compacted to %" G_GUINT64_FORMAT " bytes", store->directory, size);
    }
}

/* Has the journal grown enough, or has a large part of its locks ended: half, or on a full disk an eighth? */
static bool store_wants_compaction(struct local_store *store)
{
    uint64_t size = journal_size(store->journal), now = local_store_locks(store);
    store->compact_most = MAX(store->compact_most, now);
    uint64_t part = MAX(store->compact_most / (store->full ? 8 : 2), 1);
    if (journal_failed(store->journal)) {
        return false;
    }
    return size >= store->compact_at ||
           ((store->full || size >= store->compact_min) && now + part <= store->compact_most &&
            journal_sequence(store->journal) - store->compact_sequence >= part);
}

/* On a full disk it gives up the reserved room first, so that the new file may find room: not that of the ends, as a
 * release must not be lost if the new file finds none. */
static int store_begin_anywhere(struct local_store *store)
{
    store->compact_most = local_store_locks(store);
    store->compact_sequence = journal_sequence(store->journal);
    if (store->full) {
        journal_give_room_back(store->journal, local_store_room_of_ends(store));
    }
    return store_begin_compaction(store);
}

bool local_store_step(struct local_store *store)
{
    int r = 0;
    local_store_report_failure(store);
    switch (store->compacting) {
    case COMPACT_IDLE:
        if (!store_wants_compaction(store)) {
            return false;
        }
        r = store_begin_anywhere(store);
        break;
    case COMPACT_COPYING:
        r = store_copy_part(store);
        if (r == 0 && store->untimed) { /* the new file needs the record after its deadlines */
            store->untimed = false;
            local_store_put_untimed(store);
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

/* Rewrites the journal now, before the first request. */
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
    /* without a boot id every start counts as a reboot: terms get longer, never shorter */
    return options->boot_id ? g_strdup(options->boot_id) : journal_boot_id();
}

static void store_log_restored(struct local_store *store, const struct local_restored *restored, uint64_t cut)
{
    if (cut) {
        log_warning("%s/journal %s: bytes that were cut off: %" G_GUINT64_FORMAT, store->directory,
                    restored->same_boot ? "ended in the middle of a record"
                                        : "was not all on the disk when the host stopped",
                    cut);
    }
    if (restored->leases) {
        log_info(
            "%s: leases that are there again: %zu; of these, past their deadline, so that they end unless their owner "
            "lives: %zu",
            store->directory, restored->leases, restored->late);
    }
    if (restored->handle_locks) {
        log_info("%s: handle locks that are there again, for the processes that have their files open: %zu",
                 store->directory, restored->handle_locks);
    }
    if (restored->rebooted) {
        log_info("%s: the host has rebooted: leases that begin a full term: %zu", store->directory, restored->rebooted);
    }
}

/* Appends a new session, the ends and grants since the last one, and a reservation. */
static int store_continue_journal(struct local_store *store, const struct local_session *session,
                                  const struct local_restored *restored)
{
    local_record_session(local_store_fresh_record(store), session);
    if (local_store_put_record(store, LOCAL_SESSION) != BACKEND_OK) {
        return -journal_failed(store->journal);
    }
    for (guint i = 0; i < restored->gone->len; i++) {
        local_store_put_end(store, g_array_index(restored->gone, uint64_t, i), BACKEND_LEASE);
    }
    for (guint i = 0; i < restored->granted->len; i++) {
        local_store_put_granted(store, restored->granted->pdata[i]);
    }
    return store_put_marks(store, store->reserving);
}

/* Rewrites the journal if its deadlines are not valid: after a reboot or, if there is
 * room, where renewals are missing.  Otherwise appends to it. */
static int store_begin_session(struct local_store *store, const struct local_session *session,
                               const struct local_restored *restored)
{
    lockspace_raise_fence(store->space, clock_wall_us());
    store->reserving = store_next_reservation(store);
    bool rewrite = !restored->same_boot || restored->untimed;
    int r = rewrite ? store_rewrite(store) : 0;
    bool full = r == -ENOSPC || r == -EDQUOT;
    if (restored->same_boot && (!rewrite || full)) {
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
    struct local_session session = local_store_present_session(store);
    struct local_restored restored;
    store->wall = session.wall - session.boottime;
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

    int r = journal_open_in_boot(options->directory, store->boot_id, options->lock, local_replay_record, replay,
                                 &store->journal, &cut, error, error_size);
    if (r == 0) {
        r = store_restore(store, replay, cut, error, error_size);
    }
    local_replay_free(replay);
#ifdef HAVE_MALLOC_TRIM
    malloc_trim(0); /* the replay took as much memory as the lockspace */
#endif
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

/* Gives back unused reservations: after a clean end numbers and tokens go on without a gap. */
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
        local_record_directory(local_store_fresh_record(store), name, &info.directory);
        local_store_put_record(store, LOCAL_DIRECTORY);
    }
    store_put_marks(store, store_next(store));
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

int local_store_lock_descriptor(const struct local_store *store)
{
    return journal_lock_descriptor(store->journal);
}

/* write: appends records to the journal, and reserves room on the disk for those that must not fail; see store.h. */
#include <errno.h>
#include <string.h>

#include "backend/journal/journal.h"
#include "backend/local/store_private.h"
#include "backend/log.h"

#define NUMBER_STEP 1024 /* numbers of sequence tickets reserved at a time */
/* Bytes of room: */
#define SPARE 131072     /* reserved for records on a full disk */
#define SPARE_END 32     /* reserved for the end of each lock */
#define SPARE_START 8192 /* of SPARE, for the records of restarts */
#define USUAL_LEASE 2048 /* needed to grant a new lease */
#define UNDECIDED 512    /* reserved for each provisional lock, whose close is answered before its record is written */
#define RECORD_FRAME 32  /* around a record */
#define WALL_STEP 100    /* ms: if the two clocks differ by more, the wall clock was set */

void local_store_report_failure(struct local_store *store)
{
    int failed = journal_failed(store->journal);
    if (!failed || store->reported) {
        return;
    }
    store->reported = true;
    store->failed_at = clock_now();
    log_error("%s/journal: %s: no new lock is granted, and what is renewed or released from now on is not kept, so it "
              "may be lost or come back: replace the disk, then unmount and mount again",
              store->directory, g_strerror(failed));
}

uint64_t local_store_locks(const struct local_store *store)
{
    struct backend_counts counts = lockspace_counts(store->space);
    return counts.locks + counts.waiting;
}

uint64_t local_store_room_of_ends(const struct local_store *store)
{
    return SPARE_START + local_store_locks(store) * SPARE_END;
}

static void write_set_full(struct local_store *store, int error)
{
    if (store->full == (error != 0)) {
        return;
    }
    store->full = error != 0;
    if (store->full) {
        log_error("%s/journal: %s: no new lock is granted until there is room again; what is held is renewed and "
                  "released as before",
                  store->directory, g_strerror(-error));
        store->compact_at = 0; /* the journal may be full of ended locks */
    } else {
        log_info("%s/journal has room again: locks are granted", store->directory);
        if (store->untimed) {
            store->compact_at = 0; /* to record the deadlines again */
        }
    }
}

/* May a record be appended?  The room behind it stays reserved, except for `part` bytes
 * that this record may use. */
static enum backend_result write_make_room(struct local_store *store, size_t length, uint64_t part)
{
    uint64_t spare = SPARE + local_store_locks(store) * SPARE_END + lockspace_keep_candidates(store->space) * UNDECIDED;
    int r = journal_make_room(store->journal, length + RECORD_FRAME, spare - part);
    if (r < 0 && journal_failed(store->journal)) {
        local_store_report_failure(store);
        return BACKEND_UNREACHABLE;
    }
    store->roomless = r > 0;
    if (r <= 0) {
        write_set_full(store, r);
    }
    return r < 0 ? BACKEND_FULL : BACKEND_OK;
}

/* Appends ends whose batch was dropped, before any other record. */
static void write_put_unwritten(struct local_store *store)
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

struct local_session local_store_present_session(const struct local_store *store)
{
    return (struct local_session){.boottime = clock_now(), .wall = clock_wall(), .boot_id = store->boot_id};
}

/* After a reboot the age of a lease follows from the wall clock, so a new session record is needed when that was set.
 */
static void write_put_wall(struct local_store *store)
{
    struct local_session session = local_store_present_session(store);
    int64_t wall = session.wall - session.boottime;
    if (ABS(wall - store->wall) < WALL_STEP) {
        return;
    }
    g_autoptr(GByteArray) record = g_byte_array_new(); /* the store's is in use */
    local_record_session(record, &session);
    if (journal_append(store->journal, LOCAL_SESSION, record->data, record->len) == 0) {
        store->wall = wall;
    }
}

enum backend_result local_store_put(struct local_store *store, enum local_record type, const void *payload,
                                    size_t length)
{
    write_put_unwritten(store);
    if (type != LOCAL_END) { /* an ended lease has no age */
        write_put_wall(store);
    }
    int r = journal_append(store->journal, (uint8_t)type, payload, length);
    if (r == -EMSGSIZE) {
        return BACKEND_FULL;
    }
    if (r < 0) {
        local_store_report_failure(store);
        return BACKEND_UNREACHABLE;
    }
    store->pending = true;
    store->lasting = true;
    return BACKEND_OK;
}

GByteArray *local_store_fresh_record(struct local_store *store)
{
    g_byte_array_set_size(store->record, 0);
    return store->record;
}

enum backend_result local_store_put_record(struct local_store *store, enum local_record type)
{
    return local_store_put(store, type, store->record->data, store->record->len);
}

/* Appends store->record if there is room. */
static enum backend_result write_put_with_room(struct local_store *store, enum local_record type, uint64_t part)
{
    enum backend_result result = write_make_room(store, store->record->len, part);
    if (result == BACKEND_OK) {
        result = local_store_put_record(store, type);
    }
    if (result == BACKEND_OK && (type == LOCAL_LEASE || type == LOCAL_RENEWALS)) {
        store->untimed = false; /* further missing renewals need another UNTIMED record */
    }
    return result;
}

enum backend_result local_store_put_untimed(struct local_store *store)
{
    enum backend_result result = BACKEND_OK;
    if (!store->untimed) {
        result = local_store_put(store, LOCAL_UNTIMED, "", 0);
    }
    store->untimed = result == BACKEND_OK;
    return result;
}

/* For deadlines: on a full disk UNTIMED replaces the record. */
static enum backend_result write_put_timed(struct local_store *store, enum local_record type)
{
    enum backend_result result = write_put_with_room(store, type, 0);
    return result == BACKEND_FULL ? local_store_put_untimed(store) : result;
}

enum backend_result local_store_may_keep(struct local_store *store)
{
    return write_make_room(store, USUAL_LEASE, 0);
}

bool local_store_may_renew(struct local_store *store, size_t count)
{
    return write_make_room(store, count * 3 * sizeof(uint64_t) + RECORD_FRAME, 0) != BACKEND_FULL;
}

/* The lock is granted already, so its own reserved part, and half of the spare room, may be used. */
enum backend_result local_store_put_lease(struct local_store *store, const struct local_lease *lease)
{
    local_record_lease(local_store_fresh_record(store), lease);
    return write_put_with_room(store, LOCAL_LEASE, SPARE / 2 + UNDECIDED);
}

void local_store_describe_ticket(const struct backend_ticket *ticket, const char *name, struct local_lease *ret_lease)
{
    bool sequence = lockspace_ticket_sequence(ticket);
    uint8_t guard = !ticket->guarded                        ? 0
                    : ticket->guarded == 1 + BACKEND_BROKEN ? LOCAL_LEASE_BROKEN
                                                            : LOCAL_LEASE_RELEASED;
    *ret_lease = (struct local_lease){
        .name = name,
        .fence = ticket->fence,
        .flags = (uint8_t)((ticket->held ? LOCAL_LEASE_HELD : 0) | (sequence ? LOCAL_LEASE_SEQUENCE : 0) |
                           (ticket->mode == BACKEND_SHARED ? LOCAL_LEASE_SHARED : 0) | guard |
                           local_lease_handle_flag(ticket->kind)),
        .kind = ticket->kind,
        .segments = lockspace_ticket_segments(ticket),
        .ttl = ticket->ttl,
        .acquired = ticket->acquired,
        .deadline = ticket->resting ? LOCAL_RESTING : ticket->deadline,
        .meta = lockspace_ticket_meta(ticket),
        .content = ticket->content,
    };
}

static enum backend_result write_put_ticket(struct local_store *store, const struct backend_ticket *ticket,
                                            uint64_t replaces, uint64_t part)
{
    char name[LOCAL_NAME_MAX];
    struct local_lease lease;
    if (!lockspace_ticket_name(ticket, name, sizeof(name))) {
        return BACKEND_INVALID;
    }
    local_store_describe_ticket(ticket, name, &lease);
    lease.replaces = replaces;
    local_record_lease(local_store_fresh_record(store), &lease);
    bool lasting = store->lasting;
    enum backend_result result = write_put_with_room(store, LOCAL_LEASE, part);
    store->lasting = lasting || ticket->kind == BACKEND_LEASE;
    return result;
}

enum backend_result local_store_put_ticket(struct local_store *store, const struct backend_ticket *ticket,
                                           uint64_t replaces)
{
    return write_put_ticket(store, ticket, replaces, 0);
}

/* A lease may lack this record: a restart derives the grant from the queue.  A handle lock may not, so its room was
 * reserved while it waited. */
enum backend_result local_store_put_granted(struct local_store *store, const struct backend_ticket *ticket)
{
    return local_store_put_granted_as(store, ticket, 0);
}

enum backend_result local_store_put_granted_as(struct local_store *store, const struct backend_ticket *ticket,
                                               uint64_t replaces)
{
    if (ticket->kind != BACKEND_LEASE) {
        return write_put_ticket(store, ticket, replaces, SPARE / 2 + UNDECIDED);
    }
    enum backend_result result = write_put_ticket(store, ticket, replaces, 0);
    return result == BACKEND_FULL ? local_store_put_untimed(store) : result;
}

enum backend_result local_store_put_end(struct local_store *store, uint64_t fence, enum backend_kind kind)
{
    uint64_t le = GUINT64_TO_LE(fence);
    bool lasting = store->lasting;
    enum backend_result result = local_store_put(store, LOCAL_END, &le, sizeof(le));
    store->lasting = lasting || kind == BACKEND_LEASE;
    if (result == BACKEND_OK) {
        g_array_append_val(store->ends, fence);
    }
    return result;
}

enum backend_result local_store_put_renewals(struct local_store *store, struct backend_ticket *const *tickets,
                                             size_t count)
{
    GByteArray *record = local_store_fresh_record(store);
    for (size_t i = 0; i < count; i++) {
        local_record_u64(record, tickets[i]->fence);
        local_record_u64(record, (uint64_t)tickets[i]->ttl);
        local_record_u64(record, tickets[i]->resting ? LOCAL_RESTING : (uint64_t)tickets[i]->deadline);
    }
    return write_put_timed(store, LOCAL_RENEWALS);
}

enum backend_result local_store_put_change(struct local_store *store, uint64_t fence,
                                           const struct backend_change *change)
{
    GByteArray *record = local_store_fresh_record(store);
    uint8_t set = (uint8_t)change->set;
    local_record_u64(record, fence);
    g_byte_array_append(record, &set, 1);
    local_record_bytes(record, change->set & BACKEND_SET_META ? change->meta : NULL);
    local_record_bytes(record, change->set & BACKEND_SET_CONTENT ? change->content : NULL);
    return write_put_with_room(store, LOCAL_CHANGE, 0);
}

/* After a crash the directory's numbers go on behind the reserved ones. */
void local_store_record_directory(struct local_store *store, const char *name,
                                  const struct backend_directory *directory)
{
    struct backend_directory kept = *directory;
    const uint64_t *reserved = g_hash_table_lookup(store->numbers, name);
    if (reserved) {
        kept.sequence = MAX(kept.sequence, *reserved);
    }
    local_record_directory(local_store_fresh_record(store), name, &kept);
}

enum backend_result local_store_put_directory(struct local_store *store, const char *name,
                                              const struct backend_directory *directory)
{
    local_store_record_directory(store, name, directory);
    return write_put_with_room(store, LOCAL_DIRECTORY, 0);
}

enum backend_result local_store_put_rmdir(struct local_store *store, const char *name)
{
    g_hash_table_remove(store->numbers, name);
    local_record_string(local_store_fresh_record(store), name);
    return write_put_with_room(store, LOCAL_RMDIR, SPARE / 2);
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
        g_hash_table_remove(store->numbers, name);
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
    if (r < 0) {
        g_hash_table_remove_all(store->numbers); /* reserve them again */
        store->wall = INT64_MIN / 2;             /* record the session again */
    }
    if (r < 0 && !journal_failed(store->journal)) {
        store->unwritten = store->ends->len > 0;
        store->untimed = false;
        write_set_full(store, r);
        return BACKEND_FULL;
    }
    g_array_set_size(store->ends, 0);
    if (r < 0) {
        local_store_report_failure(store);
        return BACKEND_UNREACHABLE;
    }
    if (store->roomless) {
        write_set_full(store, 0);
    }
    if (store->lasting) {
        store->lasting = false;
        *ret_sequence = journal_sequence(store->journal);
        if (store->sync_always) {
            journal_sync(store->journal);
        }
    }
    return BACKEND_OK;
}

/* Checks once in a millisecond: no daemon starts within that. */
bool local_store_in_place(struct local_store *store)
{
    clock_ms now = clock_now();
    if (store->displaced || store->checked_at == now) {
        return !store->displaced;
    }
    store->checked_at = now;
    store->displaced = !journal_in_place(store->journal);
    if (store->displaced) {
        store->displaced_at = now;
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
    local_store_report_failure(store);
    status->address = g_strconcat("local:", store->directory, NULL);
    status->has_journal = true;
    status->journal_bytes = journal_size(store->journal);
    status->journal_records = journal_sequence(store->journal);
    if (failed) {
        status->away = true;
        status->since = store->failed_at;
        status->why = g_strdup_printf("%s/journal: %s", store->directory, g_strerror(failed));
    } else if (!local_store_in_place(store)) {
        status->away = true;
        status->since = store->displaced_at;
        status->why = g_strdup_printf("%s was removed or replaced", store->directory);
    }
    local_store_may_keep(store); /* updates store->full */
    if (store->full) {
        g_ptr_array_add(
            status->warnings,
            g_strdup_printf("%s/journal: the disk is full: new locks are refused until there is room%s",
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

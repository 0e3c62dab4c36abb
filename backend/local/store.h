/* store: the contents of a local backend's journal.
 *
 * Turns leases, directories, sessions and reservations of fencing tokens into
 * journal records; on opening, fills a lockspace from them.  The journal keeps
 * leases, and handle locks that hold.  Waiting handle locks and provisional locks
 * end with the daemon.  A handle lock ends with its host, so no sync is made for
 * it, and its deadline is not kept.
 *
 * A session is one run of the daemon.  The deadlines (CLOCK_BOOTTIME) in the
 * records after it are valid only in the boot that its boot id names; after a
 * reboot, ages follow from the wall clock, so a session record is repeated when
 * the wall clock was set.
 *
 * While its disk is full a store refuses new locks (BACKEND_FULL), and renews and
 * releases: room for the ends of all leases is reserved on the disk, and one
 * record says that renewals may be missing from then on.
 *
 * The local_store_put_ functions only add to a batch; local_store_commit writes
 * it.  After a crash any prefix of a batch may be found, so each must be a valid
 * state.
 */
#ifndef BACKEND_LOCAL_STORE_H
#define BACKEND_LOCAL_STORE_H

#include "backend/local/local.h"
#include "backend/local/record.h"
#include "backend/lockspace/lockspace.h"

#define LOCAL_NAME_MAX 4096 /* bytes of a path, with its NUL */

struct local_store; /* opaque */

/* Opens the journal and restores directories, leases and handle locks into `space`.  The
 * restored locks become due from the first millisecond on, 50 in each.  0, or -errno with
 * one line in `error`. */
int local_store_open(const struct local_options *options, struct lockspace *space, struct local_store **ret_store,
                     char *error, size_t error_size);

/* Gives back unused reservations of numbers, and closes.  NULL is allowed. */
void local_store_close(struct local_store *store);

/* Sets what another thread calls when local_store_synced may have grown, or
 * local_store_step has work again; NULL: nothing. */
void local_store_on_synced(struct local_store *store, void (*synced)(void *arg), void *arg);

/* Are the journal's files still at their paths?  Once they are not, the store must
 * grant nothing: another daemon may grant the same names there. */
bool local_store_in_place(struct local_store *store);

/* May fencing tokens and numbers of queues be given out?  True also while their
 * reservation is pending: see local_store_fence_sequence. */
bool local_store_may_number(struct local_store *store);

/* Report the next token or number only once local_store_synced has reached this; 0: at
 * once.  Then it is reserved, and not given out again even after a loss of power. */
uint64_t local_store_fence_sequence(struct local_store *store);

/* Is there room on the disk for a lease of usual size? */
enum backend_result local_store_may_keep(struct local_store *store);

/* Is there room for the renewals of `count` leases? */
bool local_store_may_renew(struct local_store *store, size_t count);

/* *ret_lease borrows the ticket's `name`. */
void local_store_describe_ticket(const struct backend_ticket *ticket, const char *name, struct local_lease *ret_lease);
/* BACKEND_OK, or BACKEND_UNREACHABLE once the journal failed, or BACKEND_FULL if
 * the disk is full or the record would be too long.  Ends, and a lease's renewals
 * and `granted` (the grant after a wait), are never FULL.
 * `replaces`: the ticket's fencing token in its earlier record; 0: none. */
enum backend_result local_store_put_lease(struct local_store *store, const struct local_lease *lease);
enum backend_result local_store_put_ticket(struct local_store *store, const struct backend_ticket *ticket,
                                           uint64_t replaces);
enum backend_result local_store_put_granted(struct local_store *store, const struct backend_ticket *ticket);
enum backend_result local_store_put_granted_as(struct local_store *store, const struct backend_ticket *ticket,
                                               uint64_t replaces);
enum backend_result local_store_put_end(struct local_store *store, uint64_t fence, enum backend_kind kind);
enum backend_result local_store_put_renewals(struct local_store *store, struct backend_ticket *const *tickets,
                                             size_t count);
enum backend_result local_store_put_change(struct local_store *store, uint64_t fence,
                                           const struct backend_change *change);
enum backend_result local_store_put_directory(struct local_store *store, const char *name,
                                              const struct backend_directory *directory);
enum backend_result local_store_put_rmdir(struct local_store *store, const char *name);

/* Call it for each new sequence ticket, of any kind, so that the directory's
 * numbers go on after a restart. */
enum backend_result local_store_put_number(struct local_store *store, const struct backend_ticket *ticket);

/* Writes the batch; BACKEND_OK, BACKEND_UNREACHABLE or, if the filesystem cannot
 * reserve room, BACKEND_FULL: then ends are written as soon as possible, before
 * anything else.  `*ret_sequence`: once local_store_synced has reached it, all of
 * the batch survives the host; 0: nothing in it must.  With sync_always the sync
 * has been started. */
enum backend_result local_store_commit(struct local_store *store, uint64_t *ret_sequence);

bool local_store_failed(const struct local_store *store);

/* Fills in the address, the journal's size, and any failure. */
void local_store_status(struct local_store *store, struct backend_status *status);

uint64_t local_store_synced(const struct local_store *store);

/* Begins or continues compaction, by about a millisecond's work; true if it should
 * be called again without waiting. */
bool local_store_step(struct local_store *store);

/* See journal_lock_descriptor. */
int local_store_lock_descriptor(const struct local_store *store);

#endif

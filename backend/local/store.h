/* store: what a local backend writes down, and how it reads it back.
 *
 * Turns leases, directories, sessions and reservations of fencing tokens into
 * journal records; on opening, fills a lockspace from them.  Of tickets leases
 * are kept, and handle locks that hold; waits by a handle and
 * provisional locks end with the daemon.  A handle lock ends with its host: it is
 * never synced for its own sake, and its deadline is not kept.
 *
 * A session is one run of the daemon: its boot id tells whether the deadlines
 * (CLOCK_BOOTTIME) in the records after it still mean anything.  Its record comes
 * again when the wall clock was set, by which times are told after a reboot.
 *
 * A store whose disk is full takes no new lock, BACKEND_FULL, until there is room
 * again, but goes on: the ends of all leases have their room on the disk
 * beforehand, and one record says that renewals may be missing from then on.
 *
 * The local_store_put_ functions only add to a batch; local_store_commit writes
 * it.  Any prefix of a batch must be a state that may be found after a crash.
 */
#ifndef BACKEND_LOCAL_STORE_H
#define BACKEND_LOCAL_STORE_H

#include "backend/local/local.h"
#include "backend/local/record.h"
#include "backend/lockspace/lockspace.h"

#define LOCAL_NAME_MAX 4096 /* bytes of a path, with its NUL */

struct local_store; /* opaque */

/* Opens the journal and restores directories, leases and handle locks into `space`, `due` in
 * a millisecond, very many of them one after the other.  0, or -errno with one line in `error`. */
int local_store_open(const struct local_options *options, struct lockspace *space, struct local_store **ret_store,
                     char *error, size_t error_size);

/* Writes the exact next fencing token, and closes.  NULL is allowed. */
void local_store_close(struct local_store *store);

/* `synced` is called from another thread whenever local_store_synced, or
 * local_store_step, may have something new; NULL: never again. */
void local_store_on_synced(struct local_store *store, void (*synced)(void *arg), void *arg);

/* Whether the directory and what is in it are still where the next daemon would
 * look.  Once they are not, nothing may be granted any more, of any kind: another
 * daemon may grant the same names. */
bool local_store_in_place(struct local_store *store);

/* Whether fencing tokens and numbers of queues may be given out: they are reserved, or
 * will be.  Until then, who is given one must not hear of it: see local_store_numbered. */
bool local_store_may_number(struct local_store *store);

/* What local_store_synced must reach for the next token and number not to come again once
 * they are given, not even after power loss; 0: it has. */
uint64_t local_store_numbered(struct local_store *store);

/* Whether a lease of usual size would find room on the disk. */
enum backend_result local_store_may_keep(struct local_store *store);

/* Whether the renewals of `count` leases would. */
bool local_store_may_renew(struct local_store *store, size_t count);

/* BACKEND_OK, or BACKEND_UNREACHABLE once the journal failed, or BACKEND_FULL if
 * the disk is full or the record would be too long.  Never FULL are the end of a
 * ticket, a lease's renewal, and a lease's `granted`: its turn in a queue it stands in.
 * `replaces`: the fencing token under which the ticket was written down before; 0: none. */
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

/* To be called when a sequence ticket has been made, whatever its kind: the
 * directory's numbers go on after a restart. */
enum backend_result local_store_put_number(struct local_store *store, const struct backend_ticket *ticket);

/* Writes the batch; BACKEND_OK, BACKEND_UNREACHABLE or, if the filesystem can
 * keep no room, BACKEND_FULL: then ends are written when that is possible again,
 * before anything else.  `*ret_sequence` is what
 * local_store_synced must reach for all of it to survive the host; 0 if
 * nothing in it must: the batch was empty, or had only handle locks.  With sync_always the sync has been asked for. */
enum backend_result local_store_commit(struct local_store *store, uint64_t *ret_sequence);

bool local_store_failed(const struct local_store *store);

/* Address and journal, and when and why it failed if it has. */
void local_store_status(struct local_store *store, struct backend_status *status);

uint64_t local_store_synced(const struct local_store *store);

/* Carries compaction on, when the journal has grown enough, by about a
 * millisecond's work; true if it should be called again without waiting. */
bool local_store_step(struct local_store *store);

#endif

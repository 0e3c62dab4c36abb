/* lockspace: the lock state machine.
 *
 * Pure: no I/O, no clock, no logging; the caller passes the time as `now`.  It keeps a tree
 * of directories and, in each, locks and sequence tickets by name.  Every lock
 * is a queue of tickets ordered by fencing token.  backend.h says what a ticket, a
 * claim and each operation mean; the functions here are their synchronous halves
 * and return the same enum backend_result.
 *
 * The rule that grants: a ticket that holds goes on holding until it ends.  A
 * waiting ticket may hold when it conflicts with no holder and with no waiting
 * ticket before it.  Two tickets conflict unless both are shared, or their
 * identities match (backend_identity_matches), or both are FCNTL and their ranges
 * do not overlap.
 *
 * There is one exception to the order: a waiter W does not block a claim whose
 * identity already has a holder that conflicts with W, or that has the whole lock.
 * W waits for that holder anyway, and otherwise nobody could extend, upgrade or
 * downgrade a lock that another waits for.  A ticket that was overtaken like this,
 * or by a grant in another range, gets a new fencing token with its own grant, so
 * that the fencing tokens of a lock grow from holder to holder.
 *
 * A claim may not wait for the identity of W while W waits for its own: of two
 * shared holders that wait to become exclusive, neither would ever be.
 *
 * In a directory's queue of sequence tickets, identities and ranges do not count: an
 * exclusive ticket may hold when fewer than `width` tickets stand before it, a
 * shared one when only shared ones do.
 *
 * A claim that cannot hold waits only if claim->wait is set.  Else it is BUSY, also
 * if only a waiting ticket blocks it.  An expired ticket is never granted and never
 * blocks a claim, even before a tick has ended it.
 *
 * Cost: acquire, release, hand-over and rank are O(log n) in the number of
 * tickets of the queue and, for a lock owner, O(n) in the number of its own segments.  Where many waiters may be
 * granted, or must be looked at, one call looks at 64 of them, and lockspace_tick at the others: lockspace_next is 0
 * until that is done.  A lock without tickets does not exist and costs nothing; one with one lease
 * costs about 220 bytes and its name.
 *
 * A revoked ticket with a guard (backend_parse_guard) leaves an ownerless ticket, the
 * guard, in its place.  The guard is shown as the holder, has no identity, and ends with its term.
 */
#ifndef BACKEND_LOCKSPACE_LOCKSPACE_H
#define BACKEND_LOCKSPACE_LOCKSPACE_H

#include "backend/backend.h"

struct lockspace; /* opaque */

/* Events; none is NULL.  Called inside the lockspace_ call that causes them, so they must not
 * call the lockspace, except for the lockspace_ticket_ accessors.  With
 * `ended` the ticket has left the lockspace and belongs to the listener, which
 * frees it with lockspace_ticket_free, now or later; until then only the accessors
 * take it.  `ended` is not called for lockspace_release, and `granted` not for a ticket that
 * lockspace_acquire or lockspace_restore grants. */
struct lockspace_listener {
    void (*granted)(void *context, struct backend_ticket *ticket);
    void (*due)(void *context, struct backend_ticket *ticket);
    void (*ended)(void *context, struct backend_ticket *ticket, enum backend_end why);
    void (*wanted)(void *context, struct backend_ticket *ticket);
    /* another has taken an FCNTL ticket over; it is freed when this returns */
    void (*absorbed)(void *context, struct backend_ticket *ticket);
    /* before the `ended` of a ticket with a guard: `ticket` is the guard, and keeps the lock */
    void (*guarded)(void *context, struct backend_ticket *ticket);
    /* a guard has ended; it is freed when this returns */
    void (*unguarded)(void *context, struct backend_ticket *ticket);
};

/* `seed` decides the skiplists' levels.  Fencing tokens start at 1. */
struct lockspace *lockspace_new(const struct lockspace_listener *listener, void *context, uint32_t seed);
void lockspace_free(struct lockspace *space);

/* The next fencing token to be given; it can only be raised.  To give tokens that follow the
 * clock, raise it to the clock before each lockspace_acquire and lockspace_rename. */
uint64_t lockspace_next_fence(const struct lockspace *space);
void lockspace_raise_fence(struct lockspace *space, uint64_t next);

/* No sequence ticket, of any directory, has this number or a greater one. */
uint64_t lockspace_next_number(const struct lockspace *space);

/* OK and QUEUED set *ret_ticket; BUSY fills *ret_holder (if not NULL; borrowed
 * until the next call); other results leave both untouched.  MISSING: the
 * directory is not there; IS_DIRECTORY: the name is one; INVALID: no name can
 * have that form, or the range ends before it starts; DEADLOCK: the claim and one
 * that waits would wait for each other, or an FCNTL claim that waits would close a cycle of lock owners.  The search
 * for cycles passes only through tickets that have a lock owner, and gives up after looking at 1,000.
 *
 * A lock owner holds one ticket with any number of segments.  When an FCNTL claim is granted, its ticket takes over
 * the segments, fencing token, meta and content of the lock owner's earlier ticket, which is `absorbed`.  A ticket that
 * has waited does so with lockspace_claim.  A ticket is exclusive if one of its segments is. */
enum backend_result lockspace_acquire(struct lockspace *space, clock_ms now, const char *name,
                                      const struct backend_claim *claim, struct backend_ticket **ret_ticket,
                                      struct backend_info *ret_holder);

/* Does the user learn of a grant by lockspace_acquire only after the call has returned?  Then lockspace_claim completes
 * each such grant. */
void lockspace_defer_grants(struct lockspace *space, bool defer);

/* Call it for a holder when its user learns of the grant: after `granted`, or after a deferred grant. */
void lockspace_claim(struct lockspace *space, clock_ms now, struct backend_ticket *ticket);

/* Removes a ticket and grants what has become free; to many waiters, in parts. */
void lockspace_release(struct lockspace *space, clock_ms now, struct backend_ticket *ticket);

/* MISSING: nothing is left of it, so it was released.  QUOTA: it would have too many segments. */
enum backend_result lockspace_release_range(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                            uint64_t start, uint64_t end);
/* A waiting ticket may get `granted` before this returns.  STALE: the ticket
 * has expired, and a tick is about to end it. */
enum backend_result lockspace_convert(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                      const struct backend_claim *claim);
/* A holder that has expired (lockspace_ticket_is_expired) ends here as LOST. */
void lockspace_renew(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, int64_t ttl, int64_t due);
/* A holder that was just renewed: it is not due and does not end until it is renewed again, or woken. */
void lockspace_rest(struct lockspace *space, struct backend_ticket *ticket, uint32_t keeper);
/* Starts the terms of at most `max` tickets of this keeper that rest, which are due now; returns how many. */
size_t lockspace_wake(struct lockspace *space, clock_ms now, uint32_t keeper, struct backend_ticket **ret_tickets,
                      size_t max);
void lockspace_set(struct backend_ticket *ticket, const struct backend_change *change);
/* Do all tickets that lockspace_revoke would end match, and is none of them a guard?  True if there are none. */
bool lockspace_revoked_match(struct lockspace *space, const char *name, uint64_t fence,
                             const struct backend_match *match);
/* MISSING: nobody holds it.  Also ends a sequence ticket that waits. */
enum backend_result lockspace_revoke(struct lockspace *space, clock_ms now, const char *name, uint64_t fence);
/* The ticket gets the next fencing token, because its new name may have seen any
 * before; `replaced` (NULL: none), if it holds that name, `ended` as RELEASED.
 * STALE: it does not hold; INVALID: it is a sequence ticket. */
enum backend_result lockspace_rename(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                     const char *name, struct backend_ticket *replaced);
/* The result that lockspace_rename would give.  Ends expired tickets that block it. */
enum backend_result lockspace_may_rename(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                         const char *name, const struct backend_ticket *replaced);
/* These two do not end what has expired: tick first. */
void lockspace_test(struct lockspace *space, const char *name, const struct backend_claim *claim,
                    struct backend_info *ret_info);
void lockspace_stat(struct lockspace *space, const char *name, struct backend_info *ret_info);

/* Fills at most `max` entries; returns how many, or a negated result
 * (-BACKEND_MISSING, -BACKEND_NOT_DIRECTORY).  Names are borrowed until the
 * next call that changes the space. */
int lockspace_list(struct lockspace *space, const char *directory, const char *after, size_t max,
                   struct backend_entry *ret_entries);

/* The same for the tickets of a directory's queue.  ret_entries[i].info is &ret_infos[i].  After many names that are no
 * tickets it ends early: then the last entry is no ticket, and the next call continues after its name. */
int lockspace_tickets(struct lockspace *space, const char *directory, const char *after, size_t max,
                      struct backend_entry *ret_entries, struct backend_info *ret_infos);

/* A name that is only refused for its directory's `delay` is not listed, but
 * keeps its directory from being removed. */
enum backend_result lockspace_mkdir(struct lockspace *space, const char *name,
                                    const struct backend_directory *directory);
enum backend_result lockspace_rmdir(struct lockspace *space, const char *name);
enum backend_result lockspace_set_directory(struct lockspace *space, clock_ms now, const char *name,
                                            const struct backend_directory *directory);
struct backend_counts lockspace_counts(const struct lockspace *space);
/* How many tickets a store may have to keep later without a question: closing a file makes leases of PROVISIONAL
 * tickets, and of FLOCK ones in a directory's queue; and handle locks that wait are granted. */
uint64_t lockspace_keep_candidates(const struct lockspace *space);

/* What a ticket is, beyond its public head.  The name is written to `buffer`
 * (NUL-terminated, whole path); false if it does not fit. */
bool lockspace_ticket_name(const struct backend_ticket *ticket, char *buffer, size_t size);
GBytes *lockspace_ticket_meta(const struct backend_ticket *ticket);  /* borrowed; may be NULL */
bool lockspace_ticket_sequence(const struct backend_ticket *ticket); /* is it in a directory's queue */
/* Of an FCNTL ticket, what it covers: struct backend_segment, borrowed; NULL: the whole lock. */
GArray *lockspace_ticket_segments(const struct backend_ticket *ticket);
/* Makes a ticket that was just restored, and holds, a guard; its holder lost the lock for this reason. */
void lockspace_restore_guard(struct backend_ticket *ticket, enum backend_end why);

/* Frees a ticket that `ended` has handed over.  NULL is allowed. */
void lockspace_ticket_free(struct backend_ticket *ticket);

/* Time.  lockspace_next: when lockspace_tick next has something to do, or
 * CLOCK_NEVER.  lockspace_tick: reports `due`, and ends expired tickets.  A ticket is expired when its deadline is
 * at or before now and, if it was due before that, `due` was reported and lockspace_due_handled was called.  So a late
 * tick ends no ticket that its user renews.  A ticket ends only by tick, so that its end is reported exactly once; but
 * a claim that an expired ticket blocks ends it, too.  Handles at most `max` tickets and returns how many. */
clock_ms lockspace_next(const struct lockspace *space);
size_t lockspace_tick(struct lockspace *space, clock_ms now, size_t max);
/* Call it when the user has handled `due`, and may have renewed the ticket, if the ticket is still there. */
void lockspace_due_handled(struct lockspace *space, struct backend_ticket *ticket);
/* Is it expired, as lockspace_tick decides that?  Not for a ticket that has ended. */
bool lockspace_ticket_is_expired(const struct backend_ticket *ticket, clock_ms now);

/* For a store that reads itself back: restores a lease, holding, with its
 * fencing token and times (ttl and `due` from the claim; due counts from now).  With
 * claim->sequence the name is that of the ticket, number and all.  With
 * claim->wait it is one that waited: it holds only if nothing blocks it, else
 * the result is QUEUED; so restore tickets in the order of their fencing tokens.
 * A handle lock holds beside whatever it held beside before: it is never BUSY for that.  `segments` (of
 * struct backend_segment, borrowed): what an FCNTL ticket covers; NULL: the claim's range.
 * BUSY if the name is held, MISSING if its directory is not there: nothing is
 * changed.  A ticket whose deadline has passed is restored, too, and is expired unless the claim has a `due`. */
enum backend_result lockspace_restore(struct lockspace *space, clock_ms now, const char *name,
                                      const struct backend_claim *claim, const GArray *segments, uint64_t fence,
                                      clock_ms acquired, clock_ms deadline, struct backend_ticket **ret_ticket);

/* A restored handle lock belongs to this handle and lock owner. */
void lockspace_identify(struct lockspace *space, struct backend_ticket *ticket, struct backend_identity identity);

/* It had expired when it was restored, and its user renews it: it is due, and goes on until lockspace_due_handled. */
void lockspace_revive(struct lockspace *space, clock_ms now, struct backend_ticket *ticket);

/* For a store that writes itself out: visits directories before what is in
 * them, and every ticket of kind LEASE or of a queue, whether it holds or waits, and every handle lock that holds, in
 * the order of path names beginning after `cursor` ("" at first; the root directory is visited first, with the name "",
 * and not counted).  Looks at up to `max` names, those of other kinds included, and writes where it stopped to
 * `cursor`.  Returns at how many; less than `max` means the end.  The space may
 * change between two calls: what was there throughout is visited once.  A path
 * that does not fit into `cursor` is skipped. */
size_t lockspace_visit(struct lockspace *space, char *cursor, size_t cursor_size, size_t max,
                       void (*directory)(void *arg, const char *name, const struct backend_directory *directory),
                       void (*ticket)(void *arg, const char *name, struct backend_ticket *ticket), void *arg);

#endif

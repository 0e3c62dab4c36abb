/* lockspace: the lock state machine.
 *
 * Pure: no I/O, no clock, no logging; time comes in as `now`.  It keeps a tree
 * of directories and, in each, locks and sequence tickets by name.  Every lock
 * is a queue of tickets ordered by number; see backend.h for what a ticket, a
 * claim and each operation mean: functions here are their synchronous halves
 * and return the same enum backend_result.
 *
 * The rule that grants: a ticket that holds goes on holding until it ends.  A
 * waiting ticket may hold when no ticket that conflicts with it holds, and no
 * waiting ticket that conflicts with it stands before it.  Two tickets conflict
 * unless both are shared, or they are kin (backend_identity_matches), or both are FCNTL and
 * their ranges do not overlap.  A waiting ticket that conflicts with a holder that is kin of
 * yours does not stand before you: it waits for you, so you need not for it
 * (else no one could extend, upgrade or downgrade what another waits for).  Who
 * was overtaken that way, or by a grant in another range, gets a new number with
 * its own grant, so that the fencing tokens of a lock grow from holder to holder.
 *
 * In a directory's queue of sequence tickets there are no kin and no ranges: an
 * exclusive ticket may hold when fewer than `width` tickets stand before it, a
 * shared one when only shared ones do.
 *
 * A claim that cannot hold waits only if it is told to; else it is BUSY, also
 * if it is only a waiting ticket that it must not overtake.  What has expired is
 * not granted to, nor counted against a claim, also before a tick has ended it.
 *
 * Cost: acquire, release, hand-over and rank are O(log n) in the number of
 * tickets of the queue (a shared sequence ticket may cost O(width)); in a lock
 * where kin meet, or two byte ranges, they cost O(n) in that lock's tickets.  A
 * lock without tickets does not exist and costs nothing; one with one lease
 * costs about 220 bytes and its name.
 *
 * What is revoked and has a guard (backend_parse_guard) leaves a ticket of nobody behind, which is told of as the
 * holder, has no kin, and ends when the guard does.
 */
#ifndef BACKEND_LOCKSPACE_LOCKSPACE_H
#define BACKEND_LOCKSPACE_LOCKSPACE_H

#include "backend/backend.h"

struct lockspace; /* opaque */

/* All are there.  Told as they happen, inside the lockspace_ call that causes them; must not
 * call back into the lockspace except for the lockspace_ticket_ accessors.  With
 * `ended` the ticket is out of the lockspace and belongs to the listener, which
 * frees it with lockspace_ticket_free, now or later; until then the accessors
 * still answer for it, and nothing else may be asked of it.  `ended` is not
 * called for lockspace_release, `granted` not for a ticket that
 * lockspace_acquire or lockspace_restore grants. */
struct lockspace_listener {
    void (*granted)(void *context, struct backend_ticket *ticket);
    void (*due)(void *context, struct backend_ticket *ticket);
    void (*ended)(void *context, struct backend_ticket *ticket, enum backend_end why);
    void (*wanted)(void *context, struct backend_ticket *ticket);
    /* another has taken an FCNTL ticket over; it is freed when this returns */
    void (*absorbed)(void *context, struct backend_ticket *ticket);
    /* before the `ended` of a ticket with a guard: this one, of nobody, keeps its place */
    void (*guarded)(void *context, struct backend_ticket *ticket);
    /* one of those has ended; it is freed when this returns */
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
 * be like that, or the range ends before it starts; DEADLOCK: an FCNTL claim
 * that waits would close a cycle of lock owners.  The search for cycles passes only
 * through tickets that have a lock owner, and gives up after 100,000.
 *
 * What a lock owner holds is one ticket with any number of segments: that of an FCNTL claim that is granted takes over
 * the one before it with its number, meta and content, which is `absorbed`; the mode of a ticket is exclusive if one of
 * its segments is.  One that has waited does so with lockspace_claim. */
enum backend_result lockspace_acquire(struct lockspace *space, clock_ms now, const char *name,
                                      const struct backend_claim *claim, struct backend_ticket **ret_ticket,
                                      struct backend_info *ret_holder);

/* Whether users are told of what lockspace_acquire grants them from now on only after it has returned. */
void lockspace_tell_later(struct lockspace *space, bool later);

/* To be called of a ticket that holds, when its user is told of a `granted`, or later than lockspace_acquire. */
void lockspace_claim(struct lockspace *space, clock_ms now, struct backend_ticket *ticket);

/* Removes a ticket and grants what has become free. */
void lockspace_release(struct lockspace *space, clock_ms now, struct backend_ticket *ticket);

/* MISSING: nothing is left of it, so it was released.  QUOTA: it would have too many segments. */
enum backend_result lockspace_release_range(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                            uint64_t start, uint64_t end);
/* Of a ticket that waits, the grant may be told before this returns.  STALE: its
 * deadline has passed, and a tick is about to end it. */
enum backend_result lockspace_convert(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                      const struct backend_claim *claim);
/* One that holds and whose term is over (lockspace_ticket_is_over) ends here, LOST. */
void lockspace_renew(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, int64_t ttl, int64_t due);
void lockspace_set(struct backend_ticket *ticket, const struct backend_change *change);
/* Do all that lockspace_revoke would end match, and is it no guard?  True if there are none. */
bool lockspace_revoked_match(struct lockspace *space, const char *name, uint64_t fence,
                             const struct backend_match *match);
/* MISSING: nobody holds it.  A sequence ticket ends also while it waits. */
enum backend_result lockspace_revoke(struct lockspace *space, clock_ms now, const char *name, uint64_t fence);
/* The ticket gets the next fencing token, since its new name may have seen any
 * before; `replaced` (NULL: none), if it holds that name, `ended` as RELEASED.
 * STALE: it does not hold; INVALID: it is a sequence ticket. */
enum backend_result lockspace_rename(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                     const char *name, struct backend_ticket *replaced);
/* What lockspace_rename would say; what has expired in its way ends. */
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

/* A name that is only refused for its directory's `delay` is not listed, but
 * keeps its directory from being removed. */
enum backend_result lockspace_mkdir(struct lockspace *space, const char *name,
                                    const struct backend_directory *directory);
enum backend_result lockspace_rmdir(struct lockspace *space, const char *name);
enum backend_result lockspace_set_directory(struct lockspace *space, clock_ms now, const char *name,
                                            const struct backend_directory *directory);
struct backend_counts lockspace_counts(const struct lockspace *space);
/* Tickets of which closing a file can make leases: PROVISIONAL, and FLOCK in a directory's queue. */
uint64_t lockspace_undecided(const struct lockspace *space);

/* What a ticket is, beyond its public head.  The name is written to `buffer`
 * (NUL-terminated, whole path); false if it does not fit. */
bool lockspace_ticket_name(const struct backend_ticket *ticket, char *buffer, size_t size);
GBytes *lockspace_ticket_meta(const struct backend_ticket *ticket);  /* borrowed; may be NULL */
bool lockspace_ticket_sequence(const struct backend_ticket *ticket); /* is it in a directory's queue */
/* One that was just put back, and holds, is a guard for that reason. */
void lockspace_restore_guard(struct backend_ticket *ticket, enum backend_end why);

/* Frees a ticket that `ended` has handed over.  NULL is allowed. */
void lockspace_ticket_free(struct backend_ticket *ticket);

/* Time.  lockspace_next: when lockspace_tick next has something to do, or
 * CLOCK_NEVER.  lockspace_tick: tells `due`, and ends tickets whose term is over: their deadline is
 * at or before now, and where they were due before it, that was told and answered (a ticket ends only by tick, so that
 * it is told exactly once; but a claim that meets such a ticket counts it as ended, and ends
 * it there).  So however late a tick is, it ends nothing that its user renews.
 * Handles at most `max` tickets and returns how many. */
clock_ms lockspace_next(const struct lockspace *space);
size_t lockspace_tick(struct lockspace *space, clock_ms now, size_t max);
/* To be called of a ticket that is there still when its user has been told that it is due, and may have renewed it. */
void lockspace_answered(struct lockspace *space, struct backend_ticket *ticket);
/* Whether its term is over, as lockspace_tick decides that.  Of no ticket that has ended. */
bool lockspace_ticket_is_over(const struct backend_ticket *ticket, clock_ms now);

/* For a store that reads itself back: puts a lease as it was, holding, with its
 * token and times (ttl and `due` from the claim; due counts from now).  With
 * claim->sequence the name is that of the ticket, number and all.  With
 * claim->wait it is one that waited: it holds only if its turn has come, else
 * the result is QUEUED; so restore tickets in the order of their fencing tokens.
 * BUSY if the name is held, MISSING if its directory is not there: nothing is
 * changed.  One whose deadline has passed comes back, too, and its term is over unless the claim has a `due`. */
enum backend_result lockspace_restore(struct lockspace *space, clock_ms now, const char *name,
                                      const struct backend_claim *claim, uint64_t fence, clock_ms acquired,
                                      clock_ms deadline, struct backend_ticket **ret_ticket);

/* Its term was over when it was restored, and its user renews it: it is due, and goes on until that is answered. */
void lockspace_revive(struct lockspace *space, clock_ms now, struct backend_ticket *ticket);

/* For a store that writes itself out: visits directories before what is in
 * them, and every ticket of kind LEASE, whether it holds or waits, in the order
 * of path names beginning after `cursor` ("" at first; the root directory is
 * visited first, with the name "", and not counted).  Looks at no more than
 * `max` names, those of other kinds included, and writes where it stopped to
 * `cursor`.  Returns at how many; less than `max` means the end.  The space may
 * change between two calls: what was there throughout is visited once.  A path
 * for which `cursor` has no room is passed over. */
size_t lockspace_visit(struct lockspace *space, char *cursor, size_t cursor_size, size_t max,
                       void (*directory)(void *arg, const char *name, const struct backend_directory *directory),
                       void (*lease)(void *arg, const char *name, struct backend_ticket *ticket), void *arg);

#endif

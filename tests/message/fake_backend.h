/* fake_backend: a store that a check controls.
 *
 * By itself it is a small, slow and correct implementation of backend.h (without DEADLOCK), which answers every call
 * before it returns.  The check can hold back completions, answer them late, in another order or with a failure, hold
 * names like another mount or client, mount it twice, and end tickets.  The check also decides when events are
 * reported, and what time it is.
 */
#ifndef TESTS_MESSAGE_FAKE_BACKEND_H
#define TESTS_MESSAGE_FAKE_BACKEND_H

#include "backend/backend.h"

enum fake_call {
    FAKE_ACQUIRE,
    FAKE_RELEASE,
    FAKE_RELEASE_RANGE,
    FAKE_CONVERT,
    FAKE_RENEW, /* counted only: it has no completion */
    FAKE_SET,
    FAKE_REVOKE,
    FAKE_RENAME,
    FAKE_TEST,
    FAKE_STAT,
    FAKE_LIST,
    FAKE_MKDIR,
    FAKE_RMDIR,
    FAKE_SET_DIRECTORY,
    FAKE_CALLS
};

struct fake_backend; /* opaque */

/* `now` is the check's clock.  `beside`: another mount of the same store, or
 * NULL: of a store of its own. */
struct fake_backend *fake_backend_new(clock_ms *now, unsigned features, const struct fake_backend *beside);
/* The daemon has died: another mount of the same store, which finds the leases and held handle locks of the one before
 * by backend_recover.  Provisional locks and other waiters are gone, as are calls that were held back.  `fake` is
 * abandoned, not freed. */
struct fake_backend *fake_backend_die(struct fake_backend *fake);
/* Calls `death`, which does not return, in the nth call of this kind from now (0: the next): before it is carried out,
 * or after that and before it is completed. */
void fake_backend_die_at(struct fake_backend *fake, enum fake_call call, unsigned nth, bool after, void (*death)(void));
/* Freed with backend_free. */
struct backend *fake_backend_head(struct fake_backend *fake);

/* Holds back all further calls of this kind, or ends that. */
void fake_backend_hold(struct fake_backend *fake, enum fake_call call, bool hold);
/* How many are held back, and how many there ever were. */
unsigned fake_backend_held_back(const struct fake_backend *fake, enum fake_call call);
unsigned fake_backend_count(const struct fake_backend *fake, enum fake_call call);
/* Carries out the nth call held back (0: the oldest) and completes it. */
void fake_backend_answer(struct fake_backend *fake, enum fake_call call, unsigned nth);
/* Carries out the oldest acquire held back; fake_backend_answer completes it. */
void fake_backend_carry_out(struct fake_backend *fake);
/* Completes it with this result; nothing is carried out.  OK of a stat: there is nothing. */
void fake_backend_refuse(struct fake_backend *fake, enum fake_call call, unsigned nth, enum backend_result result);
/* All further calls of this kind fail with this result; BACKEND_OK: none. */
void fake_backend_fail(struct fake_backend *fake, enum fake_call call, enum backend_result result);

/* fake_backend_deliver reports events, unless they are held. */
void fake_backend_hold_events(struct fake_backend *fake, bool hold);
/* Reverses the order of the pending events. */
void fake_backend_reverse_events(struct fake_backend *fake);
/* Was there any? */
bool fake_backend_deliver(struct fake_backend *fake);
unsigned fake_backend_events(const struct fake_backend *fake);
/* Moves the clock; `due` and `ended` events of that time are reported in order. */
void fake_backend_advance(struct fake_backend *fake, int64_t milliseconds);

/* Another mount takes the name (which must be free) or leaves it again, if
 * its lock was not broken meanwhile. */
void fake_backend_occupy(struct fake_backend *fake, const char *name, enum backend_kind kind, enum backend_mode mode);
/* From now on the backend may find locks after backend_recover has returned. */
void fake_backend_begin_recovery(struct fake_backend *fake);
/* Finds those that were kept since, which are the last. */
void fake_backend_end_recovery(struct fake_backend *fake);
/* The daemon before this one has left a lease of the name, which backend_recover finds next; of its content it tells
 * nothing. */
void fake_backend_keep(struct fake_backend *fake, const char *name, const char *content);
/* The same of a handle lock, with this meta. */
void fake_backend_keep_handle_lock(struct fake_backend *fake, const char *name, enum backend_kind kind,
                                   enum backend_mode mode, GBytes *meta);
/* The same of a ticket of a queue. */
void fake_backend_keep_ticket(struct fake_backend *fake, const char *name, bool held, GBytes *meta);
/* A client that is no mount does: nothing is known but its content, and `meta`, which may be anything, or NULL. */
void fake_backend_occupy_plainly(struct fake_backend *fake, const char *name, const char *content, const char *meta);
void fake_backend_vacate(struct fake_backend *fake, const char *name);
/* The store has lost it, and nothing that is held in it. */
void fake_backend_forget_directory(struct fake_backend *fake, const char *name);
/* Ends the holders of the name. */
void fake_backend_end(struct fake_backend *fake, const char *name, enum backend_end why);

unsigned fake_backend_holders(const struct fake_backend *fake, const char *name);
unsigned fake_backend_waiters(const struct fake_backend *fake, const char *name);
/* Tickets of this mount, of that kind, that hold or wait. */
unsigned fake_backend_tickets(const struct fake_backend *fake, enum backend_kind kind);
/* The first holder of the name, or NULL. */
const struct backend_ticket *fake_backend_holder(const struct fake_backend *fake, const char *name);
/* Of that: borrowed, or NULL. */
GBytes *fake_backend_meta(const struct backend_ticket *ticket);

#endif

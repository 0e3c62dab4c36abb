/* private: what the files of the local backend share.
 *
 * local.c   the calls of backend.h
 * rename.c  one of them
 * loop.c    events and completions that wait for the loop; the alarm
 * store.c   the journal's contents, with write.c, record.c and replay.c
 */
#ifndef BACKEND_LOCAL_PRIVATE_H
#define BACKEND_LOCAL_PRIVATE_H

#include <ev.h>
#include <sys/queue.h>

#include "backend/local/local.h"
#include "backend/local/store.h"
#include "backend/lockspace/lockspace.h"

struct local_event;  /* an event or completion that the loop will report */
struct local_rename; /* a rename that waits for the journal */
TAILQ_HEAD(local_events, local_event);

struct local {
    struct backend head; /* first: a backend is passed around as this */
    struct lockspace *space;
    struct local_store *store; /* NULL: no journal */
    bool sync_always;

    struct ev_loop *loop; /* NULL until started */
    clock_ms started;
    const struct backend_events *events;
    void *context;
    struct ev_prepare prepare;
    struct ev_idle again;   /* active while the loop must not sleep */
    struct ev_io alarm;     /* a timerfd on CLOCK_BOOTTIME, which goes on while suspended */
    struct ev_async synced; /* the journal's thread has synced more */
    clock_ms armed;         /* when the alarm will go off */
    bool late;              /* the alarm went off, and some tickets that were due are not handled yet */

    struct local_events ready;
    struct local_events unsynced; /* by the sequence they wait for */
    LIST_HEAD(, local_rename) renames;
    GArray *waking;                       /* uint32_t: keepers whose tickets must be woken */
    GHashTable *pending;                  /* ticket -> its event, if it has one */
    struct backend_ticket *reporting_end; /* during the call of `ended`: its ticket */
    struct backend_ticket *reporting_due; /* during the call of `due`: its ticket; NULL once that is released */
};

/* Does the journal record holders of this kind?  Leases and handle locks, not provisional locks. */
static inline bool local_is_kept(const struct local *l, enum backend_kind kind)
{
    return l->store && kind != BACKEND_PROVISIONAL;
}

/* Does the journal have this ticket?  It has a handle lock while it holds, and each ticket of a queue. */
static inline bool local_is_recorded(const struct local *l, const struct backend_ticket *ticket)
{
    return local_is_kept(l, ticket->kind) &&
           (ticket->kind == BACKEND_LEASE || ticket->held || lockspace_ticket_sequence(ticket));
}

/* --- rename.c --- */

void local_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg);
/* Frees all pending renames; their completions are not called. */
void local_rename_end_all(struct local *l);

/* --- loop.c --- */

extern const struct lockspace_listener local_listener;

/* Creates the alarm.  0 or -errno. */
int local_loop_init(struct local *l);
void local_loop_start(struct local *l, struct ev_loop *loop, const struct backend_events *events, void *context);
/* Drops all events and completions that were not reported yet. */
void local_loop_end(struct local *l);

/* The result of a call on `name` that needs a fencing token and, if `kept`, a journal record; OK: it may go on.  Raises
 * the next token to the clock. */
enum backend_result local_may_grant(struct local *l, const char *name, bool kept);
/* The journal sequence that must be synced before the next fencing token or queue number may be reported; 0: none. */
uint64_t local_fence_sequence(struct local *l);
/* Writes the batch to the journal.  `*ret_sequence` is the sequence that a completion
 * must wait for: 0 unless sync_always. */
enum backend_result local_commit(struct local *l, uint64_t *ret_sequence);

/* Has the ticket ended, with `ended` not yet reported or just being reported? */
bool local_has_ended(struct local *l, const struct backend_ticket *ticket);

/* Drops the pending events of a ticket; frees it if it has ended. */
void local_forget(struct local *l, struct backend_ticket *ticket);

/* Ends a ticket as LOST, because its grant could not be recorded. */
void local_lose(struct local *l, clock_ms now, struct backend_ticket *ticket);

/* Completes a call, at once or when the journal is synced up to `sequence`;
 * with `if_lost` when that fails.  `done` may be NULL. */
void local_complete(struct local *l, uint64_t sequence, backend_done *done, void *arg, enum backend_result result,
                    enum backend_result if_lost);
/* The same, but after the events that are pending now. */
void local_complete_later(struct local *l, uint64_t sequence, backend_done *done, void *arg, enum backend_result result,
                          enum backend_result if_lost);
/* The same for an acquire that got a ticket. */
void local_complete_acquire(struct local *l, uint64_t sequence, backend_acquire_done *done, void *arg,
                            enum backend_result result, struct backend_ticket *ticket);

/* Ends expired tickets, a part at a time. */
void local_tick(struct local *l, clock_ms now);

#endif

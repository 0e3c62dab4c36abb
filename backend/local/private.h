/* private: what the files of the local backend share.
 *
 * local.c   the calls of backend.h
 * rename.c  one of them
 * loop.c    events and completions that wait for the loop; the alarm
 * store.c   what is written down, with write.c, record.c and replay.c
 */
#ifndef BACKEND_LOCAL_PRIVATE_H
#define BACKEND_LOCAL_PRIVATE_H

#include <ev.h>
#include <sys/queue.h>

#include "backend/local/local.h"
#include "backend/local/store.h"
#include "backend/lockspace/lockspace.h"

struct local_event;  /* something to be told from the loop */
struct local_rename; /* one that waits for the journal */
TAILQ_HEAD(local_events, local_event);

struct local {
    struct backend head; /* first: a backend is passed around as this */
    struct lockspace *space;
    struct local_store *store; /* NULL: nothing is kept */
    bool sync_always;

    struct ev_loop *loop; /* NULL until started */
    clock_ms started;
    const struct backend_events *events;
    void *context;
    struct ev_prepare prepare;
    struct ev_idle again;   /* active while the loop must not sleep */
    struct ev_io alarm;     /* a timerfd on CLOCK_BOOTTIME, which goes on while suspended */
    struct ev_async synced; /* the journal's thread got further */
    clock_ms armed;         /* when the alarm will go off */
    bool late;              /* it has, and not all that was due is done */

    struct local_events ready;
    struct local_events unsynced; /* by the sequence they wait for */
    LIST_HEAD(, local_rename) renames;
    GArray *waking;                 /* uint32_t: keepers whose tickets are to be woken */
    GHashTable *pending;            /* ticket -> its event, if it has one */
    struct backend_ticket *telling; /* the ticket whose `ended` is being told */
    struct backend_ticket *asking;  /* the ticket whose `due` is being told, while it is there */
};

/* Does the journal keep holders of this kind?  Leases and handle locks, not provisional locks. */
static inline bool local_is_kept(const struct local *l, enum backend_kind kind)
{
    return l->store && kind != BACKEND_PROVISIONAL;
}

/* Whether the journal has this ticket: a handle lock is in it only while it holds. */
static inline bool local_is_recorded(const struct local *l, const struct backend_ticket *ticket)
{
    return local_is_kept(l, ticket->kind) && (ticket->kind == BACKEND_LEASE || ticket->held);
}

/* --- rename.c --- */

void local_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg);
/* At the end: completions are not called. */
void local_rename_end_all(struct local *l);

/* --- loop.c --- */

extern const struct lockspace_listener local_listener;

/* Creates the alarm.  0 or -errno. */
int local_loop_init(struct local *l);
void local_loop_start(struct local *l, struct ev_loop *loop, const struct backend_events *events, void *context);
/* Forgets all that was not told yet. */
void local_loop_end(struct local *l);

/* Whether calls that give out fencing tokens, or what goes into the journal (`kept`), may go on.  The tokens follow the
 * clock. */
enum backend_result local_may_give(struct local *l, const char *name, bool kept);
/* What the completion of a call has to wait for that gives out the next token or number; or 0. */
uint64_t local_numbered(struct local *l);
/* Writes what was put down.  `*ret_sequence` is what a completion has to wait
 * for: 0 unless sync_always. */
enum backend_result local_commit(struct local *l, uint64_t *ret_sequence);

/* The ticket has ended, and its user does not know yet. */
bool local_has_ended(struct local *l, const struct backend_ticket *ticket);
/* The user of an FCNTL ticket that holds hears of it now: see lockspace_claim. */
void local_claim(struct local *l, struct backend_ticket *ticket);

/* Nothing more is told of the ticket; frees it if it has ended. */
void local_forget(struct local *l, struct backend_ticket *ticket);

/* Ends a ticket as LOST, since what was promised of it could not be kept. */
void local_lose(struct local *l, clock_ms now, struct backend_ticket *ticket);

/* Completes a call, at once or when the journal is synced up to `sequence`;
 * with `if_lost` when that fails.  `done` may be NULL. */
void local_complete(struct local *l, uint64_t sequence, backend_done *done, void *arg, enum backend_result result,
                    enum backend_result if_lost);
/* The same, but never at once: behind the events that are to be told by now. */
void local_complete_in_turn(struct local *l, uint64_t sequence, backend_done *done, void *arg,
                            enum backend_result result, enum backend_result if_lost);
/* The same for an acquire that got a ticket. */
void local_complete_acquire(struct local *l, uint64_t sequence, backend_acquire_done *done, void *arg,
                            enum backend_result result, struct backend_ticket *ticket);

/* Ends expired tickets, a part at a time. */
void local_tick(struct local *l, clock_ms now);

#endif

/* claim: acquires a hold from the backend, and converts one to another kind; see hold.h.
 * An answer may come late: the request that waits for it is parked, so that it can be interrupted. */
#include "fs/hold/hold.h"

#include <errno.h>

#include "fs/kernel/tree.h"

static void hold_cancel_acquire(struct request *r)
{
    struct hold *hold = r->hold;
    r->hold = NULL;
    hold_release(r->fs, hold, NULL, NULL);
    request_reply(r, request_cancel_error(r));
}

/* ms between two attempts while another mount decides: the first pause, and the longest. */
#define HOLD_RETRY_MIN 8
#define HOLD_RETRY_MAX 128

static void hold_retry_acquire(struct request *r)
{
    hold_acquire(r, r->hold, NULL, r->provisional.next_step);
}

clock_ms hold_retry_at(struct request *r, const struct backend_info *holder)
{
    clock_ms now = clock_now();
    if (holder->ticket || holder->kind != BACKEND_PROVISIONAL) {
        return 0;
    }
    if (!r->provisional.until) {
        r->provisional.until = MIN(holder->deadline, now + SECOND + SECOND / 2);
        r->provisional.next_step = r->next_step;
        r->provisional.fence = holder->fence;
        r->provisional.pause = HOLD_RETRY_MIN;
    } else if (holder->fence != r->provisional.fence || now >= r->provisional.until) {
        return 0;
    }
    clock_ms when = MIN(now + r->provisional.pause, r->provisional.until);
    r->provisional.pause = MIN(2 * r->provisional.pause, HOLD_RETRY_MAX);
    return when;
}

/* Other opens on this mount wait for this one's result. */
static bool hold_retry_provisional(struct request *r, const struct backend_info *holder)
{
    clock_ms when = r->awaits_provisional ? hold_retry_at(r, holder) : 0;
    if (when) {
        r->hold->ticket = NULL;
        request_sleep(r, when, hold_retry_acquire, hold_cancel_acquire);
    }
    return when;
}

/* Requests that were parked on the hold meanwhile have waited for that outcome, too. */
static void hold_mark_parked_waited(const struct request *r, const struct hold *hold)
{
    struct request *parked = r->provisional.until ? hold_first_parked(hold) : NULL;
    for (; parked; parked = TAILQ_NEXT(parked, parked)) {
        parked->waited = true;
    }
}

/* Is the lease younger than a second?  A request that waited for its outcome looked before the lease was there, so for
 * that the lease is new, whatever its age. */
static bool hold_is_new_lease(const struct request *r, const struct backend_info *holder)
{
    int64_t age = clock_now() - holder->acquired;
    return holder->kind == BACKEND_LEASE && (r->waited || r->provisional.until || (age > -SECOND && age < SECOND));
}

static void hold_refused(struct request *r, enum backend_result result, const struct backend_info *holder)
{
    struct hold *hold = r->hold;
    if (result == BACKEND_BUSY && hold_retry_provisional(r, holder)) {
        return;
    }
    r->busy_new_lease = result == BACKEND_BUSY && hold_is_new_lease(r, holder);
    r->retry_at = result == BACKEND_BUSY && hold->kind == BACKEND_FLOCK ? hold_retry_at(r, holder) : 0;
    hold_mark_parked_waited(r, hold);
    r->hold = NULL;
    hold_free(r->fs, hold);
    request_resume(r, result);
}

static void hold_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                          const struct backend_info *holder)
{
    struct request *r = arg;
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    if (result == BACKEND_QUEUED) {
        hold->ticket = ticket;
        r->queued = true;
        fs->observer->queued(fs, hold);
        if (!r->queue) {
            request_park(r, hold_queue(hold), r->next_step, hold_cancel_acquire);
        }
        return;
    }
    if (result != BACKEND_OK) {
        request_unpark(r);
        hold_refused(r, result, holder);
        return;
    }
    hold_mark_granted(fs, hold, ticket);
    hold_mark_parked_waited(r, hold);
    hold_ref(hold);
    request_resume(r, result);
    hold_resume_parked(fs, hold); /* opens that came before the answer */
    hold_unref(fs, hold);
}

void hold_acquire_claim(struct request *r, struct backend_claim *claim, request_step *answer)
{
    char path[TREE_PATH_MAX];
    struct hold *hold = r->hold;
    bool fits = tree_path(hold->node, path, sizeof path);
    r->next_step = answer;
    request_ref(r);
    if (!fits || !hold_charge(r->fs, hold, claim->content ? g_bytes_get_size(claim->content) : 0)) {
        hold_acquired(r, fits ? BACKEND_QUOTA : BACKEND_INVALID, NULL, NULL);
    } else {
        KEEP_STORE(request_intent(r)->begun, 1);
        struct backend_ticket *ticket = backend_acquire(r->fs->backend, path, claim, hold_acquired, r);
        if (ticket && r->req && r->hold == hold && !hold->ticket) {
            hold->ticket = ticket;
            (r->blocks ? request_park : request_park_for_store)(r, hold_queue(hold), answer, hold_cancel_acquire);
        }
    }
    request_unref(r);
    g_bytes_unref(claim->meta);
}

void hold_acquire(struct request *r, struct hold *hold, GBytes *content, request_step *answer)
{
    struct backend_claim claim;
    r->hold = hold;
    hold_fill_claim(r->fs, hold, hold->kind, NULL, 0, &claim);
    claim.content = content;
    hold->size = content ? (uint32_t)g_bytes_get_size(content) : 0; /* hold_acquire_claim charges it */
    hold_acquire_claim(r, &claim, answer);
}

static void hold_stored(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    request_resume(r, hold_result(hold, r->handle, result));
    hold_unref(fs, hold);
}

void hold_store_for(struct request *r, struct hold *hold, request_step *answer)
{
    r->hold = hold_ref(hold);
    r->next_step = answer;
    hold_store_then(r->fs, hold, hold_stored, r);
}

static void hold_converted(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct fs *fs = r->fs;
    struct hold *hold = r->hold;
    hold->converting = false;
    if (!hold->ticket) {
        result = BACKEND_STALE; /* it ended meanwhile */
        r->hold = NULL;
    } else if (result == BACKEND_OK) {
        hold_mark_granted(fs, hold, hold->ticket);
    }
    /* First, because a parked request may convert it again. */
    request_resume(r, result);
    if (hold->kind != BACKEND_FCNTL) { /* else lock_set_converted has; requests parked since then wait for a grant */
        hold_resume_parked(fs, hold);
    }
    hold_unref(fs, hold);
}

void hold_convert(struct request *r, struct backend_claim *claim, request_step *answer)
{
    r->next_step = answer;
    hold_ref(r->hold)->converting = true;
    r->hold->converting_to = (uint8_t)claim->kind;
    backend_convert(r->fs->backend, r->hold->ticket, claim, hold_converted, r);
    g_bytes_unref(claim->meta);
}

void hold_make_lease(struct request *r, GBytes *content, request_step *answer)
{
    struct backend_claim claim;
    hold_fill_claim(r->fs, r->hold, BACKEND_LEASE, NULL, 0, &claim);
    claim.content = content;
    if (content && !hold_charge(r->fs, r->hold, g_bytes_get_size(content))) {
        g_bytes_unref(claim.meta);
        r->next_step = answer;
        request_resume(r, BACKEND_QUOTA);
        return;
    }
    if (content) {
        hold_set_size(r->fs, r->hold, g_bytes_get_size(content));
    }
    claim.mode = r->hold->ticket->mode;
    hold_convert(r, &claim, answer);
}

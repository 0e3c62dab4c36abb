/* kin: what a lock shows goes on with another of its file, or process, when it is given up; see hold.h. */
#include <string.h>

#include "fs/hold/handle.h"
#include "fs/hold/hold.h"

/* So many are looked at for each release, so that who locks one file very often keeps nobody else waiting. */
#define HOLD_KIN_MAX 10000

/* Those that have a file with it: a flock and a record lock, say, or those of several lock owners.  Sets `kin`. */
static void hold_mark_kin(const struct hold *hold, bool kin)
{
    const struct hold_records *records = hold->kind == BACKEND_FCNTL ? hold_records(hold) : NULL;
    const struct handle *only = hold->kind == BACKEND_FLOCK ? hold_handle(hold) : NULL;
    guint count = records ? records->handles->len : only != NULL;
    for (guint i = 0, left = HOLD_KIN_MAX; i < count && left; i++, left--) {
        const struct handle *handle = records ? g_ptr_array_index(records->handles, i) : only;
        if (handle->hold) {
            handle->hold->kin = kin;
        }
        for (guint j = 0; handle->records && j < handle->records->len && left > 1; j++, left--) {
            ((struct hold *)g_ptr_array_index(handle->records, j))->kin = kin;
        }
    }
}

static struct hold *hold_younger(const struct hold *hold)
{
    struct hold **link = hold->link.le_prev;
    bool is_youngest = link == &hold->node->holds.lh_first;
    return is_youngest ? NULL : (struct hold *)((char *)link - offsetof(struct hold, link.le_next));
}

/* Is it of the same process, or marked?  What a process has through another user's file is no kin of its own: who
 * might break the one would be given the other. */
static bool hold_may_succeed(const struct hold *hold, const struct hold *other)
{
    bool is_kin = other->kin || (hold->owner && other->owner == hold->owner);
    return is_kin && other->account == hold->account && other->since && hold_holds(other);
}

/* Which shows what this one has shown, once that is given up: its kin that has held longest.  NULL: none, or another
 * has held longer, which shows it already. */
static struct hold *hold_successor(const struct hold *hold)
{
    struct hold *older = LIST_NEXT(hold, link), *younger = hold_younger(hold);
    if (!older && !younger) {
        return NULL;
    }
    hold_mark_kin(hold, true);
    while (older && !hold_may_succeed(hold, older)) {
        older = LIST_NEXT(older, link);
    }
    while (!older && younger && !hold_may_succeed(hold, younger)) {
        younger = hold_younger(younger);
    }
    hold_mark_kin(hold, false);
    return older ? NULL : younger;
}

/* False: it had the same. */
static bool hold_hand_on_rights(const struct hold *hold, struct hold *next)
{
    const struct timespec *times = hold_times(hold), *had = hold_times(next);
    bool same_times = times && had ? memcmp(times, had, 2 * sizeof *times) == 0 : times == had;
    if (same_times && next->uid == hold->uid && next->gid == hold->gid && next->mode == hold->mode) {
        return false;
    }
    next->uid = hold->uid;
    next->gid = hold->gid;
    next->mode = hold->mode;
    if (!same_times) {
        g_clear_pointer(&hold_more(next)->times, g_free);
        next->more->times = times ? g_memdup2(times, 2 * sizeof *times) : NULL;
    }
    return true;
}

static bool hold_shows_same(const struct hold *hold, const struct hold *other)
{
    GBytes *content = hold->ticket->content, *has = other->ticket->content;
    return content && has ? g_bytes_equal(content, has) : hold->size == 0 && other->size == 0;
}

struct hold *hold_hand_on(struct fs *fs, const struct hold *hold)
{
    struct hold *next = hold->since && hold_holds(hold) ? hold_successor(hold) : NULL;
    if (!next || (hold->size && !hold->ticket->content)) {
        return NULL; /* not known */
    }
    bool has_changed = hold_hand_on_rights(hold, next);
    if (!hold_shows_same(hold, next)) {
        hold_set_size(fs, next, hold->size); /* whatever room is left: the first is charged for it no longer */
        hold_store_all(fs, next, hold->ticket->content);
        return next;
    }
    if (has_changed) {
        hold_store(fs, next);
    }
    return NULL;
}

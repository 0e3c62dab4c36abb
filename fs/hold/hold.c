/* hold: what this mount holds on a name, and for whom; see hold.h. */
#include "fs/hold/hold.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/hold/meta.h"
#include "fs/hold/quota.h"
#include "fs/hold/rights.h"
#include "fs/kernel/notify.h"
#include "fs/kernel/tree.h"
#include "fs/ops/handle.h"

/* --- finding ------------------------------------------------------------- */

struct hold *hold_lease(const struct node *node)
{
    struct hold *hold, *asked = NULL;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->kind == BACKEND_PROVISIONAL || hold->kind == BACKEND_LEASE) {
            if (hold->since) {
                return hold;
            }
            asked = hold;
        }
    }
    return asked;
}

struct hold *hold_first(const struct node *node)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->ticket && (hold->ticket->held || hold->sequence)) {
            return hold;
        }
    }
    return NULL;
}

struct hold *hold_to_change(const struct node *node)
{
    struct hold *hold, *longest = NULL;
    LIST_FOREACH(hold, &node->holds, link) {
        longest = hold->since ? hold : longest;
    }
    return longest;
}

void hold_is_longest(struct hold *hold)
{
    struct hold *last = hold, *next;
    if (!hold->since) {
        return; /* its grant has not been told here yet */
    }
    while ((next = LIST_NEXT(last, link))) {
        last = next;
    }
    if (last != hold) {
        LIST_REMOVE(hold, link);
        LIST_INSERT_AFTER(last, hold, link);
    }
}

struct hold *hold_party(const struct node *node, uint64_t party)
{
    struct hold *hold;
    if (!node->parties) {
        return NULL;
    }
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->kind == BACKEND_FCNTL && hold->party == party) {
            return hold;
        }
    }
    LIST_FOREACH(hold, &node->waiting, link) {
        if (hold->kind == BACKEND_FCNTL && hold->party == party) {
            return hold;
        }
    }
    return NULL;
}

/* --- making and ending ----------------------------------------------------- */

int64_t hold_directory_ttl(const struct fs *fs, const struct node *directory)
{
    for (; directory; directory = directory->parent) {
        if (directory->directory && directory->directory->attributes.ttl) {
            return directory->directory->attributes.ttl;
        }
    }
    return fs->options->ttl;
}

struct hold *hold_new(struct fs *fs, struct node *node, enum backend_kind kind, struct owner *owner, uid_t uid,
                      gid_t gid, mode_t mode)
{
    struct hold *hold = g_new0(struct hold, 1);
    hold->references = 1;
    hold->account = uid;
    hold->charged = true;
    quota_charge(fs->quota, uid, 1, 0);
    hold->node = tree_ref(node);
    hold->kind = (uint8_t)kind;
    hold->owner = owner ? owner_ref(owner) : NULL;
    hold->uid = uid;
    hold->gid = gid;
    hold->mode = (uint16_t)(mode & (S_IFMT | RIGHTS_MODE));
    node->parties += kind == BACKEND_FCNTL;
    if (kind == BACKEND_FLOCK || kind == BACKEND_FCNTL) {
        LIST_INSERT_HEAD(&node->waiting, hold, link);
    } else {
        LIST_INSERT_HEAD(&node->holds, hold, link);
    }
    return hold;
}

static void hold_charge_bytes(struct fs *fs, struct hold *hold, size_t content)
{
    if (hold->charged) {
        quota_charge(fs->quota, hold->account, 0, (int64_t)content - hold->bytes);
        hold->bytes = (uint32_t)content;
    }
}

bool hold_charge(struct fs *fs, struct hold *hold, size_t content)
{
    uint32_t before = hold->bytes;
    if (content > before) {
        hold_charge_bytes(fs, hold, content);
    }
    if (quota_exceeded(fs->quota, hold->account)) {
        hold_charge_bytes(fs, hold, before);
        return false;
    }
    return true;
}

void hold_set_size(struct fs *fs, struct hold *hold, size_t size)
{
    hold->size = (uint32_t)size;
    hold_charge_bytes(fs, hold, size);
}

static void hold_leave_handles(struct hold *hold)
{
    struct handle *handle;
    if (hold->kind == BACKEND_FLOCK && !hold->sequence) {
        if (hold->handle && hold->handle->hold == hold) {
            hold->handle->hold = NULL;
            hold->handle->closing = false;
        }
        return;
    }
    LIST_FOREACH(handle, &hold->node->handles, link) {
        handle->kin = false;
        if (handle->hold == hold) {
            handle->hold = NULL;
            handle->closing = false;
        }
    }
}

void hold_count(struct hold *hold, bool held)
{
    if (hold->counted != held) {
        hold->counted = held;
        for (const struct node *at = hold->node->parent; at; at = at->parent) {
            at->directory->held = held ? at->directory->held + 1 : at->directory->held - 1;
        }
    }
}

void hold_free(struct fs *fs, struct hold *hold)
{
    hold_leave_handles(hold);
    hold_count(hold, false);
    fs->observer->gone(fs, hold);
    hold_charge_bytes(fs, hold, 0);
    quota_charge(fs->quota, hold->account, -1, 0);
    hold->charged = false;
    LIST_REMOVE(hold, link);
    hold->node->parties -= hold->kind == BACKEND_FCNTL;
    hold->ticket = NULL;
    struct request_queue *parked = hold->parked;
    hold->parked = NULL;
    if (parked) {
        request_resume_all(parked);
        g_free(parked);
    }
    hold_unref(fs, hold);
}

struct hold *hold_ref(struct hold *hold)
{
    hold->references++;
    return hold;
}

void hold_unref(struct fs *fs, struct hold *hold)
{
    if (--hold->references == 0) {
        hold_drop_heirs(hold);
        owner_unref(hold->owner);
        g_free(hold->times);
        tree_unref(fs->tree, hold->node);
        g_free(hold);
    }
}

struct request_queue *hold_queue(struct hold *hold)
{
    if (!hold->parked) {
        hold->parked = g_new0(struct request_queue, 1);
        TAILQ_INIT(hold->parked);
    }
    return hold->parked;
}

/* Most leases are like the one before: they share their meta. */
static GBytes *hold_share_meta(struct fs *fs, const struct meta *meta)
{
    if (!fs->last_meta || memcmp(fs->last_meta, meta, sizeof *meta) != 0) {
        g_free(fs->last_meta);
        g_clear_pointer(&fs->last_meta_bytes, g_bytes_unref);
        fs->last_meta = g_memdup2(meta, sizeof *meta);
        fs->last_meta_bytes = meta_encode(meta);
    }
    return g_bytes_ref(fs->last_meta_bytes);
}

static GBytes *hold_meta(struct fs *fs, const struct hold *hold)
{
    struct meta meta;
    memset(&meta, 0, sizeof meta); /* padding too: it is compared */
    meta.uid = hold->uid;
    meta.gid = hold->gid;
    meta.mode = hold->mode;
    meta.fixed = hold->fixed;
    meta.sequence = hold->sequence;
    g_strlcpy(meta.host, fs->host, sizeof meta.host);
    g_strlcpy(meta.boot, fs->boot_id, sizeof meta.boot);
    if (hold->owner) {
        meta.pid = owner_pid(hold->owner);
        meta.start = owner_start(hold->owner);
        g_strlcpy(meta.command, owner_command(hold->owner), sizeof meta.command);
    }
    meta.has_times = hold->times != NULL;
    if (hold->times) {
        memcpy(meta.times, hold->times, sizeof meta.times);
    }
    for (size_t i = 0; hold->heirs && i < hold->heirs->count; i++) {
        meta.heir[i].pid = owner_pid(hold->heirs->heir[i]);
        meta.heir[i].start = owner_start(hold->heirs->heir[i]);
        meta.heirs++;
    }
    return hold_share_meta(fs, &meta);
}

/* When the backend shall call next: to settle the owner, to renew. */
static int64_t hold_due(const struct hold *hold, int64_t ttl, int64_t age)
{
    int64_t renewal = hold->fixed ? 0 : ttl / 3;
    int64_t settling = hold->settled ? 0 : MAX(SECOND - age, 1);
    return renewal && settling ? MIN(renewal, settling) : renewal + settling;
}

void hold_claim(struct fs *fs, struct hold *hold, enum backend_kind kind, struct backend_claim *claim)
{
    memset(claim, 0, sizeof *claim);
    claim->user = hold;
    claim->kind = kind;
    claim->ttl = hold_directory_ttl(fs, hold->node->parent);
    claim->end = BACKEND_RANGE_MAX;
    if (kind == BACKEND_PROVISIONAL) {
        /* Given back by hold_events.due; the ttl only matters when we are gone. */
        claim->due = SECOND;
        claim->ttl = SECOND + SECOND / 2;
    } else if (kind == BACKEND_LEASE) {
        hold_read_heirs(hold);
        claim->due = hold_due(hold, claim->ttl, 0);
    } else {
        claim->due = claim->ttl / 3;
    }
    claim->meta = hold_meta(fs, hold);
}

void hold_take_name(struct fs *fs, const struct hold *hold, enum backend_kind kind)
{
    struct node *node = hold->node, *there = tree_find(fs->tree, node->parent, node->name);
    bool sole = kind != BACKEND_FCNTL && hold->ticket->mode == BACKEND_EXCLUSIVE;
    if (there && there != node && (sole || !hold_first(there))) {
        tree_detach(fs->tree, there);
    }
    tree_attach(fs->tree, node);
}

void hold_granted(struct fs *fs, struct hold *hold, enum backend_kind kind)
{
    hold_take_name(fs, hold, kind);
    tree_touch(hold->node->parent);
    hold_count(hold, true);
    if (!hold->since) { /* else it has held before, as another kind or in another mode */
        LIST_REMOVE(hold, link);
        LIST_INSERT_HEAD(&hold->node->holds, hold, link);
    }
    hold->node->parties += kind == BACKEND_FCNTL && hold->kind != BACKEND_FCNTL;
    fs->observer->granted(fs, hold, kind);
    hold->kind = (uint8_t)kind;
    hold->since = clock_now();
}

void hold_resume_parked(struct fs *fs, struct hold *hold)
{
    if (hold->parked) {
        hold_ref(hold);
        request_resume_all(hold->parked);
        hold_unref(fs, hold);
    }
}

/* --- ending ---------------------------------------------------------------- */

/* Somebody of this mount stands in the queue, as the backend has told: what one
 * holder lets go of is then another's, here or elsewhere, and the name stays. */
static bool hold_is_awaited(const struct node *node)
{
    const struct hold *hold;
    if (node->parties) {
        return false; /* its range may be another than the one that is waited for */
    }
    LIST_FOREACH(hold, &node->waiting, link) {
        if (hold->ticket && hold->ticket->fence) {
            return true;
        }
    }
    return false;
}

void hold_release(struct fs *fs, struct hold *hold, backend_done *done, void *arg)
{
    struct backend_ticket *ticket = hold->ticket;
    struct node *node = tree_ref(hold->node);
    bool sequence = hold->sequence;
    hold->ticket = NULL;
    if (ticket) {
        backend_release(fs->backend, ticket, done, arg);
    } else if (done) {
        done(arg, BACKEND_STALE);
    }
    hold_free(fs, hold);
    if (sequence || !hold_is_awaited(node)) {
        hold_check_gone(fs, node);
    }
    tree_unref(fs->tree, node);
}

bool hold_is_here(const struct node *node)
{
    const struct hold *hold;
    if (node->directory) {
        return node->directory->held > 0;
    }
    LIST_FOREACH(hold, &node->holds, link) {
        if ((hold->ticket && (hold->ticket->held || hold->sequence)) || (hold->kind == BACKEND_FCNTL && hold->since)) {
            return true;
        }
    }
    return false;
}

void hold_gone(struct fs *fs, struct node *node)
{
    if (node->visible) {
        node->visible = false;
        node->left = (uint32_t)clock_now();
        node->behind = notify_is_behind(fs->notify, tree_id(fs->tree, node->parent), node->name);
        node->told = notify_deleted(fs->notify, tree_id(fs->tree, node->parent), tree_id(fs->tree, node), node->name,
                                    node->kept);
        node->expired = node->kept ? node->told : node->expired;
        node->kept = false;
    }
    tree_unlink(fs->tree, node);
    tree_touch(node->parent);
    if (LIST_EMPTY(&node->handles) && LIST_EMPTY(&node->holds) && LIST_EMPTY(&node->waiting)) {
        tree_detach(fs->tree, node); /* the next lock of this name is another inode */
    }
}

/* A question whether a name is still held, on its way. */
struct hold_question {
    LIST_ENTRY(hold_question) link; /* fs->questions */
    struct fs *fs;
    struct node *node; /* counted */
};

static void hold_end_question(struct hold_question *question)
{
    LIST_REMOVE(question, link);
    tree_unref(question->fs->tree, question->node);
    g_free(question);
}

void hold_end_questions(struct fs *fs)
{
    while (!LIST_EMPTY(&fs->questions)) {
        hold_end_question(LIST_FIRST(&fs->questions));
    }
}

static void hold_answer(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct hold_question *question = arg;
    if (result == BACKEND_OK && info->type == BACKEND_NOTHING && !hold_first(question->node)) {
        hold_gone(question->fs, question->node);
    }
    hold_end_question(question);
}

void hold_check_gone(struct fs *fs, struct node *node)
{
    char path[TREE_PATH_MAX];
    if (hold_first(node)) {
        return;
    }
    /* fcntl locks of part of a file are known to the backend alone; nor has every
     * grant been told here yet. */
    bool unsure = node->parties || !LIST_EMPTY(&node->waiting);
    if (unsure && tree_path(node, path, sizeof path)) {
        struct hold_question *question = g_new(struct hold_question, 1);
        *question = (struct hold_question){.fs = fs, .node = tree_ref(node)};
        LIST_INSERT_HEAD(&fs->questions, question, link);
        backend_stat(fs->backend, path, hold_answer, question);
    } else {
        hold_gone(fs, node);
    }
}

/* --- renewing -------------------------------------------------------------- */

void hold_store_with(struct fs *fs, struct hold *hold, struct backend_ticket *ticket)
{
    if (ticket) {
        GBytes *meta = hold_meta(fs, hold);
        backend_set(fs->backend, ticket, &(struct backend_change){.set = BACKEND_SET_META, .meta = meta}, NULL, NULL);
        g_bytes_unref(meta);
    }
}

void hold_store(struct fs *fs, struct hold *hold)
{
    hold_store_with(fs, hold, hold->ticket);
}

static void hold_extend(struct fs *fs, struct hold *hold, int64_t ttl)
{
    bool lease = hold->kind == BACKEND_LEASE;
    int64_t due = lease ? hold_due(hold, ttl, clock_now() - hold->since) : ttl / 3;
    backend_renew(fs->backend, &(struct backend_renewal){.ticket = hold->ticket, .ttl = ttl, .due = due}, 1);
}

bool hold_set_term(struct fs *fs, struct hold *hold, int64_t ttl)
{
    bool fixed = hold->fixed;
    int64_t term = ttl > 0 ? ttl : hold_directory_ttl(fs, hold->node->parent);
    hold->fixed = ttl > 0 && hold->kind == BACKEND_LEASE;
    hold_extend(fs, hold, term);
    if (hold->ticket->ttl < term && hold->ticket->deadline > clock_now()) {
        hold->fixed = fixed;
        hold_extend(fs, hold, hold->ticket->ttl);
        return false;
    }
    hold_store(fs, hold);
    return true;
}

void hold_renew(struct fs *fs, struct hold *hold)
{
    if (!hold->fixed) {
        hold_extend(fs, hold, hold->ticket->ttl);
    }
}

/* How long a FLUSH that was answered waits for its RELEASE. */
#define LINGER (SECOND / 4)

void hold_linger(struct fs *fs, struct hold *hold)
{
    if (hold->kind == BACKEND_PROVISIONAL && hold->ticket->deadline - clock_now() < SECOND / 2 + LINGER) {
        backend_renew(fs->backend,
                      &(struct backend_renewal){.ticket = hold->ticket, .ttl = SECOND / 2 + LINGER, .due = LINGER}, 1);
    }
}

static void hold_due_event(void *context, struct backend_ticket *ticket)
{
    struct fs *fs = context;
    struct hold *hold = ticket->user;
    if (ticket->kind == BACKEND_PROVISIONAL) {
        /* Not if it was just told to linger, or is being decided: that ends it, too,
         * or else its deadline does. */
        if (!hold->converting && ticket->deadline - clock_now() <= SECOND / 2) {
            hold_release(fs, hold, NULL, NULL);
        }
        return;
    }
    if (ticket->kind != BACKEND_LEASE) {
        hold_owner(hold);
        if (hold->inherited && hold->heirs) {
            hold_settle(fs, hold); /* who took it has ended */
        }
        backend_renew(fs->backend,
                      &(struct backend_renewal){.ticket = ticket, .ttl = ticket->ttl, .due = ticket->ttl / 3}, 1);
        return;
    }
    bool settles = !hold->settled && clock_now() - hold->since >= SECOND;
    if (settles) {
        hold_settle(fs, hold);
    }
    if (!hold->fixed && hold_in_use(hold)) {
        hold_extend(fs, hold, ticket->ttl);
    }
}

/* --- the backend's other events ---------------------------------------------- */

static struct request *hold_request(const struct hold *hold, const struct backend_ticket *ticket)
{
    struct request *r = NULL;
    if (hold->parked) {
        TAILQ_FOREACH(r, hold->parked, parked) {
            if (r->ticket ? r->ticket == ticket : r->hold == hold) {
                break;
            }
        }
    }
    return r;
}

static void hold_granted_event(void *context, struct backend_ticket *ticket)
{
    struct fs *fs = context;
    struct hold *hold = ticket->user;
    struct request *r = hold_request(hold, ticket);
    if (!hold->sequence) {
        hold_granted(fs, hold, ticket->kind);
    } else {
        fs->observer->granted(fs, hold, ticket->kind);
    }
    while (r) {
        request_unpark(r);
        r->then(r, BACKEND_OK);
        /* Several may wait for the turn of one sequence ticket. */
        r = hold->sequence ? hold_request(hold, ticket) : NULL;
    }
}

bool hold_is_of(const struct hold *hold, const struct handle *handle)
{
    bool is = handle->hold == hold;
    for (guint i = 0; !is && hold->kind == BACKEND_FCNTL && handle->parties && i < handle->parties->len; i++) {
        is = g_array_index(handle->parties, uint64_t, i) == hold->party;
    }
    return is;
}

void hold_spend(struct hold *hold, bool lost)
{
    struct handle *handle;
    LIST_FOREACH(handle, &hold->node->handles, link) {
        if (hold_is_of(hold, handle)) {
            handle->spent = true;
            handle->lost = lost;
            handle_notify_poll(handle);
        }
    }
}

static void hold_ended_event(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct fs *fs = context;
    struct hold *hold = ticket->user;
    struct node *node = tree_ref(hold->node);
    struct request *r = ticket->held ? NULL : hold_request(hold, ticket);
    fs->observer->ended(fs, hold, why);
    if (hold->kind != BACKEND_PROVISIONAL && ticket->held) {
        hold_spend(hold, why != BACKEND_RELEASED);
    }
    if (hold->kind == BACKEND_FCNTL && r) {
        request_unpark(r);
        r->ticket = NULL;
        r->then(r, BACKEND_UNREACHABLE);
    } else if (hold->kind != BACKEND_FCNTL) {
        hold_free(fs, hold);
    }
    hold_check_gone(fs, node);
    tree_unref(fs->tree, node);
}

static void hold_wanted_event(void *context, struct backend_ticket *ticket)
{
    (void)context;
    struct hold *hold = ticket->user;
    struct handle *handle;
    if (hold->kind == BACKEND_FLOCK && !hold->sequence) {
        if (hold->handle) {
            hold->handle->wanted = true;
            handle_notify_poll(hold->handle);
        }
        return;
    }
    LIST_FOREACH(handle, &hold->node->handles, link) {
        if (hold_is_of(hold, handle)) {
            handle->wanted = true;
            handle_notify_poll(handle);
        }
    }
}

const struct backend_events hold_events = {
    .granted = hold_granted_event,
    .due = hold_due_event,
    .ended = hold_ended_event,
    .wanted = hold_wanted_event,
};

/* heirs: the owner of a hold, and the processes that inherit it; see hold.h.
 *
 * A lease belongs to the process that acquired it, unless that was a helper: one
 * that has closed the file and exits within the first second hands it to its
 * parent, and so on (owner_heirs); one that failed hands nothing on.  After that
 * second the owner is final.
 *
 * Children that the acquirer leaves when it exits in that second are partners of the heir: each may do what the owner
 * may, and when the owner ends, a partner is the next one, at any time.
 */
#include "fs/hold/handle.h"
#include "fs/hold/hold.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"

#include <string.h>

static struct hold_heirs *heirs_new(struct owner *const *heir, size_t count)
{
    struct hold_heirs *heirs = g_malloc(sizeof *heirs + count * sizeof(struct owner *));
    heirs->references = 1;
    heirs->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        heirs->heir[i] = owner_ref(heir[i]);
    }
    return heirs;
}

void hold_heirs_unref(struct hold_heirs *heirs)
{
    if (heirs && --heirs->references == 0) {
        for (size_t i = 0; i < heirs->count; i++) {
            owner_unref(heirs->heir[i]);
        }
        g_free(heirs);
    }
}

/* Takes over the reference. */
static void heirs_replace(struct hold *hold, struct hold_heirs *heirs)
{
    struct hold_heirs *before = hold_heirs(hold);
    if (hold->has_extra) {
        hold->extra->heirs = heirs;
    } else {
        hold->heirs = heirs;
    }
    hold_heirs_unref(before);
}

void hold_drop_heirs(struct hold *hold)
{
    heirs_replace(hold, NULL);
}

void hold_set_heirs(struct hold *hold, struct owner *const *heir, size_t count)
{
    heirs_replace(hold, heirs_new(heir, count));
}

static bool heirs_equal(const struct hold_heirs *heirs, struct owner *const *heir, size_t count)
{
    return heirs && heirs->count == count && (count == 0 || memcmp(heirs->heir, heir, count * sizeof *heir) == 0);
}

void hold_read_heirs(struct fs *fs, struct hold *hold)
{
    hold->owner_final = !hold->owner;
    if (!hold->owner || hold_heirs(hold)) {
        return;
    }
    struct owner *heir[HOLD_HEIRS_MAX];
    size_t count = owner_heirs(hold->owner, heir, HOLD_HEIRS_MAX);
    if (!heirs_equal(fs->last_heirs, heir, count)) {
        hold_heirs_unref(fs->last_heirs);
        fs->last_heirs = heirs_new(heir, count);
    }
    for (size_t i = 0; i < count; i++) {
        owner_unref(heir[i]);
    }
    fs->last_heirs->references++;
    heirs_replace(hold, fs->last_heirs);
}

void hold_set_handle_owner(struct hold *hold, struct owner *taker, struct owner *opener)
{
    struct owner *before = hold->owner, *owner = taker ? taker : opener;
    hold->owner = owner ? owner_ref(owner) : NULL;
    owner_unref(before);
    hold_drop_heirs(hold);
    hold->inherited = false;
    hold->closed = true;
    if (opener && opener != owner) {
        hold_set_heirs(hold, &opener, 1);
    }
}

void hold_set_partners(struct hold *hold, struct owner *const *partner, size_t count)
{
    struct hold_heirs *before = hold_partners(hold);
    if (before || count) {
        hold_extra(hold)->partners = count ? heirs_new(partner, count) : NULL;
        hold_heirs_unref(before);
    }
}

/* The next heir, or NULL. */
static struct owner *hold_next_heir(const struct hold *hold)
{
    const struct hold_heirs *heirs = hold_heirs(hold);
    return heirs && heirs->count ? heirs->heir[0] : NULL;
}

/* How a helper ended may not be known before its parent has waited for it, which
 * has time until the second is over.  A handle lock is the opener's all the same
 * when whoever took it has failed. */
static bool hold_can_pass_on(struct hold *hold, bool is_over)
{
    enum owner_end end;
    if (!hold_next_heir(hold) || !hold->closed) {
        return false;
    }
    end = owner_end(hold->owner);
    if (hold->kind == BACKEND_FLOCK || hold->kind == BACKEND_FCNTL) {
        return end != OWNER_LIVES;
    }
    return end == OWNER_EXITED || (end == OWNER_UNREAPED && is_over);
}

/* The children that its acquirer left, while nobody has inherited the lease; or NULL. */
static const GPtrArray *hold_orphans(struct hold *hold, bool is_over)
{
    bool open = hold->kind == BACKEND_LEASE && hold->owner && !hold->inherited && !hold->owner_final;
    if (!open || !owner_orphans(hold->owner)) {
        return NULL;
    }
    enum owner_end end = owner_end(hold->owner);
    return end == OWNER_EXITED || (end == OWNER_UNREAPED && is_over) ? owner_orphans(hold->owner) : NULL;
}

static bool hold_is_user(const struct hold *hold, struct owner *who)
{
    return owner_has_uid(who, hold->uid) || owner_has_uid(who, 0);
}

static void hold_take_orphans(struct hold *hold, bool is_over)
{
    const GPtrArray *orphans = hold_orphans(hold, is_over);
    struct owner *partner[HOLD_HEIRS_MAX];
    size_t count = 0;
    for (guint i = 0; orphans && i < orphans->len && count < HOLD_HEIRS_MAX; i++) {
        struct owner *orphan = g_ptr_array_index(orphans, i);
        if (hold_is_user(hold, orphan)) {
            partner[count++] = orphan;
        }
    }
    if (count) {
        hold_set_partners(hold, partner, count);
    }
}

static void hold_set_owner(struct hold *hold, struct owner *owner)
{
    struct owner *before = hold->owner;
    hold->owner = owner_ref(owner);
    hold->inherited = true;
    owner_unref(before);
}

static void hold_inherit(struct hold *hold)
{
    const struct hold_heirs *heirs = hold_heirs(hold);
    hold_take_orphans(hold, true);
    hold_set_owner(hold, heirs->heir[0]);
    hold_set_heirs(hold, heirs->heir + 1, heirs->count - 1);
}

/* If the owner has ended, and no heir follows. */
static void hold_pass_to_partner(struct hold *hold)
{
    struct hold_heirs *partners;
    while ((partners = hold_partners(hold)) && !owner_alive(hold->owner)) {
        hold_set_owner(hold, partners->heir[0]);
        hold_set_partners(hold, partners->heir + 1, partners->count - 1);
    }
}

void hold_pass_to_heirs(struct hold *hold, bool is_over)
{
    while (hold_can_pass_on(hold, is_over)) {
        hold_inherit(hold);
    }
    hold_take_orphans(hold, is_over);
    hold_pass_to_partner(hold);
}

struct owner *hold_update_owner(struct hold *hold)
{
    hold_pass_to_heirs(hold, false);
    return hold->owner;
}

/* Of a handle lock that a child took: the process that opened the handle. */
static struct owner *hold_opener(const struct hold *hold)
{
    bool handle_lock = hold->kind > BACKEND_LEASE && !hold->sequence;
    return handle_lock ? hold_next_heir(hold) : NULL;
}

/* May `who`, with this uid, do what this ancestor may, which lives?  What root's process runs as another user may not.
 */
static bool hold_is_descendant(const struct hold *hold, struct owner *who, uid_t uid, struct owner *ancestor)
{
    return owner_descends(who, ancestor) && (uid == 0 || uid == hold->uid || owner_has_uid(ancestor, uid));
}

/* Of the partners, and of those that are partners once their parent's exit status is known: the one that `who` is, or,
 * with `descendants`, descends from with this uid. */
static bool hold_has_partner(struct hold *hold, struct owner *who, uid_t uid, bool descendants)
{
    const struct hold_heirs *partners = hold_partners(hold);
    const GPtrArray *orphans = partners ? NULL : hold_orphans(hold, true);
    struct owner *const *partner = partners ? partners->heir : orphans ? (struct owner **)orphans->pdata : NULL;
    size_t count = partners ? partners->count : orphans ? orphans->len : 0;
    for (size_t i = 0; who && i < count; i++) {
        bool is = descendants ? hold_is_descendant(hold, who, uid, partner[i]) : owner_is_same(partner[i], who);
        if (is && (partners || hold_is_user(hold, partner[i]))) {
            return true;
        }
    }
    return false;
}

bool hold_is_owned_by(struct hold *hold, struct owner *who)
{
    if (hold_survivor(hold)) {
        return false; /* a process that has its file open may only have waited, so its request is a new one */
    }
    if (who && who == hold->owner) {
        return true; /* it sent a request, so it lives, so nobody has inherited */
    }
    return owner_is_same(hold_update_owner(hold), who) || owner_is_same(hold_opener(hold), who) ||
           hold_has_partner(hold, who, 0, false);
}

bool hold_allows_descendant(struct hold *hold, struct owner *who, uid_t uid)
{
    struct owner *owner = hold_update_owner(hold);
    return who && ((owner && hold_is_descendant(hold, who, uid, owner)) || hold_has_partner(hold, who, uid, true));
}

/* An heir that reads to the end of a helper's output sends its request while the helper still exits: for its heir a
 * helper that exits counts as dead.  If the helper then fails, its heir does not inherit; but the same user may release
 * a dead process's lease. */
static bool hold_owner_is_exiting(struct fs *fs, struct hold *hold, struct owner *who)
{
    return who && hold->closed && hold_next_heir(hold) && owner_descends(who, hold_next_heir(hold)) &&
           owner_thread_is_exiting(fs->owners, owner_pid(hold->owner));
}

void hold_adopt(struct fs *fs, struct hold *hold, struct owner *who)
{
    if (hold_owner_is_exiting(fs, hold, who)) {
        hold_inherit(hold);
    }
}

static bool hold_allows_change_now(struct fs *fs, struct hold *hold, struct owner *who, uid_t uid)
{
    if (who && who == hold->owner) {
        return true; /* as in hold_is_owned_by */
    }
    struct owner *owner = hold_update_owner(hold), *opener = hold_opener(hold);
    bool lives = owner && owner_alive(owner);     /* once, because it costs a system call */
    if (!lives && hold_can_pass_on(hold, true)) { /* its exit status is not known yet: perhaps 0 */
        owner = hold_next_heir(hold);
        lives = owner_alive(owner);
    }
    if (owner_is_same(owner, who) || owner_is_same(opener, who)) {
        return true;
    }
    if ((fs->options->owner_user || !lives) && uid == hold->uid) {
        return true;
    }
    if (who && hold_survivor(hold) && survivor_allows_change(hold_survivor(hold), who, uid)) {
        return true;
    }
    return (lives && who && hold_is_descendant(hold, who, uid, owner)) ||
           (opener && who && owner_alive(opener) && hold_is_descendant(hold, who, uid, opener)) ||
           hold_has_partner(hold, who, uid, true) || (uid == hold->uid && hold_owner_is_exiting(fs, hold, who));
}

/* An orphan's request may come before the event that its parent has ended. */
bool hold_allows_change(struct fs *fs, struct hold *hold, struct owner *who, uid_t uid)
{
    if (hold_allows_change_now(fs, hold, who, uid)) {
        return true;
    }
    owner_table_check(fs->owners);
    return hold_allows_change_now(fs, hold, who, uid);
}

/* Does its owner live, or an heir?  An owner that failed passes nothing on. */
static bool hold_has_living_owner(struct hold *hold)
{
    struct owner *owner = hold_update_owner(hold);
    return owner && (owner_alive(owner) || hold_can_pass_on(hold, true) || hold_orphans(hold, true));
}

bool hold_needs_renewal(struct hold *hold)
{
    if (hold_has_living_owner(hold)) {
        return true;
    }
    struct owner *owner = hold->owner;
    struct handle *handle;
    LIST_FOREACH(handle, &hold->node->handles, link) {
        if (handle->hold == hold || (owner && (handle->record->by_descendant || handle->opener == owner))) {
            return true;
        }
    }
    return false;
}

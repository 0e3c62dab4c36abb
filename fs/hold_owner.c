/* hold_owner: whose a hold is; see hold.h.
 *
 * A lease belongs to the process that acquired it, unless that was a helper: one
 * that has closed the file and exits within the first second hands it to its
 * parent, and so on (owner_heirs).  After that second the owner is final.
 */
#include "handle.h"
#include "hold.h"
#include "tree.h"

#include <string.h>

void hold_drop_heirs(struct hold *hold)
{
    if (hold->heirs) {
        for (size_t i = 0; i < hold->heirs->count; i++) {
            owner_unref(hold->heirs->heir[i]);
        }
        g_free(hold->heirs);
        hold->heirs = NULL;
    }
}

void hold_read_heirs(struct hold *hold)
{
    hold->settled = !hold->owner;
    if (hold->owner && !hold->heirs) {
        hold->heirs = g_new0(struct hold_heirs, 1);
        hold->heirs->count = owner_heirs(hold->owner, hold->heirs->heir, HOLD_HEIRS_MAX);
    }
}

struct owner *hold_owner(struct hold *hold)
{
    while (hold->heirs && hold->closed && hold->heirs->count && !owner_alive(hold->owner)) {
        struct hold_heirs *heirs = hold->heirs;
        owner_unref(hold->owner);
        hold->owner = heirs->heir[0];
        hold->inherited = true;
        memmove(heirs->heir, heirs->heir + 1, --heirs->count * sizeof *heirs->heir);
    }
    return hold->owner;
}

void hold_settle(struct fs *fs, struct hold *hold)
{
    hold_owner(hold);
    hold_drop_heirs(hold);
    hold->settled = true;
    if (hold->inherited) {
        hold_store(fs, hold);
    }
}

bool hold_is_owner(struct hold *hold, struct owner *who)
{
    if (who && who == hold->owner) {
        return true; /* it asks, so it lives, so nobody has inherited */
    }
    struct owner *owner = hold_owner(hold);
    return who && owner && owner_pid(owner) == owner_pid(who) && owner_start(owner) == owner_start(who);
}

bool hold_may_change(struct fs *fs, struct hold *hold, struct owner *who, uid_t uid)
{
    if (hold_is_owner(hold, who)) {
        return true;
    }
    struct owner *owner = hold_owner(hold);
    if ((fs->options->owner_user || !owner || !owner_alive(owner)) && uid == hold->uid) {
        return true;
    }
    return owner && who && owner_alive(owner) && owner_descends(who, owner);
}

bool hold_in_use(struct hold *hold)
{
    struct owner *owner = hold_owner(hold);
    if (!owner) {
        return false;
    }
    if (owner_alive(owner)) {
        return true;
    }
    struct handle *handle;
    LIST_FOREACH(handle, &hold->node->handles, link) {
        if (handle->hold == hold || handle->kin || handle->opener == owner) {
            return true;
        }
    }
    return false;
}

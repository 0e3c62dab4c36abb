/* rights: whose a lock is now, and what everybody else may do with it; see rights.h. */
#include "fs/hold/rights.h"

#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/process/owner.h"

/* What a lock shows whose holder says nothing of itself: the key of a client that
 * is no mount.  Anybody may open it, to wait for it with flock(2); what it holds
 * cannot be changed or removed all the same. */
#define RIGHTS_FOREIGN_MODE 0666

struct rights rights_of(const struct backend_info *info)
{
    const struct hold *hold = info->ticket ? info->ticket->user : NULL;
    struct meta meta;
    if (hold) {
        return (struct rights){hold->uid, hold->gid, hold->mode & RIGHTS_MODE};
    }
    if (meta_decode(info->meta, &meta)) {
        return (struct rights){meta.uid, meta.gid, meta.mode & RIGHTS_MODE};
    }
    return (struct rights){0, 0, RIGHTS_FOREIGN_MODE};
}

bool rights_allow(const struct rights *rights, unsigned what, struct owner *who, uid_t uid, gid_t gid)
{
    mode_t group = rights->mode >> 3 & what, other = rights->mode & what;
    if (uid == 0) {
        return true;
    }
    if (uid == rights->uid) {
        return rights->mode >> 6 & what;
    }
    /* Groups are asked of the kernel only where they make a difference. */
    bool member = !group == !other || gid == rights->gid || (who && owner_in_group(who, rights->gid));
    return member ? group : other;
}

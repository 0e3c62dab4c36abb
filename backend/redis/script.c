/* script: the table of scripts.  Each .lua becomes a string literal when
 * the daemon is built.
 */
#include "backend/redis/script.h"

/* The order of the parts is theirs, not the alphabet's.  With `true` replicas must confirm what the script wrote
 * (option wait=): that a ticket holds, that the store is closed, or that others do not hold any more, on whichever
 * master.
 */
/* clang-format off */
const struct redis_script redis_scripts[REDIS_SCRIPTS] = {
    [REDIS_ACQUIRE] = {"acquire",
#include "backend/redis/full_script.h"
#include "backend/redis/script/acquire.inc"
        , true
    },
    [REDIS_UNCONTENDED_ACQUIRE] = {"uncontended_acquire",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/uncontended_acquire.inc"
        , true
    },
    [REDIS_HEARTBEAT] = {"heartbeat",
#include "backend/redis/full_script.h"
#include "backend/redis/script/heartbeat.inc"
    },
    [REDIS_RELEASE] = {"release",
#include "backend/redis/full_script.h"
#include "backend/redis/script/release.inc"
    },
    [REDIS_UNCONTENDED_RELEASE] = {"uncontended_release",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/uncontended_release.inc"
    },
    [REDIS_RELEASE_RANGE] = {"release_range",
#include "backend/redis/full_script.h"
#include "backend/redis/script/release_range.inc"
    },
    [REDIS_RENEW] = {"renew",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/head.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/look.inc"
#include "backend/redis/script/uncontended_renew.inc"
#include "backend/redis/script/epoch.inc"
#include "backend/redis/script/common.inc"
#include "backend/redis/script/renew.inc"
        , true
    },
    [REDIS_UNCONTENDED_RENEW_MANY] = {"uncontended_renew_many",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/uncontended_renew_many.inc"
        , true
    },
    [REDIS_RECLAIM] = {"reclaim",
#include "backend/redis/full_script.h"
#include "backend/redis/script/reclaim.inc"
#include "backend/redis/script/renew.inc"
        , true
    },
    [REDIS_CONVERT] = {"convert",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/head.inc"
#include "backend/redis/script/epoch.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/look.inc"
#include "backend/redis/script/uncontended_convert.inc"
#include "backend/redis/script/common.inc"
#include "backend/redis/script/convert.inc"
        , true
    },
    [REDIS_SET] = {"set",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/head.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/look.inc"
#include "backend/redis/script/uncontended_set.inc"
#include "backend/redis/script/epoch.inc"
#include "backend/redis/script/common.inc"
#include "backend/redis/script/set.inc"
        , true
    },
    [REDIS_REVOKE] = {"revoke",
#include "backend/redis/full_script.h"
#include "backend/redis/script/revoke.inc"
        , true
    },
    [REDIS_RENAME] = {"rename",
#include "backend/redis/full_script.h"
#include "backend/redis/script/rename.inc"
        , true
    },
    [REDIS_STAT] = {"stat",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/head.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/look.inc"
#include "backend/redis/script/stat.inc"
    },
    [REDIS_STAT_DIRECTORY] = {"stat_directory",
#include "backend/redis/script/stat_directory.inc"
    },
    [REDIS_LIST] = {"list",
#include "backend/redis/script/list.inc"
    },
    [REDIS_TICKETS] = {"tickets",
#include "backend/redis/script/tickets.inc"
    },
    [REDIS_MOUNTS] = {"mounts",
#include "backend/redis/script/mounts.inc"
    },
    [REDIS_NAMES] = {"names",
#include "backend/redis/script/names.inc"
    },
    [REDIS_DIRECTORY] = {"directory",
#include "backend/redis/full_script.h"
#include "backend/redis/script/directory.inc"
    },
    [REDIS_DELAY] = {"delay",
#include "backend/redis/full_script.h"
#include "backend/redis/script/delay.inc"
    },
    [REDIS_LEASES] = {"leases",
#include "backend/redis/script/leases.inc"
    },
    [REDIS_RECOVER] = {"recover",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/head.inc"
#include "backend/redis/script/epoch.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/look.inc"
#include "backend/redis/script/recover.inc"
        , true
    },
    [REDIS_UNCONTENDED_RECOVER] = {"uncontended_recover",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/fixed.inc"
#include "backend/redis/script/claim.inc"
#include "backend/redis/script/uncontended_recover.inc"
        , true
    },
    [REDIS_UNCONTENDED_EXTEND] = {"uncontended_extend",
#include "backend/redis/script/first.inc"
#include "backend/redis/script/fixed.inc"
#include "backend/redis/script/uncontended_extend.inc"
    },
    [REDIS_ENTER] = {"enter",
#include "backend/redis/script/format.inc"
#include "backend/redis/script/enter.inc"
        , true
    },
};
const char redis_meet_script[] =
#include "backend/redis/script/format.inc"
#include "backend/redis/script/meet.inc"
    ;
const char redis_permissions_script[] =
#include "backend/redis/script/permissions.inc"
    ;
/* clang-format on */

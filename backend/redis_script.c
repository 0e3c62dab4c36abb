/* redis_script: the table of scripts.  Each .lua becomes a string literal when
 * the daemon is built.
 */
#include "redis_script.h"

/* The order of the parts is theirs, not the alphabet's. */
/* clang-format off */
const struct redis_script redis_scripts[REDIS_SCRIPTS] = {
    [REDIS_ACQUIRE] = {"acquire",
#include "redis_script/head.inc"
#include "redis_script/acquire_free.inc"
#include "redis_script/common.inc"
#include "redis_script/acquire.inc"
    },
    [REDIS_RELEASE] = {"release",
#include "redis_script/head.inc"
#include "redis_script/release_lone.inc"
#include "redis_script/common.inc"
#include "redis_script/release.inc"
    },
    [REDIS_RELEASE_RANGE] = {"release_range",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/release_range.inc"
    },
    [REDIS_RENEW] = {"renew",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/renew.inc"
    },
    [REDIS_CONVERT] = {"convert",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/convert.inc"
    },
    [REDIS_SET] = {"set",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/set.inc"
    },
    [REDIS_REVOKE] = {"revoke",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/revoke.inc"
    },
    [REDIS_RENAME] = {"rename",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/rename.inc"
    },
    [REDIS_STAT] = {"stat",
#include "redis_script/head.inc"
#include "redis_script/stat.inc"
    },
    [REDIS_LIST] = {"list",
#include "redis_script/names.inc"
#include "redis_script/list.inc"
    },
    [REDIS_DIRECTORY] = {"directory",
#include "redis_script/head.inc"
#include "redis_script/common.inc"
#include "redis_script/names.inc"
#include "redis_script/directory.inc"
    },
    [REDIS_RECOVER] = {"recover",
#include "redis_script/recover.inc"
    },
    [REDIS_MEND] = {"mend",
#include "redis_script/mend.inc"
    },
};
/* clang-format on */

/* script: the table of scripts.  Each .lua becomes a string literal when the daemon is built. */
#include "backend/redlock/script.h"

/* A script's parts are in the order of their execution. */
/* clang-format off */
const struct redis_script redlock_scripts[REDLOCK_SCRIPTS] = {
    [REDLOCK_ACQUIRE] = {"acquire",
#include "backend/redlock/script/head.inc"
#include "backend/redlock/script/acquire.inc"
    },
    [REDLOCK_HOLD] = {"hold",
#include "backend/redlock/script/head.inc"
#include "backend/redlock/script/hold.inc"
    },
    [REDLOCK_RENEW] = {"renew",
#include "backend/redlock/script/head.inc"
#include "backend/redlock/script/renew.inc"
    },
    [REDLOCK_RELEASE] = {"release",
#include "backend/redlock/script/head.inc"
#include "backend/redlock/script/release.inc"
    },
    [REDLOCK_LOOK] = {"look",
#include "backend/redlock/script/head.inc"
#include "backend/redlock/script/look.inc"
    },
    [REDLOCK_LIST] = {"list",
#include "backend/redlock/script/list.inc"
    },
    [REDLOCK_DIRECTORY] = {"directory",
#include "backend/redlock/script/directory.inc"
    },
    [REDLOCK_GREET] = {"greet",
#include "backend/redis/script/format.inc"
#include "backend/redlock/script/greet.inc"
    },
    [REDLOCK_NOTES] = {"notes",
#include "backend/redlock/script/notes.inc"
    },
    [REDLOCK_RECOVER] = {"recover",
#include "backend/redlock/script/head.inc"
#include "backend/redlock/script/recover.inc"
    },
};
/* clang-format on */

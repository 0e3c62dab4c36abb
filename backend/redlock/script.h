/* script: the Lua scripts for one server.  Each source in backend/redlock/script/ describes its arguments and answer.
 */
#ifndef BACKEND_REDLOCK_SCRIPT_H
#define BACKEND_REDLOCK_SCRIPT_H

#include "backend/redis/conn/conn.h"

enum redlock_script_id {
    REDLOCK_ACQUIRE,
    REDLOCK_HOLD,
    REDLOCK_RENEW,
    REDLOCK_RELEASE,
    REDLOCK_LOOK,
    REDLOCK_LIST,
    REDLOCK_DIRECTORY,
    REDLOCK_GREET,
    REDLOCK_NOTES,
    REDLOCK_RECOVER,
    REDLOCK_SCRIPTS
};

extern const struct redis_script redlock_scripts[REDLOCK_SCRIPTS];

#endif

/* script: the scripts that change locks in the server, one for each
 * operation; their sources, with what they take and answer, are in
 * backend/redis/script/.
 */
#ifndef BACKEND_REDIS_SCRIPT_H
#define BACKEND_REDIS_SCRIPT_H

#include "backend/redis/conn/conn.h"

enum redis_script_id {
    REDIS_ACQUIRE,
    REDIS_UNCONTENDED_ACQUIRE,
    REDIS_HEARTBEAT,
    REDIS_RELEASE,
    REDIS_UNCONTENDED_RELEASE,
    REDIS_RELEASE_RANGE,
    REDIS_RENEW,
    REDIS_UNCONTENDED_RENEW_MANY,
    REDIS_RECLAIM,
    REDIS_CONVERT,
    REDIS_SET,
    REDIS_REVOKE,
    REDIS_RENAME,
    REDIS_STAT,
    REDIS_STAT_DIRECTORY,
    REDIS_LIST,
    REDIS_NAMES,
    REDIS_TICKETS,
    REDIS_MOUNTS,
    REDIS_DIRECTORY,
    REDIS_DELAY,
    REDIS_LEASES,
    REDIS_RECOVER,
    REDIS_UNCONTENDED_RECOVER,
    REDIS_UNCONTENDED_EXTEND,
    REDIS_ENTER,
    REDIS_SCRIPTS
};

extern const struct redis_script redis_scripts[REDIS_SCRIPTS];
/* meet.lua and permissions.lua, which only the preflight runs. */
extern const char redis_meet_script[], redis_permissions_script[];

#endif

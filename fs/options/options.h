/* options: the command line of leasefs, also as mount(8) calls it.
 *
 *     options   parses the arguments                    mount_option  the table of the -o options
 *     private   what these two share                    duration      "30s" to milliseconds
 */
#ifndef FS_OPTIONS_OPTIONS_H
#define FS_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FUSE_USE_VERSION 31
#include <fuse_lowlevel.h>

#include "backend/log.h"

#define LEASE_TTL_MIN 100LL                           /* milliseconds */
#define LEASE_TTL_MAX (10LL * 365 * 24 * 3600 * 1000) /* ten years */
#define LEASE_TTL_DEFAULT 30000LL
#define SPIN_DEFAULT 25 /* microseconds */
#define SPIN_MAX 1000
#define USER_LOCKS_DEFAULT 100000
#define USER_CONTENT_DEFAULT (64 << 20)

#define REDIS_WAIT_MAX 100
#define REDIS_TIME_MIN 10LL /* of the options timeout= and the like */
#define REDIS_TIME_MAX (10LL * 60 * 1000)

enum options_kind { OPTIONS_LOCAL, OPTIONS_REDIS, OPTIONS_REDLOCK, OPTIONS_ZOOKEEPER, OPTIONS_KINDS };

/* What only a mount of redis:// or redlock:// has.  NULL, 0: not given. */
struct options_redis {
    char *prefix;               /* before every key */
    char *key;                  /* template of a lock's key, with {n} once */
    char *sentinel_credentials; /* a file, absolute */
    int64_t timeout;            /* milliseconds, as the next two */
    int64_t command_timeout;
    int64_t connect_timeout;
    int64_t grace; /* 0: the default */
    bool strict;   /* grace=strict */
    uint32_t wait; /* replicas that must have what is granted */
    bool keepalive;
    bool background; /* mount although the server is away */
};

struct options {
    enum options_kind kind;
    bool foreground; /* -f */
    bool fake;       /* -f of mount.leasefs: check, but do not mount */
    bool verbose;    /* -v */
    bool remount;    /* change the ttl of the mount that is there */
    bool show_help, show_version;
    char *backend;     /* "memory", "local", "local:DIR", "redis://HOST", "zookeeper://HOST" and their like, as given */
    char *directory;   /* of the local store, or of what a ZooKeeper mount keeps, absolute; else NULL */
    char *credentials; /* for a server: a file, absolute; or NULL */
    struct options_redis redis;
    char *state;       /* of zookeeper://: a directory, absolute; NULL: the default one */
    bool layout_kazoo; /* of zookeeper:// */
    char *mountpoint;  /* absolute */
    int64_t ttl;       /* milliseconds (default LEASE_TTL_DEFAULT) */
    bool has_ttl;      /* it was given */
    bool owner_user;   /* owner=user */
    mode_t mode;       /* of the root directory, permission bits (default 0777 for root with allow_other, else 0755) */
    mode_t lock_mode;  /* of every new lock, whatever the umask; 0: as its maker's umask leaves it */
    uid_t uid;         /* of the root directory (default: the daemon's) */
    gid_t gid;
    bool sync_always;
    bool sandbox;  /* sandbox=yes, the default */
    uint32_t spin; /* microseconds that the next request is awaited awake; 0: none is */
    enum log_level log;
    uint64_t user_locks;   /* how many names, tickets and directories a user may have; 0: any number */
    uint64_t user_content; /* bytes of content of these; 0: any */
    bool allow_other;
    bool checks; /* the kernel looks at permissions, and asks for attributes to do so */
    bool has_fsname, has_subtype;
    struct fuse_args fuse; /* argv[0] and the -o options that are FUSE's own */
};

/* Parses `leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT` (options may stand
 * anywhere, as mount.fuse3(8) puts them last), or with an argv[0] of
 * mount.leasefs what mount(8) says to its helpers: there -f means "fake".  0, or
 * -EINVAL with one line in `error`.  Free with options_clear in both cases. */
int options_parse(struct options *options, int argc, char **argv, char *error, size_t error_size);

/* The words of -o lists, for --help: a new string of lines. */
char *options_help(void);

/* Frees what it owns; a zeroed or cleared structure is allowed. */
void options_clear(struct options *options);

/* "500ms", "30s", "5m", "1h", "2d" or plain seconds (decimals allowed) to
 * milliseconds; -EINVAL outside LEASE_TTL_MIN..LEASE_TTL_MAX or when malformed. */
int options_duration(const char *text, size_t length, int64_t *ret_ms);
/* The same with other limits; the upper one is at most LEASE_TTL_MAX. */
int options_duration_within(const char *text, size_t length, int64_t min, int64_t max, int64_t *ret_ms);

#endif

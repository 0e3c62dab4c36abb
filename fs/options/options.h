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
#define LOCKS_DEFAULT 10000000
#define CONTENT_DEFAULT (1 << 30)

#define REDIS_WAIT_MAX 100
#define REDIS_TIME_MIN 10LL /* of the options timeout= and the like */
#define REDIS_TIME_MAX (10LL * 60 * 1000)

enum options_kind {
    OPTIONS_LOCAL,
    OPTIONS_REDIS,
    OPTIONS_REDLOCK,
    OPTIONS_ZOOKEEPER,
    OPTIONS_POSTGRESQL,
    OPTIONS_KINDS
};

/* Only for stores across a network; mount_option.c says for which.  NULL, 0: not given. */
struct options_server {
    char *prefix;               /* before every key */
    char *key;                  /* template of a lock's key, with {n} once */
    char *sentinel_credentials; /* a file, absolute */
    int64_t timeout;            /* milliseconds, as the next two */
    int64_t command_timeout;
    int64_t connect_timeout;
    int64_t grace; /* 0: the default */
    bool strict;   /* grace=strict */
    uint32_t wait; /* replicas that must confirm a grant */
    bool keepalive;
    bool background; /* mount although the server is unreachable */
};

struct options {
    enum options_kind kind;
    bool foreground;        /* -f */
    bool fake;              /* -f of mount.leasefs: check, but do not mount */
    bool verbose;           /* -v */
    bool remount;           /* change the ttl of the existing mount */
    bool takeover;          /* replace its daemon */
    bool auto_unmount;      /* when the mount ends without a daemon */
    int64_t keep;           /* milliseconds that the mount outlives its daemon */
    char *const *arguments; /* of main(), ended by NULL.  Borrowed */
    char *status;           /* the mount point whose keeper to ask, or NULL */
    bool show_help, show_version;
    bool json;          /* the version as JSON */
    char *print_schema; /* the store whose schema to print, or NULL */
    char *protect;      /* a directory to protect while nothing is mounted on it, or NULL */
    char *backend;     /* "memory", "local", "local:DIR", "redis://HOST", "zookeeper://HOST" and their like, as given */
    char *directory;   /* absolute: of the local store, or of a ZooKeeper mount's state; else NULL */
    char *credentials; /* for a server: a file, absolute; or NULL */
    struct options_server server;
    char *state;       /* of zookeeper://: a directory, absolute; NULL: the default one */
    bool layout_kazoo; /* of zookeeper://: locks as kazoo lays them out */
    char *shedlock;    /* of postgresql://: the table that locks of ShedLock are in; NULL: none */
    char *mountpoint;  /* absolute */
    int64_t ttl;       /* milliseconds (default LEASE_TTL_DEFAULT) */
    bool has_ttl;      /* it was given */
    bool owner_user;   /* owner=user */
    mode_t mode;       /* of the root directory, permission bits (default 0777 for root with allow_other, else 0755) */
    mode_t lock_mode;  /* of every new lock, whatever the umask; 0: its maker decides */
    uid_t uid;         /* of the root directory (default: the daemon's) */
    gid_t gid;
    bool sync_always;
    bool sandbox;  /* sandbox=yes, the default */
    bool follow;   /* follow=yes, the default */
    uint32_t spin; /* microseconds for which the loop polls for the next request before it sleeps; 0: none */
    enum log_level log;
    uint64_t user_locks;   /* limit of a user's names, tickets and directories; 0: none */
    uint64_t user_content; /* limit of their content, bytes; 0: none */
    uint64_t locks;        /* the same for all users together */
    uint64_t content;
    bool allow_other;
    bool checks; /* the kernel checks permissions, and reads attributes to do so */
    bool has_fsname, has_subtype;
    struct fuse_args fuse; /* argv[0] and the -o options that are FUSE's own */
};

/* Parses `leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT`.  Options may stand anywhere, because mount.fuse3(8) puts them
 * last.  With an argv[0] of mount.leasefs, parses the command line of a mount(8) helper, where -f means "fake". 0, or
 * -EINVAL with one line in `error`.  Free with options_clear in both cases. */
int options_parse(struct options *options, int argc, char **argv, char *error, size_t error_size);

/* The list of -o options, for --help: a new string of lines. */
char *options_help(void);

/* Frees what it owns; a zeroed or cleared structure is allowed. */
void options_clear(struct options *options);

/* "500ms", "30s", "5m", "1h", "2d" or plain seconds (decimals allowed) to
 * milliseconds; -EINVAL outside LEASE_TTL_MIN..LEASE_TTL_MAX or when malformed. */
int options_duration(const char *text, size_t length, int64_t *ret_ms);
/* The same with other limits; the upper one is at most LEASE_TTL_MAX. */
int options_duration_within(const char *text, size_t length, int64_t min, int64_t max, int64_t *ret_ms);

#endif

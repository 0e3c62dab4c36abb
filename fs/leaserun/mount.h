/* mount: the leasefs that a directory is in, and its path there. */
#ifndef FS_LEASERUN_MOUNT_H
#define FS_LEASERUN_MOUNT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct leaserun_mount {
    dev_t device;
    char inner[PATH_MAX]; /* the directory's path from the mount's root */
    char root[PATH_MAX];  /* where the mount's root is visible, with its .leasefs; "": nowhere */
    char store[PATH_MAX]; /* the store's address; "": only this mount knows it */
    bool readable;        /* its .leasefs can be read */
    char grace[256];      /* "grace period: ...": the store grants nothing new; "": it does */
    bool away;            /* the store is, */
    char since[64];       /* since then, */
    char reason[256];     /* for this reason; "": not known */
    int64_t max_outage;   /* limit of a lock's time after a cut from the store, milliseconds; 0: its ttl */
};

/* `directory`: absolute, without symbolic links.  0 or -errno. */
int leaserun_mount_find(struct leaserun_mount *mount, const char *directory);

#endif

/* mount: which leasefs a directory is in, and where in it. */
#ifndef FS_LEASERUN_MOUNT_H
#define FS_LEASERUN_MOUNT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct leaserun_mount {
    dev_t device;
    char inner[PATH_MAX]; /* the directory, as the mount's root sees it */
    char root[PATH_MAX];  /* where the mount's root is seen, and its .leasefs; "": nowhere */
    char store[PATH_MAX]; /* where the locks are; "": only this mount knows */
    bool readable;        /* its .leasefs can be read */
    char grace[256];      /* "grace period: ...": the store grants nothing new; "": it does */
    int64_t max_outage;   /* no lock outlives a cut from the store by more than that, milliseconds; 0: it has its ttl */
};

/* Of an absolute path without symbolic links.  -errno. */
int leaserun_mount_find(struct leaserun_mount *mount, const char *directory);

#endif

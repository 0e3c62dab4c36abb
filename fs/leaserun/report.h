/* report: prints the result of --status, for people or as JSON. */
#ifndef FS_LEASERUN_REPORT_H
#define FS_LEASERUN_REPORT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A process that holds or waits. */
struct leaserun_process {
    char host[256], command[128];
    char ticket[NAME_MAX + 1]; /* its ticket of a queue; "": none */
    char note[65];             /* of its ticket in a queue; "": none */
    char since[64];            /* RFC 3339; "": not known */
    double seconds;            /* how long it has held or waited; -1: not known */
    long pid, uid;
};

/* Numbers are strings of digits, "" if not known. */
struct leaserun_report_lock {
    const char *name;
    const char *grace; /* why the store grants nothing new, and for how long; "": it does */
    bool held;
    bool broken; /* its holder has lost it, and has until `left` to end */
    bool ticket; /* the lock is a ticket of a queue */
    char kind[32], mode[32], since[64];
    char note[65];
    char token[32], left[32], ttl[32], waiters[32], width[32];
    struct leaserun_process *holders, *waiting; /* that this mount knows */
    size_t holder_count, waiting_count;
};

/* Prints it on standard output; and, if it is of a directory, those in it and below. */
void leaserun_report_print(const struct leaserun_report_lock *report, bool directory,
                           const struct leaserun_report_lock *below, size_t count, bool json);

#endif

/* arguments: parses leaserun's command line. */
#ifndef FS_LEASERUN_ARGUMENTS_H
#define FS_LEASERUN_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/clock.h"

#define LEASERUN_LOCKS_MAX 64
#define LEASERUN_NOTE_MAX 64 /* bytes */

enum leaserun_action {
    LEASERUN_RUN,    /* runs the command while the locks are held */
    LEASERUN_UNLOCK, /* locks[0]: the number of a descriptor */
    LEASERUN_STATUS,
    LEASERUN_GET,
    LEASERUN_PUT,
    LEASERUN_BREAK,
    LEASERUN_TOP,    /* locks[0]: a directory, if `count` */
    LEASERUN_MOUNTS, /* locks[0]: a directory */
};

struct leaserun_arguments {
    enum leaserun_action action;
    bool shared;
    bool no_fork; /* -F: the command takes the place of leaserun */
    bool verbose;
    bool json;
    bool force;     /* BREAK: also ends a guard */
    int64_t wait;   /* milliseconds; -1: no limit */
    int64_t ttl;    /* milliseconds; 0: the directory's */
    int64_t grace;  /* from SIGTERM to SIGKILL, milliseconds; -1: by the ttl */
    uint32_t width; /* of the queue that the lock must be; 0: no queue */
    int conflict;   /* the exit status if the lock was not free in time */
    const char *locks[LEASERUN_LOCKS_MAX];
    size_t count;
    int64_t once;                     /* the period, milliseconds; 0: run in any case */
    bool loop;                        /* run again and again */
    _Atomic clock_ms *began;          /* set to the time at which the command starts; NULL: nobody asks */
    char note[LEASERUN_NOTE_MAX + 1]; /* user.lease.note; "": none */
    char title[16];                   /* RUN: the command's name, as other processes are shown it */
    const char *token;                /* PUT; NULL: read standard input */
    char **command;                   /* RUN: ends with NULL; has at least one word */
    char *shell[4];                   /* the command of -c */
};

/* -1: run the action; else the exit status, after --help or a wrong command line. */
int leaserun_arguments_parse(struct leaserun_arguments *arguments, int argc, char **argv);

#endif

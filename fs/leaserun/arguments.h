/* arguments: what leaserun's command line asks for. */
#ifndef FS_LEASERUN_ARGUMENTS_H
#define FS_LEASERUN_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEASERUN_LOCKS_MAX 64

enum leaserun_action {
    LEASERUN_RUN,    /* the command, while the locks are held */
    LEASERUN_UNLOCK, /* locks[0] is the number of a descriptor */
    LEASERUN_STATUS,
    LEASERUN_GET,
    LEASERUN_PUT,
    LEASERUN_TOP, /* locks[0]: where, if `count` */
};

struct leaserun_arguments {
    enum leaserun_action action;
    bool shared;
    bool no_fork; /* the command takes the place of leaserun */
    bool verbose;
    bool json;
    int64_t wait;   /* milliseconds; -1: as long as it takes */
    int64_t ttl;    /* milliseconds; 0: what the directory says */
    int64_t grace;  /* between TERM and KILL, milliseconds; -1: what fits the ttl */
    uint32_t width; /* of the queue that the lock is to be; 0: not asked for */
    int conflict;   /* exit status when the lock was not free in time */
    const char *locks[LEASERUN_LOCKS_MAX];
    size_t count;
    const char *token; /* PUT; NULL: on standard input */
    char **command;    /* RUN: ends with NULL; at least one word */
    char *shell[4];    /* the command of -c */
};

/* -1 when there is something to do, else the exit status: help was asked for and
 * printed, or the command line was wrong and that was told. */
int leaserun_arguments_parse(struct leaserun_arguments *arguments, int argc, char **argv);

#endif

/* options: what leaserun's command line asks for. */
#ifndef FS_LEASERUN_OPTIONS_H
#define FS_LEASERUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct leaserun_options {
    bool shared;
    bool verbose;
    int64_t wait;  /* milliseconds; -1: as long as it takes */
    int64_t ttl;   /* milliseconds; 0: what the directory says */
    int64_t grace; /* between TERM and KILL, milliseconds; -1: what fits the ttl */
    int conflict;  /* exit status when the lock was not free in time */
    const char *lock;
    char **command; /* ends with NULL; at least one word */
};

/* -1 when there is a command to run, else the exit status: help was asked for
 * and printed, or the command line was wrong and that was told. */
int leaserun_options_parse(struct leaserun_options *options, int argc, char **argv);

#endif

/* predecessor: the daemon before this one, whose keeper has what this one goes on with. */
#ifndef FS_DAEMON_PREDECESSOR_H
#define FS_DAEMON_PREDECESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct keep;
struct options;
struct predecessor;

/* Looks for the keeper of a mount that is at options->mountpoint.  *ret is NULL if there is none.  -EBUSY: its daemon
 * lives, and options->takeover does not replace it.  0, or -errno with one line in `error`. */
int predecessor_find(const struct options *options, struct predecessor **ret, char *error, size_t error_size);

/* The process of its daemon; 0: it has ended. */
pid_t predecessor_daemon(const struct predecessor *before);
/* Can a daemon with these options go on with its mount?  -EINVAL: no, with one line in `error` that names the option.
 */
int predecessor_check(const struct predecessor *before, const struct options *options, char *error, size_t error_size);
/* What cannot change while a mount lasts, for keep_set_options: a new string. */
char *predecessor_describe(const struct options *options);

/* Ends the daemon, if it lives, and gets the connection and the memory.  Locks the memory.  The caller owns both. */
int predecessor_take(struct predecessor *before, int *ret_connection, struct keep **ret_keep, char *error,
                     size_t error_size);
/* After that: what keeps other daemons from its local store, or NULL.  local_new takes it. */
const int *predecessor_store(const struct predecessor *before);

/* This daemon serves, and has a keeper of its own: the keeper before ends. */
void predecessor_dismiss(struct predecessor *before);

/* For the case that keeper and daemon end together: the service manager has copies for the next daemon until the mount
 * ends.  `descriptors`: connection, memory and store, which may be -1. */
void predecessor_save(int manager, const int *descriptors);
void predecessor_discard(int manager);

/* NULL is allowed.  If it was not dismissed, its keeper goes on with the mount. */
void predecessor_free(struct predecessor *before);

/* Prints to stdout what the keeper of the mount at `path` knows. */
int predecessor_print_status(const char *path, char *error, size_t error_size);

#endif

/* drain: answers the requests of a mount to their end before another daemon takes it over.
 *
 * The other daemon sends TAKEOVER_BEGINS when its mount is in place (takeover.h).  Calls that began before that send
 * several requests, one after the other.  So the loop goes on until none has come by path for a tenth of a second and
 * the store has answered all, or for two seconds; then it ends, with fs->replaced set.  Calls that wait for locks do
 * not count: they end with the mount.
 */
#ifndef FS_DAEMON_DRAIN_H
#define FS_DAEMON_DRAIN_H

#include <ev.h>
#include <stdint.h>

struct fs;

struct drain {
    struct ev_loop *loop;
    struct fs *fs;
    ev_signal signals[2]; /* TAKEOVER_BEGINS and TAKEOVER_UNDONE */
    ev_timer timer;       /* its turns */
    uint64_t paths;       /* requests by path that were answered at its last turn */
    unsigned turns;
    unsigned quiet; /* turns in a row without such a request */
};

/* Waits for the signals. */
void drain_watch(struct drain *drain, struct ev_loop *loop, struct fs *fs);
void drain_unwatch(struct drain *drain);

#endif

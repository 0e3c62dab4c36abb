/* history_client: one process that takes and releases locks at random, and records each answer and its time; see
 * history.h.
 *
 *     history_client  records, and the choice of the next step
 *     history_lease   leases     history_lock  flock(2) and fcntl(2)    history_ticket  queues
 */
#ifndef TESTS_STRESS_HISTORY_CLIENT_H
#define TESTS_STRESS_HISTORY_CLIENT_H

#include "tests/stress/history.h"

#define SLOTS 2
#define PIECES_MAX 6

/* A name that this process holds. */
struct slot {
    bool link;       /* by a symbolic link, which can have no attributes */
    uint32_t name;   /* of a queue: behind those of the locks */
    uint8_t width;   /* of a ticket's queue; else 0 */
    char ticket[64]; /* its path in the mount */
    int fd;          /* -1: a lease that is not open */
    uint32_t grant;
    bool used;
    enum history_kind kind;
    int pieces; /* one, unless it is of byte ranges */
    struct history_hold *piece[PIECES_MAX];
};

struct client {
    const struct history_options *options;
    struct history_log *log;
    uint32_t index, capacity;
    struct stress_random random;
    struct slot slots[SLOTS];
    uint32_t grants;
    int64_t *avoid; /* by name: until when a lease that was left to run out may be there */
};

/* The path of a name; good until the call after the next. */
const char *client_path(const struct client *c, uint32_t name);

/* Around each system call, for the watch over calls that are never answered. */
void client_begin(struct client *c, enum history_operation operation, uint32_t name);
/* Counts the outcome; true for success.  Leaves errno as it is. */
bool client_end(struct client *c, enum history_operation operation, int result);

/* Notes a hold of these bytes since `acquired`. */
struct history_hold *client_note(struct client *c, const struct slot *slot, enum history_mode mode, int64_t acquired,
                                 int64_t start, int64_t end);
/* A hold of the whole name begins. */
void client_hold(struct client *c, struct slot *slot, enum history_kind kind, enum history_mode mode, int fd);
/* What the slot holds ends now, at the latest: before a call that gives it up. */
void client_disconnect(struct slot *slot);
void client_read_token(struct client *c, const struct slot *slot);

int client_open(struct client *c, enum history_operation operation, uint32_t name, int flags);
/* As scripts and programs open what they then lock. */
int client_open_any(struct client *c, uint32_t name, bool writable);
bool client_close(struct client *c, uint32_t name, int fd);
/* Signals come this often until it is switched off (0), so that none is missed. */
void client_alarm(int64_t ns);

struct slot *client_free_slot(struct client *c);
/* A name that this process can have nothing to do with yet. */
bool client_pick_name(struct client *c, uint32_t *ret_name);

/* Ways to acquire the name of a slot that holds nothing. */
void client_acquire_excl(struct client *c, struct slot *slot);
void client_acquire_symlink(struct client *c, struct slot *slot);
void client_acquire_touch(struct client *c, struct slot *slot);
void client_acquire_flock(struct client *c, struct slot *slot);
void client_acquire_fcntl(struct client *c, struct slot *slot);
/* A place in a queue, which is left if it does not hold in time. */
void client_acquire_ticket(struct client *c, struct slot *slot);

/* Ways to change what a slot holds: a lease, */
void client_link(struct client *c, struct slot *slot);
void client_rename(struct client *c, struct slot *slot);
void client_abandon(struct client *c, struct slot *slot);
void client_lease_to_flock(struct client *c, struct slot *slot);
/* a flock, */
void client_convert_flock(struct client *c, struct slot *slot);
void client_dup(struct client *c, struct slot *slot);
/* record locks. */
void client_convert_fcntl(struct client *c, struct slot *slot);
void client_split_fcntl(struct client *c, struct slot *slot);

/* Ways to give it up. */
void client_unlink(struct client *c, struct slot *slot);
void client_release_flock(struct client *c, struct slot *slot);
void client_release_fcntl(struct client *c, struct slot *slot);
void client_release_ticket(struct client *c, struct slot *slot);
/* By its token, or, if nobody shares it, by breaking it. */
void client_release_by_name(struct client *c, struct slot *slot);

#endif

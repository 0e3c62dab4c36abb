/* history_lock: what a client of a history does with flock(2) and fcntl(2); see
 * history_client.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/stress/history_client.h"

#define RANGE_BYTES 64

/* --- flock ------------------------------------------------------------------------- */

static bool client_flock(struct client *c, uint32_t name, int fd, int operation)
{
    bool try = operation & LOCK_NB;
    enum history_operation what = try ? OPERATION_FLOCK_TRY : OPERATION_FLOCK;
    if (c->options->unfenced) {
        return true;
    }
    client_begin(c, what, name);
    if (!try) {
        client_alarm((5 + stress_below(&c->random, 25)) * STRESS_MS);
    }
    int result = flock(fd, operation);
    int error = errno;
    if (!try) {
        client_alarm(0);
    }
    errno = error;
    return client_end(c, what, result);
}

void client_acquire_flock(struct client *c, struct slot *slot)
{
    bool shared = stress_chance(&c->random, 35);
    int try = stress_chance(&c->random, 50) ? LOCK_NB : 0;
    int fd = client_open_any(c, slot->name, false);
    if (fd < 0) {
        return;
    }
    if (client_flock(c, slot->name, fd, (shared ? LOCK_SH : LOCK_EX) | try)) {
        client_hold(c, slot, HISTORY_FLOCK, shared ? HISTORY_SHARED : HISTORY_EXCLUSIVE, fd);
    } else {
        client_close(c, slot->name, fd);
    }
}

/* Up from shared it goes on sharing until it is exclusive.  Linux gives it up first. */
static void client_upgrade_flock(struct client *c, struct slot *slot, int try)
{
    struct history_hold *shared = slot->piece[0];
    if (client_flock(c, slot->name, slot->fd, LOCK_EX | try)) {
        shared->released = shared->released ? shared->released : stress_now();
        client_hold(c, slot, HISTORY_FLOCK, HISTORY_EXCLUSIVE, slot->fd);
    }
}

/* Down from exclusive it stays held. */
void client_convert_flock(struct client *c, struct slot *slot)
{
    bool down = slot->piece[0]->mode == HISTORY_EXCLUSIVE;
    int64_t before = stress_now();
    int try = stress_chance(&c->random, 50) ? LOCK_NB : 0;
    if (!down && c->options->fuse) {
        client_upgrade_flock(c, slot, try);
        return;
    }
    client_disconnect(slot);
    if (client_flock(c, slot->name, slot->fd, (down ? LOCK_SH : LOCK_EX) | try)) {
        client_hold(c, slot, HISTORY_FLOCK, down ? HISTORY_SHARED : HISTORY_EXCLUSIVE, slot->fd);
        slot->piece[0]->acquired = down ? before : slot->piece[0]->acquired;
    } else {
        client_close(c, slot->name, slot->fd);
        slot->used = false;
    }
}

/* The lease of an open file becomes a flock without being let go. */
void client_lease_to_flock(struct client *c, struct slot *slot)
{
    struct history_hold *hold = slot->piece[0];
    if (slot->fd < 0 || !c->options->fuse) {
        return;
    }
    if (client_flock(c, slot->name, slot->fd, LOCK_EX | LOCK_NB)) {
        slot->kind = HISTORY_FLOCK;
        hold->kind = HISTORY_FLOCK;
    }
}

/* The description stays, so does what it holds. */
void client_dup(struct client *c, struct slot *slot)
{
    int copy = fcntl(slot->fd, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) {
        client_close(c, slot->name, slot->fd);
        slot->fd = copy;
    }
}

void client_release_flock(struct client *c, struct slot *slot)
{
    uint32_t way = stress_below(&c->random, c->options->fuse ? 3 : 2);
    if (way == 2) {
        client_unlink(c, slot);
        return;
    }
    client_disconnect(slot);
    if (way == 1 && !c->options->unfenced) {
        client_begin(c, OPERATION_FLOCK_UNLOCK, slot->name);
        client_end(c, OPERATION_FLOCK_UNLOCK, flock(slot->fd, LOCK_UN));
    }
    client_close(c, slot->name, slot->fd);
    slot->used = false;
}
/* --- fcntl ------------------------------------------------------------------------- */

static bool client_fcntl(struct client *c, const struct slot *slot, int fd, short type, int64_t start, int64_t end,
                         bool wait)
{
    static const int commands[2][2] = {{F_SETLK, F_SETLKW}, {F_OFD_SETLK, F_OFD_SETLKW}};
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start};
    enum history_operation what = type == F_UNLCK ? OPERATION_FCNTL_UNLOCK
                                  : wait          ? OPERATION_FCNTL
                                                  : OPERATION_FCNTL_TRY;
    lock.l_len = end == HISTORY_RANGE_MAX ? 0 : end - start + 1;
    if (c->options->unfenced) {
        return true;
    }
    client_begin(c, what, slot->name);
    if (wait) {
        client_alarm((5 + stress_below(&c->random, 25)) * STRESS_MS);
    }
    int result = fcntl(fd, commands[slot->kind == HISTORY_OFD][wait], &lock);
    int error = errno;
    if (wait) {
        client_alarm(0);
    }
    errno = error;
    return client_end(c, what, result);
}

/* Byte ranges are for a quarter of the names; see history_check on their tokens. */
static bool client_has_ranges(uint32_t name)
{
    return name % 4 == 3;
}

static void client_pick_range(struct client *c, uint32_t name, int64_t *ret_start, int64_t *ret_end)
{
    *ret_start = 0;
    *ret_end = HISTORY_RANGE_MAX;
    if (client_has_ranges(name) && stress_chance(&c->random, 80)) {
        *ret_start = stress_below(&c->random, RANGE_BYTES);
        *ret_end = *ret_start + stress_below(&c->random, RANGE_BYTES);
    }
}

void client_acquire_fcntl(struct client *c, struct slot *slot)
{
    bool shared = stress_chance(&c->random, 35);
    int64_t start, end;
    int fd = client_open_any(c, slot->name, true);
    if (fd < 0) {
        return;
    }
    slot->kind = stress_chance(&c->random, 50) ? HISTORY_OFD : HISTORY_POSIX;
    client_pick_range(c, slot->name, &start, &end);
    if (!client_fcntl(c, slot, fd, shared ? F_RDLCK : F_WRLCK, start, end, stress_chance(&c->random, 50))) {
        client_close(c, slot->name, fd);
        return;
    }
    slot->used = true;
    slot->fd = fd;
    slot->piece[0] = client_note(c, slot, shared ? HISTORY_SHARED : HISTORY_EXCLUSIVE, stress_now(), start, end);
    slot->pieces = 1;
    client_read_token(c, slot);
}

/* Another mode for all of it.  Whether or not that is granted, nothing is lost. */
void client_convert_fcntl(struct client *c, struct slot *slot)
{
    struct history_hold *old = slot->piece[0];
    bool down = old->mode == HISTORY_EXCLUSIVE;
    int64_t before = stress_now(), start = old->start, end = old->end;
    if (slot->pieces != 1) {
        return;
    }
    if (down) {
        client_disconnect(slot); /* from here on it may be shared */
    }
    if (client_fcntl(c, slot, slot->fd, down ? F_RDLCK : F_WRLCK, start, end, stress_chance(&c->random, 50))) {
        int64_t now = stress_now();
        old->released = old->released ? old->released : now;
        slot->piece[0] =
            client_note(c, slot, down ? HISTORY_SHARED : HISTORY_EXCLUSIVE, down ? before : now, start, end);
    } else {
        slot->piece[0] = client_note(c, slot, HISTORY_SHARED, before, start, end);
        old->released = old->released ? old->released : before;
    }
    slot->pieces = 1;
    client_read_token(c, slot);
}

/* Gives up some bytes: what is left of each piece is held on without a gap. */
void client_split_fcntl(struct client *c, struct slot *slot)
{
    int64_t start = stress_below(&c->random, 2 * RANGE_BYTES), end = start + stress_below(&c->random, RANGE_BYTES);
    int64_t now = stress_now();
    struct history_hold *left[PIECES_MAX];
    int count = 0;
    if (!client_has_ranges(slot->name) || slot->pieces > PIECES_MAX / 2) {
        return;
    }
    for (int i = 0; i < slot->pieces; i++) {
        struct history_hold *old = slot->piece[i];
        if (old->end < start || old->start > end) {
            left[count++] = old;
            continue;
        }
        if (old->start < start) {
            left[count++] = client_note(c, slot, old->mode, now, old->start, start - 1);
        }
        if (old->end > end) {
            left[count++] = client_note(c, slot, old->mode, now, end + 1, old->end);
        }
        old->released = now;
    }
    memcpy(slot->piece, left, sizeof left);
    slot->pieces = count;
    client_fcntl(c, slot, slot->fd, F_UNLCK, start, end, false);
    if (count == 0) {
        client_close(c, slot->name, slot->fd);
        slot->used = false;
    }
}

void client_release_fcntl(struct client *c, struct slot *slot)
{
    uint32_t way = stress_below(&c->random, c->options->fuse ? 3 : 2);
    if (way == 2) {
        client_unlink(c, slot);
        return;
    }
    client_disconnect(slot);
    if (way == 1) {
        client_fcntl(c, slot, slot->fd, F_UNLCK, 0, HISTORY_RANGE_MAX, false);
    }
    client_close(c, slot->name, slot->fd);
    slot->used = false;
}

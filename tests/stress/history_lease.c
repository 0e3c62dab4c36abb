/* history_lease: a client's steps with leases; see history_client.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/stress/history_client.h"

/* open(O_CREAT|O_EXCL); the file stays open now and then. */
void client_acquire_excl(struct client *c, struct slot *slot)
{
    int excl = c->options->unfenced ? 0 : O_EXCL;
    int fd = client_open(c, OPERATION_EXCL, slot->name, O_RDWR | O_CREAT | excl);
    if (fd < 0) {
        return;
    }
    client_hold(c, slot, HISTORY_LEASE, HISTORY_EXCLUSIVE, fd);
    if (stress_chance(&c->random, 70)) {
        slot->fd = -1;
        client_close(c, slot->name, fd);
    }
}

void client_acquire_symlink(struct client *c, struct slot *slot)
{
    client_begin(c, OPERATION_SYMLINK, slot->name);
    slot->link = true;
    if (client_end(c, OPERATION_SYMLINK, symlink("nobody", client_path(c, slot->name)))) {
        client_hold(c, slot, HISTORY_LEASE, HISTORY_EXCLUSIVE, -1);
    }
}

/* As the various touch do it: held if no call of them failed. */
void client_acquire_touch(struct client *c, struct slot *slot)
{
    uint32_t way = stress_below(&c->random, 4);
    int fd = client_open(c, OPERATION_OPEN, slot->name, O_WRONLY | O_CREAT | (way == 2 ? O_TRUNC : 0));
    if (fd < 0) {
        return;
    }
    bool good = true;
    if (way == 0) { /* GNU */
        int copy = dup(fd);
        good = client_close(c, slot->name, fd);
        fd = copy;
        client_begin(c, OPERATION_TIMES, slot->name);
        good = client_end(c, OPERATION_TIMES, futimens(fd, NULL)) && good;
    } else if (way == 3) {
        client_begin(c, OPERATION_WRITE, slot->name);
        good = client_end(c, OPERATION_WRITE, write(fd, "mine\n", 5) == 5 ? 0 : -1);
    }
    /* Decided by now, or by this. */
    good = client_close(c, slot->name, fd) && good;
    if (good) {
        client_hold(c, slot, HISTORY_LEASE, HISTORY_EXCLUSIVE, -1);
    }
}

/* link(2) of a lease to another name acquires that; then the first goes. */
void client_link(struct client *c, struct slot *slot)
{
    struct slot *other = client_free_slot(c);
    uint32_t name;
    if (!other || !client_pick_name(c, &name)) {
        return;
    }
    other->name = name;
    other->link = slot->link;
    other->width = 0;
    other->grant = ++c->grants;
    client_begin(c, OPERATION_LINK, name);
    if (client_end(c, OPERATION_LINK, link(client_path(c, slot->name), client_path(c, name)))) {
        client_hold(c, other, HISTORY_LEASE, HISTORY_EXCLUSIVE, -1);
    }
}

void client_rename(struct client *c, struct slot *slot)
{
    uint32_t name, old = slot->name;
    if (slot->fd >= 0 || !client_pick_name(c, &name)) {
        return;
    }
    client_disconnect(slot);
    client_begin(c, OPERATION_RENAME, name);
    bool moved = client_end(c, OPERATION_RENAME, rename(client_path(c, old), client_path(c, name)));
    /* If it did not move it was held all the time; a new note says so from here on. */
    slot->name = moved ? name : old;
    client_hold(c, slot, HISTORY_LEASE, HISTORY_EXCLUSIVE, -1);
}

void client_unlink(struct client *c, struct slot *slot)
{
    client_disconnect(slot);
    client_begin(c, OPERATION_UNLINK_OWN, slot->name);
    client_end(c, OPERATION_UNLINK_OWN, unlink(client_path(c, slot->name)));
    if (slot->fd >= 0) {
        client_close(c, slot->name, slot->fd);
    }
    slot->used = false;
}

/* Lets a lease run out: a fixed term, and nobody who ends it. */
void client_abandon(struct client *c, struct slot *slot)
{
    int64_t term = (100 + stress_below(&c->random, 100)) * STRESS_MS;
    char value[32];
    if (slot->fd >= 0 || slot->link) {
        return;
    }
    snprintf(value, sizeof value, "%lldms", (long long)(term / STRESS_MS));
    int64_t requested = stress_now();
    client_disconnect(slot);
    client_begin(c, OPERATION_TTL, slot->name);
    if (client_end(c, OPERATION_TTL,
                   lsetxattr(client_path(c, slot->name), "user.lease.ttl", value, strlen(value), 0))) {
        /* Terms are counted in whole milliseconds, and the first one has begun. */
        client_note(c, slot, HISTORY_EXCLUSIVE, requested, 0, HISTORY_RANGE_MAX)->released =
            requested + term - STRESS_MS;
        c->avoid[slot->name] = stress_now() + term + STRESS_SECOND;
        slot->used = false;
    } else {
        client_unlink(c, slot);
    }
}

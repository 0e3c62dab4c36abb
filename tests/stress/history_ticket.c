/* history_ticket: a client's steps with queues and tokens; see history_client.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/stress/history_client.h"

static bool client_stands_in(const struct client *c, uint32_t name)
{
    for (int i = 0; i < SLOTS; i++) {
        if (c->slots[i].used && c->slots[i].name == name) {
            return true;
        }
    }
    return false;
}

/* It starts with its name, for who made it. */
static bool client_read_name(int fd, int width, char ticket[64])
{
    char name[40];
    ssize_t length = pread(fd, name, sizeof name - 1, 0);
    if (length < 2 || name[length - 1] != '\n') {
        return false;
    }
    name[length - 1] = '\0';
    snprintf(ticket, 64, "q%d/%s", width, name);
    return true;
}

static bool client_await_turn(struct client *c, const struct slot *slot, int fd, int operation, bool wait)
{
    enum history_operation what = wait ? OPERATION_FLOCK : OPERATION_FLOCK_TRY;
    client_begin(c, what, slot->name);
    if (wait) {
        client_alarm((5 + stress_below(&c->random, 25)) * STRESS_MS);
    }
    int result = flock(fd, operation | (wait ? 0 : LOCK_NB)), error = errno;
    client_alarm(0);
    errno = error;
    return client_end(c, what, result);
}

void client_acquire_ticket(struct client *c, struct slot *slot)
{
    int width = 1 + (int)stress_below(&c->random, HISTORY_QUEUES);
    uint32_t name = c->options->names + (uint32_t)width - 1;
    bool shared = stress_chance(&c->random, 30);
    char path[4096];
    if (client_stands_in(c, name)) {
        return;
    }
    slot->name = name;
    slot->grant = ++c->grants;
    slot->pieces = 0;
    slot->link = false;
    snprintf(path, sizeof path, "%s/q%d/job-", c->options->directory, width);
    client_begin(c, OPERATION_TICKET, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (!client_end(c, OPERATION_TICKET, fd)) {
        return;
    }
    if (!client_await_turn(c, slot, fd, shared ? LOCK_SH : LOCK_EX, stress_chance(&c->random, 70)) ||
        !client_read_name(fd, width, slot->ticket)) {
        client_close(c, name, fd); /* leaves the queue: a lock was asked for */
        return;
    }
    slot->width = (uint8_t)width;
    client_hold(c, slot, HISTORY_TICKET, shared ? HISTORY_SHARED : HISTORY_EXCLUSIVE, fd);
}

void client_release_ticket(struct client *c, struct slot *slot)
{
    if (stress_chance(&c->random, 30)) {
        client_unlink(c, slot);
        return;
    }
    client_disconnect(slot);
    client_close(c, slot->name, slot->fd);
    slot->used = false;
}

/* Shared tickets are not broken, because the others would not know. */
void client_release_by_name(struct client *c, struct slot *slot)
{
    bool may_break = slot->kind == HISTORY_TICKET || slot->piece[0]->mode == HISTORY_EXCLUSIVE;
    bool breaks = may_break && stress_chance(&c->random, 50);
    enum history_operation operation = breaks ? OPERATION_BREAK : OPERATION_RELEASE;
    char value[32] = "1";
    if (!breaks) {
        snprintf(value, sizeof value, "%lld", (long long)slot->piece[0]->token);
    }
    client_disconnect(slot);
    client_begin(c, operation, slot->name);
    client_end(c, operation,
               setxattr(client_path(c, slot->name), breaks ? "user.lease.break" : "user.lease.release", value,
                        strlen(value), 0));
    if (slot->fd >= 0) {
        client_close(c, slot->name, slot->fd);
    }
    slot->used = false;
}

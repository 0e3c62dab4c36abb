/* channel: the kernel's messages; see channel.h. */
#include "fs/daemon/channel.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/log.h"
#include "fs/keep/memory.h"
#include "fs/options/options.h"

#define CHANNEL_DEATHS 2        /* of daemons: then a request that was under way is not handled any further */
#define CHANNEL_INTERRUPT_BIT 1 /* of `unique`: the INTERRUPT of the request with that number */

void channel_open(struct channel *channel, struct fuse_session *fuse, struct keep *keep)
{
    *channel = (struct channel){.fuse = fuse, .keep = keep, .fd = fuse_session_fd(fuse)};
}

/* An INTERRUPT is not sent to the next daemon, so the request itself notes it. */
static void channel_note_interrupt(struct channel *channel, const struct fuse_in_header *header)
{
    const struct fuse_interrupt_in *interrupt = (const void *)(header + 1);
    if (header->opcode == FUSE_INTERRUPT && header->len >= sizeof *header + sizeof *interrupt) {
        keep_request_interrupt(channel->keep, interrupt->unique);
    }
}

const struct fuse_in_header *channel_read(struct channel *channel, int *ret_error)
{
    ssize_t got;
    void *buffer = keep_request_buffer(channel->keep);
    if (!buffer) {
        *ret_error = -ENOBUFS;
        return NULL;
    }
    do {
        got = read(channel->fd, buffer, KEEP_LANDING_SIZE);
    } while (got < 0 && errno == ENOENT); /* its caller was gone while it was copied */
    if (got < 0) {
        *ret_error = errno == EINTR ? -EAGAIN : -errno;
        return NULL;
    }
    const struct keep_request *slot = keep_request_landed(channel->keep, (size_t)got);
    if (!slot) {
        *ret_error = got == 0 ? -ENODEV : -EIO;
        return NULL;
    }
    const struct fuse_in_header *header = keep_request_message(channel->keep, slot);
    channel_note_interrupt(channel, header);
    return header;
}

void channel_process(struct channel *channel)
{
    const struct keep_request *slot = keep_request_current(channel->keep);
    const struct fuse_buf message = {.size = slot->length, .mem = keep_request_message(channel->keep, slot)};
    fuse_session_process_buf(channel->fuse, &message);
    keep_request_settle(channel->keep);
}

/* --- what the daemon before has left ------------------------------------------------------- */

static void channel_refuse(struct channel *channel, struct keep_request *slot)
{
    const struct fuse_in_header *message = keep_request_message(channel->keep, slot);
    const struct fuse_out_header reply = {.len = sizeof reply, .error = -EIO, .unique = message->unique};
    log_error("a request of process %u (FUSE opcode %u) was under way when %u daemons ended: it gets EIO", message->pid,
              message->opcode, slot->deaths);
    ssize_t written = write(channel->fd, &reply, sizeof reply);
    (void)written; /* the caller may be gone */
    keep_request_done(channel->keep, slot);
}

static void channel_interrupt(struct channel *channel, uint64_t unique)
{
    struct {
        struct fuse_in_header header;
        struct fuse_interrupt_in interrupt;
    } message = {.header = {.len = sizeof message, .opcode = FUSE_INTERRUPT, .unique = unique | CHANNEL_INTERRUPT_BIT},
                 .interrupt = {.unique = unique}};
    const struct fuse_buf buffer = {.size = sizeof message, .mem = &message};
    fuse_session_process_buf(channel->fuse, &buffer);
}

static void channel_repeat(struct keep_request *slot, void *arg)
{
    struct channel *channel = arg;
    const struct fuse_in_header *message = keep_request_message(channel->keep, slot);
    uint64_t unique = message->unique;
    if (message->opcode == FUSE_INIT) {
        keep_request_done(channel->keep, slot);
        return;
    }
    if (slot->deaths >= CHANNEL_DEATHS) {
        channel_refuse(channel, slot);
        return;
    }
    keep_request_resume(channel->keep, slot);
    channel_process(channel);
    if (slot->length && slot->interrupted) {
        channel_interrupt(channel, unique);
    }
}

int channel_resume(struct channel *channel, char *error, size_t error_size)
{
    const struct keep_init *init = keep_init(channel->keep);
    if (!init) {
        return 0;
    }
    char message[KEEP_INIT_MAX];
    memcpy(message, init->message, init->length);
    const struct fuse_buf buffer = {.size = init->length, .mem = message};
    fuse_session_process_buf(channel->fuse, &buffer); /* the kernel has a reply already, and refuses this one */
    if (fuse_session_exited(channel->fuse)) {
        snprintf(error, error_size,
                 "this leasefs cannot go on with the connection of the daemon before: unmount and mount again");
        return -EPROTO;
    }
    keep_requests_pending(channel->keep, channel_repeat, channel);
    return 0;
}

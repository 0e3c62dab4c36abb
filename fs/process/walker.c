/* walker: see walker.h. */
#include "fs/process/walker.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/process/connection.h"

#define WALKER_PIECE 65536

/* A dead mount with a watched file. */
struct walker_connection {
    uint64_t device;
    int fd; /* -errno: see connection_open */
};

struct walker {
    int socket, proc;
    int connections; /* connection_open_all */
    bool blind;
    GArray *mounts; /* of struct walker_connection */
    struct walk_file *files;
    uint32_t count;
    pid_t child; /* 0: none walks */
    int pipe;    /* from it */
    GByteArray *reply;
};

struct walker *walker_new(int socket, bool blind)
{
    struct walker *walker = g_new(struct walker, 1);
    *walker = (struct walker){
        .socket = socket,
        .proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC),
        .connections = connection_open_all(),
        .blind = blind,
        .mounts = g_array_new(FALSE, FALSE, sizeof(struct walker_connection)),
        .pipe = -1,
        .reply = g_byte_array_new(),
    };
    return walker;
}

int walker_descriptor(const struct walker *walker)
{
    return walker->pipe;
}

/* --- bytes ------------------------------------------------------------------------ */

static bool walker_read(int fd, void *buffer, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t got = read(fd, (char *)buffer + at, size - at);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool walker_write(int fd, const void *buffer, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t put = write(fd, (const char *)buffer + at, size - at);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* --- mounts ------------------------------------------------------------------------- */

static struct walker_connection *walker_find(const struct walker *walker, uint64_t device)
{
    for (guint i = 0; i < walker->mounts->len; i++) {
        struct walker_connection *mount = &g_array_index(walker->mounts, struct walker_connection, i);
        if (mount->device == device) {
            return mount;
        }
    }
    return NULL;
}

/* The mounts of the present files; what was open stays open. */
static void walker_open_mounts(struct walker *walker)
{
    GArray *mounts = g_array_new(FALSE, FALSE, sizeof(struct walker_connection));
    for (uint32_t i = 0; i < walker->count; i++) {
        struct walker_connection mount = {.device = walker->files[i].device};
        if (i > 0 && walker->files[i - 1].device == mount.device) {
            continue;
        }
        struct walker_connection *kept = walker_find(walker, mount.device);
        mount.fd = kept ? kept->fd : connection_open(walker->connections, (dev_t)mount.device);
        if (kept) {
            kept->fd = -1;
        }
        g_array_append_val(mounts, mount);
    }
    for (guint i = 0; i < walker->mounts->len; i++) {
        int fd = g_array_index(walker->mounts, struct walker_connection, i).fd;
        if (fd >= 0) {
            close(fd);
        }
    }
    g_array_free(walker->mounts, TRUE);
    walker->mounts = mounts;
}

static enum walker_state walker_state(const struct walker_connection *mount)
{
    if (mount->fd >= 0) {
        return connection_is_gone(mount->fd) ? WALKER_GONE : WALKER_PRESENT;
    }
    return mount->fd == -ENOENT ? WALKER_GONE : WALKER_UNKNOWN;
}

static bool walker_is_needed(const struct walker *walker)
{
    guint i = 0;
    while (i < walker->mounts->len &&
           walker_state(&g_array_index(walker->mounts, struct walker_connection, i)) == WALKER_GONE) {
        i++;
    }
    return i < walker->mounts->len;
}

/* --- the process that walks --------------------------------------------------------- */

/* Where not even the first process can be looked into, a security module forbids what the capability allows. */
static bool walker_is_blind(const struct walker *walker, const struct walk_result *result)
{
    bool blind = walker->blind;
    for (size_t i = 0; i < result->count; i++) {
        blind |= result->openers[i].file == WALK_UNSEEN && result->openers[i].pid == 1;
    }
    return blind;
}

static void walker_reply(const struct walker *walker, int out)
{
    struct walk_result result = {.settled = true};
    int failure = walker_is_needed(walker) ? walk_processes(walker->proc, walker->files, walker->count, &result) : 0;
    struct walker_reply reply = {
        .openers = (uint32_t)result.count,
        .mounts = walker->mounts->len,
        .processor_ns = result.processor_ns,
        .processes = result.processes,
        .failed = failure < 0,
        .settled = result.settled,
        .in_flight = result.in_flight,
        .blind = walker_is_blind(walker, &result),
    };
    bool written = walker_write(out, &reply, sizeof reply) &&
                   walker_write(out, result.openers, result.count * sizeof *result.openers);
    for (guint i = 0; written && i < walker->mounts->len; i++) { /* after the walk */
        const struct walker_connection *mount = &g_array_index(walker->mounts, struct walker_connection, i);
        struct walker_mount state = {.device = mount->device, .state = walker_state(mount)};
        written = walker_write(out, &state, sizeof state);
    }
    walk_clear(&result);
}

static bool walker_fail(struct walker *walker)
{
    struct walker_reply reply = {.failed = true, .blind = walker->blind};
    return walker_write(walker->socket, &reply, sizeof reply);
}

static bool walker_start(struct walker *walker)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return walker_fail(walker);
    }
    walker->child = fork();
    if (walker->child == 0) {
        close(walker->socket);
        close(ends[0]);
        walker_reply(walker, ends[1]);
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    if (walker->child < 0) {
        walker->child = 0;
        close(ends[0]);
        return walker_fail(walker);
    }
    walker->pipe = ends[0];
    return true;
}

/* --- requests and replies --------------------------------------------------------------- */

bool walker_receive(struct walker *walker)
{
    struct walker_request request;
    if (!walker_read(walker->socket, &request, sizeof request) || walker->child) {
        return false;
    }
    if (request.files != WALKER_SAME_FILES) {
        if (request.files > WALKER_FILES_MAX) {
            return false;
        }
        walker->files = g_renew(struct walk_file, walker->files, request.files);
        walker->count = request.files;
        if (!walker_read(walker->socket, walker->files, request.files * sizeof *walker->files)) {
            return false;
        }
        walker_open_mounts(walker);
    }
    return walker_start(walker);
}

static bool walker_is_complete(const GByteArray *bytes)
{
    struct walker_reply reply;
    if (bytes->len < sizeof reply) {
        return false;
    }
    memcpy(&reply, bytes->data, sizeof reply);
    return bytes->len == sizeof reply + (uint64_t)reply.openers * sizeof(struct walk_opener) +
                             (uint64_t)reply.mounts * sizeof(struct walker_mount);
}

bool walker_collect(struct walker *walker)
{
    char piece[WALKER_PIECE];
    ssize_t got = read(walker->pipe, piece, sizeof piece);
    if (got > 0) {
        g_byte_array_append(walker->reply, (const guint8 *)piece, (guint)got);
    }
    if (got > 0 || (got < 0 && errno == EINTR)) {
        return true;
    }
    close(walker->pipe);
    walker->pipe = -1;
    waitpid(walker->child, NULL, 0);
    walker->child = 0;
    bool sent = walker_is_complete(walker->reply)
                    ? walker_write(walker->socket, walker->reply->data, walker->reply->len)
                    : walker_fail(walker);
    g_byte_array_set_size(walker->reply, 0);
    return sent;
}

/* predecessor: the daemon before this one; see predecessor.h. */
#include "fs/daemon/predecessor.h"

#include <errno.h>
#include <glib.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/daemon/link.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/sdnotify.h"
#include "fs/keep/memory.h"
#include "fs/options/options.h"

#define PREDECESSOR_ANSWERS 5000 /* milliseconds until a keeper must have answered */
#define PREDECESSOR_ENDS 15000   /* until it must have ended its daemon: it kills it after 5 s */

static const char *const predecessor_names[] = {
    [LINK_CONNECTION] = "leasefs-connection", [LINK_MEMORY] = "leasefs-memory", [LINK_STORE] = "leasefs-store"};

struct predecessor {
    const char *path;
    int socket;
    pid_t daemon;
    int store;         /* -1: none */
    int connection;    /* from the service manager, with */
    struct keep *keep; /* this, locked: there is no keeper.  NULL: there is one */
    char options[LINK_TEXT_MAX];
};

static int predecessor_connect(const char *path, struct link_message *ret_hello, uid_t *ret_user)
{
    int socket = mountpoint_user(path, ret_user);
    if (socket == 0) {
        socket = link_connect(mountpoint_device(path), *ret_user);
    }
    int result = socket < 0 ? socket : link_ask(socket, LINK_HELLO, PREDECESSOR_ANSWERS, ret_hello, NULL);
    if (socket >= 0 && result < 0) {
        close(socket);
    }
    return result < 0 ? result : socket;
}

/* The daemon and its keeper have ended, and the service manager has what they left. */
static struct predecessor *predecessor_from_manager(const struct options *options)
{
    struct pollfd connection = {.fd = sdnotify_take(predecessor_names[LINK_CONNECTION])};
    int memory = sdnotify_take(predecessor_names[LINK_MEMORY]);
    char error[1024];
    struct keep *keep = NULL;
    if (connection.fd < 0 || memory < 0 || poll(&connection, 1, 0) != 0) { /* POLLERR: it was unmounted */
        return NULL;
    }
    if (keep_attach(memory, &keep, error, sizeof error) < 0 || keep_try_lock(keep) < 0) {
        keep_free(keep);
        return NULL;
    }
    struct predecessor *before = g_new0(struct predecessor, 1);
    *before = (struct predecessor){.path = options->mountpoint,
                                   .socket = -1,
                                   .store = sdnotify_take(predecessor_names[LINK_STORE]),
                                   .connection = connection.fd,
                                   .keep = keep};
    g_strlcpy(before->options, keep_options(keep), sizeof before->options);
    return before;
}

void predecessor_save(int manager, const int *descriptors)
{
    for (size_t i = 0; i <= LINK_STORE; i++) {
        sdnotify_store(manager, predecessor_names[i], descriptors[i]);
    }
}

void predecessor_discard(int manager)
{
    for (size_t i = 0; i <= LINK_STORE; i++) {
        sdnotify_drop(manager, predecessor_names[i]);
    }
}

int predecessor_find(const struct options *options, struct predecessor **ret, char *error, size_t error_size)
{
    struct link_message hello;
    uid_t user = 0;
    *ret = NULL;
    int socket = predecessor_connect(options->mountpoint, &hello, &user);
    if (socket < 0) {
        *ret = predecessor_from_manager(options);
        return 0;
    }
    int result = 0;
    if (user != geteuid()) {
        snprintf(error, error_size, "the leasefs at '%s' is of uid %u: run this as that user", options->mountpoint,
                 (unsigned)user);
        result = -EPERM;
    } else if (hello.pid && !options->takeover) {
        snprintf(error, error_size, "a leasefs is mounted at '%s' already: use that one, or unmount it first",
                 options->mountpoint);
        result = -EBUSY;
    }
    if (result < 0) {
        close(socket);
        return result;
    }
    struct predecessor *before = g_new0(struct predecessor, 1);
    *before = (struct predecessor){
        .path = options->mountpoint, .socket = socket, .daemon = hello.pid, .store = -1, .connection = -1};
    g_strlcpy(before->options, hello.text, sizeof before->options);
    *ret = before;
    return 0;
}

pid_t predecessor_daemon(const struct predecessor *before)
{
    return before->daemon;
}

/* Of libfuse's options these only say how the mount is shown. */
static bool predecessor_may_change(const char *word)
{
    return strcmp(word, "-o") == 0 || g_str_has_prefix(word, "fsname=") || g_str_has_prefix(word, "subtype=") ||
           strcmp(word, "debug") == 0;
}

char *predecessor_describe(const struct options *options)
{
    g_autofree char *pids = g_file_read_link("/proc/self/ns/pid", NULL);
    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "%s\n", pids ? pids : "pid:?");
    g_string_append_printf(text, "%s%s\n", options->kind == OPTIONS_LOCAL && options->directory ? "local:" : "",
                           options->kind == OPTIONS_LOCAL && options->directory ? options->directory
                                                                                : options->backend);
    for (int i = 1; i < options->fuse.argc; i++) {
        if (!predecessor_may_change(options->fuse.argv[i])) {
            g_string_append_printf(text, "%s\n", options->fuse.argv[i]);
        }
    }
    return g_string_free(text, FALSE);
}

/* The first line of `lines` that `others` lacks, or NULL. */
static const char *predecessor_find_other(char *const *lines, const char *const *others)
{
    size_t i = 0;
    while (lines[i] && (!*lines[i] || g_strv_contains(others, lines[i]))) {
        i++;
    }
    return lines[i];
}

int predecessor_check(const struct predecessor *before, const struct options *options, char *error, size_t error_size)
{
    g_autofree char *text = predecessor_describe(options);
    g_auto(GStrv) mine = g_strsplit(text, "\n", -1);
    g_auto(GStrv) theirs = g_strsplit(before->options, "\n", -1);
    if (g_strv_length(theirs) < 2 || strcmp(mine[0], theirs[0]) != 0) {
        snprintf(error, error_size, "the mount at %s was made in another pid namespace: take over there", before->path);
        return -EINVAL;
    }
    if (strcmp(mine[1], theirs[1]) != 0) {
        snprintf(
            error, error_size,
            "%s shows the locks of %s, not of %s: the store of a mount cannot change; unmount %s, and mount it again",
            before->path, theirs[1], mine[1], before->path);
        return -EINVAL;
    }
    const char *other = predecessor_find_other(mine, (const char *const *)theirs);
    other = other ? other : predecessor_find_other(theirs, (const char *const *)mine);
    if (other) {
        snprintf(error, error_size, "option %s of %s cannot change while it is mounted: unmount it, and mount it again",
                 other, before->path);
        return -EINVAL;
    }
    return 0;
}

int predecessor_take(struct predecessor *before, int *ret_connection, struct keep **ret_keep, char *error,
                     size_t error_size)
{
    struct link_message answer;
    if (before->keep) {
        *ret_connection = before->connection;
        *ret_keep = g_steal_pointer(&before->keep);
        return 0;
    }
    int descriptors[LINK_DESCRIPTORS] = {-1, -1, -1, -1, -1};
    int result =
        link_ask(before->socket, before->daemon ? LINK_TAKEOVER : LINK_NEXT, PREDECESSOR_ENDS, &answer, descriptors);
    if (result == 0 && (descriptors[LINK_CONNECTION] < 0 || descriptors[LINK_MEMORY] < 0)) {
        result = -EPROTO;
    }
    if (result < 0) {
        snprintf(error, error_size, "cannot go on with the mount at %s: its keeper says: %s", before->path,
                 result == -EBUSY ? "another daemon does" : g_strerror(-result));
    } else {
        result = keep_attach(descriptors[LINK_MEMORY], ret_keep, error, error_size);
        descriptors[LINK_MEMORY] = result < 0 ? descriptors[LINK_MEMORY] : -1;
    }
    if (result == 0 && (result = keep_try_lock(*ret_keep)) < 0) {
        snprintf(error, error_size, "another daemon was quicker to go on with the mount at %s", before->path);
        keep_free(*ret_keep);
        *ret_keep = NULL;
    }
    if (result == 0) {
        *ret_connection = descriptors[LINK_CONNECTION];
        before->store = descriptors[LINK_STORE];
        descriptors[LINK_CONNECTION] = descriptors[LINK_STORE] = -1;
    }
    link_close_all(descriptors);
    return result;
}

const int *predecessor_store(const struct predecessor *before)
{
    return before->store < 0 ? NULL : &before->store;
}

void predecessor_dismiss(struct predecessor *before)
{
    static const struct link_message serving = {.kind = LINK_SERVING};
    if (before->socket >= 0) {
        link_send(before->socket, &serving, NULL, 0);
    }
}

void predecessor_free(struct predecessor *before)
{
    if (before) {
        if (before->socket >= 0) {
            close(before->socket);
        }
        keep_free(before->keep);
        g_free(before);
    }
}

int predecessor_print_status(const char *path, char *error, size_t error_size)
{
    struct link_message answer;
    uid_t user;
    int socket = predecessor_connect(path, &answer, &user);
    int result = socket < 0 ? socket : link_ask(socket, LINK_STATUS, PREDECESSOR_ANSWERS, &answer, NULL);
    if (socket >= 0) {
        close(socket);
    }
    if (result < 0) {
        snprintf(error, error_size, "no process keeps a leasefs at '%s': is it mounted, and with keep=?", path);
        return result;
    }
    fputs(answer.text, stdout);
    return 0;
}

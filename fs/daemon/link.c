/* link: messages between daemons and keepers; see link.h. */
#include "fs/daemon/link.h"

#include <errno.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#define LINK_ROOT_DIRECTORY "/run/leasefs"
#define LINK_BACKLOG 8

/* Packs those that exist.  Returns their number. */
static size_t link_pack(struct link_message *message, const int *descriptors, size_t count, int *packed)
{
    size_t number = 0;
    message->present = 0;
    for (size_t i = 0; i < count; i++) {
        if (descriptors[i] >= 0) {
            message->present |= 1U << i;
            packed[number++] = descriptors[i];
        }
    }
    return number;
}

int link_send(int socket, const struct link_message *message, const int *descriptors, size_t count)
{
    char control[CMSG_SPACE(sizeof(int) * LINK_DESCRIPTORS)] = {0};
    int packed[LINK_DESCRIPTORS];
    struct link_message sent = *message;
    size_t size = offsetof(struct link_message, text) + strnlen(sent.text, sizeof sent.text - 1) + 1;
    size_t number = link_pack(&sent, descriptors, count, packed);
    struct iovec data = {.iov_base = &sent, .iov_len = size};
    struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};
    sent.version = LINK_VERSION;
    if (number > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * number);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * number)};
        memcpy(CMSG_DATA(rights), packed, sizeof(int) * number);
    }
    /* a daemon in its sandbox passes no descriptors */
    while ((number > 0 ? sendmsg(socket, &header, MSG_NOSIGNAL) : send(socket, &sent, size, MSG_NOSIGNAL)) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

static void link_unpack(struct msghdr *header, uint32_t present, int descriptors[LINK_DESCRIPTORS])
{
    const struct cmsghdr *rights = CMSG_FIRSTHDR(header);
    int packed[LINK_DESCRIPTORS];
    size_t number = 0, taken = 0;
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
        number = MIN((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int), (size_t)LINK_DESCRIPTORS);
        memcpy(packed, CMSG_DATA(rights), number * sizeof(int));
    }
    for (size_t i = 0; i < LINK_DESCRIPTORS; i++) {
        descriptors[i] = present & 1U << i && taken < number ? packed[taken++] : -1;
    }
    for (; taken < number; taken++) {
        close(packed[taken]);
    }
}

ssize_t link_receive(int socket, struct link_message *ret_message, int *descriptors)
{
    char control[CMSG_SPACE(sizeof(int) * LINK_DESCRIPTORS)];
    struct iovec data = {.iov_base = ret_message, .iov_len = sizeof *ret_message};
    struct msghdr header = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got;
    memset(ret_message, 0, sizeof *ret_message);
    do {
        got = descriptors ? recvmsg(socket, &header, MSG_CMSG_CLOEXEC)
                          : recv(socket, ret_message, sizeof *ret_message, 0);
    } while (got < 0 && errno == EINTR);
    if (descriptors) {
        link_unpack(&header, ret_message->present, descriptors);
    }
    ret_message->text[LINK_TEXT_MAX - 1] = '\0';
    if (got > 0 && ((size_t)got < offsetof(struct link_message, text) || ret_message->version != LINK_VERSION)) {
        if (descriptors) {
            link_close_all(descriptors);
        }
        return -EPROTO;
    }
    return got < 0 ? -errno : got;
}

void link_close_all(int *descriptors)
{
    for (size_t i = 0; i < LINK_DESCRIPTORS; i++) {
        if (descriptors[i] >= 0) {
            close(descriptors[i]);
        }
        descriptors[i] = -1;
    }
}

int link_ask(int socket, enum link_kind kind, int limit, struct link_message *ret_answer, int *descriptors)
{
    int ready;
    struct pollfd answer = {.fd = socket, .events = POLLIN};
    const struct link_message question = {.kind = kind};
    int result = link_send(socket, &question, NULL, 0);
    if (result < 0) {
        return result;
    }
    do {
        ready = poll(&answer, 1, limit);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return -ETIMEDOUT;
    }
    ssize_t got = link_receive(socket, ret_answer, descriptors);
    if (got <= 0 || ret_answer->kind != LINK_ANSWER) {
        return got < 0 ? (int)got : -EPIPE;
    }
    return ret_answer->result;
}

/* --- sockets ----------------------------------------------------------------------------- */

static bool link_is_private(const char *directory, uid_t user)
{
    struct stat status;
    return lstat(directory, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == user &&
           (status.st_mode & 077) == 0;
}

static char *link_home_directory(uid_t user)
{
    const struct passwd *entry = getpwuid(user);
    const char *state = user == getuid() ? g_getenv("XDG_STATE_HOME") : NULL;
    const char *home = user == getuid() && g_getenv("HOME") ? g_getenv("HOME") : entry ? entry->pw_dir : NULL;
    return state && *state == '/' ? g_build_filename(state, "leasefs", NULL)
           : home                 ? g_build_filename(home, ".local", "state", "leasefs", NULL)
                                  : NULL;
}

static char *link_directory(uid_t user)
{
    if (user == 0) {
        return g_strdup(LINK_ROOT_DIRECTORY);
    }
    g_autofree char *runtime = g_strdup_printf("/run/user/%u", (unsigned)user);
    return link_is_private(runtime, user) ? g_build_filename(runtime, "leasefs", NULL) : link_home_directory(user);
}

static char *link_path(dev_t device, uid_t user)
{
    g_autofree char *directory = link_directory(user);
    return directory ? g_strdup_printf("%s/keeper-%u:%u", directory, major(device), minor(device)) : NULL;
}

static int link_address(const char *path, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return path && g_strlcpy(ret_address->sun_path, path, sizeof ret_address->sun_path) < sizeof ret_address->sun_path
               ? 0
               : -ENAMETOOLONG;
}

static char *link_new_path(const char *path, pid_t pid)
{
    return g_strdup_printf("%s.%d", path, (int)pid);
}

static int link_bind(const char *path, int *ret_socket)
{
    struct sockaddr_un address;
    g_autofree char *directory = g_path_get_dirname(path), *made = link_new_path(path, getpid());
    if (g_mkdir_with_parents(directory, 0700) < 0) {
        return -errno;
    }
    if (!link_is_private(directory, geteuid())) {
        return -EPERM;
    }
    int result = link_address(made, &address);
    if (result < 0) {
        return result;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    g_unlink(made); /* of one that was killed */
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 || listen(fd, LINK_BACKLOG) < 0) {
        result = -errno;
        if (fd >= 0) {
            close(fd);
        }
        return result;
    }
    *ret_socket = fd;
    return 0;
}

int link_listen(dev_t device, char *error, size_t error_size)
{
    int fd = -1;
    g_autofree char *path = link_path(device, geteuid());
    int result = path ? link_bind(path, &fd) : -ENOENT;
    if (result < 0) {
        snprintf(error, error_size, "cannot make the socket %s, so no other daemon can go on with this mount: %s",
                 path ? path : "of the keeper", g_strerror(-result));
        return result;
    }
    return fd;
}

ino_t link_publish(dev_t device, uid_t user, pid_t pid)
{
    struct stat status;
    g_autofree char *path = link_path(device, user), *made = path ? link_new_path(path, pid) : NULL;
    return made && stat(made, &status) == 0 && rename(made, path) == 0 ? status.st_ino : 0;
}

void link_remove(dev_t device, uid_t user, ino_t published, pid_t pid)
{
    struct stat status;
    g_autofree char *path = link_path(device, user), *made = path ? link_new_path(path, pid) : NULL;
    if (made && !published) {
        unlink(made);
    } else if (made && stat(path, &status) == 0 && status.st_ino == published) {
        unlink(path);
    }
}

bool link_peer_is_allowed(int socket)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static bool link_is_of(int socket, uid_t user)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == user;
}

int link_connect(dev_t device, uid_t user)
{
    struct sockaddr_un address;
    g_autofree char *path = link_path(device, user);
    int result = link_address(path, &address);
    if (result < 0) {
        return result;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        result = -errno;
    } else if (!link_is_of(fd, user)) {
        result = -EPERM;
    } else {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

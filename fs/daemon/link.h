/* link: the messages between daemons and keepers, and the sockets of keepers.
 *
 * A keeper listens on a socket that is named after the device number of its mount, in a directory of the mount's user
 * with mode 0700.  So the next daemon finds it from the mount point, and asks nothing of the mount.
 */
#ifndef FS_DAEMON_LINK_H
#define FS_DAEMON_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LINK_VERSION 1
#define LINK_TEXT_MAX 4096

enum link_kind {
    /* from a daemon to its own keeper */
    LINK_GIVE,    /* the descriptors of enum link_descriptor; `text`: see keep_set_options */
    LINK_UNMOUNT, /* answered with LINK_ANSWER */
    LINK_BYE,     /* the daemon ends, and its mount with it */
    LINK_CRASHED, /* the daemon does nothing more, but may not end before a core file is written */
    /* from a program that is, or may become, the next daemon: answered with LINK_ANSWER */
    LINK_HELLO,    /* `text`: the options; `pid`: the daemon, or 0 */
    LINK_NEXT,     /* there is no daemon: hand over.  The descriptors up to LINK_STORE */
    LINK_TAKEOVER, /* the same, after the daemon has ended */
    LINK_SERVING,  /* the mount answers, and has another keeper; without an answer */
    LINK_STATUS,   /* `text`: lines for people */
    /* from a keeper */
    LINK_ANSWER,
    LINK_END /* to its daemon: another one takes over */
};

/* LINK_STORE: what keeps other daemons from a local store.  LINK_ABORT: see mountpoint_open_abort. */
enum link_descriptor { LINK_CONNECTION, LINK_MEMORY, LINK_STORE, LINK_LISTEN, LINK_ABORT, LINK_DESCRIPTORS };

struct link_message {
    uint32_t version;
    uint32_t kind;
    int32_t result; /* of an answer: 0, or -errno */
    int32_t pid;
    uint32_t present; /* a bit for each descriptor that comes with it */
    char text[LINK_TEXT_MAX];
};

/* With those of the first `count` descriptors that are not negative.  0, or -errno. */
int link_send(int socket, const struct link_message *message, const int *descriptors, size_t count);
/* Descriptors that did not come are -1; without an array for them none come.  Returns the size of the message, 0 at the
 * end, or -errno. */
ssize_t link_receive(int socket, struct link_message *ret_message, int *descriptors);
/* Sends a message of this kind, and waits up to `limit` milliseconds for its answer.  The answer's result, or -errno.
 */
int link_ask(int socket, enum link_kind kind, int limit, struct link_message *ret_answer, int *descriptors);
void link_close_all(int *descriptors);

/* A socket that waits for connections, but has not its name yet.  -errno: with one line in `error`. */
int link_listen(dev_t device, char *error, size_t error_size);
/* Gives the socket that process `pid` has made its name, in place of another keeper's.  Returns its inode number. */
ino_t link_publish(dev_t device, uid_t user, pid_t pid);
/* Removes the socket: the published one with that inode number, or, for 0, that of process `pid`.  The kernel gives the
 * device number of a mount that has ended to the next mount, whose keeper may have that name already. */
void link_remove(dev_t device, uid_t user, ino_t published, pid_t pid);
/* A connection to the keeper of that mount, whose user is this process's or, for root, any.  -errno. */
int link_connect(dev_t device, uid_t user);
/* Is the process at the other end of the same user, or root? */
bool link_peer_is_allowed(int socket);
#endif

/* keeper_process: what the keeper does; see keeper_process.h.
 *
 * The kernel signals when the thread that made us has ended, also while another thread of the daemon still waits in the
 * kernel.  A robust mutex in kept memory tells whether another keeper or daemon goes on with the mount.
 */
#include "fs/daemon/keeper_process.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/clock.h"
#include "backend/log.h"
#include "backend/system.h"
#include "fs/daemon/link.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/starter.h"
#include "fs/keep/memory.h"
#include "fs/options/options.h"
#include "fs/process/walker.h"
#include "fs/sandbox/sandbox.h"

#define KEEPER_NAME "leasefs-keeper" /* as ps(1) shows it */
#define KEEPER_DAEMON (STDERR_FILENO + 1)
#define KEEPER_WALKER (STDERR_FILENO + 2)  /* the socket of walker.h */
#define KEEPER_STARTER (STDERR_FILENO + 3) /* the socket of starter.h */
#define KEEPER_DEATH SIGRTMIN              /* queued, so that none is lost behind one of somebody else's */
#define KEEPER_CLIENTS 8
#define KEEPER_END_LIMIT 5000 /* milliseconds until a daemon that must end is killed */
#define KEEPER_QUICK 3        /* daemons in a row that did not serve: then the kernel's requests get EIO */
#define KEEPER_DELAY_MIN 1000 /* milliseconds between two attempts to start a daemon */
#define KEEPER_DELAY_MAX 60000
#define KEEPER_TERM_SHARE(term) ((term)*2 / 3) /* a daemon that has died may have renewed a third ago */

enum { POLL_DEATHS, POLL_DAEMON, POLL_WALKER, POLL_WALKED, POLL_STARTER, POLL_LISTEN, POLL_CONNECTION, POLL_CLIENTS };

struct keeping {
    const char *mountpoint;
    int64_t limit; /* milliseconds that the mount outlives its daemon */
    bool unmounts; /* when it ends without a daemon */
    uid_t user;
    dev_t device;
    pid_t daemon;    /* 0: it has ended */
    pid_t maker;     /* of the socket: the daemon */
    ino_t published; /* the inode number of the socket, once it has its name; 0: it has none */
    int deaths;
    int given[LINK_DESCRIPTORS]; /* -1: not yet */
    struct walker *walker;
    int starter;       /* -1: a service manager starts daemons */
    bool starting;     /* it has not reported the program's end */
    bool bye;          /* the daemon ends the mount */
    struct keep *keep; /* locked: there is no daemon.  NULL: there is one, or the keeper knows of none */
    clock_ms deadline; /* without a daemon: the mount ends */
    clock_ms start;    /* the next attempt; 0: none is planned */
    int64_t delay;     /* until the one after that */
    bool refuses;      /* the kernel's requests get EIO */
    int clients[KEEPER_CLIENTS];
    int heir;      /* of `clients`: it gets, or has got, the descriptors; -1: none */
    clock_ms kill; /* when the daemon is killed that must end; 0: it need not */
    char options[LINK_TEXT_MAX];
};

/* --- the end ----------------------------------------------------------------------------- */

static void G_GNUC_NORETURN keeper_exit(const struct keeping *k, bool gone)
{
    if (k->device && (gone || !k->published)) {
        link_remove(k->device, k->user, k->published, k->maker);
    }
    log_flush();
    _exit(EXIT_SUCCESS);
}

/* After that, each call through an open file of the mount fails. */
static void keeper_end_connection(struct keeping *k)
{
    ssize_t written = k->given[LINK_ABORT] < 0 ? 0 : write(k->given[LINK_ABORT], "1", 1);
    (void)written;
    if (k->given[LINK_CONNECTION] >= 0) {
        close(k->given[LINK_CONNECTION]);
        k->given[LINK_CONNECTION] = -1;
    }
}

static void G_GNUC_NORETURN keeper_end_mount(struct keeping *k)
{
    char error[1024] = "";
    keeper_end_connection(k);
    if (k->unmounts && mountpoint_clear(k->mountpoint, error, sizeof error) < 0) {
        log_warning("%s", error);
    }
    keeper_exit(k, true);
}

static bool keeper_is_connected(const struct keeping *k)
{
    struct pollfd connection = {.fd = k->given[LINK_CONNECTION]};
    return connection.fd >= 0 && poll(&connection, 1, 0) == 0; /* POLLERR: it was unmounted, or aborted */
}

/* --- without a daemon ----------------------------------------------------------------------- */

static void keeper_plan_start(struct keeping *k, clock_ms when)
{
    if (k->starter >= 0) {
        k->start = when;
    }
}

static void keeper_start_daemon(struct keeping *k)
{
    k->start = 0;
    k->starting = send(k->starter, "", 1, MSG_NOSIGNAL) == 1;
}

/* The program has ended, or its first process has. */
static void keeper_on_started(struct keeping *k)
{
    char byte;
    if (recv(k->starter, &byte, 1, 0) <= 0) {
        close(k->starter);
        k->starter = -1;
    }
    k->starting = false;
    if (k->keep && k->heir < 0) {
        log_warning("%s: the daemon could not be started again; the next attempt is in %.0f s", k->mountpoint,
                    (double)k->delay / 1000);
        keeper_plan_start(k, clock_now() + k->delay);
        k->delay = MIN(k->delay * 2, KEEPER_DELAY_MAX);
    }
}

/* Keeps it for the next daemon if an effect would be lost with it. */
static bool keeper_must_keep(uint32_t opcode)
{
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_RELEASE ||
           opcode == FUSE_RELEASEDIR || opcode == FUSE_FLUSH;
}

static void keeper_refuse(struct keeping *k, const struct keep_request *slot)
{
    const struct fuse_in_header *message = keep_request_message(k->keep, slot);
    const struct fuse_interrupt_in *interrupt = (const void *)(message + 1);
    if (keeper_must_keep(message->opcode)) {
        keep_request_take(k->keep);
        return;
    }
    if (message->opcode == FUSE_INTERRUPT) {
        keep_request_interrupt(k->keep, interrupt->unique);
    } else {
        const struct fuse_out_header reply = {.len = sizeof reply, .error = -EIO, .unique = message->unique};
        ssize_t written = write(k->given[LINK_CONNECTION], &reply, sizeof reply);
        (void)written; /* the caller may be gone */
    }
    keep_request_settle(k->keep);
}

static void keeper_on_connection(struct keeping *k, short events)
{
    if (events & (POLLERR | POLLHUP)) {
        keeper_end_mount(k);
    }
    void *buffer = keep_request_buffer(k->keep);
    ssize_t got = buffer ? read(k->given[LINK_CONNECTION], buffer, KEEP_LANDING_SIZE) : 0;
    const struct keep_request *slot = got > 0 ? keep_request_landed(k->keep, (size_t)got) : NULL;
    if (slot) {
        keeper_refuse(k, slot);
    } else if (!buffer) {
        k->refuses = false; /* kept memory is full of what must be kept */
    }
}

static void keeper_set_deadline(struct keeping *k)
{
    const struct keep_history *history = keep_history(k->keep);
    int64_t limit = k->limit, term = keep_term(k->keep);
    if (term > 0) {
        limit = MIN(limit, KEEPER_TERM_SHARE(term));
    }
    k->deadline = history->down_since + limit;
}

/* A daemon has ended that did not mean to. */
static void keeper_count_death(struct keeping *k)
{
    struct keep_history *history = keep_history(k->keep);
    bool ended = keep_has_ended(k->keep);
    if (history->served || !history->down_since) {
        history->down_since = clock_now();
        history->quick_deaths = 0;
    }
    history->quick_deaths += !history->served && !ended;
    history->served = 0;
    k->refuses = history->quick_deaths >= KEEPER_QUICK;
    if (k->refuses) {
        uint32_t more = MIN(history->quick_deaths - KEEPER_QUICK, 6U);
        k->delay = MIN((int64_t)KEEPER_DELAY_MIN << more, KEEPER_DELAY_MAX);
    }
}

static void keeper_publish_socket(struct keeping *k)
{
    if (!k->published && k->given[LINK_LISTEN] >= 0) {
        k->published = link_publish(k->device, k->user, k->maker);
    }
}

/* Locks kept memory, if nobody else goes on with the mount. */
static bool keeper_take_charge(struct keeping *k)
{
    char error[1024] = "";
    int fd = fcntl(k->given[LINK_MEMORY], F_DUPFD_CLOEXEC, KEEPER_STARTER + 1);
    int result = keep_attach(fd, &k->keep, error, sizeof error);
    if (result < 0) {
        log_error("%s: no daemon can go on: %s", k->mountpoint, error);
        keeper_end_mount(k);
    }
    if (keep_try_lock(k->keep) < 0) {
        keep_free(k->keep);
        k->keep = NULL;
        return false;
    }
    keeper_publish_socket(k);
    return true;
}

static void keeper_await_next(struct keeping *k)
{
    keeper_count_death(k);
    keeper_set_deadline(k);
    fcntl(k->given[LINK_CONNECTION], F_SETFL, fcntl(k->given[LINK_CONNECTION], F_GETFL) | O_NONBLOCK);
    if (k->refuses) {
        log_error("%s: %u daemons in a row have ended at once: calls get EIO; the next attempt is in %.0f s",
                  k->mountpoint, keep_history(k->keep)->quick_deaths, (double)k->delay / 1000);
        keeper_plan_start(k, clock_now() + k->delay);
        k->delay = MIN(k->delay * 2, KEEPER_DELAY_MAX);
    } else {
        log_warning("%s: the daemon has ended unexpectedly: the next one goes on", k->mountpoint);
        keeper_plan_start(k, clock_now());
    }
}

/* --- the next daemon ------------------------------------------------------------------------- */

static void keeper_answer(int client, int result, pid_t pid, const char *text, const int *descriptors, size_t count)
{
    struct link_message answer = {.kind = LINK_ANSWER, .result = result, .pid = pid};
    g_strlcpy(answer.text, text, sizeof answer.text);
    link_send(client, &answer, descriptors, count);
}

static void keeper_hand_over(struct keeping *k, int client)
{
    k->heir = client;
    k->kill = k->start = 0;
    keep_unlock(k->keep);
    keep_free(k->keep);
    k->keep = NULL;
    keeper_answer(k->clients[client], 0, 0, "", k->given, LINK_STORE + 1);
}

static void keeper_on_takeover(struct keeping *k, int client, bool kills)
{
    static const struct link_message end = {.kind = LINK_END};
    if (k->keep) {
        keeper_hand_over(k, client);
    } else if (k->daemon && kills && k->heir < 0) {
        k->heir = client;
        k->kill = clock_now() + KEEPER_END_LIMIT;
        link_send(KEEPER_DAEMON, &end, NULL, 0);
    } else {
        keeper_answer(k->clients[client], -EBUSY, k->daemon, "", NULL, 0);
    }
}

static void keeper_describe(const struct keeping *k, char *text, size_t size)
{
    double now = (double)clock_now() / 1000;
    if (k->daemon) {
        snprintf(text, size, "daemon: process %d\n", (int)k->daemon);
    } else if (!k->keep) {
        snprintf(text, size, "daemon: starting\n");
    } else {
        const struct keep_history *history = keep_history(k->keep);
        g_autofree char *next = k->start ? g_strdup_printf("next start: in %.0f s\n", (double)k->start / 1000 - now)
                                         : g_strdup(k->starting ? "next start: under way\n" : "");
        snprintf(text, size, "daemon: none for %.0f s\nquick deaths: %u\ncalls: %s\n%smount ends: in %.0f s\n",
                 now - (double)history->down_since / 1000, history->quick_deaths, k->refuses ? "get EIO" : "wait", next,
                 (double)k->deadline / 1000 - now);
    }
}

static void keeper_close_client(struct keeping *k, int client)
{
    close(k->clients[client]);
    k->clients[client] = -1;
    if (k->heir != client) {
        return;
    }
    k->heir = -1;
    if (!k->daemon) { /* it had got the descriptors, and has ended before it served */
        if (!keeper_take_charge(k)) {
            keeper_exit(k, false);
        }
        keeper_await_next(k);
    }
}

static void keeper_on_client(struct keeping *k, int client)
{
    struct link_message message;
    int descriptors[LINK_DESCRIPTORS], socket = k->clients[client];
    char text[LINK_TEXT_MAX];
    ssize_t got = link_receive(socket, &message, descriptors);
    link_close_all(descriptors);
    if (got <= 0) {
        keeper_close_client(k, client);
        return;
    }
    switch (message.kind) {
    case LINK_HELLO:
        keeper_answer(socket, 0, k->daemon, k->options, NULL, 0);
        break;
    case LINK_STATUS:
        keeper_describe(k, text, sizeof text);
        keeper_answer(socket, 0, k->daemon, text, NULL, 0);
        break;
    case LINK_NEXT:
    case LINK_TAKEOVER:
        keeper_on_takeover(k, client, message.kind == LINK_TAKEOVER);
        break;
    case LINK_SERVING:
        keeper_exit(k, false);
    default:
        keeper_close_client(k, client);
    }
}

static void keeper_accept(struct keeping *k)
{
    int socket = accept4(k->given[LINK_LISTEN], NULL, NULL, SOCK_CLOEXEC), i = 0;
    while (i < KEEPER_CLIENTS && k->clients[i] >= 0) {
        i++;
    }
    if (socket >= 0 && (i == KEEPER_CLIENTS || !link_peer_is_allowed(socket))) {
        close(socket);
    } else if (socket >= 0) {
        k->clients[i] = socket;
    }
}

/* --- the daemon ---------------------------------------------------------------------------- */

/* Who sent the signal cannot be forged. */
static bool keeper_is_death(const struct keeping *k)
{
    struct signalfd_siginfo signal;
    return read(k->deaths, &signal, sizeof signal) == sizeof signal && signal.ssi_code == SI_USER &&
           signal.ssi_pid == (uint32_t)k->daemon;
}

static void keeper_on_death(struct keeping *k)
{
    k->daemon = 0;
    if (k->bye || k->given[LINK_MEMORY] < 0) {
        keeper_exit(k, k->bye);
    }
    if (k->limit == 0 || !keeper_is_connected(k)) {
        keeper_end_mount(k);
    }
    if (!keeper_take_charge(k)) {
        keeper_exit(k, false);
    }
    if (k->heir >= 0) {
        struct keep_history *history = keep_history(k->keep);
        history->down_since = history->served || !history->down_since ? clock_now() : history->down_since;
        keeper_hand_over(k, k->heir);
    } else {
        keeper_await_next(k);
    }
}

static void keeper_unmount_now(struct keeping *k)
{
    char error[1024] = "";
    keeper_end_connection(k);
    int result = mountpoint_clear(k->mountpoint, error, sizeof error);
    keeper_answer(KEEPER_DAEMON, result, 0, error, NULL, 0);
}

static void keeper_accept_descriptors(struct keeping *k, const struct link_message *message, const int *descriptors)
{
    memcpy(k->given, descriptors, sizeof k->given);
    g_strlcpy(k->options, message->text, sizeof k->options);
    k->device = mountpoint_device(k->mountpoint);
}

/* False at the end of the stream: then a signal says whether the daemon has ended. */
static bool keeper_obey(struct keeping *k)
{
    struct link_message message;
    int descriptors[LINK_DESCRIPTORS];
    ssize_t got = link_receive(KEEPER_DAEMON, &message, descriptors);
    if (got > 0 && message.kind == LINK_GIVE && k->given[LINK_MEMORY] < 0) {
        keeper_accept_descriptors(k, &message, descriptors);
        return true;
    }
    link_close_all(descriptors);
    if (got > 0 && message.kind == LINK_UNMOUNT) {
        keeper_unmount_now(k);
    } else if (got > 0 && message.kind == LINK_SERVING) {
        keeper_publish_socket(k);
    } else if (got > 0 && message.kind == LINK_BYE) {
        k->bye = true;
    } else if (got > 0 && message.kind == LINK_CRASHED && k->daemon) {
        keeper_on_death(k);
    }
    return got > 0;
}

/* --- the loop -------------------------------------------------------------------------------- */

/* The end of the walker's socket ends nothing else. */
static void keeper_walk(struct keeping *k, struct pollfd *ready)
{
    if ((ready[POLL_WALKER].revents && !walker_receive(k->walker)) ||
        (ready[POLL_WALKED].revents && !walker_collect(k->walker))) {
        close(KEEPER_WALKER);
        ready[POLL_WALKER].fd = -1;
    }
}

static int keeper_timeout(const struct keeping *k)
{
    clock_ms next = INT64_MAX, now = clock_now();
    next = k->keep ? MIN(next, k->deadline) : next;
    next = k->start ? MIN(next, k->start) : next;
    next = k->kill ? MIN(next, k->kill) : next;
    return next == INT64_MAX ? -1 : (int)CLAMP(next - now, 0, INT32_MAX);
}

static void keeper_on_time(struct keeping *k)
{
    clock_ms now = clock_now();
    if (k->keep && now >= k->deadline) {
        log_error("%s: no daemon has come in time: the mount ends, and open files of it get errors", k->mountpoint);
        keeper_end_mount(k);
    }
    if (k->start && now >= k->start && !k->starting) {
        keeper_start_daemon(k);
    }
    if (k->kill && now >= k->kill) {
        k->kill = 0;
        if (k->daemon && getppid() == k->daemon) {
            log_warning("%s: process %d did not end for another daemon in time: it was killed", k->mountpoint,
                        (int)k->daemon);
            kill(k->daemon, SIGKILL);
        }
    }
}

static void keeper_poll(struct keeping *k, struct pollfd *ready)
{
    ready[POLL_WALKED].fd = walker_descriptor(k->walker);
    ready[POLL_STARTER].fd = k->starter;
    ready[POLL_LISTEN].fd = k->given[LINK_LISTEN];
    ready[POLL_CONNECTION].fd = k->keep ? k->given[LINK_CONNECTION] : -1;
    ready[POLL_CONNECTION].events = k->refuses ? POLLIN : 0;
    for (int i = 0; i < KEEPER_CLIENTS; i++) {
        ready[POLL_CLIENTS + i] = (struct pollfd){.fd = k->clients[i], .events = POLLIN};
    }
    while (poll(ready, POLL_CLIENTS + KEEPER_CLIENTS, keeper_timeout(k)) < 0) {
    }
}

static void keeper_handle(struct keeping *k, struct pollfd *ready)
{
    if (ready[POLL_DAEMON].revents && !keeper_obey(k)) {
        ready[POLL_DAEMON].fd = -1;
    }
    if (ready[POLL_DEATHS].revents && k->daemon && keeper_is_death(k)) {
        keeper_on_death(k);
    }
    keeper_walk(k, ready);
    if (ready[POLL_STARTER].revents) {
        keeper_on_started(k);
    }
    if (ready[POLL_LISTEN].revents) {
        keeper_accept(k);
    }
    if (k->keep && ready[POLL_CONNECTION].revents) {
        keeper_on_connection(k, ready[POLL_CONNECTION].revents);
    }
    for (int i = 0; i < KEEPER_CLIENTS; i++) {
        if (ready[POLL_CLIENTS + i].fd >= 0 && ready[POLL_CLIENTS + i].revents) {
            keeper_on_client(k, i);
        }
    }
    keeper_on_time(k);
}

static void G_GNUC_NORETURN keeper_serve(struct keeping *k)
{
    struct pollfd ready[POLL_CLIENTS + KEEPER_CLIENTS] = {[POLL_DEATHS] = {.fd = k->deaths, .events = POLLIN},
                                                          [POLL_DAEMON] = {.fd = KEEPER_DAEMON, .events = POLLIN},
                                                          [POLL_WALKER] = {.fd = KEEPER_WALKER, .events = POLLIN},
                                                          [POLL_WALKED] = {.fd = -1, .events = POLLIN},
                                                          [POLL_STARTER] = {.fd = -1, .events = POLLIN},
                                                          [POLL_LISTEN] = {.fd = -1, .events = POLLIN}};
    for (;;) {
        keeper_poll(k, ready);
        keeper_handle(k, ready);
    }
}

/* --- the begin --------------------------------------------------------------------------------- */

static void keeper_drop_terminal(bool keeps_log)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= (keeps_log ? STDOUT_FILENO : STDERR_FILENO); fd++) {
        dup2(null, fd);
    }
}

/* Of the daemon's descriptors it keeps few: a copy of any other would keep a lock locked, a pipe or the mount alive. */
static void keeper_drop_descriptors(int socket, int walker, int starter)
{
    int asides[] = {fcntl(socket, F_DUPFD, KEEPER_STARTER + 1), fcntl(walker, F_DUPFD, KEEPER_STARTER + 1),
                    starter < 0 ? -1 : fcntl(starter, F_DUPFD, KEEPER_STARTER + 1)};
    close(KEEPER_STARTER);
    for (int i = 0; i < 3; i++) {
        if (asides[i] >= 0) {
            dup3(asides[i], KEEPER_DAEMON + i, O_CLOEXEC);
        }
    }
    closefrom(KEEPER_STARTER + 1);
    if (chdir("/") < 0) {
        return; /* it only keeps that directory busy */
    }
}

bool keeper_may_look(void)
{
    return capng_get_caps_process() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_PTRACE) > 0;
}

/* Of root's rights it needs three: to unmount, to find the way there, and to look into processes. */
static void keeper_drop_rights(bool may_look)
{
    if (geteuid() != 0) {
        return;
    }
    capng_clear(CAPNG_SELECT_ALL);
    capng_updatev(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET, CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH,
                  may_look ? CAP_SYS_PTRACE : -1, -1);
    if (capng_apply(CAPNG_SELECT_ALL) != 0) {
        log_warning("the process that unmounts keeps all its capabilities");
    }
}

/* Returns what the death of the daemon is read from, or -1: it has ended already. */
static int keeper_await_death(pid_t daemon)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, KEEPER_DEATH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int deaths = signalfd(-1, &set, SFD_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, KEEPER_DEATH);
    return getppid() == daemon ? deaths : -1;
}

void keeper_run(const struct options *options, bool managed, int socket, int walker, pid_t daemon)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    bool may_look = keeper_may_look();
    struct keeping k = {.mountpoint = options->mountpoint,
                        .limit = options->keep,
                        .unmounts = options->auto_unmount,
                        .user = geteuid(),
                        .daemon = daemon,
                        .maker = daemon,
                        .given = {-1, -1, -1, -1, -1},
                        .delay = KEEPER_DELAY_MIN,
                        .heir = -1};
    for (int i = 0; i < KEEPER_CLIENTS; i++) {
        k.clients[i] = -1;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) {
        signal(signals[i], SIG_IGN); /* meant for the daemon, sent to its group or service */
    }
    signal(SIGPIPE, SIG_IGN); /* the daemon may end while a walk is answered */
    prctl(PR_SET_NAME, KEEPER_NAME);
    keeper_drop_terminal(options->foreground && options->keep > 0);
    k.starter = managed || options->keep == 0 ? -1 : starter_start(options->arguments);
    keeper_drop_descriptors(socket, walker, k.starter);
    if (!options->foreground) {
        log_connect_syslog("leasefs");
        log_to_syslog();
    }
    k.starter = k.starter < 0 ? -1 : KEEPER_STARTER;
    k.walker = walker_new(KEEPER_WALKER, !may_look);
    keeper_drop_rights(may_look);
    k.deaths = keeper_await_death(daemon);
    if (k.deaths < 0 || (geteuid() == 0 && sandbox_keeper() < 0)) { /* a user's needs fusermount3, which is setuid */
        _exit(EXIT_FAILURE);
    }
    keeper_serve(&k);
}

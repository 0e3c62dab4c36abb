/* side: the processes on one side, and whether they wait; see oracle.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/oracle/oracle.h"

/* A process that does not end within this does not end at all. */
#define END_MS 20000

void side_channels(struct side *side)
{
    for (int i = 0; i < 2 * SLOTS; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
            stress_die("socketpair: %s", strerror(errno));
        }
        side->ours[i] = fcntl(pair[0], F_DUPFD_CLOEXEC, 0);
        close(pair[0]);
        side->worker.channels[i] = pair[1];
        side->pidfds[i] = side->stats[i] = -1;
    }
}

/* --- processes --------------------------------------------------------------------------- */

static void side_took(struct side *side, uint32_t channel, pid_t pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    side->pids[channel] = pid;
    side->pidfds[channel] = (int)syscall(SYS_pidfd_open, pid, 0);
    side->stats[channel] = open(path, O_RDONLY | O_CLOEXEC);
    if (side->pidfds[channel] < 0) {
        stress_die("pidfd_open of %d: %s", pid, strerror(errno));
    }
}

static void side_see(struct side *side, uint32_t slot)
{
    uint32_t at = side->seen_count % (sizeof side->seen / sizeof *side->seen);
    side->seen[at] = side->pids[side->channel[slot]];
    side->seen_slots[at] = slot;
    side->seen_count++;
}

static bool side_keeps(const struct side *side, int fd)
{
    for (int i = 0; i < 2 * SLOTS; i++) {
        if (side->worker.channels[i] == fd) {
            return true;
        }
    }
    return false;
}

static void side_spawn(struct side *side, uint32_t slot)
{
    pid_t pid = stress_fork();
    if (pid == 0) {
        for (int fd = 3; fd < 256; fd++) {
            if (!side_keeps(side, fd)) {
                close(fd);
            }
        }
        side->worker.index = slot;
        side->worker.directory = side->directories[slot];
        worker_begin(&side->worker);
    }
    side_took(side, slot, pid);
}

/* Nothing that it still said is left in the channel. */
static void side_forget(struct side *side, uint32_t channel)
{
    struct answer answer;
    while (recv(side->ours[channel], &answer, sizeof answer, MSG_DONTWAIT) > 0) {
    }
    close(side->pidfds[channel]);
    close(side->stats[channel]);
    side->pidfds[channel] = side->stats[channel] = -1;
    side->pids[channel] = 0;
}

void side_await_end(struct side *side, uint32_t slot)
{
    uint32_t channel = side->channel[slot];
    struct pollfd end = {.fd = side->pidfds[channel], .events = POLLIN};
    if (poll(&end, 1, END_MS) != 1) {
        stress_die("process %d (%s) does not end", side->pids[channel], side->directories[slot]);
    }
    waitpid(side->pids[channel], NULL, 0); /* a fork is waited for by nobody */
    side_forget(side, channel);
    side->states[slot] = STATE_NONE;
}

void side_kill(struct side *side, uint32_t slot)
{
    kill(side->pids[side->channel[slot]], SIGKILL);
    side_await_end(side, slot);
}

void side_signal(struct side *side, uint32_t slot)
{
    kill(side->pids[side->channel[slot]], SIGUSR1);
}

void side_forked(struct side *side, uint32_t child, pid_t pid)
{
    side->channel[child] = SLOTS + child;
    side_took(side, SLOTS + child, pid);
    side->states[child] = STATE_READY;
    side_see(side, child);
}

int side_slot_of(const struct side *side, pid_t pid)
{
    for (uint32_t i = 0; i < side->seen_count && i < sizeof side->seen / sizeof *side->seen; i++) {
        if (side->seen[i] == pid) {
            return (int)side->seen_slots[i];
        }
    }
    return -1;
}

/* --- a program --------------------------------------------------------------------------- */

void side_begin(struct side *side, uint32_t processes)
{
    side->seen_count = 0;
    for (uint32_t i = 0; i < processes; i++) {
        if (!side->pids[i]) {
            side_spawn(side, i);
        }
        side->channel[i] = i;
        side->states[i] = STATE_READY;
        side_see(side, i);
    }
}

void side_end(struct side *side)
{
    struct answer answer;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (side->states[i] != STATE_NONE && side->channel[i] >= SLOTS) {
            side_kill(side, i);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (side->states[i] == STATE_NONE) {
            continue;
        }
        for (int tries = 0; side->states[i] == STATE_WAITS; tries++) {
            side_signal(side, i);
            if (!side_heard(side, i, 100, &answer) && tries > END_MS / 100) {
                stress_die("a signal does not end the wait of process %d (%s)", side->pids[i], side->directories[i]);
            }
        }
        side_tell(side, i, &(struct step){.what = STEP_CLEAR}, 0);
        if (!side_heard(side, i, END_MS, &answer)) {
            stress_die("process %d (%s) does not close its files", side->pids[i], side->directories[i]);
        }
        side->states[i] = STATE_NONE;
    }
    side_barrier(side);
}

void side_stop(struct side *side)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        side->channel[i] = i;
        if (side->pids[i]) {
            side_kill(side, i);
        }
    }
}

void side_tell(struct side *side, uint32_t slot, const struct step *step, uint32_t number)
{
    struct request request = {*step, number};
    if (send(side->ours[side->channel[slot]], &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
        stress_die("a worker cannot be told: %s", strerror(errno));
    }
}

bool side_heard(struct side *side, uint32_t slot, int ms, struct answer *ret_answer)
{
    int fd = side->ours[side->channel[slot]];
    struct pollfd answer = {.fd = fd, .events = POLLIN};
    if (ms && poll(&answer, 1, ms) != 1) {
        return false;
    }
    if (recv(fd, ret_answer, sizeof *ret_answer, MSG_DONTWAIT) != sizeof *ret_answer) {
        return false;
    }
    side->states[slot] = STATE_READY;
    return true;
}

/* It has a step without an answer: if it sleeps, then in that step. */
static bool side_sleeps(const struct side *side, uint32_t channel)
{
    char text[512];
    ssize_t length = pread(side->stats[channel], text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    const char *name = strrchr(text, ')');
    return name && name[1] == ' ' && name[2] == 'S';
}

bool side_settled(struct side *side, uint32_t slot, struct answer *ret_answer)
{
    struct timespec moment = {.tv_nsec = 30000};
    struct pollfd answer = {.fd = side->ours[side->channel[slot]], .events = POLLIN};
    for (;;) {
        if (side_heard(side, slot, 0, ret_answer)) {
            return true;
        }
        if (side_sleeps(side, side->channel[slot])) {
            /* it may have answered before it went to sleep */
            if (side_heard(side, slot, 0, ret_answer)) {
                return true;
            }
            side->states[slot] = STATE_WAITS;
            return false;
        }
        ppoll(&answer, 1, &moment, NULL);
    }
}

void side_barrier(struct side *side)
{
    char path[256];
    struct statfs fs;
    struct stat st;
    for (int i = 0; i < SLOTS; i++) {
        if (i && strcmp(side->directories[i], side->directories[0]) == 0) {
            continue;
        }
        statfs(side->directories[i], &fs);
        snprintf(path, sizeof path, "%s/barrier", side->directories[i]);
        if (side->remote) {
            stat(path, &st);
        }
        if (i && strcmp(side->directories[1], side->directories[i]) == 0) {
            break; /* there are two at most */
        }
    }
}

/* worker: one process, which carries out steps; see oracle.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/oracle/oracle.h"

static int descriptors[DESCRIPTORS];

static void on_signal(int number)
{
    (void)number; /* only to interrupt a call */
}

static int worker_lock(int fd, int command, int type, off_t start, off_t length, struct flock *ret)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    int error = fcntl(fd, command, &lock) == 0 ? 0 : errno;
    if (ret) {
        *ret = lock;
    }
    return error == EACCES ? EAGAIN : error;
}

/* On a mount a file that was opened for writing is held for a moment: trying a lock at once decides that.  Its answer
 * depends on the waiters for that byte, so it is not compared. */
static void worker_decide(int fd, const struct step *step)
{
    if (step->descriptor < DESCRIPTORS / 2) {
        flock(fd, LOCK_SH | LOCK_NB);
        flock(fd, LOCK_UN);
    } else {
        worker_lock(fd, F_SETLK, F_WRLCK, DECIDES, 1, NULL);
        worker_lock(fd, F_SETLK, F_UNLCK, DECIDES, 1, NULL);
    }
}

static int worker_open(const struct worker *worker, const struct step *step, uint32_t number)
{
    char path[256];
    int *descriptor = &descriptors[step->descriptor];
    if (*descriptor >= 0) {
        return EMFILE;
    }
    snprintf(path, sizeof path, "%s/%c%u.%u", worker->directory, step->descriptor < DESCRIPTORS / 2 ? 'f' : 'r', number,
             step->other);
    *descriptor = open(path, step->flags | O_CREAT | (step->cloexec ? O_CLOEXEC : 0), 0666);
    if (*descriptor < 0) {
        return errno;
    }
    if (step->flags != O_RDONLY) {
        worker_decide(*descriptor, step);
    }
    return 0;
}

static int worker_close(int *descriptor)
{
    int error = close(*descriptor) == 0 ? 0 : errno;
    *descriptor = -1;
    return error;
}

static int worker_dup(const struct step *step)
{
    int *other = &descriptors[step->other];
    if (*other >= 0) {
        return EMFILE;
    }
    *other = fcntl(descriptors[step->descriptor], step->cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
    return *other >= 0 ? 0 : errno;
}

static int worker_fork(struct worker *worker, const struct step *step, struct answer *answer)
{
    pid_t child = fork();
    if (child == 0) {
        worker->index = SLOTS + step->other;
        worker_run(worker);
    }
    answer->pid = child;
    return child < 0 ? errno : 0;
}

static _Noreturn void worker_exec(const struct worker *worker)
{
    enum { NUMBERS = 1 + 2 * SLOTS + DESCRIPTORS, WORDS = 2 + NUMBERS + 1 };
    static char numbers[NUMBERS][12];
    char *arguments[WORDS + 1] = {"oracle", "--worker"};
    for (int i = 0; i < NUMBERS; i++) {
        int number = i == 0           ? (int)worker->index
                     : i <= 2 * SLOTS ? worker->channels[i - 1]
                                      : descriptors[i - 1 - 2 * SLOTS];
        if (i > 2 * SLOTS && number >= 0 && fcntl(number, F_GETFD) & FD_CLOEXEC) {
            number = -1;
        }
        snprintf(numbers[i], sizeof numbers[i], "%d", number);
        arguments[2 + i] = numbers[i];
    }
    arguments[2 + NUMBERS] = (char *)worker->directory;
    execv("/proc/self/exe", arguments);
    _exit(1);
}

static void worker_answer(const struct worker *worker, const struct answer *answer)
{
    if (send(worker->channels[worker->index], answer, sizeof *answer, MSG_NOSIGNAL) != sizeof *answer) {
        _exit(1);
    }
}

/* A signal may come when it is too late for the call that it was meant for. */
static bool worker_hears(const struct worker *worker, struct request *ret_request)
{
    ssize_t length;
    do {
        length = recv(worker->channels[worker->index], ret_request, sizeof *ret_request, 0);
    } while (length < 0 && errno == EINTR);
    return length == sizeof *ret_request;
}

static void worker_serve(struct worker *worker)
{
    struct request request;
    while (worker_hears(worker, &request)) {
        const struct step *step = &request.step;
        struct answer answer = {0};
        struct flock reported = {0};
        int fd = descriptors[step->descriptor];
        switch ((enum what)step->what) {
        case STEP_OPEN:
            answer.error = worker_open(worker, step, request.number);
            break;
        case STEP_DUP:
            answer.error = worker_dup(step);
            break;
        case STEP_CLOSE:
            answer.error = worker_close(&descriptors[step->descriptor]);
            break;
        case STEP_FORK:
            answer.error = worker_fork(worker, step, &answer);
            break;
        case STEP_EXEC:
            worker_exec(worker);
        case STEP_EXIT:
            exit(0);
        case STEP_FLOCK:
            answer.error = flock(fd, step->flags | (step->waits ? 0 : LOCK_NB)) == 0 ? 0 : errno;
            break;
        case STEP_SETLK:
            answer.error = worker_lock(
                fd, step->ofd ? (step->waits ? F_OFD_SETLKW : F_OFD_SETLK) : (step->waits ? F_SETLKW : F_SETLK),
                step->type, step->start, step->length, NULL);
            break;
        case STEP_GETLK:
            answer.error =
                worker_lock(fd, step->ofd ? F_OFD_GETLK : F_GETLK, step->type, step->start, step->length, &reported);
            answer.reported = (struct probe_answer){reported.l_type, reported.l_whence, reported.l_start,
                                                    reported.l_len, reported.l_pid};
            break;
        case STEP_CLEAR:
            for (int i = 0; i < DESCRIPTORS; i++) {
                if (descriptors[i] >= 0) {
                    worker_close(&descriptors[i]);
                }
            }
            break;
        case STEP_KILL:
        case STEP_SIGNAL:
            break; /* done to it */
        }
        worker_answer(worker, &answer);
    }
    _exit(0);
}

_Noreturn void worker_run(struct worker *worker)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGCHLD, SIG_IGN); /* what it forks is not waited for */
    worker_serve(worker);
    _exit(0);
}

void worker_begin(struct worker *worker)
{
    for (int i = 0; i < DESCRIPTORS; i++) {
        descriptors[i] = -1;
    }
    worker_run(worker);
}

_Noreturn void worker_again(char **arguments)
{
    static struct worker worker;
    worker.index = (uint32_t)atoi(*arguments++);
    for (int i = 0; i < 2 * SLOTS; i++) {
        worker.channels[i] = atoi(*arguments++);
    }
    for (int i = 0; i < DESCRIPTORS; i++) {
        descriptors[i] = atoi(*arguments++);
    }
    worker.directory = *arguments;
    worker_answer(&worker, &(struct answer){0});
    worker_run(&worker);
}

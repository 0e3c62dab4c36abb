/* names: processes of several users open, lock, look at and remove names that come and go all the time.
 *
 *     names DIRECTORY [DIRECTORY…] [--opens N] [--names N] [--processes N] [--users UID,…] [--lockmode MODE] [--seed N]
 *
 * N processes for each user (default: the caller's) work until N files were opened and as many names were looked at;
 * process i in the (i mod n)th of the n directories, which are mounts of one store.  All of them may do everything with
 * all files, so a call fails only because of a lock: the table below has the allowed errors.  stat(2) and fstat(2) must
 * show a file of one of the users with a mode that one of them has set.
 *
 * Exit status: 0, 3 for a wrong behaviour, 1 if it could not be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define ERRNO_MAX 256
#define DIRECTORIES_MAX 8
#define USERS_MAX 8

enum call {
    OPEN_MAKE,
    OPEN_MAKE_READ,
    OPEN_NEW,
    OPEN_WRITE,
    OPEN_READ,
    STAT,
    FSTAT,
    ACCESS,
    FLOCK,
    FLOCK_WAIT,
    RECORD,
    WRITE,
    CLOSE,
    REMOVE,
    CALLS,
};

/* Which errors another lock of the name explains. */
static const struct {
    const char *text;
    int allowed[3];
} calls[CALLS] = {
    [OPEN_MAKE] = {"open(O_RDWR | O_CREAT)", {EBUSY}},
    [OPEN_MAKE_READ] = {"open(O_RDONLY | O_CREAT)", {0}},
    [OPEN_NEW] = {"open(O_CREAT | O_EXCL)", {EEXIST}},
    [OPEN_WRITE] = {"open(O_RDWR)", {ENOENT, EBUSY}},
    [OPEN_READ] = {"open(O_RDONLY)", {ENOENT}},
    [STAT] = {"stat", {ENOENT}},
    [FSTAT] = {"fstat", {0}},
    [ACCESS] = {"access", {ENOENT}},
    [FLOCK] = {"flock(LOCK_EX | LOCK_NB)", {EAGAIN}},
    [FLOCK_WAIT] = {"flock(LOCK_EX)", {0}},
    [RECORD] = {"fcntl(F_OFD_SETLK)", {EAGAIN}},
    [WRITE] = {"write by a holder", {0}},
    [CLOSE] = {"close", {EBUSY}},
    [REMOVE] = {"unlink", {ENOENT, EPERM}},
};

/* Each user may read and write each file. */
static const mode_t modes[] = {0666, 0667, 0676, 0766};
#define MODES (sizeof modes / sizeof *modes)

struct names {
    const char *directories[DIRECTORIES_MAX];
    uid_t users[USERS_MAX];
    uint32_t directory_count, user_count, processes, names, opens;
    mode_t lockmode; /* that option of the mounts, or 0 */
    bool records;    /* this store has record locks */
    uint64_t seed;
    struct names_notes {
        _Atomic uint32_t opened, looked;
        _Atomic uint32_t done[CALLS], refused[CALLS];
        _Atomic uint32_t wrong[CALLS][ERRNO_MAX];
        _Atomic uint32_t unusual_modes[01000], unusual_users, unusual_types;
    } * notes; /* shared */
};

struct names_process {
    const struct names *run;
    struct stress_random random;
    const char *directory;
    char path[4096];
};

static bool names_note(const struct names *run, enum call call, bool done)
{
    int error = errno;
    struct names_notes *notes = run->notes;
    if (done) {
        atomic_fetch_add(&notes->done[call], 1);
        return true;
    }
    for (size_t i = 0; i < sizeof calls[call].allowed / sizeof *calls[call].allowed; i++) {
        if (error == calls[call].allowed[i]) {
            atomic_fetch_add(&notes->refused[call], 1);
            return false;
        }
    }
    atomic_fetch_add(&notes->wrong[call][error < ERRNO_MAX ? error : ERRNO_MAX - 1], 1);
    return false;
}

static bool names_is_mode(const struct names *run, mode_t mode)
{
    for (size_t i = 0; !run->lockmode && i < MODES; i++) {
        if (mode == modes[i]) {
            return true;
        }
    }
    return run->lockmode && mode == run->lockmode;
}

static void names_judge_shown(const struct names *run, const struct stat *st)
{
    bool is_user = false;
    for (uint32_t i = 0; i < run->user_count; i++) {
        is_user = is_user || st->st_uid == run->users[i];
    }
    if (!names_is_mode(run, st->st_mode & 07777)) {
        atomic_fetch_add(&run->notes->unusual_modes[st->st_mode & 0777], 1);
    }
    if (!is_user) {
        atomic_fetch_add(&run->notes->unusual_users, 1);
    }
    if (!S_ISREG(st->st_mode)) {
        atomic_fetch_add(&run->notes->unusual_types, 1);
    }
}

static void names_look(struct names_process *p, int fd)
{
    struct stat st;
    if (fd < 0) {
        atomic_fetch_add(&p->run->notes->looked, 1);
    }
    if (names_note(p->run, fd < 0 ? STAT : FSTAT, (fd < 0 ? stat(p->path, &st) : fstat(fd, &st)) == 0)) {
        names_judge_shown(p->run, &st);
    }
}

static int names_open(struct names_process *p, enum call call, int flags)
{
    mode_t mode = modes[stress_below(&p->random, MODES)];
    atomic_fetch_add(&p->run->notes->opened, 1);
    int fd = open(p->path, flags | O_CLOEXEC, mode);
    names_note(p->run, call, fd >= 0);
    return fd;
}

static void names_close(struct names_process *p, int fd)
{
    names_note(p->run, CLOSE, close(fd) == 0);
}

/* --- what a process does with a name ---------------------------------------------------- */

static bool names_lock(struct names_process *p, int fd, enum call call)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int result =
        call == RECORD ? fcntl(fd, F_OFD_SETLK, &range) : flock(fd, call == FLOCK ? LOCK_EX | LOCK_NB : LOCK_EX);
    return names_note(p->run, call, result == 0);
}

static void names_hold(struct names_process *p, enum call how, enum call by)
{
    int fd = names_open(p, how, how == OPEN_MAKE ? O_RDWR | O_CREAT : O_RDONLY | O_CREAT);
    if (fd < 0) {
        return;
    }
    names_look(p, stress_chance(&p->random, 50) ? fd : -1);
    if (names_lock(p, fd, by)) {
        names_look(p, stress_chance(&p->random, 50) ? fd : -1);
        if (how == OPEN_MAKE && stress_chance(&p->random, 30)) {
            names_note(p->run, WRITE, write(fd, "held", 4) == 4);
        }
    }
    names_close(p, fd);
}

/* As programs do that take a file's existence for the lock. */
static void names_make(struct names_process *p)
{
    int fd = names_open(p, OPEN_NEW, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0) {
        return;
    }
    if (stress_chance(&p->random, 50)) {
        names_note(p->run, WRITE, write(fd, "held", 4) == 4);
    }
    names_look(p, fd);
    names_close(p, fd);
    names_look(p, -1);
    names_note(p->run, REMOVE, unlink(p->path) == 0);
}

/* Closing a file that was opened for writing makes a lease. */
static void names_touch(struct names_process *p)
{
    int fd = names_open(p, OPEN_WRITE, O_RDWR);
    if (fd >= 0) {
        names_close(p, fd);
        names_note(p->run, REMOVE, unlink(p->path) == 0);
    }
}

static void names_read(struct names_process *p)
{
    int fd = names_open(p, OPEN_READ, O_RDONLY);
    if (fd >= 0) {
        names_look(p, fd);
        names_close(p, fd);
    }
}

static void names_step(struct names_process *p)
{
    uint32_t what = stress_below(&p->random, 100);
    snprintf(p->path, sizeof p->path, "%s/name-%u", p->directory, stress_below(&p->random, p->run->names));
    if (what < 25) {
        names_hold(p, OPEN_MAKE, FLOCK);
    } else if (what < 35) {
        names_hold(p, OPEN_MAKE, p->run->records ? RECORD : FLOCK);
    } else if (what < 45) {
        names_hold(p, OPEN_MAKE_READ, FLOCK);
    } else if (what < 50) {
        names_hold(p, OPEN_MAKE, FLOCK_WAIT);
    } else if (what < 60) {
        names_make(p);
    } else if (what < 65) {
        names_touch(p);
    } else if (what < 70) {
        names_read(p);
    } else if (what < 75) {
        names_note(p->run, ACCESS, access(p->path, R_OK | W_OK) == 0);
    } else {
        names_look(p, -1);
    }
}

_Noreturn static void names_process(const struct names *run, uint32_t number)
{
    struct names_process p = {.run = run,
                              .random = stress_seed(run->seed, number),
                              .directory = run->directories[number % run->directory_count]};
    uid_t user = run->users[number / run->processes];
    umask(0);
    if (user != getuid() && (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))) {
        stress_die("cannot become user %u: %s", user, strerror(errno));
    }
    while (atomic_load(&run->notes->opened) < run->opens || atomic_load(&run->notes->looked) < run->opens) {
        names_step(&p);
    }
    _exit(0);
}

/* --- the run --------------------------------------------------------------------------- */

/* Redlock has none. */
static bool names_has_records(const char *directory)
{
    char path[4096];
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/name-records", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    bool has = fd >= 0 && fcntl(fd, F_OFD_SETLK, &range) == 0;
    if (fd < 0) {
        stress_die("%s: %s", path, strerror(errno));
    }
    close(fd);
    return has;
}

static bool names_judge(const struct names *run)
{
    const struct names_notes *notes = run->notes;
    bool wrong = false;
    for (int call = 0; call < CALLS; call++) {
        printf("%s: %u done, %u refused\n", calls[call].text, atomic_load(&notes->done[call]),
               atomic_load(&notes->refused[call]));
        for (int error = 0; error < ERRNO_MAX; error++) {
            uint32_t count = atomic_load(&notes->wrong[call][error]);
            if (count) {
                printf("WRONG: %s failed %u times with errno %d (%s)\n", calls[call].text, count, error,
                       strerror(error));
                wrong = true;
            }
        }
    }
    for (unsigned mode = 0; mode <= 0777; mode++) {
        uint32_t count = atomic_load(&notes->unusual_modes[mode]);
        if (count) {
            printf("WRONG: mode %04o was shown %u times, and nobody has asked for it\n", mode, count);
            wrong = true;
        }
    }
    if (atomic_load(&notes->unusual_users) || atomic_load(&notes->unusual_types)) {
        printf("WRONG: %u files of no user, %u that are not files\n", atomic_load(&notes->unusual_users),
               atomic_load(&notes->unusual_types));
        wrong = true;
    }
    return wrong;
}

static bool names_run(const struct names *run)
{
    uint32_t count = run->user_count * run->processes;
    pid_t *children = calloc(count, sizeof *children);
    int64_t began = stress_now();
    bool wrong = false;
    for (uint32_t i = 0; i < count; i++) {
        children[i] = stress_fork();
        if (children[i] == 0) {
            names_process(run, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        int status = -1;
        waitpid(children[i], &status, 0);
        wrong = wrong || status != 0;
    }
    free(children);
    printf("%u opens and %u looks by %u processes of %u users in %.1f s\n", atomic_load(&run->notes->opened),
           atomic_load(&run->notes->looked), count, run->user_count, (double)(stress_now() - began) / STRESS_SECOND);
    return names_judge(run) || wrong;
}

static void names_parse_users(struct names *run, char *text)
{
    for (char *user = strtok(text, ","); user && run->user_count < USERS_MAX; user = strtok(NULL, ",")) {
        run->users[run->user_count++] = (uid_t)strtoul(user, NULL, 10);
    }
}

static void names_parse(struct names *run, int argc, char **argv)
{
    static const struct option options[] = {{"opens", required_argument, NULL, 'o'},
                                            {"names", required_argument, NULL, 'n'},
                                            {"processes", required_argument, NULL, 'p'},
                                            {"users", required_argument, NULL, 'u'},
                                            {"lockmode", required_argument, NULL, 'm'},
                                            {"seed", required_argument, NULL, 's'},
                                            {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
        uint64_t number = option != '?' ? strtoull(optarg, NULL, option == 'm' ? 8 : 10) : 0;
        switch (option) {
        case 'o':
            run->opens = (uint32_t)number;
            break;
        case 'n':
            run->names = (uint32_t)number;
            break;
        case 'p':
            run->processes = (uint32_t)number;
            break;
        case 'm':
            run->lockmode = (mode_t)number;
            break;
        case 's':
            run->seed = number;
            break;
        case 'u':
            names_parse_users(run, optarg);
            break;
        default:
            exit(1);
        }
    }
    while (optind < argc && run->directory_count < DIRECTORIES_MAX) {
        run->directories[run->directory_count++] = argv[optind++];
    }
    if (run->user_count == 0) {
        run->users[run->user_count++] = getuid();
    }
}

int main(int argc, char **argv)
{
    struct names run = {.opens = 10000, .names = 3, .processes = 3, .seed = (uint64_t)stress_now()};
    names_parse(&run, argc, argv);
    if (run.directory_count == 0 || !run.names || !run.processes) {
        stress_die("usage: names DIRECTORY [DIRECTORY…] [--opens N] [--names N] [--processes N] [--users UID,…] "
                   "[--lockmode MODE] [--seed N]");
    }
    printf("seed %llu\n", (unsigned long long)run.seed);
    fflush(stdout);
    run.records = names_has_records(run.directories[0]);
    run.notes = stress_share(sizeof *run.notes);
    return names_run(&run) ? 3 : 0;
}

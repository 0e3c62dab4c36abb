/* oracle: random lock programs get the same answers on tmpfs and on mounts; see oracle.h.
 *
 *     oracle [--programs N] [--seed N] [--seconds N] [--remote] [--all] [--verbose] TMPFS MOUNT [MOUNT]
 *
 * With two mounts, which are of one store, the processes of a program are spread over them.  --remote: what is done
 * follows by messages.  --all: also after a program that differed.
 * Exit status: 0 if all answers were the same; 3 if not: the program is made smaller and printed.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/oracle/oracle.h"

/* What Linux has answered, the mount answers within this, or not at all; and for so long after a last close is asked
 * again what was refused.  Shorter for a program that is being made smaller. */
static int answer_ms = 10000, again_ms = 3000;

enum verdict { SAME, DIFFERENT, OVERTAKEN, CIRCLE, KEPT, VERDICTS };

/* The state of a program while it runs, beside that of the sides. */
struct run {
    struct side *sides[2]; /* tmpfs, the mount */
    uint32_t mounts;
    uint32_t mount[SLOTS]; /* of the slot's process: its forks stay there */
    uint32_t number;
    struct step waits[SLOTS]; /* of a slot that waits */
    uint32_t order[SLOTS];    /* when it began to */
    int file[SLOTS][DESCRIPTORS];
    uint32_t description[SLOTS][DESCRIPTORS], descriptions;
    bool cloexec[SLOTS][DESCRIPTORS];
    bool used[2][2];                 /* files: flock or record, which */
    bool got[SLOTS][2], got_by[256]; /* a lock, ever: the process of the record file; the description */
    bool shares[256];                /* the description has a shared flock */
    bool soft;                       /* something was closed: its end may follow */
    FILE *out;                       /* NULL: quiet */
};

static struct {
    uint64_t steps, waits, granted, probes, queued, kept, verdicts[VERDICTS];
} counts;

static const char *error_name(int error)
{
    return error ? strerrorname_np(error) : "ok";
}

__attribute__((format(printf, 2, 3))) static void say(struct run *run, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (run->out) {
        vfprintf(run->out, format, arguments);
    }
    va_end(arguments);
}

/* --- who asked for what ------------------------------------------------------------------ */

static bool is_record(const struct step *step)
{
    return step->what == STEP_SETLK || step->what == STEP_GETLK;
}

static bool is_lock(const struct step *step)
{
    return (step->what == STEP_FLOCK && step->flags != LOCK_UN) || (step->what == STEP_SETLK && step->type != F_UNLCK);
}

/* Do two requests for locks, of different owners, exclude each other? */
static bool excludes(const struct run *run, const struct step *a, const struct step *b)
{
    if (is_record(a) != is_record(b) || run->file[a->slot][a->descriptor] != run->file[b->slot][b->descriptor]) {
        return false;
    }
    bool one = run->description[a->slot][a->descriptor] == run->description[b->slot][b->descriptor];
    if (!is_record(a)) {
        return !one && (a->flags == LOCK_EX || b->flags == LOCK_EX);
    }
    bool meet = (!a->length || b->start < a->start + a->length) && (!b->length || a->start < b->start + b->length);
    bool same = a->ofd == b->ofd && (a->ofd ? one : a->slot == b->slot);
    return meet && !same && (a->type == F_WRLCK || b->type == F_WRLCK);
}

/* Did who just got it overtake one that waits since before?  On a mount it would wait behind that. */
static bool overtakes(const struct run *run, const struct step *step, uint32_t order)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (i != step->slot && run->sides[0]->states[i] == STATE_WAITS && run->order[i] < order &&
            excludes(run, step, &run->waits[i])) {
            return true;
        }
    }
    return false;
}

/* A process without a lock must queue behind waiters; a holder may overtake them, because they may wait for it. */
static bool must_queue(const struct run *run, const struct step *step)
{
    uint32_t description = run->description[step->slot][step->descriptor];
    return description < 256 && !run->got_by[description] &&
           !(is_record(step) && run->got[step->slot][run->file[step->slot][step->descriptor]]);
}

/* Does it ask to have alone what its open file description shares? */
static bool upgrades(const struct run *run, const struct step *step)
{
    uint32_t description = run->description[step->slot][step->descriptor];
    return step->what == STEP_FLOCK && step->flags == LOCK_EX && description < 256 && run->shares[description];
}

/* The step was done. */
static void note(struct run *run, const struct step *step)
{
    uint32_t slot = step->slot;
    bool record = step->descriptor >= DESCRIPTORS / 2;
    if (step->what == STEP_FLOCK) {
        run->shares[run->description[slot][step->descriptor] % 256] = step->flags == LOCK_SH;
    }
    if (is_lock(step)) {
        run->got_by[run->description[slot][step->descriptor] % 256] = true;
        run->got[slot][run->file[slot][step->descriptor]] |= record;
    }
    if (step->what == STEP_OPEN) {
        run->file[slot][step->descriptor] = step->other;
        run->description[slot][step->descriptor] = ++run->descriptions;
        run->cloexec[slot][step->descriptor] = step->cloexec;
        run->used[record][step->other] = true;
    } else if (step->what == STEP_DUP) {
        run->file[slot][step->other] = run->file[slot][step->descriptor];
        run->description[slot][step->other] = run->description[slot][step->descriptor];
    } else if (step->what == STEP_FORK) {
        run->mount[step->other] = run->mount[slot];
        memset(run->got[step->other], 0, sizeof run->got[0]);
        memcpy(run->file[step->other], run->file[slot], sizeof run->file[0]);
        memcpy(run->description[step->other], run->description[slot], sizeof run->description[0]);
    }
}

/* --- F_GETLK ----------------------------------------------------------------------------- */

static void say_reported(struct run *run, const struct side *side, const struct probe_answer *reported)
{
    static const char *const types[] = {[F_RDLCK] = "RDLCK", [F_WRLCK] = "WRLCK", [F_UNLCK] = "UNLCK"};
    say(run, "%s %" PRId64 "+%" PRId64 " whence %d of ", types[reported->type], reported->start, reported->length,
        reported->whence);
    int slot = reported->pid > 0 ? side_slot_of(side, reported->pid) : -1;
    say(run, slot >= 0 ? "p%d" : "process %d", slot >= 0 ? slot : reported->pid);
}

/* May the mount tell this of the lock? */
static bool reports(const struct run *run, const struct step *step, const struct kernel_lock *lock,
                    const struct probe_answer *reported)
{
    int64_t length = lock->end == INT64_MAX ? 0 : lock->end - lock->start + 1;
    int slot = side_slot_of(run->sides[1], reported->pid), taker = side_slot_of(run->sides[0], lock->pid);
    bool nobody = reported->pid <= 0;
    bool pid = lock->ofd ? nobody || slot >= 0
                         : (slot == taker || (nobody && step->ofd) ||
                            (nobody && taker >= 0 && run->mount[taker] != run->mount[step->slot]));
    return (reported->type == F_RDLCK) == lock->shared && reported->start == lock->start &&
           reported->length == length && reported->whence == SEEK_SET && pid;
}

/* Is it what one waits for that is asked for, too?  F_SETLK would queue behind that. */
static bool waiter_is_reported(const struct run *run, const struct step *step, const struct probe_answer *reported)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct step *waits = &run->waits[i];
        if (run->sides[0]->states[i] != STATE_WAITS || !is_record(waits) || !excludes(run, step, waits)) {
            continue;
        }
        int64_t start = waits->start, length = waits->length;
        struct kernel_lock lock = {waits->ofd, waits->type == F_RDLCK, run->sides[0]->pids[run->sides[0]->channel[i]],
                                   start, length ? start + length - 1 : INT64_MAX};
        if (reports(run, step, &lock, reported)) {
            return true;
        }
    }
    return false;
}

/* Tmpfs told of one of the locks in the way; the mount of the lowest? */
static bool reported_same(struct run *run, const struct step *step, const struct probe_answer *reported[2])
{
    struct kernel_lock locks[64];
    char path[256];
    int64_t from = step->start, to = step->length ? from + step->length - 1 : INT64_MAX, lowest = reported[0]->start;
    pid_t asker = run->sides[0]->pids[run->sides[0]->channel[step->slot]];
    if (reported[1]->type != F_UNLCK && waiter_is_reported(run, step, reported[1])) {
        return reported[0]->type == F_UNLCK || reported[1]->start <= lowest;
    }
    if (reported[0]->type == F_UNLCK || reported[1]->type == F_UNLCK) {
        return reported[0]->type == reported[1]->type && reported[0]->start == reported[1]->start &&
               reported[0]->length == reported[1]->length && reported[0]->whence == reported[1]->whence &&
               reported[0]->pid == reported[1]->pid;
    }
    snprintf(path, sizeof path, "%s/r%u.%u", run->sides[0]->directories[0], run->number,
             run->file[step->slot][step->descriptor]);
    size_t count = kernel_locks(path, locks, sizeof locks / sizeof *locks), kept = 0;
    for (size_t i = 0; i < count; i++) {
        const struct kernel_lock *lock = &locks[i];
        bool own = !step->ofd && !lock->ofd && lock->pid == asker;
        if (!own && lock->start <= to && lock->end >= from && (step->type == F_WRLCK || !lock->shared)) {
            /* whose description an OFD lock belongs to is not told */
            lowest = !step->ofd && lock->start < lowest ? lock->start : lowest;
            locks[kept++] = *lock;
        }
    }
    for (size_t i = 0; i < kept; i++) {
        if (locks[i].start <= lowest && reports(run, step, &locks[i], reported[1])) {
            return true;
        }
    }
    return false;
}

/* --- circles ----------------------------------------------------------------------------- */

/* Does the lock stand in the way of what the slot waits for? */
static bool in_the_way(const struct run *run, uint32_t slot, const struct kernel_lock *lock)
{
    const struct step *step = &run->waits[slot];
    int64_t start = step->start, end = step->length ? start + step->length - 1 : INT64_MAX;
    return lock->start <= end && start <= lock->end && (step->type == F_WRLCK || !lock->shared) &&
           (lock->ofd || side_slot_of(run->sides[0], lock->pid) != (int)slot);
}

/* The waits between slots: certain ones, for a process that holds; or with `perhaps` also for one that waits since
 * before, and for every process where an open file description holds. */
static void waits_for(const struct run *run, bool perhaps, bool edges[SLOTS][SLOTS])
{
    struct kernel_lock locks[64];
    char path[256];
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct step *step = &run->waits[i];
        if (run->sides[0]->states[i] != STATE_WAITS || step->what != STEP_SETLK || (step->ofd && !perhaps)) {
            continue;
        }
        snprintf(path, sizeof path, "%s/r%u.%d", run->sides[0]->directories[0], run->number,
                 run->file[i][step->descriptor]);
        size_t count = kernel_locks(path, locks, sizeof locks / sizeof *locks);
        for (size_t k = 0; k < count; k++) {
            bool blocks = in_the_way(run, i, &locks[k]);
            int holder = locks[k].ofd ? -1 : side_slot_of(run->sides[0], locks[k].pid);
            for (int j = 0; blocks && j < SLOTS; j++) {
                edges[i][j] = edges[i][j] || j == holder || (locks[k].ofd && perhaps && j != (int)i);
            }
        }
        for (uint32_t k = 0; perhaps && k < SLOTS; k++) {
            edges[i][k] = edges[i][k] || (run->sides[0]->states[k] == STATE_WAITS && run->order[k] < run->order[i] &&
                                          excludes(run, step, &run->waits[k]));
        }
    }
}

/* Does the slot, which waits, wait for itself in the end? */
static bool in_circle(const struct run *run, uint32_t slot, bool perhaps)
{
    bool edges[SLOTS][SLOTS] = {{false}};
    waits_for(run, perhaps, edges);
    for (int k = 0; k < SLOTS; k++) {
        for (int i = 0; i < SLOTS; i++) {
            for (int j = 0; j < SLOTS; j++) {
                edges[i][j] = edges[i][j] || (edges[i][k] && edges[k][j]);
            }
        }
    }
    return edges[slot][slot];
}

/* Has the process of a flock got another on that file, by another open file description that it still has? */
static bool has_another(const struct run *run, const struct step *step)
{
    uint32_t own = run->description[step->slot][step->descriptor];
    for (uint32_t i = 0; i < DESCRIPTORS / 2 && step->what == STEP_FLOCK; i++) {
        uint32_t other = run->description[step->slot][i];
        if (run->file[step->slot][i] == run->file[step->slot][step->descriptor] && other != own && other < 256 &&
            run->got_by[other]) {
            return true;
        }
    }
    return false;
}

/* --- a step on the mount ----------------------------------------------------------------- */

static bool answers_same(struct run *run, const struct step *step, const struct answer *answers)
{
    const struct probe_answer *reported[2] = {&answers[0].reported, &answers[1].reported};
    return answers[0].error == answers[1].error &&
           (step->what != STEP_GETLK || answers[0].error || reported_same(run, step, reported));
}

/* Of a step that tmpfs has answered (and the mount, too: `heard`); what was refused may be free a moment later. */
static bool mount_answers(struct run *run, const struct step *step, struct answer *answers, bool heard)
{
    struct side *mount = run->sides[1];
    bool again = run->soft && (step->what == STEP_GETLK || (is_lock(step) && !step->waits));
    int64_t until = stress_now() + again_ms * STRESS_MS;
    for (;;) {
        if (!heard && !side_heard(mount, step->slot, answer_ms, &answers[1])) {
            say(run, "    the mount has no answer\n");
            mount->states[step->slot] = STATE_WAITS;
            return false;
        }
        if (answers_same(run, step, answers)) {
            return true;
        }
        bool late = answers[1].error == EAGAIN || step->what == STEP_GETLK;
        if (!again || !late || stress_now() > until) {
            break;
        }
        stress_sleep(2 * STRESS_MS);
        side_tell(mount, step->slot, step, run->number);
        heard = false;
    }
    say(run, "    the mount says %s", error_name(answers[1].error));
    if (step->what == STEP_GETLK && !answers[1].error) {
        say(run, " ");
        say_reported(run, mount, &answers[1].reported);
    }
    say(run, "\n");
    return false;
}

/* Has the mount answered, or does the step wait there? */
static bool mount_settled(struct run *run, const struct step *step, struct answer *ret_answer)
{
    struct side *mount = run->sides[1];
    if (side_settled(mount, step->slot, ret_answer)) {
        return true;
    }
    side_barrier(mount);
    return side_settled(mount, step->slot, ret_answer);
}

static enum verdict mount_waits(struct run *run, const struct step *step)
{
    struct answer answer;
    bool heard = mount_settled(run, step, &answer);
    if (!heard) {
        bool missed = step->what == STEP_SETLK && !step->ofd && run->mounts == 1 && in_circle(run, step->slot, false);
        say(run, missed ? "    the mount waits in a circle\n" : "");
        return missed ? DIFFERENT : SAME;
    }
    say(run, "    the mount says %s\n", error_name(answer.error));
    bool circle = step->what == STEP_SETLK ? in_circle(run, step->slot, true) : has_another(run, step);
    return answer.error == EDEADLK && circle ? CIRCLE : DIFFERENT;
}

/* --- one step on both -------------------------------------------------------------------- */

/* The slots that waited on tmpfs and were granted.  OVERTAKEN: another waiter was first. */
static enum verdict tmpfs_granted(struct run *run, bool *granted, struct answer *answers)
{
    struct side *tmpfs = run->sides[0];
    /* one that is woken and sleeps again may have woken another, which was looked at before */
    for (uint32_t quiet = 0, waiting = SLOTS; quiet <= 2 * waiting; quiet++) {
        waiting = 0;
        for (uint32_t i = 0; i < SLOTS; i++) {
            if (tmpfs->states[i] != STATE_WAITS) {
                continue;
            }
            waiting++;
            if (side_settled(tmpfs, i, &answers[i])) {
                granted[i] = true;
                quiet = 0;
                say(run, "        p%u goes on: %s\n", i, error_name(answers[i].error));
            }
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (granted[i] && !answers[i].error) {
            note(run, &run->waits[i]);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (granted[i] && !answers[i].error && overtakes(run, &run->waits[i], run->order[i])) {
            return OVERTAKEN;
        }
    }
    return SAME;
}

/* The same ones go on at the mount, and no others. */
static enum verdict mount_granted(struct run *run, const bool *granted, const struct answer *answers)
{
    struct side *mount = run->sides[1];
    enum verdict verdict = SAME;
    struct answer answer;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (granted[i] && !side_heard(mount, i, answer_ms, &answer)) {
            say(run, "    on the mount p%u waits on\n", i);
            verdict = answers[i].error == EDEADLK && run->mounts > 1 ? CIRCLE : DIFFERENT;
        } else if (granted[i] && answer.error != answers[i].error) {
            say(run, "    the mount says %s to p%u\n", error_name(answer.error), i);
            verdict = answer.error == EDEADLK || answers[i].error == EDEADLK ? CIRCLE : DIFFERENT;
        } else if (!granted[i] && mount->states[i] == STATE_WAITS && side_heard(mount, i, 0, &answer)) {
            say(run, "    on the mount p%u goes on: %s\n", i, error_name(answer.error));
            verdict = answer.error == EDEADLK ? CIRCLE : DIFFERENT;
        }
        counts.granted += granted[i];
    }
    return verdict;
}

/* A step that is done to a process, not by it. */
static void step_done_to(struct run *run, const struct step *step, struct side *side)
{
    if (step->what == STEP_KILL) {
        side_kill(side, step->slot);
    } else if (step->what == STEP_SIGNAL) {
        side_signal(side, step->slot);
    } else {
        side_tell(side, step->slot, step, run->number);
        side_await_end(side, step->slot);
    }
}

/* Does another process wait through the same open file description?  On Linux either may be first when both go on. */
static bool rivals_itself(const struct run *run, const struct step *step)
{
    for (uint32_t i = 0; i < SLOTS && step->waits && (step->what == STEP_FLOCK || step->ofd); i++) {
        const struct step *other = &run->waits[i];
        if (run->sides[0]->states[i] == STATE_WAITS && is_record(other) == is_record(step) &&
            run->description[i][other->descriptor] == run->description[step->slot][step->descriptor]) {
            return true;
        }
    }
    return false;
}

static bool step_can(const struct run *run, const struct step *step)
{
    enum state state = run->sides[0]->states[step->slot];
    switch ((enum what)step->what) {
    case STEP_SIGNAL:
        return state == STATE_WAITS;
    case STEP_KILL:
        return state != STATE_NONE;
    case STEP_FORK:
        return state == STATE_READY && run->sides[0]->states[step->other] == STATE_NONE;
    default:
        return state == STATE_READY && !rivals_itself(run, step);
    }
}

static bool step_ends(const struct step *step)
{
    return step->what == STEP_CLOSE || step->what == STEP_EXIT || step->what == STEP_KILL || step->what == STEP_EXEC;
}

/* Linux let it overtake one that waits; the mount does not. */
static enum verdict mount_queues(struct run *run, const struct step *step)
{
    struct answer answer;
    if (!must_queue(run, step)) {
        return OVERTAKEN;
    }
    side_tell(run->sides[1], step->slot, step, run->number);
    bool heard =
        step->waits ? mount_settled(run, step, &answer) : side_heard(run->sides[1], step->slot, answer_ms, &answer);
    bool right = heard ? answer.error == (step->waits ? EDEADLK : EAGAIN) : step->waits;
    counts.queued++;
    if (!right) {
        say(run, "    the mount says %s, though another waits\n", heard ? error_name(answer.error) : "nothing");
    }
    return right ? OVERTAKEN : DIFFERENT;
}

/* Linux has given up what the description shared, and the mount has not: that is taken again on tmpfs. */
static enum verdict tmpfs_shares_again(struct run *run, const struct step *step)
{
    struct step share = *step;
    struct answer answer;
    share.flags = LOCK_SH;
    counts.kept++;
    side_tell(run->sides[0], step->slot, &share, run->number);
    return side_heard(run->sides[0], step->slot, answer_ms, &answer) && !answer.error ? SAME : KEPT;
}

static enum verdict step_requested(struct run *run, const struct step *step, uint32_t order, bool *granted,
                                   struct answer *grants)
{
    struct side *tmpfs = run->sides[0], *mount = run->sides[1];
    struct answer answers[2];
    side_tell(tmpfs, step->slot, step, run->number);
    bool answered = step->what == STEP_SETLK || step->what == STEP_FLOCK
                        ? side_settled(tmpfs, step->slot, &answers[0])
                        : side_heard(tmpfs, step->slot, answer_ms, &answers[0]);
    say(run, ": %s", answered ? error_name(answers[0].error) : "waits");
    if (answered && step->what == STEP_GETLK && !answers[0].error) {
        say(run, " ");
        say_reported(run, tmpfs, &answers[0].reported);
    }
    say(run, "\n");
    bool upgrade = upgrades(run, step); /* on the mount it goes before all that wait, too */
    if (answered && is_lock(step) && !answers[0].error && !upgrade && overtakes(run, step, order)) {
        return mount_queues(run, step);
    }
    if (!answered) {
        run->waits[step->slot] = *step;
        run->order[step->slot] = order;
        counts.waits++;
    }
    enum verdict verdict = tmpfs_granted(run, granted, grants);
    if (verdict != SAME) {
        return verdict;
    }
    side_tell(mount, step->slot, step, run->number);
    if (!answered) {
        verdict = mount_waits(run, step);
        return upgrade && verdict == SAME ? KEPT : verdict;
    }
    bool deadlock = answers[0].error == EDEADLK;
    if (deadlock && !mount_settled(run, step, &answers[1])) {
        say(run, "    the mount waits\n");
        return run->mounts > 1 ? CIRCLE : DIFFERENT;
    }
    if (!mount_answers(run, step, answers, deadlock)) {
        return DIFFERENT;
    }
    if (!answers[0].error) {
        note(run, step);
    } else if (upgrade && answers[0].error == EAGAIN) {
        return tmpfs_shares_again(run, step);
    }
    for (int i = 0; i < 2 && step->what == STEP_FORK; i++) {
        side_forked(run->sides[i], step->other, answers[i].pid);
    }
    return SAME;
}

static enum verdict step_run(struct run *run, const struct step *step, uint32_t order)
{
    bool granted[SLOTS] = {false};
    struct answer grants[SLOTS];
    enum verdict verdict;
    if (!step_can(run, step)) {
        return SAME;
    }
    counts.steps++;
    if (run->out) {
        fprintf(run->out, "%4u  ", order);
        program_print_step(step, run->out);
    }
    if (step->what == STEP_KILL || step->what == STEP_SIGNAL || step->what == STEP_EXIT) {
        say(run, "\n");
        step_done_to(run, step, run->sides[0]);
        if (step->what == STEP_SIGNAL && !side_heard(run->sides[0], step->slot, answer_ms, &grants[step->slot])) {
            stress_die("a signal does not end a wait on tmpfs");
        }
        granted[step->slot] = step->what == STEP_SIGNAL;
        verdict = tmpfs_granted(run, granted, grants);
        if (verdict == SAME) {
            step_done_to(run, step, run->sides[1]);
        }
    } else {
        verdict = step_requested(run, step, order, granted, grants);
    }
    if (verdict == SAME && step_ends(step)) {
        side_barrier(run->sides[1]);
        run->soft = true;
    }
    return verdict == SAME ? mount_granted(run, granted, grants) : verdict;
}

/* --- what is left ------------------------------------------------------------------------ */

static int probe_flock(const char *path)
{
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666), reported = fd < 0 ? -errno : 0;
    for (int shared = 0; fd >= 0 && reported == shared && shared < 2; shared++) {
        reported += flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0;
    }
    close(fd);
    return reported; /* 0: free, 1: shared, 2: exclusive */
}

/* The type of the lock on each byte, if there is one. */
static void probe_records(const char *path, char *reported)
{
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    for (int i = 0; i <= BYTES; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
        int error = fcntl(fd, F_GETLK, &lock) == 0 ? 0 : errno;
        reported[i] = error ? '?' : lock.l_type == F_UNLCK ? '.' : lock.l_type == F_WRLCK ? 'w' : 'r';
    }
    reported[BYTES + 1] = '\0';
    close(fd);
}

static void probe(const struct run *run, const struct side *side, bool record, int file, char *reported)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%c%u.%d", side->directories[0], record ? 'r' : 'f', run->number, file);
    if (record) {
        probe_records(path, reported);
    } else {
        snprintf(reported, 2, "%u", (unsigned)probe_flock(path) % 10);
    }
}

static enum verdict probe_all(struct run *run)
{
    char reported[2][BYTES + 2];
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (run->sides[0]->states[i] == STATE_WAITS) {
            return SAME; /* who asks for what a waiter asked for queues behind it */
        }
    }
    for (int record = 0; record < 2; record++) {
        for (int file = 0; file < 2; file++) {
            if (!run->used[record][file]) {
                continue;
            }
            int64_t until = stress_now() + (run->soft ? again_ms * STRESS_MS : 0);
            probe(run, run->sides[0], record, file, reported[0]);
            for (;;) {
                probe(run, run->sides[1], record, file, reported[1]);
                if (strcmp(reported[0], reported[1]) == 0 || stress_now() >= until) {
                    break;
                }
                stress_sleep(2 * STRESS_MS);
            }
            counts.probes++;
            if (strcmp(reported[0], reported[1]) != 0) {
                say(run, "    left of %c%d: %s, on the mount %s\n", record ? 'r' : 'f', file, reported[0], reported[1]);
                return DIFFERENT;
            }
        }
    }
    return SAME;
}

/* --- a program --------------------------------------------------------------------------- */

static enum verdict program_run(struct side *sides, uint32_t mounts, const struct program *program, FILE *out)
{
    static uint32_t number;
    struct run run = {.sides = {&sides[0], &sides[1]}, .mounts = mounts, .number = number++ % 1000, .out = out};
    enum verdict verdict = SAME;
    char path[256];
    for (uint32_t i = 0; i < SLOTS; i++) {
        run.mount[i] = i % mounts;
    }
    side_begin(&sides[0], program->processes);
    side_begin(&sides[1], program->processes);
    for (uint32_t i = 0; i < program->count && verdict == SAME; i++) {
        verdict = step_run(&run, &program->steps[i], i);
    }
    if (verdict == SAME) {
        verdict = probe_all(&run);
    }
    side_end(&sides[1]);
    side_end(&sides[0]);
    for (int i = 0; i < 4; i++) {
        if (run.used[i / 2][i % 2]) {
            snprintf(path, sizeof path, "%s/%c%u.%d", sides[0].directories[0], i / 2 ? 'r' : 'f', run.number, i % 2);
            unlink(path);
        }
    }
    return verdict;
}

/* Without the steps that it does not need. */
static struct program program_smaller(struct side *sides, uint32_t mounts, struct program program)
{
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (uint32_t i = program.count; i-- > 0;) {
            struct program less = program;
            less.count--;
            memmove(&less.steps[i], &less.steps[i + 1], (less.count - i) * sizeof *less.steps);
            if (program_run(sides, mounts, &less, NULL) == DIFFERENT) {
                program = less;
                smaller = true;
            }
        }
    }
    return program;
}

static void program_reported(struct side *sides, uint32_t mounts, const struct program *program)
{
    answer_ms = 1000;
    again_ms = 200;
    struct program less = program_smaller(sides, mounts, *program);
    answer_ms = 10000;
    again_ms = 3000;
    printf("DIFFERENT: seed %" PRIu64 ", made smaller; what tmpfs says, and where the mount differs:\n", program->seed);
    if (program_run(sides, mounts, &less, stdout) != DIFFERENT) {
        printf("    it did not differ when it was run again; as it was:\n");
        program_run(sides, mounts, program, stdout);
    }
    fflush(stdout);
}

static uint64_t number_of(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    if (*end || end == text) {
        stress_die("not a number: %s", text);
    }
    return number;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"programs", required_argument, NULL, 'p'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"remote", no_argument, NULL, 'r'},
                                          {"all", no_argument, NULL, 'a'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    static struct side sides[2];
    uint64_t programs = 1000, seed = (uint64_t)stress_now(), seconds = 86400;
    bool verbose = false, all = false;
    if (argc > 1 && strcmp(argv[1], "--worker") == 0) {
        worker_again(argv + 2);
    }
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p':
            programs = number_of(optarg);
            break;
        case 's':
            seed = number_of(optarg);
            break;
        case 't':
            seconds = number_of(optarg);
            break;
        case 'r':
            sides[1].remote = true;
            break;
        case 'a':
            all = true;
            break;
        case 'v':
            verbose = true;
            break;
        default:
            return 1;
        }
    }
    int mounts = argc - optind - 1;
    if (mounts != 1 && mounts != 2) {
        stress_die("usage: oracle [OPTIONS] TMPFS MOUNT [MOUNT]");
    }
    for (int i = 0; i < SLOTS; i++) {
        sides[0].directories[i] = argv[optind];
        sides[1].directories[i] = argv[optind + 1 + i % mounts];
    }
    side_channels(&sides[0]);
    side_channels(&sides[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %" PRIu64 "\n", seed);
    int64_t began = stress_now();
    uint64_t done = 0;
    for (; done < programs && stress_now() < began + (int64_t)seconds * STRESS_SECOND; done++) {
        struct program program = program_random(seed + done);
        enum verdict verdict = program_run(sides, (uint32_t)mounts, &program, verbose ? stdout : NULL);
        counts.verdicts[verdict]++;
        if (verdict == DIFFERENT) {
            program_reported(sides, (uint32_t)mounts, &program);
            if (!all) {
                break;
            }
        }
    }
    double took = (double)(stress_now() - began) / STRESS_SECOND;
    printf("%" PRIu64 " programs in %.1f s: %" PRIu64 " different, %" PRIu64
           " ended where Linux lets overtake (%" PRIu64 " of them asked), %" PRIu64 " in a circle, %" PRIu64
           " where it gives up what is shared (and %" PRIu64 " shared again); %" PRIu64 " steps, %" PRIu64
           " waits, %" PRIu64 " went on, %" PRIu64 " files probed\n",
           done, took, counts.verdicts[DIFFERENT], counts.verdicts[OVERTAKEN], counts.queued, counts.verdicts[CIRCLE],
           counts.verdicts[KEPT], counts.kept, counts.steps, counts.waits, counts.granted, counts.probes);
    side_stop(&sides[1]);
    side_stop(&sides[0]);
    return counts.verdicts[DIFFERENT] ? 3 : 0;
}

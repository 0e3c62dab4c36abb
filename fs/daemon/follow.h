/* follow: runs the loop on the processor of its caller while one thread sends all requests.
 *
 * Two processes on one processor hand over in 3 us; on two processors of a virtual machine each wakes the other from a
 * halt, in 25 to 100 us.  So while one thread sends request after request, the loop's thread binds itself to the
 * processor that this thread runs on, and raises its own priority.
 *
 * The priority is what keeps both there.  A process that is woken goes to an idle processor if there is one, away from
 * the processor of who woke it, unless it is still in its run queue: since Linux 6.12 one that has had more than its
 * share stays there when it sleeps (DELAY_DEQUEUE in kernel/sched/fair.c).  Beside a daemon of a higher priority the
 * caller always has.  Where the priority may not be raised nothing is followed.
 *
 * The load balancer still moves the caller now and then: seen by a request that does not come at once.  Then its
 * processor is looked up before that request is answered, and the loop moves behind the answer, when the caller has
 * been woken there.  It lets go when other threads send requests too, or when following does not help; then it does not
 * try again for a while.  The pause doubles after each time that it has followed only for a short time.
 *
 * The processor is field 39 of /proc/TID/stat.  Its reader waits for an execve(2) of that process, which may wait for
 * us: for the FLUSH of a file that it closes, and for each READ and WRITE of io_submit(2), whose thread goes on without
 * the answer.  So it is read only while that thread waits for the answer of another request.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef FS_DAEMON_FOLLOW_H
#define FS_DAEMON_FOLLOW_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/process/process.h"

#define FOLLOW_NICE (-10)
#define FOLLOW_STREAK 16      /* requests of one thread in a row until it is followed */
#define FOLLOW_AT_ONCE 16000  /* from an answer to the next request, if both are on one processor */
#define FOLLOW_SOON 1000000   /* a request that comes later says nothing */
#define FOLLOW_CREDIT 64      /* a request that came at once earns 1 up to this; it lets go at 0 */
#define FOLLOW_COST 4         /* of one that did not, or of another thread */
#define FOLLOW_LONG 100000000 /* ns; resets the pause; a caller beside busy programs runs for 3 ms at once */
#define FOLLOW_PAUSE 10000000 /* until it tries again */
#define FOLLOW_PAUSE_MAX 1000000000

struct follow {
    struct process_reader reader;
    bool enabled;
    bool can_raise;    /* its priority, as far as is known */
    int usual;         /* priority, while it follows nobody */
    cpu_set_t allowed; /* processors, while it follows nobody */
    pid_t thread;      /* that sent the last request; while following: that is followed */
    int streak;        /* its requests in a row */
    int cpu;           /* where the loop is bound to; -1: nobody is followed */
    int next;          /* where it shall move behind the answer; -1: nowhere */
    int credit;
    int64_t answered; /* the last one; 0: a request has come since, of any kind */
    int64_t began;    /* when it began to follow */
    int64_t retry;    /* not before that */
    int64_t pause;
    uint64_t followed, moves; /* how often it began, and how often it moved */
};

/* Before the sandbox.  Never follows if not `enabled`, or where the priority may not be raised: that needs RLIMIT_NICE,
 * which root raises here, or CAP_SYS_NICE. */
void follow_init(struct follow *follow, bool enabled);
void follow_free(struct follow *follow);

/* A request has come, and is not answered: of thread `tid`, with a FUSE opcode. */
void follow_on_request(struct follow *follow, pid_t tid, uint32_t opcode, int64_t now);

/* A request was answered. */
void follow_on_reply(struct follow *follow, int64_t now);

static inline bool follow_is_active(const struct follow *follow)
{
    return follow->cpu >= 0;
}

#endif

/* tick: see tick.h. */
#include "fs/daemon/tick.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static timer_t tick_timer;
static volatile sig_atomic_t tick_has_come;

static void tick_on_signal(int number)
{
    (void)number;
    tick_has_come = 1;
}

#ifndef sigev_notify_thread_id /* glibc before 2.40 */
#define sigev_notify_thread_id _sigev_un._tid
#endif

bool tick_init(void)
{
    struct sigaction action = {.sa_handler = tick_on_signal}; /* without SA_RESTART, so that it ends the read */
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM); /* whoever started us may have blocked it */
    return pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0 &&
           timer_create(CLOCK_MONOTONIC, &event, &tick_timer) == 0;
}

static void tick_set(long ns)
{
    struct itimerspec every = {.it_value.tv_nsec = ns, .it_interval.tv_nsec = ns};
    timer_settime(tick_timer, 0, &every, NULL);
}

void tick_start(void)
{
    tick_has_come = 0;
    tick_set(TICK_NS);
}

void tick_stop(void)
{
    tick_set(0);
}

bool tick_has_elapsed(void)
{
    return tick_has_come;
}

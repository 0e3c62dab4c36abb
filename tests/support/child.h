/* child: a server process of a test, which ends with the process that started it. */
#ifndef TESTS_SUPPORT_CHILD_H
#define TESTS_SUPPORT_CHILD_H

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* As fork(2).  The child reads and says nothing, and is killed when its parent ends; it makes no assertions, which
 * would be written among the parent's messages. */
static inline pid_t child_fork(void)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        for (int fd = 0; fd <= 2; fd++) {
            dup2(null, fd);
        }
    }
    return child;
}

#endif

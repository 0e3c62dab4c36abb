/* command: runs the command as a job: a process group of its own, the terminal, stops and continuations.
 *
 * If standard input and output are the terminal and leaserun is in its foreground, the
 * command gets the terminal at once.  Otherwise it gets it when it asks for it (SIGTTIN or
 * SIGTTOU stop it), so that the other commands of a pipeline can use it, too.  If the
 * command is stopped from the terminal, leaserun stops its whole job, so that the shell
 * notices.
 */
#ifndef FS_LEASERUN_COMMAND_H
#define FS_LEASERUN_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

#include "fs/leaserun/target.h"
#include "fs/leaserun/watchdog.h"

struct leaserun_command {
    struct leaserun_target target;
    struct leaserun_watchdog watchdog; /* its parent, unless it was adopted */
    bool ended;                        /* it ended, and waitpid(2) has reported it */
    int status;                        /* wait status (waitpid(2)), once it has ended */
    int failure;                       /* readable when exec succeeded or failed; -1: it succeeded */
    int error;                         /* errno of exec; 0: it succeeded */
    int terminal;                      /* -1: none */
    bool owns;                         /* the command gets the terminal whenever leaserun's job has it */
    bool has_modes;
    struct termios modes; /* the terminal's, before */
};

/* Starts the command and its watchdog.  The command gets the signal mask `mask`, and is killed when the watchdog dies.
 * 0 or -errno. */
int leaserun_command_start(struct leaserun_command *command, char **argv, const sigset_t *mask,
                           struct leaserun_set *set);

/* Starts a watchdog for a process that is no child of this one and no job of its own.  0 or -errno. */
int leaserun_command_adopt(struct leaserun_command *command, pid_t pid, int pidfd, struct leaserun_set *set);

/* Call it when `failure` is readable. */
void leaserun_command_executed(struct leaserun_command *command);

/* The command was stopped by this signal.  If the terminal was the reason, the command gets the terminal, or this job
 * stops and has continued when this returns.  True: continue the command. */
bool leaserun_command_stopped(struct leaserun_command *command, int signal);
void leaserun_command_continue(struct leaserun_command *command);

/* The command has ended: takes the terminal back.  If it was `killed`, also restores the terminal's modes. */
void leaserun_command_leave_terminal(struct leaserun_command *command, bool killed);

/* As of a shell: its exit status, or 128 and the signal. */
int leaserun_command_exit_status(const struct leaserun_command *command);

/* If Ctrl-C ended the command, ends leaserun's own job by SIGINT, too; then it does not return.  `interrupted`: this
 * process got SIGINT itself. */
void leaserun_command_pass_interrupt(const struct leaserun_command *command, bool interrupted);

#endif

/* command: the command as a job: a process group of its own, the
 * terminal, stopping and going on.
 *
 * When standard input and output are the terminal and leaserun is in its
 * foreground, the command is put there; else when it asks for the terminal (that
 * is: is stopped by SIGTTIN or SIGTTOU), so that the other commands of a
 * pipeline can use it too.  When the command is stopped from the terminal,
 * leaserun's whole job stops, so that the shell can tell.
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
    bool ended;                        /* and was waited for */
    int status;                        /* as waitpid(2) tells, once it has ended */
    int failure;                       /* becomes readable when it could not be executed, or was; -1: it was */
    int error;                         /* why it could not be executed; 0: it was */
    int terminal;                      /* -1: there is none */
    bool owns;                         /* the terminal is for the command, when it is for leaserun's job */
    bool has_modes;
    struct termios modes; /* of the terminal, before */
};

/* Starts it, and its watchdog.  The command gets the signal mask `mask`, and is killed
 * when the watchdog dies.  -errno. */
int leaserun_command_start(struct leaserun_command *command, char **argv, const sigset_t *mask,
                           struct leaserun_set *set);

/* A process that is no child of this one, and no job of its own: starts its watchdog.
 * -errno. */
int leaserun_command_adopt(struct leaserun_command *command, pid_t pid, int pidfd, struct leaserun_set *set);

/* Call it when `failure` is readable. */
void leaserun_command_executed(struct leaserun_command *command);

/* The command was stopped by this signal.  If the terminal was the reason, either
 * the command gets the terminal now, or this job is stopped and has gone on when
 * this returns.  True: the command is to go on. */
bool leaserun_command_stopped(struct leaserun_command *command, int signal);
void leaserun_command_continue(struct leaserun_command *command);

/* It has ended: takes the terminal back; with its modes if it was `killed` and
 * could not restore them. */
void leaserun_command_leave_terminal(struct leaserun_command *command, bool killed);

/* As shells tell: its exit status, or 128 and the signal. */
int leaserun_command_exit_status(const struct leaserun_command *command);

/* What Ctrl-C did to the command it does to the job which the command stood in
 * for: does not return if so.  `interrupted`: this process got SIGINT itself. */
void leaserun_command_pass_interrupt(const struct leaserun_command *command, bool interrupted);

#endif

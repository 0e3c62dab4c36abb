/* arguments: the command line of leaserun(1), which follows flock(1)
 * where both have an option; see arguments.h. */
#include "config.h"

#include "fs/leaserun/arguments.h"

#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "fs/options/duration.h"

#define TTL_MIN 100 /* milliseconds, as leasefs has it */

enum {
    OPTION_STATUS = 256,
    OPTION_JSON,
    OPTION_GET,
    OPTION_PUT,
    OPTION_TOP,
    OPTION_BREAK,
    OPTION_FORCE,
    OPTION_ONCE,
    OPTION_LOOP,
    OPTION_NOTE,
    OPTION_MOUNTS,
};

static const char usage[] = "Usage: leaserun [OPTION...] LOCK [--] COMMAND [ARGUMENT...]\n"
                            "       leaserun [OPTION...] LOCK -c 'COMMAND'\n"
                            "       leaserun [OPTION...] -l LOCK -l LOCK... [--] COMMAND [ARGUMENT...]\n"
                            "       leaserun [OPTION...] --once PERIOD LOCK [--] COMMAND [ARGUMENT...]\n"
                            "       leaserun [OPTION...] --loop LOCK [--] COMMAND [ARGUMENT...]\n"
                            "       leaserun --status [--json] LOCK|DIRECTORY\n"
                            "       leaserun --get [-n | -w TIME] [-t TTL] LOCK\n"
                            "       leaserun --put LOCK [TOKEN]\n"
                            "       leaserun --break [--force] LOCK\n"
                            "       leaserun --top [--json] [DIRECTORY]\n"
                            "       leaserun --mounts [--json] DIRECTORY\n"
                            "       leaserun -u NUMBER\n";
static const char help[] = "Runs COMMAND while holding LOCK, a name (or a directory: a queue) of a leasefs.\n"
                           "If the lock is lost, the command is ended before anybody else can hold it.\n"
                           "\n"
                           "  -s, --shared          hold it together with others that share it\n"
                           "  -x, -e, --exclusive   hold it alone (default)\n"
                           "  -l, --lock LOCK       one of several: all are held, or none\n"
                           "  -N, --width NUMBER    LOCK is a queue of which so many run at once: it is made\n"
                           "                        if it is missing\n"
                           "  -w, --timeout TIME    wait at most so long; 0 is not at all\n"
                           "  -n, --nonblock        do not wait\n"
                           "  -E, --conflict-exit-code NUMBER\n"
                           "                        exit status when it was not free in time (default 1)\n"
                           "  -t, --ttl TIME        how long the lock lasts when it cannot be renewed\n"
                           "                        (default: as its directory says)\n"
                           "  -k, --kill-after TIME between SIGTERM and SIGKILL when it is lost\n"
                           "                        (default: a sixth of the ttl)\n"
                           "  -c, --command COMMAND the command is a line for the shell\n"
                           "  -F, --no-fork         the command takes the place of leaserun\n"
                           "  -o, --close           the command does not get the lock's descriptor: always so\n"
                           "      --once PERIOD     do not run it if it has succeeded within PERIOD, on any host\n"
                           "      --loop            when it has ended, or the lock was lost, queue again\n"
                           "      --note TEXT       what others are shown about the lock\n"
                           "  -u, --unlock          give back what flock(1) has locked on a descriptor\n"
                           "  -v, --verbose         tell what is done\n"
                           "  -h, --help            this text\n"
                           "  -V, --version\n"
                           "\n"
                           "      --status          tell who holds LOCK and who waits: status 0 held, 1 free;\n"
                           "                        of a DIRECTORY, all locks in it and below\n"
                           "      --json            the same as JSON; also of --top\n"
                           "      --break           take LOCK from its holders\n"
                           "      --force           also if it was broken, and its holder has time to end\n"
                           "      --get             take LOCK for the ttl and print its token; no process owns it\n"
                           "      --put             give LOCK back by its token, an argument or standard input\n"
                           "      --top             a table of the locks of a mount, who blocks most first\n"
                           "      --mounts          the mounts that use the same store: host, version, seconds\n"
                           "\n"
                           "A TIME is a number of seconds, or has a unit: 500ms, 30s, 5m, 1h.\n"
                           "The command finds the lock's path in LEASE_NAME, its fencing token in LEASE_TOKEN.\n"
                           "Exit status: the command's; 75 if the lock was lost; see leaserun(1).\n";

static const char *const action_names[] = {
    [LEASERUN_RUN] = "a command", [LEASERUN_UNLOCK] = "-u",       [LEASERUN_STATUS] = "--status",
    [LEASERUN_GET] = "--get",     [LEASERUN_PUT] = "--put",       [LEASERUN_TOP] = "--top",
    [LEASERUN_BREAK] = "--break", [LEASERUN_MOUNTS] = "--mounts",
};

static int arguments_time(const char *option, const char *text, int64_t *ret_ms)
{
    int result = duration_parse(text, strlen(text), ret_ms);
    if (result == -ERANGE) {
        warnx("%s %s: too long: the longest time is 3650d", option, text);
    } else if (result != 0) {
        warnx("%s %s: not a time, such as 10, 0.5, 500ms, 30s or 5m", option, text);
    }
    return result == 0 ? -1 : EX_USAGE;
}

static int arguments_ttl(const char *text, int64_t *ret_ms)
{
    int status = arguments_time("-t", text, ret_ms);
    if (status < 0 && *ret_ms < TTL_MIN) {
        warnx("-t %s: a lease lasts at least 100ms", text);
        return EX_USAGE;
    }
    return status;
}

static int arguments_once(const char *text, int64_t *ret_ms)
{
    int status = arguments_time("--once", text, ret_ms);
    if (status < 0 && *ret_ms < TTL_MIN) {
        warnx("--once %s: a period is at least 100ms", text);
        return EX_USAGE;
    }
    return status;
}

/* Others see it on one line. */
static int arguments_note(const char *text, char *note)
{
    size_t length = strlen(text);
    if (length > LEASERUN_NOTE_MAX) {
        warnx("--note: at most %d bytes, not %zu", LEASERUN_NOTE_MAX, length);
        return EX_USAGE;
    }
    for (size_t i = 0; i <= length; i++) {
        bool control = i < length && ((unsigned char)text[i] < 0x20 || text[i] == 0x7f);
        note[i] = control ? ' ' : text[i];
    }
    return -1;
}

static bool arguments_number(const char *text, long long low, long long high, long long *ret_number)
{
    char *end;
    errno = 0;
    *ret_number = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *ret_number >= low && *ret_number <= high;
}

static int arguments_conflict(const char *text, int *ret_status)
{
    long long number;
    if (!arguments_number(text, 0, 255, &number)) {
        warnx("-E %s: an exit status is a number from 0 to 255", text);
        return EX_USAGE;
    }
    *ret_status = (int)number;
    return -1;
}

static int arguments_width(const char *text, uint32_t *ret_width)
{
    long long number;
    if (!arguments_number(text, 1, UINT32_MAX, &number)) {
        warnx("-N %s: a width is a number from 1 on", text);
        return EX_USAGE;
    }
    *ret_width = (uint32_t)number;
    return -1;
}

static int arguments_action(struct leaserun_arguments *arguments, enum leaserun_action action)
{
    if (arguments->action != LEASERUN_RUN && arguments->action != action) {
        warnx("%s and %s do not go together", action_names[arguments->action], action_names[action]);
        return EX_USAGE;
    }
    arguments->action = action;
    return -1;
}

static int arguments_add_lock(struct leaserun_arguments *arguments, const char *lock)
{
    if (!*lock) {
        warnx("the name of a lock is empty");
        return EX_USAGE;
    }
    if (arguments->count == LEASERUN_LOCKS_MAX) {
        warnx("at most %d locks at once", LEASERUN_LOCKS_MAX);
        return EX_USAGE;
    }
    arguments->locks[arguments->count++] = lock;
    return -1;
}

static void arguments_set_shell(struct leaserun_arguments *arguments, char *line)
{
    char *shell = getenv("SHELL");
    arguments->shell[0] = shell && *shell ? shell : "/bin/sh";
    arguments->shell[1] = "-c";
    arguments->shell[2] = line;
    arguments->command = arguments->shell;
}

static int arguments_take(struct leaserun_arguments *arguments, int letter)
{
    switch (letter) {
    case 's':
    case 'x':
    case 'e':
        arguments->shared = letter == 's';
        return -1;
    case 'l':
        return arguments_add_lock(arguments, optarg);
    case 'N':
        return arguments_width(optarg, &arguments->width);
    case 'w':
        return arguments_time("-w", optarg, &arguments->wait);
    case 'n':
        arguments->wait = 0;
        return -1;
    case 'E':
        return arguments_conflict(optarg, &arguments->conflict);
    case 't':
        return arguments_ttl(optarg, &arguments->ttl);
    case 'k':
        return arguments_time("-k", optarg, &arguments->grace);
    case 'c':
        arguments_set_shell(arguments, optarg);
        return -1;
    case 'F':
        arguments->no_fork = true;
        return -1;
    case 'o':
        return -1;
    case 'u':
        return arguments_action(arguments, LEASERUN_UNLOCK);
    case 'v':
        arguments->verbose = true;
        return -1;
    case OPTION_STATUS:
        return arguments_action(arguments, LEASERUN_STATUS);
    case OPTION_JSON:
        arguments->json = true;
        return -1;
    case OPTION_GET:
        return arguments_action(arguments, LEASERUN_GET);
    case OPTION_PUT:
        return arguments_action(arguments, LEASERUN_PUT);
    case OPTION_TOP:
        return arguments_action(arguments, LEASERUN_TOP);
    case OPTION_MOUNTS:
        return arguments_action(arguments, LEASERUN_MOUNTS);
    case OPTION_FORCE:
        arguments->force = true;
        return -1;
    case OPTION_BREAK:
        return arguments_action(arguments, LEASERUN_BREAK);
    case OPTION_ONCE:
        return arguments_once(optarg, &arguments->once);
    case OPTION_LOOP:
        arguments->loop = true;
        return -1;
    case OPTION_NOTE:
        return arguments_note(optarg, arguments->note);
    case 'h':
        fputs(usage, stdout);
        fputs(help, stdout);
        return 0;
    case 'V':
        puts("leaserun " PACKAGE_VERSION);
        return 0;
    default:
        fputs("Try 'leaserun --help'.\n", stderr);
        return EX_USAGE;
    }
}

/* --- operands ------------------------------------------------------------------- */

static int arguments_missing(const char *what)
{
    warnx("%s is missing", what);
    fputs(usage, stderr);
    return EX_USAGE;
}

/* The last part of the command's path; of -c, of the first word of its line. */
static void arguments_set_title(struct leaserun_arguments *arguments)
{
    const char *word = arguments->command == arguments->shell ? arguments->shell[2] : arguments->command[0];
    word += strspn(word, " \t\n");
    size_t length = arguments->command == arguments->shell ? strcspn(word, " \t\n;|&") : strlen(word);
    const char *slash = memrchr(word, '/', length);
    const char *name = slash ? slash + 1 : word;
    snprintf(arguments->title, sizeof arguments->title, "%.*s", (int)(length - (size_t)(name - word)), name);
}

/* The operands after the options: LOCK, unless -l named it, and the command. */
static int arguments_run_operands(struct leaserun_arguments *arguments, int argc, char **argv)
{
    int status = -1;
    if (!arguments->count) {
        if (optind >= argc || !argv[optind][0]) {
            return arguments_missing("LOCK");
        }
        status = arguments_add_lock(arguments, argv[optind++]);
        bool line = optind < argc && (strcmp(argv[optind], "-c") == 0 || strcmp(argv[optind], "--command") == 0);
        if (line && argc - optind != 2) {
            warnx("%s needs one argument, the line for the shell", argv[optind]);
            return EX_USAGE;
        }
        if (line && !arguments->command) {
            arguments_set_shell(arguments, argv[optind + 1]);
            return status;
        }
    }
    optind += optind < argc && strcmp(argv[optind], "--") == 0;
    if (arguments->command && optind < argc) {
        warnx("there is a command already, that of -c: %s", argv[optind]);
        return EX_USAGE;
    }
    arguments->command = arguments->command ? arguments->command : argv + optind;
    return arguments->command[0] ? status : arguments_missing("the command");
}

/* The operands of the other actions: options may stand after LOCK too. */
static int arguments_other_operand(struct leaserun_arguments *arguments, char *word)
{
    if (arguments->action == LEASERUN_PUT && arguments->count && !arguments->token) {
        arguments->token = word;
        return -1;
    }
    if (arguments->action == LEASERUN_UNLOCK && arguments->count) {
        warnx("-u gives back what is locked on a descriptor, and runs nothing: leaserun gives its own lock back when "
              "its command ends");
        return EX_USAGE;
    }
    if (arguments->count) {
        warnx("%s is for one lock: %s is too much", action_names[arguments->action], word);
        return EX_USAGE;
    }
    return arguments_add_lock(arguments, word);
}

/* What one lock alone, held by a leaserun that waits as long as it takes, can do. */
static int arguments_check_once_and_loop(const struct leaserun_arguments *arguments)
{
    const char *option = arguments->once ? "--once" : "--loop";
    const char *wrong = arguments->no_fork                        ? "-F"
                        : arguments->once && arguments->loop      ? "--loop"
                        : arguments->once && arguments->width     ? "-N"
                        : arguments->once && arguments->shared    ? "-s"
                        : arguments->once && arguments->count > 1 ? "a second lock"
                        : arguments->loop && arguments->wait >= 0 ? "-n or -w"
                                                                  : NULL;
    if ((arguments->once || arguments->loop) && wrong) {
        warnx("%s does not go with %s", wrong, option);
        return EX_USAGE;
    }
    return -1;
}

static int arguments_check(const struct leaserun_arguments *arguments)
{
    bool runs = arguments->action == LEASERUN_RUN, gets = arguments->action == LEASERUN_GET;
    bool shows = arguments->action == LEASERUN_STATUS || arguments->action == LEASERUN_TOP ||
                 arguments->action == LEASERUN_MOUNTS;
    const char *wrong = arguments->json && !shows                                    ? "--json"
                        : arguments->force && arguments->action != LEASERUN_BREAK    ? "--force"
                        : arguments->once && !runs                                   ? "--once"
                        : arguments->loop && !runs                                   ? "--loop"
                        : *arguments->note && !runs                                  ? "--note"
                        : arguments->width && !runs                                  ? "-N"
                        : arguments->no_fork && !runs                                ? "-F"
                        : arguments->command && !runs                                ? "-c"
                        : arguments->shared && !runs                                 ? "-s"
                        : (arguments->ttl || arguments->wait >= 0) && !runs && !gets ? "-n, -w or -t"
                                                                                     : NULL;
    if (wrong) {
        warnx("%s does not go with %s", wrong, action_names[arguments->action]);
        return EX_USAGE;
    }
    if (arguments->width && arguments->count > 1) {
        warnx("-N is for one lock, not for several");
        return EX_USAGE;
    }
    if (!arguments->count && arguments->action == LEASERUN_MOUNTS) {
        return arguments_missing("DIRECTORY");
    }
    if (!arguments->count && arguments->action != LEASERUN_TOP) {
        return arguments_missing("LOCK");
    }
    return arguments_check_once_and_loop(arguments);
}

int leaserun_arguments_parse(struct leaserun_arguments *arguments, int argc, char **argv)
{
    static const struct option names[] = {
        {"shared", no_argument, NULL, 's'},
        {"exclusive", no_argument, NULL, 'x'},
        {"lock", required_argument, NULL, 'l'},
        {"width", required_argument, NULL, 'N'},
        {"timeout", required_argument, NULL, 'w'},
        {"wait", required_argument, NULL, 'w'},
        {"nonblock", no_argument, NULL, 'n'},
        {"nb", no_argument, NULL, 'n'},
        {"conflict-exit-code", required_argument, NULL, 'E'},
        {"ttl", required_argument, NULL, 't'},
        {"kill-after", required_argument, NULL, 'k'},
        {"command", required_argument, NULL, 'c'},
        {"no-fork", no_argument, NULL, 'F'},
        {"close", no_argument, NULL, 'o'},
        {"unlock", no_argument, NULL, 'u'},
        {"verbose", no_argument, NULL, 'v'},
        {"status", no_argument, NULL, OPTION_STATUS},
        {"json", no_argument, NULL, OPTION_JSON},
        {"get", no_argument, NULL, OPTION_GET},
        {"put", no_argument, NULL, OPTION_PUT},
        {"break", no_argument, NULL, OPTION_BREAK},
        {"force", no_argument, NULL, OPTION_FORCE},
        {"once", required_argument, NULL, OPTION_ONCE},
        {"loop", no_argument, NULL, OPTION_LOOP},
        {"note", required_argument, NULL, OPTION_NOTE},
        {"top", no_argument, NULL, OPTION_TOP},
        {"mounts", no_argument, NULL, OPTION_MOUNTS},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    int letter, status = -1;
    *arguments = (struct leaserun_arguments){.wait = -1, .grace = -1, .conflict = 1};
    /* +: what follows LOCK is the command's, when there is one. */
    while (status < 0) {
        letter = getopt_long(argc, argv, "+sxel:N:w:nE:t:k:c:FouvhV", names, NULL);
        if (letter != -1) {
            status = arguments_take(arguments, letter);
        } else if (arguments->action != LEASERUN_RUN && optind < argc) {
            status = arguments_other_operand(arguments, argv[optind++]);
        } else {
            break;
        }
    }
    if (status < 0 && arguments->action == LEASERUN_RUN) {
        status = arguments_run_operands(arguments, argc, argv);
        if (status < 0) {
            arguments_set_title(arguments);
        }
    }
    return status < 0 ? arguments_check(arguments) : status;
}

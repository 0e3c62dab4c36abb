/* options: the command line of leaserun(1), which follows flock(1)
 * where both have an option; see options.h. */
#include "config.h"

#include "fs/leaserun/options.h"

#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "fs/options/duration.h"

#define TTL_MIN 100 /* milliseconds, as leasefs has it */

static const char usage[] = "Usage: leaserun [OPTION...] LOCK [--] COMMAND [ARGUMENT...]\n";
static const char help[] = "Runs COMMAND while holding LOCK, a name (or a directory: a queue) of a leasefs.\n"
                           "If the lock is lost, the command is ended before anybody else can hold it.\n"
                           "\n"
                           "  -s, --shared          hold it together with others that share it\n"
                           "  -w, --timeout TIME    wait at most so long; 0 is not at all\n"
                           "  -n, --nonblock        do not wait\n"
                           "  -E, --conflict-exit-code NUMBER\n"
                           "                        exit status when it was not free in time (default 1)\n"
                           "  -t, --ttl TIME        how long the lock lasts when it cannot be renewed\n"
                           "                        (default: as its directory says)\n"
                           "  -k, --kill-after TIME between SIGTERM and SIGKILL when it is lost\n"
                           "                        (default: a sixth of the ttl)\n"
                           "  -o, --close           the command does not get the lock's descriptor: always so\n"
                           "  -v, --verbose         tell what is done\n"
                           "  -h, --help            this text\n"
                           "  -V, --version\n"
                           "\n"
                           "A TIME is a number of seconds, or has a unit: 500ms, 30s, 5m, 1h.\n"
                           "The command finds the lock's path in LEASE_NAME, its fencing token in LEASE_TOKEN.\n"
                           "Exit status: the command's; 75 if the lock was lost; see leaserun(1).\n";

static int options_time(const char *option, const char *text, int64_t *ret_ms)
{
    if (duration_parse(text, strlen(text), ret_ms) != 0) {
        warnx("-%s %s: not a time, such as 10, 0.5, 500ms, 30s or 5m", option, text);
        return EX_USAGE;
    }
    return -1;
}

static int options_ttl(const char *text, int64_t *ret_ms)
{
    int status = options_time("t", text, ret_ms);
    if (status < 0 && *ret_ms < TTL_MIN) {
        warnx("-t %s: a lease lasts at least 100ms", text);
        return EX_USAGE;
    }
    return status;
}

static int options_conflict(const char *text, int *ret_status)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 0 || number > 255) {
        warnx("-E %s: an exit status is a number from 0 to 255", text);
        return EX_USAGE;
    }
    *ret_status = (int)number;
    return -1;
}

static int options_take(struct leaserun_options *options, int letter)
{
    switch (letter) {
    case 's':
        options->shared = true;
        return -1;
    case 'w':
        return options_time("w", optarg, &options->wait);
    case 'n':
        options->wait = 0;
        return -1;
    case 'E':
        return options_conflict(optarg, &options->conflict);
    case 't':
        return options_ttl(optarg, &options->ttl);
    case 'k':
        return options_time("k", optarg, &options->grace);
    case 'o':
        return -1;
    case 'v':
        options->verbose = true;
        return -1;
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

int leaserun_options_parse(struct leaserun_options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"shared", no_argument, NULL, 's'},
        {"timeout", required_argument, NULL, 'w'},
        {"wait", required_argument, NULL, 'w'},
        {"nonblock", no_argument, NULL, 'n'},
        {"nb", no_argument, NULL, 'n'},
        {"conflict-exit-code", required_argument, NULL, 'E'},
        {"ttl", required_argument, NULL, 't'},
        {"kill-after", required_argument, NULL, 'k'},
        {"close", no_argument, NULL, 'o'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    int letter;
    *options = (struct leaserun_options){.wait = -1, .grace = -1, .conflict = 1};
    /* +: what follows LOCK is the command's. */
    while ((letter = getopt_long(argc, argv, "+sw:nE:t:k:ovhV", names, NULL)) != -1) {
        int status = options_take(options, letter);
        if (status >= 0) {
            return status;
        }
    }
    if (optind < argc && argv[optind][0]) {
        options->lock = argv[optind++];
        optind += optind < argc && strcmp(argv[optind], "--") == 0;
        options->command = argv + optind;
    }
    if (!options->lock || optind >= argc) {
        warnx("%s is missing", options->lock ? "the command" : "LOCK");
        fputs(usage, stderr);
        return EX_USAGE;
    }
    return -1;
}

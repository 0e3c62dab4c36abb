/* mounts: see mounts.h.  The attribute user.lease.mounts has a line for each mount: host, version, seconds. */
#include "fs/leaserun/mounts.h"

#include <err.h>
#include <errno.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/xattr.h>
#include <sysexits.h>

#include "fs/leaserun/text.h"

#define MOUNTS_COLUMN 8 /* at least so wide */

struct mounts_line {
    const char *host, *version, *seconds;
};

/* False: there is no further one. */
static bool mounts_next(char **text, struct mounts_line *ret)
{
    char *line = strsep(text, "\n"), *host = line ? strsep(&line, "\t") : NULL;
    char *version = line ? strsep(&line, "\t") : NULL;
    *ret = (struct mounts_line){host, version, line};
    return line != NULL;
}

static void mounts_print_json(char *text)
{
    struct mounts_line mount;
    const char *before = "";
    putchar('[');
    for (; mounts_next(&text, &mount); before = ",") {
        char *host = strdup(mount.host);
        if (host) {
            leaserun_text_unescape(host);
        }
        printf("%s{\"host\":", before);
        leaserun_text_put_json(stdout, host ? host : mount.host);
        free(host);
        fputs(",\"version\":", stdout);
        if (strcmp(mount.version, "-") != 0) {
            leaserun_text_put_json(stdout, mount.version);
        } else {
            fputs("null", stdout);
        }
        printf(",\"seconds\":%s}", strcmp(mount.seconds, "-") != 0 ? mount.seconds : "null");
    }
    puts("]");
}

static void mounts_print_table(char *text)
{
    struct mounts_line mount;
    int hosts = MOUNTS_COLUMN, versions = MOUNTS_COLUMN;
    char *copy = strdup(text), *rest = copy;
    while (rest && mounts_next(&rest, &mount)) {
        hosts = MAX(hosts, (int)strlen(mount.host));
        versions = MAX(versions, (int)strlen(mount.version));
    }
    free(copy);
    printf("%-*s  %-*s  %s\n", hosts, "HOST", versions, "VERSION", "SECONDS");
    while (mounts_next(&text, &mount)) {
        printf("%-*s  %-*s  %s\n", hosts, mount.host, versions, mount.version, mount.seconds);
    }
}

int leaserun_mounts(const struct leaserun_arguments *arguments)
{
    const char *directory = arguments->locks[0];
    char *text = malloc(XATTR_SIZE_MAX + 1);
    ssize_t length = text ? getxattr(directory, "user.lease.mounts", text, XATTR_SIZE_MAX) : -1;
    int status = 0, error = errno;
    if (length < 0 && (error == ENODATA || error == EOPNOTSUPP)) {
        warnx("%s: no directory of a leasefs, or of one that is older than this leaserun", directory);
        status = EX_NOINPUT;
    } else if (length < 0) {
        errno = error;
        warn("%s", directory);
        status = error == ENOENT || error == EACCES ? EX_NOINPUT : EX_UNAVAILABLE;
    } else {
        text[length] = '\0';
        (arguments->json ? mounts_print_json : mounts_print_table)(text);
        status = fflush(stdout) != 0 ? EX_IOERR : 0;
    }
    free(text);
    return status;
}

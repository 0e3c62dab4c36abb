/* mount: as /proc/self/mountinfo and the mount's .leasefs/status tell;
 * see mount.h. */
#include "fs/leaserun/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "backend/system.h"

/* Of a line of mountinfo; the paths are as the kernel escapes them. */
struct mount_line {
    unsigned long long id;
    dev_t device;
    char root[PATH_MAX];
    char point[PATH_MAX];
};

/* A blank, a tab, a newline and a backslash are \ and three octal digits. */
static void mount_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned code;
        if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
            *to = (char)code;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool mount_parse(const char *text, struct mount_line *line)
{
    unsigned major, minor;
    _Static_assert(PATH_MAX == 4096, "the widths below");
    if (sscanf(text, "%llu %*u %u:%u %4095s %4095s", &line->id, &major, &minor, line->root, line->point) != 5) {
        return false;
    }
    line->device = makedev(major, minor);
    mount_unescape(line->root);
    mount_unescape(line->point);
    return true;
}

static const char *mount_as_prefix(const char *path)
{
    return strcmp(path, "/") == 0 ? "" : path;
}

static void mount_use(struct leaserun_mount *mount, const struct mount_line *line, unsigned long long id,
                      const char *directory)
{
    if (line->id == id) {
        const char *below = directory + strlen(mount_as_prefix(line->point));
        int size = snprintf(mount->inner, sizeof mount->inner, "%s%s", mount_as_prefix(line->root), below);
        if (size < 0 || (size_t)size >= sizeof mount->inner) {
            mount->inner[0] = '\0';
        }
    }
    /* The directory's own mount is the surest way to its .leasefs. */
    if (line->device == mount->device && strcmp(line->root, "/") == 0 && (line->id == id || !mount->root[0])) {
        memcpy(mount->root, line->point, sizeof mount->root);
    }
}

static void mount_read_status_line(struct leaserun_mount *mount, char *line)
{
    long long max_outage;
    static const char grace[] = "grace period: ";
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, grace, strlen(grace)) == 0) {
        snprintf(mount->grace, sizeof mount->grace, "%s", line);
    } else if (sscanf(line, "belief: %lld ms", &max_outage) == 1) {
        mount->max_outage = max_outage;
    } else if (strcmp(line, "state: away") == 0) {
        mount->away = true;
    } else if (sscanf(line, "since: %63s", mount->since) == 1 ||
               sscanf(line, "reason: %255[^\n]", mount->reason) == 1) {
        /* of that state */
    } else if (!mount->store[0]) {
        sscanf(line, "address: %4095[^\n]", mount->store);
    }
}

static void mount_read_status(struct leaserun_mount *mount)
{
    char path[PATH_MAX + 32], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/.leasefs/status", mount_as_prefix(mount->root));
    FILE *file = mount->root[0] ? fopen(path, "re") : NULL;
    mount->readable = file != NULL;
    while (file && getline(&line, &size, file) > 0) {
        mount_read_status_line(mount, line);
    }
    free(line);
    if (file) {
        fclose(file);
    }
}

int leaserun_mount_find(struct leaserun_mount *mount, const char *directory)
{
    struct statx st;
    char *text = NULL;
    size_t size = 0;
    memset(mount, 0, sizeof *mount);
    if (statx(AT_FDCWD, directory, AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0) {
        return -errno;
    }
    struct mount_line *line = malloc(sizeof *line);
    FILE *file = line ? fopen("/proc/self/mountinfo", "re") : NULL;
    if (!file) {
        int result = -errno;
        free(line);
        return result;
    }
    mount->device = makedev(st.stx_dev_major, st.stx_dev_minor);
    while (getline(&text, &size, file) > 0) {
        if (mount_parse(text, line)) {
            mount_use(mount, line, st.stx_mnt_id, directory);
        }
    }
    fclose(file);
    free(text);
    free(line);
    mount_read_status(mount);
    return 0;
}

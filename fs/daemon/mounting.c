/* mounting: see mounting.h.
 *
 * It checks first for what libfuse would refuse without a cure.
 */
#include "fs/daemon/mounting.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/log.h"
#include "fs/ops/ops.h"
#include "fs/options/options.h"

#define MOUNTING_DEVICE "/dev/fuse"
#define MOUNTING_PROGRAM "fusermount3"
#define MOUNTING_CONFIGURATION "/etc/fuse.conf"
#define MOUNTING_CONTAINER "start it with --device /dev/fuse --cap-add SYS_ADMIN"

/* --- what libfuse says ---------------------------------------------------------------- */

/* stderr, as long as it leads to a file without a name. */
struct mounting_catch {
    int saved, file; /* -1: nothing is caught */
};

static void mounting_catch_begin(struct mounting_catch *c)
{
    c->file = memfd_create("leasefs", MFD_CLOEXEC);
    c->saved = c->file < 0 ? -1 : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (c->saved >= 0) {
        dup2(c->file, STDERR_FILENO);
    }
}

/* Its first line, without the name of the program; "": there was none. */
static void mounting_catch_end(struct mounting_catch *c, char *line, size_t size)
{
    char text[512];
    static const char *const names[] = {"fuse: ", MOUNTING_PROGRAM ": "};
    if (c->saved >= 0) {
        dup2(c->saved, STDERR_FILENO);
        close(c->saved);
    }
    ssize_t length = c->file < 0 ? 0 : pread(c->file, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    const char *begin = text;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        begin += g_str_has_prefix(begin, names[i]) ? strlen(names[i]) : 0;
    }
    log_escape(line, size, begin);
    if (c->file >= 0) {
        close(c->file);
    }
}

struct fuse_session *mounting_session_new(struct fs *fs, char *error, size_t error_size)
{
    char line[600];
    struct mounting_catch c;
    struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
    for (int i = 0; i < fs->options->fuse.argc; i++) {
        fuse_opt_add_arg(&args, fs->options->fuse.argv[i]);
    }
    mounting_catch_begin(&c);
    struct fuse_session *session = fuse_session_new(&args, &ops_table, sizeof ops_table, fs);
    mounting_catch_end(&c, line, sizeof line);
    fuse_opt_free_args(&args);
    if (!session) {
        snprintf(error, error_size, "libfuse refuses the mount options: %s", *line ? line : "it does not say why");
    }
    return session;
}

/* --- what is missing ------------------------------------------------------------------- */

static int mounting_check_device(const char *path, char *error, size_t error_size)
{
    int fd = open(MOUNTING_DEVICE, O_RDWR | O_CLOEXEC), result = fd < 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    } else if (result == -ENOENT || result == -ENODEV || result == -ENXIO) {
        snprintf(error, error_size,
                 "cannot mount on %s: there is no " MOUNTING_DEVICE
                 ": run modprobe fuse; in a container, " MOUNTING_CONTAINER,
                 path);
    } else if (result != -EACCES && result != -EPERM) {
        snprintf(error, error_size, "cannot mount on %s: " MOUNTING_DEVICE ": %s", path, g_strerror(-result));
    } else if (geteuid() == 0) {
        snprintf(error, error_size,
                 "cannot mount on %s: this container may not open " MOUNTING_DEVICE ": " MOUNTING_CONTAINER, path);
    } else {
        snprintf(error, error_size,
                 "cannot mount on %s: no permission to open " MOUNTING_DEVICE
                 ": mount as root, or have root run: chmod 666 " MOUNTING_DEVICE,
                 path);
    }
    return result;
}

static bool mounting_has_program(void)
{
    g_autofree char *found = g_find_program_in_path(MOUNTING_PROGRAM);
    return found || access("/usr/bin/" MOUNTING_PROGRAM, X_OK) == 0 || access("/bin/" MOUNTING_PROGRAM, X_OK) == 0;
}

/* Does /etc/fuse.conf allow ordinary users to share a mount?  One that cannot be read is no reason to refuse. */
static bool mounting_may_share(void)
{
    g_autofree char *text = NULL;
    if (!g_file_get_contents(MOUNTING_CONFIGURATION, &text, NULL, NULL)) {
        return access(MOUNTING_CONFIGURATION, F_OK) == 0;
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        if (strcmp(g_strstrip(lines[i]), "user_allow_other") == 0) {
            return true;
        }
    }
    return false;
}

static const char *mounting_shared_option(const struct options *options)
{
    for (int i = 0; i < options->fuse.argc; i++) {
        const char *word = options->fuse.argv[i];
        if (strcmp(word, "allow_other") == 0 || strcmp(word, "allow_root") == 0) {
            return word;
        }
    }
    return NULL;
}

/* The faults that fusermount3 would complain about. */
static int mounting_check_user(const struct options *options, char *error, size_t error_size)
{
    const char *path = options->mountpoint, *shared = mounting_shared_option(options);
    if (!mounting_has_program()) {
        snprintf(error, error_size,
                 "cannot mount on %s: there is no " MOUNTING_PROGRAM ", which mounts for ordinary users: "
                 "install the package fuse3, or mount as root",
                 path);
        return -ENOENT;
    }
    if (shared && !mounting_may_share()) {
        snprintf(error, error_size,
                 "%s needs the line user_allow_other in " MOUNTING_CONFIGURATION ", or mount as root", shared);
        return -EPERM;
    }
    if (access(path, W_OK) != 0 && errno == EACCES) {
        snprintf(error, error_size,
                 "cannot mount on %s: no permission to write to it: mount on a directory of your own, or as root",
                 path);
        return -EACCES;
    }
    return 0;
}

int mounting_adopt(struct fuse_session *session, int connection, char *error, size_t error_size)
{
    char name[32];
    snprintf(name, sizeof name, "/dev/fd/%d", connection);
    if (fuse_session_mount(session, name) != 0) {
        snprintf(error, error_size, "libfuse cannot go on with a connection: version 3.3 or newer is needed");
        return -EOPNOTSUPP;
    }
    return 0;
}

int mounting_mount(const struct options *options, struct fuse_session *session, const char *path, char *error,
                   size_t error_size)
{
    char line[600];
    struct mounting_catch c;
    const char *shown = options->mountpoint;
    int result = mounting_check_device(shown, error, error_size);
    if (result == 0 && geteuid() != 0) {
        result = mounting_check_user(options, error, error_size);
    }
    if (result < 0) {
        return result;
    }
    mounting_catch_begin(&c);
    result = fuse_session_mount(session, path);
    mounting_catch_end(&c, line, sizeof line);
    if (result == 0) {
        return 0;
    }
    bool refused = strstr(line, "not permitted") || strstr(line, "denied");
    const char *cure = !refused         ? ""
                       : geteuid() == 0 ? ": root needs CAP_SYS_ADMIN; in a container, " MOUNTING_CONTAINER
                                        : ": " MOUNTING_PROGRAM " must belong to root and have its setuid bit";
    snprintf(error, error_size, "cannot mount on %s: %s%s", shown, *line ? line : "libfuse does not say why", cure);
    return -EIO;
}

/* landlock: which files and TCP ports the daemon may still open.
 *
 * Rules name directories and files that exist now; later files below them are included.
 * Open files (the store's directory, /dev/fuse, standard error) stay usable.  Landlock
 * does not restrict sockets with a path, such as syslog's.
 * Signals are seccomp's: a scope of them would keep the kernel from telling the
 * unmounter that we have died.
 *
 * The numbers are the kernel's; a header of an older kernel lacks the later ones.
 */
#include "config.h"

#include "fs/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LANDLOCK_WRITE_FILE (1ULL << 1)
#define LANDLOCK_READ_FILE (1ULL << 2)
#define LANDLOCK_READ_DIR (1ULL << 3)
#define LANDLOCK_REMOVE_FILE (1ULL << 5)
#define LANDLOCK_MAKE_REG (1ULL << 8)
#define LANDLOCK_TRUNCATE (1ULL << 14)
#define LANDLOCK_BIND_TCP (1ULL << 0)
#define LANDLOCK_CONNECT_TCP (1ULL << 1)
#define LANDLOCK_SCOPES 1ULL /* abstract sockets */
#define LANDLOCK_VERSION 1U
#define LANDLOCK_RULE_BENEATH 1
#define LANDLOCK_RULE_PORT 2

#define LANDLOCK_READ (LANDLOCK_READ_FILE | LANDLOCK_READ_DIR)
#define LANDLOCK_FILE_RIGHTS (LANDLOCK_WRITE_FILE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE)
#define LANDLOCK_STORE (LANDLOCK_READ | LANDLOCK_FILE_RIGHTS | LANDLOCK_REMOVE_FILE | LANDLOCK_MAKE_REG)

#define DNS_PORT 53 /* for answers too long for UDP */

struct landlock_handled {
    uint64_t files, net, scopes;
};

struct landlock_beneath {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));

struct landlock_port {
    uint64_t allowed, port;
};

/* What each version of Landlock added. */
static size_t landlock_known(int version, struct landlock_handled *ret_handled)
{
    int rights = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
    *ret_handled = (struct landlock_handled){
        .files = (1ULL << rights) - 1,
        .net = version >= 4 ? LANDLOCK_BIND_TCP | LANDLOCK_CONNECT_TCP : 0,
        .scopes = version >= 6 ? LANDLOCK_SCOPES : 0,
    };
    return version >= 6   ? sizeof *ret_handled
           : version >= 4 ? offsetof(struct landlock_handled, scopes)
                          : offsetof(struct landlock_handled, net);
}

static int landlock_allow_path(int ruleset, uint64_t known, const char *path, uint64_t allowed)
{
    struct stat status;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0) {
        int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return -error;
    }
    if (!S_ISDIR(status.st_mode)) {
        allowed &= LANDLOCK_FILE_RIGHTS;
    }
    struct landlock_beneath rule = {.allowed = allowed & known, .fd = fd};
    long result = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_BENEATH, &rule, 0);
    int error = errno;
    close(fd);
    return result < 0 ? -error : 0;
}

/* A path that the daemon may still open. */
struct landlock_path {
    const char *path;
    uint64_t allowed;
    bool optional; /* not every system has it */
};

/* Where host names are looked up, with the modules that do it. */
static const char *const landlock_resolver[] = {
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/ca-certificates",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
};

#define LANDLOCK_PATHS_MAX (3 + G_N_ELEMENTS(landlock_resolver) + SANDBOX_FILES_MAX)

static size_t landlock_list_paths(const struct sandbox_policy *policy, struct landlock_path ret[LANDLOCK_PATHS_MAX])
{
    size_t count = 0;
    ret[count++] = (struct landlock_path){"/proc", LANDLOCK_READ, false};
    ret[count++] = (struct landlock_path){"/dev/null", LANDLOCK_FILE_RIGHTS, false};
    if (policy->directory) {
        ret[count++] = (struct landlock_path){policy->directory, LANDLOCK_STORE, false};
    }
    for (size_t i = 0; sandbox_has_network(policy->servers) && i < G_N_ELEMENTS(landlock_resolver); i++) {
        ret[count++] = (struct landlock_path){landlock_resolver[i], LANDLOCK_READ, true};
    }
    for (size_t i = 0; i < policy->file_count; i++) {
        ret[count++] = (struct landlock_path){policy->files[i], LANDLOCK_READ, false};
    }
    return count;
}

bool sandbox_is_below(const char *path, const char *directory)
{
    char *real = realpath(path, NULL);
    size_t length = strlen(directory);
    bool below = real && strncmp(real, directory, length) == 0 &&
                 (directory[length - 1] == '/' || real[length] == '/' || !real[length]);
    free(real);
    return below;
}

const char *sandbox_find_below(const struct sandbox_policy *policy, const char *directory)
{
    struct sandbox_policy all = *policy;
    struct landlock_path paths[LANDLOCK_PATHS_MAX];
    all.servers = SANDBOX_ALL_SERVERS; /* libc reads some files of /etc for any store, such as that of the time zone */
    size_t count = landlock_list_paths(&all, paths);
    for (size_t i = 0; i < count; i++) {
        if (sandbox_is_below(paths[i].path, directory)) {
            return paths[i].path;
        }
    }
    return NULL;
}

static int landlock_allow_port(int ruleset, uint16_t port)
{
    struct landlock_port rule = {.allowed = LANDLOCK_CONNECT_TCP, .port = port};
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PORT, &rule, 0) < 0 ? -errno : 0;
}

static int landlock_allow(int ruleset, const struct landlock_handled *handled, const struct sandbox_policy *policy)
{
    struct landlock_path paths[LANDLOCK_PATHS_MAX];
    size_t count = landlock_list_paths(policy, paths);
    int result = 0;
    for (size_t i = 0; result == 0 && i < count; i++) {
        result = landlock_allow_path(ruleset, handled->files, paths[i].path, paths[i].allowed);
        if (result == -ENOENT && paths[i].optional) {
            result = 0;
        }
    }
    if (handled->net & LANDLOCK_CONNECT_TCP && sandbox_has_network(policy->servers)) {
        for (size_t i = 0; result == 0 && i < policy->port_count; i++) {
            result = landlock_allow_port(ruleset, policy->ports[i]);
        }
        if (result == 0) {
            result = landlock_allow_port(ruleset, DNS_PORT);
        }
    }
    return result;
}

int sandbox_landlock(const struct sandbox_policy *policy)
{
    struct landlock_handled handled;
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
    if (version < 0) {
        return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
    }
    size_t size = landlock_known((int)version, &handled);
    if (sandbox_has_network(policy->servers) && policy->port_count == 0) {
        handled.net &= ~LANDLOCK_CONNECT_TCP;
    }
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
    if (ruleset < 0) {
        return -errno;
    }
    int result = landlock_allow(ruleset, &handled, policy);
    if (result == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0) {
        result = -errno;
    }
    close(ruleset);
    return result < 0 ? result : (int)version;
}

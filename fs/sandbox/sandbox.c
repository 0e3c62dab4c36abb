/* sandbox: gives up rights in the order that each step needs; see sandbox.h.
 *
 * The user stays: root without capabilities still owns its store, and with
 * another user what a crash leaves behind would have two owners.  What root could
 * do by owning nearly every file is for Landlock to prevent.
 */
#include "config.h"

#include "fs/sandbox/sandbox.h"

#include <cap-ng.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <glib.h>

/* What a sanitizer does (it maps, signals, writes reports) is not to be hindered. */
#ifdef SANDBOX_SANITIZERS
#define SANDBOX_SANITIZED true
#else
#define SANDBOX_SANITIZED false
#endif

#ifdef HAVE_LIBSECCOMP
#define SANDBOX_NO_SECCOMP "the kernel has no seccomp filters"
#else
#define SANDBOX_NO_SECCOMP "built without libseccomp"
#endif

static int sandbox_count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    if (!tasks) {
        return -errno;
    }
    for (const struct dirent *entry; (entry = readdir(tasks));) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

/* The modules that look up host names are programs, which cannot be loaded later
 * on.  getaddrinfo(3) finds those that are there already. */
static void sandbox_load_resolver(void)
{
    g_autofree char *text = NULL;
    if (!g_file_get_contents("/etc/nsswitch.conf", &text, NULL, NULL)) {
        return;
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        g_auto(GStrv) words = g_strsplit_set(g_strchug(lines[i]), " \t", -1);
        for (size_t k = 1; words[0] && strcmp(words[0], "hosts:") == 0 && words[k]; k++) {
            g_autofree char *module = g_strdup_printf("libnss_%s.so.2", words[k]);
            dlopen(module, RTLD_NOW | RTLD_NODELETE); /* those that are part of libc have no file */
        }
    }
}

/* Makes libraries read files that they keep, and cannot open later on. */
static void sandbox_read_ahead(enum sandbox_servers servers)
{
    tzset();                 /* for the times in syslog */
    (void)g_strerror(EPERM); /* the tables of character sets */
    if (servers == SANDBOX_NETWORK_SERVERS) {
        sandbox_load_resolver();
    }
}

/* The bounding set is only root's to empty; nobody else has anything in the
 * others. */
static int sandbox_drop_capabilities(void)
{
    capng_select_t sets = CAPNG_SELECT_CAPS | CAPNG_SELECT_AMBIENT;
    if (capng_get_caps_process() != 0) {
        return -EIO;
    }
    if (capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP)) {
        sets = CAPNG_SELECT_ALL;
    }
    capng_clear(sets);
    return capng_apply(sets) == 0 ? 0 : -EPERM;
}

static int G_GNUC_PRINTF(4, 5) sandbox_fail(char *error, size_t error_size, int result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *what = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_snprintf(error, error_size, "the sandbox cannot be made: %s: mount with sandbox=no to do without", what);
    g_free(what);
    return result;
}

static void sandbox_tell(struct sandbox *sandbox, int landlock, int seccomp)
{
    GString *text = g_string_new("no capabilities, no_new_privs");
    if (landlock > 0) {
        g_string_append_printf(text, ", Landlock %d", landlock);
    }
    if (seccomp > 0) {
        g_string_append(text, ", seccomp");
    }
    if (SANDBOX_SANITIZED) {
        g_string_append(text, " (built with sanitizers: no Landlock, no seccomp)");
    } else if (landlock == 0) {
        g_string_append(text, "; the kernel has no Landlock: the daemon can use every file of its user");
    }
    if (!SANDBOX_SANITIZED && seccomp == 0) {
        g_string_append(text, "; " SANDBOX_NO_SECCOMP ": the daemon can make every system call");
    }
    g_snprintf(sandbox->text, sizeof sandbox->text, "%s", text->str);
    sandbox->complete = landlock > 0 && seccomp > 0;
    g_string_free(text, TRUE);
}

int sandbox_keeper(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    int result = SANDBOX_SANITIZED ? 0 : sandbox_seccomp_keeper();
    return result < 0 ? result : 0;
}

int sandbox_apply(const struct sandbox_policy *policy, struct sandbox *ret_sandbox, char *error, size_t error_size)
{
    int threads = sandbox_count_threads();
    if (threads < 0) {
        return sandbox_fail(error, error_size, threads, "/proc/self/task: %s", g_strerror(-threads));
    }
    if (threads > 1 && !SANDBOX_SANITIZED) {
        return sandbox_fail(error, error_size, -EBUSY, "%d threads run already", threads);
    }
    sandbox_read_ahead(policy->servers);
    int result = sandbox_drop_capabilities();
    if (result < 0) {
        return sandbox_fail(error, error_size, result, "capabilities cannot be dropped: %s", g_strerror(-result));
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        result = -errno;
        return sandbox_fail(error, error_size, result, "no_new_privs: %s", g_strerror(-result));
    }
    int landlock = SANDBOX_SANITIZED ? 0 : sandbox_landlock(policy);
    if (landlock < 0) {
        return sandbox_fail(error, error_size, landlock, "Landlock: %s", g_strerror(-landlock));
    }
    int seccomp = SANDBOX_SANITIZED ? 0 : sandbox_seccomp(policy);
    if (seccomp < 0) {
        return sandbox_fail(error, error_size, seccomp, "seccomp: %s", g_strerror(-seccomp));
    }
    sandbox_tell(ret_sandbox, landlock, seccomp);
    return 0;
}

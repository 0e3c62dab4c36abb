/* text: .leasefs/status; see control.h.
 *
 * A line for each fact, "key: value"; values are escaped as in the log.  A key that does
 * not apply is left out, and `warning` may come several times.
 */
#include "config.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include "backend/log.h"
#include "fs/control/control.h"
#include "fs/hold/guard.h"
#include "fs/hold/hold.h"
#include "fs/hold/quota.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"
#include "fs/options/options.h"
#include "fs/sandbox/sandbox.h"

static void control_add_fact(GString *text, const char *key, const char *value)
{
    size_t size = strlen(value) * 4 + 1;
    char *escaped = g_malloc(size);
    g_string_append_printf(text, "%s: %s\n", key, log_escape(escaped, size, value));
    g_free(escaped);
}

static void control_add_number(GString *text, const char *key, uint64_t value)
{
    g_string_append_printf(text, "%s: %" PRIu64 "\n", key, value);
}

/* RFC 3339, UTC. */
static void control_add_moment(struct fs *fs, GString *text, const char *key, clock_ms when)
{
    time_t seconds = clock_time(fs_wall(fs, when) / 1000);
    struct tm utc;
    char moment[32];
    gmtime_r(&seconds, &utc);
    strftime(moment, sizeof moment, "%Y-%m-%dT%H:%M:%SZ", &utc);
    control_add_fact(text, key, moment);
}

static void control_add_store(struct fs *fs, GString *text)
{
    struct backend_status status;
    backend_status(fs->backend, &status);
    control_add_fact(text, "backend", fs->backend->name);
    if (status.address) {
        control_add_fact(text, "address", status.address);
    }
    control_add_fact(text, "safety", backend_safety_name(fs->backend->safety));
    control_add_fact(text, "state", status.away ? "away" : "connected");
    control_add_moment(fs, text, "since", status.since);
    if (status.why) {
        control_add_fact(text, "reason", status.why);
    }
    for (guint i = 0; i < status.warnings->len; i++) {
        control_add_fact(text, "warning", g_ptr_array_index(status.warnings, i));
    }
    if (status.has_journal) {
        control_add_number(text, "journal-bytes", status.journal_bytes);
    }
    for (guint i = 0; i < status.details->len; i++) {
        g_string_append_printf(text, "%s\n", (char *)g_ptr_array_index(status.details, i));
    }
    backend_status_clear(&status);
}

static uint64_t control_sum(const uint64_t *counts)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < METRICS_KINDS; kind++) {
        sum += counts[kind];
    }
    return sum;
}

static void control_add_user(void *arg, const struct quota_used *used)
{
    g_string_append_printf(arg, "user: uid %u, locks %" PRIu64 ", content %" PRIu64 "\n", used->uid, used->locks,
                           used->content);
}

void control_add_status(struct fs *fs, GString *text)
{
    control_add_fact(text, "version", PACKAGE_VERSION);
    control_add_fact(text, "mount", fs->options->mountpoint ? fs->options->mountpoint : "-");
    control_add_fact(text, "host", fs->host);
    control_add_number(text, "pid", (uint64_t)getpid());
    control_add_moment(fs, text, "started", fs->started);
    control_add_fact(text, "takeover", geteuid() == 0 ? "yes" : "no");
    control_add_store(fs, text);
    if (fs->foreign) {
        control_add_fact(text, "warning", FS_FOREIGN_WARNING);
    }
    if (fs->sandbox) {
        control_add_fact(text, "sandbox", fs->sandbox->text);
    }
    control_add_number(text, "held", control_sum(fs->metrics->held) + guard_count(fs));
    control_add_number(text, "waiting", fs->metrics->waiting);
    if (fs->survivors->count) {
        control_add_number(text, "surviving", fs->survivors->count);
    }
    int64_t ttl = hold_directory_ttl(fs, tree_root(fs->tree));
    g_string_append_printf(text, "ttl: %" PRId64 ".%03d\n", ttl / 1000, (int)(ttl % 1000));
    control_add_number(text, "user-locks", fs->options->user_locks);
    control_add_number(text, "user-content", fs->options->user_content);
    control_add_number(text, "locks", fs->options->locks);
    control_add_number(text, "content", fs->options->content);
    quota_each(fs->quota, control_add_user, text);
    control_add_fact(text, "owner", fs->options->owner_user ? "user" : "process");
}

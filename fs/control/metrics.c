/* metrics: .leasefs/metrics, in Prometheus' text exposition format 0.0.4;
 * see control.h. */
#include "config.h"

#include <inttypes.h>

#include "fs/control/control.h"
#include "fs/hold/guard.h"
#include "fs/hold/quota.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/metrics.h"

static void control_describe(GString *text, const char *name, const char *type, const char *help)
{
    g_string_append_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void control_add_value(GString *text, const char *name, const char *type, const char *help, uint64_t value)
{
    control_describe(text, name, type, help);
    g_string_append_printf(text, "%s %" PRIu64 "\n", name, value);
}

static void control_add_kinds(GString *text, const char *name, const char *type, const char *help,
                              const uint64_t *values)
{
    control_describe(text, name, type, help);
    for (int kind = 0; kind < METRICS_KINDS; kind++) {
        g_string_append_printf(text, "%s{kind=\"%s\"} %" PRIu64 "\n", name, metrics_kind_names[kind], values[kind]);
    }
}

/* `label` is "" or ends with a comma; `scale` units are a second. */
static void control_add_histogram(GString *text, const char *name, const char *label,
                                  const struct metrics_histogram *histogram, unsigned first, unsigned buckets,
                                  uint64_t scale)
{
    const int digits = scale == 1000 ? 3 : 6;
    uint64_t total = 0;
    for (unsigned i = 0; i < buckets; i++) {
        uint64_t bound = (uint64_t)1 << (i + first);
        total += histogram->count[i];
        g_string_append_printf(text, "%s_bucket{%sle=\"%" PRIu64 ".%0*" PRIu64 "\"} %" PRIu64 "\n", name, label,
                               bound / scale, digits, bound % scale, total);
    }
    total += histogram->count[METRICS_BUCKETS];
    g_string_append_printf(text, "%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, label, total);
    char only[64] = "";
    if (*label) {
        g_snprintf(only, sizeof only, "{%.*s}", (int)strlen(label) - 1, label);
    }
    g_string_append_printf(text, "%s_sum%s %" PRIu64 ".%0*" PRIu64 "\n%s_count%s %" PRIu64 "\n", name, only,
                           histogram->sum / scale, digits, histogram->sum % scale, name, only, total);
}

static void control_add_requests(struct fs *fs, GString *text)
{
    const struct metrics *m = fs->metrics;
    uint64_t refused = 0;
    control_describe(text, "leasefs_requests_total", "counter", "Requests answered, by operation and kind of answer.");
    for (enum metrics_operation i = 0; i < METRICS_OPERATIONS; i++) {
        for (enum metrics_result k = 0; k < METRICS_RESULTS; k++) {
            if (m->requests[i][k] || k == METRICS_OK) {
                g_string_append_printf(text, "leasefs_requests_total{operation=\"%s\",result=\"%s\"} %" PRIu64 "\n",
                                       metrics_operation_names[i], metrics_result_names[k], m->requests[i][k]);
            }
        }
        refused += metrics_acquires(i) ? m->requests[i][METRICS_REFUSED] : 0;
    }
    control_add_value(text, "leasefs_refused_total", "counter",
                      "Attempts to acquire a lock that were refused since another has it.", refused);
    control_add_value(text, "leasefs_follows_total", "counter", "Times that a caller's processor was followed.",
                      m->follows);
    control_add_value(text, "leasefs_follow_moves_total", "counter", "Moves to the processor of a caller.",
                      m->follow_moves);
    control_add_value(text, "leasefs_spins_total", "counter", "Times that the next request was awaited awake.",
                      m->spins);
    control_add_value(text, "leasefs_spin_hits_total", "counter", "Those that it came in.", m->spin_hits);
    control_describe(text, "leasefs_request_seconds", "histogram",
                     "How long requests took, but for those that waited for a lock.");
    for (int group = 0; group < METRICS_GROUPS; group++) {
        char label[64];
        g_snprintf(label, sizeof label, "group=\"%s\",", metrics_group_names[group]);
        control_add_histogram(text, "leasefs_request_seconds", label, &m->latency[group], METRICS_LATENCY_FIRST,
                              METRICS_LATENCY_BUCKETS, 1000000);
    }
}

static void control_add_locks(struct fs *fs, GString *text)
{
    const struct metrics *m = fs->metrics;
    control_add_kinds(text, "leasefs_held", "gauge", "Locks that this mount holds.", m->held);
    control_add_value(text, "leasefs_waiting", "gauge", "Claims of this mount that wait.", m->waiting);
    control_add_kinds(text, "leasefs_acquired_total", "counter", "Locks acquired, or turned into this kind.",
                      m->acquired);
    control_add_kinds(text, "leasefs_released_total", "counter",
                      "Locks given back: unlinked, unlocked, closed, lapsed, or released by token.", m->released);
    control_add_kinds(text, "leasefs_expired_total", "counter", "Locks that ran out.", m->expired);
    control_add_kinds(text, "leasefs_lost_total", "counter", "Locks that could not be renewed in time.", m->lost);
    control_add_kinds(text, "leasefs_broken_total", "counter", "Locks broken by an administrator.", m->broken);
    control_add_value(text, "leasefs_guarded", "gauge",
                      "Locks of this mount that were lost and that their guards keep from others.", guard_count(fs));
    control_add_kinds(text, "leasefs_guards_total", "counter", "Guards that began to keep others off.", m->guarded);
    control_describe(text, "leasefs_wait_seconds", "histogram",
                     "How long requests waited for a lock, however the wait ended.");
    control_add_histogram(text, "leasefs_wait_seconds", "", &m->wait, METRICS_TIME_FIRST, METRICS_TIME_BUCKETS, 1000);
    control_describe(text, "leasefs_hold_seconds", "histogram", "How long locks were held, provisional ones too.");
    control_add_histogram(text, "leasefs_hold_seconds", "", &m->hold, METRICS_TIME_FIRST, METRICS_TIME_BUCKETS, 1000);
}

static void control_add_survivors(struct fs *fs, GString *text)
{
    struct openers_metrics openers = {0};
    if (fs->openers) {
        openers_measure(fs->openers, &openers);
    }
    control_add_value(text, "leasefs_surviving_locks", "gauge",
                      "Handle locks of a daemon before this one, held by the processes that have their files open.",
                      fs->survivors->count);
    control_add_value(text, "leasefs_walks_total", "counter",
                      "Looks through all processes for those that have such files open.", openers.walks);
    control_describe(text, "leasefs_last_walk_seconds", "gauge", "Processor time of the last such look.");
    g_string_append_printf(text, "leasefs_last_walk_seconds %.6f\n", (double)openers.last_ns / 1e9);
}

static void control_add_backend(struct fs *fs, GString *text)
{
    struct backend_status status;
    backend_status(fs->backend, &status);
    control_add_value(text, "leasefs_connected", "gauge", "1 while the store answers, else 0.", !status.away);
    control_add_value(text, "leasefs_grace_seconds", "gauge",
                      "For how long the store grants nothing new, as it may have lost locks; 0: it does.",
                      (uint64_t)((status.grace + 999) / 1000));
    if (status.has_connections) {
        control_add_value(text, "leasefs_backend_round_trips_total", "counter", "Requests to the store's servers.",
                          status.round_trips);
        control_add_value(text, "leasefs_backend_reconnects_total", "counter",
                          "Connections to the store's servers made again.", status.reconnects);
    }
    if (status.has_journal) {
        control_add_value(text, "leasefs_journal_bytes", "gauge", "Size of the journal.", status.journal_bytes);
        control_add_value(text, "leasefs_journal_records_total", "counter",
                          "Records ever written to the journal, by earlier daemons too.", status.journal_records);
    }
    backend_status_clear(&status);
}

static void control_add_user_locks(void *arg, const struct quota_used *used)
{
    g_string_append_printf(arg, "leasefs_user_locks{uid=\"%u\"} %" PRIu64 "\n", used->uid, used->locks);
}

static void control_add_user_content(void *arg, const struct quota_used *used)
{
    g_string_append_printf(arg, "leasefs_user_content_bytes{uid=\"%u\"} %" PRIu64 "\n", used->uid, used->content);
}

static void control_add_users(struct fs *fs, GString *text)
{
    if (quota_is_unused(fs->quota)) {
        return; /* a metric has at least one value */
    }
    control_describe(text, "leasefs_user_locks", "gauge",
                     "Names, tickets and directories of a user, and names that stay refused.");
    quota_each(fs->quota, control_add_user_locks, text);
    control_describe(text, "leasefs_user_content_bytes", "gauge", "Content of a user's locks.");
    quota_each(fs->quota, control_add_user_content, text);
}

void control_add_metrics(struct fs *fs, GString *text)
{
    int64_t started = fs_wall(fs, fs->started);
    control_describe(text, "leasefs_build_info", "gauge", "Always 1; which leasefs, and which backend.");
    g_string_append_printf(text, "leasefs_build_info{version=\"%s\",backend=\"%s\"} 1\n", PACKAGE_VERSION,
                           fs->backend->name);
    control_describe(text, "leasefs_start_time_seconds", "gauge", "When the daemon started, since the epoch.");
    g_string_append_printf(text, "leasefs_start_time_seconds %" PRId64 ".%03d\n", started / 1000,
                           (int)(started % 1000));
    control_add_locks(fs, text);
    control_add_survivors(fs, text);
    control_add_users(fs, text);
    control_add_requests(fs, text);
    control_add_backend(fs, text);
}

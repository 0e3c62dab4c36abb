/* table: the lines of .leasefs/locks and .leasefs/waiters; see control.h.
 *
 * Columns are separated by a tab, and names, hosts and commands escaped as in the
 * log, so that one line is one lock.
 */
#include <inttypes.h>
#include <string.h>

#include "backend/log.h"
#include "fs/control/control.h"
#include "fs/hold/guard.h"
#include "fs/hold/hold.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"

const char control_locks_header[] = "name\tkind\tmode\thost\tpid\tuid\tcommand\tage\tremaining\twaiters\tnote\n";
const char control_waiters_header[] = "name\tkind\tmode\thost\tpid\tuid\tcommand\tage\tposition\n";

/* Up to so many holders and waiters are counted again for each line, which is cheaper than to keep the count. */
#define CONTROL_COUNT_AGAIN 8

static void control_add_escaped(GString *text, const char *value)
{
    size_t before = text->len, need = strlen(value) * 4 + 1;
    g_string_set_size(text, before + need);
    log_escape(text->str + before, need, value);
    g_string_truncate(text, before + strlen(text->str + before));
}

static void control_add_seconds(GString *text, int64_t ms)
{
    ms = MAX(ms, 0);
    g_string_append_printf(text, "\t%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
}

static void control_add_process(struct fs *fs, GString *text, struct owner *owner, uid_t uid)
{
    g_string_append_c(text, '\t');
    control_add_escaped(text, fs->host);
    g_string_append_printf(text, "\t%d\t%u\t", owner ? owner_pid(owner) : 0, uid);
    control_add_escaped(text, owner ? owner_command(owner) : "?");
}

/* Of a surviving lock, the first of its processes and, if there are more, their pids. */
static void control_add_holder(struct fs *fs, GString *text, struct hold *hold)
{
    const struct survivor *survivor = hold_survivor(hold);
    control_add_process(fs, text, survivor ? survivor_process(survivor) : hold_update_owner(hold), hold->uid);
    for (guint i = 1; survivor && i < survivor->processes->len; i++) {
        const struct openers_process *process = &g_array_index(survivor->processes, struct openers_process, i);
        g_string_append_printf(text, ", %d", owner_pid(process->owner));
    }
    g_string_append(text, survivor ? SURVIVOR_NOTE : "");
}

static void control_add_lock(GString *text, const struct node *node, unsigned kind, enum backend_mode mode)
{
    char path[TREE_PATH_MAX];
    control_add_escaped(text, tree_path(node, path, sizeof path) ? path : "?");
    g_string_append_printf(text, "\t%s\t%s", metrics_kind_names[kind], mode == BACKEND_SHARED ? "shared" : "exclusive");
}

/* The number of this mount's waiters on this node.  Other tickets of a queue are not on a ticket's node.  A lock has
 * one line for each holder.  The count is made at its first line and kept, because both holders and waiters may be
 * many. */
static unsigned control_count_waiters(struct node *node, GHashTable *counts)
{
    const struct hold *hold;
    const struct request *r;
    unsigned count = GPOINTER_TO_UINT(g_hash_table_lookup(counts, node)), seen = 0;
    if (count) {
        return count - 1;
    }
    for (int list = 0; list < 2; list++) {
        for (hold = list ? LIST_FIRST(&node->waiting) : LIST_FIRST(&node->holds); hold; hold = LIST_NEXT(hold, link)) {
            count += hold->list == CONTROL_WAITING;
            seen++;
            for (r = hold_first_parked(hold); r; r = TAILQ_NEXT(r, parked)) {
                count += r->listed_waiting;
                seen++;
            }
        }
    }
    if (seen > CONTROL_COUNT_AGAIN) {
        g_hash_table_insert(counts, tree_ref(node), GUINT_TO_POINTER(count + 1));
    }
    return count;
}

void control_add_held(struct fs *fs, GString *text, struct hold *hold, GHashTable *counts)
{
    clock_ms now = clock_now();
    const struct backend_ticket *ticket = hold->ticket;
    control_add_lock(text, hold->node, hold->sequence ? METRICS_TICKET : hold->kind, ticket->mode);
    control_add_holder(fs, text, hold);
    control_add_seconds(text, now - hold->since);
    control_add_seconds(text, MAX(backend_ticket_deadline(ticket, now) - now, 0));
    g_string_append_printf(text, "\t%u\t", control_count_waiters(hold->node, counts));
    control_add_escaped(text, hold_note(hold) ? hold_note(hold) : "-");
    g_string_append_c(text, '\n');
}

void control_add_guarded(struct fs *fs, GString *text, struct guard *g, GHashTable *counts)
{
    clock_ms now = clock_now();
    if (!guard_is_over(g)) {
        control_add_lock(text, g->node, g->kind, g->mode);
        control_add_process(fs, text, g->owner, g->uid);
        control_add_seconds(text, now - g->since);
        control_add_seconds(text, g->deadline - now);
        g_string_append_printf(text, "\t%u\t-\n", control_count_waiters(g->node, counts));
    }
}

void control_add_waiting(struct fs *fs, GString *text, struct hold *hold, GHashTable *counts)
{
    struct node *queue = hold->sequence ? hold->node->parent : hold->node;
    unsigned place = GPOINTER_TO_UINT(g_hash_table_lookup(counts, queue)) + 1;
    if (place == 1) {
        tree_ref(queue);
    }
    g_hash_table_replace(counts, queue, GUINT_TO_POINTER(place));
    control_add_lock(text, hold->node, hold->sequence ? METRICS_TICKET : hold->kind, hold->ticket->mode);
    control_add_process(fs, text, hold_update_owner(hold), hold->uid);
    control_add_seconds(text, clock_now() - hold->ticket->acquired);
    g_string_append_printf(text, "\t%u\n", place);
}

void control_add_request(struct fs *fs, GString *text, struct request *r)
{
    control_add_lock(text, r->node, BACKEND_FCNTL, r->lock.mode);
    control_add_process(fs, text, request_caller(r), request_uid(r));
    control_add_seconds(text, (int64_t)((metrics_clock() - r->since) / 1000000));
    g_string_append(text, "\t-\n");
}

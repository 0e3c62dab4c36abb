/* judge: its life, its verdict, events, and the end.  See judge.h. */
#include <stdarg.h>
#include <string.h>

#include "tests/sim/judge_private.h"

/* --- verdict ----------------------------------------------------------------------------- */

static const char *const rule_names[JUDGE_RULES] = {
    [JUDGE_EXCLUSIVE] = "exclusive",
    [JUDGE_SHARED] = "shared",
    [JUDGE_RANGE] = "range",
    [JUDGE_WIDTH] = "width",
    [JUDGE_DELAY] = "delay",
    [JUDGE_GUARD] = "guard",
    [JUDGE_TOKEN_GROWS] = "token-grows",
    [JUDGE_TOKEN_REUSED] = "token-reused",
    [JUDGE_TOKEN_CHECK] = "token-check",
    [JUDGE_NUMBER] = "number",
    [JUDGE_ORDER] = "order",
    [JUDGE_STUCK] = "stuck",
    [JUDGE_PROMPT] = "prompt",
    [JUDGE_RELEASE_RIGHT] = "release-right",
    [JUDGE_OWNER_REFUSED] = "owner-refused",
    [JUDGE_RENAME_RIGHT] = "rename-right",
    [JUDGE_BREAK_RIGHT] = "break-right",
    [JUDGE_CHANGE_RIGHT] = "change-right",
    [JUDGE_READ_RIGHT] = "read-right",
    [JUDGE_EFFECT] = "effect",
    [JUDGE_REASON] = "reason",
    [JUDGE_GHOST] = "ghost",
    [JUDGE_UNSEEN] = "unseen",
    [JUDGE_CONTENT] = "content",
    [JUDGE_ATTRIBUTE] = "attribute",
    [JUDGE_PROBE] = "probe",
    [JUDGE_FIRST_TIME] = "first-time",
    [JUDGE_DEADLOCK] = "deadlock",
    [JUDGE_ERRNO] = "errno",
    [JUDGE_UNANSWERED] = "unanswered",
    [JUDGE_INTERRUPT] = "interrupt",
    [JUDGE_KEPT] = "kept",
    [JUDGE_LOSS] = "loss",
    [JUDGE_REPORT] = "report",
    [JUDGE_LEFT] = "left",
    [JUDGE_SIMULATOR] = "simulator",
};

const char *judge_rule_name(enum judge_rule rule)
{
    return rule < JUDGE_RULES ? rule_names[rule] : "none";
}

uint64_t judge_broken(const struct judge *judge, enum judge_rule rule)
{
    return judge->broken[rule];
}

uint64_t judge_tried(const struct judge *judge, enum judge_rule rule)
{
    return judge->tried[rule];
}

uint64_t judge_verdict(const struct judge *judge, enum judge_rule *ret_first)
{
    uint64_t broken = 0;
    for (int i = 0; i < JUDGE_RULES; i++) {
        broken += judge->broken[i];
    }
    if (ret_first) {
        *ret_first = judge->first;
    }
    return broken;
}

bool judge_rule(struct judge *judge, enum judge_rule rule, bool broken)
{
    judge->tried[rule]++;
    return broken;
}

void judge_break(struct judge *judge, enum judge_rule rule, const struct name *name, const char *format, ...)
{
    va_list arguments;
    judge->first = judge->first == JUDGE_RULES ? rule : judge->first;
    judge->broken[rule]++;
    if (judge->options.out) {
        va_start(arguments, format);
        g_autofree char *text = g_strdup_vprintf(format, arguments);
        va_end(arguments);
        fprintf(judge->options.out, "%.6f %s: %s%s%s\n", (double)judge->now / JUDGE_SECOND, judge_rule_name(rule),
                name ? name->path : "", name ? ": " : "", text);
    }
}

/* --- life -------------------------------------------------------------------------------- */

static void free_call(void *data)
{
    struct call *call = data;
    g_free((char *)call->call.name);
    g_free((char *)call->call.target);
    g_free((void *)call->call.value);
    g_ptr_array_free(call->ending, TRUE);
    g_ptr_array_free(call->cycle, TRUE);
    g_free(call);
}

static void judge_free_handle(void *data)
{
    struct handle *handle = data;
    g_ptr_array_free(handle->recorded, TRUE);
    g_free(handle);
}

struct judge *judge_new(const struct judge_options *options)
{
    struct judge *judge = g_new0(struct judge, 1);
    judge->options = *options;
    judge->first = JUDGE_RULES;
    judge->forgot = -1;
    judge->longest = options->ttl;
    judge->given_up = INT64_MIN / 2;
    for (int i = 0; i < JUDGE_MOUNTS; i++) {
        for (int k = 0; k < JUDGE_TROUBLES; k++) {
            judge->mounts[i].since[k] = JUDGE_NEVER;
        }
        judge->mounts[i].calm = judge->mounts[i].renews = judge->mounts[i].ran = INT64_MIN / 2;
        judge->mounts[i].full = -1;
    }
    judge->processes = g_hash_table_new_full(NULL, NULL, NULL, judge_free_process);
    judge->handles = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, judge_free_handle);
    judge->calls = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_call);
    judge->names = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, judge_free_name);
    judge->waits = g_ptr_array_new();
    judge->past = g_ptr_array_new_with_free_func(judge_hold_free);
    return judge;
}

void judge_free(struct judge *judge)
{
    if (judge) {
        g_ptr_array_free(judge->waits, TRUE);
        g_ptr_array_free(judge->past, TRUE);
        g_hash_table_destroy(judge->calls);
        g_hash_table_destroy(judge->names);
        g_hash_table_destroy(judge->handles);
        g_hash_table_destroy(judge->processes);
        g_free(judge);
    }
}

/* --- events ------------------------------------------------------------------------------ */

void judge_watch_late(struct judge *judge, const struct name *name, struct watch *watch)
{
    bool late = watch->due != JUDGE_NEVER && judge->now > watch->due + judge->options.settle &&
                mount_calm(judge, watch->mount, watch->since);
    if (watch->due != JUDGE_NEVER && judge_rule(judge, JUDGE_REPORT, late)) {
        judge_break(judge, JUDGE_REPORT, name, "process %u was not told of the end before %.6f", watch->process->id,
                    (double)watch->due / JUDGE_SECOND);
    }
    watch->due = JUDGE_NEVER;
}

void judge_event(struct judge *judge, int64_t when, enum judge_event event, uint32_t id, uint32_t mount,
                 const char *path, uint64_t number)
{
    struct process *process = judge_process(judge, id);
    struct handle *handle = number ? judge_handle(judge, number) : NULL;
    struct name *name = handle ? handle->name : judge_name(judge, path ? path : "");
    judge->now = when;
    if (!process) {
        judge_break(judge, JUDGE_SIMULATOR, name, "process %u, which is told of an event, is nobody", id);
        return;
    }
    name_prune(judge, name);
    if (event == JUDGE_WATCHES) {
        struct watch *watch = g_new(struct watch, 1);
        *watch = (struct watch){process, mount, handle, when, JUDGE_NEVER, JUDGE_NEVER};
        g_ptr_array_add(name->watches, watch);
        return;
    }
    for (guint i = 0; i < name->watches->len; i++) {
        struct watch *watch = name->watches->pdata[i];
        if (watch->process == process && watch->handle == handle && event != JUDGE_PRIORITY) {
            judge_watch_late(judge, name, watch);
            watch->since = event == JUDGE_DELETED ? -1 : watch->since; /* the file that it watched is gone */
        }
    }
    unsigned several = 0;
    for (guint i = 0; event == JUDGE_HUNG_UP && i < name->holds->len; i++) {
        several += ((const struct hold *)name->holds->pdata[i])->claim.handle == handle;
    }
    for (guint i = 0; event == JUDGE_HUNG_UP && i < name->holds->len; i++) {
        struct hold *hold = name->holds->pdata[i];
        if (hold->claim.handle != handle || hold->begun == JUDGE_NEVER) {
            continue;
        }
        if (judge_rule(judge, JUDGE_KEPT, several == 1 && judge_hold_certain(judge, hold, when) && !name->foreign)) {
            judge_break(judge, JUDGE_KEPT, name, "process %u was told by poll that it holds no more", id);
        }
        int64_t ended = several == 1 ? when + name_guard(judge, name) : JUDGE_NEVER; /* or another of them */
        judge_hold_end(judge, hold, when, ended, hold->released);
    }
}

/* --- the end ----------------------------------------------------------------------------- */

void judge_end(struct judge *judge, int64_t when, const char *left)
{
    g_auto(GStrv) lines = g_strsplit(left ? left : "", "\n", -1);
    GHashTableIter iterator;
    void *value;
    judge->now = when;
    g_hash_table_iter_init(&iterator, judge->calls);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        struct call *call = value;
        name_prune(judge, call->name);
        call_check_wait(judge, call, 0);
        call_check_time(judge, call, &(struct judge_answer){.when = when});
    }
    for (char **line = lines; *line; line++) {
        struct name *name = judge_name(judge, *line);
        name_prune(judge, name);
        const struct name *place = name_ticket(judge, name) ? judge_parent(judge, name) : name;
        bool possible = name->foreign;
        for (guint i = 0; i < place->holds->len; i++) {
            possible = possible || judge_hold_possible(judge, place->holds->pdata[i], when + 1);
        }
        if (**line && judge_rule(judge, JUDGE_LEFT, !possible)) {
            judge_break(judge, JUDGE_LEFT, name, "it is left over");
        }
    }
    g_hash_table_iter_init(&iterator, judge->names);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        struct name *name = value;
        for (guint i = 0; i < name->watches->len; i++) {
            judge_watch_late(judge, name, name->watches->pdata[i]);
        }
    }
}

/* judge_world: processes, open file descriptions, names, mounts and their troubles; see judge.h. */
#include <string.h>

#include "tests/sim/judge_private.h"

/* --- names ------------------------------------------------------------------------------- */

struct name *judge_name(struct judge *judge, const char *path)
{
    struct name *name = g_hash_table_lookup(judge->names, path);
    if (!name) {
        name = g_new0(struct name, 1);
        name->path = g_strdup(path);
        name->holds = g_ptr_array_new_with_free_func(judge_hold_free);
        name->calls = g_ptr_array_new();
        name->handles = g_ptr_array_new();
        name->watches = g_ptr_array_new_with_free_func(g_free);
        name->tokens = g_array_new(FALSE, FALSE, sizeof(struct grant));
        name->last_ended = -1;
        name->delay_least = name->delay_since = JUDGE_NEVER;
        name->delayed_until = -1;
        name->width = 1;
        name->width_before = 1;
        name->number = -1;
        name->directory = path[0] == '\0';
        for (int i = 0; i < JUDGE_MOUNTS; i++) {
            name->file[i] = ++judge->serial;
            name->foreign = name->foreign || judge->mounts[i].since[JUDGE_FAILS] != JUDGE_NEVER;
        }
        g_hash_table_insert(judge->names, name->path, name);
    }
    return name;
}

void judge_name_removed(const struct judge *judge, struct name *name)
{
    name->width_before = MAX(name->width, name->width_before);
    name->width = 1;
    name->width_changed = judge->now;
    name->ttl = 0;
    name->delay_since = JUDGE_NEVER;
    name->number = -1;
    name->numbering++;
    for (guint i = 0; i < name->holds->len; i++) {
        ((struct hold *)name->holds->pdata[i])->token = 0;
    }
}

void judge_free_name(void *data)
{
    struct name *name = data;
    g_ptr_array_free(name->holds, TRUE);
    g_ptr_array_free(name->calls, TRUE);
    g_ptr_array_free(name->handles, TRUE);
    g_ptr_array_free(name->watches, TRUE);
    g_array_free(name->tokens, TRUE);
    g_free(name->path);
    g_free(name);
}

struct name *judge_parent(struct judge *judge, const struct name *name)
{
    const char *slash = strrchr(name->path, '/');
    g_autofree char *path = slash ? g_strndup(name->path, (gsize)(slash - name->path)) : g_strdup("");
    return judge_name(judge, path);
}

/* --- processes --------------------------------------------------------------------------- */

struct process *judge_process(struct judge *judge, uint32_t id)
{
    return g_hash_table_lookup(judge->processes, GUINT_TO_POINTER(id));
}

void judge_free_process(void *data)
{
    struct process *process = data;
    g_hash_table_destroy(process->descriptors);
    g_free(process);
}

bool process_lives(const struct process *process)
{
    return process->died == JUDGE_NEVER;
}

bool process_descends(const struct process *process, const struct process *ancestor, bool strictly)
{
    for (; process; process = process->parent) {
        if (process == ancestor) {
            return true;
        }
        if (strictly && !process_lives(process)) {
            return false;
        }
    }
    return false;
}

static void process_inherit(void *key, void *value, void *data)
{
    struct handle *handle = key;
    struct process *child = data;
    g_hash_table_insert(child->descriptors, handle, value);
    handle->descriptors += GPOINTER_TO_UINT(value);
}

void judge_fork(struct judge *judge, int64_t when, uint32_t id, uint32_t parent, pid_t pid, uid_t uid, pid_t session)
{
    struct process *process = g_new0(struct process, 1);
    judge->now = when;
    *process = (struct process){.id = id,
                                .parent = parent ? judge_process(judge, parent) : NULL,
                                .pid = pid,
                                .session = session,
                                .uid = uid,
                                .died = JUDGE_NEVER,
                                .descriptors = g_hash_table_new(NULL, NULL)};
    judge_rule(judge, JUDGE_SIMULATOR, false);
    if (judge_process(judge, id) || (parent && !process->parent)) {
        judge_break(judge, JUDGE_SIMULATOR, NULL, "process %u is forked twice, or of nobody", id);
        judge_free_process(process);
        return;
    }
    if (process->parent) {
        g_hash_table_foreach(process->parent->descriptors, process_inherit, process);
    }
    g_hash_table_insert(judge->processes, GUINT_TO_POINTER(id), process);
}

void judge_pass(struct judge *judge, int64_t when, uint32_t to, uint64_t id)
{
    struct process *process = judge_process(judge, to);
    struct handle *handle = judge_handle(judge, id);
    judge->now = when;
    if (!process || !handle || !handle->descriptors) {
        judge_break(judge, JUDGE_SIMULATOR, NULL, "handle %" G_GUINT64_FORMAT " is passed to process %u", id, to);
        return;
    }
    unsigned had = GPOINTER_TO_UINT(g_hash_table_lookup(process->descriptors, handle));
    g_hash_table_insert(process->descriptors, handle, GUINT_TO_POINTER(had + 1));
    handle->descriptors++;
}

/* --- open file descriptions -------------------------------------------------------------- */

struct handle *judge_handle(struct judge *judge, uint64_t id)
{
    return g_hash_table_lookup(judge->handles, &id);
}

struct handle *judge_open(struct judge *judge, uint64_t id, struct call *call, int64_t when)
{
    struct handle *handle = g_new0(struct handle, 1);
    *handle = (struct handle){.id = id,
                              .opener = call->process,
                              .mount = call->call.mount,
                              .name = call->name,
                              .file = call->name->file[call->call.mount],
                              .flags = call->call.flags,
                              .descriptors = 1,
                              .life = judge->mounts[call->call.mount].deaths,
                              .opened = when,
                              .closed = JUDGE_NEVER,
                              .lost = JUDGE_NEVER,
                              .released = JUDGE_NEVER,
                              .recorded = g_ptr_array_new()};
    handle->found = call->name->last_ended >= call->call.when;
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        handle->found = handle->found || (hold != call->attempt && judge_hold_possible(judge, hold, call->call.when));
    }
    if (judge_handle(judge, id)) {
        judge_break(judge, JUDGE_SIMULATOR, call->name, "handle %" G_GUINT64_FORMAT " is opened twice", id);
    }
    g_hash_table_insert(judge->handles, &handle->id, handle);
    g_hash_table_insert(call->process->descriptors, handle, GUINT_TO_POINTER(1));
    g_ptr_array_add(call->name->handles, handle);
    for (guint i = 0; i < call->name->watches->len; i++) { /* what is open again is deleted when it is closed */
        struct watch *watch = call->name->watches->pdata[i];
        bool through = watch->handle || watch->mount != handle->mount || watch->due < when;
        watch->due = through ? watch->due : JUDGE_NEVER;
    }
    return handle;
}

bool judge_survivor_is_open(const struct judge *judge, const struct hold *hold, const struct process *process)
{
    GHashTableIter handles;
    void *value;
    g_hash_table_iter_init(&handles, judge->handles);
    while (g_hash_table_iter_next(&handles, NULL, &value)) {
        const struct handle *handle = value;
        bool same = handle == hold->claim.handle || handle->name == hold->name ||
                    (hold->claim.handle && handle->name == hold->claim.handle->name);
        if (same && handle->mount == hold->claim.mount && handle->life <= hold->life && handle->descriptors &&
            (!process || g_hash_table_lookup(process->descriptors, handle))) {
            return true;
        }
    }
    return false;
}

/* It ends with the last descriptor of its file, and is certain no longer than its own. */
void judge_survivor_check(struct judge *judge, struct hold *hold)
{
    const struct handle *handle = hold->claim.handle;
    if (!handle || handle->closed != JUDGE_NEVER) {
        hold->may_end = MIN(hold->may_end, judge->now);
    }
    if (!mount_troubled(judge, hold->claim.mount) && !judge_survivor_is_open(judge, hold, NULL)) {
        hold->ended = MIN(hold->ended, judge->now + JUDGE_SURVIVOR_CHECK_MAX + judge->options.settle);
    }
}

static void survivors_check(struct judge *judge, uint32_t mount)
{
    GHashTableIter names;
    void *value;
    g_hash_table_iter_init(&names, judge->names);
    while (g_hash_table_iter_next(&names, NULL, &value)) {
        const struct name *name = value;
        for (guint i = 0; i < name->holds->len; i++) {
            struct hold *hold = name->holds->pdata[i];
            if (hold->survivor && hold->claim.mount == mount) {
                judge_survivor_check(judge, hold);
            }
        }
    }
}

/* What the kernel does not wait for: a handle's locks end with it a moment later. */
static void handle_closed(struct judge *judge, struct handle *handle, int64_t when)
{
    handle->closed = when;
    if (handle->name->guarded == handle) {
        name_end_guard(handle->name, when);
    }
    g_ptr_array_remove(handle->name->handles, handle);
    int64_t ended = mount_troubled(judge, handle->mount) ? JUDGE_NEVER : when + judge->options.settle;
    for (guint i = 0; i < handle->name->holds->len; i++) {
        struct hold *hold = handle->name->holds->pdata[i];
        judge_hold_handle_closed(hold, handle, when);
        bool ends = hold->claim.kind == KIND_FLOCK || (hold->claim.kind == KIND_RECORD && hold->claim.ofd);
        ends = ends && !hold->survivor;
        if (hold->claim.handle == handle && ends) {
            judge_hold_end(judge, hold, when, ended, false);
        }
    }
    if (handle->ticket && handle->ticket->survivor) {
        handle->ticket->may_end = MIN(handle->ticket->may_end, when);
    } else if (handle->ticket && handle->locked) {
        judge_hold_end(judge, handle->ticket, when, ended, false);
    } else if (handle->ticket) {
        handle->ticket->may_end = MIN(handle->ticket->may_end, when); /* it may stay, as a lease */
    }
    handle->ticket = NULL;
    if (judge->options.recovers) {
        survivors_check(judge, handle->mount);
    }
}

bool judge_close_one(struct judge *judge, struct process *process, struct handle *handle, int64_t when)
{
    unsigned had = GPOINTER_TO_UINT(g_hash_table_lookup(process->descriptors, handle));
    if (!had) {
        judge_break(judge, JUDGE_SIMULATOR, handle->name, "process %u closes what it has not open", process->id);
        return false;
    }
    if (had > 1) {
        g_hash_table_insert(process->descriptors, handle, GUINT_TO_POINTER(had - 1));
    } else {
        g_hash_table_remove(process->descriptors, handle);
    }
    if (--handle->descriptors == 0) {
        handle_closed(judge, handle, when);
        process->closed = handle->name;
        process->closed_at = when;
        return true;
    }
    return false;
}

/* --- the end of a process ---------------------------------------------------------------- */

static void process_end_records(struct judge *judge, struct process *process, struct name *name, int64_t when)
{
    for (guint i = 0; i < name->holds->len; i++) {
        struct hold *hold = name->holds->pdata[i];
        if (hold->claim.kind == KIND_RECORD && !hold->claim.ofd && hold->claim.process == process && !hold->survivor) {
            bool troubled = mount_troubled(judge, hold->claim.mount);
            judge_hold_end(judge, hold, when, troubled ? JUDGE_NEVER : when + judge->options.settle, false);
        }
    }
}

void judge_exit(struct judge *judge, int64_t when, uint32_t id, int status)
{
    struct process *process = judge_process(judge, id);
    GHashTableIter iterator;
    void *key, *value;
    judge->now = when;
    if (!process || !process_lives(process)) {
        judge_break(judge, JUDGE_SIMULATOR, NULL, "process %u ends, which does not live", id);
        return;
    }
    process->died = when;
    process->status = status;
    /* the calls that it is in are given up: what they got, or ended, nobody will learn */
    g_hash_table_iter_init(&iterator, judge->calls);
    GPtrArray *calls = g_ptr_array_new();
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        if (((struct call *)value)->process == process) {
            g_ptr_array_add(calls, value);
        }
    }
    for (guint i = 0; i < calls->len; i++) {
        const struct call *call = calls->pdata[i];
        judge->given_up = call->waits ? when : judge->given_up;
        judge_answer(judge, &(struct judge_answer){.id = call->call.id, .when = when, .error = -1});
    }
    g_ptr_array_free(calls, TRUE);
    GList *open = g_hash_table_get_keys(process->descriptors);
    for (GList *one = open; one; one = one->next) {
        struct handle *handle = one->data;
        for (guint i = 0; i < handle->name->holds->len; i++) {
            struct hold *hold = handle->name->holds->pdata[i];
            hold->unclosed = hold->unclosed || (hold->owner == process && handle->opener == process);
        }
        process_end_records(judge, process, handle->name, when);
        handle->descriptors -= GPOINTER_TO_UINT(g_hash_table_lookup(process->descriptors, handle));
        if (handle->descriptors == 0) {
            handle_closed(judge, handle, when);
        }
    }
    g_list_free(open);
    g_hash_table_remove_all(process->descriptors);
    g_hash_table_iter_init(&iterator, judge->names);
    while (g_hash_table_iter_next(&iterator, &key, &value)) {
        struct name *name = value;
        for (guint i = 0; i < name->holds->len; i++) {
            struct hold *hold = name->holds->pdata[i];
            if (hold->owners->len) {
                judge_hold_owner_died(judge, hold, process);
                judge_hold_meets_takers(judge, hold);
            }
        }
        for (guint i = name->watches->len; i-- > 0;) {
            struct watch *watch = name->watches->pdata[i];
            if (watch->process == process) {
                if (!watch->handle) { /* who polls learns it by asking */
                    judge_watch_late(judge, name, watch);
                }
                g_ptr_array_remove_index_fast(name->watches, i);
            }
        }
    }
}

/* --- troubles ---------------------------------------------------------------------------- */

bool mount_troubled(const struct judge *judge, uint32_t mount)
{
    for (int i = 0; i < JUDGE_TROUBLES; i++) {
        if (judge->mounts[mount].since[i] != JUDGE_NEVER) {
            return true;
        }
    }
    return false;
}

bool mount_calm(const struct judge *judge, uint32_t mount, int64_t from)
{
    return !mount_troubled(judge, mount) &&
           from >= judge->mounts[mount].calm + judge->options.ttl + judge->options.margin;
}

int64_t judge_recovered(const struct judge *judge)
{
    int64_t calm = INT64_MIN / 2;
    for (uint32_t i = 0; i < JUDGE_MOUNTS; i++) {
        if (mount_troubled(judge, i)) {
            return JUDGE_NEVER;
        }
        calm = MAX(calm, judge->mounts[i].calm);
    }
    return calm + judge->longest + judge->longest / 100 + judge->options.margin;
}

bool judge_has_forgot(const struct judge *judge, int64_t from)
{
    return judge->forgot >= 0 && from <= judge->forgot + judge->options.ttl + judge->options.margin;
}

bool judge_call_is_late(const struct judge *judge, const struct call *call, const struct name *name)
{
    const struct judge_options *o = &judge->options;
    uint32_t mount = call->call.mount;
    int64_t ended = name->elsewhere[mount];
    return o->remote && ended && ended + o->ttl + o->margin >= call->call.when &&
           !mount_calm(judge, mount, call->call.when);
}

bool judge_calm(const struct judge *judge, int64_t from)
{
    for (uint32_t i = 0; i < JUDGE_MOUNTS; i++) {
        if (!mount_calm(judge, i, from)) {
            return false;
        }
    }
    return true;
}

bool judge_renews(const struct judge *judge, int64_t from)
{
    for (uint32_t i = 0; i < JUDGE_MOUNTS; i++) {
        if (mount_troubled(judge, i) || from < judge->mounts[i].renews + judge->options.ttl + judge->options.margin) {
            return false;
        }
    }
    return true;
}

static bool hold_outlives_daemon(const struct hold *hold)
{
    const struct handle *handle = hold->claim.handle;
    return hold->claim.kind == KIND_LEASE ||
           (hold->claim.kind == KIND_TICKET && (!handle || handle->closed < JUDGE_NEVER));
}

/* A lock that is certain is kept until its term as last renewed runs out: a lease on disk, a flock or record lock also
 * on a server. */
static void hold_may_survive(const struct judge *judge, struct hold *hold)
{
    int64_t settle = judge->options.settle, now = judge->now;
    bool kept = hold->claim.kind == KIND_LEASE ? judge->options.keeps
                                               : judge->options.remote && hold->claim.kind != KIND_TICKET;
    bool calm = mount_calm(judge, hold->claim.mount, hold->begun),
         through = !hold->closed || hold->begun + settle < now;
    hold->survives = kept && calm && through && judge_hold_certain(judge, hold, now);
    hold->renewed = hold->fixed ? hold->renewed : judge_hold_renewed(judge, hold, judge_hold_term(judge, hold));
}

static void hold_survived(struct judge *judge, struct hold *hold)
{
    if (hold->survivor) {
        bool rebooted = hold->restarts_term && judge->options.remote; /* the next daemon leaves it to its term */
        int64_t over = judge_hold_end_at_latest(judge, hold);         /* before the daemon came */
        judge_hold_end(judge, hold, hold->may_end, over < judge->now || rebooted ? over : JUDGE_NEVER, false);
        hold->survivor = !rebooted;
    }
    int64_t until = judge_hold_assured(judge, hold);
    if (hold->survivor) { /* the daemon must find and renew it */
        until -= hold->ttl / 3 + judge->options.settle;
    }
    if (hold->survives && !hold->pending && judge->now < until) {
        hold->uncertain = false;
        hold->may_end = hold->survivor ? hold->may_end : MIN(hold->may_end, until);
        judge_hold_steady(hold, judge->now);
    }
    hold->survives = false;
    if (hold->restarts_term && hold->deadline) {
        hold->deadline = MAX(hold->deadline, judge->now + hold->ttl);
    }
    hold->restarts_term = false;
}

void judge_hold_daemon_died(struct judge *judge, struct hold *hold)
{
    const struct judge_options *o = &judge->options;
    if (hold->ended > judge->now) { /* what was to end it may have been on its way */
        hold->ended = JUDGE_NEVER;
    }
    if (hold_outlives_daemon(hold) && (o->keeps || o->remote)) {
        hold_may_survive(judge, hold);
        hold->uncertain = true;
    } else if (o->recovers && hold->claim.kind >= KIND_FLOCK) {
        if (o->remote) {
            hold_may_survive(judge, hold);
        }
        hold->survivor = true;
        /* a ticket that waited is gone, what is only being asked for was perhaps not granted, and a server keeps it for
         * no longer than a term: it is certain again if the next daemon comes in time */
        hold->uncertain = hold->uncertain || o->remote || hold->claim.kind == KIND_TICKET || hold->begun == JUDGE_NEVER;
        judge_survivor_check(judge, hold);
        hold->ended = JUDGE_NEVER; /* the next daemon looks who has the file open */
    } else {
        judge_hold_end(judge, hold, judge->now, judge->now + (o->remote ? hold->ttl + o->margin : o->settle), false);
    }
}

/* Does it restore its locks at once if the server forgets them now? */
static bool mount_is_there(const struct judge *judge, uint32_t mount)
{
    return !mount_troubled(judge, mount) && judge->mounts[mount].calm + 2 * judge->options.settle < judge->now;
}

/* The holds of the mount are certain for less long from now on. */
static void trouble_shakes(struct judge *judge, struct hold *hold, enum judge_trouble trouble, bool begins)
{
    const struct judge_options *o = &judge->options;
    int64_t now = judge->now;
    if (o->remote && trouble != JUDGE_DEAD) { /* the next daemon may not find it in time */
        hold->survives = false;
    }
    switch (trouble) {
    case JUDGE_AWAY:
    case JUDGE_RESET:
    case JUDGE_LATE:
    case JUDGE_STOPPED:
        hold->uncertain = hold->uncertain || (begins && hold->closed && hold->begun + o->settle > now);
        if (begins && hold->ended != JUDGE_NEVER && hold->ended > now) { /* what ends it is still on its way */
            hold->ended = o->remote ? now + hold->ttl + o->margin : JUDGE_NEVER;
        }
        hold->renewed = begins ? judge_hold_renewed(judge, hold, judge_hold_term(judge, hold)) : hold->renewed;
        if (!begins && now >= judge_hold_assured(judge, hold)) {
            hold->uncertain = true;
        }
        if (!begins && hold->deadline && !o->remote) { /* its clock has gone on */
            hold->ended = MIN(hold->ended, MAX(hold->deadline, now) + o->margin);
        }
        break;
    case JUDGE_DEAD:
        if (begins) {
            judge_hold_daemon_died(judge, hold);
        } else {
            hold_survived(judge, hold);
        }
        break;
    case JUDGE_FORGOT:
        hold->uncertain = hold->uncertain || !o->remote;
        hold->survives = false;
        hold->forgotten = now;
        if (!mount_is_there(judge, hold->claim.mount)) { /* it believes in its lock, but may restore it too late */
            int64_t term = judge_hold_term(judge, hold), renewed = judge_hold_renewed(judge, hold, term);
            hold->may_end = MIN(hold->may_end, renewed + term - term / 100 - 2 * JUDGE_MS - o->settle);
        }
        hold->token = hold->claim.kind == KIND_TICKET ? 0 : hold->token; /* its number may come again */
        break;
    case JUDGE_CUT:
        hold->token = 0;
        break;
    case JUDGE_EMPTIED:
        judge_hold_end(judge, hold, now, now, false);
        break;
    case JUDGE_FAILS:
        hold->uncertain = hold->uncertain || (begins && hold->closed && hold->begun + o->settle > now);
        break;
    case JUDGE_FULL:
    case JUDGE_MOVED:
        break;
    case JUDGE_WALL:
        hold->ageless = true;
        break;
    case JUDGE_POWER:
        hold->restarts_term = true;
        break;
    case JUDGE_CLOCK:
    case JUDGE_FOREIGN:
    case JUDGE_FEWER:
    case JUDGE_TROUBLES:
        hold->uncertain = true;
        hold->timeless = true;
        break;
    }
}

/* A store in memory begins empty, and its numbers begin again. */
static void trouble_ends_numbers(struct judge *judge)
{
    GHashTableIter iterator;
    void *value;
    g_hash_table_iter_init(&iterator, judge->names);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        struct name *name = value;
        g_array_set_size(name->tokens, 0);
        name->delayed_until = -1;
        judge_name_removed(judge, name);
    }
}

static void trouble_on_mount(struct judge *judge, enum judge_trouble trouble, uint32_t number, bool begins)
{
    struct mount *mount = &judge->mounts[number];
    bool moment = trouble == JUDGE_FORGOT || trouble == JUDGE_CUT || trouble == JUDGE_EMPTIED || trouble == JUDGE_CLOCK;
    if (!moment) {
        mount->since[trouble] = begins ? judge->now : JUDGE_NEVER;
    }
    mount->died = mount->died || trouble == JUDGE_DEAD;
    mount->deaths += trouble == JUDGE_DEAD && begins;
    mount->dark = mount->dark && (trouble != JUDGE_DEAD || begins);
    bool forgets = trouble == JUDGE_DEAD && begins && !judge->options.keeps && !judge->options.remote;
    if (forgets || trouble == JUDGE_EMPTIED) {
        trouble_ends_numbers(judge);
    }
    mount->full = trouble == JUDGE_FULL ? judge->now : mount->full;
    mount->emptied = trouble == JUDGE_EMPTIED ? judge->now : mount->emptied;
    mount->calm = judge->now;
    mount->renews = trouble == JUDGE_RESET ? mount->renews : judge->now;
    mount->ran = trouble == JUDGE_STOPPED || trouble == JUDGE_DEAD || trouble == JUDGE_FAILS ? judge->now : mount->ran;
}

void judge_trouble(struct judge *judge, int64_t when, enum judge_trouble trouble, uint32_t mount, const char *path,
                   bool begins)
{
    GHashTableIter iterator;
    void *value;
    judge->now = when;
    if (trouble == JUDGE_FEWER) {
        judge->fewer += begins ? 1 : -1U;
        judge->all_since = when;
        return;
    }
    g_hash_table_iter_init(&iterator, judge->names);
    judge->forgot = trouble == JUDGE_FORGOT ? when : judge->forgot;
    if (trouble == JUDGE_FOREIGN && path) {
        judge_name(judge, path)->foreign = true;
    }
    if (trouble == JUDGE_POWER) {
        judge->mounts[mount].dark = true;
    }
    bool dark = trouble == JUDGE_FORGOT && mount != JUDGE_ALL && judge->mounts[mount].dark;
    if (trouble == JUDGE_CUT || dark) {
        judge_hold_comes_back(judge, mount, dark);
    }
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        struct name *name = value;
        if (trouble == JUDGE_CUT) {
            g_array_set_size(name->tokens, 0);
        }
        name->foreign = name->foreign || trouble == JUDGE_FAILS; /* what comes back of it later nobody can tell */
        if ((trouble == JUDGE_FORGOT || trouble == JUDGE_MOVED) && name->directory) {
            name->number = -1;
            name->numbering++;
            name->width_unknown = name->width_unknown || trouble == JUDGE_FORGOT;
        }
        for (guint i = 0; i < name->holds->len; i++) {
            struct hold *hold = name->holds->pdata[i];
            bool here = mount == JUDGE_ALL || hold->claim.mount == mount || trouble == JUDGE_FORGOT;
            if (here && (trouble != JUDGE_FOREIGN || name->foreign)) {
                trouble_shakes(judge, hold, trouble, begins);
            }
        }
    }
    bool of_mounts =
        trouble != JUDGE_FOREIGN && trouble != JUDGE_MOVED && trouble != JUDGE_WALL && trouble != JUDGE_POWER;
    for (uint32_t i = 0; of_mounts && i < JUDGE_MOUNTS; i++) {
        if (mount == JUDGE_ALL || mount == i) {
            trouble_on_mount(judge, trouble, i, begins);
            survivors_check(judge, i);
        }
    }
}

/* judge_hold: when a hold is certain, possible, over; what excludes what; who may end it.  See judge.h. */
#include <string.h>
#include <sys/wait.h>

#include "tests/sim/judge_private.h"

/* --- life -------------------------------------------------------------------------------- */

struct hold *judge_hold_new(struct judge *judge, struct name *name, const struct claim *claim, int64_t when)
{
    struct hold *hold = g_new0(struct hold, 1);
    *hold = (struct hold){.claim = *claim,
                          .name = name,
                          .serial = ++judge->serial,
                          .may_begin = when,
                          .begun = JUDGE_NEVER,
                          .may_end = JUDGE_NEVER,
                          .ended = JUDGE_NEVER,
                          .renewed = when,
                          .numbering_requested = name->numbering,
                          .ttl = judge->options.ttl,
                          .life = judge->mounts[claim->mount].deaths,
                          .owners = g_ptr_array_new()};
    hold->origin = hold->serial;
    for (const struct name *at = name; at->path[0]; at = judge_parent(judge, at)) {
        const struct name *parent = judge_parent(judge, at);
        if (parent->ttl) {
            hold->ttl = parent->ttl;
            break;
        }
    }
    if (claim->kind == KIND_LEASE || claim->kind == KIND_PROVISIONAL || claim->kind == KIND_TICKET) {
        g_ptr_array_add(hold->owners, claim->process);
        hold->owner = claim->process;
    }
    g_ptr_array_add(name->holds, hold);
    return hold;
}

void judge_hold_free(void *data)
{
    struct hold *hold = data;
    g_ptr_array_free(hold->owners, TRUE);
    if (hold->content) {
        g_byte_array_unref(hold->content);
    }
    g_free(hold);
}

/* --- what excludes what ------------------------------------------------------------------ */

static bool hold_owned_by(const struct hold *hold, const struct process *process)
{
    for (guint i = 0; i < hold->owners->len; i++) {
        if (hold->owners->pdata[i] == process) {
            return true;
        }
    }
    return false;
}

bool judge_hold_belongs_to(const struct hold *hold, const struct process *process)
{
    const struct handle *handle = hold->claim.handle;
    return hold->claim.process == process || (handle && handle->opener == process) || hold_owned_by(hold, process);
}

/* A record lock and another: perhaps of one handle?  A process' records are one, and of the first handle that it took
 * some by: it was one of these. */
static bool hold_is_beside(const struct claim *mine, const struct claim *claim)
{
    const struct claim *record = mine->kind == KIND_RECORD ? mine : claim, *other = record == mine ? claim : mine;
    if ((mine->kind == KIND_RECORD) == (claim->kind == KIND_RECORD)) {
        return false;
    }
    return other->handle && !record->ofd && g_ptr_array_find(other->handle->recorded, record->process, NULL);
}

/* Has the record lock's process taken some by another file, too, which may have been the first? */
static bool hold_has_another_file(const struct hold *hold, const struct claim *record, const struct handle *handle)
{
    for (guint i = 0; i < hold->name->handles->len; i++) {
        const struct handle *other = hold->name->handles->pdata[i];
        if (other != handle && g_ptr_array_find(other->recorded, record->process, NULL)) {
            return true;
        }
    }
    return false;
}

bool judge_hold_excludes(const struct hold *hold, const struct claim *claim, bool surely)
{
    const struct claim *mine = &hold->claim;
    bool records = mine->kind == KIND_RECORD && claim->kind == KIND_RECORD;
    if (mine->kind == KIND_TICKET || claim->kind == KIND_TICKET) {
        return false; /* they are counted */
    }
    if ((mine->shared && claim->shared) || mine->start > claim->end || claim->start > mine->end) {
        return false;
    }
    if (records && !mine->ofd && !claim->ofd && mine->process == claim->process) {
        return !surely && hold->survivor; /* which its process conflicts with */
    }
    bool leases = mine->kind == KIND_LEASE || mine->kind == KIND_PROVISIONAL;
    if (claim->creates || mine->creates) {
        return true;
    }
    if (surely && leases) {
        bool opener = claim->handle && hold_owned_by(hold, claim->handle->opener);
        return !opener && !hold_owned_by(hold, claim->process) && (!mine->handle || mine->handle != claim->handle);
    }
    bool same = mine->handle && mine->handle == claim->handle;
    if (!surely && same && mine->kind == KIND_RECORD && claim->kind != KIND_RECORD && !mine->ofd) {
        return hold_has_another_file(hold, mine, mine->handle);
    }
    if (surely && hold_is_beside(mine, claim)) {
        return false;
    }
    bool owners = records && (mine->ofd != claim->ofd || (!mine->ofd && mine->process != claim->process)); /* two */
    return !(same && (surely || !leases) && !owners);
}

/* --- when -------------------------------------------------------------------------------- */

int64_t judge_hold_term(const struct judge *judge, const struct hold *hold)
{
    return judge->options.validity ? MIN(hold->ttl, judge->options.validity) : hold->ttl;
}

int64_t judge_hold_renewed(const struct judge *judge, const struct hold *hold, int64_t term)
{
    uint32_t mount = hold->claim.mount;
    int64_t renewed = judge->now - term / 3 - judge->options.settle;
    bool known = !mount_troubled(judge, mount) && renewed > MAX(judge->mounts[mount].calm, hold->renewed);
    return known ? renewed : hold->renewed;
}

int64_t judge_hold_assured(const struct judge *judge, const struct hold *hold)
{
    const struct mount *mount = &judge->mounts[hold->claim.mount];
    bool away = mount->since[JUDGE_AWAY] != JUDGE_NEVER || mount->since[JUDGE_LATE] != JUDGE_NEVER ||
                mount->since[JUDGE_STOPPED] != JUDGE_NEVER || mount->since[JUDGE_DEAD] != JUDGE_NEVER ||
                mount->since[JUDGE_FULL] != JUDGE_NEVER || mount->since[JUDGE_FAILS] != JUDGE_NEVER;
    int64_t term = judge_hold_term(judge, hold);
    return away ? hold->renewed + term - term / 100 - 2 * JUDGE_MS - judge->options.settle : JUDGE_NEVER;
}

/* Now, and without a break since `from`? */
bool judge_hold_certain(const struct judge *judge, const struct hold *hold, int64_t from)
{
    return hold->begun <= from && hold->steady <= from && !hold->pending && !hold->uncertain &&
           judge->now < hold->may_end && judge->now < judge_hold_assured(judge, hold);
}

bool judge_hold_shown(const struct judge *judge, const struct hold *hold, int64_t from)
{
    const struct mount *mount = &judge->mounts[hold->claim.mount];
    bool restored = !mount_troubled(judge, hold->claim.mount) &&
                    from >= MAX(hold->forgotten, mount->calm) + 2 * judge->options.settle;
    return judge_hold_certain(judge, hold, from) &&
           (!hold->forgotten || restored || from > hold->forgotten + judge->options.ttl + judge->options.margin);
}

void judge_hold_steady(struct hold *hold, int64_t when)
{
    hold->steady = MAX(hold->steady, when);
}

/* A living owner, or an open handle of it or a descendant: JUDGE_NEVER; else since when there is none. */
static int64_t hold_last_reason(const struct hold *hold)
{
    int64_t last = hold->begun == JUDGE_NEVER ? hold->may_begin : hold->begun;
    for (guint i = 0; i < hold->owners->len; i++) {
        last = MAX(last, ((const struct process *)hold->owners->pdata[i])->died);
    }
    last = MAX(last, hold->reason);
    for (guint i = 0; last != JUDGE_NEVER && i < hold->name->handles->len; i++) {
        const struct handle *handle = hold->name->handles->pdata[i];
        for (guint k = 0; k < hold->owners->len; k++) {
            if (process_descends(handle->opener, hold->owners->pdata[k], false)) {
                return JUDGE_NEVER;
            }
        }
    }
    if (last != JUDGE_NEVER && hold->claim.handle) {
        last = hold->claim.handle->closed == JUDGE_NEVER ? JUDGE_NEVER : MAX(last, hold->claim.handle->closed);
    }
    return last;
}

void judge_hold_handle_closed(struct hold *hold, const struct handle *handle, int64_t when)
{
    for (guint i = 0; i < hold->owners->len; i++) {
        if (process_descends(handle->opener, hold->owners->pdata[i], false)) {
            hold->reason = when;
        }
    }
}

/* When it is over at the latest, as far as is known now. */
int64_t judge_hold_end_at_latest(const struct judge *judge, const struct hold *hold)
{
    int64_t over = hold->ended, limit = hold->ttl + judge->options.margin;
    int64_t away = judge->mounts[hold->claim.mount].since[JUDGE_AWAY];
    if (hold->timeless) {
        return over;
    }
    if (judge->options.remote && !judge->options.moves && away != JUDGE_NEVER) { /* else another server may serve it */
        over = MIN(over, MAX(away, hold->begun == JUDGE_NEVER ? judge->now : hold->begun) + limit);
    }
    int64_t dead = judge->mounts[hold->claim.mount].since[JUDGE_DEAD];
    if (judge->options.remote && hold->survivor && dead != JUDGE_NEVER) { /* nobody renews it */
        over = MIN(over, dead + limit);
    }
    if (hold->owners->len && !hold->fixed && hold->claim.kind != KIND_PROVISIONAL &&
        !mount_troubled(judge, hold->claim.mount)) {
        int64_t last = hold_last_reason(hold);
        over = last == JUDGE_NEVER ? over : MIN(over, MAX(last, judge->mounts[hold->claim.mount].renews) + limit);
    }
    return over;
}

bool judge_hold_possible(const struct judge *judge, const struct hold *hold, int64_t from)
{
    return judge_hold_end_at_latest(judge, hold) >= from;
}

/* One that is asked for is not held while something certainly is that it excludes. */
static bool hold_is_kept_out(const struct judge *judge, const struct hold *hold, int64_t from)
{
    for (guint i = 0; hold->begun == JUDGE_NEVER && i < hold->name->holds->len; i++) {
        const struct hold *other = hold->name->holds->pdata[i];
        if (other != hold && judge_hold_certain(judge, other, from) && judge_hold_excludes(other, &hold->claim, true) &&
            judge_hold_excludes(hold, &other->claim, true)) {
            return true;
        }
    }
    return false;
}

struct hold *name_only(const struct judge *judge, const struct name *name, int64_t from)
{
    struct hold *only = NULL;
    for (guint i = 0; i < name->holds->len; i++) {
        struct hold *hold = name->holds->pdata[i];
        if (judge_hold_possible(judge, hold, from) && !hold_is_kept_out(judge, hold, from)) {
            if (only) {
                return NULL;
            }
            only = hold;
        }
    }
    return only;
}

/* --- its end ----------------------------------------------------------------------------- */

static size_t hold_directory_length(const struct name *name)
{
    const char *slash = strrchr(name->path, '/');
    return slash ? (size_t)(slash - name->path) : 0;
}

/* In the directory of another? */
static bool hold_is_in(const struct name *name, const struct name *other)
{
    size_t length = hold_directory_length(name);
    return length == hold_directory_length(other) && strncmp(name->path, other->path, length) == 0;
}

/* Does the call hold the lock of the name's directory, so that the daemon cannot notify the kernel of an end there?  A
 * look-up meanwhile drops the entry, and then inotify does not report the end. */
static bool call_locks(const struct call *call, const struct name *name)
{
    size_t length = hold_directory_length(name);
    bool in = !call->handle && (hold_is_in(call->name, name) || (call->target && hold_is_in(call->target, name)));
    switch (call->call.operation) {
    case JUDGE_OPEN:
        return in && call->call.flags & JUDGE_CREATE;
    case JUDGE_SYMLINK:
    case JUDGE_LINK:
    case JUDGE_RENAME:
    case JUDGE_UNLINK:
    case JUDGE_MKDIR:
    case JUDGE_RMDIR:
        return in;
    case JUDGE_TIMES:
    case JUDGE_CHMOD:
    case JUDGE_SETXATTR:
        return strlen(call->name->path) == length && strncmp(call->name->path, name->path, length) == 0;
    default:
        return false;
    }
}

/* By another call than one that ends it. */
static bool hold_is_hidden(const struct judge *judge, const struct hold *hold)
{
    GHashTableIter calls;
    void *each;
    g_hash_table_iter_init(&calls, judge->calls);
    while (g_hash_table_iter_next(&calls, NULL, &each)) {
        const struct call *call = each;
        if (call->call.mount == hold->claim.mount && call_locks(call, hold->name) &&
            !g_ptr_array_find(call->ending, (void *)hold, NULL)) {
            return true;
        }
    }
    return false;
}

void judge_call_hides_ends(struct judge *judge, const struct call *call)
{
    GHashTableIter names;
    void *each;
    g_hash_table_iter_init(&names, judge->names);
    while (g_hash_table_iter_next(&names, NULL, &each)) {
        const struct name *name = each;
        for (guint i = 0; i < name->watches->len; i++) {
            struct watch *watch = name->watches->pdata[i];
            if (!watch->handle && watch->due != JUDGE_NEVER && watch->mount == call->call.mount &&
                call->call.when <= watch->ended + JUDGE_LEAVING && call_locks(call, name)) {
                watch->due = JUDGE_NEVER;
            }
        }
    }
}

void judge_hold_end(struct judge *judge, struct hold *hold, int64_t may_end, int64_t ended, bool released)
{
    struct name *name = hold->name;
    /* the guard of a broken lock runs on if the holder unlocks it or locks the file again */
    int64_t guard = hold->broken ? name_guard(judge, name) : 0;
    hold->may_end = MIN(hold->may_end, may_end);
    hold->ended = MIN(hold->ended, guard ? MAX(ended, judge->now + guard) : ended);
    hold->released = released;
    bool reported = hold->begun != JUDGE_NEVER && hold->ended != JUDGE_NEVER && !name->foreign && name->watches->len &&
                    !hold_is_hidden(judge, hold);
    for (guint i = 0; reported && i < name->watches->len; i++) {
        struct watch *watch = name->watches->pdata[i];
        if (!watch->handle && !hold->twin && watch->mount == hold->claim.mount && watch->since >= hold->begun &&
            name->holds->len == 1 && !name->handles->len) { /* what is open is deleted when it is closed */
            watch->due = MIN(watch->due, MAX(hold->ended, judge->now) + judge->options.settle);
            watch->ended = judge->now;
        }
    }
}

/* It was lost against its holder's will, which poll(2) must report. */
void judge_hold_expect_report(struct judge *judge, const struct hold *hold)
{
    for (guint i = 0; hold->begun != JUDGE_NEVER && i < hold->name->watches->len; i++) {
        struct watch *watch = hold->name->watches->pdata[i];
        if (watch->handle && watch->handle == hold->claim.handle && !hold->name->foreign) {
            watch->due = MIN(watch->due, judge->now + judge->options.settle);
        }
    }
}

/* --- lock-delay --------------------------------------------------------------------------- */

static bool name_is_delayed_by(const struct judge *judge, const struct name *name, int64_t delay, int64_t from,
                               const struct hold *claimed)
{
    bool delayed =
        name->last_ended >= 0 && (!name->last_released || name->last_broken) && name->last_ended + delay >= from;
    for (guint i = 0; delay && !delayed && i < name->holds->len; i++) {
        const struct hold *hold = name->holds->pdata[i];
        int64_t over = judge_hold_end_at_latest(judge, hold);
        delayed = over == JUDGE_NEVER ? hold != claimed && !judge_hold_certain(judge, hold, judge->now)
                                      : (!hold->released || hold->broken) && over + delay >= from;
    }
    return delay && delayed;
}

bool name_is_delayed(const struct judge *judge, const struct name *name, int64_t from)
{
    return name_is_delayed_for(judge, name, from, NULL);
}

bool name_is_delayed_for(const struct judge *judge, const struct name *name, int64_t from, const struct hold *claimed)
{
    return name_is_delayed_by(judge, name, judge_parent((struct judge *)judge, name)->delay, from, claimed);
}

bool queue_is_delayed(const struct judge *judge, const struct name *queue, int64_t from)
{
    return name_is_delayed_by(judge, queue, queue->delay, from, NULL);
}

void name_begin_delay(struct judge *judge, struct name *name, int64_t when)
{
    const struct name *parent = judge_parent(judge, name);
    if (parent->delay_since <= when && !name->foreign) {
        name->delayed_from = when;
        name->delayed_until = when + parent->delay_least - JUDGE_CLOCKS;
    }
}

static void hold_check_delay(struct judge *judge, const struct hold *hold)
{
    const struct name *name = hold->name;
    if (name->delayed_until < 0 || hold->converted ||
        (hold->may_begin < name->delayed_from && (hold->claim.shared || hold->claim.kind == KIND_RECORD))) {
        return;
    }
    bool calm = judge_calm(judge, MIN(judge_parent(judge, name)->delay_since, name->delayed_from)) && !name->foreign;
    if (judge_rule(judge, JUDGE_DELAY, calm && judge->now < name->delayed_until)) {
        judge_break(judge, JUDGE_DELAY, name, "process %u got it, which is refused until %.6f", hold->claim.process->id,
                    (double)name->delayed_until / JUDGE_SECOND);
    }
}

/* --- guards ------------------------------------------------------------------------------- */

int64_t name_guard(const struct judge *judge, const struct name *name)
{
    return name->guard ? name->guard + judge->options.settle + judge->options.margin : 0;
}

void name_begin_guard(struct judge *judge, const struct hold *hold, int64_t when)
{
    struct name *name = hold->name;
    int64_t term = MIN(hold->ttl ? hold->ttl : judge->options.ttl, judge->options.ttl);
    if (hold->guard && hold->claim.kind == KIND_FLOCK && !hold->claim.shared &&
        hold->claim.handle->closed == JUDGE_NEVER) {
        name->guarded = hold->claim.handle;
        name->guarded_from = when;
        name->guarded_until = when + MIN(hold->guard, term / 2) - JUDGE_CLOCKS; /* it was renewed lately */
    }
}

void name_end_guard(struct name *name, int64_t when)
{
    name->guarded_until = MIN(name->guarded_until, when);
}

static void hold_check_guard(struct judge *judge, const struct hold *hold)
{
    const struct name *name = hold->name;
    if (!name->guarded || hold->converted || hold->may_begin < name->guarded_from - judge->options.settle) {
        return;
    }
    bool calm = judge_calm(judge, name->guarded_from - judge->options.ttl) && !name->foreign;
    if (judge_rule(judge, JUDGE_GUARD, calm && judge->now < name->guarded_until)) {
        judge_break(judge, JUDGE_GUARD, name, "process %u got it, whose guard runs until %.6f", hold->claim.process->id,
                    (double)name->guarded_until / JUDGE_SECOND);
    }
}

/* Calls that are under way remember what stood in their way. */
static void hold_is_over(struct name *name, const struct hold *hold, int64_t over)
{
    for (guint i = 0; i < name->calls->len; i++) {
        struct call *call = name->calls->pdata[i];
        bool own = call->attempt == hold;
        if (!own && (!call->attempt || call->attempt->claim.kind == KIND_TICKET ||
                     judge_hold_excludes(hold, &call->attempt->claim, false))) {
            call->blocked = true;
            call->blocked_until = MAX(call->blocked_until, over);
        }
        call->changed = true;
    }
    if (hold->begun != JUDGE_NEVER && over >= name->last_ended) {
        name->last_ended = over;
        name->last_released = hold->released;
        name->last_broken = hold->broken;
    }
    if (hold->claim.kind == KIND_TICKET && hold->numbering_requested == name->numbering) {
        name->number = MAX(name->number, hold->token);
    }
}

bool judge_hold_is_requested(const struct hold *hold)
{
    for (guint i = 0; i < hold->name->calls->len; i++) {
        if (((const struct call *)hold->name->calls->pdata[i])->attempt == hold) {
            return true;
        }
    }
    return false;
}

/* A call under way asks for it, or a file is its ticket. */
static bool hold_needs_renewal(const struct hold *hold)
{
    return judge_hold_is_requested(hold) || (hold->claim.handle && hold->claim.handle->ticket == hold);
}

void name_prune(struct judge *judge, struct name *name)
{
    for (guint i = name->holds->len; i-- > 0;) {
        struct hold *hold = name->holds->pdata[i];
        /* what `judge_hold_end_at_latest` says of a mount that is away may be taken back when it joins */
        if (hold->ended < judge->now && !hold->pending && !hold_needs_renewal(hold)) {
            bool kept = judge->options.keeps && hold->claim.kind == KIND_LEASE && hold->begun != JUDGE_NEVER;
            hold_is_over(name, hold, hold->ended);
            g_ptr_array_steal_index(name->holds, i);
            if (kept) {
                g_ptr_array_add(judge->past, hold);
            } else {
                judge_hold_free(hold);
            }
        }
    }
}

/* Perhaps, while its owner lives or its term lasts, which begins again. */
static void hold_comes_back(const struct judge *judge, struct hold *hold)
{
    hold->uncertain = true;
    hold->token = 0;
    hold->mode = 0;
    g_clear_pointer(&hold->content, g_byte_array_unref);
    hold->deadline = hold->deadline ? MAX(hold->deadline, judge->now + hold->ttl) : 0;
    hold->ended = hold->deadline ? hold->deadline + judge->options.margin : JUDGE_NEVER;
}

static bool hold_may_come_back(const struct judge *judge, const struct hold *hold, uint32_t mount)
{
    return hold->claim.mount == mount && hold->begun >= judge->mounts[mount].emptied;
}

void judge_hold_comes_back(struct judge *judge, uint32_t mount, bool power)
{
    GHashTableIter iterator;
    void *value;
    int64_t last = -1;
    g_hash_table_iter_init(&iterator, judge->names);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        name_prune(judge, value);
    }
    for (guint i = 0; i < judge->past->len; i++) {
        const struct hold *hold = judge->past->pdata[i];
        last = !power && hold_may_come_back(judge, hold, mount) ? MAX(last, hold->may_end) : last;
    }
    for (guint i = judge->past->len; i-- > 0;) {
        struct hold *hold = judge->past->pdata[i];
        bool longer = !power || hold->ttl > judge->options.ttl; /* else see judge_has_forgot */
        if (longer && hold_may_come_back(judge, hold, mount) && hold->ended >= last) {
            g_ptr_array_steal_index(judge->past, i);
            hold_comes_back(judge, hold);
            g_ptr_array_add(hold->name->holds, hold);
        }
    }
}

/* --- owners ------------------------------------------------------------------------------ */

/* Is its owner final?  A daemon that has not run since the first second was over looks when it goes on or serves again:
 * who has ended meanwhile may have done so in time. */
static bool hold_is_settled(const struct judge *judge, const struct hold *hold, int64_t acquired)
{
    const struct mount *mount = &judge->mounts[hold->claim.mount];
    int64_t over = acquired + JUDGE_SECOND + judge->options.settle;
    return judge->now > over && MIN(mount->since[JUDGE_DEAD], mount->since[JUDGE_STOPPED]) > over;
}

void judge_hold_owner_died(struct judge *judge, struct hold *hold, struct process *process)
{
    int64_t settle = judge->options.settle, now = judge->now;
    bool ticket = hold->claim.kind == KIND_TICKET && hold->claim.handle; /* a lease as of its close */
    int64_t acquired = hold->begun == JUDGE_NEVER ? now : ticket ? hold->claim.handle->closed : hold->begun;
    bool certainly = hold->owner == process;
    if (!hold_owned_by(hold, process)) {
        return;
    }
    if (hold->owner == process) {
        hold->owner = NULL;
    }
    if (acquired != JUDGE_NEVER && !hold_is_settled(judge, hold, acquired)) {
        struct process *parent = process->parent;
        /* the chain of parents was, at the earliest */
        int64_t read = (ticket ? acquired : hold->may_begin) - JUDGE_FRESH;
        for (struct process *at = parent; at; at = at->parent) {
            if (at->died >= read && !hold_owned_by(hold, at)) { /* one that died since may have a file open */
                g_ptr_array_add(hold->owners, at);
            }
        }
        bool closed = !hold->unclosed && (!hold->claim.handle || hold->claim.handle->closed < now);
        if (certainly && now < hold->may_begin + JUDGE_SECOND && process->status == 0 && closed && parent &&
            parent->parent && process_lives(parent)) {
            hold->owner = parent;
            for (guint i = 0; i < hold->name->calls->len; i++) { /* perhaps it was looked at before */
                ((struct call *)hold->name->calls->pdata[i])->changed = true;
            }
        }
    }
    if (!hold->owner && !hold->fixed) {
        int64_t renewed = judge_hold_renewed(judge, hold, hold->ttl);
        hold->may_end = MIN(hold->may_end, MAX(now, renewed + hold->ttl - hold->ttl / 100 - 2 * JUDGE_MS - settle));
    }
}

/* --- rights ------------------------------------------------------------------------------ */

bool judge_hold_may_end(const struct judge *judge, const struct hold *hold, const struct process *process,
                        uint32_t mount)
{
    const struct claim *mine = &hold->claim;
    bool dead = true;
    if (mine->mount != mount) {
        return false;
    }
    const struct process *opener = mine->handle ? mine->handle->opener : mine->process; /* whose by its uid it is */
    if (judge->options.same_user && (mine->process->uid == process->uid || opener->uid == process->uid)) {
        return true;
    }
    if (hold->survivor && (mine->process->uid == process->uid || opener->uid == process->uid)) {
        return true; /* it may have had the file open when that was last looked at */
    }
    for (guint i = 0; i < hold->owners->len; i++) {
        const struct process *owner = hold->owners->pdata[i];
        dead = dead && !process_lives(owner);
        if (process_descends(process, owner, false)) {
            return true;
        }
    }
    if (hold->owners->len && (dead || !hold->owner) && mine->process->uid == process->uid) {
        return true;
    }
    if (!hold->owners->len && !process_lives(mine->process) &&
        (mine->process->uid == process->uid || (!process_lives(opener) && opener->uid == process->uid))) {
        return true;
    }
    return !hold->owners->len && (process_descends(process, mine->process, false) ||
                                  (mine->handle && (process_descends(process, mine->handle->opener, false) ||
                                                    g_hash_table_lookup(process->descriptors, mine->handle))));
}

bool judge_hold_must_end(const struct judge *judge, const struct hold *hold, const struct process *process,
                         uint32_t mount)
{
    const struct process *owner = hold->owners->len ? hold->owner : hold->claim.process;
    if (hold->survivor && (!owner || !judge_survivor_is_open(judge, hold, owner))) {
        return false;
    }
    return hold->claim.mount == mount && owner && process_lives(owner) && process_descends(process, owner, true);
}

/* --- fencing tokens ---------------------------------------------------------------------- */

static bool hold_excludes_all(const struct hold *hold)
{
    return !hold->claim.shared && hold->claim.kind != KIND_RECORD;
}

static void token_compare(struct judge *judge, const struct hold *hold, int64_t token, const struct grant *other)
{
    bool joined = judge->options.unfair && other->process == hold->claim.process; /* what its handle holds already */
    if (other->origin == hold->origin || joined) {
        return;
    }
    bool excludes = other->excludes || hold_excludes_all(hold);
    bool before = other->begun < (excludes ? hold->begun : hold->may_begin);
    bool after = hold->begun < (excludes ? other->begun : other->may_begin);
    if (judge_rule(judge, JUDGE_TOKEN_REUSED, other->token == token)) {
        judge_break(judge, JUDGE_TOKEN_REUSED, hold->name, "token %" G_GINT64_FORMAT " is that of two grants", token);
    } else if (judge_rule(judge, JUDGE_TOKEN_GROWS,
                          (before && token < other->token) || (after && token > other->token))) {
        judge_break(judge, JUDGE_TOKEN_GROWS, hold->name, "token %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT,
                    before ? token : other->token, before ? other->token : token);
    }
}

enum { GRANTS_KEPT = 32 };

void judge_hold_token(struct judge *judge, struct hold *hold, int64_t token)
{
    GArray *tokens = hold->name->tokens;
    bool record = hold->claim.kind == KIND_RECORD;
    if (hold->token || hold->begun == JUDGE_NEVER || hold->name->foreign ||
        (record && (hold->joined || hold->converted))) {
        if (judge_rule(judge, JUDGE_ATTRIBUTE, hold->token && hold->token != token && !record)) {
            judge_break(judge, JUDGE_ATTRIBUTE, hold->name,
                        "one grant has tokens %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT, hold->token, token);
        }
        return;
    }
    hold->token = token;
    for (guint i = 0; i < tokens->len; i++) {
        token_compare(judge, hold, token, &g_array_index(tokens, struct grant, i));
    }
    struct grant grant = {
        hold->serial, hold->origin, token, hold->may_begin, hold->begun, hold_excludes_all(hold), hold->claim.process};
    if (tokens->len == GRANTS_KEPT) { /* the largest of the old ones is kept */
        guint least = 0;
        for (guint i = 1; i < tokens->len; i++) {
            bool less = g_array_index(tokens, struct grant, i).token < g_array_index(tokens, struct grant, least).token;
            least = less ? i : least;
        }
        g_array_remove_index_fast(tokens, least);
    }
    g_array_append_val(tokens, grant);
}

/* --- beginning --------------------------------------------------------------------------- */

static enum judge_rule hold_rule(const struct hold *a, const struct hold *b)
{
    if (a->claim.kind == KIND_RECORD || b->claim.kind == KIND_RECORD) {
        return JUDGE_RANGE;
    }
    return a->claim.shared || b->claim.shared ? JUDGE_SHARED : JUDGE_EXCLUSIVE;
}

/* Has its handle, or its process by another one, something else that the claim waits for anyway? */
static bool hold_is_joined(const struct judge *judge, const struct hold *hold, const struct claim *claim)
{
    bool process = hold->claim.kind == KIND_RECORD && !hold->claim.ofd;
    for (guint i = 0; hold->claim.handle && i < hold->name->holds->len; i++) {
        const struct hold *other = hold->name->holds->pdata[i];
        bool of_process = process && other->claim.kind == KIND_RECORD && !other->claim.ofd &&
                          other->claim.process == hold->claim.process;
        bool beside = hold_is_beside(&other->claim, &hold->claim); /* by that file, too */
        if (other != hold && (of_process || beside || other->claim.handle == hold->claim.handle) &&
            judge_hold_possible(judge, other, judge->now) && judge_hold_excludes(other, claim, false)) {
            return true;
        }
    }
    return false;
}

/* Or released by its token, which anybody may have read. */
bool name_is_being_broken(const struct name *name)
{
    for (guint i = 0; i < name->calls->len; i++) {
        const struct judge_call *request = &((const struct call *)name->calls->pdata[i])->call;
        if (request->operation == JUDGE_SETXATTR &&
            (strcmp(request->target, "user.lease.break") == 0 || strcmp(request->target, "user.lease.release") == 0)) {
            return true;
        }
    }
    return false;
}

/* A descendant removes what it may of the name: perhaps what the waiter was just granted, and is not told of yet. */
static bool hold_is_being_removed(const struct name *name, const struct process *waiter)
{
    for (guint i = 0; i < name->calls->len; i++) {
        const struct call *call = name->calls->pdata[i];
        if (call->call.operation == JUDGE_UNLINK && process_descends(call->process, waiter, false)) {
            return true;
        }
    }
    return false;
}

/* Checks that the first of the waiters was granted first; see JUDGE_ORDER. */
static void hold_check_order(struct judge *judge, struct hold *hold)
{
    const struct name *name = hold->name;
    int64_t settle = judge->options.settle;
    if (judge->options.unfair || name->foreign) { /* what a failed disk has kept, its owner may lock by at once */
        return;
    }
    for (guint i = 0; i < name->calls->len; i++) {
        const struct call *other = name->calls->pdata[i];
        const struct hold *waiter = other->attempt;
        if (!other->waits || !waiter || waiter == hold || other->signalled != JUDGE_NEVER ||
            waiter->may_begin + 2 * settle >= hold->may_begin || !judge_calm(judge, waiter->may_begin)) {
            continue;
        }
        bool converts = other->ending->len > 0; /* what is broken then, so that it queues again */
        int64_t broken = judge->options.validity || converts ? name->broken : judge->options.remote ? name->missed : 0;
        if (broken >= waiter->may_begin) { /* perhaps when it was granted: then it queued again */
            continue;
        }
        if (hold_is_being_removed(name, waiter->claim.process)) {
            continue;
        }
        if (name_is_being_broken(name)) { /* perhaps what it got, which it is not told yet */
            continue;
        }
        if (hold->claim.kind == KIND_RECORD &&
            (judge->now - hold->may_begin <= settle || waiter->origin != waiter->serial)) {
            continue;
        }
        bool excludes = judge_hold_excludes(hold, &waiter->claim, true) && !hold->converted &&
                        !hold_is_joined(judge, hold, &waiter->claim);
        if (judge_rule(judge, JUDGE_ORDER, excludes)) {
            judge_break(judge, JUDGE_ORDER, name, "process %u got what process %u had asked for first",
                        hold->claim.process->id, waiter->claim.process->id);
        }
    }
}

/* Tickets: as many as the queue is wide. */
static void hold_check_width(struct judge *judge, struct hold *hold)
{
    const struct name *queue = hold->name;
    int64_t holding = 1, width = queue->width;
    bool exclusive = !hold->claim.shared;
    if (queue->width_changed >= hold->may_begin) {
        width = MAX(width, queue->width_before);
    }
    for (guint i = 0; i < queue->holds->len; i++) {
        const struct hold *other = queue->holds->pdata[i];
        if (other != hold && other->holding && judge_hold_certain(judge, other, judge->now)) {
            holding++;
            exclusive = exclusive || !other->claim.shared;
        }
    }
    if (judge_rule(judge, JUDGE_WIDTH, exclusive && holding > width && !queue->width_unknown)) {
        judge_break(judge, JUDGE_WIDTH, queue, "%" G_GINT64_FORMAT " hold of %" G_GINT64_FORMAT, holding, width);
    }
}

void judge_hold_begin(struct judge *judge, struct hold *hold, int64_t when)
{
    hold->numbering_granted = hold->begun == JUDGE_NEVER ? hold->name->numbering : hold->numbering_granted;
    hold->begun = when;
    hold->steady = when;
    if (hold->claim.handle && hold->claim.kind == KIND_LEASE) {
        hold->claim.handle->had = true;
    }
    if (hold->claim.kind == KIND_TICKET) {
        if (hold->holding) {
            hold_check_width(judge, hold);
        }
        return;
    }
    if (hold->claim.handle && hold->claim.kind != KIND_LEASE) { /* it starts afresh */
        hold->claim.handle->lost = JUDGE_NEVER;
        hold->claim.handle->given = when;
    }
    bool astray = hold->claim.handle && hold->claim.handle->astray;
    hold->uncertain = hold->uncertain || astray || when < hold->name->late_break;
    for (guint i = 0; i < hold->name->holds->len; i++) {
        const struct hold *other = hold->name->holds->pdata[i];
        bool taken = hold->may_end < when || hold->pending || hold->uncertain; /* perhaps, before its answer came */
        if (other == hold || taken || !judge_hold_certain(judge, other, when)) {
            continue;
        }
        bool excludes =
            judge_hold_excludes(other, &hold->claim, true) && judge_hold_excludes(hold, &other->claim, true);
        enum judge_rule rule = hold_rule(hold, other);
        if (judge_rule(judge, rule, excludes)) {
            judge_break(judge, rule, hold->name, "process %u holds it since %.6f, and process %u got it",
                        other->claim.process->id, (double)other->begun / JUDGE_SECOND, hold->claim.process->id);
        }
    }
    hold_check_order(judge, hold);
    hold_check_delay(judge, hold);
    hold_check_guard(judge, hold);
    hold->claim.creates = false;
    if (judge->mounts[hold->claim.mount].since[JUDGE_DEAD] != JUDGE_NEVER) {
        judge_hold_daemon_died(judge, hold);
    }
}

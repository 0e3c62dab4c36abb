/* judge_call: a call begins: what it may get, what it may end, for whom it waits.  See judge.h. */
#include <string.h>

#include "tests/sim/judge_private.h"

/* --- a call begins: what it may get ------------------------------------------------------ */

static bool name_is_sequence(const char *path)
{
    size_t length = strlen(path);
    return length && path[length - 1] == '-';
}

static struct claim call_claim(const struct call *call, enum kind kind)
{
    const struct judge_call *request = &call->call;
    bool record = request->operation == JUDGE_SETLK;
    return (struct claim){.kind = kind,
                          .shared = request->flags & JUDGE_SHARE,
                          .ofd = request->flags & JUDGE_OFD,
                          .creates = request->operation == JUDGE_SYMLINK || request->operation == JUDGE_LINK ||
                                     (request->operation == JUDGE_OPEN && request->flags & JUDGE_EXCL),
                          .start = record ? request->start : 0,
                          .end = record ? request->end : JUDGE_BYTES_MAX,
                          .handle = call->handle,
                          .process = call->process,
                          .mount = request->mount};
}

static void call_may_end(struct call *call, struct hold *hold)
{
    g_ptr_array_add(call->ending, hold);
    hold->pending++;
}

/* Whosever it is. */
static bool call_takes_away(const struct judge_call *request)
{
    return request->operation == JUDGE_SETXATTR &&
           (strcmp(request->target, "user.lease.break") == 0 || strcmp(request->target, "user.lease.release") == 0);
}

static bool call_is_own_record(const struct call *call, const struct hold *hold, bool ofd)
{
    const struct claim *mine = &hold->claim;
    return mine->kind == KIND_RECORD && mine->ofd == ofd && !hold->survivor && /* else no lock owner has it */
           (ofd ? mine->handle == call->handle : mine->process == call->process);
}

static void call_attempts(struct judge *judge, struct call *call, struct name *name, enum kind kind)
{
    struct claim claim = call_claim(call, kind);
    call->attempt = judge_hold_new(judge, name, &claim, call->call.when);
    for (guint i = 0; kind == KIND_RECORD && i < name->holds->len; i++) {
        struct hold *other = name->holds->pdata[i];
        if (other != call->attempt && call_is_own_record(call, other, claim.ofd)) {
            other->joined = call->attempt->joined = true;
        }
    }
}

/* The close that may acquire: explicit, by who opened it for writing and never asked for a lock. */
static bool call_close_acquires(const struct call *call)
{
    const struct handle *handle = call->handle;
    return handle->flags & JUDGE_WRITES && handle->opener == call->process && !handle->locked && !handle->refused &&
           !handle->ticket;
}

/* Has the process opened the name for writing, or not decided yet what that was for? */
static bool call_may_make_lease(const struct call *call)
{
    for (guint i = 0; i < call->name->handles->len; i++) {
        const struct handle *handle = call->name->handles->pdata[i];
        if (handle->flags & JUDGE_WRITES && handle->opener == call->process) {
            return true;
        }
    }
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        if (hold->claim.kind == KIND_PROVISIONAL && judge_hold_belongs_to(hold, call->process)) {
            return true;
        }
    }
    return false;
}

static void call_begin_attempt(struct judge *judge, struct call *call)
{
    const struct judge_call *request = &call->call;
    bool ticket = call->handle && call->handle->ticket;
    switch (request->operation) {
    case JUDGE_OPEN:
        if (request->flags & JUDGE_CREATE && name_is_sequence(request->name)) {
            call_attempts(judge, call, judge_parent(judge, call->name), KIND_TICKET);
        } else if (request->flags & JUDGE_EXCL && request->flags & JUDGE_CREATE) {
            call_attempts(judge, call, call->name, KIND_LEASE);
        } else if (request->flags & JUDGE_WRITES) {
            call_attempts(judge, call, call->name, KIND_PROVISIONAL);
        }
        break;
    case JUDGE_SYMLINK:
        if (name_is_sequence(request->name)) {
            call_attempts(judge, call, judge_parent(judge, call->name), KIND_TICKET); /* its name is not told */
            break;
        }
        call_attempts(judge, call, call->name, KIND_LEASE);
        break;
    case JUDGE_LINK:
    case JUDGE_RENAME:
        call_attempts(judge, call, call->target, KIND_LEASE);
        break;
    case JUDGE_WRITE:
    case JUDGE_TIMES:
        if (!ticket && ((call->handle && call->handle->flags & JUDGE_WRITES) || call_may_make_lease(call))) {
            call_attempts(judge, call, call->name, KIND_LEASE);
        }
        break;
    case JUDGE_TRUNCATE:
        if (call->handle && !ticket && request->start > 0 && call->handle->flags & JUDGE_WRITES) {
            call_attempts(judge, call, call->name, KIND_LEASE);
        }
        break;
    case JUDGE_CLOSE:
        if (call_close_acquires(call)) {
            call_attempts(judge, call, call->name, KIND_LEASE);
        }
        break;
    case JUDGE_FLOCK:
        if (!ticket) {
            call_attempts(judge, call, call->name, KIND_FLOCK);
        }
        break;
    case JUDGE_SETLK:
        if (!ticket) {
            call_attempts(judge, call, call->name, KIND_RECORD);
        }
        break;
    default:
        break;
    }
}

/* --- a call begins: what it may end ------------------------------------------------------ */

/* What of a record lock lies outside of the call's bytes is a hold of its own from now on. */
static void call_split(struct judge *judge, const struct call *call, struct hold *hold)
{
    int64_t start = call->call.start, end = call->call.end;
    for (int after = 0; after < 2; after++) {
        if (after ? hold->claim.end > end : hold->claim.start < start) {
            struct hold *rest = judge_hold_new(judge, hold->name, &hold->claim, hold->may_begin);
            *(after ? &rest->claim.start : &rest->claim.end) = after ? end + 1 : start - 1;
            rest->begun = hold->begun;
            rest->may_end = hold->may_end;
            rest->ended = hold->ended;
            rest->released = hold->released;
            rest->broken = hold->broken;
            rest->converted = hold->converted;
            rest->steady = hold->steady;
            rest->renewed = hold->renewed;
            rest->uncertain = hold->uncertain;
            rest->timeless = hold->timeless;
            rest->origin = hold->origin;
            rest->survivor = hold->survivor;
            rest->life = hold->life;
            rest->joined = hold->joined = true;
            for (guint i = 0; i < hold->name->calls->len; i++) { /* what is ending it ends all of it */
                struct call *other = hold->name->calls->pdata[i];
                if (other != call && g_ptr_array_find(other->ending, hold, NULL)) {
                    call_may_end(other, rest);
                }
            }
            *(after ? &hold->claim.end : &hold->claim.start) = after ? end : start;
        }
    }
}

/* Does a lock that the call takes turn the hold into another? */
static bool call_converts(const struct call *call, const struct hold *hold)
{
    if (hold->claim.kind != KIND_LEASE && hold->claim.kind != KIND_PROVISIONAL) {
        return false;
    }
    if (hold->claim.handle == call->handle) {
        return true;
    }
    for (guint i = 0; i < hold->owners->len; i++) {
        if (hold->owners->pdata[i] == call->handle->opener) {
            return true;
        }
    }
    return false;
}

static bool call_ends(const struct judge *judge, struct call *call, const struct hold *hold)
{
    const struct judge_call *request = &call->call;
    bool meets = hold->claim.start <= request->end && request->start <= hold->claim.end;
    switch (request->operation) {
    case JUDGE_UNLINK:
        return judge_hold_may_end(judge, hold, call->process, request->mount);
    case JUDGE_RENAME:
        return judge_hold_may_end(judge, hold, call->process, request->mount);
    case JUDGE_FLOCK:
        return (hold->claim.kind == KIND_FLOCK && hold->claim.handle == call->handle) || call_converts(call, hold);
    case JUDGE_FUNLOCK:
        return hold->claim.kind == KIND_FLOCK && hold->claim.handle == call->handle;
    case JUDGE_SETLK:
        return (meets && call_is_own_record(call, hold, request->flags & JUDGE_OFD)) || call_converts(call, hold);
    case JUDGE_UNLCK:
        return meets && call_is_own_record(call, hold, request->flags & JUDGE_OFD);
    case JUDGE_CLOSE:
        return call_is_own_record(call, hold, false);
    case JUDGE_SETXATTR:
        return call_takes_away(request);
    default:
        return false;
    }
}

void judge_hold_meets_takers(const struct judge *judge, struct hold *hold)
{
    for (guint i = 0; i < hold->name->calls->len; i++) {
        struct call *other = hold->name->calls->pdata[i];
        enum judge_operation operation = other->call.operation;
        bool takes = operation == JUDGE_UNLINK || operation == JUDGE_RENAME || operation == JUDGE_SETXATTR ||
                     operation == JUDGE_FLOCK || operation == JUDGE_FUNLOCK;
        if (other->attempt != hold && takes && !g_ptr_array_find(other->ending, hold, NULL) &&
            call_ends(judge, other, hold)) {
            call_may_end(other, hold);
        }
    }
}

static void call_begin_ending(struct judge *judge, struct call *call, struct name *name)
{
    bool splits = call->call.operation == JUDGE_SETLK || call->call.operation == JUDGE_UNLCK;
    for (guint i = 0, n = name->holds->len; i < n; i++) {
        struct hold *hold = name->holds->pdata[i];
        if (hold != call->attempt && call_ends(judge, call, hold)) {
            if (splits && hold->claim.kind == KIND_RECORD) {
                call_split(judge, call, hold);
            }
            call_may_end(call, hold);
        }
    }
}

struct hold *name_ticket(struct judge *judge, const struct name *name)
{
    const struct name *queue = judge_parent(judge, name);
    size_t length = strlen(name->path);
    int64_t number = length > 10 ? g_ascii_strtoll(name->path + length - 10, NULL, 10) + 1 : 0;
    for (guint i = 0; number && i < queue->holds->len; i++) {
        struct hold *hold = queue->holds->pdata[i];
        if (hold->claim.kind == KIND_TICKET && hold->token == number) {
            return hold;
        }
    }
    return NULL;
}

/* --- deadlocks --------------------------------------------------------------------------- */

/* Is the hold its caller's?  Of an open file description lock, perhaps: any process may have that file.  Of a lease
 * that it has inherited, too. */
static bool wait_is_for_own(const struct call *call, const struct hold *hold, bool surely)
{
    return hold->claim.process == call->process ||
           (!surely &&
            ((hold->claim.handle && hold->claim.handle == call->handle) || judge_hold_belongs_to(hold, call->process)));
}

bool waits_lead(struct judge *judge, const struct call *call, const struct call *first, bool surely, GPtrArray *cycle,
                unsigned depth)
{
    for (guint i = 0; depth && call->attempt && i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        bool counts = hold != call->attempt && judge_hold_excludes(hold, &call->attempt->claim, surely) &&
                      (!surely || (judge_hold_certain(judge, hold, judge->now) && hold->claim.kind == KIND_RECORD &&
                                   !hold->claim.ofd && hold->claim.mount == call->call.mount));
        if (counts && wait_is_for_own(first, hold, surely)) {
            return true;
        }
        for (guint k = 0; counts && k < judge->waits->len; k++) {
            struct call *other = judge->waits->pdata[k];
            bool fresh = surely && (other->call.when + 2 * judge->options.settle > judge->now ||
                                    other->signalled != JUDGE_NEVER || other->call.flags & JUDGE_OFD ||
                                    other->call.operation != JUDGE_SETLK);
            if (other == call || !wait_is_for_own(other, hold, surely) || fresh ||
                !waits_lead(judge, other, first, surely, cycle, depth - 1)) {
                continue;
            }
            if (cycle) {
                g_ptr_array_add(cycle, other);
            }
            return true;
        }
    }
    return false;
}

/* Does one wait for what the other has by the file, or as the lock owner, by which that waits? */
static bool wait_is_for(const struct judge *judge, const struct call *waiter, const struct call *holder)
{
    bool waits = false;
    for (guint i = 0; i < holder->name->holds->len; i++) {
        const struct hold *hold = holder->name->holds->pdata[i];
        bool flock = hold->claim.kind == KIND_FLOCK && hold->claim.handle == holder->handle;
        bool record = hold->claim.kind == KIND_RECORD && !hold->claim.ofd && hold->claim.process == holder->process &&
                      hold->claim.mount == holder->call.mount && holder->attempt->claim.kind == KIND_RECORD &&
                      !holder->attempt->claim.ofd;
        bool certain = hold->begun <= holder->call.when && hold->steady <= holder->call.when && !hold->uncertain &&
                       hold->pending <= 1 && judge->now < MIN(hold->may_end, judge_hold_assured(judge, hold));
        waits = waits || ((flock || record) && hold != holder->attempt && certain &&
                          judge_hold_excludes(hold, &waiter->attempt->claim, true)); /* pending: its conversion */
    }
    return waits;
}

/* Of two that share, and wait to become exclusive, the second is refused, whichever mounts they are on. */
static void call_meets_rival(const struct judge *judge, struct call *call)
{
    for (guint i = 0; call->attempt && i < judge->waits->len; i++) {
        struct call *other = judge->waits->pdata[i];
        bool settled = other->call.when + 2 * judge->options.settle < judge->now && other->signalled == JUDGE_NEVER;
        if (other != call && other->name == call->name && other->attempt && settled &&
            mount_calm(judge, other->call.mount, other->call.when) && wait_is_for(judge, other, call) &&
            wait_is_for(judge, call, other)) {
            g_ptr_array_add(call->cycle, other);
        }
    }
}

static void call_begin_wait(struct judge *judge, struct call *call)
{
    g_ptr_array_add(judge->waits, call);
    call_meets_rival(judge, call);
    if (call->cycle->len > 0) {
        return;
    }
    if (call->call.operation == JUDGE_SETLK && !(call->call.flags & JUDGE_OFD) && !call->handle->ticket &&
        mount_calm(judge, call->call.mount, call->call.when) &&
        !waits_lead(judge, call, call, true, call->cycle, CYCLE_MAX)) {
        g_ptr_array_set_size(call->cycle, 0);
    }
}

void wait_ended(struct judge *judge, struct call *call)
{
    g_ptr_array_remove(judge->waits, call);
    for (guint i = 0; i < judge->waits->len; i++) {
        struct call *other = judge->waits->pdata[i];
        if (judge->now <= other->call.when + 2 * judge->options.settle && g_ptr_array_find(other->cycle, call, NULL)) {
            g_ptr_array_set_size(other->cycle, 0);
        }
    }
}

/* --- a call begins ----------------------------------------------------------------------- */

/* It may set a guard, or end one. */
static void call_begin_guard(struct call *call)
{
    const struct judge_call *request = &call->call;
    struct name *name = call->name;
    bool sets = request->operation == JUDGE_SETXATTR && strcmp(request->target, "user.lease.guard") == 0;
    int64_t guard = sets ? judge_duration(request->value, request->size) : 0;
    name->guard = guard <= 60 * JUDGE_SECOND ? MAX(name->guard, guard) : name->guard;
    for (guint i = 0; sets && i < name->holds->len; i++) {
        ((struct hold *)name->holds->pdata[i])->guard = 0;
    }
    if (request->operation == JUDGE_CLOSE ? call->handle == name->guarded : call_takes_away(request)) {
        name_end_guard(name, request->when);
    }
}

void judge_call(struct judge *judge, const struct judge_call *request)
{
    struct process *process = judge_process(judge, request->process);
    struct handle *handle = request->handle ? judge_handle(judge, request->handle) : NULL;
    judge->now = request->when;
    judge_rule(judge, JUDGE_SIMULATOR, false);
    if (!process || !process_lives(process) || (request->handle && !handle) || (!handle && !request->name) ||
        request->mount >= JUDGE_MOUNTS || g_hash_table_contains(judge->calls, &request->id)) {
        judge_break(judge, JUDGE_SIMULATOR, NULL, "call %" G_GUINT64_FORMAT " cannot be", request->id);
        return;
    }
    struct call *call = g_new0(struct call, 1);
    call->call = *request;
    call->call.name = g_strdup(handle ? handle->name->path : request->name);
    call->call.target = g_strdup(request->target);
    call->call.value = g_memdup2(request->value, request->size);
    call->process = process;
    call->handle = handle;
    call->name = handle ? handle->name : judge_name(judge, request->name);
    bool two = request->operation == JUDGE_LINK || request->operation == JUDGE_RENAME;
    call->target = two ? judge_name(judge, request->target) : NULL;
    call->ending = g_ptr_array_new();
    call->cycle = g_ptr_array_new();
    call->signalled = JUDGE_NEVER;
    call->blocked_until = -1;
    g_hash_table_insert(judge->calls, &call->call.id, call);
    name_prune(judge, call->name);
    g_ptr_array_add(call->name->calls, call);
    if (call->target && call->target != call->name) {
        name_prune(judge, call->target);
        g_ptr_array_add(call->target->calls, call);
    }
    judge_call_hides_ends(judge, call);
    call->file = call->name->file[request->mount];
    call->locked_before = handle && handle->locked;
    bool locks =
        request->operation == JUDGE_FLOCK || request->operation == JUDGE_SETLK || request->operation == JUDGE_GETLK;
    if (handle && (locks || request->operation == JUDGE_FUNLOCK || request->operation == JUDGE_UNLCK)) {
        handle->locked = true;
        handle->lost = handle->released = JUDGE_NEVER; /* it starts afresh */
    }
    if (request->operation == JUDGE_MKDIR) {
        call->name->directory = true; /* from now on it may be one */
    }
    if (request->operation == JUDGE_SETLK && !(request->flags & JUDGE_OFD)) {
        g_ptr_array_add(handle->recorded, process);
    }
    call->waits = locks && request->operation != JUDGE_GETLK && !(request->flags & JUDGE_TRY);
    call_begin_attempt(judge, call);
    if (call->attempt) {
        judge_hold_meets_takers(judge, call->attempt);
        call->renews = call_renews(judge, call);
    }
    bool turn = request->operation == JUDGE_FLOCK || request->operation == JUDGE_SETLK;
    if (handle && handle->ticket && turn && request->flags & JUDGE_SHARE) {
        handle->ticket->claim.shared = true; /* from now on others may join */
    } else if (handle && handle->ticket && (request->operation == JUDGE_FUNLOCK || call_takes_away(request))) {
        handle->ticket->holding = false;
        handle->ticket->may_end = MIN(handle->ticket->may_end, request->when);
    }
    struct hold *ticket = handle ? NULL : name_ticket(judge, call->name);
    if (ticket && call_ends(judge, call, ticket)) {
        call_may_end(call, ticket);
    }
    call_begin_ending(judge, call, call->name);
    if (request->operation == JUDGE_RENAME && call->target != call->name) {
        call_begin_ending(judge, call, call->target);
    }
    if (request->operation == JUDGE_SETXATTR && call->name->directory &&
        strcmp(request->target, "user.lease.width") == 0) {
        call->name->width_unknown = true;
    }
    if (request->operation == JUDGE_SETXATTR && call->name->directory &&
        strcmp(request->target, "user.lease.delay") == 0) {
        call->name->delay_least = MIN(call->name->delay_least, judge_duration(request->value, request->size));
        call->name->delay_since = JUDGE_NEVER;
    }
    for (guint i = 0; i < call->name->holds->len; i++) {
        struct hold *hold = call->name->holds->pdata[i];
        if (request->operation == JUDGE_OPEN && request->flags & JUDGE_TRUNC &&
            hold->content) { /* its owner's, perhaps */
            g_byte_array_unref(g_steal_pointer(&hold->content));
        }
        hold->writing += request->operation == JUDGE_WRITE || request->operation == JUDGE_TRUNCATE;
        hold->mode = request->operation == JUDGE_CHMOD ? 0 : hold->mode;
        bool fixes = request->operation == JUDGE_SETXATTR && strcmp(request->target, "user.lease.ttl") == 0;
        if (fixes) {
            hold->pending++;
            g_ptr_array_add(call->ending, hold);
        }
    }
    call_begin_guard(call);
    if (call->waits) {
        call_begin_wait(judge, call);
    }
}

void judge_signal(struct judge *judge, int64_t when, uint64_t id)
{
    struct call *call = g_hash_table_lookup(judge->calls, &id);
    judge->now = when;
    if (call) {
        call->signalled = MIN(call->signalled, when);
    } else {
        judge_break(judge, JUDGE_SIMULATOR, NULL, "a signal for call %" G_GUINT64_FORMAT ", which is not on", id);
    }
}

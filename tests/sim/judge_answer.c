/* judge_answer: a call is answered: what it ended, what it got, and whether it may.  See judge.h. */
#include <errno.h>
#include <string.h>

#include "tests/sim/judge_private.h"

/* --- it is answered: what it ended ------------------------------------------------------- */

enum outcome { DONE, REFUSED, UNKNOWN };

static enum outcome call_outcome(int error)
{
    return error == 0 ? DONE
           : error == -1 || error == ECONNABORTED || error == EINTR || error == ENOLCK || error == EIO ||
                   error == ENOSPC
               ? UNKNOWN
               : REFUSED; /* ENOTCONN, too: nobody was there to be asked */
}

int64_t judge_duration(const char *text, size_t size)
{
    g_autofree char *copy = g_strndup(text ? text : "", size);
    char *unit;
    double value = g_ascii_strtod(copy, &unit);
    double scale = strcmp(unit, "ms") == 0 ? 1e6 : *unit == 'm' ? 60e9 : *unit == 'h' ? 3600e9 : 1e9;
    return (int64_t)(value * scale);
}

/* Was it given something else since? */
static bool call_got_another(const struct handle *handle, int64_t since)
{
    for (guint i = 0; i < handle->name->holds->len; i++) {
        const struct hold *hold = handle->name->holds->pdata[i];
        if (hold->claim.handle == handle && hold->begun != JUDGE_NEVER && hold->begun >= since) {
            return true;
        }
    }
    return false;
}

/* The handle that had it does not take it again by being closed. */
static void call_spends(const struct hold *hold, enum judge_operation operation)
{
    GPtrArray *handles = hold->name->handles;
    bool takes = operation == JUDGE_UNLINK || operation == JUDGE_SETXATTR || operation == JUDGE_RENAME;
    for (guint i = 0; takes && i < handles->len; i++) {
        struct handle *handle = handles->pdata[i];
        handle->spent = handle->spent || handle == hold->claim.handle || judge_hold_belongs_to(hold, handle->opener);
    }
}

static void call_ended(struct judge *judge, struct call *call, enum outcome outcome, int error)
{
    const struct judge_call *request = &call->call;
    bool converts = request->operation == JUDGE_FLOCK || request->operation == JUDGE_SETLK;
    bool term = request->operation == JUDGE_SETXATTR && strcmp(request->target, "user.lease.ttl") == 0;
    bool breaks = request->operation == JUDGE_SETXATTR && strcmp(request->target, "user.lease.break") == 0;
    bool releases = request->operation == JUDGE_SETXATTR && strcmp(request->target, "user.lease.release") == 0;
    /* A conversion that is refused or interrupted leaves the lock as it was. */
    bool kept = converts && error == EINTR && mount_calm(judge, request->mount, request->when);
    guint targets = 0;
    if ((breaks || releases) && outcome == UNKNOWN && judge->options.remote) {
        /* its request waits for the server, 5 s; a release meets what the lock is converted to meanwhile, too */
        call->name->late_break = judge->now + 6 * JUDGE_SECOND;
    }
    for (guint i = 0; i < call->ending->len; i++) {
        const struct hold *hold = call->ending->pdata[i];
        targets += hold->name == call->name && hold->may_begin < request->when;
    }
    for (guint i = 0; i < call->ending->len; i++) {
        struct hold *hold = call->ending->pdata[i];
        bool certainly = converts || request->operation == JUDGE_FUNLOCK || request->operation == JUDGE_UNLCK ||
                         request->operation == JUDGE_CLOSE || targets == 1 || hold->name != call->name || breaks;
        certainly = certainly && hold->may_begin < request->when;
        if (term || (converts && outcome == REFUSED && hold->may_begin >= request->when)) {
            continue;
        }
        hold->broken = hold->broken || (breaks && outcome != REFUSED); /* perhaps, and then by that its delay begins */
        if (breaks && outcome != REFUSED && hold->may_end < judge->now) {
            hold->name->missed = judge->now;
        }
        if (breaks && (hold->begun == JUDGE_NEVER || hold->begun > request->when)) {
            if (outcome == DONE) {
                call_spends(hold, request->operation);
            }
            continue;
        }
        for (guint k = 0;
             request->operation == JUDGE_RENAME && hold->name == call->name && k < hold->name->watches->len;
             k++) { /* inotify watches the file, which has another name now */
            ((struct watch *)hold->name->watches->pdata[k])->since = -1;
        }
        if (outcome != REFUSED && (breaks || releases) && hold->claim.mount != request->mount) {
            hold->name->elsewhere[hold->claim.mount] = judge->now;
        }
        if (outcome == DONE && breaks) {
            judge_hold_expect_report(judge, hold);
            hold->broken = true;
            hold->name->broken = judge->now;
            bool decided = !hold->closed || hold->begun + judge->options.settle < request->when;
            if (hold->may_end >= judge->now && hold->ended >= judge->now && !hold->uncertain && !hold->pending &&
                decided && (hold->claim.kind == KIND_LEASE || hold->claim.kind == KIND_FLOCK)) {
                name_begin_delay(judge, hold->name, request->when);
                if (targets == 1) {
                    name_begin_guard(judge, hold, request->when);
                }
                if (hold->claim.handle && !call_got_another(hold->claim.handle, request->when)) {
                    /* other mounts get the event a moment later or, on redlock, notice it when they renew */
                    const struct judge_options *o = &judge->options;
                    bool late = o->unfair && judge->mounts[hold->claim.mount].since[JUDGE_LATE] != JUDGE_NEVER;
                    hold->claim.handle->lost = judge->now + (!o->remote ? 0 : late ? o->ttl + o->margin : o->settle);
                }
            }
        }
        if (outcome == DONE && (converts || request->operation == JUDGE_FUNLOCK) &&
            (hold->may_begin >= request->when || judge_hold_is_requested(hold))) {
            hold->may_end = MIN(hold->may_end, request->when); /* two locked one file: which came first? */
        } else if (outcome == DONE && converts && call->attempt) {
            bool whole = hold->may_end >= request->when || call->attempt->origin == call->attempt->serial;
            call->attempt->origin = hold->begun == JUDGE_NEVER || !whole ? call->attempt->origin : hold->origin;
            call->attempt->converted = true;
            /* of what was asked for in vain, or is being taken by another call, the end is written, but not waited for
             */
            bool waited = hold->begun != JUDGE_NEVER && !hold->pending;
            int64_t written = !waited && judge->options.keeps ? judge->options.settle : 0;
            judge_hold_end(judge, hold, request->when, judge->now + written, true);
        } else if (outcome == DONE || (request->operation == JUDGE_CLOSE && outcome == REFUSED && !call->daemon_gone)) {
            bool once = mount_calm(judge, request->mount, request->when); /* else it may be asked for twice */
            bool here =
                !judge->options.validity || hold->claim.mount == request->mount; /* else only that it has gone */
            if (releases && once && here && !hold->name->guard && certainly && hold->claim.handle &&
                name_only(judge, call->name, request->when) == hold) {
                hold->claim.handle->released = judge->now;
            }
            int64_t guard = breaks || releases ? name_guard(judge, hold->name) : 0;
            /* a master that another replaces takes it along, and its holder, who has not heard of it, restores the lock
             */
            bool undone = (breaks || releases) && judge->options.moves && !once && hold->claim.mount != request->mount;
            judge_hold_end(judge, hold, request->when, certainly && !undone ? judge->now + guard : JUDGE_NEVER, true);
            call_spends(hold, request->operation);
        } else if (outcome == UNKNOWN && !kept) {
            hold->may_end = MIN(hold->may_end, request->when);
            /* perhaps: a close that is interrupted does */
            hold->released = hold->released || converts || request->operation == JUDGE_CLOSE;
        }
    }
    g_ptr_array_set_size(call->ending, 0);
    bool takes = breaks || request->operation == JUDGE_UNLINK;
    for (guint i = 0; takes && outcome != REFUSED && i < call->name->holds->len; i++) {
        struct hold *hold = call->name->holds->pdata[i];
        if (breaks || judge_hold_may_end(judge, hold, call->process, request->mount)) {
            hold->may_end = MIN(hold->may_end, request->when); /* what was got meanwhile may have been taken, or not */
        }
    }
}

/* --- it is answered: what it got --------------------------------------------------------- */

struct hold *call_renews(const struct judge *judge, const struct call *call)
{
    struct hold *perhaps = NULL;
    for (guint i = 0; i < call->name->holds->len; i++) {
        struct hold *hold = call->name->holds->pdata[i];
        bool got = hold->begun != JUDGE_NEVER || hold->claim.kind == KIND_LEASE; /* or perhaps */
        if (hold != call->attempt && got && judge_hold_possible(judge, hold, call->call.when) &&
            (!judge_hold_excludes(hold, &call->attempt->claim, true) || judge_hold_belongs_to(hold, call->process))) {
            if (hold->begun != JUDGE_NEVER) {
                return hold;
            }
            perhaps = hold;
        }
    }
    return perhaps;
}

static void call_write(struct call *call, struct hold *hold)
{
    const struct judge_call *request = &call->call;
    if (hold->content && request->start >= 0 && request->start + (int64_t)request->size <= JUDGE_CONTENT_MAX) {
        guint end = (guint)request->start + (guint)request->size, had = hold->content->len;
        if (end > had) {
            g_byte_array_set_size(hold->content, end);
            memset(hold->content->data + had, 0, end - had);
        }
        memcpy(hold->content->data + request->start, request->value, request->size);
    } else if (hold->content) {
        g_byte_array_unref(g_steal_pointer(&hold->content));
    }
}

/* Is it of the call's file, or of its process? */
static bool call_is_of_holder(const struct call *call, const struct hold *hold)
{
    const struct process *opener = call->handle ? call->handle->opener : NULL;
    return (call->handle && hold->claim.handle == call->handle) || judge_hold_belongs_to(hold, call->process) ||
           (opener && judge_hold_belongs_to(hold, opener));
}

/* Of a handle's lock: nothing, or what its process has in the record locks that it is one with; NULL: not known. */
static GByteArray *call_first_content(const struct judge *judge, const struct call *call)
{
    const struct hold *hold = call->attempt;
    GByteArray *content = g_byte_array_new();
    bool known = hold->origin == hold->serial && !hold->converted && !hold->claim.shared, has = false;
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *other = call->name->holds->pdata[i];
        bool joins = hold->claim.kind == KIND_RECORD && other->claim.kind == KIND_RECORD;
        bool turns = other->claim.kind != KIND_RECORD && other->claim.kind != KIND_FLOCK;
        if (other == hold || !(joins || turns) || !call_is_of_holder(call, other) ||
            !judge_hold_possible(judge, other, call->call.when)) {
            continue;
        }
        known = known && !has && other->content && !other->writing && judge_hold_shown(judge, other, call->call.when);
        has = true;
        if (known) {
            g_byte_array_append(content, other->content->data, other->content->len);
        }
    }
    if (!known) {
        g_byte_array_unref(g_steal_pointer(&content));
    }
    return content;
}

/* A provisional hold of the handle is decided. */
static void call_decides(struct judge *judge, struct call *call)
{
    for (guint i = 0; call->handle && i < call->name->holds->len; i++) {
        struct hold *hold = call->name->holds->pdata[i];
        if (hold->claim.kind == KIND_PROVISIONAL && hold->claim.handle == call->handle) {
            judge_hold_end(judge, hold, judge->now, judge->now, true);
            call->attempt->uncertain =
                call->attempt->uncertain || (call->call.operation == JUDGE_CLOSE && hold->uncertain);
        }
    }
}

/* The kernel does not tell through which of its files a process sets times, and one acquires nothing. */
static bool call_is_by_another(const struct call *call)
{
    bool other = false;
    for (guint i = 0; call->call.operation == JUDGE_TIMES && i < call->name->handles->len; i++) {
        const struct handle *handle = call->name->handles->pdata[i];
        other = other || (handle->opener == call->process && (handle->locked || handle->spent));
    }
    return other;
}

/* A file with the lock has the name, too. */
static void call_gets_name(const struct judge *judge, const struct call *call)
{
    struct name *name = call->attempt->name;
    const struct claim *claim = &call->attempt->claim;
    bool sole = (!claim->shared && claim->kind != KIND_RECORD) || name_only(judge, name, call->call.when);
    if (call->handle) {
        call->handle->found = false;
    }
    if (call->handle && sole) {
        name->file[call->call.mount] = call->handle->file;
    }
}

static void call_got(struct judge *judge, struct call *call, const struct judge_answer *answer)
{
    struct hold *hold = call->attempt, *own;
    enum judge_operation operation = call->call.operation;
    int64_t settle = judge->options.settle;
    switch (operation) {
    case JUDGE_OPEN:
        if (hold->claim.kind == KIND_PROVISIONAL) {
            hold->ended = answer->when + JUDGE_PROVISIONAL + settle;
            return;
        }
        if (hold->claim.kind == KIND_LEASE) {
            hold->content = g_byte_array_new();
            hold->mode = call->call.mode & ~(mode_t)JUDGE_UMASK;
        }
        break;
    case JUDGE_SYMLINK:
        hold->content = g_byte_array_append(g_byte_array_new(), call->call.value, (guint)call->call.size);
        break;
    case JUDGE_RENAME:
        hold->moved = true;
        hold->converted = true;
        hold->owner = call->owned ? hold->owner : NULL;
        hold->may_end = call->owned ? hold->may_end : answer->when; /* else it stays its ancestor's */
        if (call->name->broken >= call->call.when) { /* perhaps behind the move: by who had found it before */
            hold->may_end = answer->when;
            hold->broken = true;
        }
        for (guint i = 0; i < call->name->calls->len; i++) { /* one that has found it before may break it yet */
            const struct call *other = call->name->calls->pdata[i];
            hold->may_end = other->call.operation == JUDGE_SETXATTR ? answer->when : hold->may_end;
        }
        break;
    case JUDGE_WRITE:
    case JUDGE_TIMES:
    case JUDGE_CLOSE:
        own = call_renews(judge, call);
        if (own && judge_hold_shown(judge, own, call->call.when)) {
            hold->ended = answer->when;
            call_decides(judge, call);
            return;
        }
        if (own || judge_call_is_late(judge, call, call->name) || !call->handle || call_is_by_another(call) ||
            call->handle->spent || call->handle->had || call->handle->locked || call->handle->too_large ||
            call->handle->opener != call->process) {
            hold->may_end = answer->when; /* perhaps it has only renewed another */
            hold->begun = answer->when;
            hold->origin = own ? own->origin : hold->origin;
            call_decides(judge, call);
            return;
        }
        if (operation == JUDGE_CLOSE && call->handle->descriptors) {
            return; /* a lease once the last descriptor is closed, if that is soon */
        }
        hold->content = operation == JUDGE_WRITE ? g_byte_array_new() : NULL;
        break;
    case JUDGE_TRUNCATE: /* perhaps it has taken the lock, perhaps not */
        hold->begun = hold->may_end = answer->when;
        own = call_renews(judge, call);
        hold->origin = own ? own->origin : hold->origin;
        return;
    case JUDGE_FLOCK:
        hold->content = call_first_content(judge, call);
        if (call->handle->flocked_by &&
            call->handle->flocked >= call->call.when) { /* two at once through one file: either may be the last */
            g_ptr_array_add(hold->owners, call->handle->flocked_by);
            hold->uncertain = true;
        }
        call->handle->flocked = answer->when;
        call->handle->flocked_by = call->process;
        for (guint i = 0; i < call->name->tokens->len; i++) { /* an heir has made its own what another process took */
            struct grant *grant = &g_array_index(call->name->tokens, struct grant, i);
            grant->process = grant->origin == hold->origin ? hold->claim.process : grant->process;
        }
        break;
    case JUDGE_SETLK:
        hold->content = call_first_content(judge, call);
        break;
    default:
        break;
    }
    for (guint i = 0; operation == JUDGE_LINK && i < call->name->holds->len; i++) {
        ((struct hold *)call->name->holds->pdata[i])->twin = true;
    }
    hold->twin = operation == JUDGE_LINK;
    hold->written = answer->when;
    hold->closed = operation == JUDGE_CLOSE;
    hold->decided = operation == JUDGE_CLOSE || operation == JUDGE_WRITE || operation == JUDGE_TIMES;
    bool stopped = mount_troubled(judge, call->call.mount) || judge->mounts[call->call.mount].calm >= call->call.when;
    hold->uncertain =
        hold->uncertain || (operation == JUDGE_CLOSE && stopped); /* behind which it is released too late */
    call_decides(judge, call);
    judge_hold_begin(judge, hold, answer->when);
    call_gets_name(judge, call);
    if (operation == JUDGE_WRITE) {
        call_write(call, hold);
    }
}

static void call_got_nothing(struct judge *judge, struct call *call, const struct judge_answer *answer,
                             enum outcome outcome)
{
    const struct judge_options *o = &judge->options;
    bool calm = mount_calm(judge, call->call.mount, call->call.when);
    if (call->attempt->survivor) {
        judge_survivor_check(judge, call->attempt); /* perhaps it was granted before its daemon died */
    } else if (outcome == REFUSED) {
        call->attempt->ended = answer->when;
    } else if (answer->error != -1 && answer->error != ECONNABORTED && (calm || !o->keeps)) {
        call->attempt->ended = answer->when + (calm ? o->settle : o->ttl + o->margin);
    } else if (call->attempt->claim.kind == KIND_PROVISIONAL) {
        call->attempt->ended = answer->when + JUDGE_PROVISIONAL + o->settle;
    } else if (call->attempt->claim.kind != KIND_LEASE) {
        call->attempt->ended = answer->when + (calm ? o->settle : o->ttl + o->margin);
    }
}

/* --- it is answered: rights -------------------------------------------------------------- */

/* A lock of a daemon before, whose file the caller has open itself? */
static bool call_meets_own_survivor(const struct judge *judge, const struct call *call)
{
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        if (hold->survivor && judge_survivor_is_open(judge, hold, call->process)) {
            return true;
        }
    }
    return false;
}

/* Was there, all the time, somebody's hold that the process may not end? */
static void call_check_right(struct judge *judge, const struct call *call, const struct name *name,
                             enum judge_rule rule)
{
    bool right = false, certain = false;
    for (guint i = 0; i < name->holds->len; i++) {
        const struct hold *hold = name->holds->pdata[i];
        if (hold == call->attempt || !judge_hold_possible(judge, hold, call->call.when)) {
            continue;
        }
        right = right || judge_hold_may_end(judge, hold, call->process, call->call.mount) ||
                hold->claim.kind == KIND_TICKET;
        certain = certain || judge_hold_shown(judge, hold, call->call.when);
    }
    if (judge_rule(judge, rule, certain && !right && !name->foreign && !judge_call_is_late(judge, call, name))) {
        judge_break(judge, rule, name, "process %u did what only its holder may", call->process->id);
    }
}

static void call_check_break(struct judge *judge, const struct call *call)
{
    for (guint i = 0; call->process->uid != 0 && i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        const struct handle *handle = hold->claim.handle; /* or its opener's, whose rights it has */
        bool others = hold->claim.process->uid != call->process->uid &&
                      (!handle || handle->opener->uid != call->process->uid) && hold->begun != JUDGE_NEVER &&
                      hold->begun <= call->call.when && hold->may_end >= judge->now && hold->ended >= judge->now &&
                      judge->now < judge_hold_assured(judge, hold) && !hold->uncertain && !hold->pending;
        if (judge_rule(judge, JUDGE_BREAK_RIGHT, others)) {
            judge_break(judge, JUDGE_BREAK_RIGHT, call->name, "uid %u broke a lock of uid %u", call->process->uid,
                        hold->claim.process->uid);
        }
    }
}

static void call_check_refusal(struct judge *judge, const struct call *call, const struct name *name)
{
    const struct hold *only = name_only(judge, name, call->call.when);
    bool must = only && only->begun <= call->call.when && only->may_end > judge->now && !call->changed &&
                !only->pending && !only->uncertain && judge->now < judge_hold_assured(judge, only) &&
                judge_hold_must_end(judge, only, call->process, call->call.mount) &&
                (call->call.operation != JUDGE_RENAME || only->claim.kind == KIND_LEASE); /* only leases are moved */
    if (judge_rule(judge, JUDGE_OWNER_REFUSED, must && only->claim.kind != KIND_TICKET)) {
        judge_break(judge, JUDGE_OWNER_REFUSED, name, "process %u may end it, and was refused", call->process->id);
    }
}

/* release and check: is the token that of a hold that is possible, or certain? */
static void call_check_token(struct judge *judge, const struct call *call, bool accepted)
{
    g_autofree char *text = g_strndup(call->call.value ? call->call.value : "", call->call.size);
    int64_t token = g_ascii_strtoll(text, NULL, 10);
    bool possible = call->changed || call->name->foreign || (call->handle && call->handle->ticket), certain = false;
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        bool own = hold->token == token;
        possible = possible || (hold->token ? own && hold->may_begin <= judge->now : true);
        certain = certain || (own && token && judge_hold_shown(judge, hold, call->call.when));
    }
    for (guint i = 0; i < call->name->calls->len; i++) { /* what is moved has another by then */
        possible = possible || ((const struct call *)call->name->calls->pdata[i])->call.operation == JUDGE_RENAME;
    }
    possible = possible || !mount_calm(judge, call->call.mount, call->call.when); /* a release that is sent again */
    if (judge_rule(judge, JUDGE_TOKEN_CHECK, accepted ? !possible : certain)) {
        judge_break(judge, JUDGE_TOKEN_CHECK, call->name, "token %s was %s", text, accepted ? "taken" : "refused");
    }
}

static void call_set_attribute(struct judge *judge, struct call *call, enum outcome outcome)
{
    const struct judge_call *request = &call->call;
    struct name *name = call->name;
    const char *what = request->target;
    int64_t duration = judge_duration(request->value, request->size);
    g_autofree char *text = g_strndup(request->value ? request->value : "", request->size);
    if (strcmp(what, "user.lease.check") == 0 || strcmp(what, "user.lease.release") == 0) {
        if (outcome == DONE) {
            call_check_token(judge, call, true);
        }
        return;
    }
    if (outcome == REFUSED) {
        name->width_unknown = false;
        return;
    }
    if (strcmp(what, "user.lease.break") == 0) {
        if (outcome == DONE) {
            call_check_break(judge, call);
        }
    } else if (name->directory && strcmp(what, "user.lease.width") == 0) {
        name->width_before = MAX(name->width, outcome == UNKNOWN ? name->width_before : 0);
        name->width = g_ascii_strtoll(text, NULL, 10);
        name->width_changed = judge->now;
        name->width_unknown = outcome == UNKNOWN;
    } else if (name->directory) {
        judge->longest = MAX(judge->longest, duration);
        name->ttl = strcmp(what, "user.lease.ttl") == 0 ? duration : name->ttl;
        if (strcmp(what, "user.lease.delay") == 0) {
            name->delay = MAX(duration, name->delay);
            name->delay_since = outcome == DONE ? judge->now : JUDGE_NEVER;
        }
    } else if (strcmp(what, "user.lease.guard") == 0) {
        struct hold *only = outcome == DONE ? name_only(judge, name, request->when) : NULL;
        if (outcome == DONE) {
            call_check_right(judge, call, name, JUDGE_CHANGE_RIGHT);
        }
        if (only && only->begun <= request->when) {
            only->guard = duration;
        }
    } else if (strcmp(what, "user.lease.ttl") == 0) {
        judge->longest = MAX(judge->longest, duration);
        if (outcome == DONE) {
            call_check_right(judge, call, name, JUDGE_CHANGE_RIGHT);
        }
        for (guint i = 0; i < name->holds->len; i++) {
            struct hold *hold = name->holds->pdata[i];
            bool automatic =
                strcmp(text, "auto") == 0 || hold->claim.kind == KIND_FLOCK || hold->claim.kind == KIND_RECORD;
            hold->reason = MAX(hold->reason, judge->now); /* it is renewed by that, also where its owner has ended */
            if (outcome == UNKNOWN) {                     /* it has the one term or the other */
                hold->may_end = MIN(hold->may_end, request->when);
                hold->ttl = MAX(hold->ttl, duration);
                int64_t ended = automatic ? JUDGE_NEVER : judge->now + duration + judge->options.margin;
                hold->ended = hold->ended < request->when ? hold->ended : MAX(hold->ended, ended);
                continue;
            }
            bool was_fixed = hold->fixed;
            hold->fixed = !automatic;
            hold->ttl = strcmp(text, "auto") == 0 ? hold->ttl : duration;
            hold->may_end = automatic || hold->may_end <= judge->now
                                ? hold->may_end
                                : request->when + duration - duration / 50 - 2 * JUDGE_MS;
            hold->ended = automatic && !hold->fixed ? hold->ended : judge->now + duration + judge->options.margin;
            if (automatic && was_fixed && hold->begun != JUDGE_NEVER && outcome == DONE && hold->owner &&
                !hold->released && strcmp(text, "auto") == 0) {
                hold->may_end = hold->ended = JUDGE_NEVER;
                judge_hold_steady(hold, judge->now);
            }
            hold->deadline = automatic || outcome != DONE ? 0 : judge->now + duration;
        }
    }
}

/* --- it is answered: waiting ------------------------------------------------------------- */

/* Since when nothing stood in its way: JUDGE_NEVER if something does. */
static int64_t call_free_since(const struct judge *judge, const struct call *call)
{
    const struct hold *ticket = call->handle->ticket;
    const struct name *name = ticket ? ticket->name : call->name;
    int64_t since = MAX(call->call.when, call->blocked_until), before = 0;
    for (guint i = 0; i < name->holds->len; i++) {
        const struct hold *other = name->holds->pdata[i];
        int64_t over = judge_hold_end_at_latest(judge, other);
        if (ticket) {
            before += other != ticket && over >= judge->now && !(other->may_begin > ticket->begun);
            since = over < judge->now ? MAX(since, over) : since;
            if (over >= judge->now && other != ticket && call->call.flags & JUDGE_SHARE && !other->claim.shared) {
                return JUDGE_NEVER; /* only shared ones may stand before it */
            }
        } else if (other != call->attempt && judge_hold_excludes(other, &call->attempt->claim, false)) {
            bool waits_behind = false;
            for (guint k = 0; k < name->calls->len; k++) {
                const struct call *rival = name->calls->pdata[k];
                waits_behind = waits_behind || (rival->attempt == other && rival->waits &&
                                                rival->call.when > call->call.when + judge->options.settle);
            }
            since = waits_behind ? since : over >= judge->now ? JUDGE_NEVER : MAX(since, over);
            if (since == JUDGE_NEVER) {
                return since;
            }
        }
    }
    if (ticket) {
        return before >= name->width || name->width_unknown ? JUDGE_NEVER : MAX(since, name->width_changed);
    }
    return since;
}

static bool call_is_delayed(const struct judge *judge, const struct call *call, int64_t from)
{
    const struct hold *ticket = call->handle->ticket;
    return ticket ? queue_is_delayed(judge, ticket->name, from)
                  : name_is_delayed_for(judge, call->name, from, call->attempt);
}

/* Does the guard of a holder that was broken refuse the lock to everybody, that holder too? */
static bool call_is_guarded(const struct judge *judge, const struct call *call, int64_t from)
{
    const struct name *name = call->name;
    return name->guard && MAX(name->broken, name->last_ended) + name_guard(judge, name) >= from;
}

void call_check_wait(struct judge *judge, const struct call *call, int error)
{
    int64_t settle = judge->options.settle, prompt = judge->options.prompt, now = judge->now;
    bool calm = judge_calm(judge, call->call.when) && !call->name->foreign && judge->forgot < call->call.when;
    if (!call->waits || call->signalled != JUDGE_NEVER) {
        return;
    }
    int64_t since = call_free_since(judge, call), recovered = calm ? call->call.when : judge_recovered(judge);
    bool free = since != JUDGE_NEVER && recovered != JUDGE_NEVER && !call->name->foreign;
    bool stuck = free && now - MAX(since, recovered) > 2 * settle && !call_is_delayed(judge, call, now - 2 * settle);
    if (judge_rule(judge, JUDGE_STUCK, stuck)) {
        judge_break(judge, JUDGE_STUCK, call->name, "process %u waits since %.6f; nobody stood in its way since %.6f",
                    call->process->id, (double)call->call.when / JUDGE_SECOND, (double)since / JUDGE_SECOND);
    }
    bool lacks_servers = judge->options.unfair && (judge->fewer || judge->all_since >= since);
    if (prompt && error == 0 && free && !lacks_servers && judge_recovered(judge) <= since && !stuck &&
        judge_rule(judge, JUDGE_PROMPT,
                   now - since > prompt && !call_is_delayed(judge, call, since) &&
                       !call_is_guarded(judge, call, since))) {
        judge_break(judge, JUDGE_PROMPT, call->name, "process %u got at %.6f what was free since %.6f",
                    call->process->id, (double)now / JUDGE_SECOND, (double)since / JUDGE_SECOND);
    }
    bool missed = call->cycle->len && error != EDEADLK && now - call->call.when > 2 * settle;
    if (judge_rule(judge, JUDGE_DEADLOCK, missed && calm)) {
        judge_break(judge, JUDGE_DEADLOCK, call->name, "process %u waited in a circle", call->process->id);
    }
}

/* Until when the kernel may have held the call back: it passes on one call on the names of a directory at a time.  The
 * time of the last such answer. */
static int64_t call_queued_until(struct judge *judge, const struct call *call)
{
    const struct name *at = call->name;
    int64_t last = 0;
    do {
        at = judge_parent(judge, at);
        last = MAX(last, at->answered);
    } while (at->path[0]);
    return last;
}

void call_check_time(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    int64_t settle = judge->options.settle, when = call->call.when;
    bool calm = mount_calm(judge, call->call.mount, when), signalled = call->signalled != JUDGE_NEVER;
    if (answer->error == EINTR || signalled) {
        call->name->interrupted = answer->when;
        /* what waits for nothing but servers that do not answer is not cut short */
        int64_t most = judge->options.moves && !call->waits ? JUDGE_WAIT_MAX : 2 * settle;
        bool late = signalled && calm && answer->when - call->signalled > most;
        if (judge_rule(judge, JUDGE_INTERRUPT, (answer->error == EINTR && !signalled) || late)) {
            judge_break(judge, JUDGE_INTERRUPT, call->name, "process %u: %s", call->process->id,
                        late ? "a signal did not end the call" : "EINTR, and no signal");
        }
    }
    const struct mount *mount = &judge->mounts[call->call.mount];
    bool runs = mount->since[JUDGE_STOPPED] == JUDGE_NEVER && mount->since[JUDGE_DEAD] == JUDGE_NEVER &&
                mount->since[JUDGE_FAILS] == JUDGE_NEVER;
    int64_t waited = answer->when - MAX(MAX(when, call_queued_until(judge, call)), mount->ran),
            most = mount_troubled(judge, call->call.mount) || when < mount->calm ? JUDGE_AWAY_MAX : JUDGE_WAIT_MAX;
    if (judge_rule(judge, JUDGE_UNANSWERED, !call->waits && runs && waited > most + settle)) {
        judge_break(judge, JUDGE_UNANSWERED, call->name, "process %u had no answer for %.3f s", call->process->id,
                    (double)(answer->when - when) / JUDGE_SECOND);
    }
}

/* --- it is answered ---------------------------------------------------------------------- */

static void call_check_open(struct judge *judge, const struct call *call)
{
    bool plain = call->call.flags & JUDGE_WRITES && !(call->call.flags & JUDGE_EXCL) &&
                 (!judge->options.moves || judge_calm(judge, call->call.when));
    for (guint i = 0; plain && i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        bool before = hold->decided && hold->steady > hold->begun; /* its daemon was restarted since */
        bool must = hold->claim.kind == KIND_LEASE && judge_hold_shown(judge, hold, call->call.when) &&
                    judge->now < hold->may_begin + JUDGE_SECOND - JUDGE_CLOCKS && !hold->moved && !hold->ageless &&
                    ((hold->claim.mount == call->call.mount && !before) ||
                     (!hold->decided && mount_calm(judge, call->call.mount, hold->may_begin))) &&
                    (!judge->options.validity || judge_calm(judge, hold->may_begin)) && /* a server's clock tells */
                    judge_hold_excludes(hold, &call->attempt->claim, true) && hold->claim.process != call->process;
        if (judge_rule(judge, JUDGE_FIRST_TIME, must && !hold->name->foreign)) { /* perhaps an old one is back */
            judge_break(judge, JUDGE_FIRST_TIME, call->name, "process %u opened a lease that began at %.6f",
                        call->process->id, (double)hold->may_begin / JUDGE_SECOND);
        }
    }
}

static void call_opened(struct judge *judge, struct call *call, const struct judge_answer *answer)
{
    call_check_open(judge, call);
    call->handle = judge_open(judge, answer->handle, call, answer->when);
    if (call->attempt) {
        call->attempt->claim.handle = call->handle;
        call->handle->had = call->renews || call_renews(judge, call); /* it shares what its opener has */
    }
    if (call->attempt && call->attempt->claim.kind == KIND_TICKET) {
        call->handle->ticket = call->attempt;
        call->attempt->name->queue = true;
    }
}

/* A file of its holder's is that in whosever hands it is. */
static bool call_is_by_holders_file(const struct call *call)
{
    for (guint i = 0; call->handle && i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        if (hold != call->attempt && hold->begun != JUDGE_NEVER && judge_hold_belongs_to(hold, call->handle->opener)) {
            return true;
        }
    }
    return false;
}

static void call_truncated(struct judge *judge, struct call *call)
{
    if (!call_is_by_holders_file(call)) {
        call_check_right(judge, call, call->name, JUDGE_CHANGE_RIGHT);
    }
    struct hold *only = name_only(judge, call->name, call->call.when);
    if (only && only->content) {
        guint size = (guint)MIN(call->call.start, JUDGE_CONTENT_MAX), had = only->content->len;
        g_byte_array_set_size(only->content, size);
        if (size > had) {
            memset(only->content->data + had, 0, size - had);
        }
    }
    for (guint i = 0; !only && i < call->name->holds->len; i++) { /* one of them */
        struct hold *hold = call->name->holds->pdata[i];
        g_clear_pointer(&hold->content, g_byte_array_unref);
    }
}

/* A write through a handle, while another held all the time? */
static bool call_wrote_anothers(struct judge *judge, const struct call *call)
{
    bool wrong = false, own = false;
    const struct process *opener = call->handle ? call->handle->opener : NULL;
    /* times change nothing, and to the servers of one side the locks of the other are free */
    bool apart = judge->options.moves && call->call.operation == JUDGE_TIMES && !judge_calm(judge, call->call.when);
    for (guint i = 0; call->attempt && i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        own = own || (hold != call->attempt && hold->begun != JUDGE_NEVER &&
                      (judge_hold_belongs_to(hold, call->process) ||
                       (opener && judge_hold_belongs_to(hold, opener)))); /* inherited, or passed */
        wrong =
            wrong || (hold != call->attempt && judge_hold_shown(judge, hold, call->call.when) &&
                      judge_hold_excludes(hold, &call->attempt->claim, true) &&
                      !judge_hold_belongs_to(hold, call->process) && !(apart && hold->claim.mount != call->call.mount));
    }
    bool astray = call->handle && (call->handle->astray || call->handle->went);
    wrong = wrong && !own && !astray && !judge_call_is_late(judge, call, call->name);
    if (judge_rule(judge, JUDGE_CHANGE_RIGHT, wrong)) {
        judge_break(judge, JUDGE_CHANGE_RIGHT, call->name, "process %u wrote to another's lock", call->process->id);
    }
    return wrong;
}

static void call_changed_mode(struct judge *judge, const struct call *call)
{
    struct hold *only = name_only(judge, call->name, call->call.when);
    bool another = false;
    for (guint i = 0; i < call->name->calls->len; i++) {
        another = another || ((const struct call *)call->name->calls->pdata[i])->call.operation == JUDGE_CHMOD;
    }
    if (only && !call->handle && only->claim.kind == KIND_LEASE && !another &&
        judge_hold_shown(judge, only, call->call.when)) {
        only->mode = call->call.mode;
        return;
    }
    for (guint i = 0; i < call->name->holds->len; i++) { /* as what was made meanwhile has it, or not */
        ((struct hold *)call->name->holds->pdata[i])->mode = 0;
    }
}

/* A rename keeps the owner, the last renewal and a fixed term. */
static void call_moves(struct judge *judge, struct call *call)
{
    int64_t may_end = JUDGE_NEVER, ended = 0;
    bool begun = false;
    call->owned = true;
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        if (hold == call->attempt || !judge_hold_possible(judge, hold, call->call.when)) {
            continue;
        }
        begun = begun || hold->begun != JUDGE_NEVER;
        call->owned = call->owned && hold->owner == call->process && !hold->uncertain;
        call->attempt->renewed = MIN(call->attempt->renewed, hold->renewed);
        call->attempt->fixed = call->attempt->fixed || hold->fixed;
        call->attempt->deadline = MAX(call->attempt->deadline, hold->deadline);
        call->attempt->ttl = hold->fixed ? MAX(call->attempt->ttl, hold->ttl) : call->attempt->ttl;
        may_end = MIN(may_end, hold->may_end);
        ended = MAX(ended, hold->ended);
        for (guint k = 0; k < hold->owners->len; k++) {
            if (!g_ptr_array_find(call->attempt->owners, hold->owners->pdata[k], NULL)) {
                g_ptr_array_add(call->attempt->owners, hold->owners->pdata[k]);
            }
        }
    }
    call->owned = call->owned && begun; /* else it is one that has come back */
    if (call->attempt->fixed) {
        call->attempt->may_end = may_end;
        call->attempt->ended = ended;
    }
}

/* Checks the caller's right, before the holds change. */
static bool call_check_done(struct judge *judge, struct call *call)
{
    switch (call->call.operation) {
    case JUDGE_UNLINK:
        if (!call->ending->len && !judge_parent(judge, call->name)->queue) {
            call_check_right(judge, call, call->name, JUDGE_RELEASE_RIGHT);
            look_present(judge, call->name, call, NULL);
        }
        return true;
    case JUDGE_RENAME:
        call_moves(judge, call);
        call_check_right(judge, call, call->name, JUDGE_RENAME_RIGHT);
        call_check_right(judge, call, call->target, JUDGE_RENAME_RIGHT);
        return true;
    case JUDGE_CHMOD:
        if (!call->handle || (call->handle->file == call->name->file[call->call.mount] && !call->handle->astray)) {
            call_check_right(judge, call, call->name, JUDGE_CHANGE_RIGHT);
            call_changed_mode(judge, call);
        }
        return true;
    case JUDGE_TIMES:
        if (call->handle) {
            return !call_wrote_anothers(judge, call);
        }
        call_check_right(judge, call, call->name, JUDGE_CHANGE_RIGHT);
        return true;
    case JUDGE_TRUNCATE:
        call_truncated(judge, call);
        return true;
    case JUDGE_WRITE:
        return !call_wrote_anothers(judge, call);
    default:
        return true;
    }
}

/* May it have a lock that is decided? */
static bool call_has_own(const struct judge *judge, const struct call *call)
{
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        if (hold->claim.kind != KIND_PROVISIONAL && judge_hold_belongs_to(hold, call->process) &&
            judge_hold_possible(judge, hold, call->call.when)) {
            return true;
        }
    }
    return false;
}

/* Does the daemon know through which file it was refused?  The kernel does not say through which times are set, so it
 * is one that the caller opened itself. */
static bool call_names_handle(const struct call *call)
{
    return call->call.operation != JUDGE_TIMES || call->handle->opener == call->process;
}

static void call_refused(struct judge *judge, struct call *call, int error)
{
    enum judge_operation operation = call->call.operation;
    struct name *name = call->target ? call->target : call->name;
    if (error == EEXIST || error == EBUSY || error == EAGAIN) {
        bool queue = call->handle && call->handle->ticket;
        bool opened = operation == JUDGE_RENAME; /* by others, what had the name before, too: the lease stays */
        bool inherited = call->handle && call->handle->opener != call->process && operation != JUDGE_FLOCK &&
                         operation != JUDGE_SETLK; /* by it only the owner acquires, and changes times */
        bool again = operation == JUDGE_CLOSE && (call->handle->refused || call->handle->maybe_refused); /* as before */
        if (call->handle && error == EBUSY && call_names_handle(call)) {
            call->handle->refused = true;
        }
        if (operation == JUDGE_MKDIR || queue || opened || again || inherited ||
            (operation == JUDGE_OPEN && error == EBUSY)) {
            return;
        }
        look_present(judge, name, call, call->attempt ? &call->attempt->claim : NULL);
        for (guint i = 0; operation == JUDGE_TIMES && i < name->handles->len; i++) {
            struct handle *handle = name->handles->pdata[i];
            handle->maybe_refused =
                handle->maybe_refused || handle->opener == call->process; /* if it is of the same file */
        }
    } else if (error == EPERM && (operation == JUDGE_UNLINK || operation == JUDGE_CHMOD || operation == JUDGE_RENAME)) {
        call_check_refusal(judge, call, call->name);
    } else if (error == ESTALE && operation == JUDGE_SETXATTR) {
        call_check_token(judge, call, false);
    } else if (error == ESTALE && call->handle && call_names_handle(call)) {
        call->handle->refused = true;
    } else if (error == EFBIG && call->handle) {
        call->handle->too_large = true;
        call->handle->refused = call->handle->refused || !call_has_own(judge, call);
    } else if (error == EBADF && call->handle && operation == JUDGE_SETLK) { /* the kernel has not asked */
        call->handle->locked = call->locked_before;
    } else if (error == EDEADLK) {
        const struct hold *ticket = call->handle->ticket;
        bool circle = waits_lead(judge, call, call, false, NULL, CYCLE_MAX) || call->changed ||
                      call_meets_own_survivor(judge, call) ||
                      judge->given_up + judge->options.settle > call->call.when ||
                      (ticket && name_only(judge, ticket->name, call->call.when) != ticket);
        if (judge_rule(judge, JUDGE_DEADLOCK, !circle)) {
            judge_break(judge, JUDGE_DEADLOCK, call->name, "process %u waits in no circle", call->process->id);
        }
    }
}

/* Its turn in the queue has come. */
static void call_got_ticket(struct judge *judge, struct call *call)
{
    struct hold *ticket = call->handle->ticket;
    ticket->holding = true;
    ticket->claim.shared = call->call.flags & JUDGE_SHARE;
    int64_t begun = ticket->begun;
    judge_hold_begin(judge, ticket, judge->now);
    ticket->begun = begun;
}

/* Open files of the mount move with the name. */
static void call_moved(struct judge *judge, const struct call *call)
{
    GPtrArray *handles = call->name->handles;
    uint32_t mount = call->call.mount;
    uint64_t file = call->file;
    bool another = call->name->file[mount] != file; /* has the name since */
    if (call->name == call->target) {
        return;
    }
    call->target->file[mount] = file;
    call->target->link = call->name->link;
    if (!another) {
        call->name->file[mount] = ++judge->serial;
        call->name->link = false;
    }
    for (guint i = handles->len; i-- > 0;) {
        struct handle *handle = handles->pdata[i];
        if (handle->mount == mount && handle->file == file) {
            g_ptr_array_remove_index(handles, i);
            handle->name = call->target;
            g_ptr_array_add(call->target->handles, handle);
        } else if (handle->mount == mount) {
            handle->went = handle->went || handle->again;
        }
    }
}

/* The name is a file's of another type now. */
static void call_names_file(struct judge *judge, const struct call *call)
{
    struct name *name = call->name;
    uint32_t mount = call->call.mount;
    enum judge_operation operation = call->call.operation;
    bool excl = operation == JUDGE_OPEN && call->call.flags & JUDGE_EXCL; /* no other lock has the name any more */
    bool link = operation == JUDGE_SYMLINK, open = false, found = false, held = false, ends = false;
    for (guint i = 0; i < name->handles->len; i++) {
        const struct handle *handle = name->handles->pdata[i];
        bool has = handle->mount == mount && handle->file == name->file[mount];
        open = open || has;
        found = found || (has && handle->found);
    }
    for (guint i = 0; i < name->holds->len; i++) {
        const struct hold *hold = name->holds->pdata[i];
        bool possible = hold != call->attempt && !excl && judge_hold_possible(judge, hold, call->call.when);
        held = held || possible;
        ends = ends || (possible && !judge_hold_certain(judge, hold, judge->now));
    }
    for (guint i = 0; operation == JUDGE_OPEN && found && ends && i < name->handles->len; i++) {
        struct handle *handle = name->handles->pdata[i];
        handle->astray = handle->astray || (handle->mount == mount && handle->file == name->file[mount]);
    }
    if (operation == JUDGE_OPEN && found && !held) { /* what is open was another lock */
        name->file[mount] = ++judge->serial;
    }
    for (guint i = 0; operation == JUDGE_OPEN && !open && held && i < name->handles->len; i++) {
        struct handle *handle = name->handles->pdata[i];
        handle->again = handle->again || handle->mount == mount; /* or what is held has it still */
    }
    if ((link || operation == JUDGE_OPEN) && link != name->link) {
        name->file[mount] = ++judge->serial;
        name->link = link;
    }
}

/* Close returns the error again.  For times any of the process's files may be meant. */
static void call_failed(const struct call *call)
{
    GPtrArray *handles = call->name->handles;
    if (call->handle) {
        call->handle->failed = true;
    }
    for (guint i = 0; call->call.operation == JUDGE_TIMES && i < handles->len; i++) {
        struct handle *handle = handles->pdata[i];
        handle->failed = handle->failed || handle->opener == call->process;
    }
}

/* It was not there: a mount that has seen that knows what is open in it by no name. */
static void call_made_directory(struct judge *judge, const struct name *directory)
{
    GHashTableIter i;
    void *name;
    g_hash_table_iter_init(&i, judge->names);
    while (g_hash_table_iter_next(&i, NULL, &name)) {
        const struct name *in = name;
        size_t length = strlen(directory->path);
        if (strncmp(in->path, directory->path, length) != 0 || in->path[length] != '/') {
            continue;
        }
        for (guint k = 0; k < in->handles->len; k++) {
            ((struct handle *)in->handles->pdata[k])->astray = true;
        }
    }
}

/* Has the holder nothing else there, by which a write may have gone?  What a process has in record locks is one. */
static bool call_has_only(const struct judge *judge, const struct call *call, const struct hold *hold)
{
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *other = call->name->holds->pdata[i];
        bool one = hold->claim.kind == KIND_RECORD && other->claim.kind == KIND_RECORD &&
                   hold->claim.process == other->claim.process && hold->claim.ofd == other->claim.ofd;
        if (other != hold && other != call->attempt && !one && call_is_of_holder(call, other) &&
            judge_hold_possible(judge, other, call->call.when)) {
            return false;
        }
    }
    return true;
}

static void call_finish(struct judge *judge, struct call *call, const struct judge_answer *answer, enum outcome outcome)
{
    enum judge_operation operation = call->call.operation;
    bool turn = call->handle && call->handle->ticket && (operation == JUDGE_FLOCK || operation == JUDGE_SETLK);
    bool begins = true;
    for (guint i = 0; i < call->name->holds->len; i++) {
        struct hold *hold = call->name->holds->pdata[i];
        bool changes = operation == JUDGE_WRITE || operation == JUDGE_TRUNCATE;
        if (changes && hold->may_begin <= call->call.when && hold->writing) {
            hold->writing--;
            hold->written = judge->now;
            bool wrote = operation == JUDGE_WRITE && hold != call->attempt && hold->begun != JUDGE_NEVER;
            if (outcome == DONE && wrote && call_is_of_holder(call, hold) && call_has_only(judge, call, hold)) {
                call_write(call, hold);
            } else if ((outcome == UNKNOWN || (outcome == DONE && wrote)) && hold->content) {
                g_byte_array_unref(g_steal_pointer(&hold->content));
            }
        }
    }
    if (outcome == DONE) {
        begins = call_check_done(judge, call);
        call_names_file(judge, call);
        if (operation == JUDGE_OPEN) {
            call_opened(judge, call, answer);
        } else if (operation == JUDGE_RMDIR) {
            judge_name_removed(judge, call->name);
        } else if (operation == JUDGE_MKDIR) {
            call_made_directory(judge, call->name);
        } else if (operation == JUDGE_CLOSE) {
            judge_close_one(judge, call->process, call->handle, answer->when);
        }
    } else if (outcome == REFUSED) {
        call_refused(judge, call, answer->error);
    }
    if (answer->error == EIO || answer->error == ENOLCK) {
        call_failed(call);
    }
    if (outcome != DONE && operation == JUDGE_CLOSE && answer->error != -1) {
        judge_close_one(judge, call->process, call->handle, answer->when); /* the descriptor is gone all the same */
    }
    if (operation == JUDGE_SETXATTR) {
        call_set_attribute(judge, call, outcome);
    }
    call_ended(judge, call, outcome, answer->error);
    if (operation == JUDGE_RENAME && outcome == DONE) {
        call_moved(judge, call);
    }
    for (guint i = 0; operation == JUDGE_RENAME && outcome == UNKNOWN && i < call->name->handles->len; i++) {
        ((struct handle *)call->name->handles->pdata[i])->astray = true;
    }
    if (call->attempt && outcome == DONE && begins) {
        call_got(judge, call, answer);
    } else if (call->attempt) {
        call_got_nothing(judge, call, answer, begins ? outcome : REFUSED);
    } else if (turn && outcome == DONE) {
        call_got_ticket(judge, call);
    }
}

void judge_answer(struct judge *judge, const struct judge_answer *answer)
{
    struct call *call = g_hash_table_lookup(judge->calls, &answer->id);
    judge->now = answer->when;
    judge_rule(judge, JUDGE_SIMULATOR, false);
    if (!call || answer->when < call->call.when) {
        judge_break(judge, JUDGE_SIMULATOR, NULL, "an answer to call %" G_GUINT64_FORMAT ", which is not on",
                    answer->id);
        return;
    }
    name_prune(judge, call->name);
    g_ptr_array_remove(call->name->calls, call);
    if (call->target && call->target != call->name) {
        name_prune(judge, call->target);
        g_ptr_array_remove(call->target->calls, call);
    }
    for (guint i = 0; i < call->ending->len; i++) {
        ((struct hold *)call->ending->pdata[i])->pending--;
    }
    call_check_wait(judge, call, answer->error);
    call_check_time(judge, call, answer);
    judge_parent(judge, call->name)->answered = answer->when;
    if (answer->error != -1) { /* -1: the process was killed */
        look_errno(judge, call, answer);
        look_answered(judge, call, answer);
    }
    call->daemon_gone = answer->error == ENOTCONN;
    call_finish(judge, call, answer, call_outcome(answer->error));
    wait_ended(judge, call);
    if (call->name != call->target) {
        for (guint i = 0; i < call->name->calls->len; i++) {
            struct call *other = call->name->calls->pdata[i];
            other->changed = other->changed || call->attempt || call->call.operation == JUDGE_UNLCK ||
                             call->call.operation == JUDGE_SETXATTR || call->call.operation == JUDGE_FUNLOCK ||
                             call->call.operation == JUDGE_CHMOD || call->call.operation == JUDGE_UNLINK;
        }
    }
    g_hash_table_remove(judge->calls, &answer->id);
}

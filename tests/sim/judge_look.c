/* judge_look: what a call tells of a lock, its holder's or another's; and the table of errors.  See judge.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/sim/judge_private.h"

/* --- errors ------------------------------------------------------------------------------ */

/* What a call may fail with in a world without faults and signals. */
static const int errors[JUDGE_OPERATIONS][14] = {
    [JUDGE_OPEN] = {EEXIST, EBUSY, ENOENT, EISDIR, ELOOP, EACCES, ENOTDIR, EINVAL, ENAMETOOLONG, ESTALE, EDQUOT},
    [JUDGE_CLOSE] = {EBUSY, EFBIG},
    [JUDGE_SYMLINK] = {EEXIST, EACCES, EINVAL, ENAMETOOLONG, ENOENT, ENOTDIR, EDQUOT, EFBIG},
    [JUDGE_LINK] = {EEXIST, EPERM, ESTALE, ENOENT, EINVAL, ENAMETOOLONG, EDQUOT, ENOTDIR, EACCES},
    [JUDGE_RENAME] = {EBUSY, EPERM, ENOENT, ESTALE, EINVAL, ENAMETOOLONG, EEXIST, EISDIR, ENOTDIR, EACCES},
    [JUDGE_UNLINK] = {EPERM, ENOENT, EISDIR, ENOTDIR, EACCES, EINVAL},
    [JUDGE_MKDIR] = {EEXIST, ENOENT, ENOTDIR, EACCES, EINVAL, ENAMETOOLONG, EDQUOT},
    [JUDGE_RMDIR] = {ENOTEMPTY, ENOENT, ENOTDIR, EACCES, EPERM, EINVAL},
    [JUDGE_READ] = {ESTALE, EACCES, EISDIR, EBADF, ENOENT, EINVAL},
    [JUDGE_WRITE] = {EBUSY, ESTALE, EFBIG, EPERM, EBADF, EDQUOT},
    [JUDGE_TRUNCATE] = {EBUSY, ESTALE, EFBIG, EPERM, EACCES, ENOENT, EBADF, EINVAL, EDQUOT, EISDIR},
    [JUDGE_FSYNC] = {ESTALE, EBADF},
    [JUDGE_TIMES] = {EBUSY, ESTALE, EPERM, EACCES, ENOENT, EINVAL},
    [JUDGE_CHMOD] = {EPERM, ESTALE, ENOENT, EINVAL},
    [JUDGE_STAT] = {ENOENT, ENOTDIR, ENAMETOOLONG, EINVAL, ESTALE},
    [JUDGE_LIST] = {ENOENT, ENOTDIR, EACCES},
    [JUDGE_GETXATTR] = {ENODATA, ENOENT, ERANGE, ESTALE, EOPNOTSUPP, EACCES, EINVAL},
    [JUDGE_SETXATTR] = {EPERM, EBUSY, ESTALE, EINVAL, EACCES, ENOENT, EOPNOTSUPP, ENODATA},
    [JUDGE_FLOCK] = {EAGAIN, EDEADLK, EBADF, EINVAL, EDQUOT, ESTALE},
    [JUDGE_FUNLOCK] = {EBADF},
    [JUDGE_SETLK] = {EAGAIN, EDEADLK, EBADF, EINVAL, EDQUOT, ESTALE},
    [JUDGE_UNLCK] = {EBADF, EINVAL},
    [JUDGE_GETLK] = {EBADF, EINVAL},
};

/* Is there a lease in its first second, perhaps, or one that came and went meanwhile? */
static bool look_is_in_first_second(const struct judge *judge, const struct call *call)
{
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        bool in_first_second =
            hold->begun == JUDGE_NEVER || hold->timeless || hold->ageless ||
            hold->begun + JUDGE_SECOND + judge->options.settle >= call->call.when ||
            !mount_calm(judge, hold->claim.mount, hold->begun); /* its close was noticed late, or it begins again */
        if (hold != call->attempt && hold->claim.kind == KIND_LEASE && in_first_second) {
            return true;
        }
    }
    return call->blocked || call->name->foreign || judge_has_forgot(judge, call->call.when);
}

static bool look_allows(const struct judge *judge, const struct call *call, int error)
{
    const struct judge_call *request = &call->call;
    bool calm = mount_calm(judge, request->mount, request->when);
    switch (error) {
    case ENOLCK: /* or it was granted, and broken before it was reported */
        return !calm || (request->operation == JUDGE_CLOSE && call->handle->failed) ||
               ((request->operation == JUDGE_FLOCK || request->operation == JUDGE_SETLK) &&
                (call->name->broken >= request->when || name_is_being_broken(call->name)));
    case EIO:
        return !calm || (request->operation == JUDGE_CLOSE && call->handle->failed);
    case ENOTCONN:
    case ECONNABORTED:
        return true;
    case ENOSPC:
        return !calm && judge->mounts[request->mount].full >= 0;
    case EINTR:
        return true; /* JUDGE_INTERRUPT */
    case EEXIST:
        return request->operation != JUDGE_OPEN || request->flags & JUDGE_EXCL;
    case EAGAIN:
        return request->flags & JUDGE_TRY;
    case ESTALE:
        if (request->operation == JUDGE_LINK) { /* the kernel looks its name up twice */
            return call->changed || call->blocked;
        }
        return (request->operation != JUDGE_FLOCK && request->operation != JUDGE_SETLK) || call->handle->ticket;
    case EDEADLK: /* or a shared ticket is to become exclusive, which the queue cannot wait for */
        return !(request->flags & JUDGE_TRY) && !(call->handle->ticket && request->flags & JUDGE_SHARE);
    case EFBIG:
        return request->operation != JUDGE_CLOSE || call->handle->too_large;
    case EBUSY:
        if (request->operation == JUDGE_CLOSE) { /* of who could get it by that */
            return call->handle->flags & JUDGE_WRITES && call->handle->opener == call->process && !call->locked_before;
        }
        return request->operation != JUDGE_OPEN ||
               (request->flags & JUDGE_WRITES && !(request->flags & JUDGE_EXCL) &&
                (look_is_in_first_second(judge, call) || name_is_delayed(judge, call->name, request->when) ||
                 ((judge->options.moves || call->name->broken >= request->when - JUDGE_SECOND) &&
                  !judge_calm(judge, request->when)))); /* who is away has not heard that it was broken */
    default:
        return true;
    }
}

void look_errno(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    bool dead = answer->error == ENOTCONN || answer->error == ECONNABORTED; /* as the kernel tells of its daemon */
    bool listed =
        answer->error == 0 || (dead && judge->mounts[call->call.mount].died) || answer->error == EINTR ||
        answer->error == ENOLCK || answer->error == EIO || answer->error == ENOSPC ||
        (answer->error == ENOENT && (judge->forgot >= 0 || strchr(call->name->path, '/'))) || /* its directory */
        (answer->error == EOPNOTSUPP && judge->options.plain && call->call.operation == JUDGE_RENAME) ||
        (answer->error == EINVAL && judge->options.plain && call->handle &&
         judge_parent(judge, call->name)->queue); /* no lock has a number */
    for (size_t i = 0; i < G_N_ELEMENTS(errors[0]); i++) {
        listed = listed || errors[call->call.operation][i] == answer->error;
    }
    if (judge_rule(judge, JUDGE_ERRNO, !listed || (answer->error && !look_allows(judge, call, answer->error)))) {
        judge_break(judge, JUDGE_ERRNO, call->name, "operation %d of process %u: %s", call->call.operation,
                    call->process->id, strerror(answer->error));
    }
}

/* --- is it there? ------------------------------------------------------------------------ */

void look_absent(struct judge *judge, const struct name *name, const struct call *call)
{
    for (guint i = 0; i < name->holds->len; i++) {
        struct hold *hold = name->holds->pdata[i];
        bool certain =
            hold->claim.kind != KIND_TICKET && judge_hold_shown(judge, hold, call->call.when) &&
            (!judge->options.moves ||
             judge_calm(judge, call->call.when)); /* a look believes an old master, and most may have forgotten it */
        if (judge_rule(judge, JUDGE_UNSEEN, certain && !name->foreign)) {
            judge_break(judge, JUDGE_UNSEEN, name, "process %u holds it since %.6f, and process %u saw nothing",
                        hold->claim.process->id, (double)hold->begun / JUDGE_SECOND, call->process->id);
        }
    }
}

/* "job-0000000042": 43, as 0 is no number; none: 0. */
static int64_t look_name_number(const char *text, size_t size)
{
    g_autofree char *name = g_strndup(text, size);
    g_strchomp(name);
    size_t length = strlen(name);
    bool numbered = length > 10 && name[length - 11] == '-' && strspn(name + length - 10, "0123456789") == 10;
    return numbered ? g_ascii_strtoll(name + length - 10, NULL, 10) + 1 : 0;
}

/* May the name be that of a ticket? */
static bool look_is_ticket(struct judge *judge, const struct name *name, int64_t from)
{
    int64_t number = look_name_number(name->path, strlen(name->path));
    const struct name *queue = judge_parent(judge, name);
    for (guint i = 0; number && i < queue->holds->len; i++) {
        const struct hold *hold = queue->holds->pdata[i];
        if ((!hold->token || hold->token == number) && judge_hold_possible(judge, hold, from)) {
            return true;
        }
    }
    return false;
}

void look_present(struct judge *judge, const struct name *name, const struct call *call, const struct claim *claim)
{
    const struct judge_options *o = &judge->options;
    int64_t from = call->call.when;
    bool possible = name->foreign || name->directory || (call->blocked && call->blocked_until >= from), lapsed = false;
    for (guint i = 0; i < name->holds->len; i++) {
        const struct hold *hold = name->holds->pdata[i];
        if (hold != call->attempt && (!claim || judge_hold_excludes(hold, claim, false))) {
            bool now = judge_hold_possible(judge, hold, from);
            possible = possible || now;
            lapsed = lapsed || (!now && hold->begun != JUDGE_NEVER);
        }
    }
    possible = possible || judge_has_forgot(judge, from);
    bool calm = (lapsed ? judge_renews : judge_calm)(judge, from - o->margin);
    possible = possible || (o->remote && !calm);
    possible = possible || name_is_delayed(judge, name, from) || look_is_ticket(judge, name, from);
    possible = possible || (name != call->name && name->last_ended >= from); /* in a listing that had begun */
    enum judge_rule rule = lapsed                 ? JUDGE_REASON
                           : name->last_ended < 0 ? JUDGE_GHOST
                           : name->last_released  ? JUDGE_EFFECT
                                                  : JUDGE_REASON;
    if (judge_rule(judge, rule, !possible)) {
        judge_break(judge, rule, name, "process %u met a lock that nobody can hold (the last ended at %.6f)",
                    call->process->id, (double)name->last_ended / JUDGE_SECOND);
    }
}

/* --- answers to the holder ------------------------------------------------------------- */

static struct hold *look_own(const struct call *call)
{
    for (guint i = 0; call->handle && i < call->name->holds->len; i++) {
        struct hold *hold = call->name->holds->pdata[i];
        bool lasts = hold->begun != JUDGE_NEVER && hold->may_end > hold->begun; /* not what perhaps renewed another */
        if (hold->claim.handle == call->handle && hold != call->attempt && lasts) {
            return hold;
        }
    }
    return call->handle ? call->handle->ticket : NULL;
}

/* Has the process closed a file of the name a moment ago, that the daemon has not heard of? */
static bool look_has_closed(const struct judge *judge, const struct call *call)
{
    GHashTableIter handles;
    void *each;
    g_hash_table_iter_init(&handles, judge->handles);
    while (g_hash_table_iter_next(&handles, NULL, &each)) {
        const struct handle *handle = each;
        if (handle->name == call->name && handle->opener == call->process && handle->closed != JUDGE_NEVER &&
            handle->closed + judge->options.settle >= call->call.when) {
            return true;
        }
    }
    return false;
}

static void look_says_lost(struct judge *judge, const struct call *call)
{
    struct hold *own = look_own(call);
    if (!own || own->released || own->claim.kind == KIND_TICKET) {
        return;
    }
    bool another = false; /* of the process, which has lost that one: the kernel does not tell which is asked about */
    for (guint i = 0; i < call->name->handles->len; i++) {
        const struct handle *handle = call->name->handles->pdata[i];
        another = another || (handle != call->handle && (handle->opener == call->process ||
                                                         g_hash_table_lookup(call->process->descriptors, handle)));
    }
    another = another || look_has_closed(judge, call);
    if (judge_rule(judge, JUDGE_KEPT,
                   judge_hold_certain(judge, own, call->call.when) && !own->name->foreign && !another)) {
        judge_break(judge, JUDGE_KEPT, call->name, "process %u was told that it holds no more", call->process->id);
    }
    if (another) {
        own->may_end = MIN(own->may_end, call->call.when);
    } else {
        judge_hold_end(judge, own, call->call.when, judge->now + name_guard(judge, own->name), false);
    }
}

/* Something through a handle whose lock was broken before.  A mount that is cut off since before that learns it at the
 * end of its term. */
static void look_reports_loss(struct judge *judge, const struct call *call)
{
    int64_t away = judge->mounts[call->call.mount].since[JUDGE_AWAY], when = call->call.when;
    bool lost = call->handle && call->handle->lost <= when &&
                (away > call->handle->lost || when - call->handle->lost > judge->longest + judge->options.margin);
    if (call->handle && judge_rule(judge, JUDGE_LOSS, lost)) {
        judge_break(judge, JUDGE_LOSS, call->name, "process %u was not told that its lock was broken by %.6f",
                    call->process->id, (double)call->handle->lost / JUDGE_SECOND);
    }
}

/* May the answer be of that one, too?  The kernel does not tell which file's attribute is asked for. */
static bool look_may_mean(const struct call *call, const struct hold *hold)
{
    return call->call.operation == JUDGE_GETXATTR &&
           (judge_hold_belongs_to(hold, call->process) ||
            (hold->claim.handle && g_hash_table_lookup(call->process->descriptors, hold->claim.handle)));
}

static void look_says_held(struct judge *judge, const struct call *call)
{
    const struct hold *own = look_own(call);
    bool other_holds = false, afresh = false;
    bool anothers = own && own->claim.kind == KIND_RECORD && !own->claim.ofd && own->claim.process != call->process;
    if (!own || anothers || own->released || own->claim.kind == KIND_TICKET) {
        return;
    }
    afresh = own->claim.handle && own->claim.handle->given > own->begun;
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *other = call->name->holds->pdata[i];
        other_holds = other_holds ||
                      (other != own && other->claim.handle != own->claim.handle && !look_may_mean(call, other) &&
                       judge_hold_shown(judge, other, call->call.when) &&
                       judge_hold_excludes(other, &own->claim, true) && judge_hold_excludes(own, &other->claim, true));
        afresh = afresh || (other->claim.handle == own->claim.handle && other->begun != JUDGE_NEVER &&
                            other->begun > own->begun); /* which has not lost that */
    }
    if (judge_rule(judge, JUDGE_LOSS, other_holds && !afresh)) {
        judge_break(judge, JUDGE_LOSS, call->name, "process %u was told that it holds after another did",
                    call->process->id);
    }
}

/* --- attributes -------------------------------------------------------------------------- */

static bool look_is(const struct judge_answer *answer, const char *text)
{
    return answer->size == strlen(text) && memcmp(answer->value, text, answer->size) == 0;
}

static int64_t look_number(const struct judge_answer *answer)
{
    g_autofree char *text = g_strndup(answer->value, answer->size);
    return g_ascii_strtoll(text, NULL, 10);
}

static void look_attribute_broken(struct judge *judge, const struct call *call, const struct judge_answer *answer,
                                  bool broken)
{
    if (judge_rule(judge, JUDGE_ATTRIBUTE, broken)) {
        judge_break(judge, JUDGE_ATTRIBUTE, call->name, "%s is told as %.*s", call->call.target, (int)answer->size,
                    (const char *)answer->value);
    }
}

/* Between those who certainly wait, all the time, and those who may. */
static bool look_waiters_wrong(const struct judge *judge, const struct call *call, int64_t shown)
{
    int64_t least = 0, most = 0;
    for (guint i = 0; i < call->name->calls->len; i++) {
        const struct call *other = call->name->calls->pdata[i];
        bool certain = other->attempt && other->call.when + 2 * judge->options.settle < call->call.when;
        for (guint k = 0; certain && k < call->name->holds->len; k++) {
            const struct hold *hold = call->name->holds->pdata[k];
            certain = judge_hold_shown(judge, hold, call->call.when) &&
                      judge_hold_excludes(hold, &other->attempt->claim, true);
            if (certain) {
                break;
            }
        }
        least += other->waits && other->signalled == JUDGE_NEVER && certain && judge_calm(judge, other->call.when) &&
                 (!judge->options.unfair || other->call.mount == call->call.mount);
        most += other->attempt != NULL;
    }
    bool leaves = judge->options.remote && (call->name->interrupted + judge->options.settle > call->call.when ||
                                            !judge_calm(judge, call->call.when)); /* those of a lost mount: later */
    return shown < least || (shown > most && !call->changed && !leaves);
}

/* Do both have their numbers of one server, that has not forgotten in between?  Another gives some of them again where
 * there was more than one a second. */
static bool look_is_same_count(const struct hold *a, const struct hold *b)
{
    return a->numbering_requested == a->numbering_granted && b->numbering_requested == b->numbering_granted &&
           a->numbering_granted == b->numbering_granted;
}

static void look_ticket_number(struct judge *judge, struct hold *ticket, int64_t number)
{
    const struct name *queue = ticket->name;
    bool broken = ticket->token && ticket->token != number;
    for (guint i = 0; i < queue->holds->len; i++) {
        const struct hold *other = queue->holds->pdata[i];
        if (other != ticket && other->token && look_is_same_count(other, ticket)) {
            broken = broken || other->token == number || (other->begun < ticket->may_begin && other->token > number) ||
                     (ticket->begun < other->may_begin && other->token < number);
        }
    }
    broken = broken || (!ticket->token && ticket->numbering_requested == queue->numbering && number <= queue->number &&
                        ticket->may_begin > queue->last_ended);
    if (judge_rule(judge, JUDGE_NUMBER, broken && !queue->foreign)) {
        judge_break(judge, JUDGE_NUMBER, queue, "a ticket has number %" G_GINT64_FORMAT, number - 1);
    }
    ticket->token = number;
}

/* The only hold that a call can show, or NULL.  While masters change, one of them may show a hold that the others lack;
 * but a mount knows its own. */
static struct hold *look_only(const struct judge *judge, const struct call *call)
{
    struct hold *only = name_only(judge, call->name, call->call.when);
    bool astray = judge->options.moves && !judge_calm(judge, call->call.when);
    bool late = judge_call_is_late(judge, call, call->name);
    return !late && only && (!astray || only->claim.mount == call->call.mount) ? only : NULL;
}

static void look_attribute(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    const char *what = call->call.target;
    struct hold *only = look_only(judge, call);
    bool sole =
        only && only->begun <= call->call.when && !call->changed && judge_hold_shown(judge, only, call->call.when);
    if (strcmp(what, "user.lease.state") == 0 && call->handle) {
        if (!look_is(answer, "lost") && call->process == call->handle->opener) {
            look_reports_loss(judge, call);
        }
        if (look_is(answer, "held")) {
            look_says_held(judge, call);
        } else if (look_is(answer, "lost") || look_is(answer, "free")) {
            look_says_lost(judge, call);
        }
    } else if (strcmp(what, "user.lease.name") == 0 && call->handle && call->handle->ticket) {
        look_ticket_number(judge, call->handle->ticket, look_name_number(answer->value, answer->size));
    } else if (strcmp(what, "user.lease.waiters") == 0 && !call->name->directory) {
        look_attribute_broken(judge, call, answer, look_waiters_wrong(judge, call, look_number(answer)));
    } else if (sole && only->claim.kind != KIND_TICKET) {
        const char *kind = only->claim.kind == KIND_LEASE   ? "lease"
                           : only->claim.kind == KIND_FLOCK ? "flock"
                                                            : "fcntl";
        if (strcmp(what, "user.lease.token") == 0) {
            judge_hold_token(judge, only, look_number(answer));
        } else if (strcmp(what, "user.lease.kind") == 0) {
            look_attribute_broken(judge, call, answer, !look_is(answer, kind));
        } else if (strcmp(what, "user.lease.mode") == 0 && only->claim.kind != KIND_RECORD) {
            look_attribute_broken(judge, call, answer, !look_is(answer, only->claim.shared ? "shared" : "exclusive"));
        }
    }
}

/* --- F_GETLK ----------------------------------------------------------------------------- */

/* A lock whose daemon has died is that of any process that has its file open, or had until a moment ago. */
static bool look_has_survivor(const struct judge *judge, const struct hold *hold, pid_t pid)
{
    GHashTableIter processes;
    void *each;
    g_hash_table_iter_init(&processes, judge->processes);
    while (g_hash_table_iter_next(&processes, NULL, &each)) {
        const struct process *process = each;
        bool had = process->closed == hold->name && process->closed_at + JUDGE_SURVIVOR_CHECK_MAX >= judge->now;
        if (process->pid == pid && (had || judge_survivor_is_open(judge, hold, process))) {
            return true;
        }
    }
    return false;
}

/* Of who took it, or may have inherited it: a handle's lock, whose taker has ended, is its opener's. */
static bool look_is_pid(const struct judge *judge, const struct hold *hold, pid_t pid)
{
    const struct process *taker = hold->claim.process;
    const struct handle *handle = hold->claim.handle;
    bool is = taker->pid == pid || (handle && !process_lives(taker) && handle->opener->pid == pid);
    for (guint i = 0; i < hold->owners->len; i++) {
        const struct process *at = hold->owners->pdata[i];
        is = is || (hold->moved && at->pid == pid); /* by another, when its owner had ended */
        for (; at && at->died >= hold->may_begin - judge->options.settle;
             at = at->parent) { /* exiting takes a moment */
            is = is || at->pid == pid;
        }
    }
    return is || (hold->survivor && look_has_survivor(judge, hold, pid));
}

static void look_probe(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    const struct judge_call *request = &call->call;
    struct claim claim = {.kind = KIND_RECORD,
                          .shared = request->flags & JUDGE_SHARE,
                          .ofd = request->flags & JUDGE_OFD,
                          .start = request->start,
                          .end = request->end,
                          .handle = call->handle,
                          .process = call->process,
                          .mount = request->mount};
    bool found = answer->conflict.found, wrong = false;
    bool possible =
        call->changed || name_is_delayed(judge, call->name, request->when) || judge_has_forgot(judge, request->when);
    possible = possible || (judge->options.remote && !judge_calm(judge, request->when - judge->options.margin));
    for (guint i = 0; i < call->name->holds->len; i++) {
        const struct hold *hold = call->name->holds->pdata[i];
        const struct claim *its = &hold->claim;
        if (judge_hold_shown(judge, hold, request->when) && judge_hold_excludes(hold, &claim, true)) {
            wrong = wrong || !found || answer->conflict.start > MAX(its->start, 0);
        }
        bool pid =
            answer->conflict.pid <= 0 || look_is_pid(judge, hold, answer->conflict.pid) || its->mount != request->mount;
        bool lost =
            judge->options.validity && !mount_calm(judge, request->mount, request->when); /* it stands for a while */
        bool ends = hold->may_end <= request->when || hold->pending;
        bool guarded = call->name->guard && ends; /* from who had it, too */
        possible = possible || (judge_hold_possible(judge, hold, request->when) &&
                                (lost || guarded || judge_hold_excludes(hold, &claim, false)) && pid &&
                                (its->shared == answer->conflict.shared || its->kind != KIND_RECORD) &&
                                its->start <= answer->conflict.end && answer->conflict.start <= its->end);
    }
    if (judge_rule(judge, JUDGE_PROBE,
                   !call->name->foreign && !call->handle->ticket && !call->handle->astray &&
                       (wrong || (found && !possible)))) {
        judge_break(judge, JUDGE_PROBE, call->name, "process %u was told of %s", call->process->id,
                    found ? "a lock that is not there, or is not the lowest" : "no lock, but there is one");
    }
}

/* --- content ----------------------------------------------------------------------------- */

/* May who opened it read what is held now? */
static void look_read(struct judge *judge, const struct call *call, const struct hold *only)
{
    const struct process *opener = call->handle ? call->handle->opener : NULL;
    if (only && opener && only->mode && judge_hold_shown(judge, only, call->call.when) && !call->changed &&
        !call->name->foreign) {
        bool own = opener->uid == 0 || opener->uid == only->claim.process->uid || judge_hold_belongs_to(only, opener);
        if (judge_rule(judge, JUDGE_READ_RIGHT, !own && !(only->mode & S_IROTH))) {
            judge_break(judge, JUDGE_READ_RIGHT, call->name, "uid %u read what uid %u has with mode %o", opener->uid,
                        only->claim.process->uid, only->mode);
        }
    }
}

static void look_content(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    const struct hold *only = look_only(judge, call);
    if (call->handle && call->handle->ticket) {
        if (answer->size > 10) {
            const char *end = memchr(answer->value, '\n', answer->size);
            size_t length = end ? (size_t)(end - (const char *)answer->value) : answer->size;
            int64_t number = look_name_number(answer->value, length); /* 0: its holder has written over it */
            if (number) {
                look_ticket_number(judge, call->handle->ticket, number);
            }
        }
        return;
    }
    look_reports_loss(judge, call);
    look_says_held(judge, call);
    look_read(judge, call, only);
    if (!only || !only->content || only->writing || only->written > call->call.when || call->changed ||
        !judge_hold_shown(judge, only, call->call.when)) {
        return;
    }
    bool same = only->content->len == answer->size &&
                (!answer->size || memcmp(only->content->data, answer->value, answer->size) == 0);
    if (judge_rule(judge, JUDGE_CONTENT, !same && !call->name->foreign)) {
        judge_break(judge, JUDGE_CONTENT, call->name, "process %u read '%.*s', not '%.*s'", call->process->id,
                    (int)answer->size, (const char *)answer->value, (int)only->content->len, only->content->data);
    }
}

/* A kernel that cannot forget an entry at once may go by what it has of it for a moment, for who had the file open. */
static bool look_is_leaving(const struct judge *judge, const struct call *call)
{
    const struct name *name = call->name;
    bool had = call->process->closed == name && call->process->closed_at + JUDGE_LEAVING >= call->call.when;
    for (guint i = 0; i < name->handles->len; i++) {
        had = had || ((const struct handle *)name->handles->pdata[i])->opener == call->process;
    }
    return !judge->options.forgets && had && name->last_ended + JUDGE_LEAVING >= call->call.when;
}

static void look_stat(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    const struct hold *only = look_only(judge, call);
    if (call->handle || call->name->directory) {
        return;
    }
    if (!look_is_leaving(judge, call)) {
        look_present(judge, call->name, call, NULL);
    }
    if (only && !call->changed && judge_hold_shown(judge, only, call->call.when) && !call->name->foreign) {
        const struct handle *handle = only->claim.handle; /* its opener's rights */
        bool owner =
            answer->stat.uid == only->claim.process->uid || (handle && answer->stat.uid == handle->opener->uid);
        if (judge_rule(judge, JUDGE_ATTRIBUTE, !owner || !answer->stat.nlink)) {
            judge_break(judge, JUDGE_ATTRIBUTE, call->name, "stat tells uid %u, %u links", answer->stat.uid,
                        answer->stat.nlink);
        }
        if (judge_rule(judge, JUDGE_ATTRIBUTE, only->mode && (answer->stat.mode & 0777) != only->mode)) {
            judge_break(judge, JUDGE_ATTRIBUTE, call->name, "stat tells mode %o, not %o", answer->stat.mode & 0777,
                        only->mode);
        }
    }
}

/* Each name in the directory is held by somebody, and each that is held is there. */
static void look_list(struct judge *judge, const struct call *call, const struct judge_answer *answer)
{
    g_autofree char *text = g_strndup(answer->value ? answer->value : "", answer->size);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    g_autoptr(GHashTable) shown = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter iterator;
    void *value;
    g_hash_table_iter_init(&iterator, judge->names);
    for (char **line = lines; *line; line++) {
        if (**line) {
            g_hash_table_add(shown, g_strconcat(call->name->path, call->name->path[0] ? "/" : "", *line, NULL));
        }
    }
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        struct name *name = value;
        const char *slash = strrchr(name->path, '/');
        size_t parent = slash ? (size_t)(slash - name->path) : 0;
        if (name->directory || strlen(call->name->path) != parent ||
            strncmp(name->path, call->name->path, parent) != 0) {
            continue;
        }
        if (g_hash_table_contains(shown, name->path)) {
            look_present(judge, name, call, NULL);
        } else {
            look_absent(judge, name, call);
        }
    }
}

/* --- all --------------------------------------------------------------------------------- */

void look_answered(struct judge *judge, struct call *call, const struct judge_answer *answer)
{
    const struct judge_call *request = &call->call;
    bool creates = request->operation == JUDGE_OPEN && request->flags & JUDGE_CREATE;
    bool elsewhere = call->target && strchr(call->target->path, '/'); /* perhaps there is no such directory */
    if (answer->error == ENOENT && !call->handle && call->name && !creates && !elsewhere &&
        request->operation != JUDGE_RMDIR) {
        look_absent(judge, call->name, call);
    }
    if (answer->error == ESTALE && call->handle && request->operation != JUDGE_SETXATTR) {
        look_says_lost(judge, call);
    }
    bool stale = answer->error == ESTALE && (request->operation == JUDGE_READ || request->operation == JUDGE_FSYNC);
    if (stale && call->handle &&
        judge_rule(judge, JUDGE_KEPT, call->handle->released <= request->when && !call->name->foreign)) {
        judge_break(judge, JUDGE_KEPT, call->name, "process %u was told that it lost what was released",
                    call->process->id);
    }
    if (answer->error) {
        return;
    }
    switch (request->operation) {
    case JUDGE_STAT:
        look_stat(judge, call, answer);
        break;
    case JUDGE_LIST:
        look_list(judge, call, answer);
        break;
    case JUDGE_READ:
        look_content(judge, call, answer);
        break;
    case JUDGE_FSYNC:
        look_says_held(judge, call);
        look_reports_loss(judge, call);
        break;
    case JUDGE_WRITE:
        look_reports_loss(judge, call);
        break;
    case JUDGE_GETXATTR:
        look_attribute(judge, call, answer);
        break;
    case JUDGE_GETLK:
        look_probe(judge, call, answer);
        break;
    default:
        break;
    }
}

/* recover: the leases and handle locks that this mount held when it last ended.
 *
 * They are found by the mount's identity, a part of them after the other.  Those that are held by one alone are
 * extended at once, many in a request, which costs the server little: a mount that comes late under load has time then
 * for what follows.  When all are found, each batch is recovered in one request, first those that are held by one
 * alone, which are renewed in the same step, then what is left, which is renewed when it is found, the nearest deadline
 * first (see backend/remote/background.c).  One whose owner is dead ends here when it would have ended before.
 *
 * The mount is there when all of them are recovered, or as long after the beginning as a request takes at most: then
 * the rest is recovered while it serves.  A failed request is repeated until the server refuses it, or has
 * answered nothing for RECOVER_SILENCE request timeouts.  Then the leases that were not found run out.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define RECOVER_PARTS_MAX 20000 /* of some RECOVER_PART leases */
#define RECOVER_PART 1000
#define RECOVER_BATCH 100   /* leases of one request */
#define RECOVER_PENDING 2   /* pending batches: users' requests and renewals are behind these at most */
#define RECOVER_SETTLED 500 /* ms: a lease that is extended so late has been due before, so its owner is final */
#define RECOVER_SILENCE 4   /* request timeouts without any answer, after which the recovery gives up */

struct redis_recovery {
    struct redis *r;
    unsigned open, parts; /* requests without an answer; parts that were requested */
    bool all_found;
    clock_ms answered; /* when the last request was answered; before that, when the recovery began */
    bool failed;       /* what is left is not requested again */
    GBytes *meta;      /* of the last one: most leases are like the one before, and share it */
    char cursor[24];   /* of the next part; "0": of the first, or there is none */
    TAILQ_HEAD(, recovery_batch) batches, waiting; /* requested; to be recovered, in the order of their extension */
    backend_recover_each *found;
    void *arg;
};

struct recovery_lease {
    bool handle_lock;
    char *note; /* as the server has it */
    pid_t pid;  /* of a handle lock: its holder; 0: not known */
    char id[REMOTE_ID_SIZE];
    bool sequence; /* `path` is that of the directory */
    char *path;
    int64_t left;      /* of its term before it was extended, at `extended`; -1: it was not */
    clock_ms extended; /* and when */
};

/* Leases of one request. */
struct recovery_batch {
    TAILQ_ENTRY(recovery_batch) link; /* in recovery->batches or waiting */
    bool waits;                       /* the latter */
    clock_ms extend_at;               /* when to extend it again; CLOCK_NEVER: never */
    struct redis_recovery *recovery;
    bool uncontended; /* by the short scripts */
    GArray *leases;
};

static void recover_lease_clear(gpointer data)
{
    g_free(((struct recovery_lease *)data)->path);
    g_free(((struct recovery_lease *)data)->note);
}

static struct recovery_batch *recover_batch_new(struct redis_recovery *recovery, bool uncontended)
{
    struct recovery_batch *batch = g_new(struct recovery_batch, 1);
    batch->recovery = recovery;
    batch->uncontended = uncontended;
    batch->leases = g_array_new(FALSE, FALSE, sizeof(struct recovery_lease));
    batch->waits = false;
    batch->extend_at = CLOCK_NEVER;
    TAILQ_INSERT_TAIL(&recovery->batches, batch, link);
    g_array_set_clear_func(batch->leases, recover_lease_clear);
    return batch;
}

static void recover_batch_free(struct recovery_batch *batch)
{
    struct redis_recovery *recovery = batch->recovery;
    if (batch->waits) {
        TAILQ_REMOVE(&recovery->waiting, batch, link);
    } else {
        TAILQ_REMOVE(&recovery->batches, batch, link);
    }
    g_array_unref(batch->leases);
    g_free(batch);
}

/* Borrowed. */
static GBytes *recover_meta(struct redis_recovery *recovery, const redisReply *reply)
{
    GBytes *meta = redis_bytes(reply, 5, REDIS_META_MAX);
    if (recovery->meta && g_bytes_equal(meta, recovery->meta)) {
        g_bytes_unref(meta);
    } else {
        g_clear_pointer(&recovery->meta, g_bytes_unref);
        recovery->meta = meta;
    }
    return recovery->meta;
}

/* See recover.lua.  Skips a lease that this mount cannot have had, or has already. */
static void recover_restore(struct redis_recovery *recovery, const struct recovery_lease *lease,
                            const redisReply *reply, clock_ms sent, bool uncontended)
{
    struct redis *r = recovery->r;
    const char *path = lease->path, *leaf = redis_text(reply, 6);
    bool sequence = lease->sequence, waits = redis_number(reply, 7) == 1;
    GBytes *meta = recover_meta(recovery, reply), *content = redis_bytes(reply, 8, REDIS_CONTENT_MAX);
    int64_t left = MAX(redis_time(reply, 1), 0), age = MAX(redis_time(reply, 2), 0), kind = redis_number(reply, 9);
    left = lease->left < 0 ? left : MAX(lease->left - (sent - lease->extended), 0);
    uint64_t fence;
    struct backend_claim claim = {
        .kind = (enum backend_kind)kind,
        .mode = redis_number(reply, 4) ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
        .sequence = sequence,
        .ttl = MAX(redis_time(reply, 3), 1),
        .meta = meta,
        .content = g_bytes_get_size(content) > 0 ? content : NULL,
    };
    char *name = sequence && *path ? g_strconcat(path, "/", leaf, NULL) : g_strdup(sequence ? leaf : path);
    if (remote_ticket_find(&r->remote, lease->id) || !redis_fence(reply, 0, &fence) || !remote_is_path(name) ||
        !redis_key_allowed(&r->keys, name) || (sequence && !remote_is_numbered(leaf)) || kind < BACKEND_LEASE ||
        kind > BACKEND_FCNTL) {
        g_bytes_unref(content);
        g_free(name);
        return;
    }
    struct remote_ticket *t = remote_ticket_restore(
        &r->remote, name, &claim,
        &(struct remote_restored){.id = lease->id,
                                  .waits = waits,
                                  .fence = fence,
                                  .acquired = clock_now() - age,
                                  .deadline = remote_deadline(sent + left - claim.ttl, claim.ttl)});
    t->uncontended = uncontended;
    bool was_due = age - (claim.ttl - left) >= RECOVER_SETTLED;
    GArray *segments =
        claim.kind == BACKEND_FCNTL && !uncontended ? remote_parse_segments(redis_text(reply, 10)) : NULL;
    if (segments) {
        remote_ticket_set_segments(t, segments);
        g_array_unref(segments);
    }
    bool renews =
        recovery->found(recovery->arg, name, &t->head, meta, content) && uncontended && redis_number(reply, 10) == 1;
    if (renews) {
        epoch_use_term(&r->epoch, claim.ttl);
        t->head.deadline = remote_deadline(sent, claim.ttl);
        t->due_after = claim.ttl / 3;
    }
    t->due =
        renews && was_due ? clock_now() + claim.ttl / 3 : clock_now(); /* so that it is renewed, if it needs to be */
    remote_ticket_schedule(&r->remote, t);
    g_bytes_unref(content);
    g_free(name);
}

/* --- asking --- */

enum recover_outcome { RECOVER_ANSWERED, RECOVER_AGAIN, RECOVER_NOT };

static enum recover_outcome recover_answered(struct redis_recovery *recovery, const struct redis_answer *answer)
{
    struct redis *r = recovery->r;
    recovery->open--;
    if (answer->outcome == REMOTE_ANSWERED) {
        recovery->answered = clock_now();
        return RECOVER_ANSWERED;
    }
    bool away =
        answer->outcome == REMOTE_REFUSED || clock_now() - recovery->answered > RECOVER_SILENCE * r->remote.timeout;
    if (!away && !recovery->failed) {
        return RECOVER_AGAIN;
    }
    redis_failure(r, answer);
    if (!recovery->failed) {
        log_warning("the server does not tell which locks this mount held before: they will run out");
    }
    recovery->failed = true;
    return RECOVER_NOT;
}

static void recover_end(struct redis *r)
{
    struct recovery_batch *batch;
    while ((batch = TAILQ_FIRST(&r->recovery->batches)) || (batch = TAILQ_FIRST(&r->recovery->waiting))) {
        recover_batch_free(batch);
    }
    g_clear_pointer(&r->recovery->meta, g_bytes_unref);
    g_clear_pointer(&r->recovery, g_free);
}

static void recover_request_part(struct redis_recovery *recovery);

static void recover_request_batch(struct recovery_batch *batch);

static void recover_request_extension(struct recovery_batch *batch);

/* Behind each answer: recovers the next batches, if all leases are found, or ends. */
static void recover_next_batches(struct redis_recovery *recovery)
{
    struct recovery_batch *batch;
    while ((recovery->failed || (recovery->all_found && recovery->open < RECOVER_PENDING)) &&
           (batch = TAILQ_FIRST(&recovery->waiting))) {
        TAILQ_REMOVE(&recovery->waiting, batch, link);
        TAILQ_INSERT_TAIL(&recovery->batches, batch, link);
        batch->waits = false;
        if (recovery->failed) {
            recover_batch_free(batch);
        } else if (batch->extend_at <= clock_now()) {
            recover_request_extension(batch);
        } else {
            recover_request_batch(batch);
        }
    }
    if (recovery->open == 0) {
        recover_end(recovery->r);
    }
}

static void recover_on_batch(void *arg, const struct redis_answer *answer)
{
    struct recovery_batch *batch = arg;
    struct redis_recovery *recovery = batch->recovery;
    enum recover_outcome outcome = recover_answered(recovery, answer);
    if (outcome == RECOVER_AGAIN) {
        recover_request_batch(batch);
        return;
    }
    struct recovery_batch *rest = recover_batch_new(recovery, false);
    for (guint i = 0; outcome == RECOVER_ANSWERED && i < batch->leases->len; i++) {
        struct recovery_lease *lease = &g_array_index(batch->leases, struct recovery_lease, i);
        const redisReply *reply = i < answer->reply->elements ? answer->reply->element[i] : NULL;
        if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 11) {
            recover_restore(recovery, lease, reply, answer->sent, batch->uncontended);
        } else if (batch->uncontended) {
            g_array_append_val(rest->leases, *lease);
            lease->path = lease->note = NULL;
        } else if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 0 && lease->handle_lock) {
            remote_log_lost(lease->path, lease->pid);
        }
    }
    recover_batch_free(batch);
    recover_request_batch(rest);
    recover_next_batches(recovery);
}

static void recover_fill_uncontended(struct redis_call *call, const GArray *leases)
{
    struct redis *r = call->r;
    call->script = REDIS_UNCONTENDED_RECOVER;
    guint begin = redis_call_array(call, "tickets");
    for (guint i = 0; i < leases->len; i++) {
        const struct recovery_lease *lease = &g_array_index(leases, struct recovery_lease, i);
        redis_uncontended_add_lease(call, lease->id, lease->path);
    }
    pack_count(r->packed, begin, leases->len);
    redis_call_key(call, 'm', NULL);
}

static void recover_fill(struct redis_call *call, const GArray *leases)
{
    struct redis *r = call->r;
    call->script = REDIS_RECOVER;
    guint begin = redis_call_array(call, "locks");
    for (guint i = 0; i < leases->len; i++) {
        const struct recovery_lease *lease = &g_array_index(leases, struct recovery_lease, i);
        redis_call_lock(call, lease->path, lease->sequence, NULL);
        pack_text(r->packed, lease->id, strlen(lease->id));
        pack_text(r->packed, lease->note, strlen(lease->note));
        pack_number(r->packed, lease->sequence);
    }
    pack_count(r->packed, begin, 3 * leases->len);
}

/* If there is anything in it. */
static void recover_request_batch(struct recovery_batch *batch)
{
    struct redis *r = batch->recovery->r;
    struct redis_call call = {.r = r};
    if (batch->leases->len == 0) {
        recover_batch_free(batch);
        return;
    }
    if (batch->uncontended) {
        recover_fill_uncontended(&call, batch->leases);
    } else {
        recover_fill(&call, batch->leases);
    }
    redis_call_text(&call, "mount", r->mount);
    redis_call_send(&call, r->remote.timeout, recover_on_batch, batch);
    batch->recovery->open++;
}

/* --- extending --- */

static void recover_postpone(struct recovery_batch *batch)
{
    struct redis_recovery *recovery = batch->recovery;
    TAILQ_REMOVE(&recovery->batches, batch, link);
    TAILQ_INSERT_TAIL(&recovery->waiting, batch, link);
    batch->waits = true;
}

/* If an answer is lost, a lease may be extended twice: if its owner is dead, it ends late by the first extension. */
static void recover_on_extended(void *arg, const struct redis_answer *answer)
{
    struct recovery_batch *batch = arg;
    struct redis_recovery *recovery = batch->recovery;
    enum recover_outcome outcome = recover_answered(recovery, answer);
    if (outcome == RECOVER_AGAIN) {
        recover_request_extension(batch);
        return;
    }
    for (guint i = 0; outcome == RECOVER_ANSWERED && i < MIN(batch->leases->len, answer->reply->elements); i++) {
        struct recovery_lease *lease = &g_array_index(batch->leases, struct recovery_lease, i);
        int64_t left = redis_time(answer->reply, i);
        if (lease->left < 0 || left < 0) {
            lease->left = left;
            lease->extended = answer->sent;
        }
    }
    if (outcome == RECOVER_ANSWERED) {
        int64_t ttl = redis_time(answer->reply, batch->leases->len);
        batch->extend_at = ttl > 0 ? answer->sent + ttl / 2 : CLOCK_NEVER;
        recover_postpone(batch);
    } else {
        recover_batch_free(batch);
    }
    recover_next_batches(recovery);
}

/* Of a sequence it is left to its recovery. */
static void recover_request_extension(struct recovery_batch *batch)
{
    struct redis_recovery *recovery = batch->recovery;
    struct redis *r = recovery->r;
    struct redis_call call = {.r = r, .script = REDIS_UNCONTENDED_EXTEND};
    if (batch->leases->len == 0) {
        recover_batch_free(batch);
        return;
    }
    guint begin = redis_call_array(&call, "tickets");
    for (guint i = 0; i < batch->leases->len; i++) {
        const struct recovery_lease *lease = &g_array_index(batch->leases, struct recovery_lease, i);
        redis_call_key(&call, 0, lease->path);
        pack_text(r->packed, lease->id, strlen(lease->id));
    }
    pack_count(r->packed, begin, batch->leases->len);
    redis_call_send(&call, r->remote.timeout, recover_on_extended, batch);
    recovery->open++;
}

/* Of a batch that is full, or the last of its part. */
static void recover_request_first(struct recovery_batch *batch)
{
    if (batch->uncontended) {
        recover_request_extension(batch);
    } else {
        recover_postpone(batch);
    }
}

/* --- finding --- */

/* As look.lua notes it: ticket; l or h, of a sequence s or q, then the pid of a handle lock (h, q); path. */
static bool recover_read_note(struct redis *r, const char *note, struct recovery_lease *ret)
{
    char **words = g_strsplit(note, " ", 3);
    bool good = g_strv_length(words) == 3 && remote_is_id(words[0]) && redis_key_allowed(&r->keys, words[2]);
    if (good) {
        char kind = *words[1];
        *ret = (struct recovery_lease){.sequence = kind == 's' || kind == 'q',
                                       .handle_lock = kind == 'h' || kind == 'q',
                                       .pid = atoi(words[1] + 1),
                                       .note = g_strdup(note),
                                       .path = g_strdup(words[2]),
                                       .left = -1};
        g_strlcpy(ret->id, words[0], sizeof ret->id);
    }
    g_strfreev(words);
    return good;
}

/* The short scripts are not for tickets of a sequence. */
static void recover_request_leases(struct redis_recovery *recovery, const redisReply *notes)
{
    struct recovery_batch *batches[] = {recover_batch_new(recovery, true), recover_batch_new(recovery, false)};
    for (size_t i = 0; i < notes->elements; i++) {
        struct recovery_lease lease;
        if (!recover_read_note(recovery->r, redis_text(notes, i), &lease)) {
            continue;
        }
        struct recovery_batch **batch = &batches[lease.sequence];
        g_array_append_val((*batch)->leases, lease);
        if ((*batch)->leases->len == RECOVER_BATCH) {
            recover_request_first(*batch);
            *batch = recover_batch_new(recovery, !lease.sequence);
        }
    }
    recover_request_first(batches[0]);
    recover_request_first(batches[1]);
}

static void recover_on_part(void *arg, const struct redis_answer *answer)
{
    struct redis_recovery *recovery = arg;
    enum recover_outcome outcome = recover_answered(recovery, answer);
    if (outcome == RECOVER_AGAIN) {
        recover_request_part(recovery);
        return;
    }
    g_strlcpy(recovery->cursor, "0", sizeof recovery->cursor);
    if (outcome == RECOVER_ANSWERED && answer->reply->elements == 2) {
        g_strlcpy(recovery->cursor, redis_text(answer->reply, 0), sizeof recovery->cursor);
        recover_request_leases(recovery, answer->reply->element[1]);
    }
    /* after the requests above, so that the server always has work */
    if (strcmp(recovery->cursor, "0") != 0 && recovery->parts < RECOVER_PARTS_MAX && !recovery->failed) {
        recover_request_part(recovery);
    } else {
        recovery->all_found = true;
    }
    recover_next_batches(recovery);
}

static void recover_request_part(struct redis_recovery *recovery)
{
    struct redis_call call = {.r = recovery->r, .script = REDIS_LEASES};
    redis_call_key(&call, 'm', NULL);
    redis_call_text(&call, "cursor", recovery->cursor);
    redis_call_number(&call, "max", RECOVER_PART);
    redis_call_send(&call, recovery->r->remote.timeout, recover_on_part, recovery);
    recovery->open++;
    recovery->parts++;
}

void redis_recover(struct remote *remote, backend_recover_each *found, void *arg)
{
    struct redis *r = (struct redis *)remote;
    r->recovery = g_new0(struct redis_recovery, 1);
    *r->recovery = (struct redis_recovery){.r = r, .found = found, .arg = arg, .cursor = "0", .answered = clock_now()};
    TAILQ_INIT(&r->recovery->batches);
    TAILQ_INIT(&r->recovery->waiting);
    recover_request_part(r->recovery);
}

void redis_recover_stop(struct redis *r)
{
    if (r->recovery) {
        recover_end(r);
    }
}

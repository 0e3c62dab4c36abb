/* recover: the leases that this mount held when it last ended.
 *
 * They are found by the mount's identity.  The question is asked before the
 * mount is there, so the loop has nothing else to do until it is answered, but to
 * renew what was found.  With a server that is away nothing is found, and the leases
 * run out; with one that is slow a question is repeated while others are answered.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redis/private.h"

#define RECOVER_PARTS_MAX 20000 /* of some 500 leases */
#define RECOVER_SILENCE 4       /* times the time of a request, in which a server that is busy must have answered one */

struct recovery {
    struct redis *r;
    unsigned open;     /* requests that are not answered */
    clock_ms answered; /* when the last one was; 0: none */
    bool failed;       /* what is left is not asked for (again) */
    GBytes *meta;      /* of the last one: most leases are like the one before, and share it */
    char cursor[24];   /* of the part that is asked for next; "0": the first, and none */
    backend_recover_each *found;
    void *arg;
};

struct recovery_lease {
    struct recovery *recovery;
    char **words; /* as noted: ticket, 's' if it is one of a sequence, path */
};

/* Borrowed. */
static GBytes *recover_meta(struct recovery *recovery, const redisReply *reply)
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

/* See recover.lua.  One that this mount could not have had, or has been told of, is passed over. */
static void recover_restore(struct recovery_lease *lease, const struct redis_answer *answer)
{
    struct redis *r = lease->recovery->r;
    const redisReply *reply = answer->reply;
    const char *token = lease->words[0], *path = lease->words[2], *leaf = redis_text(reply, 6);
    bool sequence = *lease->words[1] == 's', waits = redis_number(reply, 7) == 1;
    GBytes *meta = recover_meta(lease->recovery, reply), *content = redis_bytes(reply, 8, REDIS_CONTENT_MAX);
    int64_t left = MAX(redis_time(reply, 1), 0), age = MAX(redis_time(reply, 2), 0);
    uint64_t fence;
    struct backend_claim claim = {
        .kind = BACKEND_LEASE,
        .mode = redis_number(reply, 4) ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
        .sequence = sequence,
        .ttl = MAX(redis_time(reply, 3), 1),
        .meta = meta,
        .content = g_bytes_get_size(content) > 0 ? content : NULL,
    };
    char *name = sequence && *path ? g_strconcat(path, "/", leaf, NULL) : g_strdup(sequence ? leaf : path);
    if (remote_ticket_find(&r->remote, token) || !redis_fence(reply, 0, &fence) || !redis_is_path(name) ||
        !redis_key_allowed(r, name) || (sequence && !redis_is_numbered(leaf))) {
        g_bytes_unref(content);
        g_free(name);
        return;
    }
    struct remote_ticket *t = remote_ticket_new(&r->remote, name, &claim);
    remote_ticket_adopt(&r->remote, t, token);
    remote_ticket_turn(&r->remote, t, waits ? REMOTE_WAITING : REMOTE_HELD);
    t->wait = true;
    t->refresh = waits ? clock_now() + REMOTE_REFRESH_MIN : CLOCK_NEVER;
    t->head.fence = fence;
    t->head.deadline = answer->sent + left - (claim.ttl / 100 + 2);
    remote_ticket_fix_term(t);
    t->head.acquired = clock_now() - age;
    t->due = clock_now(); /* so that it is renewed, if it is to be */
    remote_ticket_schedule(&r->remote, t);
    lease->recovery->found(lease->recovery->arg, name, &t->head, meta, content);
    g_bytes_unref(content);
    g_free(name);
}

enum recover_outcome { RECOVER_TOLD, RECOVER_AGAIN, RECOVER_NOT };

static enum recover_outcome recover_answered(struct recovery *recovery, const struct redis_answer *answer)
{
    struct redis *r = recovery->r;
    recovery->open--;
    if (answer->outcome == REMOTE_ANSWERED) {
        recovery->answered = clock_now();
        return RECOVER_TOLD;
    }
    bool away = answer->outcome == REMOTE_REFUSED || !recovery->answered ||
                clock_now() - recovery->answered > RECOVER_SILENCE * r->timeout;
    if (!away && !recovery->failed) {
        return RECOVER_AGAIN;
    }
    redis_failure(r, answer);
    if (!recovery->failed) {
        log_warning("the server does not tell which leases this mount held before: they will run out");
    }
    recovery->failed = true;
    return RECOVER_NOT;
}

static void recover_ask(struct recovery_lease *lease);

static void recover_on_lease(void *arg, const struct redis_answer *answer)
{
    struct recovery_lease *lease = arg;
    enum recover_outcome outcome = recover_answered(lease->recovery, answer);
    if (outcome == RECOVER_AGAIN) {
        recover_ask(lease);
        return;
    }
    if (outcome == RECOVER_TOLD && answer->reply->elements == 9) {
        recover_restore(lease, answer);
    }
    g_strfreev(lease->words);
    g_free(lease);
}

static void recover_ask(struct recovery_lease *lease)
{
    struct redis *r = lease->recovery->r;
    char **words = lease->words;
    struct redis_call call = {0};
    bool sequence = *words[1] == 's';
    redis_call_lock(&call, r, REDIS_RECOVER, words[2], sequence, NULL);
    redis_call_leaf(&call, words[2], sequence);
    redis_call_text(&call, "ticket", words[0]);
    redis_call_text(&call, "path", words[2]);
    redis_call_text(&call, "mount", r->mount);
    redis_call_send(&call, r->timeout, recover_on_lease, lease);
    lease->recovery->open++;
}

static void recover_noted(struct recovery *recovery, const char *noted)
{
    char **words = g_strsplit(noted, " ", 3);
    if (g_strv_length(words) < 3 || !remote_is_token(words[0]) || !redis_key_allowed(recovery->r, words[2])) {
        g_strfreev(words);
        return;
    }
    struct recovery_lease *lease = g_new(struct recovery_lease, 1);
    *lease = (struct recovery_lease){recovery, words};
    recover_ask(lease);
}

static void recover_send_part(struct recovery *recovery);

static void recover_on_part(void *arg, const struct redis_answer *answer)
{
    struct recovery *recovery = arg;
    enum recover_outcome outcome = recover_answered(recovery, answer);
    if (outcome == RECOVER_AGAIN) {
        recover_send_part(recovery);
        return;
    }
    g_strlcpy(recovery->cursor, "0", sizeof recovery->cursor);
    if (outcome == RECOVER_TOLD && answer->reply->elements == 2) {
        const redisReply *part = answer->reply->element[1];
        g_strlcpy(recovery->cursor, redis_text(answer->reply, 0), sizeof recovery->cursor);
        for (size_t i = 0; i < part->elements; i++) {
            recover_noted(recovery, redis_text(part, i));
        }
    }
}

static void recover_send_part(struct recovery *recovery)
{
    struct redis_call call = {.r = recovery->r, .script = REDIS_LEASES};
    redis_call_key(&call, 'm', NULL);
    redis_call_text(&call, "cursor", recovery->cursor);
    redis_call_send(&call, recovery->r->timeout, recover_on_part, recovery);
    recovery->open++;
}

static void recover_ask_part(struct recovery *recovery)
{
    recover_send_part(recovery);
    while (recovery->open > 0) {
        ev_run(recovery->r->remote.loop, EVRUN_ONCE);
    }
}

void redis_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    struct recovery recovery = {.r = (struct redis *)b, .found = found, .arg = arg, .cursor = "0"};
    for (unsigned parts = 0; parts == 0 || (strcmp(recovery.cursor, "0") != 0 && parts < RECOVER_PARTS_MAX); parts++) {
        recover_ask_part(&recovery);
    }
    g_clear_pointer(&recovery.meta, g_bytes_unref);
}

/* recover: restores the leases and handle locks that this mount held when it last ended.
 *
 * It reads them by the mount's identity, in parts.  The mount answers requests once all are found, or after the timeout
 * of a request; then it finds the rest meanwhile.  It reads again what other transactions keep.  If the server is away
 * it finds nothing, and the leases expire.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/postgresql/private.h"

#define RECOVER_PART 500

struct pq_recovery {
    struct postgresql *p;
    GBytes *path; /* the last one */
    bool busy;    /* other transactions keep some of this reading: read them again */
    bool again;   /* it is such a reading */
    backend_recover_each *found;
    void *arg;
};

void pq_recover_stop(struct postgresql *p)
{
    if (p->recovery) {
        g_bytes_unref(p->recovery->path);
        g_clear_pointer(&p->recovery, g_free);
    }
}

static char *recover_name(const char *path, const char *leaf)
{
    size_t length = strlen(path);
    bool queue = length > 0 && path[length - 1] == '/';
    if (!queue) {
        return g_strdup(path);
    }
    return leaf ? g_strconcat(strcmp(path, "/") == 0 ? "" : path, leaf, NULL) : NULL;
}

/* Ignores a row that is not valid, or a ticket that is known already. */
static void recover_restore(struct pq_recovery *recovery, const PGresult *rows, int row, clock_ms sent)
{
    struct remote *r = &recovery->p->remote;
    char *path = pq_name(rows, row, "path"), *leaf = pq_name(rows, row, "name"),
         *name = path ? recover_name(path, leaf) : NULL;
    const char *id = pq_text(rows, row, "id");
    GBytes *meta = pq_bytes(rows, row, "meta", POSTGRESQL_META_MAX),
           *content = pq_bytes(rows, row, "content", POSTGRESQL_CONTENT_MAX);
    int64_t left = MAX(pq_number(rows, row, "remaining"), 0), age = MAX(pq_number(rows, row, "age"), 0);
    uint64_t fence = pq_fence(rows, row, "number");
    int64_t kind = pq_number(rows, row, "kind");
    bool holds = *pq_text(rows, row, "held") == 't';
    struct backend_claim claim = {
        .kind = (enum backend_kind)kind,
        .mode = pq_number(rows, row, "mode") == 1 ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
        .sequence = path && g_str_has_suffix(path, "/"),
        .ttl = MAX(pq_number(rows, row, "ttl"), 1),
        .meta = meta,
        .content = g_bytes_get_size(content) > 0 ? content : NULL,
    };
    if (name && fence && kind >= BACKEND_LEASE && kind <= BACKEND_FCNTL && remote_is_id(id) &&
        !remote_ticket_find(r, id)) {
        struct remote_ticket *t = remote_ticket_restore(
            r, name, &claim,
            &(struct remote_restored){.id = id,
                                      .waits = !holds,
                                      .fence = fence,
                                      .acquired = clock_now() - age,
                                      .deadline = remote_deadline(sent + left - claim.ttl, claim.ttl)});
        GArray *segments = kind == BACKEND_FCNTL ? remote_parse_segments(pq_text(rows, row, "segments")) : NULL;
        if (segments) {
            remote_ticket_set_segments(t, segments);
            g_array_unref(segments);
        }
        bool renews = recovery->found(recovery->arg, name, &t->head, meta, content);
        if (renews) {
            epoch_use_term(&recovery->p->epoch, claim.ttl);
        }
        t->due_after = renews ? claim.ttl / 3 : t->due_after;
        t->due = clock_now(); /* its user now decides whether to renew it */
        remote_ticket_schedule(r, t);
    }
    g_bytes_unref(meta);
    g_bytes_unref(content);
    g_free(path);
    g_free(leaf);
    g_free(name);
}

static void recover_request(struct pq_recovery *recovery);

static void recover_on_part(void *arg, const struct pq_answer *answer)
{
    struct pq_recovery *recovery = arg;
    int count = answer->outcome == REMOTE_ANSWERED ? PQntuples(answer->rows) : 0;
    if (answer->outcome != REMOTE_ANSWERED) {
        log_warning("the server does not tell which locks this mount held before: they will run out");
    }
    for (int i = 0; i < count; i++) {
        recover_restore(recovery, answer->rows, i, answer->sent);
        recovery->busy = recovery->busy || *pq_text(answer->rows, i, "busy") == 't';
    }
    bool more = count >= RECOVER_PART;
    if (!more && (!recovery->busy || answer->outcome != REMOTE_ANSWERED)) {
        pq_recover_stop(recovery->p);
        return;
    }
    g_bytes_unref(recovery->path);
    recovery->path = more ? pq_bytes(answer->rows, count - 1, "path", POSTGRESQL_CONTENT_MAX) : g_bytes_new(NULL, 0);
    recovery->again = recovery->again || !more;
    recovery->busy = recovery->busy && more;
    recover_request(recovery);
}

static void recover_request(struct pq_recovery *recovery)
{
    struct pq_parameters f = {.count = 0};
    pq_add_text(&f, recovery->p->identity);
    pq_add_text(&f, recovery->p->mount);
    pq_add_bytes(&f, recovery->path);
    pq_add_text(&f, recovery->again ? "t" : "f");
    pq_add_number(&f, RECOVER_PART);
    postgresql_send(recovery->p, PQ_RECOVER, &f, 0, recover_on_part, recovery);
}

void pq_recover(struct remote *r, backend_recover_each *found, void *arg)
{
    struct postgresql *p = (struct postgresql *)r;
    p->recovery = g_new(struct pq_recovery, 1);
    *p->recovery = (struct pq_recovery){.p = p, .path = g_bytes_new(NULL, 0), .found = found, .arg = arg};
    recover_request(p->recovery);
}

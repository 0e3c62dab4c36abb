/* request: the procedures of remote.h, as calls of functions, and their answers. */
#include <string.h>

#include "backend/log.h"
#include "backend/postgresql/private.h"

static void request_answer(struct remote_request *request, const struct pq_answer *given, struct remote_answer *answer)
{
    answer->outcome = given->outcome;
    answer->sent = given->sent;
    answer->repeated = given->repeated;
    request->on_answer(request, answer);
}

/* An answer that no function gives. */
static void request_disbelieve(struct postgresql *p, struct remote_answer *answer)
{
    log_warning("%s: an answer that leasefs cannot read", pq_link_address(p->link));
    answer->result = BACKEND_DAMAGED;
}

/* --- acquire, test --- */

static void request_fill_claim(struct pq_parameters *f, struct postgresql *p, const struct backend_claim *claim,
                               bool wait, bool test)
{
    pq_add_text(f, p->mount);
    pq_add_text(f, p->identity);
    pq_add_number(f, claim->kind);
    pq_add_number(f, claim->mode);
    pq_add_number(f, claim->ttl);
    pq_add_number(f, claim->ttl); /* the liveness, which is set below */
    pq_add_flag(f, wait);
    pq_add_flag(f, test);
    pq_add_nonzero(f, claim->handle);
    pq_add_nonzero(f, claim->lock_owner);
    pq_add_offset(f, claim->start);
    pq_add_offset(f, claim->end);
}

/* The first parameters of acquire and restore. */
static void request_add_claimant(struct pq_parameters *f, const struct remote_ticket *t, const struct postgresql *p)
{
    const char *leaf;
    char *path = pq_lock_path(t->lock->name, t->lock->sequence), *parent = remote_parent(remote_ticket_name(t), &leaf);
    pq_add_path(f, path);
    pq_add_path(f, parent);
    pq_add_path(f, leaf);
    pq_add_flag(f, t->lock->sequence);
    pq_add_text(f, t->id);
    pq_add_text(f, p->mount);
    pq_add_text(f, p->identity);
    pq_add_number(f, t->head.kind);
    g_free(path);
    g_free(parent);
}

static void request_fill_acquire(struct pq_parameters *f, const struct remote_request *request,
                                 const struct remote_ticket *t)
{
    request_add_claimant(f, t, postgresql_of(request));
    pq_add_number(f, t->head.mode);
    pq_add_number(f, t->head.ttl);
    pq_add_number(f, remote_ticket_liveness(t, t->head.ttl));
    pq_add_flag(f, t->wait);
    pq_add_flag(f, false);
    pq_add_nonzero(f, t->handle);
    pq_add_nonzero(f, t->lock_owner);
    pq_add_offset(f, t->start);
    pq_add_offset(f, t->end);
    pq_add_nonzero(f, t->head.fence);
    pq_add_bytes(f, t->meta);
    pq_add_bytes(f, t->head.content);
}

static void request_on_acquired(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct postgresql *p = postgresql_of(request);
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {.result = pq_result(given, "result")};
    bool ok = answer.result == BACKEND_OK, there = ok || answer.result == BACKEND_QUEUED;
    char *leaf = NULL;
    GArray *segments = NULL;
    if (given->outcome == REMOTE_ANSWERED && there) {
        answer.fence = pq_fence(given->rows, 0, "number");
        answer.id = pq_text(given->rows, 0, "id");
        segments = remote_parse_segments(pq_text(given->rows, 0, "segments"));
        answer.segments = segments;
        answer.rank = pq_number(given->rows, 0, "rank");
        answer.wait = pq_number(given->rows, 0, "wait");
        leaf = t->lock->sequence ? pq_name(given->rows, 0, "name") : g_strdup("");
        bool named = leaf && (!t->lock->sequence || (remote_is_numbered(leaf) && remote_is_component(leaf)));
        answer.leaf = leaf;
        if (!answer.fence || !named || (ok && !remote_ticket_accepts_id(request->r, t, answer.id))) {
            request_disbelieve(p, &answer);
        }
    } else if (answer.result == BACKEND_BUSY) {
        pq_describe(request->r, t->lock->name, given->rows, &holder);
        answer.info = &holder;
    }
    request_answer(request, given, &answer);
    remote_info_clear(&holder);
    g_clear_pointer(&segments, g_array_unref);
    g_free(leaf);
}

/* Does the answer describe a ticket of this mount? */
static bool request_describes_own(const struct postgresql *p, const PGresult *rows)
{
    return strcmp(pq_text(rows, 0, "mount"), p->mount) == 0;
}

static void request_test(struct remote_request *request);

static void request_on_tested(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct remote_answer answer = {.result = pq_result(given, "result"), .info = &info};
    if (answer.result == BACKEND_BUSY) {
        info.holders = 1;
        pq_describe(request->r, request->name, given->rows, &info);
        bool expired = remote_info_is_expired(&info, request_describes_own(postgresql_of(request), given->rows));
        if (expired && !request->verified) { /* another may be named behind its release */
            request->verified = true;
            remote_info_clear(&info);
            request_test(request);
            return;
        }
        info.type = expired ? BACKEND_NOTHING : info.type;
        answer.result = BACKEND_OK;
    }
    request_answer(request, given, &answer);
    remote_info_clear(&info);
}

static void request_test(struct remote_request *request)
{
    struct postgresql *p = postgresql_of(request);
    struct pq_parameters f = {.count = 0};
    char id[REMOTE_ID_SIZE];
    remote_make_id(id);
    pq_add_name(&f, request->name);
    pq_add_flag(&f, false);
    pq_add_text(&f, id);
    request_fill_claim(&f, p, &request->claim, false, true);
    pq_add_null(&f);
    pq_add_null(&f);
    pq_add_null(&f);
    postgresql_send(p, PQ_ACQUIRE, &f, 0, request_on_tested, request);
}

/* --- stat, list, directories --- */

static void request_send_stat(struct remote_request *request);

static void request_read_stat(struct postgresql *p, const struct remote_request *request, const PGresult *rows,
                              struct backend_info *info)
{
    if (strcmp(pq_text(rows, 0, "result"), "directory") == 0) {
        info->type = BACKEND_DIRECTORY;
        info->directory = (struct backend_directory){
            .ttl = MAX(pq_number(rows, 0, "d_ttl"), 0),
            .width = (uint32_t)CLAMP(pq_number(rows, 0, "d_width"), 1, UINT32_MAX),
            .delay = MAX(pq_number(rows, 0, "d_delay"), 0),
            .sequence = pq_fence(rows, 0, "d_sequence"),
            .meta = pq_bytes(rows, 0, "d_meta", POSTGRESQL_META_MAX),
        };
    } else if (strcmp(pq_text(rows, 0, "result"), "lock") == 0) {
        pq_describe(&p->remote, request->name, rows, info);
        info->content = pq_bytes(rows, 0, "content", POSTGRESQL_CONTENT_MAX);
        info->holders = (uint32_t)MAX(pq_number(rows, 0, "holders"), 0);
        info->position = (uint32_t)MAX(pq_number(rows, 0, "position"), 0);
    }
    if (info->type == BACKEND_DIRECTORY) {
        remote_directory_cache_add(&p->remote, request->name,
                                   &(struct remote_directory){.attributes = info->directory});
    }
    info->waiters = (uint32_t)MAX(pq_number(rows, 0, "waiters"), 0);
}

static void request_on_stat(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct postgresql *p = postgresql_of(request);
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct remote_answer answer = {.result = given->result, .info = &info};
    bool again = false;
    if (given->outcome == REMOTE_ANSWERED) {
        request_read_stat(p, request, given->rows, &info);
        again = remote_stat_again(request, &info, request_describes_own(p, given->rows));
    }
    if (again) {
        request_send_stat(request);
    } else {
        request_answer(request, given, &answer);
    }
    remote_info_clear(&info);
}

static void request_send_stat(struct remote_request *request)
{
    struct pq_parameters f = {.count = 0};
    pq_add_name(&f, request->name);
    postgresql_send(postgresql_of(request), PQ_STAT, &f, 0, request_on_stat, request);
}

static void request_on_mounts(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    GString *text = g_string_new(NULL);
    bool known = given->outcome == REMOTE_ANSWERED;
    for (int i = 0; known && i < PQntuples(given->rows); i++) {
        const char *version = pq_text(given->rows, i, "version"), *age = pq_text(given->rows, i, "age");
        g_string_append_printf(text, "%s\t%s\t%s\n", *version ? version : "-", pq_text(given->rows, i, "host"),
                               *age ? age : "-");
    }
    struct backend_info info = {.type = BACKEND_DIRECTORY, .content = g_string_free_to_bytes(text)};
    bool lacks = given->outcome == REMOTE_REFUSED; /* a schema that an earlier version made lacks the function */
    struct remote_answer answer = {.result = lacks ? BACKEND_UNSUPPORTED : given->result, .info = &info};
    request_answer(request, given, &answer);
    remote_info_clear(&info);
}

static void request_send_mounts(struct remote_request *request)
{
    struct pq_parameters f = {.count = 0};
    postgresql_send(postgresql_of(request), PQ_MOUNTS, &f, 0, request_on_mounts, request);
}

static int request_list_part(const struct remote_request *request)
{
    return (int)MIN(request->listing->max, POSTGRESQL_LIST_MAX);
}

/* The first row has the result; the others have a name each. */
static void request_on_listed(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct remote_answer answer = {.result = pq_result(given, "result")};
    int count = given->outcome == REMOTE_ANSWERED ? PQntuples(given->rows) : 0;
    char *name = NULL;
    for (int i = 1; i < count; i++) {
        bool directory = strcmp(pq_text(given->rows, i, "result"), "directory") == 0;
        g_free(name);
        name = pq_name(given->rows, i, "name");
        remote_listing_add(request, name ? name : "", directory ? BACKEND_DIRECTORY : BACKEND_LOCK, NULL);
    }
    remote_listing_end_part(request, count > request_list_part(request) && name ? name : "");
    request_answer(request, given, &answer);
    g_free(name);
}

static void request_on_tickets(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct remote_answer answer = {.result = given->result};
    int count = given->outcome == REMOTE_ANSWERED ? PQntuples(given->rows) : 0;
    char *name = NULL;
    for (int i = 0; i < count; i++) {
        GBytes *meta = pq_bytes(given->rows, i, "meta", POSTGRESQL_META_MAX);
        struct backend_info info =
            remote_listing_ticket(request, pq_text(given->rows, i, "id"), *pq_text(given->rows, i, "held") == 't',
                                  pq_number(given->rows, i, "age"), meta);
        g_free(name);
        name = pq_name(given->rows, i, "name");
        remote_listing_add(request, name ? name : "", BACKEND_LOCK, &info);
        g_bytes_unref(meta);
    }
    remote_listing_end_part(request, count >= request_list_part(request) && name ? name : "");
    request_answer(request, given, &answer);
    g_free(name);
}

static void request_list(struct remote_request *request)
{
    bool tickets = request->procedure == REMOTE_TICKETS;
    struct pq_parameters f = {.count = 0};
    pq_add_path(&f, request->name);
    pq_add_path(&f, request->listing->after);
    pq_add_number(&f, request_list_part(request));
    postgresql_send(postgresql_of(request), tickets ? PQ_TICKETS : PQ_LIST, &f, request->listing->timeout,
                    tickets ? request_on_tickets : request_on_listed, request);
}

static void request_on_directory(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct remote_answer answer = {.result = pq_result(given, NULL)};
    if (request->procedure == REMOTE_RMDIR && answer.result == BACKEND_MISSING && given->repeated) {
        answer.result = BACKEND_OK; /* the first attempt, whose answer was lost, removed it */
    }
    request_answer(request, given, &answer);
}

static void request_fill_directory(struct pq_parameters *f, const struct backend_directory *d)
{
    pq_add_number(f, d->ttl);
    pq_add_number(f, d->width);
    pq_add_number(f, d->delay);
    pq_add_number(f, (int64_t)d->sequence);
    pq_add_bytes(f, d->meta);
}

static void request_change_directory(struct remote_request *request)
{
    struct postgresql *p = postgresql_of(request);
    struct pq_parameters f = {.count = 0};
    if (request->procedure == REMOTE_MKDIR) {
        char nonce[REMOTE_ID_SIZE];
        remote_make_id(nonce);
        pq_add_name(&f, request->name);
        request_fill_directory(&f, &request->directory);
        pq_add_text(&f, nonce);
        postgresql_send(p, PQ_MKDIR, &f, 0, request_on_directory, request);
    } else if (request->procedure == REMOTE_RMDIR) {
        pq_add_path(&f, request->name);
        postgresql_send(p, PQ_RMDIR, &f, 0, request_on_directory, request);
    } else {
        pq_add_path(&f, request->name);
        request_fill_directory(&f, &request->directory);
        postgresql_send(p, PQ_SET_DIRECTORY, &f, 0, request_on_directory, request);
    }
}

/* --- changing tickets --- */

static void request_add_change(struct pq_parameters *f, const struct backend_change *c)
{
    if (c->set & BACKEND_SET_META) {
        pq_add_bytes(f, c->meta);
    } else {
        pq_add_null(f);
    }
    if (c->set & BACKEND_SET_CONTENT) {
        pq_add_bytes(f, c->content);
    } else {
        pq_add_null(f);
    }
}

static void request_add_ticket(struct pq_parameters *f, const struct remote_ticket *t)
{
    char *path = pq_lock_path(t->lock->name, t->lock->sequence);
    pq_add_path(f, path);
    pq_add_text(f, t->id);
    g_free(path);
}

static void request_add_held(struct pq_parameters *f, const GArray *segments)
{
    if (segments) {
        pq_add_segments(f, segments, BACKEND_EXCLUSIVE);
        pq_add_segments(f, segments, BACKEND_SHARED);
    } else {
        pq_add_null(f);
        pq_add_null(f);
    }
}

/* During a grace period a renewal carries all data of the ticket, so that the server can restore it. */
static void request_fill_restore(struct pq_parameters *f, const struct remote_request *request,
                                 const struct remote_ticket *t)
{
    request_add_claimant(f, t, postgresql_of(request));
    pq_add_number(f, request->renewal.mode);
    pq_add_number(f, request->ttl);
    pq_add_number(f, request->renewal.left);
    pq_add_nonzero(f, t->handle);
    pq_add_nonzero(f, t->lock_owner);
    request_add_held(f, request->renewal.segments ? request->renewal.segments : t->segments);
    pq_add_nonzero(f, t->head.fence);
    pq_add_number(f, clock_now() - t->head.acquired);
    pq_add_bytes(f, t->meta);
    pq_add_bytes(f, t->head.content);
}

static void request_fill_release(struct pq_parameters *f, const struct remote_request *request,
                                 const struct remote_ticket *t)
{
    char *path = pq_lock_path(request->name, request->release.sequence);
    (void)t;
    pq_add_path(f, path);
    pq_add_text(f, request->id);
    pq_add_text(f, postgresql_of(request)->mount);
    pq_add_nonzero(f, request->lock_owner);
    pq_add_text(f, *request->release.why ? request->release.why : NULL);
    g_free(path);
}

static void request_fill_release_range(struct pq_parameters *f, const struct remote_request *request,
                                       const struct remote_ticket *t)
{
    (void)t;
    pq_add_path(f, request->name);
    pq_add_text(f, postgresql_of(request)->mount);
    pq_add_nonzero(f, request->lock_owner);
    pq_add_offset(f, request->release.start);
    pq_add_offset(f, request->release.end);
}

static void request_fill_renew(struct pq_parameters *f, const struct remote_request *request,
                               const struct remote_ticket *t)
{
    request_add_ticket(f, t);
    pq_add_number(f, request->renewal.mode);
    pq_add_number(f, request->ttl);
    pq_add_number(f, request->renewal.left);
    request_add_held(f, request->renewal.segments);
}

static void request_fill_set(struct pq_parameters *f, const struct remote_request *request,
                             const struct remote_ticket *t)
{
    request_add_ticket(f, t);
    request_add_change(f, &request->update.change);
}

static void request_fill_convert(struct pq_parameters *f, const struct remote_request *request,
                                 const struct remote_ticket *t)
{
    const struct backend_claim *claim = &request->update.claim;
    request_add_ticket(f, t);
    pq_add_number(f, claim->kind);
    pq_add_number(f, claim->mode);
    pq_add_number(f, claim->ttl);
    pq_add_number(f, remote_ticket_liveness(t, claim->ttl));
    pq_add_nonzero(f, claim->handle);
    pq_add_nonzero(f, claim->lock_owner);
    pq_add_offset(f, claim->start);
    pq_add_offset(f, claim->end);
    request_add_change(f, &request->update.change);
}

static void request_fill_rename(struct pq_parameters *f, const struct remote_request *request,
                                const struct remote_ticket *t)
{
    request_add_ticket(f, t);
    pq_add_name(f, request->name);
    pq_add_text(f, request->replaced);
}

static enum pq_function request_fill(struct pq_parameters *f, struct remote_request *request,
                                     const struct remote_ticket *t)
{
    static const struct {
        enum pq_function function;
        void (*fill)(struct pq_parameters *f, const struct remote_request *request, const struct remote_ticket *t);
    } calls[REMOTE_PROCEDURES] = {
        [REMOTE_ACQUIRE] = {PQ_ACQUIRE, request_fill_acquire},
        [REMOTE_RELEASE] = {PQ_RELEASE, request_fill_release},
        [REMOTE_RELEASE_RANGE] = {PQ_RELEASE_RANGE, request_fill_release_range},
        [REMOTE_RENEW] = {PQ_RENEW, request_fill_renew},
        [REMOTE_SET] = {PQ_SET, request_fill_set},
        [REMOTE_CONVERT] = {PQ_CONVERT, request_fill_convert},
        [REMOTE_RENAME] = {PQ_RENAME, request_fill_rename},
    };
    if (request->procedure == REMOTE_RENEW && epoch_is_closed(&postgresql_of(request)->epoch) &&
        t->head.deadline > clock_now()) {
        request->renewal.restores = true;
        request_fill_restore(f, request, t);
        return PQ_RESTORE;
    }
    calls[request->procedure].fill(f, request, t);
    return calls[request->procedure].function;
}

static void request_note_renewal(const struct remote_request *request, enum backend_result result, bool restored)
{
    struct epoch *epoch = &postgresql_of(request)->epoch;
    if (result == BACKEND_OK) {
        epoch_on_confirmed(epoch, request->id, restored);
    } else if (result == BACKEND_STALE) {
        epoch_on_missing(epoch);
    }
}

static void request_on_answer(void *arg, const struct pq_answer *given)
{
    struct remote_request *request = arg;
    struct remote_answer answer = {.result = pq_result(given, NULL)};
    if (given->outcome == REMOTE_ANSWERED && request->procedure == REMOTE_RELEASE) {
        const char *word = PQgetvalue(given->rows, 0, 0);
        bool gone = strcmp(word, "missing") == 0 && !epoch_is_closed(&postgresql_of(request)->epoch);
        answer.result = strcmp(word, "stays") == 0 ? BACKEND_BUSY : gone ? BACKEND_MISSING : BACKEND_OK;
    } else if (given->outcome == REMOTE_ANSWERED && request->procedure == REMOTE_RENAME) {
        answer.fence = pq_fence(given->rows, 0, "number");
    } else if (given->outcome == REMOTE_ANSWERED && request->procedure == REMOTE_RENEW) {
        bool closed = epoch_is_closed(&postgresql_of(request)->epoch);
        if (answer.result == BACKEND_STALE && closed && !request->renewal.restores) {
            answer.result = BACKEND_UNREACHABLE; /* sent before a grace period: the next renewal restores the ticket */
        }
        request_note_renewal(request, answer.result, strcmp(PQgetvalue(given->rows, 0, 0), "restored") == 0);
    }
    request_answer(request, given, &answer);
}

/* --- many renewals at once --- */

static bool request_may_be_in_batch(const struct remote_request *request, const struct remote_ticket *t)
{
    return request->procedure == REMOTE_RENEW && request->background_cost > 0 && !t->segments &&
           !epoch_is_closed(&postgresql_of(request)->epoch);
}

static void request_renew_one(struct remote_request *request)
{
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    struct pq_parameters f = {.count = 0};
    if (t) {
        enum pq_function function = request_fill(&f, request, t);
        postgresql_send(postgresql_of(request), function, &f, 0, request_on_answer, request);
    } else { /* it was released meanwhile */
        remote_request_answer(request, BACKEND_STALE, clock_now());
    }
}

static void request_on_renewed(void *arg, const struct pq_answer *given)
{
    struct remote_batch *batch = arg;
    GHashTable *renewed = g_hash_table_new(g_str_hash, g_str_equal);
    for (int i = 0; given->outcome == REMOTE_ANSWERED && i < PQntuples(given->rows); i++) {
        g_hash_table_add(renewed, PQgetvalue(given->rows, i, 0));
    }
    for (unsigned i = 0; i < batch->count; i++) {
        struct remote_request *request = batch->requests[i];
        struct remote_answer answer = {.result = given->result};
        if (given->outcome != REMOTE_ANSWERED || g_hash_table_contains(renewed, request->id)) {
            if (given->outcome == REMOTE_ANSWERED) {
                request_note_renewal(request, BACKEND_OK, false);
            }
            request_answer(request, given, &answer);
        } else {
            request_renew_one(request);
        }
    }
    g_hash_table_unref(renewed);
    remote_batch_free(batch);
}

void pq_send_renewals(struct remote *r, struct remote_batch *batch)
{
    struct pq_parameters f = {.count = 0};
    const char *ids[REMOTE_RENEWALS_MAX];
    char *paths[REMOTE_RENEWALS_MAX + 1] = {NULL};
    int64_t modes[REMOTE_RENEWALS_MAX], terms[REMOTE_RENEWALS_MAX], lefts[REMOTE_RENEWALS_MAX];
    bool all_full = true;
    for (unsigned i = 0; i < batch->count; i++) {
        const struct remote_request *request = batch->requests[i];
        const struct remote_ticket *t = remote_ticket_find(r, request->id);
        paths[i] = pq_lock_path(request->name, t && t->lock->sequence);
        ids[i] = request->id;
        modes[i] = request->renewal.mode;
        terms[i] = request->ttl;
        lefts[i] = request->renewal.left;
        all_full = all_full && lefts[i] == terms[i];
    }
    pq_add_paths(&f, (const char *const *)paths, batch->count);
    pq_add_texts(&f, ids, batch->count);
    pq_add_numbers(&f, modes, batch->count);
    pq_add_numbers(&f, terms, batch->count);
    if (!all_full) {
        pq_add_numbers(&f, lefts, batch->count);
    }
    postgresql_send((struct postgresql *)r, all_full ? PQ_RENEW_MANY : PQ_VERIFY_MANY, &f, 0, request_on_renewed,
                    batch);
    for (unsigned i = 0; i < batch->count; i++) {
        g_free(paths[i]);
    }
}

uint64_t pq_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    static void (*const about_names[REMOTE_PROCEDURES])(struct remote_request * request) = {
        [REMOTE_REVOKE] = pq_revoke,
        [REMOTE_TEST] = request_test,
        [REMOTE_STAT] = request_send_stat,
        [REMOTE_LIST] = request_list,
        [REMOTE_TICKETS] = request_list,
        [REMOTE_MOUNTS] = request_send_mounts,
        [REMOTE_MKDIR] = request_change_directory,
        [REMOTE_RMDIR] = request_change_directory,
        [REMOTE_SET_DIRECTORY] = request_change_directory,
    };
    struct postgresql *p = postgresql_of(request);
    struct pq_parameters f = {.count = 0};
    if (about_names[request->procedure]) {
        about_names[request->procedure](request);
        return 0;
    }
    epoch_before_request(&p->epoch, request, t);
    if (request_may_be_in_batch(request, t)) {
        remote_batch_add(request->r, request);
        return 0;
    }
    enum pq_function function = request_fill(&f, request, t);
    return postgresql_send(p, function, &f, timeout,
                           request->procedure == REMOTE_ACQUIRE ? request_on_acquired : request_on_answer, request);
}

/* --- the heartbeat of waiters --- */

static void request_on_heartbeat(void *arg, const struct pq_answer *given)
{
    for (int i = 0; given->outcome == REMOTE_ANSWERED && i < PQntuples(given->rows); i++) {
        remote_heartbeat_reply(arg, pq_text(given->rows, i, "id"),
                               &(struct remote_answer){.rank = pq_number(given->rows, i, "rank"),
                                                       .wait = pq_number(given->rows, i, "wait")});
    }
}

void pq_send_heartbeat(struct remote *r, struct remote_ticket *const *tickets, size_t count)
{
    struct postgresql *p = (struct postgresql *)r;
    for (size_t i = 0, next; i < count; i = next) {
        const struct remote_lock *lock = tickets[i]->lock;
        for (next = i + 1; next < count && tickets[next]->lock == lock; next++) {
        }
        const char **ids = g_new(const char *, next - i);
        int64_t *livenesses = g_new(int64_t, next - i);
        for (size_t j = i; j < next; j++) {
            ids[j - i] = tickets[j]->id;
            livenesses[j - i] = remote_ticket_liveness(tickets[j], tickets[j]->head.ttl);
        }
        struct pq_parameters f = {.count = 0};
        char *path = pq_lock_path(lock->name, lock->sequence);
        pq_add_path(&f, path);
        pq_add_texts(&f, ids, next - i);
        pq_add_numbers(&f, livenesses, next - i);
        postgresql_send(p, PQ_HEARTBEAT, &f, 0, request_on_heartbeat, r);
        g_free(path);
        g_free(ids);
        g_free(livenesses);
    }
}

/* fake_backend: a store that a check controls; see fake_backend.h. */
#include "tests/message/fake_backend.h"

#include <string.h>

#include "tests/message/fake_store.h"

static struct fake_backend *fake_of(struct backend *b)
{
    return (struct fake_backend *)b;
}

bool fake_backend_deliver(struct fake_backend *fake)
{
    struct fake_event *event;
    bool reported = false;
    while (!fake->hold_events && (event = g_queue_pop_head(&fake->reported))) {
        struct backend_ticket *ticket = event->ticket ? &event->ticket->head : NULL;
        reported = true;
        switch (event->type) {
        case FAKE_GRANTED:
            if (event->ticket->ended) {
                ticket->held = false; /* too late */
                break;
            }
            if (event->ticket->apart) {
                fake_store_join(fake, event->ticket);
                fake_store_settle(fake);
            }
            fake->events->granted(fake->context, ticket);
            break;
        case FAKE_DUE:
            fake->events->due(fake->context, ticket);
            break;
        case FAKE_WANTED:
            fake->events->wanted(fake->context, ticket);
            break;
        case FAKE_ENDED:
            fake->events->ended(fake->context, ticket, event->why);
            fake_store_free_ticket(fake, event->ticket);
            break;
        case FAKE_COMPLETED:
            event->done(event->arg, event->result);
            break;
        }
        g_free(event);
    }
    return reported;
}

/* --- calls ---------------------------------------------------------------------- */

static void fake_pending_free(struct fake_pending *p)
{
    fake_store_replace(&p->claim.meta, NULL);
    fake_store_replace(&p->claim.content, NULL);
    fake_store_replace(&p->change.meta, NULL);
    fake_store_replace(&p->change.content, NULL);
    fake_store_replace(&p->directory.meta, NULL);
    g_free(p->name);
    g_free(p->after);
    g_free(p);
}

static void fake_may_die(struct fake_backend *fake, enum fake_call call, bool after)
{
    if (fake->death && fake->death_call == call && fake->death_after == after && fake->death_nth-- == 0) {
        fake->death();
    }
}

static void fake_complete(struct fake_backend *fake, struct fake_pending *p, enum backend_result result)
{
    fake_may_die(fake, p->call, true);
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct fake_ticket *ticket = p->ticket;
    bool granted = result == BACKEND_OK || result == BACKEND_QUEUED;
    switch (p->call) {
    case FAKE_ACQUIRE:
        if (result == BACKEND_BUSY) {
            fake_store_stat(fake, p->name, &info);
        }
        p->acquired(p->arg, result, granted ? &ticket->head : NULL, result == BACKEND_BUSY ? &info : NULL);
        break;
    case FAKE_STAT:
    case FAKE_TEST:
        p->known(p->arg, result, result == BACKEND_OK ? &info : NULL);
        break;
    case FAKE_LIST:
        p->listed(p->arg, result, NULL, 0);
        break;
    default:
        if (p->done) {
            p->done(p->arg, result);
        }
    }
    if (p->call == FAKE_ACQUIRE && !granted) {
        fake_store_free_ticket(fake, ticket);
    }
}

static enum backend_result fake_on_ticket(struct fake_backend *fake, struct fake_pending *p)
{
    if (!p->ticket || p->ticket->ended) {
        return BACKEND_STALE;
    }
    if (p->call == FAKE_CONVERT) {
        return fake_store_convert(fake, p->ticket, &p->claim);
    }
    return p->call == FAKE_SET ? fake_store_change(p->ticket, &p->change)
                               : fake_store_rename(fake, p->ticket, p->name, p->replaced);
}

static void fake_revoke(struct fake_backend *fake, const struct fake_pending *p)
{
    struct fake_event *event = g_new(struct fake_event, 1);
    *event = (struct fake_event){
        .type = FAKE_COMPLETED, .result = fake_store_revoke(fake, p), .done = p->done, .arg = p->arg};
    fake_may_die(fake, FAKE_REVOKE, true);
    g_queue_push_tail(&fake->reported, event);
}

static void fake_run(struct fake_backend *fake, struct fake_pending *p)
{
    struct backend_info info;
    enum backend_result placed;
    switch (p->call) {
    case FAKE_ACQUIRE:
        placed = p->carried_out ? p->placed : fake_store_place(fake, p->ticket, &p->claim);
        fake_complete(fake, p, p->cancelled && placed == BACKEND_QUEUED ? BACKEND_UNREACHABLE : placed);
        break;
    case FAKE_CONVERT:
    case FAKE_SET:
    case FAKE_RENAME:
        fake_complete(fake, p, fake_on_ticket(fake, p));
        break;
    case FAKE_REVOKE:
        fake_revoke(fake, p);
        break;
    case FAKE_STAT:
        fake_may_die(fake, FAKE_STAT, true);
        fake_store_stat(fake, p->name, &info);
        p->known(p->arg, BACKEND_OK, &info);
        break;
    case FAKE_TEST:
        fake_store_test(fake, p);
        break;
    case FAKE_LIST:
        fake_store_list(fake, p);
        break;
    case FAKE_MKDIR:
        fake_complete(fake, p, fake_store_mkdir(fake, p->name, &p->directory));
        break;
    case FAKE_RMDIR:
        fake_complete(fake, p, fake_store_rmdir(fake, p->name));
        break;
    case FAKE_SET_DIRECTORY:
        fake_complete(fake, p, fake_store_set_directory(fake, p->name, &p->directory));
        break;
    default:
        fake_complete(fake, p, BACKEND_OK);
    }
}

static void fake_submit(struct fake_backend *fake, const struct fake_pending *call)
{
    fake_may_die(fake, call->call, false);
    struct fake_pending *p = g_memdup2(call, sizeof *call);
    p->name = g_strdup(call->name);
    p->after = g_strdup(call->after);
    fake_store_bytes(p->claim.meta);
    fake_store_bytes(p->claim.content);
    fake_store_bytes(p->change.meta);
    fake_store_bytes(p->change.content);
    fake_store_bytes(p->directory.meta);
    fake->count[p->call]++;
    if (fake->hold[p->call]) {
        g_ptr_array_add(fake->pending, p);
        return;
    }
    if (fake->fail[p->call] != BACKEND_OK) {
        fake_complete(fake, p, fake->fail[p->call]);
    } else {
        fake_run(fake, p);
    }
    fake_pending_free(p);
}

static struct backend_ticket *fake_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                           backend_acquire_done *done, void *arg)
{
    struct fake_backend *fake = fake_of(b);
    struct fake_ticket *ticket = g_new0(struct fake_ticket, 1);
    ticket->mount = fake;
    ticket->name = g_strdup(name);
    ticket->sequence = claim->sequence;
    ticket->requested = true;
    ticket->due = CLOCK_NEVER;
    ticket->head.user = claim->user;
    g_ptr_array_add(fake->store->tickets, ticket);
    fake_submit(fake, &(struct fake_pending){.call = FAKE_ACQUIRE,
                                             .name = (char *)name,
                                             .ticket = ticket,
                                             .claim = *claim,
                                             .acquired = done,
                                             .arg = arg});
    return g_ptr_array_find(fake->store->tickets, ticket, NULL) ? &ticket->head : NULL;
}

static void fake_release(struct backend *b, struct backend_ticket *head, backend_done *done, void *arg)
{
    struct fake_backend *fake = fake_of(b);
    struct fake_ticket *ticket = (struct fake_ticket *)head;
    for (guint i = 0; i < fake->pending->len; i++) {
        struct fake_pending *p = g_ptr_array_index(fake->pending, i);
        if (p->call == FAKE_ACQUIRE && p->ticket == ticket) {
            g_ptr_array_remove_index(fake->pending, i);
            fake_pending_free(p);
            break;
        }
    }
    fake_may_die(fake, FAKE_RELEASE, false);
    fake_store_free_ticket(fake, ticket);
    fake_store_settle(fake);
    fake_submit(fake, &(struct fake_pending){.call = FAKE_RELEASE, .done = done, .arg = arg});
}

/* One that is held back may have been carried out, so if its lock owner holds something its answer is let come. */
static bool fake_cancel(struct backend *b, struct backend_ticket *head)
{
    struct fake_backend *fake = fake_of(b);
    struct fake_pending *requested = NULL;
    bool holds = false;
    for (guint i = 0; i < fake->pending->len && !requested; i++) {
        struct fake_pending *p = g_ptr_array_index(fake->pending, i);
        requested = p->call == FAKE_ACQUIRE && &p->ticket->head == head ? p : NULL;
    }
    for (guint i = 0; requested && requested->claim.lock_owner && i < fake->store->tickets->len; i++) {
        const struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        holds |=
            t->mount == fake && t->lock_owner == requested->claim.lock_owner && fake_store_is_on(t, requested->name);
    }
    if (holds) {
        requested->cancelled = true;
        return false;
    }
    fake_release(b, head, NULL, NULL);
    return true;
}

static bool fake_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                               backend_done *done, void *arg)
{
    struct fake_backend *fake = fake_of(b);
    bool left = fake_store_release_range(fake, (struct fake_ticket *)ticket, start, end);
    fake_submit(fake, &(struct fake_pending){.call = FAKE_RELEASE_RANGE, .done = done, .arg = arg});
    return left;
}

static void fake_convert_call(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                              backend_done *done, void *arg)
{
    fake_submit(
        fake_of(b),
        &(struct fake_pending){
            .call = FAKE_CONVERT, .ticket = (struct fake_ticket *)ticket, .claim = *claim, .done = done, .arg = arg});
}

static void fake_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    struct fake_backend *fake = fake_of(b);
    for (size_t i = 0; i < count; i++) {
        struct fake_ticket *t = (struct fake_ticket *)renewals[i].ticket;
        t->head.ttl = renewals[i].ttl;
        t->head.deadline = *fake->now + renewals[i].ttl;
        t->due = renewals[i].due ? *fake->now + renewals[i].due : CLOCK_NEVER;
        fake->count[FAKE_RENEW]++;
    }
}

static void fake_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                     backend_done *done, void *arg)
{
    fake_submit(
        fake_of(b),
        &(struct fake_pending){
            .call = FAKE_SET, .ticket = (struct fake_ticket *)ticket, .change = *change, .done = done, .arg = arg});
}

static void fake_revoke_call(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                             backend_done *done, void *arg)
{
    fake_submit(fake_of(b), &(struct fake_pending){.call = FAKE_REVOKE,
                                                   .name = (char *)name,
                                                   .fence = fence,
                                                   .matching = match,
                                                   .match = match ? *match : (struct backend_match){0},
                                                   .done = done,
                                                   .arg = arg});
}

static void fake_rename_call(struct backend *b, struct backend_ticket *ticket, const char *name,
                             struct backend_ticket *replaced, backend_done *done, void *arg)
{
    fake_submit(fake_of(b), &(struct fake_pending){.call = FAKE_RENAME,
                                                   .ticket = (struct fake_ticket *)ticket,
                                                   .replaced = (struct fake_ticket *)replaced,
                                                   .name = (char *)name,
                                                   .done = done,
                                                   .arg = arg});
}

static void fake_test_call(struct backend *b, const char *name, const struct backend_claim *claim,
                           backend_info_done *done, void *arg)
{
    fake_submit(fake_of(b), &(struct fake_pending){
                                .call = FAKE_TEST, .name = (char *)name, .claim = *claim, .known = done, .arg = arg});
}

static void fake_stat_call(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    fake_submit(fake_of(b), &(struct fake_pending){.call = FAKE_STAT, .name = (char *)name, .known = done, .arg = arg});
}

static void fake_list_call(struct backend *b, const char *directory, const char *after, size_t max,
                           backend_list_done *done, void *arg)
{
    fake_submit(fake_of(b), &(struct fake_pending){.call = FAKE_LIST,
                                                   .name = (char *)directory,
                                                   .after = (char *)after,
                                                   .max = max,
                                                   .listed = done,
                                                   .arg = arg});
}

static void fake_mkdir_call(struct backend *b, const char *name, const struct backend_directory *directory,
                            backend_done *done, void *arg)
{
    fake_submit(fake_of(b),
                &(struct fake_pending){
                    .call = FAKE_MKDIR, .name = (char *)name, .directory = *directory, .done = done, .arg = arg});
}

static void fake_rmdir_call(struct backend *b, const char *name, backend_done *done, void *arg)
{
    fake_submit(fake_of(b), &(struct fake_pending){.call = FAKE_RMDIR, .name = (char *)name, .done = done, .arg = arg});
}

static void fake_set_directory_call(struct backend *b, const char *name, const struct backend_directory *directory,
                                    backend_done *done, void *arg)
{
    fake_submit(
        fake_of(b),
        &(struct fake_pending){
            .call = FAKE_SET_DIRECTORY, .name = (char *)name, .directory = *directory, .done = done, .arg = arg});
}

static void fake_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    struct fake_backend *fake = fake_of(b);
    fake->found = found;
    fake->found_arg = arg;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        if (t->kept) {
            t->kept = false;
            t->mount = fake;
            found(arg, t->name, &t->head, t->meta, t->head.kind == BACKEND_LEASE ? NULL : t->head.content);
        }
    }
}

void fake_backend_begin_recovery(struct fake_backend *fake)
{
    fake->recovering = true;
}

void fake_backend_end_recovery(struct fake_backend *fake)
{
    fake_recover(&fake->head, fake->found, fake->found_arg);
    fake->recovering = false;
}

static void fake_identify(struct backend *b, struct backend_ticket *head, struct backend_identity identity)
{
    struct fake_ticket *t = (struct fake_ticket *)head;
    (void)b;
    t->handle = identity.handle;
    t->lock_owner = identity.lock_owner;
}

static struct backend_counts fake_counts(struct backend *b)
{
    struct fake_backend *fake = fake_of(b);
    struct backend_counts counts = {.recovering = fake->recovering};
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        counts.locks += !t->ended && t->head.held;
        counts.waiting += !t->ended && !t->requested && !t->head.held;
    }
    return counts;
}

static bool fake_name(struct backend *b, const struct backend_ticket *ticket, char *buffer, size_t size)
{
    (void)b;
    return g_strlcpy(buffer, ((const struct fake_ticket *)ticket)->name, size) < size;
}

static void fake_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events, void *context)
{
    (void)loop;
    fake_of(b)->events = events;
    fake_of(b)->context = context;
}

static void fake_free(struct backend *b)
{
    struct fake_backend *fake = fake_of(b);
    while (fake->pending->len) {
        fake_pending_free(g_ptr_array_remove_index(fake->pending, 0));
    }
    g_ptr_array_remove(fake->store->mounts, fake);
    for (guint i = fake->store->tickets->len; i-- > 0;) {
        struct fake_ticket *ticket = g_ptr_array_index(fake->store->tickets, i);
        if (ticket->mount == fake || fake->store->mounts->len == 0) {
            fake_store_free_ticket(fake, ticket);
        }
    }
    if (fake->store->mounts->len == 0) {
        fake_store_free(fake->store);
    }
    g_ptr_array_free(fake->pending, TRUE);
    g_free(fake);
}

static const struct backend_operations fake_operations = {
    .start = fake_start,
    .free = fake_free,
    .acquire = fake_acquire,
    .release = fake_release,
    .cancel = fake_cancel,
    .release_range = fake_release_range,
    .convert = fake_convert_call,
    .renew = fake_renew,
    .set = fake_set,
    .revoke = fake_revoke_call,
    .rename = fake_rename_call,
    .test = fake_test_call,
    .stat = fake_stat_call,
    .list = fake_list_call,
    .mkdir = fake_mkdir_call,
    .rmdir = fake_rmdir_call,
    .set_directory = fake_set_directory_call,
    .recover = fake_recover,
    .identify = fake_identify,
    .counts = fake_counts,
    .name = fake_name,
};

/* --- for the check ---------------------------------------------------------------- */

struct fake_backend *fake_backend_new(clock_ms *now, unsigned features, const struct fake_backend *beside)
{
    struct fake_backend *fake = g_new0(struct fake_backend, 1);
    fake->head = (struct backend){.operations = &fake_operations, .name = "fake", .features = features};
    fake->now = now;
    fake->store = beside ? beside->store : fake_store_new();
    fake->pending = g_ptr_array_new();
    g_queue_init(&fake->reported);
    g_ptr_array_add(fake->store->mounts, fake);
    return fake;
}

struct fake_backend *fake_backend_die(struct fake_backend *fake)
{
    struct fake_backend *next = fake_backend_new(fake->now, fake->head.features, fake);
    for (guint i = fake->store->tickets->len; i-- > 0;) {
        struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        bool lasts =
            t->head.kind == BACKEND_LEASE || (t->head.kind != BACKEND_PROVISIONAL && t->head.held) || t->sequence;
        if (t->mount != fake) {
            continue;
        }
        if (t->requested || t->ended || !lasts) {
            fake_store_free_ticket(fake, t);
            continue;
        }
        t->mount = NULL;
        t->handle = t->lock_owner = 0;
        t->due = *fake->now + 1; /* its user now decides whether to renew it */
        t->kept = true;
    }
    g_ptr_array_remove(fake->store->mounts, fake);
    fake_store_settle(next);
    return next;
}

void fake_backend_die_at(struct fake_backend *fake, enum fake_call call, unsigned nth, bool after, void (*death)(void))
{
    fake->death = death;
    fake->death_call = call;
    fake->death_nth = nth;
    fake->death_after = after;
}

struct backend *fake_backend_head(struct fake_backend *fake)
{
    return &fake->head;
}

void fake_backend_hold(struct fake_backend *fake, enum fake_call call, bool hold)
{
    fake->hold[call] = hold;
}

unsigned fake_backend_held_back(const struct fake_backend *fake, enum fake_call call)
{
    unsigned count = 0;
    for (guint i = 0; i < fake->pending->len; i++) {
        count += ((const struct fake_pending *)g_ptr_array_index(fake->pending, i))->call == call;
    }
    return count;
}

unsigned fake_backend_count(const struct fake_backend *fake, enum fake_call call)
{
    return fake->count[call];
}

static struct fake_pending *fake_take_pending(struct fake_backend *fake, enum fake_call call, unsigned nth)
{
    for (guint i = 0; i < fake->pending->len; i++) {
        struct fake_pending *p = g_ptr_array_index(fake->pending, i);
        if (p->call == call && nth-- == 0) {
            return g_ptr_array_remove_index(fake->pending, i);
        }
    }
    g_error("no such call is held back");
}

void fake_backend_answer(struct fake_backend *fake, enum fake_call call, unsigned nth)
{
    struct fake_pending *p = fake_take_pending(fake, call, nth);
    fake_run(fake, p);
    fake_pending_free(p);
}

void fake_backend_carry_out(struct fake_backend *fake)
{
    struct fake_pending *p = g_ptr_array_index(fake->pending, 0);
    p->placed = fake_store_place(fake, p->ticket, &p->claim);
    p->carried_out = true;
}

void fake_backend_refuse(struct fake_backend *fake, enum fake_call call, unsigned nth, enum backend_result result)
{
    struct fake_pending *p = fake_take_pending(fake, call, nth);
    fake_complete(fake, p, result);
    fake_pending_free(p);
}

void fake_backend_fail(struct fake_backend *fake, enum fake_call call, enum backend_result result)
{
    fake->fail[call] = result;
}

void fake_backend_hold_events(struct fake_backend *fake, bool hold)
{
    fake->hold_events = hold;
}

void fake_backend_reverse_events(struct fake_backend *fake)
{
    g_queue_reverse(&fake->reported);
}

unsigned fake_backend_events(const struct fake_backend *fake)
{
    return fake->reported.length;
}

/* The ticket that is next to fall due or to run out, by `until`. */
static struct fake_ticket *fake_next(const struct fake_backend *fake, clock_ms until, clock_ms *ret_when)
{
    struct fake_ticket *first = NULL;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        clock_ms when = MIN(t->due, t->head.deadline);
        if (!t->requested && !t->ended && t->mount && when <= until) {
            until = when;
            first = t;
        }
    }
    *ret_when = until;
    return first;
}

static void fake_deliver_all(struct fake_backend *fake)
{
    for (guint i = 0; i < fake->store->mounts->len; i++) {
        fake_backend_deliver(g_ptr_array_index(fake->store->mounts, i));
    }
}

void fake_backend_advance(struct fake_backend *fake, int64_t milliseconds)
{
    clock_ms until = *fake->now + milliseconds, when;
    struct fake_ticket *ticket;
    while ((ticket = fake_next(fake, until, &when))) {
        *fake->now = MAX(*fake->now, when);
        if (ticket->due <= *fake->now) {
            ticket->due = CLOCK_NEVER;
            fake_store_tell(fake, FAKE_DUE, ticket, BACKEND_EXPIRED);
        } else {
            fake_store_end(fake, ticket, BACKEND_EXPIRED);
            fake_store_settle(fake);
        }
        fake_deliver_all(fake);
    }
    *fake->now = until;
}

static struct fake_ticket *fake_occupy(struct fake_backend *fake, const char *name, enum backend_kind kind,
                                       enum backend_mode mode)
{
    struct fake_ticket *t = g_new0(struct fake_ticket, 1);
    t->name = g_strdup(name);
    t->due = CLOCK_NEVER;
    t->head = (struct backend_ticket){.fence = ++fake->store->next_fence,
                                      .acquired = *fake->now,
                                      .deadline = CLOCK_NEVER,
                                      .ttl = 30000,
                                      .kind = (uint8_t)kind,
                                      .mode = (uint8_t)mode,
                                      .held = true};
    g_ptr_array_add(fake->store->tickets, t);
    return t;
}

void fake_backend_occupy(struct fake_backend *fake, const char *name, enum backend_kind kind, enum backend_mode mode)
{
    fake_occupy(fake, name, kind, mode);
}

void fake_backend_keep(struct fake_backend *fake, const char *name, const char *content)
{
    struct fake_ticket *t = fake_occupy(fake, name, BACKEND_LEASE, BACKEND_EXCLUSIVE);
    t->kept = true;
    t->head.deadline = *fake->now + t->head.ttl;
    t->head.content = g_bytes_new(content, strlen(content));
}

static struct fake_ticket *fake_keep(struct fake_backend *fake, const char *name, enum backend_kind kind,
                                     enum backend_mode mode, GBytes *meta)
{
    struct fake_ticket *t = fake_occupy(fake, name, kind, mode);
    t->kept = true;
    t->head.deadline = *fake->now + t->head.ttl;
    t->due = *fake->now + 1;
    g_clear_pointer(&t->meta, g_bytes_unref);
    t->meta = g_bytes_ref(meta);
    return t;
}

void fake_backend_keep_handle_lock(struct fake_backend *fake, const char *name, enum backend_kind kind,
                                   enum backend_mode mode, GBytes *meta)
{
    fake_keep(fake, name, kind, mode, meta);
}

void fake_backend_keep_ticket(struct fake_backend *fake, const char *name, bool held, GBytes *meta)
{
    struct fake_ticket *t = fake_keep(fake, name, BACKEND_FLOCK, BACKEND_EXCLUSIVE, meta);
    t->sequence = true;
    t->head.held = held;
}

void fake_backend_occupy_plainly(struct fake_backend *fake, const char *name, const char *content, const char *meta)
{
    struct fake_ticket *t = g_new0(struct fake_ticket, 1);
    t->name = g_strdup(name);
    t->due = CLOCK_NEVER;
    t->head =
        (struct backend_ticket){.acquired = CLOCK_NEVER, .deadline = CLOCK_NEVER, .kind = BACKEND_LEASE, .held = true};
    t->head.content = g_bytes_new(content, strlen(content));
    t->meta = meta ? g_bytes_new(meta, strlen(meta)) : NULL;
    g_ptr_array_add(fake->store->tickets, t);
}

static struct fake_ticket *fake_holder(const struct fake_backend *fake, const char *name, bool foreign)
{
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        if (fake_store_is_on(t, name) && t->head.held && (!t->mount || !foreign)) {
            return t;
        }
    }
    return NULL;
}

void fake_backend_vacate(struct fake_backend *fake, const char *name)
{
    struct fake_ticket *t = fake_holder(fake, name, true);
    if (t) {
        fake_store_end(fake, t, BACKEND_RELEASED);
        fake_store_settle(fake);
    }
}

void fake_backend_forget_directory(struct fake_backend *fake, const char *name)
{
    g_hash_table_remove(fake->store->directories, name);
}

void fake_backend_end(struct fake_backend *fake, const char *name, enum backend_end why)
{
    struct fake_ticket *t;
    while ((t = fake_holder(fake, name, false))) {
        fake_store_end(fake, t, why);
    }
    fake_store_settle(fake);
}

unsigned fake_backend_holders(const struct fake_backend *fake, const char *name)
{
    struct backend_info info;
    fake_store_stat(fake, name, &info);
    return info.holders;
}

unsigned fake_backend_waiters(const struct fake_backend *fake, const char *name)
{
    struct backend_info info;
    fake_store_stat(fake, name, &info);
    return info.waiters;
}

const struct backend_ticket *fake_backend_holder(const struct fake_backend *fake, const char *name)
{
    struct fake_ticket *t = fake_holder(fake, name, false);
    return t ? &t->head : NULL;
}

unsigned fake_backend_tickets(const struct fake_backend *fake, enum backend_kind kind)
{
    unsigned count = 0;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        count += t->mount == fake && !t->ended && t->head.kind == kind;
    }
    return count;
}

GBytes *fake_backend_meta(const struct backend_ticket *ticket)
{
    return ((const struct fake_ticket *)ticket)->meta;
}

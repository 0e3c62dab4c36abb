/* lock_world: see lock_world.h. */
#include "tests/unit/lock_world.h"

static void tell(void *context, const char *what, const struct backend_ticket *ticket)
{
    struct lock_world *w = context;
    g_string_append_printf(w->log, "%s %s; ", what, (const char *)ticket->user);
}

static void on_granted(void *context, struct backend_ticket *ticket)
{
    tell(context, "granted", ticket);
}

static void on_due(void *context, struct backend_ticket *ticket)
{
    struct lock_world *w = context;
    tell(context, "due", ticket);
    g_ptr_array_add(w->due, ticket);
}

static void forget(struct lock_world *w, struct backend_ticket *ticket)
{
    g_ptr_array_remove(w->due, ticket);
    for (size_t i = 0; i < G_N_ELEMENTS(w->of); i++) {
        w->of[i].ticket = w->of[i].ticket == ticket ? NULL : w->of[i].ticket;
    }
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    static const char *const reasons[] = {"expired", "released", "broken", "lost"};
    struct lock_world *w = context;
    g_string_append_printf(w->log, "ended %s %s; ", (const char *)ticket->user, reasons[why]);
    lockspace_ticket_free(w->ended);
    w->ended = ticket;
    forget(w, ticket);
}

static void on_wanted(void *context, struct backend_ticket *ticket)
{
    tell(context, "wanted", ticket);
}

static void on_absorbed(void *context, struct backend_ticket *ticket)
{
    tell(context, "absorbed", ticket);
    forget(context, ticket);
}

void lock_world_init(struct lock_world *w)
{
    static const struct lockspace_listener listener = {
        .granted = on_granted, .due = on_due, .ended = on_ended, .wanted = on_wanted, .absorbed = on_absorbed};
    *w = (struct lock_world){.log = g_string_new(NULL), .text = g_string_new(NULL), .due = g_ptr_array_new()};
    w->space = lockspace_new(&listener, w, 1);
}

void lock_world_clear(struct lock_world *w)
{
    lockspace_free(w->space);
    lockspace_ticket_free(w->ended);
    g_ptr_array_unref(w->due);
    g_string_free(w->log, TRUE);
    g_string_free(w->text, TRUE);
}

struct backend_claim lock_world_claim(const char *who, enum backend_mode mode)
{
    return (struct backend_claim){
        .user = (void *)who, .kind = BACKEND_FLOCK, .mode = mode, .wait = true, .ttl = WORLD_TTL};
}

struct backend_claim lock_world_range(const char *who, enum backend_mode mode, uint64_t lock_owner, uint64_t start,
                                      uint64_t end)
{
    struct backend_claim claim = lock_world_claim(who, mode);
    claim.kind = BACKEND_FCNTL;
    claim.lock_owner = lock_owner;
    claim.start = start;
    claim.end = end;
    return claim;
}

struct backend_claim lock_world_sequence(const char *who, enum backend_mode mode)
{
    struct backend_claim claim = lock_world_claim(who, mode);
    claim.sequence = true;
    return claim;
}

enum backend_result lock_world_try(struct lock_world *w, const char *name, struct backend_claim claim,
                                   struct backend_ticket **ret_ticket)
{
    struct backend_ticket *ticket = NULL;
    enum backend_result result = lockspace_acquire(w->space, w->now, name, &claim, &ticket, NULL);
    ck_assert_int_eq(ticket != NULL, result == BACKEND_OK || result == BACKEND_QUEUED);
    if (ticket) {
        ck_assert_int_eq(ticket->held, result == BACKEND_OK);
        ck_assert_int_eq(ticket->acquired, w->now);
        ck_assert_int_eq(ticket->deadline, w->now + claim.ttl);
        ck_assert_ptr_eq(ticket->user, claim.user);
    }
    for (size_t i = 0; ticket && claim.lock_owner; i++) {
        ck_assert_uint_lt(i, G_N_ELEMENTS(w->of));
        if (!w->of[i].ticket) {
            w->of[i].ticket = ticket;
            w->of[i].lock_owner = claim.lock_owner;
            break;
        }
    }
    if (ret_ticket) {
        *ret_ticket = ticket;
    }
    return result;
}

struct backend_ticket *lock_world_hold(struct lock_world *w, const char *name, struct backend_claim claim)
{
    struct backend_ticket *ticket;
    claim.wait = false;
    ck_assert_int_eq(lock_world_try(w, name, claim, &ticket), BACKEND_OK);
    return ticket;
}

struct backend_ticket *lock_world_wait(struct lock_world *w, const char *name, struct backend_claim claim)
{
    struct backend_ticket *ticket;
    claim.wait = true;
    ck_assert_int_eq(lock_world_try(w, name, claim, &ticket), BACKEND_QUEUED);
    return ticket;
}

void lock_world_refused(struct lock_world *w, const char *name, struct backend_claim claim)
{
    claim.wait = false;
    ck_assert_int_eq(lock_world_try(w, name, claim, NULL), BACKEND_BUSY);
}

struct backend_ticket *lock_world_of(const struct lock_world *w, uint64_t lock_owner)
{
    struct backend_ticket *found = NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(w->of); i++) {
        struct backend_ticket *ticket = w->of[i].lock_owner == lock_owner ? w->of[i].ticket : NULL;
        found = ticket && (!found || ticket->held) ? ticket : found;
    }
    ck_assert_ptr_nonnull(found);
    return found;
}

void lock_world_unlock(struct lock_world *w, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    struct backend_ticket *ticket = lock_world_of(w, lock_owner);
    enum backend_result result = lockspace_release_range(w->space, w->now, ticket, start, end);
    if (result == BACKEND_MISSING) {
        forget(w, ticket);
    } else {
        ck_assert_int_eq(result, BACKEND_OK);
    }
}

void lock_world_release(struct lock_world *w, struct backend_ticket *ticket)
{
    forget(w, ticket);
    lockspace_release(w->space, w->now, ticket);
}

void lock_world_tick(struct lock_world *w, clock_ms to)
{
    w->now = to;
    do {
        lockspace_tick(w->space, w->now, SIZE_MAX);
    } while (lock_world_answer(w));
}

bool lock_world_answer(struct lock_world *w)
{
    bool any = w->due->len > 0;
    while (w->due->len > 0) {
        lockspace_due_handled(w->space, g_ptr_array_steal_index(w->due, 0));
    }
    return any;
}

void lock_world_mkdir(struct lock_world *w, const char *name)
{
    struct backend_directory attributes = {.width = 1};
    ck_assert_int_eq(lockspace_mkdir(w->space, name, &attributes), BACKEND_OK);
}

void lock_world_set_width(struct lock_world *w, const char *name, uint32_t width)
{
    struct backend_directory attributes = lock_world_stat(w, name).directory;
    attributes.width = width;
    ck_assert_int_eq(lockspace_set_directory(w->space, w->now, name, &attributes), BACKEND_OK);
}

struct backend_info lock_world_stat(struct lock_world *w, const char *name)
{
    struct backend_info info;
    lockspace_stat(w->space, name, &info);
    return info;
}

const char *lock_world_list(struct lock_world *w, const char *name)
{
    char after[256] = "";
    struct backend_entry entries[2];
    int count;
    g_string_truncate(w->text, 0);
    while ((count = lockspace_list(w->space, name, after, 2, entries)) > 0) {
        for (int i = 0; i < count; i++) {
            g_string_append_printf(w->text, "%s%s ", entries[i].name, entries[i].type == BACKEND_DIRECTORY ? "/" : "");
        }
        g_strlcpy(after, entries[count - 1].name, sizeof(after));
    }
    ck_assert_int_eq(count, 0);
    return w->text->str;
}

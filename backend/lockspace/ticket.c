/* ticket: a ticket by itself, in no queue: its claim, its bytes and its term. */
#include "backend/lockspace/private.h"

_Static_assert(sizeof(struct ticket) <= 88, "a ticket is to fit 96 bytes of heap");

int lockspace_compare_tickets(const void *a, const void *b)
{
    const struct ticket *x = a, *y = b;
    return (x->head.fence > y->head.fence) - (x->head.fence < y->head.fence);
}

static void ticket_set_bytes(GBytes **bytes, GBytes *value)
{
    GBytes *old = *bytes;
    *bytes = value ? g_bytes_ref(value) : NULL;
    if (old) {
        g_bytes_unref(old);
    }
}

void lockspace_trim_scope(struct ticket *t)
{
    const struct scope *s = t->scope;
    if (s && !s->handle && !s->lock_owner && !s->segments && (t->head.held || !s->due)) {
        g_free(t->scope);
        t->scope = NULL;
    }
}

void lockspace_set_scope(struct ticket *t, const struct backend_claim *claim)
{
    bool ranged = claim->kind == BACKEND_FCNTL && !claim->sequence;
    if (!t->scope && !claim->handle && !claim->lock_owner && !ranged) {
        return;
    }
    if (!t->scope) {
        t->scope = backend_new0(sizeof(struct scope));
    }
    t->scope->handle = claim->handle;
    t->scope->lock_owner = claim->lock_owner;
    g_clear_pointer(&t->scope->segments, g_array_unref);
    t->scope->segments = ranged ? backend_segments_new(claim->start, claim->end, claim->mode) : NULL;
    t->scope->due = 0;
    lockspace_trim_scope(t);
}

struct ticket *lockspace_ticket_new(const struct backend_claim *claim)
{
    struct ticket *t = backend_new0(sizeof *t);
    t->head.user = claim->user;
    t->head.kind = (uint8_t)claim->kind;
    t->head.mode = (uint8_t)claim->mode;
    t->due = CLOCK_NEVER;
    ticket_set_bytes(&t->meta, claim->meta);
    ticket_set_bytes(&t->head.content, claim->content);
    lockspace_set_scope(t, claim);
    return t;
}

void lockspace_ticket_free(struct backend_ticket *ticket)
{
    struct ticket *t = (struct ticket *)ticket;
    if (!t) {
        return;
    }
    if (t->entry && (t->entry->type == ENTRY_ENDED || t->entry->type == ENTRY_ENDED_SEQUENCE)) {
        g_free(t->entry);
    }
    ticket_set_bytes(&t->meta, NULL);
    ticket_set_bytes(&t->head.content, NULL);
    if (t->scope) {
        g_clear_pointer(&t->scope->segments, g_array_unref);
    }
    g_free(t->scope);
    g_free(t);
}

GBytes *lockspace_ticket_meta(const struct backend_ticket *ticket)
{
    return ((const struct ticket *)ticket)->meta;
}

bool lockspace_ticket_sequence(const struct backend_ticket *ticket)
{
    const struct entry *entry = ((const struct ticket *)ticket)->entry;
    return entry->type == ENTRY_SEQUENCE || entry->type == ENTRY_ENDED_SEQUENCE;
}

GArray *lockspace_ticket_segments(const struct backend_ticket *ticket)
{
    return lockspace_segments((const struct ticket *)ticket);
}

void lockspace_set(struct backend_ticket *ticket, const struct backend_change *change)
{
    struct ticket *t = (struct ticket *)ticket;
    if (change->set & BACKEND_SET_META) {
        ticket_set_bytes(&t->meta, change->meta);
    }
    if (change->set & BACKEND_SET_CONTENT) {
        ticket_set_bytes(&t->head.content, change->content);
    }
}

void lockspace_start_term(struct ticket *t, clock_ms now, int64_t ttl, int64_t due)
{
    t->head.ttl = MIN(ttl, LOCKSPACE_TTL_MAX);
    t->head.deadline = now + t->head.ttl;
    t->head.resting = false;
    t->due = due > 0 ? now + MIN(due, LOCKSPACE_TTL_MAX) : CLOCK_NEVER;
    if (!t->head.held && due > 0 && !t->scope) {
        t->scope = backend_new0(sizeof(struct scope));
    }
    if (t->scope) {
        t->scope->due = due;
    }
}

/* fake_store: the leases of the fake backend; see fake_store.h. */
#include "tests/message/fake_store.h"

#include <string.h>

GBytes *fake_store_bytes(GBytes *bytes)
{
    return bytes ? g_bytes_ref(bytes) : NULL;
}

void fake_store_replace(GBytes **place, GBytes *bytes)
{
    GBytes *old = *place;
    *place = fake_store_bytes(bytes);
    if (old) {
        g_bytes_unref(old);
    }
}

struct fake_store *fake_store_new(void)
{
    struct fake_store *store = g_new0(struct fake_store, 1);
    store->tickets = g_ptr_array_new();
    store->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, fake_store_free_directory);
    store->mounts = g_ptr_array_new();
    struct backend_directory *root = g_new0(struct backend_directory, 1);
    root->width = 1;
    g_hash_table_insert(store->directories, g_strdup(""), root);
    return store;
}

void fake_store_free(struct fake_store *store)
{
    g_ptr_array_free(store->tickets, TRUE);
    g_ptr_array_free(store->mounts, TRUE);
    g_hash_table_destroy(store->directories);
    g_free(store);
}

/* --- names -------------------------------------------------------------------- */

static char *fake_parent(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? g_strndup(name, (gsize)(slash - name)) : g_strdup("");
}

static struct backend_directory *fake_directory(const struct fake_backend *fake, const char *name)
{
    return g_hash_table_lookup(fake->store->directories, name);
}

static struct backend_directory *fake_parent_directory(const struct fake_backend *fake, const char *name)
{
    char *parent = fake_parent(name);
    struct backend_directory *directory = fake_directory(fake, parent);
    g_free(parent);
    return directory;
}

/* A place in the same queue?  Sequence tickets of a directory share one. */
static bool fake_same_queue(const struct fake_ticket *a, const struct fake_ticket *b)
{
    if (a->sequence != b->sequence || a->requested || b->requested || a->ended || b->ended) {
        return false;
    }
    if (!a->sequence) {
        return strcmp(a->name, b->name) == 0;
    }
    char *left = fake_parent(a->name), *right = fake_parent(b->name);
    bool same = strcmp(left, right) == 0;
    g_free(left);
    g_free(right);
    return same;
}

static bool fake_is_compatible(const struct fake_ticket *a, const struct fake_ticket *b)
{
    bool handle = a->handle && a->handle == b->handle && !(a->lock_owner && b->lock_owner);
    return a->mount == b->mount && (handle || (a->lock_owner && a->lock_owner == b->lock_owner));
}

static bool fake_conflicts(const struct fake_ticket *a, const struct fake_ticket *b)
{
    if (a->head.mode == BACKEND_SHARED && b->head.mode == BACKEND_SHARED) {
        return false;
    }
    if (!a->sequence && fake_is_compatible(a, b)) {
        return false;
    }
    return !a->segments || !b->segments || backend_segments_conflict(a->segments, b->segments);
}

/* Does it wait for a ticket that is compatible with `ticket`? */
static bool fake_waits_for_own_lock(const struct fake_backend *fake, const struct fake_ticket *waiter,
                                    const struct fake_ticket *ticket)
{
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *holder = g_ptr_array_index(fake->store->tickets, i);
        bool whole = !holder->segments && !fake_is_compatible(holder, waiter);
        if (holder->head.held && fake_same_queue(holder, waiter) && (whole || fake_conflicts(holder, waiter)) &&
            fake_is_compatible(holder, ticket)) {
            return true;
        }
    }
    return false;
}

/* Would it and one that waits wait for each other? */
static bool fake_has_rival(const struct fake_backend *fake, const struct fake_ticket *ticket)
{
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *other = g_ptr_array_index(fake->store->tickets, i);
        if (other != ticket && !other->head.held && fake_same_queue(other, ticket) &&
            fake_waits_for_own_lock(fake, other, ticket) && fake_waits_for_own_lock(fake, ticket, other)) {
            return true;
        }
    }
    return false;
}

/* May it hold now?  One that is not in the queue yet stands at its end. */
static bool fake_may_hold(const struct fake_backend *fake, const struct fake_ticket *ticket)
{
    bool before = true;
    unsigned in_the_way = 0;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *other = g_ptr_array_index(fake->store->tickets, i);
        if (other == ticket) {
            before = false;
        } else if (fake_same_queue(other, ticket) && fake_conflicts(other, ticket)) {
            bool waits = !other->head.held && before && !fake_waits_for_own_lock(fake, other, ticket);
            in_the_way += waits || (other->head.held && (before || !ticket->sequence));
        }
    }
    return in_the_way < (ticket->sequence ? fake_parent_directory(fake, ticket->name)->width : 1);
}

/* --- events ------------------------------------------------------------------- */

void fake_store_tell(struct fake_backend *fake, enum fake_event_type type, struct fake_ticket *ticket,
                     enum backend_end why)
{
    (void)fake;
    if (ticket->mount) {
        struct fake_event *event = g_new(struct fake_event, 1);
        *event = (struct fake_event){.type = type, .ticket = ticket, .why = why};
        g_queue_push_tail(&ticket->mount->reported, event);
    }
}

void fake_store_free_ticket(struct fake_backend *fake, struct fake_ticket *ticket)
{
    struct fake_backend *mount = ticket->mount;
    for (GList *at = mount ? mount->reported.head : NULL, *next; at; at = next) {
        struct fake_event *event = at->data;
        next = at->next;
        if (event->ticket == ticket) {
            g_free(event);
            g_queue_delete_link(&mount->reported, at);
        }
    }
    for (guint i = 0; mount && i < mount->pending->len; i++) {
        struct fake_pending *pending = g_ptr_array_index(mount->pending, i);
        pending->ticket = pending->ticket == ticket ? NULL : pending->ticket;
        pending->replaced = pending->replaced == ticket ? NULL : pending->replaced;
    }
    g_ptr_array_remove(fake->store->tickets, ticket);
    fake_store_replace(&ticket->meta, NULL);
    fake_store_replace(&ticket->head.content, NULL);
    g_clear_pointer(&ticket->segments, g_array_unref);
    g_free(ticket->name);
    g_free(ticket);
}

void fake_store_join(struct fake_backend *fake, struct fake_ticket *t)
{
    struct fake_ticket *held = NULL;
    t->apart = false;
    for (guint i = 0; t->segments && t->lock_owner && i < fake->store->tickets->len; i++) {
        struct fake_ticket *other = g_ptr_array_index(fake->store->tickets, i);
        if (other != t && other->mount == t->mount && other->lock_owner == t->lock_owner && other->segments &&
            other->head.held && !other->requested && !other->ended && !other->apart &&
            strcmp(other->name, t->name) == 0) {
            held = other;
        }
    }
    if (!held) {
        return;
    }
    const struct backend_segment *s = &g_array_index(t->segments, struct backend_segment, 0);
    GArray *both = g_array_ref(held->segments);
    backend_segments_set(both, s->start, s->end, &s->mode);
    g_array_unref(t->segments);
    t->segments = both;
    t->head.mode = (uint8_t)backend_segments_mode(both);
    t->head.fence = held->head.fence;
    t->head.acquired = held->head.acquired;
    t->head.joined = true;
    fake_store_replace(&t->meta, held->meta);
    fake_store_replace(&t->head.content, held->head.content);
    for (guint i = 0; i < t->mount->pending->len; i++) {
        struct fake_pending *pending = g_ptr_array_index(t->mount->pending, i);
        pending->ticket = pending->ticket == held ? t : pending->ticket;
    }
    guint place;
    g_ptr_array_remove(fake->store->tickets, t);
    g_ptr_array_find(fake->store->tickets, held, &place);
    g_ptr_array_insert(fake->store->tickets, (gint)place, t);
    fake_store_free_ticket(fake, held);
}

bool fake_store_release_range(struct fake_backend *fake, struct fake_ticket *t, uint64_t start, uint64_t end)
{
    if (t->ended) {
        return true;
    }
    backend_segments_set(t->segments, start, end, NULL);
    bool left = t->segments->len > 0;
    if (left) {
        t->head.mode = (uint8_t)backend_segments_mode(t->segments);
    } else {
        fake_store_free_ticket(fake, t);
    }
    fake_store_settle(fake);
    return left;
}

static void fake_grant(struct fake_backend *fake, struct fake_ticket *ticket)
{
    ticket->head.held = true;
    ticket->head.acquired = *fake->now;
    ticket->head.deadline = *fake->now + ticket->head.ttl;
    ticket->due = ticket->due_after ? *fake->now + ticket->due_after : CLOCK_NEVER;
}

/* Grants what has become free. */
void fake_store_settle(struct fake_backend *fake)
{
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        struct fake_ticket *ticket = g_ptr_array_index(fake->store->tickets, i);
        if (!ticket->head.held && !ticket->requested && !ticket->ended && fake_may_hold(fake, ticket)) {
            fake_grant(fake, ticket);
            ticket->apart = ticket->segments;
            fake_store_tell(fake, FAKE_GRANTED, ticket, BACKEND_EXPIRED);
            i = (guint)-1; /* the array may have changed */
        }
    }
}

void fake_store_end(struct fake_backend *fake, struct fake_ticket *ticket, enum backend_end why)
{
    ticket->ended = true;
    if (!ticket->mount) {
        fake_store_free_ticket(fake, ticket);
    } else {
        fake_store_tell(fake, FAKE_ENDED, ticket, why);
    }
}

/* --- what is known ------------------------------------------------------------ */

bool fake_store_is_on(const struct fake_ticket *ticket, const char *name)
{
    return !ticket->requested && !ticket->ended && strcmp(ticket->name, name) == 0;
}

/* As it is in the way of `asked` (NULL: of anybody). */
static void fake_info(const struct fake_backend *fake, const struct fake_ticket *ticket,
                      const struct fake_ticket *requested, struct backend_info *info)
{
    const struct backend_segment *s =
        requested && ticket->segments ? backend_segments_conflict(ticket->segments, requested->segments) : NULL;
    info->type = BACKEND_LOCK;
    info->kind = ticket->head.kind;
    info->guarded = ticket->head.guarded;
    info->mode = s ? s->mode : ticket->head.mode;
    info->fence = ticket->head.fence;
    info->acquired = ticket->head.acquired;
    info->deadline = ticket->head.deadline;
    info->ttl = ticket->head.ttl;
    info->start = s ? s->start : 0;
    info->end = s ? s->end : BACKEND_RANGE_MAX;
    info->meta = ticket->meta;
    info->content = ticket->head.content;
    info->ticket = ticket->mount == fake ? (struct backend_ticket *)&ticket->head : NULL;
}

void fake_store_stat(const struct fake_backend *fake, const char *name, struct backend_info *info)
{
    memset(info, 0, sizeof *info);
    const struct backend_directory *directory = fake_directory(fake, name);
    if (directory) {
        info->type = BACKEND_DIRECTORY;
        info->directory = *directory;
        return;
    }
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *ticket = g_ptr_array_index(fake->store->tickets, i);
        if (fake_store_is_on(ticket, name)) {
            if ((ticket->head.held || ticket->sequence) && info->type == BACKEND_NOTHING) {
                fake_info(fake, ticket, NULL, info);
            }
            info->holders += ticket->head.held;
            info->waiters += !ticket->head.held;
        }
    }
}

static int fake_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct backend_entry *)a)->name, ((const struct backend_entry *)b)->name);
}

static void fake_add_entry(GArray *entries, const char *directory, const char *after, const char *name,
                           enum backend_type type)
{
    char *parent = fake_parent(name);
    const char *slash = strrchr(name, '/');
    struct backend_entry entry = {.name = slash ? slash + 1 : name, .type = type};
    bool wanted = name[0] && strcmp(parent, directory) == 0 && strcmp(entry.name, after) > 0;
    for (guint i = 0; wanted && i < entries->len; i++) {
        wanted = strcmp(g_array_index(entries, struct backend_entry, i).name, entry.name) != 0;
    }
    if (wanted) {
        g_array_append_val(entries, entry);
    }
    g_free(parent);
}

void fake_store_list(struct fake_backend *fake, struct fake_pending *p)
{
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init(&iter, fake->store->directories);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        fake_add_entry(entries, p->name, p->after, name, BACKEND_DIRECTORY);
    }
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *ticket = g_ptr_array_index(fake->store->tickets, i);
        if (!ticket->requested && !ticket->ended && (ticket->head.held || ticket->sequence)) {
            fake_add_entry(entries, p->name, p->after, ticket->name, BACKEND_LOCK);
        }
    }
    g_array_sort(entries, fake_compare_names);
    p->listed(p->arg, fake_directory(fake, p->name) ? BACKEND_OK : BACKEND_MISSING,
              (struct backend_entry *)(void *)entries->data, MIN(entries->len, p->max));
    g_array_free(entries, TRUE);
}

void fake_store_test(struct fake_backend *fake, struct fake_pending *p)
{
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct fake_ticket requested = {.mount = fake,
                                    .name = p->name,
                                    .handle = p->claim.handle,
                                    .lock_owner = p->claim.lock_owner,
                                    .segments = backend_segments_new(p->claim.start, p->claim.end, p->claim.mode)};
    requested.head.kind = (uint8_t)p->claim.kind;
    requested.head.mode = (uint8_t)p->claim.mode;
    struct backend_info found;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *ticket = g_ptr_array_index(fake->store->tickets, i);
        if (ticket->head.held && fake_same_queue(ticket, &requested) && fake_conflicts(ticket, &requested)) {
            memset(&found, 0, sizeof found);
            fake_info(fake, ticket, &requested, &found);
            info = info.type == BACKEND_NOTHING || found.start < info.start ? found : info;
        }
    }
    g_array_unref(requested.segments);
    p->known(p->arg, BACKEND_OK, &info);
}

/* --- carrying out ------------------------------------------------------------- */

static void fake_take(struct fake_backend *fake, struct fake_ticket *t, const struct backend_claim *claim)
{
    t->head.user = claim->user;
    t->head.kind = (uint8_t)claim->kind;
    t->head.mode = (uint8_t)claim->mode;
    t->head.ttl = claim->ttl;
    t->head.deadline = *fake->now + claim->ttl;
    t->due_after = claim->due;
    t->due = claim->due ? *fake->now + claim->due : CLOCK_NEVER;
    t->handle = claim->handle;
    t->lock_owner = claim->lock_owner;
    g_clear_pointer(&t->segments, g_array_unref);
    t->segments = claim->kind == BACKEND_FCNTL ? backend_segments_new(claim->start, claim->end, claim->mode) : NULL;
    if (claim->meta) {
        fake_store_replace(&t->meta, claim->meta);
    }
    if (claim->content) {
        fake_store_replace(&t->head.content, claim->content);
    }
}

static const struct fake_ticket *fake_first_on(const struct fake_backend *fake, const char *name)
{
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *ticket = g_ptr_array_index(fake->store->tickets, i);
        if (fake_store_is_on(ticket, name)) {
            return ticket;
        }
    }
    return NULL;
}

/* The next number of the directory that is no name yet. */
static void fake_number(const struct fake_backend *fake, struct fake_ticket *t, struct backend_directory *parent)
{
    char *name = NULL;
    t->requested = true; /* not there itself meanwhile */
    do {
        g_free(name);
        name = g_strdup_printf("%s%010u", t->name, (unsigned)++parent->sequence);
    } while (fake_directory(fake, name) || fake_first_on(fake, name));
    t->requested = false;
    g_free(t->name);
    t->name = name;
}

enum backend_result fake_store_place(struct fake_backend *fake, struct fake_ticket *t,
                                     const struct backend_claim *claim)
{
    struct backend_directory *parent = fake_parent_directory(fake, t->name);
    if (!parent || fake_directory(fake, t->name)) {
        return parent ? BACKEND_IS_DIRECTORY : BACKEND_MISSING;
    }
    const struct fake_ticket *there = fake_first_on(fake, t->name);
    if (there && there->sequence) {
        return BACKEND_BUSY; /* a ticket is no lock to wait for */
    }
    t->requested = false;
    t->head.acquired = *fake->now;
    fake_take(fake, t, claim);
    g_ptr_array_remove(fake->store->tickets, t); /* what was held back longer comes later */
    g_ptr_array_add(fake->store->tickets, t);
    if (!fake_may_hold(fake, t) && !claim->wait) {
        t->requested = true;
        return BACKEND_BUSY;
    }
    if (!fake_may_hold(fake, t) && fake_has_rival(fake, t)) {
        t->requested = true;
        return BACKEND_DEADLOCK;
    }
    t->head.fence = ++fake->store->next_fence;
    if (t->sequence) {
        fake_number(fake, t, parent);
    }
    if (fake_may_hold(fake, t)) {
        fake_grant(fake, t);
        fake_store_join(fake, t);
        fake_store_settle(fake);
        return BACKEND_OK;
    }
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        struct fake_ticket *other = g_ptr_array_index(fake->store->tickets, i);
        if (other != t && other->head.held && fake_same_queue(other, t) && fake_conflicts(other, t)) {
            fake_store_tell(fake, FAKE_WANTED, other, BACKEND_EXPIRED);
        }
    }
    return BACKEND_QUEUED;
}

enum backend_result fake_store_convert(struct fake_backend *fake, struct fake_ticket *t,
                                       const struct backend_claim *claim)
{
    struct fake_ticket wish = {.mount = fake,
                               .name = t->name,
                               .sequence = t->sequence,
                               .handle = claim->handle,
                               .lock_owner = claim->lock_owner};
    g_autoptr(GArray) segments = backend_segments_new(claim->start, claim->end, claim->mode);
    wish.segments = claim->kind == BACKEND_FCNTL ? segments : NULL;
    wish.head.kind = (uint8_t)claim->kind;
    wish.head.mode = (uint8_t)claim->mode;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *other = g_ptr_array_index(fake->store->tickets, i);
        if (other != t && t->head.held && other->head.held && fake_same_queue(other, &wish) &&
            fake_conflicts(other, &wish) && !t->sequence) {
            return BACKEND_BUSY;
        }
    }
    clock_ms acquired = t->head.acquired;
    t->head.acquired = *fake->now;
    fake_take(fake, t, claim);
    t->head.acquired = acquired;
    fake_store_settle(fake);
    return BACKEND_OK;
}

/* A ticket of nobody in its place; the guards of this store end only by being revoked. */
static void fake_leave_guard(struct fake_backend *fake, struct fake_ticket *t, enum backend_end why)
{
    struct fake_ticket *guard = g_new0(struct fake_ticket, 1);
    guard->head = t->head;
    guard->head.user = NULL;
    guard->head.guarded = t->head.guarded = (uint8_t)(1 + why);
    guard->head.content = t->head.content ? g_bytes_ref(t->head.content) : NULL;
    guard->head.deadline = CLOCK_NEVER;
    guard->name = g_strdup(t->name);
    guard->sequence = t->sequence;
    guard->segments = t->segments ? g_array_ref(t->segments) : NULL;
    guard->due = CLOCK_NEVER;
    guard->meta = g_bytes_ref(t->meta);
    g_ptr_array_insert(fake->store->tickets, 0, guard);
}

static bool fake_is_meant(const struct fake_ticket *t, const struct fake_pending *p)
{
    return fake_store_is_on(t, p->name) && (t->head.held || t->sequence) && (!p->fence || t->head.fence == p->fence);
}

enum backend_result fake_store_revoke(struct fake_backend *fake, const struct fake_pending *p)
{
    enum backend_result result = BACKEND_MISSING;
    const char *name = p->name;
    uint64_t fence = p->fence;
    bool guards = true, matching = p->matching, matches = true;
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        if (fake_is_meant(t, p) && !t->head.guarded) {
            guards = false;
            matches = matches && backend_matches(&p->match, t->meta);
        } else if (fake_is_meant(t, p)) {
            result = BACKEND_OK; /* there is one */
        }
    }
    if (matching && (!matches || (guards && result == BACKEND_OK))) {
        return BACKEND_BUSY;
    }
    result = BACKEND_MISSING;
    for (guint i = fake->store->tickets->len; i-- > 0;) {
        struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        if (!fake_store_is_on(t, name) || !(t->head.held || t->sequence)) {
            continue;
        }
        if (fake_is_meant(t, p) && (!t->head.guarded || guards)) {
            enum backend_end why = fence ? BACKEND_RELEASED : BACKEND_BROKEN;
            if (t->head.held && !t->head.guarded && backend_parse_guard(t->meta) > 0) {
                fake_leave_guard(fake, t, why);
                i++;
            }
            fake_store_end(fake, t, why);
            result = BACKEND_OK;
        } else if (result == BACKEND_MISSING) {
            result = BACKEND_STALE;
        }
    }
    fake_store_settle(fake);
    return result;
}

enum backend_result fake_store_rename(struct fake_backend *fake, struct fake_ticket *t, const char *name,
                                      struct fake_ticket *replaced)
{
    struct backend_info info;
    bool over = replaced && !replaced->ended && replaced->head.held && fake_store_is_on(replaced, name);
    fake_store_stat(fake, name, &info);
    if (!fake_parent_directory(fake, name) || info.type == BACKEND_DIRECTORY) {
        return info.type == BACKEND_DIRECTORY ? BACKEND_IS_DIRECTORY : BACKEND_MISSING;
    }
    if (over ? info.holders > 1 : info.type != BACKEND_NOTHING || info.waiters) {
        return BACKEND_BUSY;
    }
    g_free(t->name);
    t->name = g_strdup(name);
    if (over) {
        t->head.fence = fake->store->next_fence++;
        fake_store_end(fake, replaced, BACKEND_RELEASED);
    }
    fake_store_settle(fake);
    return BACKEND_OK;
}

enum backend_result fake_store_change(struct fake_ticket *t, const struct backend_change *change)
{
    if (change->set & BACKEND_SET_META) {
        fake_store_replace(&t->meta, change->meta);
    }
    if (change->set & BACKEND_SET_CONTENT) {
        fake_store_replace(&t->head.content, change->content);
    }
    return BACKEND_OK;
}

void fake_store_free_directory(gpointer pointer)
{
    struct backend_directory *directory = pointer;
    fake_store_replace(&directory->meta, NULL);
    g_free(directory);
}

enum backend_result fake_store_mkdir(struct fake_backend *fake, const char *name,
                                     const struct backend_directory *directory)
{
    struct backend_info info;
    fake_store_stat(fake, name, &info);
    if (info.type != BACKEND_NOTHING) {
        return info.type == BACKEND_DIRECTORY ? BACKEND_EXISTS : BACKEND_BUSY;
    }
    if (!fake_parent_directory(fake, name)) {
        return BACKEND_MISSING;
    }
    struct backend_directory *copy = g_memdup2(directory, sizeof *directory);
    fake_store_bytes(copy->meta);
    g_hash_table_insert(fake->store->directories, g_strdup(name), copy);
    return BACKEND_OK;
}

enum backend_result fake_store_rmdir(struct fake_backend *fake, const char *name)
{
    struct backend_info info;
    fake_store_stat(fake, name, &info);
    if (info.type != BACKEND_DIRECTORY || !name[0]) {
        return info.type == BACKEND_LOCK ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING;
    }
    char *prefix = g_strdup_printf("%s/", name);
    bool used = false;
    GHashTableIter iter;
    gpointer other;
    g_hash_table_iter_init(&iter, fake->store->directories);
    while (g_hash_table_iter_next(&iter, &other, NULL)) {
        used = used || g_str_has_prefix(other, prefix);
    }
    for (guint i = 0; i < fake->store->tickets->len; i++) {
        const struct fake_ticket *t = g_ptr_array_index(fake->store->tickets, i);
        used = used || (!t->requested && !t->ended && g_str_has_prefix(t->name, prefix));
    }
    g_free(prefix);
    if (!used) {
        g_hash_table_remove(fake->store->directories, name);
    }
    return used ? BACKEND_NOT_EMPTY : BACKEND_OK;
}

enum backend_result fake_store_set_directory(struct fake_backend *fake, const char *name,
                                             const struct backend_directory *attributes)
{
    struct backend_directory *directory = fake_directory(fake, name);
    if (!directory) {
        return BACKEND_MISSING;
    }
    uint64_t sequence = directory->sequence;
    GBytes *meta = fake_store_bytes(attributes->meta);
    fake_store_replace(&directory->meta, NULL);
    *directory = *attributes;
    directory->meta = meta;
    directory->sequence = MAX(sequence, attributes->sequence);
    fake_store_settle(fake);
    return BACKEND_OK;
}

/* listing: the names in a directory, which a store gives part by part.
 *
 * A store sends a LIST or TICKETS request again and again, until there are `max` entries or no names are left.  Each
 * time it either lists the next names, or describes names that it has listed without their types.
 */
#include <string.h>

#include "backend/remote/remote.h"

static void listing_send(struct remote_request *request, int64_t timeout);

static void listing_on_answer(struct remote_request *request, const struct remote_answer *answer)
{
    const struct remote_listing *l = request->listing;
    bool ok = answer->result == BACKEND_OK;
    if (ok && l->described < l->max && (l->more || l->next < l->entries->len)) {
        listing_send(request, MAX(l->until - clock_now(), 1));
        return;
    }
    request->listed(request->arg, answer->result, (const struct backend_entry *)l->entries->data,
                    ok ? MIN(l->described, l->max) : 0);
    remote_request_free(request);
}

static void listing_send(struct remote_request *request, int64_t timeout)
{
    struct remote_listing *l = request->listing;
    l->timeout = timeout;
    l->more = l->more && l->next < l->entries->len;
    remote_request_send(request, NULL, listing_on_answer, timeout);
}

void remote_listing_start(struct remote_request *request, const char *after, size_t max)
{
    struct remote_listing *l = request->listing = g_new(struct remote_listing, 1);
    *l = (struct remote_listing){.after = g_strdup(after),
                                 .max = max,
                                 .until = clock_now() + request->r->timeout,
                                 .names = g_string_chunk_new(1024),
                                 .entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry))};
    listing_send(request, 0);
}

/* May a mount have it, and is it behind the names that are listed? */
static bool listing_allows(const struct remote_request *request, const char *name)
{
    const struct remote_listing *l = request->listing;
    guint count = l->entries->len;
    const char *last = count ? g_array_index(l->entries, struct backend_entry, count - 1).name : l->after;
    if (!remote_is_component(name) || strcmp(name, last) <= 0 || strcmp(name, l->after) <= 0 ||
        (request->procedure == REMOTE_TICKETS && !remote_is_numbered(name))) {
        return false;
    }
    char *path = g_strconcat(request->name, *request->name ? "/" : "", name, NULL);
    bool allowed = request->r->store->allows_name(request->r, path);
    g_free(path);
    return allowed;
}

void remote_listing_add(struct remote_request *request, const char *name, enum backend_type type,
                        const struct backend_info *info)
{
    struct remote_listing *l = request->listing;
    struct backend_entry entry = {.type = type};
    if (!listing_allows(request, name)) {
        return;
    }
    entry.name = g_string_chunk_insert(l->names, name);
    if (info) {
        struct backend_info *copy = g_memdup2(info, sizeof *info);
        copy->meta = info->meta ? g_bytes_ref(info->meta) : NULL;
        copy->content = NULL;
        entry.info = copy;
    }
    g_array_append_val(l->entries, entry);
    l->described += type != BACKEND_NOTHING;
    l->next += type != BACKEND_NOTHING;
}

void remote_listing_end_part(struct remote_request *request, const char *last)
{
    struct remote_listing *l = request->listing;
    l->more = strcmp(last, l->after) > 0;
    g_free(l->after);
    l->after = g_strdup(last);
}

struct backend_entry *remote_listing_undescribed(const struct remote_request *request, guint index)
{
    const struct remote_listing *l = request->listing;
    return l->next + index < l->entries->len ? &g_array_index(l->entries, struct backend_entry, l->next + index) : NULL;
}

void remote_listing_describe(struct remote_request *request, enum backend_type type)
{
    struct remote_listing *l = request->listing;
    struct backend_entry *entry = remote_listing_undescribed(request, 0), described = *entry;
    described.type = type;
    entry->info = NULL;
    if (type == BACKEND_NOTHING) {
        remote_listing_free_info(&described);
    } else {
        g_array_index(l->entries, struct backend_entry, l->described++) = described;
    }
    if (++l->next == l->entries->len) {
        g_array_set_size(l->entries, l->described);
        l->next = l->described;
    }
}

struct backend_info remote_listing_ticket(struct remote_request *request, const char *id, bool holds, int64_t age,
                                          GBytes *meta)
{
    struct remote_ticket *t = remote_ticket_find(request->r, id);
    return (struct backend_info){.type = BACKEND_LOCK,
                                 .holders = holds,
                                 .acquired = clock_now() - MAX(age, 0),
                                 .meta = meta,
                                 .ticket = t && t->state != REMOTE_ACQUIRING ? &t->head : NULL};
}

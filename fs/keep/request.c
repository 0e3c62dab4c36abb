/* request: the requests without a reply; see memory.h.
 *
 * A message lands in one buffer, whose pages are always there.  It is copied from there into a slot, with a large piece
 * if it is long, and stays where it landed if nothing is free: then nothing further can be read until it is done.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/mman.h>

#include "fs/keep/private.h"

#define KEEP_REMOVE_FROM 0x4000 /* a piece of more bytes gives its pages back */

static struct fuse_in_header *keep_landing_header(const struct keep *keep)
{
    return (struct fuse_in_header *)(void *)keep->landing;
}

void *keep_request_message(struct keep *keep, const struct keep_request *slot)
{
    return slot == &keep->head->landing ? keep->landing
           : slot->large                ? keep_large(keep, slot->large - 1)
                                        : (void *)(slot + 1);
}

uint64_t keep_request_unique(struct keep *keep, const struct keep_request *slot)
{
    return ((const struct fuse_in_header *)keep_request_message(keep, slot))->unique;
}

/* The landing's is the last. */
static uint32_t keep_slot_number(const struct keep *keep, const struct keep_request *slot)
{
    return slot == &keep->head->landing ? (uint32_t)keep->head->sizes.small
                                        : (uint32_t)(((const char *)slot - keep->slots) / KEEP_SLOT_SIZE);
}

/* --- by unique ------------------------------------------------------------------------- */

static struct keep_request *keep_numbered(const struct keep *keep, uint32_t number)
{
    return number == keep->head->sizes.small ? &keep->head->landing : keep_slot(keep, number);
}

/* The kernel counts in steps of 2. */
static uint32_t *keep_bucket(const struct keep *keep, uint64_t unique)
{
    return &keep->buckets[(unique >> 1) & keep->bucket_mask];
}

static void keep_index(struct keep *keep, const struct keep_request *slot)
{
    uint32_t number = keep_slot_number(keep, slot), *bucket = keep_bucket(keep, keep_request_unique(keep, slot));
    keep->next[number] = *bucket;
    *bucket = number + 1;
}

static void keep_unindex(struct keep *keep, const struct keep_request *slot)
{
    uint32_t number = keep_slot_number(keep, slot), *at = keep_bucket(keep, keep_request_unique(keep, slot));
    while (*at && *at != number + 1) {
        at = &keep->next[*at - 1];
    }
    if (*at) {
        *at = keep->next[number];
    }
}

static struct keep_request *keep_find(struct keep *keep, uint64_t unique)
{
    for (uint32_t at = *keep_bucket(keep, unique); at; at = keep->next[at - 1]) {
        struct keep_request *slot = keep_numbered(keep, at - 1);
        if (keep_request_unique(keep, slot) == unique) {
            return slot;
        }
    }
    return NULL;
}

/* --- landing ----------------------------------------------------------------------------- */

void *keep_request_buffer(struct keep *keep)
{
    if (keep->head->landing.length) {
        return NULL;
    }
    if (keep_landing_header(keep)->len) {
        KEEP_STORE(keep_landing_header(keep)->len, 0);
    }
    return keep->landing;
}

/* A free one of `count`: one that was used before, or the next. */
static bool keep_pick(GArray *free, uint64_t *used, uint64_t count, uint32_t *ret_number)
{
    if (free->len > 0) {
        *ret_number = g_array_index(free, uint32_t, free->len - 1);
        g_array_set_size(free, free->len - 1);
        return true;
    }
    if (*used >= count) {
        return false;
    }
    *ret_number = (uint32_t)*used;
    KEEP_STORE(*used, *used + 1);
    return true;
}

/* NULL: it stays where it is. */
static struct keep_request *keep_move(struct keep *keep, size_t length, uint64_t order)
{
    struct keep_head *head = keep->head;
    uint32_t number, large = 0;
    if (!keep_pick(keep->free_slots, &head->small_used, head->sizes.small, &number)) {
        return NULL;
    }
    if (length > KEEP_SMALL_MAX && !keep_pick(keep->free_large, &head->large_used, head->sizes.large, &large)) {
        g_array_append_val(keep->free_slots, number);
        return NULL;
    }
    struct keep_request *slot = keep_slot(keep, number);
    keep_at_store();
    *slot = (struct keep_request){.order = order, .large = length > KEEP_SMALL_MAX ? large + 1 : 0};
    memcpy(keep_request_message(keep, slot), keep->landing, length);
    KEEP_STORE(slot->length, (uint32_t)length);
    KEEP_STORE(keep_landing_header(keep)->len, 0);
    return slot;
}

/* Gives the message in the landing buffer a slot. */
static struct keep_request *keep_place(struct keep *keep, size_t length)
{
    struct keep_head *head = keep->head;
    KEEP_STORE(head->order, head->order + 1);
    struct keep_request *slot = keep_move(keep, length, head->order);
    if (!slot) {
        slot = &head->landing;
        *slot = (struct keep_request){.order = head->order};
        KEEP_STORE(slot->length, (uint32_t)length);
    }
    return slot;
}

struct keep_request *keep_request_landed(struct keep *keep, size_t length)
{
    if (length < sizeof(struct fuse_in_header) || length > KEEP_LANDING_SIZE ||
        keep_landing_header(keep)->len != length) {
        return NULL;
    }
    struct keep_request *slot = keep_place(keep, length);
    keep_index(keep, slot);
    keep->current = slot;
    return slot;
}

/* --- until it is done -------------------------------------------------------------------- */

void keep_request_resume(struct keep *keep, struct keep_request *slot)
{
    KEEP_STORE(slot->waiting, 0);
    keep->current = slot;
}

struct keep_request *keep_request_current(const struct keep *keep)
{
    return keep->current;
}

struct keep_request *keep_request_take(struct keep *keep)
{
    struct keep_request *slot = keep->current;
    keep->current = NULL;
    return slot;
}

void keep_request_settle(struct keep *keep)
{
    keep_request_done(keep, keep_request_take(keep));
}

void keep_request_done(struct keep *keep, struct keep_request *slot)
{
    if (!slot || !slot->length) {
        return;
    }
    uint32_t number = keep_slot_number(keep, slot), large = slot->large, length = slot->length;
    keep_unindex(keep, slot);
    if (slot == &keep->head->landing) {
        KEEP_STORE(keep_landing_header(keep)->len, 0);
        KEEP_STORE(slot->length, 0);
        return;
    }
    KEEP_STORE(slot->length, 0);
    g_array_append_val(keep->free_slots, number);
    if (large) {
        large--;
        if (length > KEEP_REMOVE_FROM) {
            madvise(keep_large(keep, large), KEEP_LANDING_SIZE, MADV_REMOVE);
        }
        g_array_append_val(keep->free_large, large);
    }
}

void keep_request_set_waiting(struct keep_request *slot, bool waiting)
{
    if (slot && slot->waiting != waiting) {
        KEEP_STORE(slot->waiting, waiting);
    }
}

void keep_request_interrupt(struct keep *keep, uint64_t unique)
{
    struct keep_request *slot = keep_find(keep, unique);
    if (slot) {
        KEEP_STORE(slot->interrupted, 1);
    }
}

bool keep_is_crowded(const struct keep *keep)
{
    const struct keep_head *head = keep->head;
    return head->sizes.small - head->small_used + keep->free_slots->len <= KEEP_CROWDED;
}

static int keep_compare_order(const void *a, const void *b)
{
    const struct keep_request *const *x = a, *const *y = b;
    return (*x)->order < (*y)->order ? -1 : (*x)->order > (*y)->order;
}

void keep_requests_pending(struct keep *keep, void (*each)(struct keep_request *slot, void *arg), void *arg)
{
    GPtrArray *all = g_ptr_array_new();
    for (uint64_t i = 0; i < keep->head->small_used; i++) {
        if (keep_slot(keep, i)->length) {
            g_ptr_array_add(all, keep_slot(keep, i));
        }
    }
    if (keep->head->landing.length) {
        g_ptr_array_add(all, &keep->head->landing);
    }
    g_ptr_array_sort(all, keep_compare_order);
    for (guint i = 0; i < all->len; i++) {
        struct keep_request *slot = g_ptr_array_index(all, i);
        if (slot->length) {
            each(slot, arg);
        }
    }
    g_ptr_array_free(all, TRUE);
}

/* --- what another daemon left -------------------------------------------------------------- */

static bool keep_slot_is_valid(struct keep *keep, const struct keep_request *slot, bool *large_used)
{
    bool fits = slot->large ? slot->large <= keep->head->large_used && slot->length <= KEEP_LANDING_SIZE &&
                                  !large_used[slot->large - 1]
                            : slot->length <= KEEP_SMALL_MAX;
    const struct fuse_in_header *message = fits ? keep_request_message(keep, slot) : NULL;
    if (!fits || slot->length < sizeof *message || message->len != slot->length) {
        return false;
    }
    if (slot->large) {
        large_used[slot->large - 1] = true;
    }
    return true;
}

static int keep_slots_attach(struct keep *keep, bool *large_used)
{
    for (uint32_t i = 0; i < keep->head->small_used; i++) {
        const struct keep_request *slot = keep_slot(keep, i);
        if (!slot->length) {
            g_array_append_val(keep->free_slots, i);
        } else if (keep_slot_is_valid(keep, slot, large_used)) {
            keep_index(keep, slot);
        } else {
            return -EIO;
        }
    }
    return 0;
}

/* A message that has landed: it may have been copied already, or be new. */
static int keep_landing_attach(struct keep *keep)
{
    struct keep_head *head = keep->head;
    const struct fuse_in_header *message = keep_landing_header(keep);
    if (!message->len || keep_find(keep, message->unique)) {
        keep_landing_header(keep)->len = 0;
        head->landing.length = 0;
        return 0;
    }
    if (message->len < sizeof *message || message->len > KEEP_LANDING_SIZE || head->landing.large) {
        return -EIO;
    }
    struct keep_request *slot = &head->landing;
    if (!slot->length) {
        slot = keep_place(keep, message->len);
    }
    keep_index(keep, slot);
    return 0;
}

int keep_requests_attach(struct keep *keep)
{
    const struct keep_head *head = keep->head;
    uint32_t buckets = 1;
    if (head->small_used > head->sizes.small || head->large_used > head->sizes.large) {
        return -EIO;
    }
    while (buckets < head->sizes.small) {
        buckets *= 2;
    }
    keep->bucket_mask = buckets - 1;
    keep->buckets = g_new0(uint32_t, buckets);
    keep->next = g_new0(uint32_t, head->sizes.small + 1);
    keep->free_slots = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    keep->free_large = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    bool *large_used = g_new0(bool, head->sizes.large + 1);
    int result = keep_slots_attach(keep, large_used);
    for (uint32_t i = 0; i < head->large_used; i++) {
        if (!large_used[i]) {
            g_array_append_val(keep->free_large, i);
        }
    }
    g_free(large_used);
    return result < 0 ? result : keep_landing_attach(keep);
}

void keep_requests_detach(struct keep *keep)
{
    g_free(keep->buckets);
    g_free(keep->next);
    g_clear_pointer(&keep->free_slots, g_array_unref);
    g_clear_pointer(&keep->free_large, g_array_unref);
}

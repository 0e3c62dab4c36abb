/* check_record: a record as bytes and in a lockspace, with records that a stranger has written. */
#include <string.h>

#include "backend/lockspace/record.h"
#include "tests/support/check_main.h"

enum { NOW = 1000000, STAMP = 5000000, TIME = NOW + 70, END = NOW + 90000, RECORDS = 2000, MUTATIONS = 20 };

static GRand *chance;

/* --- records at random --- */

static struct record_id make_id(void)
{
    return (struct record_id){{g_rand_int(chance) + 1, g_rand_int(chance)}};
}

static int at_most(int most)
{
    return g_rand_int_range(chance, 0, most + 1);
}

static GBytes *make_bytes(void)
{
    char data[64];
    int length = at_most((int)sizeof data);
    for (int i = 0; i < length; i++) {
        data[i] = (char)g_rand_int(chance);
    }
    return at_most(3) ? g_bytes_new(data, (gsize)length) : NULL;
}

static GArray *make_segments(void)
{
    GArray *segments = backend_segments_new((uint64_t)at_most(9), 20, BACKEND_EXCLUSIVE);
    for (int i = at_most(3); i > 0; i--) {
        enum backend_mode mode = at_most(1) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        uint64_t start = (uint64_t)at_most(100);
        backend_segments_set(segments, start, at_most(3) ? start + 7 : BACKEND_RANGE_MAX, &mode);
    }
    return segments;
}

static struct record_ticket *make_ticket(const struct record *record, uint64_t fence, int number,
                                         struct record_id mount)
{
    struct record_ticket *t = g_new0(struct record_ticket, 1);
    t->id = make_id();
    t->mount = mount;
    t->sequence = record->directory && at_most(1);
    t->leaf = record->directory ? g_strdup_printf(t->sequence ? "s-%010d" : "p-%d-0000000001", number) : NULL;
    t->held = number == 0 || at_most(1);
    t->kind = (uint8_t)at_most(BACKEND_FCNTL);
    t->mode = at_most(1) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    t->claim = t->held && !at_most(4);
    t->guarded = t->held && !t->claim && !at_most(6) ? 1 + BACKEND_BROKEN : 0;
    t->fence = fence;
    t->handle = at_most(1) ? g_rand_int(chance) : 0;
    t->lock_owner = at_most(1) ? g_rand_int(chance) : 0;
    t->acquired = NOW - at_most(1000);
    t->acquired_new = at_most(1);
    t->deadline = t->held ? NOW + at_most(60000) : CLOCK_NEVER;
    t->deadline_new = t->held && at_most(1);
    t->ttl = at_most(60000);
    t->content_apart = !at_most(5);
    if (t->kind == BACKEND_FCNTL && !t->sequence) {
        t->segments = make_segments();
        t->mode = (uint8_t)backend_segments_mode(t->segments);
    }
    t->meta = make_bytes();
    t->content = make_bytes();
    return t;
}

static struct record *make_record(void)
{
    struct record *record = record_new(at_most(1));
    struct record_id mounts[] = {make_id(), make_id(), make_id()};
    int count = at_most(6);
    uint64_t fence = 10;
    if (record->directory) {
        record->attributes = (struct backend_directory){.ttl = at_most(9),
                                                        .width = 1 + (uint32_t)at_most(3),
                                                        .delay = at_most(1) * 500,
                                                        .sequence = 100,
                                                        .meta = make_bytes()};
        record->made = make_id();
    }
    record->granted = at_most(1) ? 5 : 0;
    for (int i = 0; i < count; i++) {
        fence += 1 + (uint64_t)at_most(5);
        fence = i > 2 && fence < RECORD_NEW_TOKENS ? RECORD_NEW_TOKENS : fence;
        g_ptr_array_add(record->tickets, make_ticket(record, fence, i, mounts[at_most(2)]));
    }
    record->tokens = fence >= RECORD_NEW_TOKENS ? (uint32_t)(fence - RECORD_NEW_TOKENS + 1) : 0;
    if (!record->directory && count == 1) {
        struct record_ticket *only = record->tickets->pdata[0];
        record->ends_with_record = only->held;
        record->after = record->ends_with_record ? at_most(500) : 0;
    }
    return record;
}

/* --- equality --- */

static bool same_bytes(GBytes *a, GBytes *b)
{
    return a && b ? g_bytes_equal(a, b) : a == b;
}

static void assert_same_ticket(const struct record *record, const struct record_ticket *a,
                               const struct record_ticket *b)
{
    uint64_t fence = a->fence;
    if (fence >= RECORD_NEW_TOKENS) {
        fence = STAMP - record->tokens + 1 + (fence - RECORD_NEW_TOKENS);
    }
    clock_ms deadline = a->deadline_new ? TIME + (a->deadline - NOW) : a->deadline;
    ck_assert(record_id_equal(a->id, b->id) && record_id_equal(a->mount, b->mount));
    ck_assert_str_eq(a->leaf ? a->leaf : "", b->leaf ? b->leaf : "");
    ck_assert_int_eq(a->sequence, b->sequence);
    ck_assert_int_eq(a->held, b->held);
    ck_assert_int_eq(a->claim, b->claim);
    ck_assert_int_eq(a->content_apart, b->content_apart);
    ck_assert_int_eq(a->kind, b->kind);
    ck_assert_int_eq(a->mode, b->mode);
    ck_assert_int_eq(a->guarded, b->guarded);
    ck_assert_uint_eq(fence, b->fence);
    ck_assert_uint_eq(a->handle, b->handle);
    ck_assert_uint_eq(a->lock_owner, b->lock_owner);
    ck_assert_int_eq(a->acquired_new ? TIME : a->acquired, b->acquired);
    ck_assert_int_eq(record->ends_with_record ? END - record->after : deadline, b->deadline);
    ck_assert_int_eq(a->ttl, b->ttl);
    ck_assert_int_eq(a->segments ? a->segments->len : 0, b->segments ? b->segments->len : 0);
    for (guint i = 0; a->segments && i < a->segments->len; i++) {
        const struct backend_segment *x = &g_array_index(a->segments, struct backend_segment, i);
        const struct backend_segment *y = &g_array_index(b->segments, struct backend_segment, i);
        ck_assert(x->start == y->start && x->end == y->end && x->mode == y->mode);
    }
    ck_assert(same_bytes(a->meta, b->meta) && same_bytes(a->content, b->content));
}

START_TEST(reader_computes_what_the_writer_could_not_know)
{
    for (int i = 0; i < RECORDS; i++) {
        struct record *record = make_record();
        GBytes *bytes = record_write(record, NOW);
        struct record *read = record_read(bytes, record->directory, STAMP, TIME, END);
        ck_assert_ptr_nonnull(read);
        ck_assert_uint_eq(read->tickets->len, record->tickets->len);
        ck_assert_uint_eq(read->granted, record->granted);
        if (record->directory) {
            ck_assert_int_eq(read->attributes.ttl, record->attributes.ttl);
            ck_assert_uint_eq(read->attributes.width, record->attributes.width);
            ck_assert_uint_eq(read->attributes.sequence, record->attributes.sequence);
            ck_assert(same_bytes(read->attributes.meta, record->attributes.meta));
            ck_assert(record_id_equal(read->made, record->made));
        }
        for (guint t = 0; t < read->tickets->len; t++) {
            assert_same_ticket(record, record->tickets->pdata[t], read->tickets->pdata[t]);
        }
        ck_assert_ptr_null(record_read(bytes, !record->directory, STAMP, TIME, END));
        record_free(read);
        record_free(record);
        g_bytes_unref(bytes);
    }
}
END_TEST

/* --- in a lockspace --- */

static void on_ticket(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
}

static void on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    (void)context, (void)why;
    lockspace_ticket_free(ticket);
}

static const struct lockspace_listener listener = {.granted = on_ticket,
                                                   .due = on_ticket,
                                                   .ended = on_ended,
                                                   .wanted = on_ticket,
                                                   .absorbed = on_ticket,
                                                   .guarded = on_ticket,
                                                   .unguarded = on_ticket};

START_TEST(lockspace_gives_back_the_record_that_was_loaded)
{
    for (int i = 0; i < RECORDS; i++) {
        struct record *record = make_record();
        struct lockspace *space = lockspace_new(&listener, NULL, 1);
        GBytes *bytes = record_write(record, NOW);
        struct record *read = record_read(bytes, record->directory, STAMP, TIME, END);
        record_load(space, "d", read, &read->attributes);
        struct record *saved = record_save(space, "d", read);
        ck_assert_uint_eq(saved->tickets->len, read->tickets->len);
        ck_assert_uint_eq(saved->tokens, 0);
        for (guint t = 0; t < saved->tickets->len; t++) {
            const struct record_ticket *ticket = saved->tickets->pdata[t];
            ck_assert(!ticket->acquired_new && !ticket->deadline_new);
            ck_assert_int_eq(ticket->deadline, ((struct record_ticket *)read->tickets->pdata[t])->deadline);
        }
        lockspace_free(space);
        record_free(saved);
        record_free(read);
        record_free(record);
        g_bytes_unref(bytes);
    }
}
END_TEST

/* All that a mount may do with a record: the lockspace must stand whatever is in it. */
static void use(const struct record *record)
{
    struct lockspace *space = lockspace_new(&listener, NULL, 1);
    struct backend_claim claim = {.kind = BACKEND_FLOCK, .ttl = 1000, .wait = at_most(1), .handle = 3};
    struct backend_ticket *ticket = NULL;
    struct backend_info info;
    struct record *copy = record_copy(record);
    record_load(space, "d", copy, &copy->attributes);
    while (lockspace_next(space) <= NOW + 40000) {
        lockspace_tick(space, NOW + 40000, 1);
    }
    record_grant(space, NOW, "d");
    lockspace_acquire(space, NOW, "d/" RECORD_LEAF, &claim, &ticket, &info);
    if (ticket) {
        ticket->user = copy->tickets->len ? copy->tickets->pdata[0] : NULL;
    }
    GPtrArray *revoked = record_revoked(space, "d/" RECORD_LEAF, 0);
    for (guint i = 0; i < revoked->len; i++) {
        record_revoke(space, NOW, revoked->pdata[i], BACKEND_BROKEN);
    }
    g_ptr_array_unref(revoked);
    record_grant(space, NOW, "d");
    struct record *saved = record_save(space, "d", copy);
    lockspace_free(space);
    record_free(saved);
    record_free(copy);
}

START_TEST(bytes_of_a_stranger_are_refused_or_are_a_record)
{
    unsigned accepted = 0, refused = 0;
    for (int i = 0; i < RECORDS; i++) {
        struct record *record = make_record();
        GBytes *bytes = record_write(record, NOW);
        gsize size;
        const uint8_t *data = g_bytes_get_data(bytes, &size);
        for (int m = 0; m < MUTATIONS; m++) {
            GByteArray *changed = g_byte_array_new();
            g_byte_array_append(changed, data, (guint)size);
            for (int n = 1 + at_most(2); n > 0; n--) {
                changed->data[at_most((int)changed->len - 1)] = (uint8_t)g_rand_int(chance);
            }
            if (!at_most(4)) {
                g_byte_array_set_size(changed, (guint)at_most((int)size));
            }
            GBytes *forged = g_byte_array_free_to_bytes(changed);
            struct record *read = record_read(forged, record->directory, STAMP, TIME, END);
            accepted += read != NULL;
            refused += read == NULL;
            if (read) {
                GBytes *again = record_write(read, NOW);
                ck_assert_ptr_nonnull(again);
                g_bytes_unref(again);
                use(read);
            }
            record_free(read);
            g_bytes_unref(forged);
        }
        record_free(record);
        g_bytes_unref(bytes);
    }
    ck_assert_uint_gt(accepted, 1000);
    ck_assert_uint_gt(refused, 1000);
}
END_TEST

START_TEST(record_that_is_too_large_is_not_written)
{
    struct record *record = record_new(false);
    struct record_id mount = make_id();
    for (int i = 0; i <= RECORD_TICKETS_MAX; i++) {
        if (i == RECORD_TICKETS_MAX) {
            GBytes *bytes = record_write(record, NOW);
            ck_assert_ptr_nonnull(bytes);
            g_bytes_unref(bytes);
        }
        struct record_ticket *t = g_new0(struct record_ticket, 1);
        *t = (struct record_ticket){
            .id = make_id(), .mount = mount, .held = i == 0, .kind = BACKEND_FLOCK, .fence = 1 + (uint64_t)i};
        g_ptr_array_add(record->tickets, t);
    }
    ck_assert_ptr_null(record_write(record, NOW));
    record_free(record);
}
END_TEST

/* --- steps of the rule that only a record needs --- */

START_TEST(ticket_is_put_back_unless_another_holds)
{
    struct lockspace *space = lockspace_new(&listener, NULL, 1);
    struct backend_directory plain = {.width = 1};
    struct record *empty = record_new(false);
    struct record_ticket one = {.id = make_id(),
                                .mount = make_id(),
                                .held = true,
                                .kind = BACKEND_LEASE,
                                .fence = 7,
                                .deadline = NOW + 500},
                         two = one;
    two.id = make_id();
    two.fence = 9;
    record_load(space, "d", empty, &plain);
    ck_assert_int_eq(record_put(space, NOW, "d", &one, NULL), BACKEND_OK);
    ck_assert_int_eq(record_put(space, NOW, "d", &two, NULL), BACKEND_BUSY);
    ck_assert_int_eq(record_put(space, NOW, "d", &one, record_ticket_find(space, "d", one.id)), BACKEND_OK);
    ck_assert_uint_eq(record_ticket_find(space, "d", one.id)->fence, 7);
    ck_assert_ptr_null(record_ticket_find(space, "d", two.id));
    two.held = false;
    two.deadline = CLOCK_NEVER;
    ck_assert_int_eq(record_put(space, NOW, "d", &two, NULL), BACKEND_OK); /* it waits */
    ck_assert(!record_ticket_find(space, "d", two.id)->held);
    lockspace_release(space, NOW, record_ticket_find(space, "d", one.id));
    ck_assert(record_ticket_find(space, "d", two.id)->held);
    lockspace_free(space);
    record_free(empty);
}
END_TEST

START_TEST(closed_lockspace_grants_no_waiter)
{
    struct lockspace *space = lockspace_new(&listener, NULL, 1);
    struct backend_directory plain = {.width = 1};
    struct record *empty = record_new(false);
    struct record_ticket waits = {
        .id = make_id(), .mount = make_id(), .kind = BACKEND_FLOCK, .fence = 7, .deadline = CLOCK_NEVER};
    record_close(space);
    record_load(space, "d", empty, &plain);
    ck_assert_int_eq(record_put(space, NOW, "d", &waits, NULL), BACKEND_OK);
    record_grant(space, NOW, "d");
    ck_assert(!record_ticket_find(space, "d", waits.id)->held);
    struct record *saved = record_save(space, "d", empty);
    ck_assert_uint_eq(saved->tickets->len, 1);
    record_free(saved);
    lockspace_free(space);
    record_free(empty);
}
END_TEST

static void setup(void)
{
    chance = g_rand_new_with_seed(1);
}

static void teardown(void)
{
    g_rand_free(chance);
}

int main(void)
{
    Suite *suite = suite_create("record");
    TCase *tcase = tcase_create("record");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, reader_computes_what_the_writer_could_not_know);
    tcase_add_test(tcase, lockspace_gives_back_the_record_that_was_loaded);
    tcase_add_test(tcase, bytes_of_a_stranger_are_refused_or_are_a_record);
    tcase_add_test(tcase, record_that_is_too_large_is_not_written);
    tcase_add_test(tcase, ticket_is_put_back_unless_another_holds);
    tcase_add_test(tcase, closed_lockspace_grants_no_waiter);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

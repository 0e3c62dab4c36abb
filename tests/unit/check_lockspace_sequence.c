/* check_lockspace_sequence: queues of sequence tickets, and the delay after a
 * holder was lost.  The random part compares with a plain array, from a printed
 * seed (CHECK_SEED repeats one). */
#include "tests/unit/lock_world.h"

#include <stdio.h>
#include <string.h>

static struct lock_world world;
static struct lock_world *const w = &world;

static void setup(void)
{
    lock_world_init(w);
    lock_world_mkdir(w, "q");
}

static void teardown(void)
{
    lock_world_clear(w);
}

static struct backend_claim ex(const char *who)
{
    return lock_world_sequence(who, BACKEND_EXCLUSIVE);
}

static struct backend_claim sh(const char *who)
{
    return lock_world_sequence(who, BACKEND_SHARED);
}

static void set_delay(const char *name, int64_t delay)
{
    struct backend_directory attributes = lock_world_stat(w, name).directory;
    attributes.delay = delay;
    ck_assert_int_eq(lockspace_set_directory(w->space, w->now, name, &attributes), BACKEND_OK);
}

START_TEST(tickets_are_numbered_files_of_their_directory)
{
    char name[64];
    struct backend_ticket *a = lock_world_hold(w, "q/job-", ex("A"));
    struct backend_ticket *b = lock_world_wait(w, "q/job-", ex("B"));
    lock_world_reported(w, "wanted A; ");
    lock_world_wait(w, "q/x-", ex("C"));
    ck_assert_str_eq(lock_world_list(w, "q"), "job-0000000000 job-0000000001 x-0000000002 ");
    ck_assert(lockspace_ticket_name(b, name, sizeof(name)));
    ck_assert_str_eq(name, "q/job-0000000001");
    ck_assert(lockspace_ticket_sequence(b));
    ck_assert_uint_lt(a->fence, b->fence);
    struct backend_info info = lock_world_stat(w, "q/x-0000000002");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_uint_eq(info.position, 2);
    ck_assert_uint_eq(lock_world_stat(w, "q").waiters, 2);
    ck_assert_uint_eq(lock_world_stat(w, "q").holders, 1);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 1);
    ck_assert_uint_eq(lockspace_counts(w->space).waiting, 2);
    ck_assert_int_eq(lock_world_stat(w, "q/job-").type, BACKEND_NOTHING);
    ck_assert_int_eq(lockspace_rmdir(w->space, "q"), BACKEND_NOT_EMPTY);
}
END_TEST

START_TEST(ticket_behind_many_other_names_is_found_in_steps)
{
    struct backend_entry entries[3];
    struct backend_info infos[3];
    char name[64];
    for (int i = 0; i < 15000; i++) {
        snprintf(name, sizeof name, "q/a%05d", i);
        lock_world_hold(w, name, lock_world_claim("A", BACKEND_EXCLUSIVE));
    }
    ck_assert_int_eq(lockspace_tickets(w->space, "q", "", 3, entries, infos), 0);
    lock_world_hold(w, "q/z-", ex("B"));
    ck_assert_int_eq(lockspace_tickets(w->space, "q", "", 3, entries, infos), 1);
    ck_assert_str_eq(entries[0].name, "a09999");
    ck_assert_int_eq(infos[0].type, BACKEND_NOTHING);
    ck_assert_int_eq(lockspace_tickets(w->space, "q", "a09999", 3, entries, infos), 1);
    ck_assert_str_eq(entries[0].name, "z-0000000000");
    ck_assert_int_eq(entries[0].info->type, BACKEND_LOCK);
    ck_assert_int_eq(lockspace_tickets(w->space, "q", "z-0000000000", 3, entries, infos), 0);
    ck_assert_int_eq(lockspace_tickets(w->space, "p", "", 3, entries, infos), -BACKEND_MISSING);
}
END_TEST

START_TEST(tickets_hold_in_their_order)
{
    struct backend_ticket *a = lock_world_hold(w, "q/job-", ex("A"));
    struct backend_ticket *b = lock_world_wait(w, "q/job-", ex("B"));
    lock_world_wait(w, "q/job-", ex("C"));
    g_string_truncate(w->log, 0);
    lock_world_release(w, b);
    lock_world_reported(w, "");
    ck_assert_uint_eq(lock_world_stat(w, "q/job-0000000002").position, 1);
    lock_world_release(w, a);
    lock_world_reported(w, "granted C; ");
    ck_assert_str_eq(lock_world_list(w, "q"), "job-0000000002 ");
}
END_TEST

/* Dead ones would cost who waits behind them a term each. */
START_TEST(term_of_a_ticket_runs_while_it_waits)
{
    lock_world_hold(w, "q/job-", ex("A"));
    lock_world_wait(w, "q/job-", ex("B"));
    lock_world_tick(w, WORLD_TTL / 2);
    struct backend_ticket *c = lock_world_wait(w, "q/job-", ex("C"));
    g_string_truncate(w->log, 0);
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ended B expired; granted C; ");
    ck_assert_int_eq(c->deadline, WORLD_TTL / 2 + WORLD_TTL);
}
END_TEST

START_TEST(numbers_never_go_back)
{
    lock_world_release(w, lock_world_hold(w, "q/job-", ex("A")));
    lock_world_release(w, lock_world_hold(w, "q/job-", ex("A")));
    lock_world_hold(w, "q/job-", ex("A"));
    ck_assert_str_eq(lock_world_list(w, "q"), "job-0000000002 ");
    ck_assert_uint_eq(lock_world_stat(w, "q").directory.sequence, 3);
}
END_TEST

START_TEST(a_number_whose_name_is_taken_is_skipped)
{
    lock_world_hold(w, "q/job-0000000000", lock_world_claim("A", BACKEND_EXCLUSIVE));
    lock_world_mkdir(w, "q/job-0000000001");
    lock_world_hold(w, "q/job-", ex("B"));
    ck_assert_str_eq(lock_world_list(w, "q"), "job-0000000000 job-0000000001/ job-0000000002 ");
}
END_TEST

START_TEST(the_file_of_a_ticket_is_no_free_name)
{
    struct backend_claim claim = lock_world_claim("B", BACKEND_SHARED);
    struct backend_ticket *ticket = NULL;
    struct backend_info holder;
    struct backend_directory attributes = {.width = 1};
    struct backend_ticket *other = lock_world_hold(w, "other", lock_world_claim("C", BACKEND_EXCLUSIVE));
    lock_world_hold(w, "q/job-", ex("A"));
    struct backend_ticket *waiting = lock_world_wait(w, "q/job-", ex("W"));
    ck_assert_int_eq(lockspace_acquire(w->space, 0, "q/job-0000000001", &claim, &ticket, &holder), BACKEND_BUSY);
    ck_assert_ptr_eq(holder.ticket, waiting);
    ck_assert_int_eq(lockspace_mkdir(w->space, "q/job-0000000001", &attributes), BACKEND_EXISTS);
    ck_assert_int_eq(lockspace_rename(w->space, 0, other, "q/job-0000000001", NULL), BACKEND_BUSY);
    ck_assert_int_eq(lockspace_rename(w->space, 0, waiting, "free", NULL), BACKEND_INVALID);
    lockspace_test(w->space, "q/job-0000000001", &claim, &holder);
    ck_assert_ptr_eq(holder.ticket, waiting);
}
END_TEST

START_TEST(names_that_cannot_be_numbered_are_refused)
{
    char name[260];
    ck_assert_int_eq(lock_world_try(w, "q/job", ex("A"), NULL), BACKEND_INVALID);
    ck_assert_int_eq(lock_world_try(w, "x/job-", ex("A"), NULL), BACKEND_MISSING);
    memset(name, 'a', sizeof(name));
    name[245] = '-';
    name[246] = '\0';
    ck_assert_int_eq(lock_world_try(w, name, ex("A"), NULL), BACKEND_INVALID);
    ck_assert_int_eq(lock_world_try(w, name + 1, ex("A"), NULL), BACKEND_OK);
}
END_TEST

START_TEST(width_makes_a_semaphore)
{
    struct backend_ticket *tickets[5];
    lock_world_set_width(w, "q", 3);
    for (int i = 0; i < 3; i++) {
        tickets[i] = lock_world_hold(w, "q/job-", ex("H"));
    }
    tickets[3] = lock_world_wait(w, "q/job-", ex("D"));
    lock_world_wait(w, "q/job-", ex("E"));
    g_string_truncate(w->log, 0);
    lock_world_release(w, tickets[1]);
    lock_world_reported(w, "granted D; ");
    lock_world_release(w, tickets[3]);
    lock_world_reported(w, "granted E; ");
}
END_TEST

START_TEST(a_width_that_grows_grants_at_once_and_one_that_shrinks_takes_nothing)
{
    struct backend_ticket *a = lock_world_hold(w, "q/job-", ex("A"));
    struct backend_ticket *b = lock_world_wait(w, "q/job-", ex("B"));
    struct backend_ticket *c = lock_world_wait(w, "q/job-", ex("C"));
    lock_world_wait(w, "q/job-", ex("D"));
    g_string_truncate(w->log, 0);
    lock_world_set_width(w, "q", 3);
    lock_world_reported(w, "granted B; granted C; ");
    lock_world_set_width(w, "q", 1);
    lock_world_reported(w, "");
    ck_assert(a->held && b->held && c->held);
    lock_world_release(w, a);
    lock_world_release(w, c);
    lock_world_reported(w, "");
    lock_world_release(w, b);
    lock_world_reported(w, "granted D; ");
}
END_TEST

START_TEST(shared_and_exclusive_tickets_are_a_fair_read_write_lock)
{
    struct backend_ticket *r1 = lock_world_hold(w, "q/job-", sh("R1"));
    struct backend_ticket *r2 = lock_world_hold(w, "q/job-", sh("R2"));
    struct backend_ticket *writer = lock_world_wait(w, "q/job-", ex("W"));
    lock_world_wait(w, "q/job-", sh("R3"));
    lock_world_wait(w, "q/job-", sh("R4"));
    g_string_truncate(w->log, 0);
    lock_world_release(w, r1);
    lock_world_reported(w, "");
    lock_world_release(w, r2);
    lock_world_reported(w, "granted W; ");
    lock_world_release(w, writer);
    lock_world_reported(w, "granted R3; granted R4; ");
}
END_TEST

START_TEST(a_waiting_ticket_becomes_shared_where_it_stands)
{
    struct backend_claim shared = lock_world_claim("B2", BACKEND_SHARED);
    struct backend_claim exclusive = lock_world_claim("A2", BACKEND_EXCLUSIVE);
    struct backend_ticket *a = lock_world_hold(w, "q/job-", sh("A"));
    struct backend_ticket *b = lock_world_wait(w, "q/job-", ex("B"));
    lock_world_wait(w, "q/job-", sh("C"));
    g_string_truncate(w->log, 0);
    ck_assert_int_eq(lockspace_convert(w->space, 0, b, &shared), BACKEND_OK);
    lock_world_reported(w, "granted B2; granted C; ");
    ck_assert_int_eq(lockspace_convert(w->space, 0, a, &exclusive), BACKEND_BUSY);
    ck_assert_int_eq(lockspace_convert(w->space, 0, b, &exclusive), BACKEND_BUSY);
}
END_TEST

START_TEST(who_was_passed_over_joins_no_more_than_the_width)
{
    struct backend_claim exclusive = lock_world_claim("C2", BACKEND_EXCLUSIVE);
    lock_world_set_width(w, "q", 4);
    lock_world_hold(w, "q/job-", sh("A"));
    struct backend_ticket *b = lock_world_hold(w, "q/job-", ex("B"));
    struct backend_ticket *c = lock_world_wait(w, "q/job-", sh("C"));
    struct backend_ticket *d = lock_world_hold(w, "q/job-", ex("D"));
    g_string_truncate(w->log, 0);
    ck_assert_uint_eq(lock_world_stat(w, "q/job-0000000002").position, 3);
    ck_assert_uint_eq(lock_world_stat(w, "q/job-0000000003").position, 2);
    lock_world_set_width(w, "q", 1);
    lock_world_release(w, b);
    lock_world_reported(w, ""); /* D is exclusive */
    ck_assert_uint_eq(lock_world_stat(w, "q/job-0000000002").position, 2);
    lock_world_set_width(w, "q", 2);
    ck_assert_int_eq(lockspace_convert(w->space, 0, c, &exclusive), BACKEND_OK);
    lock_world_reported(w, "");
    lock_world_release(w, d);
    lock_world_reported(w, "granted C2; ");
}
END_TEST

START_TEST(a_ticket_that_is_not_kept_alive_does_not_stall_the_queue)
{
    struct backend_claim longer = ex("C");
    longer.ttl = 10 * WORLD_TTL;
    lock_world_hold(w, "q/job-", ex("A"));
    lock_world_wait(w, "q/job-", ex("B"));
    lock_world_wait(w, "q/job-", longer);
    g_string_truncate(w->log, 0);
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ended B expired; granted C; ");
    ck_assert(lockspace_ticket_sequence(w->ended));
    ck_assert_str_eq(lock_world_list(w, "q"), "job-0000000002 ");
}
END_TEST

START_TEST(a_ticket_is_revoked_by_its_token_also_while_it_waits)
{
    lock_world_hold(w, "q/job-", ex("A"));
    struct backend_ticket *b = lock_world_wait(w, "q/job-", ex("B"));
    g_string_truncate(w->log, 0);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q/job-0000000001", b->fence + 1), BACKEND_STALE);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q/job-0000000001", b->fence), BACKEND_OK);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q/job-0000000000", 0), BACKEND_OK);
    lock_world_reported(w, "ended B released; ended A broken; ");
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q", 0), BACKEND_IS_DIRECTORY);
}
END_TEST

START_TEST(tickets_are_restored_to_their_places)
{
    struct backend_ticket *ticket = NULL;
    struct backend_claim claim = ex("A");
    claim.kind = BACKEND_LEASE;
    claim.wait = false;
    ck_assert_int_eq(lockspace_restore(w->space, 0, "q/b-0000000003", &claim, NULL, 10, 0, 500, &ticket), BACKEND_OK);
    claim.wait = true;
    claim.user = (void *)"B";
    ck_assert_int_eq(lockspace_restore(w->space, 0, "q/a-0000000007", &claim, NULL, 11, 0, 500, &ticket),
                     BACKEND_QUEUED);
    ck_assert(!ticket->held);
    ck_assert_int_eq(lockspace_restore(w->space, 0, "q/a-0000000007", &claim, NULL, 12, 0, 500, &ticket), BACKEND_BUSY);
    ck_assert_int_eq(lockspace_restore(w->space, 0, "q/a", &claim, NULL, 12, 0, 500, &ticket), BACKEND_INVALID);
    ck_assert_uint_eq(lock_world_stat(w, "q").directory.sequence, 8);
    ck_assert_uint_eq(lock_world_stat(w, "q/a-0000000007").position, 1);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q/b-0000000003", 10), BACKEND_OK);
    lock_world_reported(w, "ended A released; granted B; ");
}
END_TEST

START_TEST(a_restored_ticket_holds_if_those_before_it_are_gone)
{
    struct backend_ticket *ticket = NULL;
    struct backend_claim claim = ex("A");
    ck_assert_int_eq(lockspace_restore(w->space, 50, "q/a-0000000007", &claim, NULL, 11, 0, 500, &ticket), BACKEND_OK);
    ck_assert(ticket->held);
    ck_assert_int_eq(ticket->acquired, 50);
    ck_assert_int_eq(ticket->deadline, 50 + WORLD_TTL);
    lock_world_reported(w, "");
}
END_TEST

START_TEST(a_name_stays_refused_for_a_delay_after_its_holder_was_lost)
{
    struct backend_claim longer = lock_world_claim("B", BACKEND_EXCLUSIVE);
    longer.ttl = 100 * WORLD_TTL;
    set_delay("q", 300);
    lock_world_hold(w, "q/a", lock_world_claim("A", BACKEND_SHARED));
    lock_world_wait(w, "q/a", longer);
    g_string_truncate(w->log, 0);
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ");
    ck_assert_int_eq(lock_world_stat(w, "q/a").type, BACKEND_NOTHING);
    ck_assert_str_eq(lock_world_list(w, "q"), "");
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 0);
    lock_world_refused(w, "q/a", lock_world_claim("C", BACKEND_SHARED));
    lock_world_release(w, lock_world_wait(w, "q/a", lock_world_claim("C", BACKEND_SHARED)));
    lock_world_reported(w, "");
    lock_world_tick(w, WORLD_TTL + 299);
    lock_world_reported(w, "");
    lock_world_tick(w, WORLD_TTL + 300);
    lock_world_reported(w, "granted B; ");
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 1);
}
END_TEST

START_TEST(a_delay_ends_and_leaves_nothing)
{
    set_delay("q", 300);
    struct backend_ticket *a = lock_world_hold(w, "q/a", lock_world_claim("A", BACKEND_EXCLUSIVE));
    w->now = WORLD_TTL;
    lockspace_renew(w->space, w->now, a, WORLD_TTL, 0);
    lock_world_reported(w, "ended A lost; ");
    lock_world_refused(w, "q/a", lock_world_claim("C", BACKEND_SHARED));
    w->now = WORLD_TTL + 300;
    lock_world_release(w, lock_world_hold(w, "q/a", lock_world_claim("C", BACKEND_SHARED)));
    lock_world_reported(w, "");
    ck_assert_int_eq(lockspace_next(w->space), CLOCK_NEVER);
}
END_TEST

START_TEST(there_is_no_delay_after_a_release_or_for_what_was_provisional)
{
    struct backend_claim provisional = lock_world_claim("P", BACKEND_EXCLUSIVE);
    provisional.kind = BACKEND_PROVISIONAL;
    set_delay("q", 300);
    lock_world_release(w, lock_world_hold(w, "q/a", lock_world_claim("A", BACKEND_EXCLUSIVE)));
    struct backend_ticket *b = lock_world_hold(w, "q/a", lock_world_claim("B", BACKEND_EXCLUSIVE));
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q/a", b->fence), BACKEND_OK);
    lock_world_hold(w, "q/b", provisional);
    lock_world_tick(w, WORLD_TTL);
    lock_world_hold(w, "q/b", lock_world_claim("D", BACKEND_EXCLUSIVE));
}
END_TEST

START_TEST(a_lock_that_was_broken_is_delayed)
{
    struct backend_claim other = lock_world_claim("B", BACKEND_EXCLUSIVE);
    struct backend_ticket *ticket;
    other.wait = false;
    set_delay("q", 300);
    lock_world_hold(w, "q/a", lock_world_claim("A", BACKEND_EXCLUSIVE));
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "q/a", 0), BACKEND_OK);
    ck_assert_int_eq(lock_world_try(w, "q/a", other, &ticket), BACKEND_BUSY);
    lock_world_tick(w, 300);
    lock_world_hold(w, "q/a", lock_world_claim("C", BACKEND_EXCLUSIVE));
}
END_TEST

START_TEST(there_is_no_delay_after_one_that_only_waited)
{
    struct backend_claim longer = lock_world_claim("A", BACKEND_EXCLUSIVE);
    longer.ttl = 10 * WORLD_TTL;
    set_delay("q", 300);
    struct backend_ticket *a = lock_world_hold(w, "q/a", longer);
    lock_world_wait(w, "q/a", lock_world_claim("B", BACKEND_EXCLUSIVE));
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "wanted A; ended B expired; ");
    lock_world_release(w, a);
    lock_world_hold(w, "q/a", lock_world_claim("C", BACKEND_EXCLUSIVE));
}
END_TEST

START_TEST(a_lost_piece_of_a_range_delays_all_of_the_lock)
{
    set_delay("q", 300);
    lock_world_hold(w, "q/a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 9));
    lock_world_unlock(w, 1, 5, 5);
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ");
    lock_world_refused(w, "q/a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 50, 50));
    lock_world_tick(w, WORLD_TTL + 300);
    lock_world_hold(w, "q/a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 50, 50));
}
END_TEST

START_TEST(a_lost_ticket_keeps_its_place_for_the_delay)
{
    struct backend_claim longer = ex("B");
    longer.ttl = 100 * WORLD_TTL;
    set_delay("q", 300);
    lock_world_hold(w, "q/job-", ex("A"));
    lock_world_wait(w, "q/job-", longer);
    g_string_truncate(w->log, 0);
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ");
    ck_assert_str_eq(lock_world_list(w, "q"), "job-0000000001 ");
    ck_assert_uint_eq(lock_world_stat(w, "q/job-0000000001").position, 1);
    ck_assert_uint_eq(lock_world_stat(w, "q").holders, 0);
    lock_world_tick(w, WORLD_TTL + 300);
    lock_world_reported(w, "granted B; ");
    ck_assert_uint_eq(lock_world_stat(w, "q").holders, 1);
}
END_TEST

START_TEST(a_delay_keeps_its_directory)
{
    set_delay("q", 300);
    lock_world_hold(w, "q/a", lock_world_claim("A", BACKEND_EXCLUSIVE));
    lock_world_hold(w, "q/job-", ex("B"));
    lock_world_tick(w, WORLD_TTL);
    ck_assert_int_eq(lockspace_rmdir(w->space, "q"), BACKEND_NOT_EMPTY);
    lock_world_tick(w, WORLD_TTL + 300);
    ck_assert_int_eq(lockspace_rmdir(w->space, "q"), BACKEND_OK);
    ck_assert_int_eq(lockspace_next(w->space), CLOCK_NEVER);
}
END_TEST

/* The naive model of a queue: tickets in their order. */
enum { CROWD = 30 };

struct place {
    struct backend_ticket *real;
    bool shared;
    bool held;
};

struct line {
    struct place places[CROWD];
    unsigned length;
    unsigned width;
    GString *expected;
};

static bool model_may_hold(const struct line *line, unsigned i)
{
    unsigned before = 0;
    bool behind_exclusive = false, exclusive_holds = false;
    for (unsigned k = 0; k < line->length; k++) {
        before += k != i && (line->places[k].held || k < i);
        behind_exclusive |= k < i && !line->places[k].shared;
        exclusive_holds |= line->places[k].held && !line->places[k].shared;
    }
    bool room = before < line->width;
    return line->places[i].shared ? !behind_exclusive && (room || !exclusive_holds) : room;
}

static unsigned model_position(const struct line *line, unsigned i)
{
    unsigned position = 0;
    for (unsigned k = 0; k < line->length; k++) {
        bool held = line->places[k].held;
        position += held == line->places[i].held ? k < i : held;
    }
    return position;
}

static void model_grant(struct line *line)
{
    for (unsigned i = 0; i < line->length; i++) {
        if (!line->places[i].held && model_may_hold(line, i)) {
            line->places[i].held = true;
            g_string_append_printf(line->expected, "granted T; ");
        }
    }
}

static enum backend_result model_convert(struct line *line, unsigned i, bool shared)
{
    unsigned others = 0, sharing = 0;
    for (unsigned k = 0; k < line->length; k++) {
        others += k != i && line->places[k].held;
        sharing += k != i && line->places[k].held && line->places[k].shared;
    }
    if (line->places[i].held && line->places[i].shared && !shared && (sharing > 0 || others >= line->width)) {
        return BACKEND_BUSY;
    }
    line->places[i].shared = shared;
    model_grant(line);
    return BACKEND_OK;
}

static void change_line(struct line *line, GRand *rand)
{
    unsigned i = line->length > 0 ? (unsigned)g_rand_int_range(rand, 0, (gint32)line->length) : 0;
    bool shared = g_rand_boolean(rand);
    int choice = g_rand_int_range(rand, 0, 10);
    if (choice < 5 && line->length < CROWD) {
        struct place *last = &line->places[line->length];
        *last = (struct place){.shared = shared};
        last->held = model_may_hold(line, line->length++);
        enum backend_result result = lock_world_try(w, "q/job-", shared ? sh("T") : ex("T"), &last->real);
        ck_assert_int_eq(result, last->held ? BACKEND_OK : BACKEND_QUEUED);
        g_string_truncate(w->log, 0); /* `wanted` */
    } else if (choice < 8 && line->length > 0) {
        struct backend_ticket *real = line->places[i].real;
        memmove(&line->places[i], &line->places[i + 1], (--line->length - i) * sizeof(struct place));
        model_grant(line);
        lock_world_release(w, real);
    } else if (choice < 9 && line->length > 0) {
        struct backend_claim claim = lock_world_claim("T", shared ? BACKEND_SHARED : BACKEND_EXCLUSIVE);
        enum backend_result result = model_convert(line, i, shared);
        ck_assert_int_eq(lockspace_convert(w->space, 0, line->places[i].real, &claim), result);
    } else {
        line->width = (unsigned)g_rand_int_range(rand, 1, 6);
        model_grant(line);
        lock_world_set_width(w, "q", line->width);
    }
}

START_TEST(random_queues_agree_with_an_array)
{
    const char *given = g_getenv("CHECK_SEED");
    uint32_t seed = given ? (uint32_t)g_ascii_strtoull(given, NULL, 10) : (uint32_t)g_get_monotonic_time();
    GRand *rand = g_rand_new_with_seed(seed);
    struct line line = {.width = 1, .expected = g_string_new(NULL)};
    printf("# CHECK_SEED=%u\n", seed);
    fflush(stdout);
    for (int step = 0; step < 20000; step++) {
        unsigned held = 0;
        change_line(&line, rand);
        lock_world_reported(w, line.expected->str);
        g_string_truncate(line.expected, 0);
        for (unsigned i = 0; i < line.length; i++) {
            char name[64];
            ck_assert_int_eq(line.places[i].real->held, line.places[i].held);
            ck_assert(lockspace_ticket_name(line.places[i].real, name, sizeof(name)));
            ck_assert_uint_eq(lock_world_stat(w, name).position, model_position(&line, i));
            held += line.places[i].held;
        }
        ck_assert_uint_eq(lock_world_stat(w, "q").holders, held);
        ck_assert_uint_eq(lock_world_stat(w, "q").waiters, line.length - held);
        ck_assert_uint_eq(lockspace_counts(w->space).locks, held);
    }
    g_string_free(line.expected, TRUE);
    g_rand_free(rand);
}
END_TEST

#define SCENARIO(name) tcase_add_test(tcase, name)

int main(void)
{
    Suite *suite = suite_create("lockspace_sequence");
    TCase *tcase = tcase_create("sequence");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    SCENARIO(tickets_are_numbered_files_of_their_directory);
    SCENARIO(ticket_behind_many_other_names_is_found_in_steps);
    SCENARIO(tickets_hold_in_their_order);
    SCENARIO(term_of_a_ticket_runs_while_it_waits);
    SCENARIO(numbers_never_go_back);
    SCENARIO(a_number_whose_name_is_taken_is_skipped);
    SCENARIO(the_file_of_a_ticket_is_no_free_name);
    SCENARIO(names_that_cannot_be_numbered_are_refused);
    SCENARIO(width_makes_a_semaphore);
    SCENARIO(a_width_that_grows_grants_at_once_and_one_that_shrinks_takes_nothing);
    SCENARIO(shared_and_exclusive_tickets_are_a_fair_read_write_lock);
    SCENARIO(a_waiting_ticket_becomes_shared_where_it_stands);
    SCENARIO(who_was_passed_over_joins_no_more_than_the_width);
    SCENARIO(a_ticket_that_is_not_kept_alive_does_not_stall_the_queue);
    SCENARIO(a_ticket_is_revoked_by_its_token_also_while_it_waits);
    SCENARIO(tickets_are_restored_to_their_places);
    SCENARIO(a_restored_ticket_holds_if_those_before_it_are_gone);
    SCENARIO(a_name_stays_refused_for_a_delay_after_its_holder_was_lost);
    SCENARIO(a_delay_ends_and_leaves_nothing);
    SCENARIO(there_is_no_delay_after_a_release_or_for_what_was_provisional);
    SCENARIO(a_lock_that_was_broken_is_delayed);
    SCENARIO(there_is_no_delay_after_one_that_only_waited);
    SCENARIO(a_lost_piece_of_a_range_delays_all_of_the_lock);
    SCENARIO(a_lost_ticket_keeps_its_place_for_the_delay);
    SCENARIO(a_delay_keeps_its_directory);
    SCENARIO(random_queues_agree_with_an_array);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}

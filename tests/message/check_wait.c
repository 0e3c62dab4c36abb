/* Waiting: every order of grant, interrupt and close, for flock, fcntl and opens that wait for a provisional outcome.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "fs/hold/hold.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

/* --- each order, for each kind of lock ---------------------------------------- */

enum { FLOCK, FCNTL, KINDS };

static uint64_t owner_of(const struct wire_file *file)
{
    return file->fh * 2 + 1;
}

static uint64_t ask(int kind, const struct wire_file *file)
{
    w->pid = file->fh == a.fh ? alice : file->fh == b.fh ? bob : carol;
    return kind == FLOCK ? wire_flock(w, *file, LOCK_EX)
                         : wire_setlk(w, *file, owner_of(file), F_WRLCK, 0, INT64_MAX, true);
}

static int give_back(int kind, const struct wire_file *file)
{
    return wire_result(w, kind == FLOCK ? wire_flock(w, *file, LOCK_UN)
                                        : wire_setlk(w, *file, owner_of(file), F_UNLCK, 0, INT64_MAX, false));
}

/* Does nothing stand between the next who asks and the lock? */
static void check_free(int kind)
{
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
    ck_assert_int_eq(wire_result(w, ask(kind, &c)), 0);
    ck_assert_int_eq(give_back(kind, &c), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}

START_TEST(each_waiter_is_granted_in_order_of_arrival)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    uint64_t second = ask(_i, &c);
    ck_assert(wire_waits(w, second));
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert(wire_waits(w, second));
    ck_assert_int_eq(give_back(_i, &b), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_int_eq(give_back(_i, &c), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_interrupt_before_the_claim_is_answered_ends_it)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t requested = ask(_i, &b);
    ck_assert(wire_waits(w, requested));
    wire_interrupt(w, requested);
    ck_assert_int_eq(wire_result(w, requested), EINTR);
    ck_assert_uint_eq(fake_backend_held_back(w->fake, FAKE_ACQUIRE), 0);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    check_free(_i);
}
END_TEST

START_TEST(each_interrupt_that_overtakes_its_request_ends_it)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    wire_interrupt(w, w->next_unique + 2);
    uint64_t requested = ask(_i, &b);
    ck_assert_int_eq(wire_result(w, requested), EINTR);
    ck_assert_int_eq(give_back(_i, &a), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_interrupt_does_not_undo_what_is_granted_at_once)
{
    wire_interrupt(w, w->next_unique + 2);
    uint64_t requested = ask(_i, &b);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_int_eq(give_back(_i, &b), 0);
}
END_TEST

START_TEST(each_interrupt_of_a_waiter_takes_it_out_of_the_queue)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    uint64_t second = ask(_i, &c);
    ck_assert(wire_waits(w, second));
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 2);
    wire_interrupt(w, first);
    ck_assert_int_eq(wire_result(w, first), EINTR);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 1);
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_int_eq(give_back(_i, &c), 0);
    check_free(_i);
}
END_TEST

/* The claim may have changed its lock owner's ticket, and let another in: the answer decides. */
START_TEST(interrupt_lets_the_answer_come_to_a_lock_owner_that_holds)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 20, 29, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 10, 19, false)), 0);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t requested = wire_setlk(w, a, 1, F_RDLCK, 0, _i ? 19 : 9, true);
    ck_assert(wire_waits(w, requested));
    for (int i = 0; i < 2; i++) {
        wire_interrupt(w, requested);
        ck_assert(wire_waits(w, requested));
    }
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, requested), _i ? EINTR : 0); /* it would wait */
    ck_assert_int_eq(wire_result(w, wire_setlk(w, c, 3, F_RDLCK, 0, 9, false)), _i ? EAGAIN : 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, c, 3, F_RDLCK, 20, 29, false)), EAGAIN);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
}
END_TEST

START_TEST(each_grant_that_crosses_an_interrupt_is_given_back)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    uint64_t second = ask(_i, &c);
    ck_assert(wire_waits(w, second));
    fake_backend_hold_events(w->fake, true);
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_uint_eq(fake_backend_events(w->fake), 1); /* granted to the first, who is not told yet */
    wire_interrupt(w, first);
    ck_assert_int_eq(wire_result(w, first), EINTR);
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, second), 0); /* the next one has it */
    ck_assert_int_eq(give_back(_i, &c), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_grant_reported_before_the_interrupt_is_seen_stands)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    fake_backend_hold_events(w->fake, true);
    ck_assert_int_eq(give_back(_i, &a), 0);
    wire_interrupt(w, first);
    wire_take(w); /* marked, not yet acted upon */
    fake_backend_hold_events(w->fake, false);
    fake_backend_deliver(w->fake);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_interrupt_after_the_answer_is_ignored)
{
    uint64_t requested = ask(_i, &b);
    ck_assert_int_eq(wire_result(w, requested), 0);
    wire_interrupt(w, requested);
    wire_turn(w);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_second_interrupt_is_ignored)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    wire_interrupt(w, first);
    wire_interrupt(w, first);
    ck_assert_int_eq(wire_result(w, first), EINTR);
    wire_interrupt(w, first);
    wire_turn(w);
    ck_assert_int_eq(give_back(_i, &a), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_close_gives_back_and_grants_the_next)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flush(w, a, owner_of(&a))), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, a)), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_death_gives_back_at_release)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    wire_kill(w, alice);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_release(w, a)), 0); /* also without FLUSH */
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

/* Another thread closes the descriptor: the kernel sends FLUSH, and RELEASE when
 * the wait has ended. */
START_TEST(each_flush_while_waiting_leaves_the_wait_interruptible)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(wire_result(w, wire_flush(w, b, owner_of(&b))), 0);
    if (wire_waits(w, first)) {
        wire_interrupt(w, first);
        ck_assert_int_eq(wire_result(w, first), EINTR);
    }
    ck_assert_int_eq(wire_result(w, wire_release(w, b)), 0);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
    ck_assert_int_eq(give_back(_i, &a), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_flush_while_waiting_leaves_the_grant_to_come)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(wire_result(w, wire_flush(w, b, owner_of(&b))), 0);
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, b)), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_close_of_another_handle_leaves_a_flock_waiting)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    w->pid = bob;
    struct wire_file other = wire_opened(w, b.node, O_RDONLY);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(wire_result(w, wire_release(w, other)), 0);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_wait_whose_ticket_is_lost_is_enolck)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    fake_backend_hold_events(w->fake, true);
    fake_backend_advance(w->fake, 40 * SECOND); /* nobody renewed meanwhile */
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, first), ENOLCK);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
    ck_assert_int_eq(give_back(_i, &a), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_claim_of_unknown_outcome_is_enolck)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t requested = ask(_i, &b);
    ck_assert(wire_waits(w, requested));
    fake_backend_refuse(w->fake, FAKE_ACQUIRE, 0, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, requested), ENOLCK);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    check_free(_i);
}
END_TEST

START_TEST(each_holder_and_waiter_is_renewed)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    wire_advance(w, 600 * SECOND);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    wire_advance(w, 600 * SECOND);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_queue_of_waiters_ends_with_the_mount)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b), second = ask(_i, &c);
    ck_assert(wire_waits(w, first));
    fs_stop(w->fs);
    ck_assert_int_eq(wire_result(w, first), ENOLCK);
    ck_assert_int_eq(wire_result(w, second), ENOLCK);
}
END_TEST

START_TEST(each_waiter_gets_what_another_mount_leaves)
{
    fake_backend_occupy(w->fake, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    fake_backend_vacate(w->fake, "L");
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(give_back(_i, &b), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_grant_that_is_ended_before_it_is_reported_waits_on)
{
    for (enum backend_end why = BACKEND_RELEASED; why <= BACKEND_BROKEN; why++) {
        ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
        uint64_t first = ask(_i, &b), second = ask(_i, &c);
        ck_assert(wire_waits(w, first));
        fake_backend_hold_events(w->fake, true);
        ck_assert_int_eq(give_back(_i, &a), 0);
        fake_backend_end(w->fake, "L", why); /* what the first was granted, and is not told of */
        fake_backend_hold_events(w->fake, false);
        ck_assert_int_eq(wire_result(w, second), 0);
        ck_assert(wire_waits(w, first));
        ck_assert_int_eq(give_back(_i, &c), 0);
        ck_assert_int_eq(wire_result(w, first), 0);
        ck_assert_int_eq(give_back(_i, &b), 0);
        check_free(_i);
    }
}
END_TEST

/* Its mount has not restored it there yet. */
START_TEST(lock_that_its_store_has_forgotten_is_held)
{
    size_t size;
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    uint64_t state = wire_getxattr(w, a.node, "user.lease.state");
    wire_turn(w);
    fake_backend_refuse(w->fake, FAKE_STAT, 0, BACKEND_OK); /* nothing is there */
    ck_assert_int_eq(wire_result(w, state), 0);
    const char *value = wire_data(w, state, &size);
    ck_assert_mem_eq(value, "held", MAX(size, 4));
    fake_backend_hold(w->fake, FAKE_STAT, false);
    ck_assert_int_eq(give_back(_i, &a), 0);
    check_free(_i);
}
END_TEST

START_TEST(each_broken_lock_is_lost_to_its_handle)
{
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    fake_backend_end(w->fake, "L", BACKEND_BROKEN);
    wire_turn(w);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_read(w, a, 0, 1)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, a)), ESTALE);
    char *state = wire_xattr(w, a.node, "user.lease.state");
    ck_assert_str_eq(state, "lost");
    g_free(state);
    ck_assert_int_eq(give_back(_i, &a), 0);
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0); /* afresh */
    ck_assert_int_eq(wire_result(w, wire_read(w, a, 0, 1)), 0);
    ck_assert_int_eq(give_back(_i, &a), 0);
    check_free(_i);
}
END_TEST

/* Interrupts are not starved by requests that keep coming. */
static void stay_busy(struct ev_loop *loop, ev_io *io, int events)
{
    (void)loop;
    (void)events;
    (*(unsigned *)io->data)++;
}

START_TEST(each_interrupt_is_obeyed_while_the_loop_is_busy)
{
    ev_io io;
    int ends[2];
    unsigned busy = 0;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(wire_result(w, ask(_i, &a)), 0);
    uint64_t first = ask(_i, &b);
    ck_assert(wire_waits(w, first));
    ev_io_init(&io, stay_busy, ends[1], EV_WRITE);
    io.data = &busy;
    ev_io_start(w->loop, &io);
    wire_interrupt(w, first);
    wire_take(w);
    while (busy < 10) {
        ev_run(w->loop, EVRUN_NOWAIT);
    }
    ck_assert(TAILQ_EMPTY(&w->fs->interrupted));
    ev_io_stop(w->loop, &io);
    close(ends[0]);
    close(ends[1]);
    ck_assert_int_eq(wire_result(w, first), EINTR);
}
END_TEST

/* --- signals while the store answers -------------------------------------------- */

/* They take a free name, or fail; they wait for no other holder. */
enum { CREATE, CREATE_EXCLUSIVE, SYMLINK, MKNOD, LINK, WRITE, TIMES, FLUSH, TRY_FLOCK, TRY_FCNTL, DECISIONS };

/* By `pid`, which has the lock "own" and an idle file `idle` of the free name F. */
static uint64_t decision(int which, pid_t pid, struct wire_file idle, uint64_t own)
{
    struct fuse_mknod_in mknod = {.mode = S_IFREG | 0600};
    w->pid = pid;
    switch (which) {
    case SYMLINK:
        return wire_symlink(w, "F", "target");
    case MKNOD:
        return wire_send(w, FUSE_MKNOD, FUSE_ROOT_ID, &mknod, sizeof mknod, "F", 2);
    case LINK:
        return wire_link(w, own, "F");
    case WRITE:
        return wire_write(w, idle, 0, "x", 1);
    case TIMES:
        return wire_touch(w, idle.node, &idle);
    case FLUSH:
        return wire_flush(w, idle, 1);
    case TRY_FLOCK:
        return wire_flock(w, idle, LOCK_EX | LOCK_NB);
    case TRY_FCNTL:
        return wire_setlk(w, idle, 5, F_WRLCK, 0, INT64_MAX, false);
    default:
        return wire_create(w, "F", which == CREATE ? O_WRONLY : O_WRONLY | O_EXCL);
    }
}

static uint64_t undecided(int which, pid_t pid)
{
    w->pid = pid;
    uint64_t own = lease_of(pid, "own");
    struct wire_file idle = {0};
    if (which >= WRITE) {
        idle = wire_created(w, "F", O_WRONLY);
        wire_advance(w, 2 * SECOND);
    }
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t requested = decision(which, pid, idle, own);
    ck_assert(wire_waits(w, requested));
    return requested;
}

START_TEST(signal_that_is_not_fatal_does_not_interrupt_the_taking_of_a_free_name)
{
    uint64_t requested = undecided(_i, alice);
    wire_interrupt(w, requested);
    ck_assert(wire_waits(w, requested));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_ptr_nonnull(holder("F"));
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
}
END_TEST

START_TEST(fatal_signal_interrupts_it)
{
    uint64_t requested = undecided(_i, bob);
    wire_kill(w, bob);
    wire_interrupt(w, requested);
    ck_assert_int_eq(wire_result(w, requested), EINTR);
    ck_assert_ptr_null(holder("F"));
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
}
END_TEST

/* The kernel says nothing of the second signal. */
START_TEST(fatal_signal_after_another_interrupts_it)
{
    uint64_t requested = undecided(CREATE, bob);
    wire_interrupt(w, requested);
    ck_assert(wire_waits(w, requested));
    wire_kill(w, bob);
    while (wire_waits(w, requested)) {
        ev_run(w->loop, EVRUN_ONCE);
    }
    ck_assert_int_eq(wire_result(w, requested), EINTR);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
}
END_TEST

/* Which signals such a process has cannot be seen. */
START_TEST(any_signal_interrupts_a_process_of_another_pid_namespace)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    w->pid = 0;
    uint64_t requested = wire_create(w, "F", O_WRONLY);
    ck_assert(wire_waits(w, requested));
    wire_interrupt(w, requested);
    ck_assert_int_eq(wire_result(w, requested), EINTR);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
}
END_TEST

/* --- opens that await a provisional outcome ------------------------------------- */

/* Carol has P provisionally, bob's open waits for the outcome. */
static uint64_t parked_open(struct wire_file *ret_writer)
{
    w->pid = carol;
    *ret_writer = wire_created(w, "P", O_WRONLY);
    w->pid = bob;
    uint64_t waiting = wire_create(w, "P", O_WRONLY);
    ck_assert(wire_waits(w, waiting));
    return waiting;
}

static unsigned resumed;

/* Each time it takes so long that it would be due again. */
static void sleep_again(struct request *r)
{
    wire_let_time_pass(1);
    if (++resumed < 100) {
        request_sleep(r, clock_now(), sleep_again, sleep_again);
    }
}

START_TEST(requests_that_sleep_again_let_the_loop_serve_others)
{
    const struct wire_file *files[] = {&b, &c};
    struct request *sleeping[2];
    struct request parked[2];
    ck_assert_int_eq(wire_result(w, ask(FLOCK, &a)), 0);
    for (int i = 0; i < 2; i++) {
        uint64_t waiting = ask(FLOCK, files[i]);
        ck_assert(wire_waits(w, waiting));
    }
    const struct hold *hold = LIST_FIRST(&tree_find(w->fs->tree, w->fs->tree->root, "L")->waiting);
    for (int i = 0; i < 2; i++, hold = LIST_NEXT(hold, link)) {
        sleeping[i] = hold_first_parked(hold);
        parked[i] = *sleeping[i];
        request_unpark(sleeping[i]);
        request_sleep(sleeping[i], clock_now(), sleep_again, sleep_again);
    }
    request_wake_due(w->fs);
    ck_assert_uint_ge(resumed, 1);
    ck_assert_uint_le(resumed, 2); /* each once */
    for (int i = 0; i < 2; i++) {
        request_unpark(sleeping[i]);
        request_park(sleeping[i], parked[i].queue, parked[i].next_step, parked[i].cancel);
    }
}
END_TEST

START_TEST(interrupted_open_takes_nothing)
{
    struct wire_file writer;
    uint64_t waiting = parked_open(&writer);
    wire_interrupt(w, waiting);
    ck_assert_int_eq(wire_result(w, waiting), EINTR);
    wire_advance(w, SECOND);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "P"), 0);
}
END_TEST

START_TEST(interrupted_open_with_a_pending_claim_gives_back)
{
    struct wire_file writer;
    uint64_t waiting = parked_open(&writer);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    wire_advance(w, SECOND);
    ck_assert(wire_waits(w, waiting)); /* for the answer now */
    wire_kill(w, bob);
    wire_interrupt(w, waiting);
    ck_assert_int_eq(wire_result(w, waiting), EINTR);
    ck_assert_uint_eq(fake_backend_held_back(w->fake, FAKE_ACQUIRE), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "P"), 0);
}
END_TEST

START_TEST(interrupt_marked_before_the_lapse_leaves_the_open_to_the_store)
{
    struct wire_file writer;
    uint64_t waiting = parked_open(&writer);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    wire_interrupt(w, waiting);
    wire_take(w);
    fake_backend_advance(w->fake, SECOND);
    ck_assert(wire_waits(w, waiting));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(interrupt_that_crosses_the_decision_is_ignored)
{
    struct wire_file writer;
    uint64_t waiting = parked_open(&writer);
    wire_interrupt(w, waiting);
    w->pid = carol;
    uint64_t written = wire_write(w, writer, 0, "x", 1);
    wire_take(w); /* the mark and the decision, before the loop runs */
    ck_assert_int_eq(wire_result(w, written), 0);
    ck_assert_int_eq(wire_result(w, waiting), EBUSY);
}
END_TEST

START_TEST(interrupt_of_one_waiting_open_leaves_the_others)
{
    struct wire_file writer;
    uint64_t first = parked_open(&writer);
    w->pid = alice;
    uint64_t second = wire_create(w, "P", O_WRONLY);
    ck_assert(wire_waits(w, second));
    wire_interrupt(w, first);
    ck_assert_int_eq(wire_result(w, first), EINTR);
    ck_assert(wire_waits(w, second));
    w->pid = carol;
    ck_assert_int_eq(wire_result(w, wire_flush(w, writer, 1)), 0);
    ck_assert(wire_waits(w, second));
    ck_assert_int_eq(wire_result(w, wire_release(w, writer)), 0);
    ck_assert_int_eq(wire_result(w, second), EBUSY);
}
END_TEST

START_TEST(release_without_flush_lets_the_waiting_open_on)
{
    struct wire_file writer;
    uint64_t waiting = parked_open(&writer);
    w->pid = carol;
    ck_assert_int_eq(wire_result(w, wire_release(w, writer)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "P"), 1);
}
END_TEST

/* A question would stand between the release and the claim of the next. */
START_TEST(release_to_a_waiter_sends_no_other_request)
{
    ck_assert_int_eq(wire_result(w, ask(FLOCK, &a)), 0);
    uint64_t waiter = ask(FLOCK, &b);
    ck_assert(wire_waits(w, waiter));
    unsigned requested = fake_backend_count(w->fake, FAKE_STAT);
    fake_backend_hold_events(w->fake, true);
    ck_assert_int_eq(give_back(FLOCK, &a), 0);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_STAT), requested);
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, waiter), 0);
    ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_STAT), requested);
    ck_assert_int_eq(give_back(FLOCK, &b), 0);
    check_free(FLOCK);
}
END_TEST

START_TEST(interrupted_nonblocking_flock_does_not_change_the_outcome)
{
    w->pid = carol;
    wire_created(w, "L", O_WRONLY);
    w->pid = alice;
    uint64_t waiting = wire_flock(w, a, LOCK_EX | LOCK_NB);
    ck_assert(wire_waits(w, waiting));
    wire_interrupt(w, waiting);
    ck_assert_int_eq(wire_result(w, waiting), EINTR);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    wire_advance(w, SECOND);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: waiting");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, wire_setup_files, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, each_waiter_is_granted_in_order_of_arrival, 0, KINDS);
    tcase_add_loop_test(cases, each_interrupt_before_the_claim_is_answered_ends_it, 0, KINDS);
    tcase_add_loop_test(cases, each_interrupt_that_overtakes_its_request_ends_it, 0, KINDS);
    tcase_add_loop_test(cases, each_interrupt_does_not_undo_what_is_granted_at_once, 0, KINDS);
    tcase_add_loop_test(cases, each_interrupt_of_a_waiter_takes_it_out_of_the_queue, 0, KINDS);
    tcase_add_loop_test(cases, interrupt_lets_the_answer_come_to_a_lock_owner_that_holds, 0, 2);
    tcase_add_loop_test(cases, each_grant_that_crosses_an_interrupt_is_given_back, 0, KINDS);
    tcase_add_loop_test(cases, each_grant_reported_before_the_interrupt_is_seen_stands, 0, KINDS);
    tcase_add_loop_test(cases, each_interrupt_after_the_answer_is_ignored, 0, KINDS);
    tcase_add_loop_test(cases, each_second_interrupt_is_ignored, 0, KINDS);
    tcase_add_loop_test(cases, each_close_gives_back_and_grants_the_next, 0, KINDS);
    tcase_add_loop_test(cases, each_death_gives_back_at_release, 0, KINDS);
    tcase_add_loop_test(cases, each_flush_while_waiting_leaves_the_wait_interruptible, 0, KINDS);
    tcase_add_loop_test(cases, each_flush_while_waiting_leaves_the_grant_to_come, 0, KINDS);
    tcase_add_loop_test(cases, each_close_of_another_handle_leaves_a_flock_waiting, 0, KINDS);
    tcase_add_loop_test(cases, each_wait_whose_ticket_is_lost_is_enolck, 0, KINDS);
    tcase_add_loop_test(cases, each_claim_of_unknown_outcome_is_enolck, 0, KINDS);
    tcase_add_loop_test(cases, each_holder_and_waiter_is_renewed, 0, KINDS);
    tcase_add_loop_test(cases, each_queue_of_waiters_ends_with_the_mount, 0, KINDS);
    tcase_add_loop_test(cases, each_waiter_gets_what_another_mount_leaves, 0, KINDS);
    tcase_add_loop_test(cases, each_grant_that_is_ended_before_it_is_reported_waits_on, 0, KINDS);
    tcase_add_loop_test(cases, each_broken_lock_is_lost_to_its_handle, 0, KINDS);
    tcase_add_loop_test(cases, lock_that_its_store_has_forgotten_is_held, 0, KINDS);
    tcase_add_loop_test(cases, each_interrupt_is_obeyed_while_the_loop_is_busy, 0, KINDS);
    tcase_add_test(cases, requests_that_sleep_again_let_the_loop_serve_others);
    tcase_add_loop_test(cases, signal_that_is_not_fatal_does_not_interrupt_the_taking_of_a_free_name, 0, DECISIONS);
    tcase_add_loop_test(cases, fatal_signal_interrupts_it, 0, DECISIONS);
    tcase_add_test(cases, fatal_signal_after_another_interrupts_it);
    tcase_add_test(cases, any_signal_interrupts_a_process_of_another_pid_namespace);
    tcase_add_test(cases, interrupted_open_takes_nothing);
    tcase_add_test(cases, interrupted_open_with_a_pending_claim_gives_back);
    tcase_add_test(cases, interrupt_marked_before_the_lapse_leaves_the_open_to_the_store);
    tcase_add_test(cases, interrupt_that_crosses_the_decision_is_ignored);
    tcase_add_test(cases, interrupt_of_one_waiting_open_leaves_the_others);
    tcase_add_test(cases, release_without_flush_lets_the_waiting_open_on);
    tcase_add_test(cases, release_to_a_waiter_sends_no_other_request);
    tcase_add_test(cases, interrupted_nonblocking_flock_does_not_change_the_outcome);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}

/* time: what time brings: deadlines, renewals that are due, and looks at locks; see private.h. */
#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/record/private.h"

enum { TICK_MAX = 100 };

static void time_end_ticket(struct ticket *t)
{
    struct engine *e = t->lock->engine;
    bool lost = t->renewing || !e->up;
    struct op *op = op_new(e, &op_end, t->lock, t);
    op->why = lost ? BACKEND_LOST : BACKEND_EXPIRED;
    enum backend_end why = op->why;
    op_push(op);
    ticket_end(t, why);
}

static void time_tick_ticket(struct engine *e, struct ticket *t, clock_ms now)
{
    if (t->state != TICKET_HOLDS && t->due <= now && t->head.deadline <= now) {
        t->head.deadline += now - t->due; /* this process was stopped: the user may renew it */
    }
    if (t->head.deadline <= now) {
        time_end_ticket(t);
        return;
    }
    if (t->retry <= now) {
        t->retry = CLOCK_NEVER;
        g_ptr_array_add(e->extending, t);
        t->renewing = true;
    }
    bool due = t->due <= now;
    if (due) {
        t->due = CLOCK_NEVER;
    }
    ticket_schedule(t);
    if (due) {
        e->events->due(e->context, &t->head); /* may release it */
    }
}

static void time_wake_lock(struct lock *lock)
{
    lock_schedule(lock, CLOCK_NEVER);
    if (lock->pause > clock_now() - ENGINE_MARGIN && (!TAILQ_EMPTY(&lock->ops) || lock->look)) {
        lock_make_ready(lock);
        return;
    }
    if (lock->lock.state == STORE_FOREIGN) {
        lock->look = true;
        lock_make_ready(lock);
    } else if (!lock_has_op(lock, &op_touch)) {
        op_push(op_new(lock->engine, &op_touch, lock, NULL));
    }
}

static void time_tick(struct engine *e)
{
    clock_ms now = clock_now();
    struct ticket *t;
    struct lock *lock;
    e->armed = 0; /* not before the end */
    for (unsigned i = 0; i < TICK_MAX && (t = sorted_item(sorted_first(&e->agenda))) && t->next <= now; i++) {
        time_tick_ticket(e, t, now);
    }
    for (unsigned i = 0; i < TICK_MAX && (lock = sorted_item(sorted_first(&e->wakes))) && lock->wake <= now; i++) {
        time_wake_lock(lock);
    }
    flight_check_time(e, now);
    if (e->next_heartbeat <= now) {
        e->heartbeat(e);
    }
    if (e->next_poll <= now) {
        e->poll(e);
    }
    e->armed = CLOCK_NEVER;
    engine_set_alarm(e);
    ev_feed_event(e->loop, &e->flush, EV_PREPARE);
}

static void time_on_alarm(struct ev_loop *loop, ev_io *alarm, int events)
{
    uint64_t times;
    (void)loop, (void)events;
    if (read(alarm->fd, &times, sizeof times) < 0) {
        return; /* it was set again meanwhile */
    }
    time_tick(alarm->data);
}

/* --- order --- */

static int time_compare_tickets(const void *a, const void *b)
{
    const struct ticket *x = a, *y = b;
    if (x->next != y->next) {
        return x->next < y->next ? -1 : 1;
    }
    return (x->serial > y->serial) - (x->serial < y->serial);
}

static int time_compare_locks(const void *a, const void *b)
{
    const struct lock *x = a, *y = b;
    if (x->wake != y->wake) {
        return x->wake < y->wake ? -1 : 1;
    }
    return (x->serial > y->serial) - (x->serial < y->serial);
}

int time_init(struct engine *e)
{
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    ev_io_init(&e->alarm, time_on_alarm, fd, EV_READ);
    e->alarm.data = e;
    e->armed = e->next_heartbeat = e->next_poll = CLOCK_NEVER;
    sorted_init(&e->agenda, time_compare_tickets, e->options.seed);
    sorted_init(&e->wakes, time_compare_locks, e->options.seed);
    return 0;
}

void time_clear(struct engine *e)
{
    if (e->loop) {
        ev_io_stop(e->loop, &e->alarm);
    }
    close(e->alarm.fd);
    sorted_clear(&e->agenda);
    sorted_clear(&e->wakes);
}

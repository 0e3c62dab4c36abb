/* spin: see spin.h. */
#include "fs/daemon/spin.h"

#include <sched.h>

static void spin_on_idle(struct ev_loop *loop, ev_idle *idle, int events)
{
    (void)events;
    spin_on_poll(idle->data, ev_now(loop));
}

static bool spin_has_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1; /* fails where there are very many */
}

void spin_init(struct spin *spin, struct ev_loop *loop, unsigned microseconds)
{
    *spin = (struct spin){.loop = loop, .limit = spin_has_processors() ? microseconds * 1e-6 : 0};
    ev_idle_init(&spin->idle, spin_on_idle);
    ev_set_priority(&spin->idle, EV_MINPRI);
    spin->idle.data = spin;
}

bool spin_on_reply(struct spin *spin, ev_tstamp now)
{
    bool spins = spin->limit > 0 && spin->credit > 0, already = ev_is_active(&spin->idle);
    spin->since = now;
    if (spins) {
        ev_idle_start(spin->loop, &spin->idle);
    }
    return spins && !already;
}

bool spin_on_request(struct spin *spin, ev_tstamp now)
{
    bool hit = ev_is_active(&spin->idle);
    ev_tstamp took = now - spin->since;
    if (hit || (spin->since > 0 && took > SPIN_AT_ONCE && took < SPIN_SOON)) {
        spin->credit += spin->credit < SPIN_CREDIT;
    }
    spin_stop(spin);
    return hit;
}

void spin_on_poll(struct spin *spin, ev_tstamp now)
{
    if (now - spin->since >= spin->limit) {
        spin->credit = spin->credit > SPIN_MISS ? spin->credit - SPIN_MISS : -SPIN_DEBT;
        spin_stop(spin);
    }
}

void spin_stop(struct spin *spin)
{
    ev_idle_stop(spin->loop, &spin->idle);
    spin->since = 0;
}

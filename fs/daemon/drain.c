/* drain: see drain.h. */
#include "fs/daemon/drain.h"

#include <stdbool.h>

#include "backend/log.h"
#include "fs/daemon/takeover.h"
#include "fs/fs.h"
#include "fs/kernel/metrics.h"
#include "fs/kernel/request.h"

#define DRAIN_TURN 0.02 /* seconds */
#define DRAIN_QUIET 5   /* turns */
#define DRAIN_TURNS 100 /* at most */

static uint64_t drain_count_paths(const struct fs *fs)
{
    static const enum metrics_operation by_path[] = {METRICS_LOOKUP, METRICS_OPENDIR, METRICS_OPEN,  METRICS_CREATE,
                                                     METRICS_MKNOD,  METRICS_SYMLINK, METRICS_LINK,  METRICS_UNLINK,
                                                     METRICS_RENAME, METRICS_MKDIR,   METRICS_RMDIR, METRICS_SETATTR};
    uint64_t count = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(by_path); i++) {
        for (int result = 0; result < METRICS_RESULTS; result++) {
            count += fs->metrics->requests[by_path[i]][result];
        }
    }
    return count;
}

/* Is there a request that the store has not answered? */
static bool drain_has_unanswered(const struct fs *fs)
{
    const struct request *r;
    LIST_FOREACH(r, &fs->unanswered, unanswered) {
        if (!r->queued) {
            return true;
        }
    }
    return false;
}

static void drain_on_turn(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct drain *d = timer->data;
    uint64_t paths = drain_count_paths(d->fs);
    (void)events;
    d->quiet = paths == d->paths && !drain_has_unanswered(d->fs) ? d->quiet + 1 : 0;
    d->paths = paths;
    if (d->quiet >= DRAIN_QUIET || ++d->turns >= DRAIN_TURNS) {
        log_info("another daemon has taken over the mount");
        d->fs->replaced = true;
        ev_break(loop, EVBREAK_ALL);
    }
}

static void drain_on_signal(struct ev_loop *loop, ev_signal *watcher, int events)
{
    struct drain *d = watcher->data;
    (void)events;
    d->turns = d->quiet = 0;
    if (watcher->signum == TAKEOVER_BEGINS) {
        ev_timer_start(loop, &d->timer);
    } else {
        ev_timer_stop(loop, &d->timer);
    }
}

void drain_watch(struct drain *d, struct ev_loop *loop, struct fs *fs)
{
    static const int numbers[] = {TAKEOVER_BEGINS, TAKEOVER_UNDONE};
    *d = (struct drain){.loop = loop, .fs = fs};
    ev_timer_init(&d->timer, drain_on_turn, DRAIN_TURN, DRAIN_TURN);
    d->timer.data = d;
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        ev_signal_init(&d->signals[i], drain_on_signal, numbers[i]);
        d->signals[i].data = d;
        ev_signal_start(loop, &d->signals[i]);
    }
}

void drain_unwatch(struct drain *d)
{
    ev_timer_stop(d->loop, &d->timer);
    for (size_t i = 0; i < G_N_ELEMENTS(d->signals); i++) {
        ev_signal_stop(d->loop, &d->signals[i]);
    }
}

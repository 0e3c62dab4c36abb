/* finale: the last scene of a world with servers; see finale.h.
 *
 * Some bugs need several events together, which are rare by chance: a lock is broken while its holder is cut off, and
 * is taken by another before the first gives it back.  So each world with faults ends with such a scene, played by
 * programs of its own, on two hosts if there are two.  The world before may prevent it, so its outcome is not fixed.
 */
#include "tests/sim/finale.h"

#include <fcntl.h>
#include <sys/file.h>

#include "tests/sim/faults.h"
#include "tests/sim/world.h"

#define SCENE_NAME 2       /* "c": few worlds use it much */
#define SCENE_DELAYED 6    /* "e/z" */
#define SCENE_DIRECTORY 3  /* "e" */
#define SCENE_LONGEST 8000 /* ms that are waited at most for the end of earlier faults, and of their terms */

enum actor { HOLDER, OTHER, THIRD, ACTORS };

struct scene {
    struct plan *plan;
    unsigned name; /* of plan_names */
    struct {
        unsigned mount, program;
    } actors[ACTORS];
};

/* `delay`: ns. */
static struct act *scene_add(const struct scene *s, enum actor actor, enum act_kind kind, int64_t delay)
{
    const struct act act = {.kind = kind,
                            .mount = s->actors[actor].mount,
                            .program = s->actors[actor].program,
                            .delay = MAX(delay, 1),
                            .name = s->name,
                            .end = INT64_MAX};
    g_array_append_val(s->plan->acts, act);
    return &g_array_index(s->plan->acts, struct act, s->plan->acts->len - 1);
}

static int64_t scene_soon(void)
{
    return world_between(1, 20) * WORLD_MS;
}

static void scene_open(const struct scene *s, enum actor actor, int flags, int64_t delay)
{
    scene_add(s, actor, ACT_OPEN, delay)->flags = flags;
}

/* Of its file, if it has one. */
static void scene_look(const struct scene *s, enum actor actor, enum plan_attribute attribute, int64_t delay)
{
    struct act *act = scene_add(s, actor, ACT_GETXATTR, delay);
    act->attribute = attribute;
    act->value = 1;
}

/* Without a wait. */
static void scene_take(const struct scene *s, enum actor actor, int64_t delay)
{
    if (world_chance(500)) {
        scene_open(s, actor, O_CREAT | O_EXCL | O_RDWR, delay);
    } else {
        scene_open(s, actor, O_CREAT | O_RDWR, delay);
        scene_add(s, actor, ACT_FLOCK, WORLD_MS)->flags = LOCK_EX | LOCK_NB;
    }
}

static void scene_break(const struct scene *s, int64_t delay)
{
    scene_add(s, OTHER, ACT_SETXATTR, delay)->attribute = PLAN_BREAK;
}

static void scene_strike(const struct scene *s, enum fault_kind kind, int64_t delay, int64_t lasts)
{
    struct act *act = scene_add(s, HOLDER, ACT_FAULT, delay);
    act->fault = kind;
    act->duration = lasts;
}

/* Programs that nothing has happened to, when what was is over; who breaks is root. */
static void scene_begin(const struct scene *s)
{
    int64_t quiet = MIN(2 * s->plan->options.ttl, SCENE_LONGEST) + 3000;
    for (enum actor actor = HOLDER; actor < ACTORS; actor++) {
        scene_add(s, actor, ACT_KILL, actor == HOLDER ? quiet * WORLD_MS : 1);
    }
    for (enum actor actor = HOLDER; actor < ACTORS; actor++) {
        scene_add(s, actor, ACT_SPAWN, 200 * WORLD_MS)->value = actor == OTHER ? 10 : 2;
    }
    scene_break(s, scene_soon());
}

/* Its holder has not heard that the lock was broken, and another has it: it gives the lock back, or renews it. */
static void scene_broken(const struct scene *s)
{
    int64_t cut = MIN(s->plan->options.ttl / 3, 1000) * WORLD_MS;
    bool renews = world_chance(500);
    scene_take(s, HOLDER, 50 * WORLD_MS);
    scene_strike(s, FAULT_CUT_OFF, scene_soon(), cut);
    scene_break(s, 5 * WORLD_MS);
    scene_take(s, OTHER, 10 * WORLD_MS);
    if (renews) { /* and the message is lost with the connection */
        scene_strike(s, FAULT_RESET, cut / 2, 0);
    } else {
        scene_add(s, HOLDER, world_chance(500) ? ACT_FUNLOCK : ACT_CLOSE, WORLD_MS);
    }
    for (int i = 0; i < 3; i++) {
        scene_look(s, HOLDER, PLAN_STATE, i ? 300 * WORLD_MS : cut + 300 * WORLD_MS);
        scene_add(s, HOLDER, ACT_FSYNC, WORLD_MS);
        scene_take(s, THIRD, scene_soon());
        scene_look(s, OTHER, PLAN_STATE, scene_soon());
    }
}

/* A lock-delay is not that of a lock that its holder gives back: the next one need not wait for it. */
static void scene_given_back(const struct scene *s)
{
    scene_add(s, OTHER, ACT_MKDIR, WORLD_MS)->name = SCENE_DIRECTORY;
    struct act *delay = scene_add(s, OTHER, ACT_SETXATTR, WORLD_MS);
    delay->attribute = PLAN_DELAY;
    delay->name = SCENE_DIRECTORY - 1; /* of those below the top */
    delay->value = 4;                  /* 3 s */
    for (int i = 0; i < 2; i++) {
        scene_open(s, HOLDER, O_CREAT | O_RDONLY, 300 * WORLD_MS);
        scene_add(s, HOLDER, ACT_FLOCK, WORLD_MS)->flags = LOCK_EX | LOCK_NB;
        scene_open(s, THIRD, O_CREAT | O_RDONLY, 300 * WORLD_MS);
        scene_add(s, THIRD, ACT_FLOCK, WORLD_MS)->flags = LOCK_EX;
        for (enum actor actor = HOLDER; actor < ACTORS; actor += THIRD) {
            scene_add(s, actor, ACT_FUNLOCK, 300 * WORLD_MS);
            scene_add(s, actor, ACT_CLOSE, WORLD_MS);
        }
    }
}

/* The server forgets when two believe that they hold: the earlier one, which was cut off, must not take the lock from
 * the later one by restoring it first, or last. */
static void scene_restored(const struct scene *s)
{
    int64_t until = s->plan->options.ttl / 3 * WORLD_MS; /* as in faults.c */
    scene_take(s, HOLDER, 50 * WORLD_MS);
    scene_strike(s, FAULT_TWO_RESTORE, scene_soon(), 0);
    scene_take(s, OTHER, until / 4);
    for (int i = 0; i < 3; i++) {
        scene_look(s, OTHER, PLAN_STATE, i ? 300 * WORLD_MS : until + 100 * WORLD_MS);
        scene_add(s, OTHER, ACT_FSYNC, WORLD_MS);
        scene_look(s, HOLDER, PLAN_STATE, WORLD_MS);
    }
}

/* A waiter has undone a try at servers that were busy; they carry that out when it holds by another try. */
static void scene_undone(const struct scene *s)
{
    int64_t busy = world_between(100, 400) * WORLD_MS;
    scene_take(s, HOLDER, 50 * WORLD_MS);
    for (enum actor actor = OTHER; actor < ACTORS; actor++) { /* behind the second in which an open is refused */
        scene_open(s, actor, O_CREAT | O_RDWR, 1200 * WORLD_MS);
        scene_add(s, actor, ACT_FLOCK, WORLD_MS)->flags = LOCK_EX;
    }
    scene_strike(s, FAULT_NODES_BUSY, 100 * WORLD_MS, busy);
    scene_add(s, HOLDER, ACT_CLOSE, busy - world_between(1, 60) * WORLD_MS);
    for (int i = 0; i < 4; i++) {
        scene_look(s, OTHER, PLAN_TOKEN, 100 * WORLD_MS);
        scene_look(s, THIRD, PLAN_TOKEN, WORLD_MS);
    }
}

/* Nobody takes what was broken, so its holder that comes back finds it free on most servers. */
static void scene_back(const struct scene *s)
{
    int64_t cut = MIN(s->plan->options.ttl / 3, 1000) * WORLD_MS;
    scene_take(s, HOLDER, 50 * WORLD_MS);
    scene_strike(s, FAULT_CUT_OFF, scene_soon(), cut);
    scene_break(s, 5 * WORLD_MS);
    for (int i = 0; i < 3; i++) {
        scene_look(s, HOLDER, PLAN_STATE, i ? s->plan->options.ttl * WORLD_MS / 2 : cut + 1500 * WORLD_MS);
        scene_add(s, THIRD, ACT_STAT, scene_soon());
        scene_add(s, HOLDER, ACT_FSYNC, WORLD_MS);
    }
    scene_take(s, THIRD, scene_soon());
    scene_add(s, HOLDER, ACT_FSYNC, 100 * WORLD_MS);
}

/* However often its mount connects again: the lease of a process that was killed ends with its term. */
static void scene_killed(const struct scene *s)
{
    int64_t term = s->plan->options.ttl * WORLD_MS;
    scene_open(s, HOLDER, O_CREAT | O_EXCL | O_RDWR, 50 * WORLD_MS);
    scene_add(s, HOLDER, ACT_CLOSE, WORLD_MS);
    scene_strike(s, FAULT_RESET, 1300 * WORLD_MS, 2 * term); /* behind the second in which it may have an heir */
    scene_add(s, HOLDER, ACT_KILL, scene_soon());
    scene_take(s, OTHER, term + 3100 * WORLD_MS);
    scene_take(s, THIRD, term);
}

void finale_add(struct plan *plan)
{
    enum mount_store store = plan->options.store;
    bool one = store == MOUNT_REDIS || store == MOUNT_ZOOKEEPER;
    if (!plan->faults || plan->mounts < 2 || !(one || store == MOUNT_REDLOCK)) {
        return;
    }
    unsigned first = world_below(plan->mounts);
    struct scene s = {.plan = plan, .name = SCENE_NAME};
    for (enum actor actor = HOLDER; actor < ACTORS; actor++) {
        s.actors[actor].mount = (first + actor) % plan->mounts;
        s.actors[actor].program = PLAN_PROGRAMS - 1 - (actor == THIRD);
    }
    scene_begin(&s);
    if (store == MOUNT_REDLOCK) {
        scene_undone(&s);
        scene_begin(&s);
        scene_back(&s);
    } else {
        scene_broken(&s);
    }
    if (plan->options.ttl <= SCENE_LONGEST) {
        scene_begin(&s);
        scene_killed(&s);
    }
    if (one) {
        scene_begin(&s);
        s.name = store == MOUNT_ZOOKEEPER ? SCENE_DELAYED : SCENE_NAME;
        (store == MOUNT_ZOOKEEPER ? scene_given_back : scene_restored)(&s);
    }
}

/* plan: draws the events of a world from its seed; see plan.h.
 *
 * Each world draws its own habits: which calls are frequent, how many names there are, how long pauses are.  A hundred
 * different worlds find more than a hundred similar ones.  Many calls come in the sequences of real programs such as
 * touch(1) and flock(1).
 */
#include "tests/sim/plan.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>

#include "tests/sim/faults.h"
#include "tests/sim/finale.h"
#include "tests/sim/user.h"
#include "tests/sim/world.h"

const char *const plan_names[PLAN_NAMES] = {"a", "b", "c", "d/x", "d/y", "q/job-", "e/z", ""};
const char *const plan_directories[PLAN_DIRECTORIES] = {"", "d", "q", "e"};
const char *const plan_attributes[PLAN_ATTRIBUTES] = {
    "user.lease.state",   "user.lease.kind",     "user.lease.mode",    "user.lease.token", "user.lease.remaining",
    "user.lease.waiters", "user.lease.position", "user.lease.name",    "user.lease.ttl",   "user.lease.width",
    "user.lease.delay",   "user.lease.check",    "user.lease.release", "user.lease.break", "user.lease.guard"};

enum plan_idiom {
    IDIOM_CALL, /* any one */
    IDIOM_TOUCH,
    IDIOM_EXCLUSIVE, /* open(O_EXCL), close */
    IDIOM_EXECUTE,   /* exec 9>L; flock 9 */
    IDIOM_FLOCK,     /* flock L command */
    IDIOM_RANGES,
    IDIOM_TICKET,
    IDIOM_UNLINK,
    IDIOM_RENAME,
    IDIOM_LINK,
    IDIOM_RELEASE, /* by the token */
    IDIOM_LOOK,
    IDIOM_CONVERT,
    IDIOM_HELPER,    /* a child that touches, and exits */
    IDIOM_HAND_OVER, /* one ends what another takes then */
    IDIOM_CIRCLE,    /* two or three wait for each other, or would */
    IDIOM_INHERIT,   /* a child closes what its parent has opened */
    IDIOM_TOO_LARGE, /* a write that fails, and then close */
    IDIOM_LOSE,      /* to somebody who breaks it */
    IDIOM_GUARD,     /* the same, who keeps others off for a while */
    IDIOM_IDENTITY,  /* flock and fcntl through one file */
    IDIOM_RIGHTS,    /* another user reads it */
    IDIOM_INTRUDE,   /* change it through an idle file */
    IDIOM_BEGIN,
    IDIOM_DISTURB, /* signals, kills, stops */
    IDIOM_FAULT,
    IDIOMS
};

struct plan_habits {
    unsigned weight[IDIOMS], total;
    unsigned first, names; /* so many are used, from that one on */
    int64_t pause;         /* usual, ns */
    unsigned long_pauses;  /* per mille */
    unsigned looks;        /* at what was just taken, per mille */
    unsigned programs, fault_weight[FAULTS], fault_total;
};

static unsigned plan_draw_name(const struct plan_habits *habits)
{
    return (habits->first + world_below(habits->names)) % PLAN_TICKET;
}

static struct act *plan_add(struct plan *plan, const struct plan_habits *habits, enum act_kind kind, unsigned mount,
                            unsigned program)
{
    int64_t pause = world_between(1, 2 * habits->pause);
    if (world_chance(habits->long_pauses)) {
        pause = world_between(0, 3 * plan->options.ttl / 2) * WORLD_MS;
    }
    struct act act = {.kind = kind, .mount = mount, .program = program, .delay = pause};
    act.slot = world_below(3);
    act.other = world_below(PLAN_PROGRAMS);
    act.name = plan_draw_name(habits);
    act.target = (act.name + 1 + world_below(4)) % 5; /* another, and no ticket */
    act.value = (uint32_t)world_random();
    act.duration = world_between(1, 2 * plan->options.ttl) * WORLD_MS;
    act.start = world_below(6);
    act.end = act.start + world_below(6);
    if (world_chance(200)) {
        act.start = 0;
        act.end = INT64_MAX;
    }
    g_array_append_val(plan->acts, act);
    return &g_array_index(plan->acts, struct act, plan->acts->len - 1);
}

static int plan_flock(void)
{
    return (world_chance(350) ? LOCK_SH : LOCK_EX) | (world_chance(400) ? LOCK_NB : 0) |
           (world_chance(300) ? LOCK_MAND : 0);
}

static void plan_any_call(struct plan *plan, const struct plan_habits *habits, unsigned mount, unsigned program)
{
    struct act *act = plan_add(plan, habits, (enum act_kind)world_below(ACT_CALLS), mount, program);
    static const int ways[] = {O_RDONLY,
                               O_RDWR,
                               O_WRONLY,
                               O_RDWR,
                               O_RDONLY | O_CREAT,
                               O_RDWR | O_CREAT,
                               O_WRONLY | O_CREAT,
                               O_WRONLY | O_CREAT | O_TRUNC,
                               O_RDWR | O_CREAT | O_EXCL};
    switch (act->kind) {
    case ACT_OPEN:
        act->flags = ways[world_below(G_N_ELEMENTS(ways))] | (world_chance(100) ? O_CLOEXEC : 0);
        break;
    case ACT_FLOCK:
    case ACT_SETLK:
    case ACT_UNLCK:
    case ACT_GETLK:
        act->flags = plan_flock();
        break;
    case ACT_GETXATTR:
        act->attribute = world_below(PLAN_WIDTH + 1);
        break;
    case ACT_SETXATTR:
        act->attribute = PLAN_TTL + world_below(PLAN_ATTRIBUTES - PLAN_TTL);
        break;
    case ACT_RENAME:
        act->flags = world_chance(200) ? RENAME_NOREPLACE : 0;
        break;
    case ACT_WRITE:
    case ACT_TRUNCATE:
        act->start = world_below(4) ? 0 : world_below(5);
        break;
    default:
        break;
    }
}

/* The same in each act of an idiom: the place, and the name. */
struct plan_subject {
    struct plan *plan;
    const struct plan_habits *habits;
    unsigned mount, program, slot, name;
};

static struct act *plan_with(const struct plan_subject *s, enum act_kind kind)
{
    struct act *act = plan_add(s->plan, s->habits, kind, s->mount, s->program);
    act->slot = s->slot;
    act->name = s->name;
    return act;
}

static void plan_open(const struct plan_subject *s, int flags)
{
    plan_with(s, ACT_OPEN)->flags = flags;
}

static void plan_touch(const struct plan_subject *s)
{
    switch (world_below(3)) {
    case 0: /* busybox, uutils */
        plan_open(s, O_CREAT | (world_chance(500) ? O_RDWR : O_WRONLY | O_TRUNC));
        plan_with(s, ACT_CLOSE);
        break;
    case 1: /* GNU: open, dup2, close, futimens, close */
        plan_open(s, O_WRONLY | O_CREAT);
        plan_with(s, ACT_DUP)->other = 4;
        plan_with(s, ACT_CLOSE);
        struct act *act = plan_with(s, ACT_TIMES);
        act->slot = 4;
        act->value |= 1;
        plan_with(s, ACT_CLOSE)->slot = 4;
        break;
    default: /* echo $$ > L */
        plan_open(s, O_WRONLY | O_CREAT | O_TRUNC);
        plan_with(s, ACT_WRITE)->start = 0;
        plan_with(s, ACT_CLOSE);
        break;
    }
}

static void plan_look(const struct plan_subject *s)
{
    static const enum act_kind kinds[] = {ACT_STAT, ACT_STAT,  ACT_LIST,  ACT_GETXATTR, ACT_GETXATTR,
                                          ACT_READ, ACT_GETLK, ACT_WATCH, ACT_POLL};
    struct act *act = plan_with(s, kinds[world_below(G_N_ELEMENTS(kinds))]);
    act->attribute = world_below(PLAN_WIDTH);
    act->flags = plan_flock();
}

/* After a claim a process looks at the result, because a fault that nobody looks at is not found. */
static void plan_look_at_own(const struct plan_subject *s, unsigned slot)
{
    static const enum plan_attribute attributes[] = {PLAN_TOKEN, PLAN_TOKEN, PLAN_TOKEN,  PLAN_STATE,
                                                     PLAN_KIND,  PLAN_MODE,  PLAN_WAITERS};
    if (world_chance(s->habits->looks)) {
        struct act *act = plan_with(s, world_chance(700) ? ACT_GETXATTR : ACT_READ);
        act->attribute = attributes[world_below(G_N_ELEMENTS(attributes))];
        act->slot = slot;
    }
}

static void plan_fault(struct plan *plan, const struct plan_habits *habits, unsigned mount)
{
    struct act *act = plan_add(plan, habits, ACT_FAULT, mount, 0);
    unsigned drawn = world_below(habits->fault_total);
    for (act->fault = 0; drawn >= habits->fault_weight[act->fault]; act->fault++) {
        drawn -= habits->fault_weight[act->fault];
    }
}

/* Another program, here or anywhere. */
static struct plan_subject plan_another(const struct plan_subject *s, bool here)
{
    struct plan_subject other = *s;
    other.mount = here ? s->mount : world_below(s->plan->mounts);
    other.program = (s->program + 1 + world_below(s->habits->programs - 1)) % s->habits->programs;
    return other;
}

static struct act *plan_set(const struct plan_subject *s, enum plan_attribute attribute)
{
    struct act *act = plan_with(s, ACT_SETXATTR);
    act->attribute = attribute;
    return act;
}

static void plan_token(const struct plan_subject *s)
{
    plan_with(s, ACT_GETXATTR)->attribute = PLAN_TOKEN;
}

/* Without a wait, in one way or another; the file stays open, or not. */
static void plan_take(const struct plan_subject *s)
{
    switch (world_below(4)) {
    case 0:
        plan_open(s, O_CREAT | O_EXCL | O_RDWR);
        break;
    case 1:
        plan_touch(s);
        break;
    case 2:
        plan_open(s, O_RDWR | O_CREAT);
        plan_with(s, ACT_SETLK)->flags = LOCK_EX | LOCK_NB;
        break;
    default:
        plan_open(s, O_RDONLY | O_CREAT);
        plan_with(s, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
        break;
    }
}

/* Recovers locks from the disk, or from a server. */
static void plan_crash(const struct plan_subject *s)
{
    bool server = s->plan->options.store == MOUNT_REDIS;
    struct act *act = plan_with(s, ACT_FAULT);
    act->fault = server ? FAULT_RESET : world_chance(700) ? FAULT_DAEMON_KILLED : FAULT_HOST_REBOOTED;
    act->delay = world_between(1, 1000) * WORLD_US;
    if (!server) {
        act->duration = world_between(1, 200) * WORLD_MS;
        plan_with(s, ACT_SPAWN)->delay = 300 * WORLD_MS;
        plan_with(s, ACT_STAT);
    }
}

static void plan_give(const struct plan_subject *s)
{
    static const enum act_kind kinds[] = {ACT_UNLINK, ACT_SETXATTR, ACT_SETXATTR, ACT_CLOSE, ACT_FUNLOCK};
    struct act *act = plan_with(s, kinds[world_below(G_N_ELEMENTS(kinds))]);
    act->attribute = world_chance(700) ? PLAN_RELEASE : PLAN_BREAK;
}

static void plan_hand_over(const struct plan_subject *s)
{
    struct plan_subject next = plan_another(s, false), last = plan_another(s, false);
    plan_take(s);
    plan_token(s);
    if (world_chance(900)) {
        plan_give(s);
    }
    if (s->plan->faults && world_chance(300)) {
        plan_crash(s);
        plan_with(&next, ACT_SPAWN);
    }
    plan_with(s, world_chance(500) ? ACT_READ : ACT_FSYNC);
    plan_take(&next);
    plan_token(&next);
    plan_take(&last);
}

static struct act *plan_record(const struct plan_subject *s, unsigned byte)
{
    struct act *act = plan_with(s, ACT_SETLK);
    act->flags = LOCK_EX;
    act->start = act->end = byte;
    return act;
}

/* Two or three programs, each with a lock or a byte of one lock, and then each wants the next one's. */
static void plan_circle(const struct plan_subject *s)
{
    struct plan_subject ring[3];
    unsigned count = MIN(world_chance(250) ? 2 : 3, s->habits->programs);
    bool apart = world_chance(500);
    for (unsigned i = 0; i < count; i++) {
        ring[i] = *s;
        ring[i].program = (s->program + i) % s->habits->programs;
        ring[i].name = apart ? (s->name + i) % 5 : s->name;
        plan_open(&ring[i], O_RDWR | O_CREAT);
        plan_record(&ring[i], i);
    }
    for (unsigned i = 0; i < count; i++) {
        struct plan_subject wants = ring[i];
        if (apart) {
            wants.slot = (wants.slot + 1) % 3;
            wants.name = ring[(i + 1) % count].name;
            plan_open(&wants, O_RDWR | O_CREAT);
        }
        plan_record(&wants, (i + 1) % count)->delay = 2500 * WORLD_MS; /* it certainly waits by then */
    }
    for (unsigned i = count; i > 0; i--) {
        plan_with(&ring[i - 1], ACT_CLOSE);
    }
}

/* Two share it, by flock(2) or by records, and then each wants it alone. */
static void plan_rivals(const struct plan_subject *s)
{
    struct plan_subject pair[2] = {*s, plan_another(s, false)};
    enum act_kind kind = world_chance(600) ? ACT_FLOCK : ACT_SETLK;
    for (int i = 0; i < 4; i++) {
        if (i < 2) {
            plan_open(&pair[i], O_RDWR | O_CREAT);
        }
        struct act *act = plan_with(&pair[i % 2], kind);
        act->flags = i < 2 ? LOCK_SH : LOCK_EX;
        act->start = 0;
        act->end = JUDGE_BYTES_MAX;
        act->delay = i < 2 ? act->delay : 2500 * WORLD_MS; /* it certainly waits by then */
    }
    plan_with(&pair[1], ACT_CLOSE);
    plan_with(&pair[0], ACT_CLOSE);
}

static void plan_inherit(const struct plan_subject *s)
{
    struct plan_subject child = *s, other = plan_another(s, false);
    plan_open(s, O_RDWR | O_CREAT);
    child.program = plan_with(s, ACT_FORK)->other;
    plan_with(&child, ACT_CLOSE)->delay = world_chance(500) ? 1500 * WORLD_MS : WORLD_MS;
    plan_open(&other, O_CREAT | O_EXCL | O_RDWR);
    plan_with(s, world_chance(500) ? ACT_EXIT : ACT_STAT);
    plan_open(&other, O_CREAT | O_EXCL | O_RDWR);
}

static void plan_too_large(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false);
    plan_open(s, O_RDWR | O_CREAT);
    plan_with(s, ACT_WRITE)->start = 65537;
    plan_with(s, ACT_CLOSE);
    plan_with(&other, ACT_STAT)->delay = world_chance(700) ? 2500 * WORLD_MS : WORLD_MS;
}

static void plan_lose(const struct plan_subject *s)
{
    static const enum act_kind kinds[] = {ACT_READ, ACT_FSYNC, ACT_TIMES, ACT_WRITE, ACT_GETXATTR};
    struct plan_subject other = plan_another(s, false);
    plan_open(s, O_RDWR | O_CREAT | (world_chance(300) ? O_EXCL : 0));
    plan_with(s, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
    plan_set(&other, PLAN_BREAK)->value &= ~1u;
    if (world_chance(500)) {
        plan_take(&other);
    }
    for (int i = 0; i < 3; i++) {
        struct act *act = plan_with(s, kinds[world_below(G_N_ELEMENTS(kinds))]);
        act->attribute = PLAN_STATE;
        act->value |= 1;
    }
}

static void plan_guard(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false), next = plan_another(s, false);
    plan_open(s, O_RDWR | O_CREAT);
    plan_with(s, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
    plan_set(s, PLAN_GUARD)->value |= 1;
    if (world_chance(300)) {
        plan_open(&next, O_RDONLY | O_CREAT);
        plan_with(&next, ACT_FLOCK)->flags = LOCK_EX;
    }
    plan_set(&other, PLAN_BREAK)->value &= ~1u;
    for (int i = 0; i < 3; i++) {
        plan_take(world_chance(500) ? &other : &next);
        plan_look(world_chance(500) ? s : &other);
    }
    if (world_chance(500)) {
        plan_with(s, ACT_CLOSE);
    } else if (world_chance(500)) {
        plan_set(&other, PLAN_BREAK)->value &= ~1u;
    }
    plan_take(&next);
}

static void plan_identity(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false);
    plan_open(s, O_RDWR | O_CREAT);
    plan_with(s, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
    plan_open(&other, O_RDONLY);
    plan_with(&other, ACT_FLOCK)->flags = LOCK_EX;
    plan_with(s, ACT_SETLK)->flags = LOCK_EX | LOCK_NB;
    plan_with(s, ACT_FUNLOCK);
    plan_token(s);
    plan_with(s, ACT_CLOSE);
    plan_token(&other);
}

static void plan_rights(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false);
    plan_open(s, O_RDWR | O_CREAT | O_EXCL);
    plan_with(s, ACT_WRITE)->start = 0;
    if (world_chance(500)) {
        plan_with(s, ACT_CHMOD);
    }
    plan_open(&other, O_RDONLY);
    plan_with(&other, ACT_READ);
    plan_with(&other, ACT_STAT)->value &= ~1u;
}

static void plan_intrude(const struct plan_subject *s)
{
    static const enum act_kind kinds[] = {ACT_TIMES, ACT_TIMES, ACT_WRITE, ACT_TRUNCATE, ACT_CHMOD, ACT_CLOSE};
    struct plan_subject other = plan_another(s, false);
    plan_take(s);
    plan_open(&other, O_RDWR | O_CREAT);
    plan_with(&other, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
    if (world_chance(300)) { /* a file of before */
        plan_with(s, world_chance(500) ? ACT_UNLINK : ACT_CLOSE);
        plan_with(s, ACT_SYMLINK);
    }
    struct act *act = plan_with(&other, kinds[world_below(G_N_ELEMENTS(kinds))]);
    act->start = 0;
    act->value |= 1;
    plan_with(&other, ACT_STAT);
}

/* --- of an ensemble --- */

static void plan_strike(const struct plan_subject *s, enum fault_kind kind, int64_t soon, int64_t lasts)
{
    struct act *act = plan_with(s, ACT_FAULT);
    act->fault = kind;
    act->delay = world_between(1, soon);
    act->duration = lasts;
}

/* It is known by the servers what has come of it, and not here. */
static void plan_lose_answer(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false), third = plan_another(s, false);
    bool breaks = world_chance(500);
    if (breaks) {
        plan_open(s, O_RDWR | O_CREAT);
        plan_with(s, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
        plan_open(&third, O_RDWR | O_CREAT);
        plan_with(&third, ACT_FLOCK)->flags = LOCK_EX;
        plan_set(&other, PLAN_BREAK)->value &= ~1u;
    } else if (world_chance(500)) {
        plan_open(&other, O_CREAT | O_EXCL | O_RDWR);
    } else {
        plan_open(&other, O_RDONLY | O_CREAT);
        plan_with(&other, ACT_FLOCK)->flags = LOCK_EX;
    }
    plan_strike(&other, FAULT_RESET, 8 * WORLD_MS, 0);
    plan_with(&third, ACT_FSYNC)->delay = world_between(1, 200) * WORLD_MS;
    plan_give(&other);
    plan_take(s);
}

/* Its mount is away for longer than its session lasts, but not than its term. */
static void plan_lose_session(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false);
    int64_t session = MAX(2 * s->plan->options.ttl + 2000, 4000) * WORLD_MS;
    other.mount = (s->mount + 1) % s->plan->mounts;
    plan_open(s, O_CREAT | O_EXCL | O_RDWR);
    plan_set(s, PLAN_TTL)->value = 2 * 5; /* 30 s */
    plan_strike(s, FAULT_CUT_OFF, WORLD_SECOND, 3 * session);
    plan_with(&other, ACT_STAT)->delay = session + world_between(0, session);
    for (int i = 0; i < 3; i++) {
        plan_open(&other, O_CREAT | O_EXCL | O_RDWR);
        plan_with(s, ACT_FSYNC)->delay = WORLD_SECOND;
    }
}

static void plan_delay(const struct plan_subject *s)
{
    struct plan_subject other = plan_another(s, false);
    guint first = s->plan->acts->len;
    plan_set(s, PLAN_DELAY)->name = 0; /* of d */
    plan_open(s, O_RDONLY | O_CREAT);
    plan_with(s, ACT_FLOCK)->flags = LOCK_EX | LOCK_NB;
    if (world_chance(700)) {
        plan_with(s, ACT_FUNLOCK);
    } else {
        plan_set(&other, PLAN_BREAK)->value &= ~1u;
    }
    plan_open(&other, O_RDONLY | O_CREAT);
    plan_with(&other, ACT_FLOCK)->flags = LOCK_EX;
    plan_with(&other, ACT_STAT);
    for (guint i = first; i < s->plan->acts->len; i++) { /* so that nobody else is in the way */
        g_array_index(s->plan->acts, struct act, i).delay = world_between(50, 300) * WORLD_MS;
    }
    g_array_index(s->plan->acts, struct act, s->plan->acts->len - 1).delay = world_between(1, 6) * WORLD_SECOND;
}

static void plan_ensemble(struct plan_subject *s)
{
    if (world_chance(300)) {
        s->name = 3 + world_below(2);
        plan_delay(s);
    } else if (s->plan->faults && world_chance(200)) {
        plan_lose_session(s);
    } else if (s->plan->faults) {
        plan_lose_answer(s);
    }
}

static void plan_idiom(struct plan *plan, const struct plan_habits *habits)
{
    unsigned mount = world_below(plan->mounts), program = world_below(habits->programs);
    struct plan_subject s = {plan, habits, mount, program, world_below(3), plan_draw_name(habits)};
    if (plan->options.store == MOUNT_ZOOKEEPER && world_chance(100)) {
        plan_ensemble(&s);
        return;
    }
    unsigned idiom = 0;
    for (unsigned drawn = world_below(habits->total); drawn >= habits->weight[idiom]; idiom++) {
        drawn -= habits->weight[idiom];
    }
    struct act *act;
    switch ((enum plan_idiom)idiom) {
    case IDIOM_TOUCH:
        plan_touch(&s);
        plan_look_at_own(&s, s.slot);
        break;
    case IDIOM_EXCLUSIVE:
        plan_open(&s, O_CREAT | O_EXCL | (world_chance(500) ? O_RDWR : O_WRONLY));
        if (world_chance(600)) {
            plan_with(&s, ACT_CLOSE);
        }
        plan_look_at_own(&s, s.slot);
        break;
    case IDIOM_EXECUTE:
        plan_open(&s, O_WRONLY | O_CREAT | O_TRUNC);
        plan_with(&s, ACT_DUP)->other = 4;
        plan_with(&s, ACT_CLOSE);
        act = plan_with(&s, ACT_FLOCK);
        act->slot = 4;
        act->flags = plan_flock();
        plan_look_at_own(&s, 4);
        break;
    case IDIOM_FLOCK:
        plan_open(&s, O_RDONLY | O_CREAT);
        plan_with(&s, ACT_FLOCK)->flags = plan_flock();
        plan_look_at_own(&s, s.slot);
        if (world_chance(500)) {
            plan_with(&s, world_chance(500) ? ACT_FUNLOCK : ACT_CLOSE);
        }
        break;
    case IDIOM_RANGES:
        if (world_chance(400)) {
            plan_open(&s, O_RDWR | O_CREAT);
        }
        plan_with(&s, world_chance(700) ? ACT_SETLK : ACT_UNLCK)->flags = plan_flock();
        plan_look_at_own(&s, s.slot);
        break;
    case IDIOM_TICKET:
        s.name = 5;
        plan_open(&s, O_RDWR | O_CREAT);
        plan_with(&s, ACT_READ);
        if (world_chance(800)) {
            plan_with(&s, ACT_FLOCK)->flags = plan_flock();
        }
        if (world_chance(600)) {
            plan_with(&s, ACT_CLOSE);
        }
        break;
    case IDIOM_UNLINK:
        s.name = world_chance(150) ? PLAN_TICKET : s.name;
        plan_with(&s, ACT_UNLINK);
        break;
    case IDIOM_RENAME:
        plan_open(&s, O_CREAT | O_EXCL | O_WRONLY);
        plan_with(&s, ACT_CLOSE);
        plan_with(&s, ACT_RENAME);
        break;
    case IDIOM_LINK:
        plan_open(&s, O_CREAT | O_EXCL | O_WRONLY);
        plan_with(&s, ACT_WRITE)->start = 0;
        plan_with(&s, ACT_CLOSE);
        plan_with(&s, ACT_LINK);
        plan_with(&s, ACT_UNLINK);
        break;
    case IDIOM_RELEASE:
        plan_with(&s, ACT_GETXATTR)->attribute = PLAN_TOKEN;
        plan_with(&s, ACT_SETXATTR)->attribute = PLAN_CHECK + world_below(3);
        break;
    case IDIOM_LOOK:
        plan_look(&s);
        break;
    case IDIOM_CONVERT:
        plan_with(&s, ACT_FLOCK)->flags = plan_flock();
        plan_with(&s, ACT_FLOCK)->flags = plan_flock();
        break;
    case IDIOM_HELPER:
        act = plan_with(&s, ACT_FORK);
        s.program = act->other;
        plan_touch(&s);
        if (world_chance(800)) {
            plan_with(&s, ACT_EXIT);
        }
        break;
    case IDIOM_HAND_OVER:
        plan_hand_over(&s);
        break;
    case IDIOM_CIRCLE:
        if (world_chance(500)) {
            plan_circle(&s);
        } else {
            plan_rivals(&s);
        }
        break;
    case IDIOM_INHERIT:
        plan_inherit(&s);
        break;
    case IDIOM_TOO_LARGE:
        plan_too_large(&s);
        break;
    case IDIOM_LOSE:
        plan_lose(&s);
        break;
    case IDIOM_GUARD:
        plan_guard(&s);
        break;
    case IDIOM_IDENTITY:
        plan_identity(&s);
        break;
    case IDIOM_RIGHTS:
        plan_rights(&s);
        break;
    case IDIOM_INTRUDE:
        plan_intrude(&s);
        break;
    case IDIOM_BEGIN:
        plan_with(&s, ACT_SPAWN);
        break;
    case IDIOM_DISTURB: {
        static const enum act_kind kinds[] = {ACT_SIGNAL, ACT_SIGNAL, ACT_SIGNAL, ACT_KILL, ACT_STOP, ACT_PASS};
        plan_with(&s, kinds[world_below(G_N_ELEMENTS(kinds))]);
        break;
    }
    case IDIOM_FAULT:
        plan_fault(plan, habits, mount);
        break;
    default:
        plan_any_call(plan, habits, mount, program);
        break;
    }
}

static void plan_draw_habits(struct plan *plan, struct plan_habits *habits)
{
    static const unsigned usual[IDIOMS] = {30, 12, 12, 10, 20, 20, 15, 20, 6, 4, 6,  20, 8,
                                           10, 8,  2,  3,  2,  4,  4,  4,  4, 4, 25, 10, 6};
    for (unsigned i = 0; i < IDIOMS; i++) {
        habits->weight[i] = usual[i] * world_below(8);
    }
    for (unsigned i = world_chance(500) ? 3 : 0; i > 0; i--) { /* a few that meet each other all the time */
        habits->weight[world_below(IDIOMS)] += 400;
    }
    habits->weight[IDIOM_BEGIN] = MAX(habits->weight[IDIOM_BEGIN], 20);
    if (plan->faults) {
        habits->fault_total = faults_draw(plan, habits->fault_weight);
    }
    habits->weight[IDIOM_FAULT] = habits->fault_total ? MAX(habits->weight[IDIOM_FAULT], 3) : 0;
    for (unsigned i = 0; i < IDIOMS; i++) {
        habits->total += habits->weight[i];
    }
    bool often = mount_has_nodes(plan->options.store) || (plan->options.store == MOUNT_REDIS && world_chance(300));
    if (often && habits->fault_total) { /* what it is about */
        unsigned more = habits->total / (5 + world_below(20));
        habits->weight[IDIOM_FAULT] += more;
        habits->total += more;
    }
    habits->first = world_chance(300) ? 3 : 0;
    habits->names = 1 + world_below(world_chance(600) ? 2 : PLAN_NAMES - 1);
    habits->programs = 2 + world_below(PLAN_PROGRAMS - 1);
    habits->pause = (int64_t[]){20, 200, 1000, 5000, 20000}[world_below(5)] * WORLD_US;
    habits->long_pauses = (unsigned[]){0, 2, 10, 40}[world_below(4)];
    habits->looks = world_below(3) * 400;
    if (mount_has_nodes(plan->options.store)) { /* so that failovers, and terms, fall between calls */
        habits->pause = (int64_t[]){1, 20, 100, 500, plan->options.ttl / 5}[world_below(5)] * WORLD_MS;
        habits->looks = 400 + world_below(2) * 400;
    }
}

/* There are exclusive locks of whole files only; and all mounts are to have the same term. */
static void plan_suit_redlock(struct act *act)
{
    bool term = act->kind == ACT_SETXATTR && (act->attribute <= PLAN_TTL || act->attribute == PLAN_WIDTH);
    act->name = act->name == 5 || act->name == PLAN_TICKET ? 0 : act->name;
    act->attribute = term ? PLAN_CHECK : act->attribute;
    act->kind = act->kind == ACT_RENAME ? ACT_STAT : act->kind;
    if (act->kind == ACT_FLOCK || act->kind == ACT_SETLK || act->kind == ACT_GETLK) {
        act->flags = (act->flags & ~LOCK_SH) | LOCK_EX | (world_chance(800) ? LOCK_NB : 0); /* waiting is polling */
    }
    if (act->kind == ACT_SETLK || act->kind == ACT_UNLCK || act->kind == ACT_GETLK) {
        act->start = 0;
        act->end = INT64_MAX;
    }
}

void plan_free(struct plan *plan)
{
    g_array_free(plan->acts, TRUE);
    g_free(plan);
}

struct plan *plan_new(const struct plan_request *request)
{
    static const int64_t terms[] = {500, 500, 1500, 3000, 30000};
    struct plan *plan = g_new0(struct plan, 1);
    struct plan_habits habits = {0};
    plan->seed = request->seed;
    plan->faults = request->faults && world_chance(800);
    plan->acts = g_array_new(FALSE, FALSE, sizeof(struct act));
    plan->options.store =
        request->store >= 0 ? (enum mount_store)request->store : (enum mount_store)world_below(MOUNT_ZOOKEEPER + 3);
    if (request->store < 0 && plan->options.store > MOUNT_ZOOKEEPER) {
        plan->options.store = MOUNT_REDIS;
    }
    bool servers = mount_is_redis(plan->options.store) || plan->options.store == MOUNT_ZOOKEEPER;
    plan->mounts = servers ? 1 + world_below(MOUNTS_MAX) : 1;
    plan->options.ttl = terms[world_below(G_N_ELEMENTS(terms))];
    plan->options.nodes = 1;
    if (mount_has_nodes(plan->options.store)) {
        plan->mounts = 2 + world_below(MOUNTS_MAX - 2);
        plan->options.ttl = (int64_t[]){1000, 3000, 6000, 30000, 60000}[world_below(5)];
        plan->options.nodes = plan->options.store == MOUNT_REDLOCK && world_chance(700) ? 5 : 3;
        plan->faults = request->faults;
    }
    plan->options.owner_user = world_chance(50);
    plan->options.kernel.can_expire = world_chance(700);
    plan->options.kernel.deleted = user_deleted;
    plan->options.kernel.polled = user_polled;
    plan_draw_habits(plan, &habits);
    for (unsigned i = 0; i < plan->mounts; i++) {
        for (unsigned j = 0; j < habits.programs; j++) {
            plan_add(plan, &habits, ACT_SPAWN, i, j);
        }
    }
    struct act *act = plan_add(plan, &habits, ACT_MKDIR, 0, 0);
    act->name = 1;
    act = plan_add(plan, &habits, ACT_MKDIR, 0, 0);
    act->name = 2;
    for (unsigned i = world_below(3); i > 0; i--) { /* of the directories: term, width, lock-delay */
        act = plan_add(plan, &habits, ACT_SETXATTR, 0, 0);
        act->attribute = PLAN_TTL + world_below(PLAN_CHECK - PLAN_TTL);
        act->value &= ~1u; /* by name */
        act->name = world_below(PLAN_DIRECTORIES);
    }
    while (plan->acts->len < request->operations) {
        plan_idiom(plan, &habits);
    }
    for (guint i = 0; i < plan->acts->len && plan->options.store == MOUNT_ZOOKEEPER; i++) { /* which locks no ranges */
        act = &g_array_index(plan->acts, struct act, i);
        bool record = act->kind == ACT_SETLK || act->kind == ACT_UNLCK || act->kind == ACT_GETLK;
        act->start = record ? 0 : act->start;
        act->end = record ? INT64_MAX : act->end;
    }
    for (guint i = 0; plan->options.store == MOUNT_REDLOCK && i < plan->acts->len; i++) {
        plan_suit_redlock(&g_array_index(plan->acts, struct act, i));
    }
    finale_add(plan);
    return plan;
}

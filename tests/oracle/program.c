/* program: its steps, at random and as text; see oracle.h. */
#include <string.h>
#include <sys/file.h>

#include "tests/oracle/oracle.h"

/* What would be there if every step succeeded: so that most steps mean something. */
struct plan {
    bool lives[SLOTS], has[SLOTS][DESCRIPTORS], cloexec[SLOTS][DESCRIPTORS];
};

static uint8_t pick(struct stress_random *random, uint32_t limit)
{
    return (uint8_t)stress_below(random, limit);
}

/* One that lives; there is always one. */
static uint8_t pick_slot(struct stress_random *random, const struct plan *plan)
{
    uint8_t slot;
    do {
        slot = pick(random, SLOTS);
    } while (!plan->lives[slot]);
    return slot;
}

/* One that is open (or not), mostly. */
static uint8_t pick_descriptor(struct stress_random *random, const bool *has, bool open, uint32_t first, uint32_t count)
{
    uint8_t descriptor = 0;
    for (int tries = 0; tries < 12; tries++) {
        descriptor = (uint8_t)(first + pick(random, count));
        if (has[descriptor] == open) {
            break;
        }
    }
    return descriptor;
}

static enum what pick_what(struct stress_random *random)
{
    static const struct {
        enum what what;
        uint32_t weight;
    } weights[] = {{STEP_OPEN, 6},   {STEP_DUP, 3},    {STEP_CLOSE, 6}, {STEP_FORK, 4},
                   {STEP_EXEC, 1},   {STEP_EXIT, 1},   {STEP_KILL, 2},  {STEP_SIGNAL, 5},
                   {STEP_FLOCK, 28}, {STEP_SETLK, 50}, {STEP_GETLK, 10}};
    uint32_t total = 0, roll;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        total += weights[i].weight;
    }
    roll = stress_below(random, total);
    for (size_t i = 0;; i++) {
        if (roll < weights[i].weight) {
            return weights[i].what;
        }
        roll -= weights[i].weight;
    }
}

static void random_open(struct stress_random *random, struct step *step)
{
    static const uint8_t modes[] = {O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY};
    step->other = stress_chance(random, 20);
    step->flags = modes[pick(random, 5)];
    step->cloexec = stress_chance(random, 25);
}

static void random_record(struct stress_random *random, struct step *step)
{
    static const uint8_t types[] = {F_RDLCK, F_WRLCK, F_WRLCK, F_UNLCK, F_UNLCK};
    step->type = types[pick(random, step->what == STEP_GETLK ? 3 : 5)];
    step->start = pick(random, BYTES);
    step->length = stress_chance(random, 20) ? 0 : (uint8_t)(1 + pick(random, (uint32_t)(BYTES - step->start)));
    if (stress_chance(random, 10)) { /* the whole file */
        step->start = step->length = 0;
    }
    step->ofd = stress_chance(random, 30);
    step->waits = step->what == STEP_SETLK && stress_chance(random, 60);
}

static struct step random_step(struct stress_random *random, struct plan *plan)
{
    struct step step = {.what = (uint8_t)pick_what(random), .slot = pick_slot(random, plan)};
    bool *has = plan->has[step.slot];
    uint8_t half = DESCRIPTORS / 2, family = stress_chance(random, 60) ? half : 0;
    static const uint8_t flocks[] = {LOCK_EX, LOCK_EX, LOCK_SH, LOCK_SH, LOCK_UN};
    switch ((enum what)step.what) {
    case STEP_OPEN:
        step.descriptor = pick_descriptor(random, has, false, family, half);
        random_open(random, &step);
        has[step.descriptor] = true;
        plan->cloexec[step.slot][step.descriptor] = step.cloexec;
        break;
    case STEP_DUP:
        step.descriptor = pick_descriptor(random, has, true, family, half);
        step.other = pick_descriptor(random, has, false, family, half);
        step.cloexec = stress_chance(random, 25);
        has[step.other] = has[step.other] || has[step.descriptor];
        plan->cloexec[step.slot][step.other] = step.cloexec;
        break;
    case STEP_CLOSE:
        step.descriptor = pick_descriptor(random, has, true, family, half);
        has[step.descriptor] = false;
        break;
    case STEP_FORK:
        for (step.other = 0; step.other < SLOTS && plan->lives[step.other]; step.other++) {
        }
        if (step.other == SLOTS) {
            step.what = STEP_SIGNAL;
            break;
        }
        plan->lives[step.other] = true;
        memcpy(plan->has[step.other], has, sizeof plan->has[0]);
        memcpy(plan->cloexec[step.other], plan->cloexec[step.slot], sizeof plan->cloexec[0]);
        break;
    case STEP_EXEC:
        for (int i = 0; i < DESCRIPTORS; i++) {
            has[i] = has[i] && !plan->cloexec[step.slot][i];
        }
        break;
    case STEP_EXIT:
    case STEP_KILL: {
        int others = -1;
        for (int i = 0; i < SLOTS; i++) {
            others += plan->lives[i];
        }
        plan->lives[step.slot] = others < 1;
        memset(has, 0, sizeof plan->has[0]);
        break;
    }
    case STEP_FLOCK:
        step.descriptor = pick_descriptor(random, has, true, 0, half);
        step.flags = flocks[pick(random, 5)];
        step.waits = stress_chance(random, 60);
        break;
    case STEP_SETLK:
    case STEP_GETLK:
        step.descriptor = pick_descriptor(random, has, true, half, half);
        random_record(random, &step);
        break;
    case STEP_SIGNAL:
    case STEP_CLEAR:
        break;
    }
    return step;
}

/* So that who waits goes on: something is given up. */
static struct step random_end(struct stress_random *random, const struct plan *plan)
{
    static const uint8_t ends[] = {STEP_SETLK, STEP_SETLK, STEP_FLOCK,  STEP_FLOCK,
                                   STEP_CLOSE, STEP_CLOSE, STEP_SIGNAL, STEP_KILL};
    struct step step = {.what = ends[pick(random, sizeof ends)], .slot = pick_slot(random, plan)};
    uint8_t half = DESCRIPTORS / 2, family = step.what == STEP_FLOCK || stress_chance(random, 40) ? 0 : half;
    step.descriptor =
        pick_descriptor(random, plan->has[step.slot], true, step.what == STEP_SETLK ? half : family, half);
    step.flags = LOCK_UN;
    step.type = F_UNLCK;
    step.ofd = stress_chance(random, 30);
    if (step.what == STEP_SETLK && stress_chance(random, 50)) {
        step.start = pick(random, BYTES);
        step.length = (uint8_t)(1 + pick(random, (uint32_t)(BYTES - step.start)));
    }
    return step;
}

struct program program_random(uint64_t seed)
{
    struct stress_random random = stress_seed(seed, 5);
    struct plan plan = {0};
    struct program program = {.seed = seed, .processes = 1 + stress_below(&random, 4)};
    uint32_t steps = 6 + stress_below(&random, STEPS_MAX - 22), ends = 8;
    for (uint32_t i = 0; i < program.processes; i++) {
        plan.lives[i] = true;
        for (uint8_t half = 0; half < DESCRIPTORS && program.count < 8; half = (uint8_t)(half + DESCRIPTORS / 2)) {
            struct step *step = &program.steps[program.count++];
            *step = (struct step){.what = STEP_OPEN, .slot = (uint8_t)i, .descriptor = half};
            random_open(&random, step);
            step->other = 0;
            plan.has[i][half] = true;
            plan.cloexec[i][half] = step->cloexec;
        }
    }
    for (uint32_t i = 0; i < steps + ends; i++) {
        program.steps[program.count++] = i < steps ? random_step(&random, &plan) : random_end(&random, &plan);
    }
    return program;
}

void program_print_step(const struct step *step, FILE *out)
{
    static const char *const names[] = {"open", "dup",    "close", "fork",  "exec",  "exit",
                                        "kill", "signal", "flock", "fcntl", "fcntl", "clear"};
    static const char *const types[] = {[F_RDLCK] = "RDLCK", [F_WRLCK] = "WRLCK", [F_UNLCK] = "UNLCK"};
    static const char *const modes[] = {[O_RDONLY] = "RDONLY", [O_WRONLY] = "WRONLY", [O_RDWR] = "RDWR"};
    const char *file = step->descriptor < DESCRIPTORS / 2 ? "f" : "r";
    fprintf(out, "p%u %s", step->slot, names[step->what]);
    switch ((enum what)step->what) {
    case STEP_OPEN:
        fprintf(out, " %s%u as %u %s%s", file, step->other, step->descriptor, modes[step->flags],
                step->cloexec ? " CLOEXEC" : "");
        break;
    case STEP_DUP:
        fprintf(out, " %u as %u%s", step->descriptor, step->other, step->cloexec ? " CLOEXEC" : "");
        break;
    case STEP_CLOSE:
        fprintf(out, " %u", step->descriptor);
        break;
    case STEP_FORK:
        fprintf(out, " p%u", step->other);
        break;
    case STEP_FLOCK:
        fprintf(out, " %u %s%s", step->descriptor,
                step->flags == LOCK_SH   ? "SH"
                : step->flags == LOCK_EX ? "EX"
                                         : "UN",
                step->waits ? "" : " NB");
        break;
    case STEP_SETLK:
    case STEP_GETLK:
        fprintf(out, " %u %s%s%s %s %u+%u", step->descriptor, step->ofd ? "OFD_" : "",
                step->what == STEP_SETLK ? "SETLK" : "GETLK", step->waits ? "W" : "", types[step->type], step->start,
                step->length);
        break;
    default:
        break;
    }
}

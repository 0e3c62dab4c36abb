/* lockspace_memory: prints the cost of the lockspace.
 *
 * Bytes of heap for each of a million leases; processor time of acquire and release with a thousand and with a million
 * held; time of a hand-over with ten to ten thousand waiters.  A measurement, not a test: it asserts nothing.
 */
#include "backend/lockspace/lockspace.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HELD = 1000000, ROUNDS = 200000, TTL = 30000, TURN = 64 };

static int64_t nanoseconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static size_t heap(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void free_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    (void)context;
    (void)why;
    lockspace_ticket_free(ticket);
}

static void ignore(void *context, struct backend_ticket *ticket)
{
    (void)context;
    (void)ticket;
}

static const struct lockspace_listener listener = {
    .granted = ignore, .due = ignore, .ended = free_ended, .wanted = ignore, .absorbed = ignore};

static struct backend_ticket *take(struct lockspace *space, clock_ms now, const char *name,
                                   const struct backend_claim *claim)
{
    struct backend_ticket *ticket = NULL;
    enum backend_result result = lockspace_acquire(space, now, name, claim, &ticket, NULL);
    if (result != BACKEND_OK && result != BACKEND_QUEUED) {
        fprintf(stderr, "lockspace_memory: %s was refused\n", name);
        exit(EXIT_FAILURE);
    }
    return ticket;
}

/* Names in a scattered order, as users choose them. */
static void name_of(char *name, size_t size, unsigned i)
{
    snprintf(name, size, "lease-%08x", i * 2654435761u);
}

static void measure_cycle(struct lockspace *space, const struct backend_claim *claim, unsigned held, const char *what)
{
    char name[32];
    int64_t start = nanoseconds();
    for (unsigned i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof(name), "lease-%08x-", i * 2246822519u); /* in between, and never one of them */
        lockspace_release(space, i, take(space, i, name, claim));
    }
    printf("acquire + release with %7u held, %s: %4" PRId64 " ns\n", held, what, (nanoseconds() - start) / ROUNDS);
    start = nanoseconds();
    for (unsigned i = 0; i < ROUNDS; i++) {
        lockspace_release(space, i, take(space, i, "one name", claim));
    }
    printf("acquire + release with %7u held, one name:        %4" PRId64 " ns\n", held,
           (nanoseconds() - start) / ROUNDS);
}

static void measure_leases(void)
{
    char name[32];
    GBytes *meta = g_bytes_new("1000", 4);
    struct backend_claim claim = {.kind = BACKEND_LEASE, .ttl = TTL, .due = TTL / 3, .meta = meta};
    struct lockspace *space = lockspace_new(&listener, NULL, 1);
    struct backend_ticket **tickets = g_new(struct backend_ticket *, HELD);
    size_t before = heap();
    int64_t start = nanoseconds();
    for (unsigned i = 0; i < HELD; i++) {
        name_of(name, sizeof(name), i);
        tickets[i] = take(space, i / 100, name, &claim);
        if (i + 1 == 1000) {
            measure_cycle(space, &claim, 1000, "scattered names");
            start = nanoseconds();
        }
    }
    printf("a million leases: %" PRId64 " ns and %zu bytes of heap each\n", (nanoseconds() - start) / HELD,
           (heap() - before) / HELD);
    measure_cycle(space, &claim, HELD, "scattered names");

    start = nanoseconds();
    for (unsigned i = 0; i < HELD; i++) {
        lockspace_renew(space, 20000, tickets[i], TTL, TTL / 3);
    }
    printf("renew, of a million: %" PRId64 " ns each\n", (nanoseconds() - start) / HELD);
    int64_t longest = 0, began = nanoseconds();
    size_t ended = 0, part = TURN;
    while (part == TURN) { /* as the local store does: its loop answers others between two turns */
        start = nanoseconds();
        part = lockspace_tick(space, 1000000, TURN);
        longest = MAX(longest, nanoseconds() - start);
        ended += part;
    }
    printf("%zu expire at once: %" PRId64 " ns each, the longest turn of %d: %.3f ms\n", ended,
           (nanoseconds() - began) / (int64_t)MAX(ended, 1), TURN, (double)longest / 1e6);
    printf("heap left: %zu bytes\n", heap() - before);
    g_free(tickets);
    lockspace_free(space);
    g_bytes_unref(meta);
    malloc_trim(0); /* now, not within the next measurement */
}

static void measure_hand_over(unsigned waiters, enum backend_kind kind, bool sequence, const char *what)
{
    struct lockspace *space = lockspace_new(&listener, NULL, 1);
    GQueue tickets = G_QUEUE_INIT;
    struct backend_claim claim = {.kind = kind, .wait = true, .sequence = sequence, .ttl = TTL, .due = TTL / 3};
    claim.end = BACKEND_RANGE_MAX;
    const char *name = sequence ? "job-" : "one name";
    int64_t start = nanoseconds();
    for (unsigned i = 0; i < waiters; i++) {
        claim.handle = i + 1;
        claim.lock_owner = kind == BACKEND_FCNTL ? i + 1 : 0;
        g_queue_push_tail(&tickets, take(space, 0, name, &claim));
    }
    int64_t queueing = (nanoseconds() - start) / waiters;
    start = nanoseconds();
    for (unsigned i = 0; i < ROUNDS; i++) {
        lockspace_release(space, i / 100, g_queue_pop_head(&tickets));
        claim.handle = claim.lock_owner = waiters + i + 1;
        claim.lock_owner = kind == BACKEND_FCNTL ? claim.lock_owner : 0;
        g_queue_push_tail(&tickets, take(space, i / 100, name, &claim));
    }
    printf("%s, %5u tickets: queueing %4" PRId64 " ns, hand-over and queueing %4" PRId64 " ns\n", what, waiters,
           queueing, (nanoseconds() - start) / ROUNDS);
    g_queue_clear(&tickets);
    lockspace_free(space);
}

int main(void)
{
    mallopt(M_MXFAST, 0); /* as the daemon does */
    measure_leases();
    for (unsigned waiters = 10; waiters <= 10000; waiters *= 10) {
        measure_hand_over(waiters, BACKEND_FLOCK, false, "flock   ");
        measure_hand_over(waiters, BACKEND_FCNTL, false, "fcntl   ");
        measure_hand_over(waiters, BACKEND_LEASE, true, "sequence");
    }
    return EXIT_SUCCESS;
}

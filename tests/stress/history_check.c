/* history_check: finds holds that cannot be true together; see history.h.
 *
 * Two holds of one name exclude each other unless both are shared or their bytes do not overlap.  In a queue at most
 * its width hold, unless all are shared.  Fencing tokens grow from one exclusive hold of a whole name, or of a queue of
 * width 1, to the next, unless that is the same one, converted.  The simulator judges the tokens of all others.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stress/history.h"

static const char *const kind_names[] = {"lease", "flock", "fcntl", "OFD", "ticket", "nothing"};

const char *history_kind_name(unsigned kind)
{
    return kind_names[kind];
}

static bool history_is_whole(const struct history_hold *hold)
{
    return hold->start == 0 && hold->end == HISTORY_RANGE_MAX;
}

static bool history_exclude(const struct history_hold *a, const struct history_hold *b)
{
    return !a->width && a->client != b->client && (a->mode == HISTORY_EXCLUSIVE || b->mode == HISTORY_EXCLUSIVE) &&
           a->start <= b->end && b->start <= a->end;
}

/* One grant, converted from one to the other? */
static bool history_is_same(const struct history_hold *a, const struct history_hold *b)
{
    return a->client == b->client && a->grant == b->grant && a->token == b->token;
}

/* Certain for any time at all? */
static bool history_is_certain(const struct history_hold *hold)
{
    return hold->acquired && hold->released > hold->acquired;
}

/* More are counted, and not told. */
#define REPORTED_MAX 20

static void history_tell(FILE *out, const char *label, const struct history_hold *hold)
{
    if (out) {
        fprintf(out, "    %s: name %u, client %u, %s %s %" PRId64 "..%" PRId64 ", %.6f..%.6f s, token %" PRId64 "\n",
                label, hold->name, hold->client, hold->mode == HISTORY_SHARED ? "shared" : "exclusive",
                kind_names[hold->kind], hold->start, hold->end, (double)hold->acquired / STRESS_SECOND,
                (double)hold->released / STRESS_SECOND, hold->token);
    }
}

static void history_report(FILE *out, const char *what, const struct history_hold *a, const struct history_hold *b)
{
    if (out) {
        fprintf(out, "%s:\n", what);
    }
    history_tell(out, "first", a);
    history_tell(out, "then ", b);
}

static int history_by_acquired(const void *left, const void *right)
{
    const struct history_hold *a = left, *b = right;
    if (a->name != b->name) {
        return a->name < b->name ? -1 : 1;
    }
    return a->acquired < b->acquired ? -1 : a->acquired > b->acquired;
}

static bool history_one_is_exclusive(const struct history_hold *const *holds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (holds[i]->mode == HISTORY_EXCLUSIVE) {
            return true;
        }
    }
    return false;
}

/* The holds of one name, in the order of `acquired`; `active` has room for all. */
static void history_check_overlaps(const struct history_hold *holds, size_t count, const struct history_hold **active,
                                   struct history_verdict *verdict, FILE *out)
{
    size_t actives = 0;
    uint32_t last = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        const struct history_hold *hold = &holds[i];
        size_t kept = 0;
        bool overlaps = false;
        if (!history_is_certain(hold)) {
            continue;
        }
        for (size_t j = 0; j < actives; j++) {
            if (active[j]->released <= hold->acquired) {
                continue;
            }
            if (history_exclude(active[j], hold)) {
                overlaps = true;
                history_report(verdict->overlaps < REPORTED_MAX ? out : NULL, "overlap", active[j], hold);
            }
            active[kept++] = active[j];
        }
        active[kept] = hold;
        actives = kept + 1;
        if (hold->width && actives > hold->width && history_one_is_exclusive(active, actives)) {
            overlaps = true;
            history_report(verdict->overlaps < REPORTED_MAX ? out : NULL, "more than the width", active[0], hold);
        }
        verdict->overlaps += overlaps;
        verdict->full += hold->width > 1 && actives == hold->width;
        verdict->certain++;
        verdict->handovers += hold->mode == HISTORY_EXCLUSIVE && last != UINT32_MAX && last != hold->client;
        last = hold->client;
    }
}

static void history_check_tokens(const struct history_hold *holds, size_t count, struct history_verdict *verdict,
                                 FILE *out)
{
    const struct history_hold *before = NULL;
    for (const struct history_hold *hold = holds; hold < holds + count; hold++) {
        if (!hold->token || hold->mode != HISTORY_EXCLUSIVE || !history_is_whole(hold) || hold->width > 1) {
            continue;
        }
        if (before && hold->token <= before->token && !history_is_same(hold, before)) {
            verdict->tokens++;
            history_report(verdict->tokens <= REPORTED_MAX ? out : NULL, "a fencing token did not grow", before, hold);
        }
        before = hold;
    }
}

struct history_verdict history_check(struct history_hold *holds, size_t count, FILE *out)
{
    struct history_verdict verdict = {0};
    const struct history_hold **room = calloc(count + 1, sizeof *room);
    qsort(holds, count, sizeof *holds, history_by_acquired);
    for (size_t first = 0, next; first < count; first = next) {
        for (next = first; next < count && holds[next].name == holds[first].name; next++) {
        }
        history_check_overlaps(holds + first, next - first, room, &verdict, out);
        history_check_tokens(holds + first, next - first, &verdict, out);
    }
    free(room);
    return verdict;
}

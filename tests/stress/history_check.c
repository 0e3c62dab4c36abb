/* history_check: finds holds that cannot be true together; see history.h.
 *
 * Two holds of one name exclude each other unless both are shared or their bytes do not overlap.  In a queue at most
 * its width hold, unless all are shared.  Fencing tokens grow from one exclusive hold of a whole name to the next,
 * unless that is the same one, converted; and so from one exclusive hold of a queue of width 1 to the next.  A shared
 * holder has a token of its own, which is not below that of an earlier exclusive hold, except where byte ranges are
 * granted out of order. Shared holders may be granted together, so among them tokens may be in any order.
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

static int history_by_token_at(const void *left, const void *right)
{
    const struct history_hold *const *a = left, *const *b = right;
    return (*a)->token_at < (*b)->token_at ? -1 : (*a)->token_at > (*b)->token_at;
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
        verdict->certain++;
        verdict->handovers += hold->mode == HISTORY_EXCLUSIVE && last != UINT32_MAX && last != hold->client;
        last = hold->client;
    }
}

/* Each token against the largest of an exclusive hold that had been read before its hold began. */
static void history_check_tokens(const struct history_hold *holds, size_t count, const struct history_hold **reads,
                                 struct history_verdict *verdict, FILE *out)
{
    const struct history_hold *largest = NULL, *exclusive = NULL;
    size_t n = 0, past = 0;
    bool ranges = false;
    for (size_t i = 0; i < count; i++) {
        ranges = ranges || !history_is_whole(&holds[i]) || holds[i].width > 1;
        if (holds[i].token) {
            reads[n++] = &holds[i];
        }
    }
    qsort(reads, n, sizeof *reads, history_by_token_at);
    for (size_t i = 0; i < count; i++) {
        const struct history_hold *hold = &holds[i];
        bool by_itself = hold->mode == HISTORY_EXCLUSIVE && history_is_whole(hold) && hold->width <= 1;
        for (; past < n && reads[past]->token_at <= hold->acquired; past++) {
            if (reads[past]->mode == HISTORY_EXCLUSIVE && (!largest || reads[past]->token > largest->token)) {
                largest = reads[past];
            }
        }
        if (!hold->token) {
            continue;
        }
        if (largest && hold->token < largest->token && !ranges) {
            verdict->tokens++;
            history_report(verdict->tokens <= REPORTED_MAX ? out : NULL, "a fencing token went back", largest, hold);
        } else if (by_itself && exclusive && hold->token <= exclusive->token && !history_is_same(hold, exclusive)) {
            verdict->tokens++;
            history_report(verdict->tokens <= REPORTED_MAX ? out : NULL, "a fencing token did not grow", exclusive,
                           hold);
        }
        exclusive = by_itself ? hold : exclusive;
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
        history_check_tokens(holds + first, next - first, room, &verdict, out);
    }
    free(room);
    return verdict;
}

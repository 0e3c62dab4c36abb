/* redis_model_zset: commands about sorted sets. */
#include <math.h>

#include "tests/sim/redis_model_private.h"

static const struct slice *key_of(const struct model_call *call)
{
    return &call->argv[1];
}

static size_t size_of(const struct model_value *zset)
{
    return zset ? g_hash_table_size(zset->zset.by_name) : 0;
}

/* --- a part of one, by ranks --- */

/* Ranks from the low end, `to` included; empty if from > to. */
struct span {
    int64_t from, to;
};

static struct span span_of_ranks(int64_t from, int64_t to, size_t size)
{
    int64_t length = (int64_t)size;
    from = from < 0 ? MAX(from + length, 0) : from;
    to = to < 0 ? to + length : to;
    return (struct span){from, MIN(to, length - 1)};
}

/* The same of ranks that are counted from the high end. */
static struct span turned(struct span span, size_t size)
{
    int64_t last = (int64_t)size - 1;
    return (struct span){last - span.to, last - span.from};
}

/* --- limits, by score or by name --- */

struct limit {
    double score;
    struct slice name;
    bool open;
    int infinite; /* -1 or 1: below or above every name */
};

static bool read_score_limit(const struct slice *word, struct limit *limit)
{
    limit->open = word->length > 0 && *word->data == '(';
    struct slice rest = {word->data + limit->open, word->length - limit->open};
    return slice_score(&rest, &limit->score);
}

static bool read_name_limit(const struct slice *word, struct limit *limit)
{
    if (word->length == 1 && (*word->data == '-' || *word->data == '+')) {
        limit->infinite = *word->data == '-' ? -1 : 1;
        return true;
    }
    if (word->length == 0 || (*word->data != '(' && *word->data != '[')) {
        return false;
    }
    limit->open = *word->data == '(';
    limit->name = (struct slice){word->data + 1, word->length - 1};
    return true;
}

static bool read_limits(struct model_call *call, const struct slice *low, const struct slice *high, bool by_name,
                        struct limit *limits)
{
    limits[0] = limits[1] = (struct limit){0};
    bool (*read)(const struct slice *, struct limit *) = by_name ? read_name_limit : read_score_limit;
    if (read(low, &limits[0]) && read(high, &limits[1])) {
        return true;
    }
    model_say_error(call, by_name ? "ERR min or max not valid string range item" : "ERR min or max is not a float");
    return false;
}

/* Less than 0: it is below the limit. */
static int compare_to(const struct model_ranked *ranked, const struct limit *limit, bool by_name)
{
    if (by_name) {
        return limit->infinite ? -limit->infinite : slice_compare(&ranked->name, &limit->name);
    }
    return (ranked->score > limit->score) - (ranked->score < limit->score);
}

static bool is_above(const struct model_ranked *ranked, const struct limit *limit, bool by_name)
{
    int order = compare_to(ranked, limit, by_name);
    return limit->open ? order > 0 : order >= 0;
}

static bool is_below(const struct model_ranked *ranked, const struct limit *limit, bool by_name)
{
    int order = compare_to(ranked, limit, by_name);
    return limit->open ? order < 0 : order <= 0;
}

/* How many at the low end are below the lower limit, or not above the upper one: found by halving. */
static int64_t count_before(const struct model_value *zset, const struct limit *limit, bool by_name, bool upper)
{
    int64_t low = 0, high = (int64_t)size_of(zset);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct model_ranked *ranked = g_sequence_get(g_sequence_get_iter_at_pos(zset->zset.order, (gint)middle));
        bool before = upper ? is_below(ranked, limit, by_name) : !is_above(ranked, limit, by_name);
        if (before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct span span_of_limits(const struct model_value *zset, const struct limit *limits, bool by_name)
{
    if (!zset) {
        return (struct span){0, -1};
    }
    return (struct span){count_before(zset, &limits[0], by_name, false),
                         count_before(zset, &limits[1], by_name, true) - 1};
}

/* --- replies with a range --- */

static void say_span(struct model_call *call, const struct model_value *zset, struct span span, bool reverse,
                     bool scores)
{
    size_t count = span.from <= span.to ? (size_t)(span.to - span.from + 1) : 0;
    model_say_array(call, count * (1 + scores));
    if (count == 0) {
        return;
    }
    GSequenceIter *at = g_sequence_get_iter_at_pos(zset->zset.order, (gint)(reverse ? span.to : span.from));
    while (count-- > 0) {
        const struct model_ranked *ranked = g_sequence_get(at);
        model_say_bulk(call, ranked->name.data, ranked->name.length);
        if (scores) {
            model_say_score(call, ranked->score);
        }
        at = reverse ? g_sequence_iter_prev(at) : g_sequence_iter_next(at);
    }
}

static struct span limited(struct span span, int64_t offset, int64_t count, bool reverse)
{
    if (offset < 0) {
        return (struct span){0, -1};
    }
    if (reverse) {
        span.to -= offset;
        span.from = count < 0 ? span.from : MAX(span.from, span.to - count + 1);
    } else {
        span.from += offset;
        span.to = count < 0 ? span.to : MIN(span.to, span.from + count - 1);
    }
    return span;
}

enum how { BY_RANK, BY_SCORE, BY_NAME };

struct range {
    enum how how;
    bool reverse, scores, limited;
    int64_t offset, count;
};

/* Words behind the two limits; ZRANGE takes more of them than its older sisters. */
static bool read_range(struct model_call *call, struct range *range, bool all)
{
    range->count = -1;
    for (size_t i = 4; i < call->argc; i++) {
        const struct slice *word = &call->argv[i];
        if (slice_is(word, "withscores")) {
            range->scores = true;
        } else if (slice_is(word, "limit") && call->argc - i > 2 && (all || range->how != BY_RANK)) {
            if (!slice_number(&call->argv[i + 1], &range->offset) || !slice_number(&call->argv[i + 2], &range->count)) {
                model_say_error(call, "ERR value is not an integer or out of range");
                return false;
            }
            range->limited = true;
            i += 2;
        } else if (all && slice_is(word, "byscore")) {
            range->how = BY_SCORE;
        } else if (all && slice_is(word, "bylex")) {
            range->how = BY_NAME;
        } else if (all && slice_is(word, "rev")) {
            range->reverse = true;
        } else {
            model_say_syntax(call);
            return false;
        }
    }
    if (range->limited && range->how == BY_RANK) {
        model_say_error(call, "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
        return false;
    }
    if (range->scores && range->how == BY_NAME) {
        model_say_error(call, "ERR syntax error, WITHSCORES not supported in combination with BYLEX");
        return false;
    }
    return true;
}

static void tell_range(struct model_call *call, struct range range, bool all)
{
    struct model_value *zset;
    struct limit limits[2];
    struct span span;
    int64_t from = 0, to = 0;
    if (!read_range(call, &range, all)) {
        return;
    }
    bool by_limits = range.how != BY_RANK;
    const struct slice *low = &call->argv[by_limits && range.reverse ? 3 : 2];
    const struct slice *high = &call->argv[by_limits && range.reverse ? 2 : 3];
    if (by_limits && !read_limits(call, low, high, range.how == BY_NAME, limits)) {
        return;
    }
    if (!by_limits && (!slice_number(low, &from) || !slice_number(high, &to))) {
        model_say_error(call, "ERR value is not an integer or out of range");
        return;
    }
    if (!model_look(call, key_of(call), MODEL_ZSET, &zset)) {
        return;
    }
    if (by_limits) {
        span = span_of_limits(zset, limits, range.how == BY_NAME);
        span = range.limited ? limited(span, range.offset, range.count, range.reverse) : span;
    } else {
        span = span_of_ranks(from, to, size_of(zset));
        span = range.reverse ? turned(span, size_of(zset)) : span;
    }
    say_span(call, zset, span, range.reverse, range.scores);
}

static void run_zrange(struct model_call *call)
{
    tell_range(call, (struct range){.how = BY_RANK}, true);
}

static void run_zrevrange(struct model_call *call)
{
    tell_range(call, (struct range){.how = BY_RANK, .reverse = true}, false);
}

static void run_zrangebyscore(struct model_call *call)
{
    tell_range(call, (struct range){.how = BY_SCORE}, false);
}

static void run_zrevrangebyscore(struct model_call *call)
{
    tell_range(call, (struct range){.how = BY_SCORE, .reverse = true}, false);
}

static void run_zrangebylex(struct model_call *call)
{
    tell_range(call, (struct range){.how = BY_NAME}, false);
}

static void run_zrevrangebylex(struct model_call *call)
{
    tell_range(call, (struct range){.how = BY_NAME, .reverse = true}, false);
}

/* --- counting --- */

static void run_zcard(struct model_call *call)
{
    struct model_value *zset;
    if (model_look(call, key_of(call), MODEL_ZSET, &zset)) {
        model_say_number(call, (int64_t)size_of(zset));
    }
}

static void count_span(struct model_call *call, bool by_name)
{
    struct model_value *zset;
    struct limit limits[2];
    if (!read_limits(call, &call->argv[2], &call->argv[3], by_name, limits) ||
        !model_look(call, key_of(call), MODEL_ZSET, &zset)) {
        return;
    }
    struct span span = span_of_limits(zset, limits, by_name);
    model_say_number(call, MAX(span.to - span.from + 1, 0));
}

static void run_zcount(struct model_call *call)
{
    count_span(call, false);
}

static void run_zlexcount(struct model_call *call)
{
    count_span(call, true);
}

static void say_rank(struct model_call *call, bool reverse)
{
    struct model_value *zset;
    if (!model_look(call, key_of(call), MODEL_ZSET, &zset)) {
        return;
    }
    const struct model_ranked *ranked = zset ? model_zset_find(&zset->zset, &call->argv[2]) : NULL;
    if (!ranked) {
        model_say_nil(call);
        return;
    }
    int64_t rank = g_sequence_iter_get_position(ranked->at);
    model_say_number(call, reverse ? (int64_t)size_of(zset) - 1 - rank : rank);
}

static void run_zrank(struct model_call *call)
{
    say_rank(call, false);
}

static void run_zrevrank(struct model_call *call)
{
    say_rank(call, true);
}

static void say_score_of(struct model_call *call, const struct model_value *zset, const struct slice *name)
{
    const struct model_ranked *ranked = zset ? model_zset_find(&zset->zset, name) : NULL;
    if (ranked) {
        model_say_score(call, ranked->score);
    } else {
        model_say_nil(call);
    }
}

static void run_zscore(struct model_call *call)
{
    struct model_value *zset;
    if (model_look(call, key_of(call), MODEL_ZSET, &zset)) {
        say_score_of(call, zset, &call->argv[2]);
    }
}

static void run_zmscore(struct model_call *call)
{
    struct model_value *zset;
    if (!model_look(call, key_of(call), MODEL_ZSET, &zset)) {
        return;
    }
    model_say_array(call, call->argc - 2);
    for (size_t i = 2; i < call->argc; i++) {
        say_score_of(call, zset, &call->argv[i]);
    }
}

/* --- adding --- */

struct adding {
    bool if_none, if_any, greater, less, changed, increment;
};

/* How many words there are before the first score. */
static size_t read_adding(const struct model_call *call, struct adding *a)
{
    size_t at = 2;
    for (; at < call->argc; at++) {
        const struct slice *word = &call->argv[at];
        if (slice_is(word, "nx")) {
            a->if_none = true;
        } else if (slice_is(word, "xx")) {
            a->if_any = true;
        } else if (slice_is(word, "gt")) {
            a->greater = true;
        } else if (slice_is(word, "lt")) {
            a->less = true;
        } else if (slice_is(word, "ch")) {
            a->changed = true;
        } else if (slice_is(word, "incr")) {
            a->increment = true;
        } else {
            break;
        }
    }
    return at;
}

static const char *fault_of(const struct adding *a, size_t words)
{
    if (words == 0 || words % 2 == 1) {
        return "ERR syntax error";
    }
    if (a->if_none && a->if_any) {
        return "ERR XX and NX options at the same time are not compatible";
    }
    if ((a->greater && (a->if_none || a->less)) || (a->less && a->if_none)) {
        return "ERR GT, LT, and/or NX options at the same time are not compatible";
    }
    if (a->increment && words > 2) {
        return "ERR INCR option supports a single increment-element pair";
    }
    return NULL;
}

/* Of one member; false: nothing is changed. */
static bool add_one(const struct adding *a, struct model_value *zset, const struct slice *name, double score,
                    bool *ret_added)
{
    const struct model_ranked *ranked = model_zset_find(&zset->zset, name);
    *ret_added = !ranked;
    if (ranked ? a->if_none || (a->greater && score <= ranked->score) || (a->less && score >= ranked->score) ||
                     score == ranked->score
               : a->if_any) {
        return false;
    }
    model_zset_put(&zset->zset, name, score);
    return true;
}

static void add_all(struct model_call *call, struct adding a, size_t at)
{
    struct model_value *zset;
    int64_t added = 0, changed = 0;
    double score, score_given = 0;
    bool fresh = false;
    for (size_t i = at; i < call->argc; i += 2) {
        if (!slice_score(&call->argv[i], &score)) {
            model_say_error(call, "ERR value is not a valid float");
            return;
        }
    }
    if (!model_open(call, key_of(call), MODEL_ZSET, &zset)) {
        return;
    }
    if (!zset && !a.if_any) {
        model_make(call, key_of(call), MODEL_ZSET, &zset);
    }
    bool done = false;
    for (size_t i = at; zset && i < call->argc; i += 2) {
        slice_score(&call->argv[i], &score);
        const struct model_ranked *ranked = model_zset_find(&zset->zset, &call->argv[i + 1]);
        score_given = a.increment && ranked ? ranked->score + score : score;
        if (isnan(score_given)) {
            model_say_error(call, "ERR resulting score is not a number (NaN)");
            return;
        }
        done = add_one(&a, zset, &call->argv[i + 1], score_given, &fresh);
        added += done && fresh;
        changed += done;
        done = done || (ranked && !a.if_none && !a.greater && !a.less && score_given == ranked->score);
    }
    if (changed) {
        model_close(call, key_of(call));
    }
    if (a.increment && done) {
        model_say_score(call, score_given);
    } else if (a.increment) {
        model_say_nil(call);
    } else {
        model_say_number(call, a.changed ? changed : added);
    }
}

static void run_zadd(struct model_call *call)
{
    struct adding a = {0};
    size_t at = read_adding(call, &a);
    const char *fault = fault_of(&a, call->argc - at);
    if (fault) {
        model_say_error(call, "%s", fault);
    } else {
        add_all(call, a, at);
    }
}

static void run_zincrby(struct model_call *call)
{
    add_all(call, (struct adding){.increment = true}, 2);
}

/* --- removing --- */

static void run_zrem(struct model_call *call)
{
    struct model_value *zset;
    int64_t count = 0;
    if (!model_open(call, key_of(call), MODEL_ZSET, &zset)) {
        return;
    }
    for (size_t i = 2; zset && i < call->argc; i++) {
        struct model_ranked *ranked = model_zset_find(&zset->zset, &call->argv[i]);
        if (ranked) {
            model_zset_remove(&zset->zset, ranked);
            count++;
        }
    }
    if (count) {
        model_close(call, key_of(call));
    }
    model_say_number(call, count);
}

static int64_t remove_span(struct model_call *call, struct model_value *zset, struct span span)
{
    int64_t count = MAX(span.to - span.from + 1, 0);
    for (int64_t i = 0; i < count; i++) {
        model_zset_remove(&zset->zset, g_sequence_get(g_sequence_get_iter_at_pos(zset->zset.order, (gint)span.from)));
    }
    if (count) {
        model_close(call, key_of(call));
    }
    return count;
}

static void remove_between(struct model_call *call, bool by_name)
{
    struct model_value *zset;
    struct limit limits[2];
    if (read_limits(call, &call->argv[2], &call->argv[3], by_name, limits) &&
        model_open(call, key_of(call), MODEL_ZSET, &zset)) {
        model_say_number(call, remove_span(call, zset, span_of_limits(zset, limits, by_name)));
    }
}

static void run_zremrangebyscore(struct model_call *call)
{
    remove_between(call, false);
}

static void run_zremrangebylex(struct model_call *call)
{
    remove_between(call, true);
}

static void run_zremrangebyrank(struct model_call *call)
{
    struct model_value *zset;
    int64_t from, to;
    if (!slice_number(&call->argv[2], &from) || !slice_number(&call->argv[3], &to)) {
        model_say_error(call, "ERR value is not an integer or out of range");
        return;
    }
    if (model_open(call, key_of(call), MODEL_ZSET, &zset)) {
        model_say_number(call, remove_span(call, zset, span_of_ranks(from, to, size_of(zset))));
    }
}

static void run_zpopmin(struct model_call *call)
{
    struct model_value *zset;
    int64_t count = 1;
    if (call->argc > 3) {
        model_say_syntax(call);
        return;
    }
    if (call->argc == 3 && (!slice_number(&call->argv[2], &count) || count < 0)) {
        model_say_error(call, "ERR value is out of range, must be positive");
        return;
    }
    if (model_open(call, key_of(call), MODEL_ZSET, &zset)) {
        struct span span = {0, MIN(count, (int64_t)size_of(zset)) - 1};
        say_span(call, zset, span, false, true);
        remove_span(call, zset, span);
    }
}

#define WRITES (MODEL_WRITE | MODEL_DENYOOM)

const struct model_command model_zset_commands[] = {
    {"zadd", -4, WRITES, 1, 1, 1, run_zadd},
    {"zcard", 2, MODEL_READ, 1, 1, 1, run_zcard},
    {"zcount", 4, MODEL_READ, 1, 1, 1, run_zcount},
    {"zincrby", 4, WRITES, 1, 1, 1, run_zincrby},
    {"zlexcount", 4, MODEL_READ, 1, 1, 1, run_zlexcount},
    {"zmscore", -3, MODEL_READ, 1, 1, 1, run_zmscore},
    {"zpopmin", -2, MODEL_WRITE, 1, 1, 1, run_zpopmin},
    {"zrange", -4, MODEL_READ, 1, 1, 1, run_zrange},
    {"zrangebylex", -4, MODEL_READ, 1, 1, 1, run_zrangebylex},
    {"zrangebyscore", -4, MODEL_READ, 1, 1, 1, run_zrangebyscore},
    {"zrank", 3, MODEL_READ, 1, 1, 1, run_zrank},
    {"zrem", -3, MODEL_WRITE, 1, 1, 1, run_zrem},
    {"zremrangebylex", 4, MODEL_WRITE, 1, 1, 1, run_zremrangebylex},
    {"zremrangebyrank", 4, MODEL_WRITE, 1, 1, 1, run_zremrangebyrank},
    {"zremrangebyscore", 4, MODEL_WRITE, 1, 1, 1, run_zremrangebyscore},
    {"zrevrange", -4, MODEL_READ, 1, 1, 1, run_zrevrange},
    {"zrevrangebylex", -4, MODEL_READ, 1, 1, 1, run_zrevrangebylex},
    {"zrevrangebyscore", -4, MODEL_READ, 1, 1, 1, run_zrevrangebyscore},
    {"zrevrank", 3, MODEL_READ, 1, 1, 1, run_zrevrank},
    {"zscore", 3, MODEL_READ, 1, 1, 1, run_zscore},
    {NULL, 0, 0, 0, 0, 0, NULL},
};

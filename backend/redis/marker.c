/* marker: the marker of the epoch in the server, for backend/remote/epoch.h; script/enter.lua reads and writes it. */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

G_STATIC_ASSERT(EPOCH_STAMP_SIZE == REDIS_STAMP_MAX + 1);

static void marker_fill(struct redis_call *call, struct redis *r)
{
    struct epoch_report report;
    epoch_report(&r->epoch, &report);
    *call = (struct redis_call){.r = r, .script = REDIS_ENTER};
    redis_call_key(call, 'v', "");
    redis_call_key(call, 'r', "");
    redis_call_key(call, 'g', "");
    redis_call_key(call, 's', "");
    redis_call_text(call, "version", report.stamp);
    redis_call_text(call, "mount", r->mount);
    redis_call_number(call, "term", report.term);
    redis_call_number(call, "others", report.others);
    redis_call_number(call, "count", report.reports);
    redis_call_number(call, "most", report.grace_max);
    redis_call_text(call, "fresh", report.fresh);
    redis_call_number(call, "closed", report.closed_for);
    redis_call_flag(call, "back", report.restored);
    redis_call_flag(call, "single", r->kind == REDIS_SERVER && r->wait == 0);
    redis_call_flag(call, "strict", report.strict);
    redis_call_text(call, "about", r->about);
    redis_call_text(call, "identity", r->keys.identity);
    redis_call_number(call, "age", clock_now() - r->started);
}

/* False: no marker that enter.lua can have answered.  The stamp is borrowed from the reply. */
static bool marker_read(const redisReply *reply, struct epoch_marker *ret)
{
    static const enum epoch_state states[] = {['f'] = EPOCH_FRESH, ['c'] = EPOCH_CLOSED, ['o'] = EPOCH_OPEN};
    const char *stamp = redis_text(reply, 0), *state = redis_text(reply, 1);
    struct epoch_marker marker = {
        .stamp = stamp,
        .longest = redis_time(reply, 2),
        .others = redis_time(reply, 4),
        .reports = redis_number(reply, 5),
        .lost_data = redis_number(reply, 6) == 1,
    };
    if (strlen(stamp) != 16 || strspn(stamp, "0123456789abcdef") != 16 || strlen(state) != 1 ||
        !strchr("fco", *state) || marker.longest < 0 || marker.others < 0 || marker.reports < 0) {
        return false;
    }
    marker.state = states[(unsigned char)*state];
    *ret = marker;
    return true;
}

void redis_marker_greet(void *context)
{
    struct redis *r = context;
    struct redis_call call;
    size_t keys, count;
    epoch_on_connect(&r->epoch);
    marker_fill(&call, r);
    const struct redis_argument *arguments = redis_call_arguments(&call, &keys, &count);
    redis_conn_greet(r->conn, keys, arguments, count);
    redis_call_end(r);
}

bool redis_marker_greeted(void *context, const redisReply *reply)
{
    struct redis *r = context;
    struct epoch_marker marker;
    bool read = marker_read(reply, &marker);
    if (read) {
        epoch_set_marker(&r->epoch, &marker, r->wait == 0);
    }
    return read;
}

static void marker_on_answer(void *arg, const struct redis_answer *answer)
{
    struct redis *r = arg;
    struct epoch_marker marker;
    if (answer->outcome == REMOTE_ANSWERED && marker_read(answer->reply, &marker)) {
        epoch_on_marker(&r->epoch, &marker);
    } else {
        redis_failure(r, answer);
        epoch_on_failure(&r->epoch, answer->outcome == REMOTE_UNKNOWN);
    }
}

static void marker_ask(struct remote *remote)
{
    struct redis_call call;
    marker_fill(&call, (struct redis *)remote);
    redis_call_send(&call, 0, marker_on_answer, remote);
}

static void marker_set_stamp(struct remote *remote, const char *stamp, bool changed)
{
    struct redis *r = (struct redis *)remote;
    redis_conn_stamp(r->conn, stamp);
    if (changed) {
        r->uncontended.leases_noted = 0;
    }
}

const struct epoch_store redis_epoch_store = {
    .ask = marker_ask,
    .set_stamp = marker_set_stamp,
};

bool redis_marker_is_key(struct redis *r, const char *key, size_t length)
{
    const GString *own = redis_key_make(&r->keys, 'v', "");
    return length == own->len && memcmp(key, own->str, length) == 0;
}

void redis_marker_watch(struct redis *r)
{
    char *key = redis_key(&r->keys, 'v', "");
    redis_conn_watch(r->conn, key, strlen(key), NULL, NULL, NULL);
    g_free(key);
    epoch_ask(&r->epoch);
}

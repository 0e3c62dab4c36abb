/* redis_model_command: commands about keys, strings, hashes, sets and lists. */
#include "tests/sim/redis_model_private.h"

#define TIME_MAX (INT64_MAX / 2)

/* --- what commands share --- */

static const struct slice *key_of(const struct model_call *call)
{
    return &call->argv[1];
}

static bool read_number(struct model_call *call, size_t at, int64_t *ret_number)
{
    if (!slice_number(&call->argv[at], ret_number)) {
        model_say_error(call, "ERR value is not an integer or out of range");
        return false;
    }
    return true;
}

static void say_string(struct model_call *call, const GString *text)
{
    if (text) {
        model_say_bulk(call, text->str, text->len);
    } else {
        model_say_nil(call);
    }
}

static void assign(GString **text, const struct slice *value)
{
    if (!*text) {
        *text = g_string_new(NULL);
    }
    g_string_truncate(*text, 0);
    g_string_append_len(*text, value->data, (gssize)value->length);
}

/* --- keys --- */

static void run_del(struct model_call *call)
{
    int64_t count = 0;
    for (size_t i = 1; i < call->argc; i++) {
        struct model_value *value;
        model_look(call, &call->argv[i], MODEL_ANY, &value);
        if (value) {
            model_data_delete(&call->m->data, call->client->db, &call->argv[i]);
            model_close(call, &call->argv[i]);
            count++;
        }
    }
    model_say_number(call, count);
}

static void run_exists(struct model_call *call)
{
    int64_t count = 0;
    for (size_t i = 1; i < call->argc; i++) {
        struct model_value *value;
        model_look(call, &call->argv[i], MODEL_ANY, &value);
        count += value != NULL;
    }
    model_say_number(call, count);
}

static void run_type(struct model_call *call)
{
    static const char *const names[] = {"+string", "+list", "+set", "+zset", "+hash"};
    struct model_value *value;
    model_look(call, key_of(call), MODEL_ANY, &value);
    model_say(call, value ? names[value->type] : "+none");
}

/* What TTL and its like say, with `unit` ms to one; `left`: the time left, else the deadline. */
static void say_time(struct model_call *call, int64_t unit, bool left)
{
    struct model_value *value;
    model_look(call, key_of(call), MODEL_ANY, &value);
    if (!value || value->expires == INT64_MAX) {
        model_say_number(call, value ? -1 : -2);
        return;
    }
    int64_t time = value->expires - (left ? model_now_ms(call->m) : 0);
    model_say_number(call, (MAX(time, 0) + unit / 2) / unit);
}

static void run_ttl(struct model_call *call)
{
    say_time(call, 1000, true);
}

static void run_pttl(struct model_call *call)
{
    say_time(call, 1, true);
}

static void run_pexpiretime(struct model_call *call)
{
    say_time(call, 1, false);
}

/* A time that is given, as ms of the clock; false: it cannot be. */
static bool read_time(struct model_call *call, int64_t given, int64_t unit, bool relative, int64_t *ret_at)
{
    if (given > TIME_MAX / unit || given < -TIME_MAX / unit) {
        model_say_error(call, "ERR invalid expire time in '%s' command", call->command->name);
        return false;
    }
    *ret_at = given * unit + (relative ? model_now_ms(call->m) : 0);
    return true;
}

enum { IF_NONE = 1, IF_ANY = 2, IF_GREATER = 4, IF_LESS = 8 };

static bool read_conditions(struct model_call *call, unsigned *ret_conditions)
{
    static const char *const words[] = {"nx", "xx", "gt", "lt"};
    unsigned conditions = 0;
    for (size_t i = 3; i < call->argc; i++) {
        unsigned at = 0;
        while (at < G_N_ELEMENTS(words) && !slice_is(&call->argv[i], words[at])) {
            at++;
        }
        if (at == G_N_ELEMENTS(words)) {
            model_say_error(call, "ERR Unsupported option %.*s", (int)call->argv[i].length, call->argv[i].data);
            return false;
        }
        conditions |= 1U << at;
    }
    if (conditions & IF_NONE && conditions != IF_NONE) {
        model_say_error(call, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if (conditions & IF_GREATER && conditions & IF_LESS) {
        model_say_error(call, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    *ret_conditions = conditions;
    return true;
}

static void expire(struct model_call *call, int64_t unit, bool relative)
{
    struct model_value *value;
    unsigned conditions;
    int64_t given, at;
    if (!read_conditions(call, &conditions) || !read_number(call, 2, &given) ||
        !read_time(call, given, unit, relative, &at)) {
        return;
    }
    model_open(call, key_of(call), MODEL_ANY, &value);
    if (!value || (conditions & IF_NONE && value->expires != INT64_MAX) ||
        (conditions & IF_ANY && value->expires == INT64_MAX) || (conditions & IF_GREATER && at <= value->expires) ||
        (conditions & IF_LESS && at >= value->expires)) {
        model_say_number(call, 0);
        return;
    }
    if (at <= model_now_ms(call->m)) {
        model_data_delete(&call->m->data, call->client->db, key_of(call));
    } else {
        model_data_expire(&call->m->data, value, at);
    }
    model_close(call, key_of(call));
    model_say_number(call, 1);
}

static void run_expire(struct model_call *call)
{
    expire(call, 1000, true);
}

static void run_pexpire(struct model_call *call)
{
    expire(call, 1, true);
}

static void run_expireat(struct model_call *call)
{
    expire(call, 1000, false);
}

static void run_pexpireat(struct model_call *call)
{
    expire(call, 1, false);
}

static void run_persist(struct model_call *call)
{
    struct model_value *value;
    model_open(call, key_of(call), MODEL_ANY, &value);
    if (value && value->expires != INT64_MAX) {
        value->expires = INT64_MAX;
        model_close(call, key_of(call));
        model_say_number(call, 1);
    } else {
        model_say_number(call, 0);
    }
}

/* --- strings --- */

static void run_get(struct model_call *call)
{
    struct model_value *value;
    if (model_look(call, key_of(call), MODEL_STRING, &value)) {
        say_string(call, value ? value->text : NULL);
    }
}

static void run_strlen(struct model_call *call)
{
    struct model_value *value;
    if (model_look(call, key_of(call), MODEL_STRING, &value)) {
        model_say_number(call, value ? (int64_t)value->text->len : 0);
    }
}

static void run_getdel(struct model_call *call)
{
    struct model_value *value;
    if (!model_open(call, key_of(call), MODEL_STRING, &value)) {
        return;
    }
    say_string(call, value ? value->text : NULL);
    if (value) {
        model_data_delete(&call->m->data, call->client->db, key_of(call));
        model_close(call, key_of(call));
    }
}

static void store(struct model_call *call, const struct slice *key, const struct slice *text, int64_t expires)
{
    struct model_value *value = model_data_create(&call->m->data, call->client->db, key, MODEL_STRING);
    assign(&value->text, text);
    model_data_expire(&call->m->data, value, expires);
    model_close(call, key);
}

struct set_options {
    bool if_none, if_any, get, keep_ttl;
    size_t kind;  /* of how the time is given: it may be given again, in the same way */
    int64_t unit; /* ms of one of `time`; 0: it does not expire */
    bool relative;
    const struct slice *time;
};

static bool read_set_options(struct model_call *call, struct set_options *o)
{
    static const struct {
        const char *word;
        int64_t unit;
        bool relative;
    } times[] = {{"ex", 1000, true}, {"px", 1, true}, {"exat", 1000, false}, {"pxat", 1, false}};
    for (size_t i = 3; i < call->argc; i++) {
        const struct slice *word = &call->argv[i];
        if (slice_is(word, "nx") && !o->if_any) {
            o->if_none = true;
        } else if (slice_is(word, "xx") && !o->if_none) {
            o->if_any = true;
        } else if (slice_is(word, "get")) {
            o->get = true;
        } else if (slice_is(word, "keepttl") && !o->unit) {
            o->keep_ttl = true;
        } else {
            size_t at = 0;
            while (at < G_N_ELEMENTS(times) && !slice_is(word, times[at].word)) {
                at++;
            }
            if (at == G_N_ELEMENTS(times) || (o->unit && o->kind != at) || o->keep_ttl || i + 1 == call->argc) {
                model_say_syntax(call);
                return false;
            }
            o->kind = at;
            o->unit = times[at].unit;
            o->relative = times[at].relative;
            o->time = &call->argv[++i];
        }
    }
    return true;
}

/* An expiry that SET and its like take: more than 0. */
static bool read_expiry(struct model_call *call, const struct slice *text, int64_t unit, bool relative, int64_t *ret_at)
{
    int64_t given;
    if (!slice_number(text, &given)) {
        model_say_error(call, "ERR value is not an integer or out of range");
        return false;
    }
    if (given <= 0) {
        model_say_error(call, "ERR invalid expire time in '%s' command", call->command->name);
        return false;
    }
    return read_time(call, given, unit, relative, ret_at);
}

static void run_set(struct model_call *call)
{
    struct set_options o = {0};
    struct model_value *value;
    int64_t expires = INT64_MAX;
    if (!read_set_options(call, &o) || (o.unit && !read_expiry(call, o.time, o.unit, o.relative, &expires)) ||
        !model_look(call, key_of(call), o.get ? MODEL_STRING : MODEL_ANY, &value)) {
        return;
    }
    bool refused = (o.if_none && value) || (o.if_any && !value);
    if (o.get) {
        say_string(call, value ? value->text : NULL);
    } else if (refused) {
        model_say_nil(call);
    } else {
        model_say(call, "+OK");
    }
    if (!refused) {
        store(call, key_of(call), &call->argv[2], o.keep_ttl && value ? value->expires : expires);
    }
}

static void set_for(struct model_call *call, int64_t unit)
{
    int64_t expires;
    if (read_expiry(call, &call->argv[2], unit, true, &expires)) {
        store(call, key_of(call), &call->argv[3], expires);
        model_say(call, "+OK");
    }
}

static void run_setex(struct model_call *call)
{
    set_for(call, 1000);
}

static void run_psetex(struct model_call *call)
{
    set_for(call, 1);
}

static void run_setnx(struct model_call *call)
{
    struct model_value *value;
    model_look(call, key_of(call), MODEL_ANY, &value);
    if (!value) {
        store(call, key_of(call), &call->argv[2], INT64_MAX);
    }
    model_say_number(call, !value);
}

static void add(struct model_call *call, int64_t by)
{
    struct model_value *value;
    int64_t number = 0;
    char text[24];
    if (!model_open(call, key_of(call), MODEL_STRING, &value)) {
        return;
    }
    if (value && !slice_number(&(struct slice){value->text->str, value->text->len}, &number)) {
        model_say_error(call, "ERR value is not an integer or out of range");
        return;
    }
    if (__builtin_add_overflow(number, by, &number)) {
        model_say_error(call, "ERR increment or decrement would overflow");
        return;
    }
    model_make(call, key_of(call), MODEL_STRING, &value);
    g_snprintf(text, sizeof text, "%" G_GINT64_FORMAT, number);
    g_string_assign(value->text, text);
    model_close(call, key_of(call));
    model_say_number(call, number);
}

static void run_incr(struct model_call *call)
{
    add(call, 1);
}

static void run_decr(struct model_call *call)
{
    add(call, -1);
}

static void run_incrby(struct model_call *call)
{
    int64_t by;
    if (read_number(call, 2, &by)) {
        add(call, by);
    }
}

static void run_append(struct model_call *call)
{
    struct model_value *value;
    if (model_make(call, key_of(call), MODEL_STRING, &value)) {
        g_string_append_len(value->text, call->argv[2].data, (gssize)call->argv[2].length);
        model_say_number(call, (int64_t)value->text->len);
        model_close(call, key_of(call));
    }
}

static void run_setrange(struct model_call *call)
{
    struct model_value *value;
    int64_t at;
    const struct slice *bytes = &call->argv[3];
    if (!read_number(call, 2, &at)) {
        return;
    }
    if (at < 0) {
        model_say_error(call, "ERR offset is out of range");
    } else if (bytes->length == 0) {
        if (model_look(call, key_of(call), MODEL_STRING, &value)) {
            model_say_number(call, value ? (int64_t)value->text->len : 0);
        }
    } else if (model_make(call, key_of(call), MODEL_STRING, &value)) {
        while (value->text->len < (gsize)at) {
            g_string_append_c(value->text, '\0');
        }
        g_string_overwrite_len(value->text, (gsize)at, bytes->data, (gssize)bytes->length);
        model_say_number(call, (int64_t)value->text->len);
        model_close(call, key_of(call));
    }
}

static void run_mget(struct model_call *call)
{
    model_say_array(call, call->argc - 1);
    for (size_t i = 1; i < call->argc; i++) {
        struct model_value *value;
        model_look(call, &call->argv[i], MODEL_ANY, &value);
        say_string(call, value && value->type == MODEL_STRING ? value->text : NULL);
    }
}

/* --- hashes --- */

static const GString *field_of(const struct model_value *hash, const struct slice *name)
{
    const struct model_field *field = hash ? model_fields_find(&hash->fields, name) : NULL;
    return field ? field->value : NULL;
}

static void hash_set(struct model_call *call, bool counted)
{
    struct model_value *hash;
    int64_t added = 0;
    if (call->argc % 2 == 1) {
        model_say_error(call, "ERR wrong number of arguments for '%s' command", call->command->name);
        return;
    }
    if (!model_make(call, key_of(call), MODEL_HASH, &hash)) {
        return;
    }
    for (size_t i = 2; i < call->argc; i += 2) {
        struct model_field *field = model_fields_find(&hash->fields, &call->argv[i]);
        if (!field) {
            field = model_fields_add(&hash->fields, &call->argv[i]);
            added++;
        }
        assign(&field->value, &call->argv[i + 1]);
    }
    model_close(call, key_of(call));
    if (counted) {
        model_say_number(call, added);
    } else {
        model_say(call, "+OK");
    }
}

static void run_hset(struct model_call *call)
{
    hash_set(call, true);
}

static void run_hmset(struct model_call *call)
{
    hash_set(call, false);
}

static void run_hsetnx(struct model_call *call)
{
    struct model_value *hash;
    if (!model_open(call, key_of(call), MODEL_HASH, &hash)) {
        return;
    }
    if (field_of(hash, &call->argv[2])) {
        model_say_number(call, 0);
        return;
    }
    model_make(call, key_of(call), MODEL_HASH, &hash);
    assign(&model_fields_add(&hash->fields, &call->argv[2])->value, &call->argv[3]);
    model_close(call, key_of(call));
    model_say_number(call, 1);
}

static void run_hget(struct model_call *call)
{
    struct model_value *hash;
    if (model_look(call, key_of(call), MODEL_HASH, &hash)) {
        say_string(call, field_of(hash, &call->argv[2]));
    }
}

static void run_hmget(struct model_call *call)
{
    struct model_value *hash;
    if (!model_look(call, key_of(call), MODEL_HASH, &hash)) {
        return;
    }
    model_say_array(call, call->argc - 2);
    for (size_t i = 2; i < call->argc; i++) {
        say_string(call, field_of(hash, &call->argv[i]));
    }
}

static void run_hexists(struct model_call *call)
{
    struct model_value *hash;
    if (model_look(call, key_of(call), MODEL_HASH, &hash)) {
        model_say_number(call, field_of(hash, &call->argv[2]) != NULL);
    }
}

static void run_hstrlen(struct model_call *call)
{
    struct model_value *hash;
    if (model_look(call, key_of(call), MODEL_HASH, &hash)) {
        const GString *text = field_of(hash, &call->argv[2]);
        model_say_number(call, text ? (int64_t)text->len : 0);
    }
}

/* Takes names out of a hash or set. */
static void remove_fields(struct model_call *call, enum model_type type)
{
    struct model_value *value;
    int64_t count = 0;
    if (!model_open(call, key_of(call), type, &value)) {
        return;
    }
    for (size_t i = 2; value && i < call->argc; i++) {
        count += model_fields_remove(&value->fields, &call->argv[i]);
    }
    if (count) {
        model_close(call, key_of(call));
    }
    model_say_number(call, count);
}

static void run_hdel(struct model_call *call)
{
    remove_fields(call, MODEL_HASH);
}

static void say_count(struct model_call *call, enum model_type type)
{
    struct model_value *value;
    if (model_look(call, key_of(call), type, &value)) {
        model_say_number(call, value ? g_hash_table_size(value->fields.by_name) : 0);
    }
}

static void run_hlen(struct model_call *call)
{
    say_count(call, MODEL_HASH);
}

static void say_fields(struct model_call *call, enum model_type type, bool names, bool values)
{
    struct model_value *value;
    const struct model_field *field;
    if (!model_look(call, key_of(call), type, &value)) {
        return;
    }
    model_say_array(call, value ? g_hash_table_size(value->fields.by_name) * (names + values) : 0);
    if (!value) {
        return;
    }
    TAILQ_FOREACH(field, &value->fields.order, link) {
        if (names) {
            model_say_bulk(call, field->name.data, field->name.length);
        }
        if (values) {
            say_string(call, field->value);
        }
    }
}

static void run_hgetall(struct model_call *call)
{
    say_fields(call, MODEL_HASH, true, true);
}

static void run_hkeys(struct model_call *call)
{
    say_fields(call, MODEL_HASH, true, false);
}

static void run_hvals(struct model_call *call)
{
    say_fields(call, MODEL_HASH, false, true);
}

static void run_hincrby(struct model_call *call)
{
    struct model_value *hash;
    int64_t by, number = 0;
    char text[24];
    if (!read_number(call, 3, &by) || !model_open(call, key_of(call), MODEL_HASH, &hash)) {
        return;
    }
    const GString *present = field_of(hash, &call->argv[2]);
    if (present && !slice_number(&(struct slice){present->str, present->len}, &number)) {
        model_say_error(call, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(number, by, &number)) {
        model_say_error(call, "ERR increment or decrement would overflow");
        return;
    }
    model_make(call, key_of(call), MODEL_HASH, &hash);
    struct model_field *field = model_fields_find(&hash->fields, &call->argv[2]);
    field = field ? field : model_fields_add(&hash->fields, &call->argv[2]);
    g_snprintf(text, sizeof text, "%" G_GINT64_FORMAT, number);
    assign(&field->value, &(struct slice){text, strlen(text)});
    model_close(call, key_of(call));
    model_say_number(call, number);
}

/* --- sets --- */

static void run_sadd(struct model_call *call)
{
    struct model_value *set;
    int64_t added = 0;
    if (!model_make(call, key_of(call), MODEL_SET, &set)) {
        return;
    }
    for (size_t i = 2; i < call->argc; i++) {
        if (!model_fields_find(&set->fields, &call->argv[i])) {
            model_fields_add(&set->fields, &call->argv[i]);
            added++;
        }
    }
    if (added) {
        model_close(call, key_of(call));
    }
    model_say_number(call, added);
}

static void run_srem(struct model_call *call)
{
    remove_fields(call, MODEL_SET);
}

static void run_scard(struct model_call *call)
{
    say_count(call, MODEL_SET);
}

static void run_smembers(struct model_call *call)
{
    say_fields(call, MODEL_SET, true, false);
}

static void run_sismember(struct model_call *call)
{
    struct model_value *set;
    if (model_look(call, key_of(call), MODEL_SET, &set)) {
        model_say_number(call, set && model_fields_find(&set->fields, &call->argv[2]));
    }
}

/* A cursor is the serial of the last member that was returned. */
static void run_sscan(struct model_call *call)
{
    struct model_value *set;
    const struct model_field *field;
    int64_t cursor, most = 10;
    if (!slice_number(&call->argv[2], &cursor) || cursor < 0) {
        model_say_error(call, "ERR invalid cursor");
        return;
    }
    for (size_t i = 3; i < call->argc; i += 2) {
        if (i + 1 == call->argc || !slice_is(&call->argv[i], "count")) {
            model_say_syntax(call);
            return;
        }
        if (!read_number(call, i + 1, &most)) {
            return;
        }
        if (most < 1) {
            model_say_syntax(call);
            return;
        }
    }
    if (!model_look(call, key_of(call), MODEL_SET, &set)) {
        return;
    }
    GPtrArray *found = g_ptr_array_new();
    uint64_t next = 0;
    for (field = set ? TAILQ_FIRST(&set->fields.order) : NULL; field && !next; field = TAILQ_NEXT(field, link)) {
        if (found->len == (guint)MIN(most, G_MAXINT)) {
            next = ((const struct model_field *)found->pdata[found->len - 1])->serial;
        } else if (field->serial > (uint64_t)cursor) {
            g_ptr_array_add(found, (gpointer)field);
        }
    }
    char text[24];
    g_snprintf(text, sizeof text, "%" G_GUINT64_FORMAT, next);
    model_say_array(call, 2);
    model_say_text(call, text);
    model_say_array(call, found->len);
    for (guint i = 0; i < found->len; i++) {
        field = found->pdata[i];
        model_say_bulk(call, field->name.data, field->name.length);
    }
    g_ptr_array_unref(found);
}

/* --- lists: what strangers may have put where we expect something else --- */

static void push(struct model_call *call, bool left)
{
    struct model_value *list;
    if (!model_make(call, key_of(call), MODEL_LIST, &list)) {
        return;
    }
    for (size_t i = 2; i < call->argc; i++) {
        GString *text = g_string_new_len(call->argv[i].data, (gssize)call->argv[i].length);
        if (left) {
            g_queue_push_head(&list->list, text);
        } else {
            g_queue_push_tail(&list->list, text);
        }
    }
    model_say_number(call, list->list.length);
    model_close(call, key_of(call));
}

static void run_lpush(struct model_call *call)
{
    push(call, true);
}

static void run_rpush(struct model_call *call)
{
    push(call, false);
}

static void run_llen(struct model_call *call)
{
    struct model_value *list;
    if (model_look(call, key_of(call), MODEL_LIST, &list)) {
        model_say_number(call, list ? list->list.length : 0);
    }
}

static void run_lrange(struct model_call *call)
{
    struct model_value *list;
    int64_t from, to;
    if (!read_number(call, 2, &from) || !read_number(call, 3, &to) ||
        !model_look(call, key_of(call), MODEL_LIST, &list)) {
        return;
    }
    int64_t length = list ? list->list.length : 0;
    from = from < 0 ? MAX(from + length, 0) : from;
    to = MIN(to < 0 ? to + length : to, length - 1);
    model_say_array(call, from <= to ? (size_t)(to - from + 1) : 0);
    for (int64_t i = from; i <= to; i++) {
        say_string(call, g_queue_peek_nth(&list->list, (guint)i));
    }
}

#define WRITES (MODEL_WRITE | MODEL_DENYOOM)

const struct model_command model_key_commands[] = {
    {"append", 3, WRITES, 1, 1, 1, run_append},
    {"decr", 2, WRITES, 1, 1, 1, run_decr},
    {"del", -2, MODEL_WRITE, 1, -1, 1, run_del},
    {"exists", -2, MODEL_READ, 1, -1, 1, run_exists},
    {"expire", -3, MODEL_WRITE, 1, 1, 1, run_expire},
    {"expireat", -3, MODEL_WRITE, 1, 1, 1, run_expireat},
    {"get", 2, MODEL_READ, 1, 1, 1, run_get},
    {"getdel", 2, MODEL_WRITE, 1, 1, 1, run_getdel},
    {"hdel", -3, MODEL_WRITE, 1, 1, 1, run_hdel},
    {"hexists", 3, MODEL_READ, 1, 1, 1, run_hexists},
    {"hget", 3, MODEL_READ, 1, 1, 1, run_hget},
    {"hgetall", 2, MODEL_READ, 1, 1, 1, run_hgetall},
    {"hincrby", 4, WRITES, 1, 1, 1, run_hincrby},
    {"hkeys", 2, MODEL_READ, 1, 1, 1, run_hkeys},
    {"hlen", 2, MODEL_READ, 1, 1, 1, run_hlen},
    {"hmget", -3, MODEL_READ, 1, 1, 1, run_hmget},
    {"hmset", -4, WRITES, 1, 1, 1, run_hmset},
    {"hset", -4, WRITES, 1, 1, 1, run_hset},
    {"hsetnx", 4, WRITES, 1, 1, 1, run_hsetnx},
    {"hstrlen", 3, MODEL_READ, 1, 1, 1, run_hstrlen},
    {"hvals", 2, MODEL_READ, 1, 1, 1, run_hvals},
    {"incr", 2, WRITES, 1, 1, 1, run_incr},
    {"incrby", 3, WRITES, 1, 1, 1, run_incrby},
    {"llen", 2, MODEL_READ, 1, 1, 1, run_llen},
    {"lpush", -3, WRITES, 1, 1, 1, run_lpush},
    {"lrange", 4, MODEL_READ, 1, 1, 1, run_lrange},
    {"mget", -2, MODEL_READ, 1, -1, 1, run_mget},
    {"persist", 2, MODEL_WRITE, 1, 1, 1, run_persist},
    {"pexpire", -3, MODEL_WRITE, 1, 1, 1, run_pexpire},
    {"pexpireat", -3, MODEL_WRITE, 1, 1, 1, run_pexpireat},
    {"pexpiretime", 2, MODEL_READ, 1, 1, 1, run_pexpiretime},
    {"psetex", 4, WRITES, 1, 1, 1, run_psetex},
    {"pttl", 2, MODEL_READ, 1, 1, 1, run_pttl},
    {"rpush", -3, WRITES, 1, 1, 1, run_rpush},
    {"sadd", -3, WRITES, 1, 1, 1, run_sadd},
    {"scard", 2, MODEL_READ, 1, 1, 1, run_scard},
    {"set", -3, WRITES, 1, 1, 1, run_set},
    {"setex", 4, WRITES, 1, 1, 1, run_setex},
    {"setnx", 3, WRITES, 1, 1, 1, run_setnx},
    {"setrange", 4, WRITES, 1, 1, 1, run_setrange},
    {"sismember", 3, MODEL_READ, 1, 1, 1, run_sismember},
    {"smembers", 2, MODEL_READ, 1, 1, 1, run_smembers},
    {"srem", -3, MODEL_WRITE, 1, 1, 1, run_srem},
    {"sscan", -3, MODEL_READ, 1, 1, 1, run_sscan},
    {"strlen", 2, MODEL_READ, 1, 1, 1, run_strlen},
    {"ttl", 2, MODEL_READ, 1, 1, 1, run_ttl},
    {"type", 2, MODEL_READ, 1, 1, 1, run_type},
    {"unlink", -2, MODEL_WRITE, 1, -1, 1, run_del},
    {NULL, 0, 0, 0, 0, 0, NULL},
};

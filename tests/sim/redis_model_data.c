/* redis_model_data: keys and their values; what a restart loses. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/sim/redis_model_private.h"

/* --- bytes --- */

guint slice_hash(gconstpointer slice)
{
    const struct slice *s = slice;
    guint hash = 5381;
    for (size_t i = 0; i < s->length; i++) {
        hash = hash * 33 + (guchar)s->data[i];
    }
    return hash;
}

gboolean slice_equal(gconstpointer a, gconstpointer b)
{
    const struct slice *x = a, *y = b;
    return x->length == y->length && memcmp(x->data, y->data, x->length) == 0;
}

int slice_compare(const struct slice *a, const struct slice *b)
{
    int order = memcmp(a->data, b->data, MIN(a->length, b->length));
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

bool slice_is(const struct slice *slice, const char *word)
{
    return slice->length == strlen(word) && g_ascii_strncasecmp(slice->data, word, slice->length) == 0;
}

bool slice_is_exactly(const struct slice *slice, const char *text)
{
    return slice->length == strlen(text) && memcmp(slice->data, text, slice->length) == 0;
}

bool slice_number(const struct slice *slice, int64_t *ret_number)
{
    enum { MOST = 20 };
    char text[MOST + 1], again[MOST + 4];
    if (slice->length == 0 || slice->length > MOST) {
        return false;
    }
    memcpy(text, slice->data, slice->length);
    text[slice->length] = '\0';
    errno = 0;
    int64_t number = g_ascii_strtoll(text, NULL, 10);
    g_snprintf(again, sizeof again, "%" G_GINT64_FORMAT, number);
    if (errno || strlen(again) != slice->length || memcmp(again, text, slice->length) != 0) {
        return false;
    }
    *ret_number = number;
    return true;
}

bool slice_score(const struct slice *slice, double *ret_score)
{
    enum { MOST = 255 };
    char text[MOST + 1], *end;
    if (slice->length == 0 || slice->length > MOST || g_ascii_isspace(*slice->data)) {
        return false;
    }
    memcpy(text, slice->data, slice->length);
    text[slice->length] = '\0';
    errno = 0;
    double score = strtod(text, &end);
    if (end != text + slice->length || isnan(score) || (errno == ERANGE && (isinf(score) || score == 0))) {
        return false;
    }
    *ret_score = score;
    return true;
}

/* --- hashes and sets --- */

static void fields_init(struct model_fields *fields)
{
    fields->by_name = g_hash_table_new(slice_hash, slice_equal);
    TAILQ_INIT(&fields->order);
    fields->serials = 0;
}

static void field_free(struct model_field *field)
{
    if (field->value) {
        g_string_free(field->value, TRUE);
    }
    g_free(field);
}

struct model_field *model_fields_find(const struct model_fields *fields, const struct slice *name)
{
    return g_hash_table_lookup(fields->by_name, name);
}

struct model_field *model_fields_add(struct model_fields *fields, const struct slice *name)
{
    struct model_field *field = g_malloc(sizeof *field + name->length);
    *field = (struct model_field){.name = {field->bytes, name->length}, .serial = ++fields->serials};
    memcpy(field->bytes, name->data, name->length);
    TAILQ_INSERT_TAIL(&fields->order, field, link);
    g_hash_table_insert(fields->by_name, field, field);
    return field;
}

bool model_fields_remove(struct model_fields *fields, const struct slice *name)
{
    struct model_field *field = model_fields_find(fields, name);
    if (!field) {
        return false;
    }
    g_hash_table_remove(fields->by_name, field);
    TAILQ_REMOVE(&fields->order, field, link);
    field_free(field);
    return true;
}

static void fields_clear(struct model_fields *fields)
{
    struct model_field *field;
    g_hash_table_unref(fields->by_name);
    while ((field = TAILQ_FIRST(&fields->order))) {
        TAILQ_REMOVE(&fields->order, field, link);
        field_free(field);
    }
}

static void fields_copy(struct model_fields *to, const struct model_fields *from)
{
    const struct model_field *field;
    fields_init(to);
    TAILQ_FOREACH(field, &from->order, link) {
        struct model_field *copy = model_fields_add(to, &field->name);
        copy->value = field->value ? g_string_new_len(field->value->str, (gssize)field->value->len) : NULL;
        copy->serial = field->serial;
    }
    to->serials = from->serials;
}

/* --- sorted sets --- */

static gint ranked_compare(gconstpointer a, gconstpointer b, gpointer unused)
{
    const struct model_ranked *x = a, *y = b;
    (void)unused;
    if (x->score != y->score) {
        return x->score < y->score ? -1 : 1;
    }
    return slice_compare(&x->name, &y->name);
}

static void zset_init(struct model_zset *zset)
{
    zset->by_name = g_hash_table_new_full(slice_hash, slice_equal, NULL, g_free);
    zset->order = g_sequence_new(NULL);
}

struct model_ranked *model_zset_find(const struct model_zset *zset, const struct slice *name)
{
    return g_hash_table_lookup(zset->by_name, name);
}

struct model_ranked *model_zset_put(struct model_zset *zset, const struct slice *name, double score)
{
    struct model_ranked *ranked = model_zset_find(zset, name);
    if (ranked) {
        g_sequence_remove(ranked->at);
        ranked->score = score;
    } else {
        ranked = g_malloc(sizeof *ranked + name->length);
        *ranked = (struct model_ranked){.name = {ranked->bytes, name->length}, .score = score};
        memcpy(ranked->bytes, name->data, name->length);
        g_hash_table_insert(zset->by_name, ranked, ranked);
    }
    ranked->at = g_sequence_insert_sorted(zset->order, ranked, ranked_compare, NULL);
    return ranked;
}

void model_zset_remove(struct model_zset *zset, struct model_ranked *ranked)
{
    g_sequence_remove(ranked->at);
    g_hash_table_remove(zset->by_name, ranked);
}

static void zset_clear(struct model_zset *zset)
{
    g_sequence_free(zset->order);
    g_hash_table_unref(zset->by_name);
}

static void zset_copy(struct model_zset *to, const struct model_zset *from)
{
    zset_init(to);
    for (GSequenceIter *i = g_sequence_get_begin_iter(from->order); !g_sequence_iter_is_end(i);
         i = g_sequence_iter_next(i)) {
        const struct model_ranked *ranked = g_sequence_get(i);
        model_zset_put(to, &ranked->name, ranked->score);
    }
}

/* --- values --- */

static void free_text(gpointer text)
{
    g_string_free(text, TRUE);
}

static struct model_value *value_new(const struct slice *key, enum model_type type)
{
    struct model_value *value = g_malloc0(sizeof *value + key->length);
    char *bytes = (char *)(value + 1);
    memcpy(bytes, key->data, key->length);
    value->key = (struct slice){bytes, key->length};
    value->type = type;
    value->expires = INT64_MAX;
    switch (type) {
    case MODEL_STRING:
        value->text = g_string_new(NULL);
        break;
    case MODEL_LIST:
        g_queue_init(&value->list);
        break;
    case MODEL_ZSET:
        zset_init(&value->zset);
        break;
    default:
        fields_init(&value->fields);
    }
    return value;
}

static void value_free(gpointer data)
{
    struct model_value *value = data;
    switch (value->type) {
    case MODEL_STRING:
        g_string_free(value->text, TRUE);
        break;
    case MODEL_LIST:
        g_queue_clear_full(&value->list, free_text);
        break;
    case MODEL_ZSET:
        zset_clear(&value->zset);
        break;
    default:
        fields_clear(&value->fields);
    }
    g_free(value);
}

static struct model_value *value_copy(const struct model_value *from)
{
    struct model_value *to = g_malloc0(sizeof *to + from->key.length);
    char *bytes = (char *)(to + 1);
    memcpy(bytes, from->key.data, from->key.length);
    to->key = (struct slice){bytes, from->key.length};
    to->type = from->type;
    to->expires = from->expires;
    switch (from->type) {
    case MODEL_STRING:
        to->text = g_string_new_len(from->text->str, (gssize)from->text->len);
        break;
    case MODEL_LIST:
        g_queue_init(&to->list);
        for (const GList *at = from->list.head; at; at = at->next) {
            const GString *text = at->data;
            g_queue_push_tail(&to->list, g_string_new_len(text->str, (gssize)text->len));
        }
        break;
    case MODEL_ZSET:
        zset_copy(&to->zset, &from->zset);
        break;
    default:
        fields_copy(&to->fields, &from->fields);
    }
    return to;
}

bool model_data_is_empty(const struct model_value *value)
{
    switch (value->type) {
    case MODEL_STRING:
        return false;
    case MODEL_LIST:
        return value->list.length == 0;
    case MODEL_ZSET:
        return g_hash_table_size(value->zset.by_name) == 0;
    default:
        return g_hash_table_size(value->fields.by_name) == 0;
    }
}

/* --- what can be lost --- */

struct model_before { /* what was at a key */
    int db;
    GString *key;
    struct model_value *value; /* NULL: nothing */
};

struct model_unit {
    GPtrArray *before;
};

static void before_free(gpointer data)
{
    struct model_before *before = data;
    if (before->value) {
        value_free(before->value);
    }
    g_string_free(before->key, TRUE);
    g_free(before);
}

static void unit_free(gpointer data)
{
    struct model_unit *unit = data;
    if (unit) {
        g_ptr_array_unref(unit->before);
        g_free(unit);
    }
}

void model_data_touch(struct model_data *data, int db, const struct slice *key)
{
    if (data->undo == 0) {
        return;
    }
    if (!data->unit) {
        data->unit = g_new0(struct model_unit, 1);
        data->unit->before = g_ptr_array_new_with_free_func(before_free);
    }
    for (guint i = 0; i < data->unit->before->len; i++) {
        const struct model_before *known = data->unit->before->pdata[i];
        if (known->db == db && known->key->len == key->length && memcmp(known->key->str, key->data, key->length) == 0) {
            return;
        }
    }
    const struct model_value *value = model_data_get(data, db, key);
    struct model_before *before = g_new(struct model_before, 1);
    *before = (struct model_before){
        .db = db, .key = g_string_new_len(key->data, (gssize)key->length), .value = value ? value_copy(value) : NULL};
    g_ptr_array_add(data->unit->before, before);
}

static void change_add(struct redis_model_change *change, int db, const struct slice *key,
                       const struct model_value *value)
{
    struct model_before *after = g_new(struct model_before, 1);
    *after = (struct model_before){
        .db = db, .key = g_string_new_len(key->data, (gssize)key->length), .value = value ? value_copy(value) : NULL};
    g_ptr_array_add(change->after, after);
}

struct redis_model_change *model_data_change(const struct model_data *data, bool all)
{
    struct redis_model_change *change = g_new(struct redis_model_change, 1);
    *change = (struct redis_model_change){.all = all, .after = g_ptr_array_new_with_free_func(before_free)};
    for (guint i = 0; !all && data->unit && i < data->unit->before->len; i++) {
        const struct model_before *before = data->unit->before->pdata[i];
        struct slice key = {before->key->str, before->key->len};
        change_add(change, before->db, &key, g_hash_table_lookup(data->keys[before->db], &key));
    }
    for (int db = 0; all && db < MODEL_DATABASES; db++) {
        GPtrArray *values = model_data_sorted(data, db);
        for (guint i = 0; i < values->len; i++) {
            const struct model_value *value = values->pdata[i];
            change_add(change, db, &value->key, value);
        }
        g_ptr_array_unref(values);
    }
    return change;
}

struct redis_model_change *redis_model_change_copy(const struct redis_model_change *change)
{
    struct redis_model_change *copy = g_memdup2(change, sizeof *change);
    copy->replid = g_strdup(change->replid);
    copy->after = g_ptr_array_ref(change->after); /* which nobody changes */
    return copy;
}

void redis_model_change_free(struct redis_model_change *change)
{
    if (change) {
        g_ptr_array_unref(change->after);
        g_free(change->replid);
        g_free(change);
    }
}

bool model_data_commit(struct model_data *data)
{
    bool changed = data->changed;
    if (data->unit && changed) {
        g_queue_push_tail(&data->units, data->unit);
        if (data->units.length > data->undo) {
            unit_free(g_queue_pop_head(&data->units));
        }
    } else {
        unit_free(data->unit);
    }
    data->unit = NULL;
    data->changed = false;
    return changed;
}

static void put(struct model_data *data, int db, struct model_value *value)
{
    g_hash_table_replace(data->keys[db], value, value);
    data->soonest = MIN(data->soonest, value->expires);
}

size_t model_data_lose(struct model_data *data, size_t count)
{
    struct model_unit *unit;
    size_t lost = 0;
    while (lost < count && (unit = g_queue_pop_tail(&data->units))) {
        for (guint i = 0; i < unit->before->len; i++) {
            struct model_before *before = unit->before->pdata[i];
            struct slice key = {before->key->str, before->key->len};
            if (before->value) {
                put(data, before->db, g_steal_pointer(&before->value));
            } else {
                g_hash_table_remove(data->keys[before->db], &key);
            }
        }
        unit_free(unit);
        lost++;
    }
    return lost;
}

void model_data_settle(struct model_data *data)
{
    g_queue_clear_full(&data->units, unit_free);
    g_queue_init(&data->units);
}

void model_data_apply(struct model_data *data, const struct redis_model_change *change)
{
    for (int db = 0; change->all && db < MODEL_DATABASES; db++) {
        g_hash_table_remove_all(data->keys[db]);
    }
    for (guint i = 0; i < change->after->len; i++) {
        const struct model_before *after = change->after->pdata[i];
        struct slice key = {after->key->str, after->key->len};
        if (after->value) {
            put(data, after->db, value_copy(after->value));
        } else {
            g_hash_table_remove(data->keys[after->db], &key);
        }
    }
}

/* --- keys --- */

void model_data_init(struct model_data *data, size_t undo)
{
    *data = (struct model_data){.soonest = INT64_MAX, .undo = undo};
    g_queue_init(&data->units);
    for (int db = 0; db < MODEL_DATABASES; db++) {
        data->keys[db] = g_hash_table_new_full(slice_hash, slice_equal, NULL, value_free);
    }
}

void model_data_clear(struct model_data *data)
{
    unit_free(data->unit);
    model_data_settle(data);
    for (int db = 0; db < MODEL_DATABASES; db++) {
        g_hash_table_unref(data->keys[db]);
    }
}

struct model_value *model_data_get(struct model_data *data, int db, const struct slice *key)
{
    return g_hash_table_lookup(data->keys[db], key);
}

struct model_value *model_data_create(struct model_data *data, int db, const struct slice *key, enum model_type type)
{
    struct model_value *value = value_new(key, type);
    model_data_touch(data, db, key);
    put(data, db, value);
    return value;
}

void model_data_delete(struct model_data *data, int db, const struct slice *key)
{
    model_data_touch(data, db, key);
    data->changed = true;
    g_hash_table_remove(data->keys[db], key);
}

void model_data_expire(struct model_data *data, struct model_value *value, int64_t at)
{
    value->expires = at;
    data->soonest = MIN(data->soonest, at);
}

static gint compare_keys(gconstpointer a, gconstpointer b)
{
    const struct model_value *const *x = a, *const *y = b;
    return slice_compare(&(*x)->key, &(*y)->key);
}

GPtrArray *model_data_sorted(const struct model_data *data, int db)
{
    GPtrArray *values = g_ptr_array_new();
    GHashTableIter at;
    gpointer value;
    g_hash_table_iter_init(&at, data->keys[db]);
    while (g_hash_table_iter_next(&at, NULL, &value)) {
        g_ptr_array_add(values, value);
    }
    g_ptr_array_sort(values, compare_keys);
    return values;
}

void model_data_flush(struct model_data *data, int db)
{
    for (int i = db < 0 ? 0 : db; i < (db < 0 ? MODEL_DATABASES : db + 1); i++) {
        GPtrArray *values = data->undo ? model_data_sorted(data, i) : NULL;
        for (guint at = 0; values && at < values->len; at++) {
            model_data_touch(data, i, &((struct model_value *)values->pdata[at])->key);
        }
        if (values) {
            g_ptr_array_unref(values);
        }
        g_hash_table_remove_all(data->keys[i]);
    }
    data->changed = true;
}

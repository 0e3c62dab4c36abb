/* redis_model: the server: connections, states, faults, time. */
#include "tests/sim/redis_model.h"

#include <stdarg.h>
#include <stdlib.h>

#include "tests/sim/redis_model_private.h"

#define TICK 100000 /* µs between two looks for keys that have expired */
#define WORDS_MAX 1048576
#define BULK_MAX (512 << 20)

const char MODEL_OOM[] = "OOM command not allowed when used memory > 'maxmemory'.";
const char MODEL_MASTERDOWN[] = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";

/* --- replies --- */

void model_say(struct model_call *call, const char *line)
{
    g_string_append(call->out, line);
    g_string_append(call->out, "\r\n");
}

void model_say_error(struct model_call *call, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_strdelimit(text, "\r\n", ' ');
    g_string_append_printf(call->out, "-%s\r\n", text);
    g_free(text);
}

void model_say_number(struct model_call *call, int64_t number)
{
    g_string_append_printf(call->out, ":%" G_GINT64_FORMAT "\r\n", number);
}

void model_say_array(struct model_call *call, size_t count)
{
    g_string_append_printf(call->out, "*%zu\r\n", count);
}

void model_say_bulk(struct model_call *call, const char *data, size_t length)
{
    g_string_append_printf(call->out, "$%zu\r\n", length);
    g_string_append_len(call->out, data, (gssize)length);
    g_string_append(call->out, "\r\n");
}

void model_say_text(struct model_call *call, const char *text)
{
    model_say_bulk(call, text, strlen(text));
}

void model_say_nil(struct model_call *call)
{
    g_string_append(call->out, "$-1\r\n");
}

void model_say_score(struct model_call *call, double score)
{
    char text[64];
    g_snprintf(text, sizeof text, "%.17g", score);
    model_say_text(call, text);
}

void model_say_syntax(struct model_call *call)
{
    model_say_error(call, "ERR syntax error");
}

/* --- time --- */

int64_t redis_model_wall(const struct redis_model *m)
{
    return m->options.now(m->options.arg) + m->options.wall + m->stepped;
}

int64_t model_now_ms(const struct redis_model *m)
{
    return redis_model_wall(m) / 1000;
}

static bool has_expired(const struct redis_model *m, const struct model_value *value)
{
    return value->expires != INT64_MAX && model_now_ms(m) > value->expires;
}

static void expire(struct redis_model *m, int db, const struct slice *key)
{
    GString *name = g_string_new_len(key->data, (gssize)key->length); /* the key is the value's own */
    model_data_delete(&m->data, db, key);
    m->counts.expired++;
    model_changed(m, db, &(struct slice){name->str, name->len});
    g_string_free(name, TRUE);
}

/* When the next key expires that is deleted without an access; INT64_MAX: none. */
static int64_t next_expiry(const struct redis_model *m)
{
    if (m->data.soonest == INT64_MAX || m->state[REDIS_MODEL_REPLICA] || m->state[REDIS_MODEL_BUSY] ||
        m->state[REDIS_MODEL_LOADING]) {
        return INT64_MAX;
    }
    return (m->data.soonest + 1) * 1000 - m->options.wall - m->stepped;
}

int64_t redis_model_next(const struct redis_model *m)
{
    bool works = !m->state[REDIS_MODEL_DOWN] && !m->state[REDIS_MODEL_PAUSED];
    int64_t expiry = works ? next_expiry(m) : INT64_MAX;
    if (expiry != INT64_MAX) {
        expiry = (MAX(expiry, m->options.now(m->options.arg)) + TICK - 1) / TICK * TICK;
    }
    return works ? MIN(expiry, model_replica_next(m)) : INT64_MAX;
}

void redis_model_work(struct redis_model *m)
{
    int64_t now = m->options.now(m->options.arg);
    if (m->state[REDIS_MODEL_DOWN] || m->state[REDIS_MODEL_PAUSED]) {
        return;
    }
    model_replica_work(m);
    if (next_expiry(m) > now) {
        return;
    }
    m->data.soonest = INT64_MAX;
    for (int db = 0; db < MODEL_DATABASES; db++) {
        GPtrArray *values = model_data_sorted(&m->data, db);
        for (guint i = 0; i < values->len; i++) {
            const struct model_value *value = values->pdata[i];
            if (has_expired(m, value)) {
                expire(m, db, &value->key);
                model_commit(m);
            } else {
                m->data.soonest = MIN(m->data.soonest, value->expires);
            }
        }
        g_ptr_array_unref(values);
    }
}

/* --- values, as commands see them --- */

bool model_look(struct model_call *call, const struct slice *key, enum model_type type, struct model_value **ret_value)
{
    struct redis_model *m = call->m;
    struct model_value *value = model_data_get(&m->data, call->client->db, key);
    if (value && has_expired(m, value)) {
        if (!m->state[REDIS_MODEL_REPLICA]) { /* which waits for its master to say so */
            expire(m, call->client->db, key);
        }
        value = NULL;
    }
    if (value && type != MODEL_ANY && value->type != type) {
        model_say_error(call, "WRONGTYPE Operation against a key holding the wrong kind of value");
        return false;
    }
    *ret_value = value;
    return true;
}

bool model_open(struct model_call *call, const struct slice *key, enum model_type type, struct model_value **ret_value)
{
    if (!model_look(call, key, type, ret_value)) {
        return false;
    }
    if (*ret_value) {
        model_data_touch(&call->m->data, call->client->db, key);
    }
    return true;
}

bool model_make(struct model_call *call, const struct slice *key, enum model_type type, struct model_value **ret_value)
{
    if (!model_open(call, key, type, ret_value)) {
        return false;
    }
    if (!*ret_value) {
        *ret_value = model_data_create(&call->m->data, call->client->db, key, type);
    }
    return true;
}

void model_close(struct model_call *call, const struct slice *key)
{
    struct model_data *data = &call->m->data;
    const struct model_value *value = model_data_get(data, call->client->db, key);
    if (value && model_data_is_empty(value)) {
        model_data_delete(data, call->client->db, key);
    }
    data->changed = true;
    model_changed(call->m, call->client->db, key);
}

/* --- bytes to clients --- */

static void tell_ready(struct redis_client *client)
{
    if (client->m->options.ready) {
        client->m->options.ready(client->m->options.arg, client);
    }
}

static void end(struct redis_client *client)
{
    if (!client->closed) {
        client->closed = true;
        client->m->counts.cut++;
        g_hash_table_remove_all(client->channels);
        client->tracking = false;
    }
}

void model_deliver(struct redis_client *client, const char *data, size_t length)
{
    size_t taken = MIN(length, client->left);
    if (client->closed || client == client->m->foreign) {
        return;
    }
    g_string_append_len(client->out, data, (gssize)taken);
    if (client->left != SIZE_MAX) {
        client->left -= taken;
        if (client->left == 0) {
            end(client);
        }
    }
    tell_ready(client);
}

struct redis_client *model_client_find(struct redis_model *m, uint64_t id)
{
    struct redis_client *client;
    TAILQ_FOREACH(client, &m->clients, link) {
        if (client->id == id && !client->closed) {
            return client;
        }
    }
    return NULL;
}

/* --- keys that clients watch --- */

static void tell_change(struct redis_model *m, struct redis_client *watcher, const char *what, size_t length)
{
    struct redis_client *to = watcher->redirect ? model_client_find(m, watcher->redirect) : watcher;
    if (!to || g_hash_table_size(to->channels) == 0) {
        return;
    }
    GString *text = g_string_new("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n");
    g_string_append_len(text, what, (gssize)length);
    m->counts.reported++;
    model_deliver(to, text->str, text->len);
    g_string_free(text, TRUE);
}

static void tell_key(struct redis_model *m, struct redis_client *watcher, const struct slice *key)
{
    GString *text = g_string_new(NULL);
    g_string_printf(text, "*1\r\n$%zu\r\n", key->length);
    g_string_append_len(text, key->data, (gssize)key->length);
    g_string_append(text, "\r\n");
    tell_change(m, watcher, text->str, text->len);
    g_string_free(text, TRUE);
}

void model_changed(struct redis_model *m, int db, const struct slice *key)
{
    (void)db; /* of whatever database */
    GArray *watchers = g_hash_table_lookup(m->watched, key);
    if (!watchers) {
        return;
    }
    g_array_ref(watchers);
    g_hash_table_remove(m->watched, key);
    for (guint i = 0; i < watchers->len; i++) {
        struct redis_client *watcher = model_client_find(m, g_array_index(watchers, uint64_t, i));
        if (watcher && watcher->tracking && watcher == m->current) {
            g_ptr_array_add(m->report_later, g_string_new_len(key->data, (gssize)key->length));
        } else if (watcher && watcher->tracking) {
            tell_key(m, watcher, key);
        }
    }
    g_array_unref(watchers);
}

static void tell_later(struct redis_model *m, struct redis_client *client)
{
    for (guint i = 0; i < m->report_later->len; i++) {
        const GString *key = m->report_later->pdata[i];
        tell_key(m, client, &(struct slice){key->str, key->len});
    }
    g_ptr_array_set_size(m->report_later, 0);
}

void model_flush_watched(struct redis_model *m)
{
    struct redis_client *client;
    g_hash_table_remove_all(m->watched);
    TAILQ_FOREACH(client, &m->clients, link) {
        if (client->tracking) {
            tell_change(m, client, "$-1\r\n", 5);
        }
    }
}

static void watch(struct redis_model *m, const struct redis_client *client, const struct slice *key)
{
    GArray *watchers = g_hash_table_lookup(m->watched, key);
    if (!watchers) {
        struct slice *copy = g_malloc(sizeof *copy + key->length);
        *copy = (struct slice){(char *)(copy + 1), key->length};
        memcpy(copy + 1, key->data, key->length);
        watchers = g_array_new(FALSE, FALSE, sizeof client->id);
        g_hash_table_insert(m->watched, copy, watchers);
    }
    for (guint i = 0; i < watchers->len; i++) {
        if (g_array_index(watchers, uint64_t, i) == client->id) {
            return;
        }
    }
    g_array_append_val(watchers, client->id);
}

static void remember_read(const struct model_call *call)
{
    size_t first, last, step;
    if (!(call->command->flags & MODEL_READ) || !call->client->tracking ||
        (call->client->optin && call->client->caching != 2) || !model_command_keys(call, &first, &last, &step)) {
        return;
    }
    for (size_t i = first; i <= last; i += step) {
        watch(call->m, call->client, &call->argv[i]);
    }
}

/* --- commands --- */

static guint name_hash(gconstpointer slice)
{
    const struct slice *s = slice;
    guint hash = 5381;
    for (size_t i = 0; i < s->length; i++) {
        hash = hash * 33 + (guchar)g_ascii_tolower(s->data[i]);
    }
    return hash;
}

static gboolean name_equal(gconstpointer a, gconstpointer b)
{
    const struct slice *x = a, *y = b;
    return x->length == y->length && g_ascii_strncasecmp(x->data, y->data, x->length) == 0;
}

/* By name; one that has subcommands is found by its own name, too, as any of them. */
static GHashTable *index_commands(void)
{
    const struct model_command *const tables[] = {model_key_commands, model_zset_commands, model_talk_commands,
                                                  model_replica_commands};
    GHashTable *index = g_hash_table_new_full(name_hash, name_equal, g_free, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(tables); i++) {
        for (const struct model_command *command = tables[i]; command->name; command++) {
            struct slice names[] = {slice_of(command->name), {command->name, strcspn(command->name, "|")}};
            g_hash_table_insert(index, g_memdup2(&names[0], sizeof names[0]), (gpointer)command);
            g_hash_table_insert(index, g_memdup2(&names[1], sizeof names[1]), (gpointer)command);
        }
    }
    return index;
}

const struct model_command *model_command_find(const struct redis_model *m, const struct slice *argv, size_t argc)
{
    const struct model_command *command = g_hash_table_lookup(m->commands, &argv[0]);
    char text[64];
    if (!command || !strchr(command->name, '|')) {
        return command;
    }
    if (argc < 2 || argv[0].length + argv[1].length + 2 > sizeof text) {
        return NULL;
    }
    struct slice name = {text, argv[0].length + 1 + argv[1].length};
    memcpy(text, argv[0].data, argv[0].length);
    text[argv[0].length] = '|';
    memcpy(text + argv[0].length + 1, argv[1].data, argv[1].length);
    return g_hash_table_lookup(m->commands, &name);
}

bool model_command_fits(const struct model_command *command, size_t argc)
{
    return command->arity > 0 ? argc == (size_t)command->arity : argc >= (size_t)-command->arity;
}

bool model_command_keys(const struct model_call *call, size_t *ret_first, size_t *ret_last, size_t *ret_step)
{
    const struct model_command *command = call->command;
    int64_t count = 0;
    if (command->first == MODEL_NUMBERED) {
        if (call->argc < 3 || !slice_number(&call->argv[2], &count) || count <= 0 || (size_t)count > call->argc - 3) {
            return false;
        }
        *ret_first = 3;
        *ret_last = (size_t)count + 2;
        *ret_step = 1;
        return true;
    }
    if (command->first == 0) {
        return false;
    }
    *ret_first = (size_t)command->first;
    *ret_last = command->last < 0 ? call->argc - 1 : (size_t)command->last;
    *ret_step = (size_t)command->step;
    return true;
}

void model_run(struct model_call *call)
{
    call->command->run(call);
    remember_read(call);
}

const char *model_write_refusal(const struct redis_model *m)
{
    if (m->state[REDIS_MODEL_DISKLESS]) {
        return "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. "
               "Commands that may modify the data set are disabled, because this instance is configured to report "
               "errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the "
               "Redis logs for details about the RDB error.";
    }
    if (m->state[REDIS_MODEL_LONELY]) {
        return "NOREPLICAS Not enough good replicas to write.";
    }
    return m->state[REDIS_MODEL_REPLICA] ? "READONLY You can't write against a read only replica." : NULL;
}

/* Whether a client that has subscribed may say it. */
static bool is_for_subscribers(const struct model_command *command)
{
    static const char *const names[] = {"subscribe", "unsubscribe", "ping", "quit"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        if (strcmp(command->name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Why it is not carried out now, by one of the states, or NULL. */
static const char *refusal(const struct model_call *call)
{
    const struct redis_model *m = call->m;
    const struct model_command *command = call->command;
    size_t first, last, step;
    bool names_key = model_command_keys(call, &first, &last, &step);
    if (names_key && m->refusals) {
        return m->refusal->str;
    }
    if (names_key && m->state[REDIS_MODEL_CLUSTER]) {
        return "CLUSTERDOWN The cluster is down";
    }
    if (m->state[REDIS_MODEL_FULL] && command->flags & MODEL_DENYOOM) {
        return MODEL_OOM;
    }
    if (command->flags & MODEL_WRITE && model_write_refusal(m)) {
        return model_write_refusal(m);
    }
    if (m->state[REDIS_MODEL_STALE] && m->state[REDIS_MODEL_REPLICA] && !(command->flags & MODEL_STALE)) {
        return MODEL_MASTERDOWN;
    }
    if (m->state[REDIS_MODEL_LOADING] && !(command->flags & MODEL_LOADING)) {
        return "LOADING Redis is loading the dataset in memory";
    }
    if (m->state[REDIS_MODEL_BUSY] && !(command->flags & MODEL_ALLOW_BUSY)) {
        return "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    }
    return NULL;
}

static void say_unknown(struct model_call *call)
{
    const struct slice *name = &call->argv[0];
    const struct model_command *known = g_hash_table_lookup(call->m->commands, name);
    GString *arguments = g_string_new(NULL);
    if (known && call->argc == 1) {
        model_say_error(call, "ERR wrong number of arguments for '%.*s' command", (int)strcspn(known->name, "|"),
                        known->name);
    } else if (known) {
        char *upper = g_ascii_strup(known->name, (gssize)strcspn(known->name, "|"));
        model_say_error(call, "ERR unknown subcommand '%.*s'. Try %s HELP.", (int)MIN(128, call->argv[1].length),
                        call->argv[1].data, upper);
        g_free(upper);
    } else {
        for (size_t i = 1; i < call->argc && arguments->len < 128; i++) {
            g_string_append_printf(arguments, "'%.*s' ", (int)MIN(128 - arguments->len, call->argv[i].length),
                                   call->argv[i].data);
        }
        model_say_error(call, "ERR unknown command '%.*s', with args beginning with: %s", (int)MIN(128, name->length),
                        name->data, arguments->str);
    }
    g_string_free(arguments, TRUE);
}

/* Says why it is not carried out, if it is not. */
static bool is_permitted(struct model_call *call, bool whatever_state)
{
    const char *why;
    if (!call->command) {
        say_unknown(call);
        return false;
    }
    if (!model_command_fits(call->command, call->argc)) {
        model_say_error(call, "ERR wrong number of arguments for '%s' command", call->command->name);
        return false;
    }
    if (whatever_state) {
        return true;
    }
    if (call->m->password && !call->client->authenticated && !(call->command->flags & MODEL_NO_AUTH)) {
        model_say_error(call, "NOAUTH Authentication required.");
        return false;
    }
    if (g_hash_table_size(call->client->channels) > 0 && !is_for_subscribers(call->command)) {
        model_say_error(call,
                        "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
                        "allowed in this context",
                        call->command->name);
        return false;
    }
    why = refusal(call);
    if (why) {
        model_say_error(call, "%s", why);
        call->m->counts.refused++;
        if (why == call->m->refusal->str) {
            call->m->refusals--;
        }
    }
    return !why;
}

void model_commit(struct redis_model *m)
{
    struct redis_model_change *change = m->options.wrote && m->data.changed ? model_data_change(&m->data, false) : NULL;
    if (model_data_commit(&m->data)) {
        m->counts.writes++;
        m->offset++;
    }
    if (change) {
        m->options.wrote(m->options.arg, change);
    }
}

/* One command of a client, complete. */
static void carry_out(struct redis_client *client, const struct slice *argv, size_t argc, bool whatever_state,
                      GString *out)
{
    struct redis_model *m = client->m;
    struct model_call call = {
        .m = m, .client = client, .argv = argv, .argc = argc, .out = out, .command = model_command_find(m, argv, argc)};
    uint64_t before = m->offset;
    m->counts.commands++;
    m->current = client;
    if (is_permitted(&call, whatever_state)) {
        model_run(&call);
    }
    m->current = NULL;
    model_commit(m);
    if (m->offset != before) { /* as from Redis 7.2 on; older ones take any command's */
        client->written = m->offset;
    }
    if (client->caching) { /* from the next command on, and for that one */
        client->caching = client->caching == 1 ? 2 : 0;
    }
}

/* --- what clients say --- */

/* A line "*5\r\n" or "$5\r\n" at `at`: 1 and the number, 0 if it is not all there, -1. */
static int read_length(const GString *in, gsize *at, char kind, int64_t most, int64_t *ret_number)
{
    const char *start = in->str + *at, *stop = memmem(start, in->len - *at, "\r\n", 2);
    if (!stop) {
        return in->len - *at > 64 * 1024 ? -1 : 0;
    }
    struct slice digits = {start + 1, (size_t)(stop - start) - 1};
    if (*start != kind || !slice_number(&digits, ret_number) || *ret_number > most) {
        return -1;
    }
    *at += (gsize)(stop - start) + 2;
    return 1;
}

/* The next command in `in`: 1 with its words, 0 if it is not all there, -1 if it is none. */
static int read_command(const GString *in, gsize *at, GArray *words)
{
    int64_t count, length;
    gsize from = *at;
    int result = in->len > from ? read_length(in, &from, '*', WORDS_MAX, &count) : 0;
    g_array_set_size(words, 0);
    for (int64_t i = 0; result > 0 && i < count; i++) {
        result = in->len > from ? read_length(in, &from, '$', BULK_MAX, &length) : 0;
        if (result > 0 && length < 0) {
            result = -1;
        } else if (result > 0 && in->len - from < (gsize)length + 2) {
            result = 0;
        } else if (result > 0) {
            struct slice word = {in->str + from, (size_t)length};
            g_array_append_val(words, word);
            from += (gsize)length + 2;
        }
    }
    if (result > 0) {
        *at = from;
    }
    return result;
}

static bool is_silent(const struct redis_model *m)
{
    return m->state[REDIS_MODEL_PAUSED] || m->state[REDIS_MODEL_DOWN];
}

static void hear(struct redis_client *client)
{
    GArray *words = g_array_new(FALSE, FALSE, sizeof(struct slice));
    GString *out = g_string_new(NULL);
    gsize at = 0;
    int result = 1;
    while (!client->closed && !client->waits && !is_silent(client->m) &&
           (result = read_command(client->in, &at, words)) > 0) {
        if (words->len == 0) {
            continue;
        }
        g_string_truncate(out, 0);
        carry_out(client, (const struct slice *)(const void *)words->data, words->len, false, out);
        model_deliver(client, out->str, out->len);
        tell_later(client->m, client);
    }
    if (result < 0) {
        const char *error = "-ERR Protocol error\r\n";
        model_deliver(client, error, strlen(error));
        end(client);
        tell_ready(client);
    }
    g_string_erase(client->in, 0, (gssize)at);
    g_string_free(out, TRUE);
    g_array_unref(words);
}

void model_resume(struct redis_client *client)
{
    hear(client);
}

void redis_client_send(struct redis_client *client, const void *data, size_t length)
{
    if (client->closed) {
        return;
    }
    g_string_append_len(client->in, data, (gssize)length);
    hear(client);
}

size_t redis_client_pending(const struct redis_client *client)
{
    return client->out->len;
}

size_t redis_client_receive(struct redis_client *client, void *data, size_t size)
{
    size_t taken = MIN(size, client->out->len);
    memcpy(data, client->out->str, taken);
    g_string_erase(client->out, 0, (gssize)taken);
    return taken;
}

bool redis_client_closed(const struct redis_client *client)
{
    return client->closed;
}

void *redis_client_user(const struct redis_client *client)
{
    return client->user;
}

static void free_slice(gpointer slice)
{
    g_free(slice);
}

static struct redis_client *client_new(struct redis_model *m, void *user)
{
    struct redis_client *client = g_new0(struct redis_client, 1);
    client->m = m;
    client->user = user;
    client->in = g_string_new(NULL);
    client->out = g_string_new(NULL);
    client->name = g_string_new(NULL);
    client->left = SIZE_MAX;
    client->channels = g_hash_table_new_full(slice_hash, slice_equal, free_slice, NULL);
    return client;
}

static void client_free(struct redis_client *client)
{
    g_hash_table_unref(client->channels);
    g_string_free(client->in, TRUE);
    g_string_free(client->out, TRUE);
    g_string_free(client->name, TRUE);
    g_free(client);
}

struct redis_client *redis_model_connect(struct redis_model *m, void *user)
{
    if (m->state[REDIS_MODEL_DOWN]) {
        return NULL;
    }
    struct redis_client *client = client_new(m, user);
    client->id = ++m->ids;
    TAILQ_INSERT_TAIL(&m->clients, client, link);
    return client;
}

void redis_client_close(struct redis_client *client)
{
    if (client) {
        TAILQ_REMOVE(&client->m->clients, client, link);
        client_free(client);
    }
}

/* --- faults --- */

void redis_client_cut(struct redis_client *client, size_t bytes)
{
    if (client->closed) {
        return;
    }
    if (bytes <= client->out->len) {
        g_string_truncate(client->out, bytes);
        end(client);
        tell_ready(client);
    } else {
        client->left = bytes - client->out->len;
    }
}

void redis_model_cut_all(struct redis_model *m)
{
    struct redis_client *client;
    TAILQ_FOREACH(client, &m->clients, link) {
        redis_client_cut(client, client->out->len);
    }
}

char *model_new_id(struct redis_model *m)
{
    GString *id = g_string_new(NULL);
    for (int i = 0; i < 5; i++) {
        g_string_append_printf(id, "%08x", g_rand_int(m->random));
    }
    return g_string_free(id, FALSE);
}

void redis_model_name_run(struct redis_model *m, const char *runid, const char *replid)
{
    g_free(m->runid);
    g_free(m->replid);
    m->runid = g_strdup(runid);
    m->replid = g_strdup(replid);
}

/* What a new process does not know. */
static void begin_run(struct redis_model *m)
{
    g_free(m->runid);
    g_free(m->replid);
    m->runid = model_new_id(m);
    m->replid = model_new_id(m);
    g_clear_pointer(&m->former_replid, g_free);
    memset(m->replicas, 0, sizeof m->replicas);
    m->started = m->options.now(m->options.arg);
    m->ids = 0;
    m->refusals = m->kills = 0;
    g_hash_table_remove_all(m->watched);
    model_forget_scripts(m);
    model_data_settle(&m->data);
}

static void model_continue(struct redis_model *m)
{
    struct redis_client *client;
    model_replica_work(m);
    TAILQ_FOREACH(client, &m->clients, link) {
        hear(client);
    }
}

void redis_model_set(struct redis_model *m, enum redis_model_state state, bool on)
{
    if (m->state[state] == on) {
        return;
    }
    m->state[state] = on;
    if (state == REDIS_MODEL_DOWN && on) {
        m->state[REDIS_MODEL_BUSY] = m->state[REDIS_MODEL_LOADING] = m->state[REDIS_MODEL_PAUSED] = false;
        redis_model_cut_all(m);
    } else if (state == REDIS_MODEL_DOWN) {
        begin_run(m);
    } else if (state == REDIS_MODEL_PAUSED && !on) {
        model_continue(m);
    }
}

bool redis_model_is(const struct redis_model *m, enum redis_model_state state)
{
    return m->state[state];
}

void redis_model_lose(struct redis_model *m, size_t lost)
{
    if (lost == REDIS_MODEL_NOTHING) {
        m->counts.lost += m->data.units.length;
        model_data_flush(&m->data, -1);
        model_data_commit(&m->data);
        model_data_settle(&m->data);
    } else {
        m->counts.lost += model_data_lose(&m->data, lost);
    }
}

void redis_model_restart(struct redis_model *m, size_t lost)
{
    redis_model_set(m, REDIS_MODEL_DOWN, true);
    redis_model_lose(m, lost);
    redis_model_set(m, REDIS_MODEL_DOWN, false);
}

void redis_model_refuse(struct redis_model *m, const char *error, unsigned times)
{
    g_string_assign(m->refusal, error);
    m->refusals = times;
}

void redis_model_kill_scripts(struct redis_model *m, unsigned times)
{
    m->kills = times;
}

bool redis_model_is_to_fail(const struct redis_model *m)
{
    return m->refusals > 0 || m->kills > 0;
}

void redis_model_step(struct redis_model *m, int64_t by)
{
    m->stepped += by;
}

void redis_model_set_password(struct redis_model *m, const char *password)
{
    g_free(m->password);
    m->password = g_strdup(password);
}

/* --- other clients --- */

const char *redis_model_do(struct redis_model *m, ...)
{
    GArray *words = g_array_new(FALSE, FALSE, sizeof(struct slice));
    const char *word;
    va_list arguments;
    va_start(arguments, m);
    while ((word = va_arg(arguments, const char *))) {
        struct slice slice = slice_of(word);
        g_array_append_val(words, slice);
    }
    va_end(arguments);
    g_string_truncate(m->foreign->out, 0);
    if (!m->state[REDIS_MODEL_DOWN]) {
        carry_out(m->foreign, (const struct slice *)(const void *)words->data, words->len, true, m->foreign->out);
    }
    g_array_unref(words);
    return m->foreign->out->str;
}

char **redis_model_keys(struct redis_model *m)
{
    GPtrArray *values = model_data_sorted(&m->data, 0), *keys = g_ptr_array_new();
    for (guint i = 0; i < values->len; i++) {
        const struct model_value *value = values->pdata[i];
        if (!has_expired(m, value)) {
            g_ptr_array_add(keys, g_strndup(value->key.data, value->key.length));
        }
    }
    g_ptr_array_unref(values);
    g_ptr_array_add(keys, NULL);
    return (char **)g_ptr_array_free(keys, FALSE);
}

static void dump_bytes(GString *text, const struct slice *bytes)
{
    char *shown = g_malloc(bytes->length * 4 + 1), *to = shown;
    for (size_t i = 0; i < bytes->length; i++) {
        guchar c = (guchar)bytes->data[i];
        to += g_snprintf(to, 5, c > ' ' && c < 127 && c != '\\' ? "%c" : "\\x%02x", c);
    }
    *to = '\0';
    g_string_append_printf(text, " %s", shown);
    g_free(shown);
}

static void dump_string(GString *text, const GString *bytes)
{
    dump_bytes(text, &(struct slice){bytes->str, bytes->len});
}

static void dump_value(GString *text, const struct model_value *value)
{
    static const char *const types[] = {"string", "list", "set", "zset", "hash"};
    const struct model_field *field;
    g_string_append(text, types[value->type]);
    dump_bytes(text, &value->key);
    if (value->expires != INT64_MAX) {
        g_string_append_printf(text, " until %" G_GINT64_FORMAT, value->expires);
    }
    g_string_append_c(text, ':');
    switch (value->type) {
    case MODEL_STRING:
        dump_string(text, value->text);
        break;
    case MODEL_LIST:
        for (const GList *at = value->list.head; at; at = at->next) {
            dump_string(text, at->data);
        }
        break;
    case MODEL_ZSET:
        for (GSequenceIter *i = g_sequence_get_begin_iter(value->zset.order); !g_sequence_iter_is_end(i);
             i = g_sequence_iter_next(i)) {
            const struct model_ranked *ranked = g_sequence_get(i);
            dump_bytes(text, &ranked->name);
            g_string_append_printf(text, "=%.17g", ranked->score);
        }
        break;
    default:
        TAILQ_FOREACH(field, &value->fields.order, link) {
            dump_bytes(text, &field->name);
            if (field->value) {
                g_string_append_c(text, '=');
                dump_string(text, field->value);
            }
        }
    }
    g_string_append_c(text, '\n');
}

char *redis_model_dump(struct redis_model *m)
{
    GString *text = g_string_new(NULL);
    for (int db = 0; db < MODEL_DATABASES; db++) {
        GPtrArray *values = model_data_sorted(&m->data, db);
        for (guint i = 0; i < values->len; i++) {
            if (!has_expired(m, values->pdata[i])) {
                g_string_append_printf(text, "%d ", db);
                dump_value(text, values->pdata[i]);
            }
        }
        g_ptr_array_unref(values);
    }
    return g_string_free(text, FALSE);
}

/* --- beginning and end --- */

static void free_ids(gpointer ids)
{
    g_array_unref(ids);
}

static void free_string(gpointer string)
{
    g_string_free(string, TRUE);
}

struct redis_model *redis_model_new(const struct redis_model_options *options)
{
    struct redis_model *m = g_new0(struct redis_model, 1);
    m->options = *options;
    m->random = g_rand_new_with_seed(options->seed);
    m->refusal = g_string_new(NULL);
    TAILQ_INIT(&m->clients);
    m->watched = g_hash_table_new_full(slice_hash, slice_equal, free_slice, free_ids);
    m->report_later = g_ptr_array_new_with_free_func(free_string);
    m->foreign = client_new(m, NULL);
    model_data_init(&m->data, options->undo);
    m->commands = index_commands();
    m->lua = model_lua_new(m);
    begin_run(m);
    return m;
}

void redis_model_free(struct redis_model *m)
{
    struct redis_client *client;
    if (!m) {
        return;
    }
    while ((client = TAILQ_FIRST(&m->clients))) {
        redis_client_close(client);
    }
    client_free(m->foreign);
    model_lua_free(m->lua);
    model_data_clear(&m->data);
    g_hash_table_unref(m->commands);
    g_hash_table_unref(m->watched);
    g_ptr_array_unref(m->report_later);
    g_string_free(m->refusal, TRUE);
    g_rand_free(m->random);
    g_free(m->password);
    g_free(m->runid);
    g_free(m->replid);
    g_free(m->former_replid);
    g_free(m);
}

struct redis_model_counts redis_model_counts(const struct redis_model *m)
{
    return m->counts;
}

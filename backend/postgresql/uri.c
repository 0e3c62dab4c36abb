/* uri: parses the address.  libpq parses all of it but schema=. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/postgresql/private.h"

/* Cuts schema=NAME out of the URI.  A new string. */
static char *uri_without_schema(const char *uri, char **ret_schema)
{
    const char *query = strchr(uri, '?');
    if (!query) {
        return g_strdup(uri);
    }
    GString *text = g_string_new_len(uri, query - uri);
    char **words = g_strsplit(query + 1, "&", -1);
    char next = '?';
    for (char **word = words; *word; word++) {
        if (g_str_has_prefix(*word, "schema=")) {
            g_free(*ret_schema);
            *ret_schema = g_strdup(*word + strlen("schema="));
        } else {
            g_string_append_c(text, next);
            g_string_append(text, *word);
            next = '&';
        }
    }
    g_strfreev(words);
    return g_string_free(text, FALSE);
}

bool pq_is_schema(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length < 64 && !name[length] && !g_ascii_isdigit(*name) && !g_str_has_prefix(name, "pg_");
}

static void uri_set(struct pq_target *target, const char *keyword, const char *value)
{
    g_ptr_array_add(target->keywords, g_strdup(keyword));
    g_ptr_array_add(target->values, g_strdup(value));
}

static const char *uri_find(const struct pq_target *target, const char *keyword)
{
    for (guint i = 0; i < target->keywords->len; i++) {
        if (target->keywords->pdata[i] && strcmp(target->keywords->pdata[i], keyword) == 0) {
            return target->values->pdata[i];
        }
    }
    return NULL;
}

static void uri_set_default(struct pq_target *target, const char *keyword, const char *environment, const char *value)
{
    if (!uri_find(target, keyword) && !(environment && getenv(environment))) {
        uri_set(target, keyword, value);
    }
}

static char *uri_show(const struct pq_target *target)
{
    const char *host = uri_find(target, "host"), *port = uri_find(target, "port"), *name = uri_find(target, "dbname");
    host = host ? host : g_getenv("PGHOST");
    port = port ? port : g_getenv("PGPORT");
    name = name ? name : g_getenv("PGDATABASE");
    return g_strdup_printf("postgresql://%s%s%s/%s", host ? host : "", port ? ":" : "", port ? port : "",
                           name ? name : "");
}

/* Settings that the session must have, whatever the role's defaults are. */
static void uri_set_session(struct pq_target *target, const PQconninfoOption *options, int64_t timeout)
{
    const char *given = g_getenv("PGOPTIONS");
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        given = o->val && strcmp(o->keyword, "options") == 0 ? o->val : given;
    }
    char *text =
        g_strdup_printf("%s -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off "
                        "-c statement_timeout=%d -c lock_timeout=%d -c idle_in_transaction_session_timeout=%d",
                        given ? given : "", (int)MAX(timeout, 100), POSTGRESQL_LOCK_TIMEOUT, (int)MAX(timeout, 100));
    uri_set(target, "options", text);
    g_free(text);
}

static void uri_fill(struct pq_target *target, const PQconninfoOption *options, const char *user, const char *password,
                     int64_t timeout)
{
    char seconds[16], millis[16];
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        bool instead = (user && strcmp(o->keyword, "user") == 0) || (password && strcmp(o->keyword, "password") == 0);
        if (o->val && !instead && strcmp(o->keyword, "options") != 0) {
            uri_set(target, o->keyword, o->val);
        }
    }
    uri_set_session(target, options, timeout);
    if (user) {
        uri_set(target, "user", user);
    }
    if (password) {
        uri_set(target, "password", password);
    }
    g_snprintf(seconds, sizeof seconds, "%d", (int)MAX(timeout / 1000, 2));
    g_snprintf(millis, sizeof millis, "%d", (int)MAX(timeout, 1000));
    uri_set_default(target, "connect_timeout", "PGCONNECT_TIMEOUT", seconds);
    uri_set_default(target, "target_session_attrs", "PGTARGETSESSIONATTRS", "primary");
    uri_set_default(target, "gssencmode", "PGGSSENCMODE", "disable"); /* it would look for tickets in files */
    uri_set_default(target, "tcp_user_timeout", NULL, millis);
    uri_set_default(target, "keepalives_idle", NULL, "10");
    uri_set_default(target, "keepalives_interval", NULL, "5");
    uri_set(target, "fallback_application_name", "leasefs");
    uri_set(target, "client_encoding", "UTF8");
}

static bool uri_has_password(const PQconninfoOption *options)
{
    while (options->keyword && strcmp(options->keyword, "password") != 0) {
        options++;
    }
    return options->keyword && options->val;
}

int pq_target_parse(const char *uri, const char *user, const char *password, int64_t timeout, struct pq_target *ret,
                    char *error, size_t error_size)
{
    struct pq_target target = {.keywords = g_ptr_array_new_with_free_func(g_free),
                               .values = g_ptr_array_new_with_free_func(g_free)};
    char *message = NULL, *plain = uri_without_schema(uri, &target.schema);
    PQconninfoOption *options = PQconninfoParse(plain, &message);
    target.schema = target.schema ? target.schema : g_strdup(POSTGRESQL_SCHEMA_DEFAULT);
    int result = 0;
    g_free(plain);
    if (!options) {
        snprintf(error, error_size, "postgresql://: %s", message ? g_strchomp(message) : "out of memory");
        PQfreemem(message);
        result = -EINVAL;
    } else if (!pq_is_schema(target.schema)) {
        snprintf(error, error_size,
                 "postgresql://: schema=%s: the name of a schema has lower case letters, digits and underscores, and "
                 "begins with a letter, and not with pg_",
                 target.schema);
        result = -EINVAL;
    } else if (uri_has_password(options)) {
        snprintf(error, error_size,
                 "postgresql://: a password in the URI would be shown to all users: put it in a file with mode 0600 "
                 "and mount "
                 "with -o credentials=FILE, or put it into ~/.pgpass");
        result = -EINVAL;
    } else {
        uri_fill(&target, options, user, password, timeout);
        target.address = uri_show(&target);
        g_ptr_array_add(target.keywords, NULL);
        g_ptr_array_add(target.values, NULL);
        *ret = target;
    }
    PQconninfoFree(options);
    if (result < 0) {
        pq_target_clear(&target);
    }
    return result;
}

void pq_target_copy(struct pq_target *to, const struct pq_target *from)
{
    to->keywords = g_ptr_array_copy(from->keywords, (GCopyFunc)(void (*)(void))g_strdup, NULL);
    to->values = g_ptr_array_copy(from->values, (GCopyFunc)(void (*)(void))g_strdup, NULL);
    g_ptr_array_set_free_func(to->keywords, g_free);
    g_ptr_array_set_free_func(to->values, g_free);
    to->schema = g_strdup(from->schema);
    to->shedlock = g_strdup(from->shedlock);
    to->address = g_strdup(from->address);
}

void pq_target_clear(struct pq_target *target)
{
    for (guint i = 0; target->values && i < target->values->len; i++) {
        char *value = target->values->pdata[i];
        if (value) {
            explicit_bzero(value, strlen(value)); /* it may be a password */
        }
    }
    g_clear_pointer(&target->keywords, g_ptr_array_unref);
    g_clear_pointer(&target->values, g_ptr_array_unref);
    g_clear_pointer(&target->schema, g_free);
    g_clear_pointer(&target->shedlock, g_free);
    g_clear_pointer(&target->address, g_free);
}

/* --- for the sandbox --- */

static void uri_need_file(struct postgresql_needs *needs, char *path)
{
    if (needs->file_count < POSTGRESQL_FILES_MAX && path && access(path, R_OK) == 0) {
        needs->files[needs->file_count++] = path;
    } else {
        g_free(path);
    }
}

/* From the URI, else from its service or the environment. */
void postgresql_find_needs(const char *uri, struct postgresql_needs *ret)
{
    static const char *const files[] = {"passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir"};
    const char *home = g_get_home_dir();
    struct pq_target target;
    char error[256];
    *ret = (struct postgresql_needs){.file_count = 0};
    if (pq_target_parse(uri, NULL, NULL, POSTGRESQL_TIMEOUT_DEFAULT, &target, error, sizeof error) < 0) {
        return;
    }
    if (uri_find(&target, "service")) {
        g_setenv("PGSERVICE", uri_find(&target, "service"), TRUE); /* so that the defaults have its values */
    }
    PQconninfoOption *defaults = PQconndefaults();
    for (size_t i = 0; i < G_N_ELEMENTS(files); i++) {
        const char *path = uri_find(&target, files[i]);
        for (const PQconninfoOption *o = defaults; !path && o && o->keyword; o++) {
            path = strcmp(o->keyword, files[i]) == 0 ? o->val : NULL;
        }
        uri_need_file(ret, g_strdup(path));
    }
    PQconninfoFree(defaults);
    uri_need_file(ret, g_strdup(g_getenv("PGSERVICEFILE")));
    uri_need_file(ret, g_build_filename(home, ".pgpass", NULL));
    uri_need_file(ret, g_build_filename(home, ".postgresql", NULL));
    uri_need_file(ret, g_build_filename(home, ".pg_service.conf", NULL));
    const char *port = uri_find(&target, "port");
    bool elsewhere = uri_find(&target, "service") || g_getenv("PGSERVICE"); /* its file may name a port */
    char **ports = g_strsplit(port ? port : g_getenv("PGPORT") ? g_getenv("PGPORT") : "5432", ",", -1);
    for (char **p = ports; *p && !elsewhere && ret->port_count < POSTGRESQL_PORTS_MAX; p++) {
        ret->ports[ret->port_count++] = (uint16_t)(**p ? strtoul(*p, NULL, 10) : 5432);
    }
    g_strfreev(ports);
    pq_target_clear(&target);
}

/* function: the statement that calls each function of the schema, and what the server's errors mean for a call. */
#include "backend/postgresql/private.h"

/* The calls, with %s for the schema; the parameters follow (-1: the text has them).  A `stamped` call has the epoch as
 * one more parameter. */
static const struct {
    const char *before;
    int parameters;
    bool stamped;
    const char *behind;
} statements[PQ_FUNCTIONS] = {
    [PQ_ACQUIRE] = {"SELECT * FROM %s.acquire(", 20, true, ")"},
    [PQ_RELEASE] = {"SELECT %s.release(", 5, true, ")"},
    [PQ_RELEASE_RANGE] = {"SELECT %s.release_range(", 5, true, ")"},
    [PQ_RENEW] = {"SELECT %s.renew(", 7, true, ")"},
    [PQ_RENEW_MANY] = {"SELECT unnest(%s.renew_many(", 4, true, "))"},
    [PQ_VERIFY_MANY] =
        {"SELECT v.id FROM unnest($1::bytea[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[]) AS "
         "v(path, id, mode, ttl, term) WHERE CASE WHEN %1$s.try_take(v.path) THEN "
         "%1$s.renew(v.path, v.id, v.mode, v.ttl, v.term, NULL, NULL, $6) = 'ok' ELSE false END",
         -1, true, ""},
    [PQ_RESTORE] = {"SELECT %s.restore(", 19, true, ")"},
    [PQ_HEARTBEAT] = {"SELECT * FROM %s.beat(", 3, true, ")"},
    [PQ_CONVERT] = {"SELECT %s.convert(", 12, true, ")"},
    [PQ_SET] = {"SELECT %s.set(", 4, true, ")"},
    [PQ_RENAME] = {"SELECT * FROM %s.rename(", 6, true, ")"},
    [PQ_HOLDERS] =
        {"SELECT result, path, unnest(CASE WHEN ids IS NULL THEN '{\"\"}' ELSE ids END) AS id FROM %s.holders(", 4,
         false, ")"},
    [PQ_REVOKE] = {"SELECT * FROM %s.revoke(", 8, true, ")"},
    [PQ_REVOKE_TOKEN] = {"SELECT result, others, unnest(CASE WHEN ids IS NULL THEN '{\"\"}' ELSE ids END) AS id "
                         "FROM %s.revoke_token(",
                         9, true, ")"},
    [PQ_CONFIRM_ENDS] = {"SELECT %s.heard(", 2, false, ")"},
    [PQ_STAT] = {"SELECT (a).*, d_ttl, d_width, d_delay, d_sequence, d_meta FROM %s.stat(", 3, false, ")"},
    [PQ_LIST] = {"SELECT * FROM %s.list(", 3, false, ")"},
    [PQ_TICKETS] = {"SELECT * FROM %s.tickets(", 3, false, ")"},
    [PQ_WATCH] = {"SELECT %s.watch(", 4, true, ")"},
    [PQ_MKDIR] = {"SELECT %s.mkdir(", 9, true, ")"},
    [PQ_RMDIR] = {"SELECT %s.rmdir(", 1, true, ")"},
    [PQ_SET_DIRECTORY] = {"SELECT %s.set_directory(", 6, true, ")"},
    [PQ_ENTER] = {"SELECT * FROM %s.enter_epoch(", 10, false, ")"},
    [PQ_GREET] = {"SELECT * FROM %s.greet(", 5, false, ")"},
    [PQ_NOTE_MOUNT] = {"SELECT %s.note_mount(", 2, false, ")"},
    [PQ_MOUNTS] = {"SELECT * FROM %s.mounts(", 0, false, ")"},
    [PQ_SWEEP] = {"SELECT * FROM %s.sweep(", 1, false, ")"},
    [PQ_RECOVER] = {"SELECT * FROM %s.recover(", 5, false, ")"},
    [PQ_BLOCKERS] = {"SELECT * FROM %s.blockers(", 1, false, ")"},
};

bool pq_function_is_stamped(enum pq_function function)
{
    return statements[function].stamped;
}

char *pq_function_statement(enum pq_function function, const char *schema)
{
    GString *text = g_string_new(NULL);
    int count =
        statements[function].parameters < 0 ? 0 : statements[function].parameters + statements[function].stamped;
    g_string_append_printf(text, statements[function].before, schema);
    for (int i = 1; i <= count; i++) {
        g_string_append_printf(text, "%s$%d", i > 1 ? ", " : "", i);
    }
    g_string_append(text, statements[function].behind);
    return g_string_free(text, FALSE);
}

/* Classes and codes of SQLSTATE; the first that is a prefix of the server's counts. */
static const struct {
    const char *state;
    enum pq_failure failure;
} failures[] = {
    {"LF001", PQ_EPOCH},                                               /* of leasefs.check_epoch */
    {"55P03", PQ_BLOCKED},                                             /* lock_timeout */
    {"40001", PQ_AGAIN},   {"40P01", PQ_AGAIN},   {"57014", PQ_AGAIN}, /* rolled back */
    {"57P", PQ_AGAIN},     {"08", PQ_AGAIN},      {"25006", PQ_AGAIN}, /* the server ends, or is a standby */
    {"53", PQ_FULL},       {"54", PQ_FULL},       {"22", PQ_DAMAGED},
    {"23", PQ_DAMAGED},    {"XX001", PQ_DAMAGED}, {"XX002", PQ_DAMAGED},
};

enum pq_failure pq_failure_of(const PGresult *rows)
{
    const char *state = PQresultErrorField(rows, PG_DIAG_SQLSTATE);
    for (size_t i = 0; state && i < G_N_ELEMENTS(failures); i++) {
        if (g_str_has_prefix(state, failures[i].state)) {
            return failures[i].failure;
        }
    }
    return PQ_REFUSED;
}

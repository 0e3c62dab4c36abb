/* link: the connection on the loop.
 *
 * Calls are sent at once, each as a transaction of its own, and answered in order.  When the connection ends, pending
 * calls are sent again on the next one, in order; so each call may be repeated.  A thread connects, because libpq
 * resolves names and reads files meanwhile.
 */
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/postgresql/private.h"

#define LINK_RETRY_MIN 0.05      /* s between connection attempts, */
#define LINK_RETRY_MAX 1.0       /* twice as long each time */
#define LINK_TICK 0.05           /* s between checks of timeouts */
#define LINK_AGAIN 20            /* ms until a rolled-back call is repeated, */
#define LINK_AGAIN_MAX 200       /* later each time if it waits for its name */
#define LINK_BLOCKED 1000        /* ms of waiting for a name until the log says who blocks */
#define LINK_REFUSAL_SHOWN 60000 /* ms for which the status has it */
#define LINK_LOG_EVERY 10000     /* ms between two lines about one kind of error */

struct pq_link {
    struct pq_target target;
    char mount[POSTGRESQL_MOUNT_SIZE];
    int64_t timeout;
    struct ev_loop *loop;
    const struct pq_events *events;
    void *context;
    PGconn *conn; /* NULL: away */
    char *error, *address;
    GPtrArray *warnings;
    bool older;                 /* see struct pq_connection */
    bool was_up;                /* the schema existed; if it is dropped its locks are lost, so it is not made again */
    struct pq_attempt *attempt; /* or NULL */
    struct pq_pending pending;
    bool prepared[PQ_FUNCTIONS]; /* on this connection */
    ev_io reading, writing;
    ev_timer tick, retry;
    ev_async wake;
    ev_prepare flushing; /* sends all calls of one turn of the loop in one packet */
    double pause;
    char stamp[EPOCH_STAMP_SIZE];
    bool entering; /* the connection is new: other calls wait until the epoch is known */
    clock_ms since, heard;
    clock_ms logged;     /* when the log named last who blocks */
    clock_ms refused_at; /* when it named a refusal last, */
    char refused[8];     /* and its SQLSTATE */
    clock_ms refusal_at; /* when the server refused a request last, */
    char refusal[1024];  /* and how the log would say so; "": never */
    struct pq_counts counts;
};

/* --- calls --- */

static void link_down(struct pq_link *link, const char *why);

static bool link_flush(struct pq_link *link)
{
    int left = PQflush(link->conn);
    if (left == 1 && !ev_is_active(&link->writing)) {
        ev_io_start(link->loop, &link->writing);
    } else if (left == 0) {
        ev_io_stop(link->loop, &link->writing);
    }
    return left >= 0;
}

/* False: the connection is useless; the call waits, or is among the sent ones. */
static bool link_send(struct pq_link *link, struct pq_call *call)
{
    const char *values[PQ_PARAMETERS_MAX + 1];
    int lengths[PQ_PARAMETERS_MAX + 1], formats[PQ_PARAMETERS_MAX + 1], count = (int)call->parameters.count;
    const struct pq_parameters *p = &call->parameters;
    char name[16];
    g_snprintf(name, sizeof name, "leasefs%d", (int)call->function);
    if (!link->prepared[call->function]) {
        char *text = pq_function_statement(call->function, link->target.schema);
        bool sent = PQsendPrepare(link->conn, name, text, 0, NULL);
        g_free(text);
        if (!sent) {
            return false;
        }
        link->prepared[call->function] = true;
        pq_pending_add_preparation(&link->pending, call->function);
        if (!PQpipelineSync(link->conn)) {
            return false;
        }
    }
    for (unsigned i = 0; i < p->count; i++) {
        values[i] = p->at[i].length < 0 ? NULL : (const char *)p->bytes->data + p->at[i].offset;
        lengths[i] = MAX(p->at[i].length, 0);
        formats[i] = p->at[i].binary;
    }
    if (pq_function_is_stamped(call->function)) {
        values[count] = link->stamp;
        lengths[count] = formats[count] = 0;
        count++;
    }
    call->repeated = call->repeated || call->sent != 0;
    call->sent = clock_now();
    call->unconfirmed = false;
    TAILQ_REMOVE(&link->pending.waiting, call, link);
    TAILQ_INSERT_TAIL(&link->pending.sent, call, link);
    link->counts.requests++;
    return PQsendQueryPrepared(link->conn, name, count, values, lengths, formats, 0) && PQpipelineSync(link->conn);
}

static void link_send_waiting(struct pq_link *link)
{
    struct pq_call *call, *next;
    clock_ms now = clock_now();
    for (call = TAILQ_FIRST(&link->pending.waiting); link->conn && call; call = next) {
        next = TAILQ_NEXT(call, link);
        if (!call->answered) { /* forgotten since it was rolled back */
            TAILQ_REMOVE(&link->pending.waiting, call, link);
            pq_pending_free(&link->pending, call);
            continue;
        }
        if (call->not_before > now || (link->entering && call->function != PQ_ENTER) ||
            pq_pending_is_behind_blocked(&link->pending, call)) {
            continue;
        }
        if (!link_send(link, call)) {
            link_down(link, PQerrorMessage(link->conn));
            return;
        }
    }
    if (link->conn && !link_flush(link)) {
        link_down(link, PQerrorMessage(link->conn));
    }
}

static void link_on_flushing(struct ev_loop *loop, ev_prepare *watcher, int events)
{
    (void)loop, (void)events;
    link_send_waiting(watcher->data);
}

uint64_t pq_link_send(struct pq_link *link, enum pq_function function, struct pq_parameters *parameters,
                      int64_t timeout, pq_answered *answered, void *arg)
{
    bool long_away = !link->conn && clock_now() - link->counts.since > link->timeout;
    clock_ms until = clock_now() + (timeout     ? timeout
                                    : long_away ? MIN(REMOTE_TIMEOUT_AWAY, link->timeout)
                                                : link->timeout);
    struct pq_call *call = pq_pending_add(&link->pending, function, parameters, until, answered, arg);
    if (link->loop) {
        ev_feed_event(link->loop, &link->flushing, EV_CUSTOM);
    }
    if (link->loop && !ev_is_active(&link->tick)) {
        ev_timer_again(link->loop, &link->tick);
    }
    return call->id;
}

void pq_link_forget(struct pq_link *link, uint64_t id)
{
    pq_pending_forget(&link->pending, id);
}

/* --- errors of the server --- */

static void link_on_blockers(void *arg, const struct pq_answer *answer)
{
    (void)arg;
    for (int i = 0; answer->outcome == REMOTE_ANSWERED && i < PQntuples(answer->rows); i++) {
        char who[512], name[300];
        log_escape(who, sizeof who, PQgetvalue(answer->rows, i, 0));
        log_escape(name, sizeof name, PQgetvalue(answer->rows, i, 1));
        log_warning("%s: an open transaction keeps the lock from all mounts: %s: end it, for instance with SELECT "
                    "pg_terminate_backend(PID)",
                    name, who);
    }
}

static void link_ask_who_blocks(struct pq_link *link, GBytes *path)
{
    struct pq_parameters p = {.count = 0};
    if (clock_now() - link->logged >= LINK_LOG_EVERY) {
        link->logged = clock_now();
        pq_add_bytes(&p, path);
        pq_link_send(link, PQ_BLOCKERS, &p, 0, link_on_blockers, NULL);
    }
}

/* The call's lock_timeout is over: another transaction keeps its name. */
static void link_on_blocked(struct pq_link *link, struct pq_call *call)
{
    GBytes *path = pq_pending_path(call);
    clock_ms now = clock_now();
    call->blocked = call->blocked ? call->blocked : now;
    call->not_before = now + CLAMP(now - call->blocked, LINK_AGAIN, LINK_AGAIN_MAX);
    if (path) {
        pq_pending_set_blocked(&link->pending, path, call);
    }
    if (path && now - call->blocked >= LINK_BLOCKED) {
        link_ask_who_blocks(link, path);
    }
    g_clear_pointer(&path, g_bytes_unref);
}

static void link_log_error(struct pq_link *link, const PGresult *rows)
{
    char text[900];
    const char *message = PQresultErrorField(rows, PG_DIAG_MESSAGE_PRIMARY),
               *state = PQresultErrorField(rows, PG_DIAG_SQLSTATE);
    state = state ? state : "none";
    if (link->older && (strcmp(state, "42883") == 0 || strcmp(state, "26000") == 0)) {
        return; /* the schema lacks the function, so its statement cannot be prepared either; the log has a warning */
    }
    log_escape(text, sizeof text, message ? message : "it does not say why");
    snprintf(link->refusal, sizeof link->refusal, "the server refuses a request: %s (SQLSTATE %s)", text, state);
    link->refusal_at = clock_now();
    if (strcmp(link->refused, state) == 0 && clock_now() - link->refused_at < LINK_LOG_EVERY) {
        return;
    }
    g_strlcpy(link->refused, state, sizeof link->refused);
    link->refused_at = clock_now();
    log_warning("%s: the server refuses a request: %s (SQLSTATE %s)", link->address, text, state);
}

/* The transaction of a call was rolled back.  True: the call will be repeated. */
static bool link_failed(struct pq_link *link, struct pq_call *call)
{
    enum pq_failure failure = pq_failure_of(call->rows);
    if (failure == PQ_EPOCH && !link->entering) {
        link->events->another_epoch(link->context);
    }
    if (failure == PQ_EPOCH || failure == PQ_AGAIN || failure == PQ_BLOCKED) {
        call->not_before = clock_now() + LINK_AGAIN;
        if (failure == PQ_BLOCKED) {
            link_on_blocked(link, call);
        }
        return true;
    }
    link_log_error(link, call->rows);
    pq_pending_answer(call, REMOTE_REFUSED,
                      failure == PQ_FULL      ? BACKEND_FULL
                      : failure == PQ_DAMAGED ? BACKEND_DAMAGED
                                              : BACKEND_UNREACHABLE,
                      NULL);
    return false;
}

/* The head of `sent` is answered in full. */
static void link_complete(struct pq_link *link)
{
    struct pq_call *call = TAILQ_FIRST(&link->pending.sent);
    TAILQ_REMOVE(&link->pending.sent, call, link);
    link->heard = clock_now();
    if (call->id == 0) {
        if (call->rows && PQresultStatus(call->rows) != PGRES_COMMAND_OK) {
            link_log_error(link, call->rows);
            link->prepared[call->function] = false; /* an upgrade of the schema may have added the function */
        }
        pq_pending_free(&link->pending, call);
        return;
    }
    ExecStatusType status = PQresultStatus(call->rows);
    bool answered = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
    bool again = false;
    if (answered && !call->unconfirmed) {
        pq_pending_answer(call, REMOTE_ANSWERED, BACKEND_OK, call->rows);
    } else if (answered) {
        again = true;
    } else {
        again = link_failed(link, call);
    }
    if (again && call->answered) {
        g_clear_pointer(&call->rows, PQclear);
        pq_pending_put_back(&link->pending, call);
    } else {
        pq_pending_free(&link->pending, call);
    }
}

/* The wait of a commit for a standby was cancelled: only this server is known to have it. */
static void link_on_notice(void *arg, const PGresult *notice)
{
    struct pq_link *link = arg;
    const char *function = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    struct pq_call *call = TAILQ_FIRST(&link->pending.sent);
    if (call && function && strcmp(function, "SyncRepWaitForLSN") == 0) {
        call->unconfirmed = true;
    }
}

/* --- the connection --- */

static void link_tell_notifications(struct pq_link *link)
{
    PGnotify *notify;
    while (link->conn && (notify = PQnotifies(link->conn))) {
        link->events->notified(link->context, notify->extra);
        PQfreemem(notify);
    }
}

static void link_read(struct pq_link *link)
{
    bool there = PQconsumeInput(link->conn);
    link_tell_notifications(link);
    while (there && link->conn && !TAILQ_EMPTY(&link->pending.sent) && !PQisBusy(link->conn)) {
        PGresult *rows = PQgetResult(link->conn);
        struct pq_call *call = TAILQ_FIRST(&link->pending.sent);
        link_tell_notifications(link);
        if (PQresultStatus(rows) == PGRES_PIPELINE_SYNC) {
            PQclear(rows);
            link_complete(link);
        } else if (rows) {
            PQclear(call->rows);
            call->rows = rows;
        }
        if (link->conn && PQstatus(link->conn) != CONNECTION_OK) {
            there = false;
        }
    }
    if (link->conn && (!there || PQstatus(link->conn) != CONNECTION_OK)) {
        link_down(link, PQerrorMessage(link->conn));
    }
}

static void link_on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop, (void)events;
    link_read(watcher->data);
}

static void link_on_writable(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct pq_link *link = watcher->data;
    (void)loop, (void)events;
    if (!link_flush(link)) {
        link_down(link, PQerrorMessage(link->conn));
    }
}

static void link_close(struct pq_link *link)
{
    ev_io_stop(link->loop, &link->reading);
    ev_io_stop(link->loop, &link->writing);
    PQfinish(link->conn);
    link->conn = NULL;
    memset(link->prepared, 0, sizeof link->prepared);
}

static void link_connect_later(struct pq_link *link, double after)
{
    if (!ev_is_active(&link->retry)) {
        ev_timer_set(&link->retry, after, 0);
        ev_timer_start(link->loop, &link->retry);
    }
}

static void link_down(struct pq_link *link, const char *why)
{
    g_free(link->error);
    link->error = pq_error_line(why);
    link->counts.since = clock_now();
    link->entering = false;
    link_close(link);
    pq_pending_take_back(&link->pending);
    link->pause = LINK_RETRY_MIN;
    link_connect_later(link, LINK_RETRY_MIN / 2);
    link->events->down(link->context, link->error);
}

static void link_up(struct pq_link *link, struct pq_connection *made)
{
    link->conn = g_steal_pointer(&made->conn);
    link->entering = true;
    PQsetNoticeReceiver(link->conn, link_on_notice, link);
    PQsetnonblocking(link->conn, 1);
    PQenterPipelineMode(link->conn);
    g_free(link->error);
    link->error = NULL;
    g_free(link->address);
    link->address = g_strdup(made->address);
    g_clear_pointer(&link->warnings, g_ptr_array_unref);
    link->warnings = g_steal_pointer(&made->warnings);
    link->older = made->older;
    link->was_up = true;
    link->pause = LINK_RETRY_MIN;
    link->counts.since = link->heard = clock_now();
    ev_io_set(&link->reading, PQsocket(link->conn), EV_READ);
    ev_io_set(&link->writing, PQsocket(link->conn), EV_WRITE);
    ev_io_start(link->loop, &link->reading);
    link->events->connected(link->context);
    link_send_waiting(link);
}

void pq_link_enter(struct pq_link *link)
{
    link->entering = false;
    link->events->up(link->context);
    if (link->conn) {
        ev_feed_event(link->loop, &link->flushing, EV_CUSTOM);
    }
}

void pq_link_set_stamp(struct pq_link *link, const char *stamp)
{
    g_strlcpy(link->stamp, stamp, sizeof link->stamp);
}

/* --- connecting --- */

static void link_connect(struct pq_link *link)
{
    link->attempt = pq_attempt_start(&link->target, link->mount, !link->was_up, link->loop, &link->wake);
    if (!link->attempt) {
        link_connect_later(link, LINK_RETRY_MAX);
    }
}

static void link_on_retry(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct pq_link *link = timer->data;
    (void)loop, (void)events;
    if (!link->attempt && !link->conn) {
        link_connect(link);
    }
}

static void link_on_attempt(struct ev_loop *loop, ev_async *watcher, int events)
{
    struct pq_link *link = watcher->data;
    struct pq_connection made;
    (void)loop, (void)events;
    if (!link->attempt || !pq_attempt_end(link->attempt, &made)) {
        return;
    }
    link->attempt = NULL;
    if (made.conn) {
        link->counts.reconnects++;
        link_up(link, &made);
    } else {
        bool another = g_strcmp0(link->error, made.error) != 0;
        g_free(link->error);
        link->error = g_strdup(made.error);
        if (another) {
            link->events->down(link->context, link->error);
        }
        link->pause = MIN(link->pause * 2, LINK_RETRY_MAX);
        link_connect_later(link, link->pause);
    }
    pq_connection_clear(&made);
}

/* --- time --- */

static void link_on_tick(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct pq_link *link = timer->data;
    clock_ms now = clock_now();
    (void)events;
    struct pq_call *oldest = NULL;
    pq_pending_expire(&link->pending, now);
    TAILQ_FOREACH(oldest, &link->pending.sent, link) {
        if (oldest->id != 0) {
            break;
        }
    }
    if (link->conn && oldest && now - MAX(oldest->sent, link->heard) > link->timeout) {
        link_down(link, "the server does not answer");
    }
    if (link->conn && !TAILQ_EMPTY(&link->pending.waiting)) {
        link_send_waiting(link);
    }
    if (TAILQ_EMPTY(&link->pending.waiting) && TAILQ_EMPTY(&link->pending.sent)) {
        ev_timer_stop(loop, &link->tick);
    }
}

/* --- beginning and end --- */

struct pq_link *pq_link_new(struct pq_target *target, const char *mount, int64_t timeout, struct pq_connection *made)
{
    struct pq_link *link = g_new0(struct pq_link, 1);
    link->target = *target;
    *target = (struct pq_target){.schema = NULL};
    g_strlcpy(link->mount, mount, sizeof link->mount);
    link->timeout = timeout;
    pq_pending_init(&link->pending);
    link->pause = LINK_RETRY_MIN;
    link->counts.since = clock_now();
    link->error = g_strdup(made->error ? made->error : "it is being connected to");
    link->address = g_strdup(made->address ? made->address : link->target.address);
    link->warnings = made->warnings ? g_ptr_array_ref(made->warnings) : g_ptr_array_new_with_free_func(g_free);
    link->older = made->older;
    link->conn = g_steal_pointer(&made->conn);
    ev_io_init(&link->reading, link_on_readable, 0, EV_READ);
    ev_io_init(&link->writing, link_on_writable, 0, EV_WRITE);
    ev_timer_init(&link->tick, link_on_tick, 0, LINK_TICK);
    ev_timer_init(&link->retry, link_on_retry, 0, 0);
    ev_async_init(&link->wake, link_on_attempt);
    ev_prepare_init(&link->flushing, link_on_flushing);
    ev_set_priority(&link->flushing, EV_MINPRI);
    link->reading.data = link->writing.data = link->tick.data = link->retry.data = link->wake.data =
        link->flushing.data = link;
    return link;
}

void pq_link_start(struct pq_link *link, struct ev_loop *loop, const struct pq_events *events, void *context)
{
    link->loop = loop;
    link->events = events;
    link->context = context;
    ev_async_start(loop, &link->wake);
    if (link->conn) {
        struct pq_connection made = {.conn = link->conn,
                                     .address = g_strdup(link->address),
                                     .warnings = g_ptr_array_ref(link->warnings),
                                     .older = link->older};
        link->conn = NULL;
        link_up(link, &made);
        pq_connection_clear(&made);
    } else {
        link_connect(link);
    }
}

void pq_link_free(struct pq_link *link)
{
    if (link->attempt) {
        pq_attempt_abandon(link->attempt);
    }
    if (link->conn && link->loop) {
        link_send_waiting(link); /* the last calls, such as releases */
    }
    if (link->conn && link->loop) {
        PQflush(link->conn);
        link_close(link);
    } else if (link->conn) {
        PQfinish(link->conn);
    }
    if (link->loop) { /* a call that could not be sent has started some of these again */
        ev_clear_pending(link->loop, &link->flushing);
        ev_timer_stop(link->loop, &link->tick);
        ev_timer_stop(link->loop, &link->retry);
        ev_async_stop(link->loop, &link->wake);
    }
    pq_pending_clear(&link->pending);
    g_ptr_array_unref(link->warnings);
    pq_target_clear(&link->target);
    g_free(link->error);
    g_free(link->address);
    g_free(link);
}

bool pq_link_is_up(const struct pq_link *link)
{
    return link->conn && !link->entering;
}

bool pq_link_is_entering(const struct pq_link *link)
{
    return link->conn && link->entering;
}

struct pq_counts pq_link_counts(const struct pq_link *link)
{
    return link->counts;
}

const char *pq_link_refusal(const struct pq_link *link)
{
    return *link->refusal && clock_now() - link->refusal_at < LINK_REFUSAL_SHOWN ? link->refusal : NULL;
}

const char *pq_link_error(const struct pq_link *link)
{
    return pq_link_is_up(link) ? "" : link->error ? link->error : "its epoch is not known yet";
}

const char *pq_link_address(const struct pq_link *link)
{
    return link->address;
}

const GPtrArray *pq_link_warnings(const struct pq_link *link)
{
    return link->warnings;
}

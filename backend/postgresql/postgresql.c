/* postgresql: opens and closes the backend; connection up and down, notifications, the mount's heartbeat. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backend/format.h"
#include "backend/log.h"
#include "backend/postgresql/private.h"

#define MOUNT_PULSE 10.0      /* s between heartbeats of the mount */
#define MOUNT_TERM 35000      /* ms for which a heartbeat proves that the mount is alive */
#define MOUNT_SWEEP 0.05      /* s between sweeps that delete rows */
#define MOUNT_CLOCK_STEP 1000 /* ms: a larger step of the server's clock between two heartbeats is a warning */

/* A step of the server's clock moves the deadlines of all locks. */
static void postgresql_check_clock(struct postgresql *p, int64_t server, clock_ms sent)
{
    int64_t ahead = server - sent, step = ahead - p->clock_ahead, late = clock_now() - sent;
    if (p->clock_ahead && step > MOUNT_CLOCK_STEP + late) {
        log_warning("%s: the server's clock was set forward by %" G_GINT64_FORMAT
                    " ms: locks may have ended early: let NTP slew it",
                    pq_link_address(p->link), step);
    } else if (p->clock_ahead && step < -MOUNT_CLOCK_STEP - late) {
        log_warning("%s: the server's clock was set back by %" G_GINT64_FORMAT
                    " ms: locks whose mounts ended last longer: let NTP slew it",
                    pq_link_address(p->link), -step);
    }
    p->clock_ahead = ahead;
}

/* --- rows of free locks --- */

static void postgresql_on_swept(void *arg, const struct pq_answer *answer)
{
    struct postgresql *p = arg;
    if (answer->outcome == REMOTE_ANSWERED && PQntuples(answer->rows) == 1) {
        p->page = g_ascii_strtoll(pq_text(answer->rows, 0, "page"), NULL, 10);
        if (pq_number(answer->rows, 0, "deleted") > 0) {
            ev_timer_set(&p->sweeping, MOUNT_SWEEP, 0);
            ev_timer_start(p->remote.loop, &p->sweeping);
        }
    }
}

static void postgresql_on_sweep(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct postgresql *p = timer->data;
    struct pq_parameters f = {.count = 0};
    (void)loop, (void)events;
    pq_add_number(&f, p->page);
    postgresql_send(p, PQ_SWEEP, &f, 0, postgresql_on_swept, p);
}

/* --- the mount's heartbeat --- */

static void postgresql_on_greeted(void *arg, const struct pq_answer *answer)
{
    struct postgresql *p = arg;
    if (answer->outcome == REMOTE_ANSWERED && PQntuples(answer->rows) == 1) {
        p->page = g_ascii_strtoll(pq_text(answer->rows, 0, "page"), NULL, 10);
        p->remote.backend.safety = *pq_text(answer->rows, 0, "replicated") == 't' ? BACKEND_REPLICATED : BACKEND_SINGLE;
        if (p->page != 0 && !ev_is_active(&p->sweeping)) {
            postgresql_on_sweep(p->remote.loop, &p->sweeping, 0);
        }
        postgresql_check_clock(p, g_ascii_strtoll(pq_text(answer->rows, 0, "clock"), NULL, 10), answer->sent);
    }
}

static void postgresql_greet(struct postgresql *p)
{
    struct pq_parameters f = {.count = 0};
    pq_add_text(&f, p->mount);
    pq_add_text(&f, p->identity ? p->identity : "");
    pq_add_text(&f, p->host);
    pq_add_number(&f, MOUNT_TERM);
    pq_add_number(&f, p->page);
    postgresql_send(p, PQ_GREET, &f, 0, postgresql_on_greeted, p);
}

/* A schema that an earlier version made may lack the function. */
static void postgresql_on_noted(void *arg, const struct pq_answer *answer)
{
    (void)arg, (void)answer;
}

static void postgresql_note_mount(struct postgresql *p)
{
    struct pq_parameters f = {.count = 0};
    pq_add_text(&f, p->mount);
    pq_add_text(&f, PACKAGE_VERSION);
    postgresql_send(p, PQ_NOTE_MOUNT, &f, 0, postgresql_on_noted, p);
}

static void postgresql_on_pulse(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct postgresql *p = timer->data;
    (void)loop, (void)events;
    if (pq_link_is_up(p->link)) {
        postgresql_greet(p);
    }
}

/* --- the connection --- */

static void postgresql_on_up(void *context)
{
    struct postgresql *p = context;
    const GPtrArray *warnings = pq_link_warnings(p->link);
    for (guint i = 0; i < warnings->len; i++) {
        log_warning("%s: %s", pq_link_address(p->link), (const char *)warnings->pdata[i]);
    }
    if (p->was_up) {
        log_info("%s: connected again", pq_link_address(p->link));
        remote_watch_changed(&p->remote, NULL);
    }
    p->was_up = true;
    postgresql_greet(p);
    postgresql_note_mount(p);
    epoch_restore(&p->epoch);
    remote_on_up(&p->remote);
}

static void postgresql_on_connected(void *context)
{
    pq_marker_enter(context);
}

static void postgresql_on_another_epoch(void *context)
{
    epoch_ask(&((struct postgresql *)context)->epoch);
}

static void postgresql_on_down(void *context, const char *why)
{
    struct postgresql *p = context;
    log_warning(p->was_up ? "%s: the connection is lost: %s" : "%s: %s; trying again", pq_link_address(p->link), why);
}

/* See remote_on_message; also "s MOUNT SERIAL": confirm a revocation to that mount; "f PATH NAME": the lock was
 * released; "v STAMP": this is the epoch, whose grace period may have ended. */
static void postgresql_on_notified(void *context, const char *text)
{
    struct postgresql *p = context;
    char **words = g_strsplit(text, " ", 3);
    guint count = g_strv_length(words);
    remote_on_message(&p->remote, words);
    if (count > 2 && strcmp(words[0], "s") == 0) {
        pq_revoke_on_confirm_request(p, words[1], words[2]);
    } else if (count > 1 && strcmp(words[0], "v") == 0 && strcmp(words[1], p->epoch.stamp) == 0 &&
               !epoch_is_closed(&p->epoch)) {
        ; /* as it is known */
    } else if (count > 1 && strcmp(words[0], "v") == 0 && pq_link_is_up(p->link)) {
        epoch_ask(&p->epoch);
    } else if (count > 1 && strcmp(words[0], "f") == 0) {
        pq_watch_on_released(p, text + 2);
    }
    g_strfreev(words);
}

static const struct pq_events link_events = {.connected = postgresql_on_connected,
                                             .up = postgresql_on_up,
                                             .another_epoch = postgresql_on_another_epoch,
                                             .down = postgresql_on_down,
                                             .notified = postgresql_on_notified};

/* --- the store --- */

static void postgresql_start(struct remote *r)
{
    struct postgresql *p = (struct postgresql *)r;
    ev_timer_init(&p->pulse, postgresql_on_pulse, MOUNT_PULSE, MOUNT_PULSE);
    ev_timer_init(&p->sweeping, postgresql_on_sweep, MOUNT_SWEEP, 0);
    p->pulse.data = p->sweeping.data = p;
    ev_timer_start(r->loop, &p->pulse);
    pq_link_start(p->link, r->loop, &link_events, p);
}

static void postgresql_free(struct remote *r, bool holds)
{
    struct postgresql *p = (struct postgresql *)r;
    (void)holds;
    pq_recover_stop(p);
    epoch_clear(&p->epoch);
    if (r->loop) {
        ev_timer_stop(r->loop, &p->pulse);
        ev_timer_stop(r->loop, &p->sweeping);
    }
    pq_link_free(p->link);
    g_free(p->identity);
    g_free(p->host);
    g_free(p->address);
    g_free(p);
}

static bool postgresql_is_up(const struct remote *r)
{
    return pq_link_is_up(((const struct postgresql *)r)->link);
}

static bool postgresql_allows_name(struct remote *r, const char *name)
{
    (void)r, (void)name;
    return true;
}

static void postgresql_forget(struct remote *r, uint64_t call)
{
    pq_link_forget(((struct postgresql *)r)->link, call);
}

static void postgresql_status(struct remote *r, struct backend_status *status)
{
    struct postgresql *p = (struct postgresql *)r;
    struct pq_counts counts = pq_link_counts(p->link);
    const GPtrArray *warnings = pq_link_warnings(p->link);
    const char *why = pq_link_error(p->link);
    status->away = *why;
    status->since = counts.since;
    status->why = status->away ? g_strdup(why) : NULL;
    status->address = g_strdup(pq_link_address(p->link));
    status->round_trips = counts.requests;
    status->reconnects = counts.reconnects;
    for (guint i = 0; i < warnings->len; i++) {
        g_ptr_array_add(status->warnings, g_strdup(warnings->pdata[i]));
    }
    if (pq_link_refusal(p->link)) {
        g_ptr_array_add(status->warnings, g_strdup(pq_link_refusal(p->link)));
    }
    epoch_fill_status(&p->epoch, status);
    g_ptr_array_add(status->details, g_strdup_printf("channel: leasefs_%s", p->mount));
}

static bool postgresql_is_recovering(const struct remote *r)
{
    return ((const struct postgresql *)r)->recovery;
}

static const struct remote_store store = {
    .name = "postgresql",
    .features = BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_CAN_RENAME | BACKEND_CAN_REPLACE | BACKEND_CAN_SHARE,
    .safety = BACKEND_SINGLE,
    .start = postgresql_start,
    .free = postgresql_free,
    .is_up = postgresql_is_up,
    .allows_name = postgresql_allows_name,
    .send = pq_send_request,
    .renew = pq_send_renewals,
    .forget = postgresql_forget,
    .heartbeat = pq_send_heartbeat,
    .watch_name = pq_watch_name,
    .recover = pq_recover,
    .is_recovering = postgresql_is_recovering,
    .status = postgresql_status,
};

int postgresql_new(const struct postgresql_options *options, struct backend **ret, char *error, size_t error_size)
{
    int64_t timeout = options->timeout ? options->timeout : POSTGRESQL_TIMEOUT_DEFAULT;
    char mount[POSTGRESQL_MOUNT_SIZE], host[256] = "";
    struct pq_connection made = {.conn = NULL};
    struct pq_target target;
    guint64 random;
    int result = pq_target_parse(options->uri, options->user, options->password, timeout, &target, error, error_size);
    if (result < 0) {
        return result;
    }
    target.shedlock = g_strdup(options->shedlock);
    while (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
    }
    g_snprintf(mount, sizeof mount, "%016" G_GINT64_MODIFIER "x", random);
    if (!options->background) {
        pq_connect(&target, mount, true, &made);
    }
    if (!options->background && !made.conn) {
        const char *why = made.error; /* with libpq's own texts */
        bool away = strstr(why, "Is the server running"), silent = strstr(why, "timeout expired");
        bool standby = strstr(why, "hot standby mode");
        snprintf(error, error_size,
                 away ? "%s: %s Start it, or correct the address, or mount with the option background, which waits "
                        "for the server"
                 : silent
                     ? "%s: %s: see what listens there, or mount with the option background, which waits for the server"
                 : standby ? "%s: %s: give its primary, or all hosts: postgresql://HOST,HOST/DB"
                           : "%s: %s",
                 target.address, why);
        pq_connection_clear(&made);
        pq_target_clear(&target);
        return -ECONNREFUSED;
    }
    struct postgresql *p = g_new0(struct postgresql, 1);
    result = remote_init(&p->remote, &store, options->seed);
    if (result < 0) {
        snprintf(error, error_size, "cannot make a timer: %s", g_strerror(-result));
        pq_connection_clear(&made);
        pq_target_clear(&target);
        g_free(p);
        return result;
    }
    gethostname(host, sizeof host - 1);
    g_strlcpy(p->mount, mount, sizeof p->mount);
    p->identity = g_strdup(options->identity ? options->identity : p->mount);
    p->host = g_strdup(host);
    p->address = g_strdup(made.address ? made.address : target.address);
    epoch_init(&p->epoch, &p->remote, &pq_epoch_store, p->address, options->term,
               options->grace ? options->grace : EPOCH_GRACE_MAX, options->strict);
    p->remote.timeout = timeout;
    p->link = pq_link_new(&target, mount, timeout, &made);
    pq_connection_clear(&made);
    *ret = &p->remote.backend;
    return 0;
}

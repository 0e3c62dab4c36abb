/* marker: the marker of the epoch in the server, for backend/remote/epoch.h; leasefs.enter_epoch reads and writes it.
 */
#include <string.h>

#include "backend/postgresql/private.h"

/* False: the answer is not a valid marker.  The stamp is borrowed. */
static bool marker_read(const PGresult *rows, struct epoch_marker *ret)
{
    const char *stamp = pq_text(rows, 0, "stamp"), *state = pq_text(rows, 0, "state");
    struct epoch_marker marker = {
        .stamp = stamp,
        .state = *state == 'f'   ? EPOCH_FRESH
                 : *state == 'c' ? EPOCH_CLOSED
                                 : EPOCH_OPEN,
        .longest = pq_number(rows, 0, "longest"),
        .others = pq_number(rows, 0, "others"),
        .reports = pq_number(rows, 0, "reports"),
        .lost_data = *pq_text(rows, 0, "lost") == 't',
    };
    size_t length = strlen(stamp);
    if (length == 0 || length >= EPOCH_STAMP_SIZE || strspn(stamp, "0123456789abcdef") != length ||
        strlen(state) != 1 || !strchr("fco", *state) || marker.longest < 0 || marker.others < 0 || marker.reports < 0) {
        return false;
    }
    *ret = marker;
    return true;
}

static void marker_on_answer(void *arg, const struct pq_answer *answer)
{
    struct postgresql *p = arg;
    struct epoch_marker marker;
    bool read = answer->outcome == REMOTE_ANSWERED && marker_read(answer->rows, &marker);
    if (read && pq_link_is_entering(p->link)) {
        epoch_set_marker(&p->epoch, &marker, true);
        pq_link_enter(p->link);
    } else if (read) {
        epoch_on_marker(&p->epoch, &marker);
    } else if (pq_link_is_entering(p->link)) {
        pq_marker_enter(p);
    } else {
        epoch_on_failure(&p->epoch, answer->outcome == REMOTE_UNKNOWN);
    }
}

static void marker_ask(struct remote *remote)
{
    struct postgresql *p = (struct postgresql *)remote;
    struct pq_parameters f = {.count = 0};
    struct epoch_report report;
    epoch_report(&p->epoch, &report);
    pq_add_text(&f, p->mount);
    pq_add_text(&f, report.stamp);
    pq_add_text(&f, report.fresh);
    pq_add_number(&f, report.term);
    pq_add_number(&f, report.others);
    pq_add_number(&f, report.reports);
    pq_add_number(&f, report.grace_max);
    pq_add_number(&f, report.closed_for);
    pq_add_flag(&f, report.restored);
    pq_add_flag(&f, report.strict);
    postgresql_send(p, PQ_ENTER, &f, 0, marker_on_answer, p);
}

void pq_marker_enter(struct postgresql *p)
{
    epoch_on_connect(&p->epoch);
    marker_ask(&p->remote);
}

static void marker_set_stamp(struct remote *remote, const char *stamp, bool changed)
{
    (void)changed;
    pq_link_set_stamp(((struct postgresql *)remote)->link, stamp);
}

const struct epoch_store pq_epoch_store = {
    .ask = marker_ask,
    .set_stamp = marker_set_stamp,
};

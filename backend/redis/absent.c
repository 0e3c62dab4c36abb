/* absent: names that this mount has given back, and that nobody has taken since.
 *
 * The kernel looks a name up before it makes the file, so who takes a lock again and again waits three times for the
 * server.  With lookup=told the question of the look-up leaves in one write with the release of a name that was looked
 * up soon after the last one, and the server is to tell of any change behind its answer (CLIENT TRACKING).  If that was
 * "nothing is there", it answers one look-up, at most ABSENT_KEPT after the release was sent, since the connection on
 * which the server tells may have been cut, and only if nothing that it has told is still to be read.  Whatever takes a
 * lock asks the server.
 */
#include <string.h>

#include "backend/redis/private.h"

#define ABSENT_KEPT 100 /* ms, as leasefs(7) says */
#define ABSENT_MAX 1024 /* names, the last given back */

struct redis_absent {
    TAILQ_ENTRY(redis_absent) link;
    struct redis *r;
    char *name;
    clock_ms since;   /* when it was last given back */
    uint64_t request; /* the question that is under way; 0: none */
    bool known;       /* the server has said that nothing is there, and nothing else since */
    bool wanted;      /* it was looked up within ABSENT_KEPT of that */
};

static void absent_forget(struct redis_absent *absent)
{
    if (absent->request) {
        redis_conn_forget(absent->r->conn, absent->request);
    }
    absent->request = 0;
    absent->known = false;
}

static void absent_drop(struct redis_absent *absent)
{
    struct redis *r = absent->r;
    absent_forget(absent);
    TAILQ_REMOVE(&r->absent, absent, link);
    g_hash_table_remove(r->absents, absent->name);
    g_free(absent->name);
    g_free(absent);
}

static struct redis_absent *absent_of(struct redis *r, const char *name)
{
    struct redis_absent *absent = g_hash_table_lookup(r->absents, name);
    if (absent) {
        absent_forget(absent);
        TAILQ_REMOVE(&r->absent, absent, link);
    } else {
        absent = g_new0(struct redis_absent, 1);
        absent->r = r;
        absent->name = g_strdup(name);
        g_hash_table_insert(r->absents, absent->name, absent);
    }
    TAILQ_INSERT_HEAD(&r->absent, absent, link);
    if (g_hash_table_size(r->absents) > ABSENT_MAX) {
        absent_drop(TAILQ_LAST(&r->absent, redis_absents));
    }
    return absent;
}

static void absent_on_answer(void *arg, const struct redis_answer *answer)
{
    struct redis_absent *absent = arg;
    absent->request = 0;
    absent->known =
        answer->outcome == REMOTE_ANSWERED && answer->reply->type == REDIS_REPLY_INTEGER && answer->reply->integer == 0;
}

void redis_absent_given_back(struct redis *r, const char *name)
{
    if (!r->lookup_told || redis_is_numbered(remote_leaf(name))) {
        return;
    }
    struct redis_absent *absent = absent_of(r, name);
    absent->since = clock_now();
    if (absent->wanted) {
        struct redis_there there;
        redis_there_fill(&there, r, name);
        absent->request =
            redis_conn_ask_behind(r->conn, there.words, G_N_ELEMENTS(there.words), absent_on_answer, absent);
        redis_there_clear(&there);
    }
    absent->wanted = false;
}

bool redis_absent_take(struct redis *r, const char *name)
{
    struct redis_absent *absent = g_hash_table_lookup(r->absents, name);
    bool in_time = absent && clock_now() - absent->since < ABSENT_KEPT;
    if (!in_time) {
        return false;
    }
    bool is = absent->known && redis_conn_is_told(r->conn);
    absent->known = false;
    absent->wanted = true;
    return is;
}

void redis_absent_forget(struct redis *r, const char *name)
{
    struct redis_absent *absent = name ? g_hash_table_lookup(r->absents, name) : TAILQ_FIRST(&r->absent), *next;
    for (; absent; absent = next) {
        next = name ? NULL : TAILQ_NEXT(absent, link);
        absent_forget(absent);
    }
}

void redis_absent_end_all(struct redis *r)
{
    while (!TAILQ_EMPTY(&r->absent)) {
        absent_drop(TAILQ_FIRST(&r->absent));
    }
}

/* attempt: connects in a thread, because libpq blocks while it looks host names up and reads files. */
#include <pthread.h>
#include <signal.h>

#include "backend/postgresql/private.h"

struct pq_attempt {
    pthread_mutex_t mutex; /* of `abandoned` and `done` */
    bool abandoned, done;
    struct pq_target target;
    char mount[POSTGRESQL_MOUNT_SIZE];
    bool first;
    struct pq_connection made;
    struct ev_loop *loop;
    ev_async *wake;
};

static void attempt_free(struct pq_attempt *attempt)
{
    pq_connection_clear(&attempt->made);
    pq_target_clear(&attempt->target);
    pthread_mutex_destroy(&attempt->mutex);
    g_free(attempt);
}

static void *attempt_run(void *arg)
{
    struct pq_attempt *attempt = arg;
    pq_connect(&attempt->target, attempt->mount, attempt->first, &attempt->made);
    pthread_mutex_lock(&attempt->mutex);
    bool abandoned = attempt->abandoned;
    attempt->done = true;
    if (!abandoned) {
        ev_async_send(attempt->loop, attempt->wake);
    }
    pthread_mutex_unlock(&attempt->mutex);
    if (abandoned) {
        attempt_free(attempt);
    }
    return NULL;
}

struct pq_attempt *pq_attempt_start(const struct pq_target *target, const char *mount, bool first, struct ev_loop *loop,
                                    ev_async *wake)
{
    struct pq_attempt *attempt = g_new0(struct pq_attempt, 1);
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    pthread_mutex_init(&attempt->mutex, NULL);
    pq_target_copy(&attempt->target, target);
    g_strlcpy(attempt->mount, mount, sizeof attempt->mount);
    attempt->first = first;
    attempt->loop = loop;
    attempt->wake = wake;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    bool runs = pthread_create(&thread, &detached, attempt_run, attempt) == 0;
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!runs) {
        attempt_free(attempt);
        attempt = NULL;
    }
    return attempt;
}

bool pq_attempt_end(struct pq_attempt *attempt, struct pq_connection *ret)
{
    pthread_mutex_lock(&attempt->mutex);
    bool done = attempt->done;
    pthread_mutex_unlock(&attempt->mutex);
    if (done) {
        *ret = attempt->made;
        attempt->made = (struct pq_connection){.conn = NULL};
        attempt_free(attempt);
    }
    return done;
}

void pq_attempt_abandon(struct pq_attempt *attempt)
{
    pthread_mutex_lock(&attempt->mutex);
    bool done = attempt->done;
    attempt->abandoned = true;
    pthread_mutex_unlock(&attempt->mutex);
    if (done) {
        attempt_free(attempt);
    }
}

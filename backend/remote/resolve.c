/* resolve: the addresses of a host.
 *
 * A look-up belongs to the loop and to its thread, and is freed by the last of
 * them: getaddrinfo(3) cannot be interrupted, so the loop may go before it ends.
 */
#include "backend/remote/resolve.h"

#include <ev.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

struct remote_resolve {
    char *host;
    char port[8];
    int flags;
    remote_resolved *done;
    void *arg;
    struct ev_async ended;

    pthread_mutex_t mutex; /* for what follows */
    struct ev_loop *loop;  /* NULL: nobody waits for it any more */
    bool returned;         /* the thread is done with it */
    int error;
    struct addrinfo *found;
};

GArray *remote_resolve_path(const char *path)
{
    struct remote_address at = {.length = sizeof(struct sockaddr_un)};
    struct sockaddr_un *address = (struct sockaddr_un *)&at.address;
    address->sun_family = AF_UNIX;
    g_strlcpy(address->sun_path, path, sizeof(address->sun_path));
    GArray *addresses = g_array_new(FALSE, FALSE, sizeof(at));
    g_array_append_val(addresses, at);
    return addresses;
}

static GArray *resolve_collect(const struct addrinfo *found)
{
    GArray *addresses = g_array_new(FALSE, FALSE, sizeof(struct remote_address));
    for (; found; found = found->ai_next) {
        struct remote_address at = {.length = found->ai_addrlen};
        memcpy(&at.address, found->ai_addr, found->ai_addrlen);
        g_array_append_val(addresses, at);
    }
    return addresses;
}

static int resolve_look_up(const char *host, const char *port, int flags, struct addrinfo **ret_found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(host, port, &hints, ret_found);
}

GArray *remote_resolve_numeric(const char *host, uint16_t port)
{
    const char *why;
    return remote_resolve_now(host, port, AI_NUMERICHOST, &why);
}

GArray *remote_resolve_now(const char *host, uint16_t port, int flags, const char **ret_why)
{
    struct addrinfo *found;
    char service[8];
    g_snprintf(service, sizeof(service), "%u", port);
    int error = resolve_look_up(host, service, flags, &found);
    if (error) {
        *ret_why = gai_strerror(error);
        return NULL;
    }
    GArray *addresses = resolve_collect(found);
    freeaddrinfo(found);
    return addresses;
}

static void resolve_free(struct remote_resolve *resolve)
{
    if (resolve->found) {
        freeaddrinfo(resolve->found);
    }
    pthread_mutex_destroy(&resolve->mutex);
    g_free(resolve->host);
    g_free(resolve);
}

static void *resolve_run_thread(void *arg)
{
    struct remote_resolve *resolve = arg;
    struct addrinfo *found = NULL;
    int error = resolve_look_up(resolve->host, resolve->port, resolve->flags, &found);
    pthread_mutex_lock(&resolve->mutex);
    resolve->error = error;
    resolve->found = error ? NULL : found;
    resolve->returned = true;
    bool forgotten = !resolve->loop;
    if (!forgotten) {
        ev_async_send(resolve->loop, &resolve->ended);
    }
    pthread_mutex_unlock(&resolve->mutex);
    if (forgotten) {
        resolve_free(resolve);
    }
    return NULL;
}

static void resolve_on_ended(struct ev_loop *loop, struct ev_async *watcher, int events)
{
    struct remote_resolve *resolve = watcher->data;
    (void)events;
    pthread_mutex_lock(&resolve->mutex); /* until the thread has let go of it */
    pthread_mutex_unlock(&resolve->mutex);
    ev_async_stop(loop, &resolve->ended);
    if (resolve->error) {
        resolve->done(resolve->arg, NULL, gai_strerror(resolve->error));
    } else {
        resolve->done(resolve->arg, resolve_collect(resolve->found), NULL);
    }
    resolve_free(resolve);
}

static int resolve_start_thread(struct remote_resolve *resolve)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals are for the loop */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&thread, &attributes, resolve_run_thread, resolve);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return r;
}

struct remote_resolve *remote_resolve_start(struct ev_loop *loop, const char *host, uint16_t port, int flags,
                                            remote_resolved *done, void *arg)
{
    struct remote_resolve *resolve = g_new0(struct remote_resolve, 1);
    resolve->host = g_strdup(host);
    g_snprintf(resolve->port, sizeof(resolve->port), "%u", port);
    resolve->flags = flags;
    resolve->done = done;
    resolve->arg = arg;
    resolve->loop = loop;
    pthread_mutex_init(&resolve->mutex, NULL);
    ev_async_init(&resolve->ended, resolve_on_ended);
    resolve->ended.data = resolve;
    ev_async_start(loop, &resolve->ended);
    if (resolve_start_thread(resolve) != 0) {
        ev_async_stop(loop, &resolve->ended);
        resolve_free(resolve);
        return NULL;
    }
    return resolve;
}

void remote_resolve_cancel(struct remote_resolve *resolve)
{
    if (!resolve) {
        return;
    }
    pthread_mutex_lock(&resolve->mutex);
    ev_async_stop(resolve->loop, &resolve->ended);
    resolve->loop = NULL;
    bool returned = resolve->returned;
    pthread_mutex_unlock(&resolve->mutex);
    if (returned) {
        resolve_free(resolve);
    }
}

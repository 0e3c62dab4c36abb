/* watch: watches names that others hold, for backend/remote/watch.c.
 *
 * The server keeps a list of the mounts that watch a ticket, and notifies them when it is released.  Nothing notifies
 * when it expires, so a mount reads the name again at its deadline.
 */
#include <string.h>

#include "backend/postgresql/private.h"

static void watch_on_answer(void *arg, const struct pq_answer *answer)
{
    struct remote_request *request = arg;
    bool answered = answer->outcome == REMOTE_ANSWERED;
    int64_t left = answered ? g_ascii_strtoll(PQgetvalue(answer->rows, 0, 0), NULL, 10) : 0;
    if (left < 0) {
        remote_watch_gone(request->r, request->name);
    } else {
        remote_watch_later(request->r, request->name, answered ? MIN(left + 1, 3600000) : 1000);
    }
    remote_request_free(request);
}

void pq_watch_name(struct remote *r, const char *name)
{
    struct postgresql *p = (struct postgresql *)r;
    struct remote_request *request = remote_request_new(r, REMOTE_NO_PROCEDURE, NULL, name);
    struct pq_parameters f = {.count = 0};
    pq_add_name(&f, name);
    pq_add_text(&f, p->mount);
    postgresql_send(p, PQ_WATCH, &f, 0, watch_on_answer, request);
}

static char *watch_unhex(const char *text, size_t length)
{
    GString *plain = g_string_new(NULL);
    for (size_t i = 0; i + 1 < length; i += 2) {
        g_string_append_c(plain, (char)(g_ascii_xdigit_value(text[i]) << 4 | g_ascii_xdigit_value(text[i + 1])));
    }
    return g_string_free(plain, FALSE);
}

void pq_watch_on_released(struct postgresql *p, const char *text)
{
    size_t length = strcspn(text, " ");
    char *path = watch_unhex(text, length),
         *name = text[length] ? watch_unhex(text + length + 1, strlen(text) - length - 1) : NULL;
    char *whole = name && *name ? g_strconcat(strcmp(path, "/") == 0 ? "" : path, name, NULL) : g_strdup(path);
    remote_watch_changed(&p->remote, whole);
    g_free(whole);
    g_free(path);
    g_free(name);
}

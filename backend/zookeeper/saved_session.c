/* saved_session: the session of this mount in a journal, for the next daemon.
 *
 * The id and password of a session give all rights of its mount.  So they are in a file of mode 0600, in a directory
 * that nobody else can write to; see journal.h.  Without this file the locks of a killed daemon end with the session.
 */
#include <stdio.h>
#include <string.h>

#include "backend/journal/journal.h"
#include "backend/log.h"
#include "backend/zookeeper/private.h"

enum { STATE_SESSION = 1, STATE_CLOSED = 2 }; /* "ID PASSWORD IDENTITY", the first two in hexadecimal; empty */

#define STATE_PASSWORD (sizeof(((clientid_t *)NULL)->passwd))

/* The last record counts.  Ignores a session of another mount or ensemble. */
static int saved_session_replay(void *arg, uint8_t type, const void *payload, size_t length)
{
    struct zookeeper *z = arg;
    clientid_t saved = {0};
    char *text = g_strndup(payload, length), **words = g_strsplit(text, " ", 3);
    z->saved = (clientid_t){0};
    if (type == STATE_SESSION && g_strv_length(words) == 3 && strcmp(words[2], z->identity) == 0 &&
        strlen(words[1]) == 2 * STATE_PASSWORD) {
        saved.client_id = (int64_t)g_ascii_strtoull(words[0], NULL, 16);
        for (size_t i = 0; i < STATE_PASSWORD; i++) {
            saved.passwd[i] =
                (char)(g_ascii_xdigit_value(words[1][2 * i]) << 4 | g_ascii_xdigit_value(words[1][2 * i + 1]));
        }
        z->saved = saved;
    }
    g_strfreev(words);
    g_free(text);
    return 0;
}

void saved_session_open(struct zookeeper *z, const char *directory)
{
    char error[512];
    uint64_t cut = 0;
    if (!directory) {
        return;
    }
    if (journal_open(directory, saved_session_replay, z, &z->state, &cut, error, sizeof error) < 0) {
        log_warning("state=: if this daemon is killed, the next one will not find its leases: %s", error);
        z->state = NULL;
        z->saved = (clientid_t){0};
    } else if (cut > 0) {
        log_warning("%s: a torn end of %" G_GUINT64_FORMAT " bytes was cut off", directory, cut);
    }
}

void saved_session_write(struct zookeeper *z, const clientid_t *id)
{
    GString *text = g_string_new(NULL);
    z->saved = id ? *id : (clientid_t){0};
    if (!z->state) {
        g_string_free(text, TRUE);
        return;
    }
    if (id) {
        g_string_append_printf(text, "%016" G_GINT64_MODIFIER "x ", (guint64)id->client_id);
        for (size_t i = 0; i < STATE_PASSWORD; i++) {
            g_string_append_printf(text, "%02x", (unsigned char)id->passwd[i]);
        }
        g_string_append_printf(text, " %s", z->identity);
    }
    int result = journal_append(z->state, id ? STATE_SESSION : STATE_CLOSED, text->str, text->len);
    result = result == 0 ? journal_commit(z->state) : result;
    if (result < 0) {
        log_warning("the session cannot be noted, so the next daemon will not find its leases: %s",
                    g_strerror(-result));
    }
    explicit_bzero(text->str, text->len);
    g_string_free(text, TRUE);
}

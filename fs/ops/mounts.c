/* mounts: see mounts.h. */
#include "config.h"

#include "fs/ops/mounts.h"

#include <inttypes.h>
#include <string.h>

#include "backend/log.h"
#include "fs/kernel/request.h"
#include "fs/ops/xattr_private.h"

#define MOUNTS_VALUE 65536 /* bytes of a value: XATTR_SIZE_MAX of the kernel */

static void mounts_format(GString *line, const char *host, const char *version, const char *age)
{
    char shown_host[1024], shown_version[256];
    int64_t ms = g_ascii_strtoll(age, NULL, 10);
    g_string_printf(line, "%s\t%s\t", log_escape(shown_host, sizeof shown_host, host),
                    log_escape(shown_version, sizeof shown_version, version));
    if (g_ascii_isdigit(*age)) {
        g_string_append_printf(line, "%" PRId64 ".%03d\n", ms / 1000, (int)(ms % 1000));
    } else {
        g_string_append(line, "-\n");
    }
}

/* For a store that does not know other mounts. */
static void mounts_format_own(GString *line, const struct fs *fs)
{
    g_autofree char *age = g_strdup_printf("%" PRId64, clock_now() - fs->started);
    mounts_format(line, fs->host, PACKAGE_VERSION, age);
}

static void mounts_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    gsize size = 0;
    const char *data = result == BACKEND_OK && info->content ? g_bytes_get_data(info->content, &size) : NULL;
    g_autofree char *text = g_strndup(data ? data : "", size);
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    GString *value = g_string_new(NULL), *line = g_string_new(NULL);
    if (result == BACKEND_UNSUPPORTED) {
        mounts_format_own(value, r->fs);
    }
    for (size_t i = 0; lines[i]; i++) {
        g_auto(GStrv) words = g_strsplit(lines[i], "\t", 3); /* version, host, age */
        if (g_strv_length(words) == 3) {
            mounts_format(line, words[1], words[0], words[2]);
            g_string_append_len(value, line->str, value->len + line->len <= MOUNTS_VALUE ? (gssize)line->len : 0);
        }
    }
    if (result == BACKEND_OK || result == BACKEND_UNSUPPORTED) {
        xattr_reply(r, value->str, value->len);
    } else {
        request_reply(r, -EIO);
    }
    g_string_free(line, TRUE);
    g_string_free(value, TRUE);
}

void mounts_get(struct request *r, size_t size)
{
    r->xattr.size = size;
    backend_mounts(r->fs->backend, mounts_known, r);
}

/* fuzz_attribute: the input is attributes to set, of a held lock, a directory and the top directory: a byte that
 * selects one, a byte with the length of its value, and the value.  Each is read again. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

#include "backend/log.h"
#include "fs/options/options.h"
#include "tests/fuzz/fuzz.h"
#include "tests/message/wire.h"

static const char *const names[] = {"ttl",   "width", "delay", "check",   "release", "break", "state",
                                    "token", "owner", "mode",  "waiters", "name",    "kind",  "remaining"};

static uint64_t set_value(struct wire *w, uint64_t node, const char *name, const uint8_t *value, size_t size)
{
    GByteArray *body = g_byte_array_new();
    struct fuse_setxattr_in in = {.size = (uint32_t)size};
    g_byte_array_append(body, (const guint8 *)name, (guint)strlen(name) + 1);
    g_byte_array_append(body, value, (guint)size);
    uint64_t unique = wire_send(w, FUSE_SETXATTR, node, &in, FUSE_COMPAT_SETXATTR_IN_SIZE, body->data, body->len);
    g_byte_array_unref(body);
    return unique;
}

/* The allowed errors for a value; and an accepted term is a valid one. */
static void check(struct wire *w, uint64_t node, const char *name, int result)
{
    static const int errors[] = {0, EINVAL, EPERM, EOPNOTSUPP, ESTALE, EACCES, ENOENT, EBUSY, ERANGE, ENODATA};
    bool known = false;
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        known = known || result == errors[i];
    }
    FUZZ_MUST(known);
    if (result == 0 && strcmp(name, "user.lease.ttl") == 0) {
        char *text = wire_xattr(w, node, name);
        int64_t ms;
        FUZZ_MUST(!*text || options_duration(text, strlen(text), &ms) == 0);
        g_free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes bytes = {data, size};
    log_set_level(LOG_LEVEL_ERROR);
    struct wire *w = wire_new(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_SOLE_AUTHORITY);
    uint64_t directory = wire_node(w, wire_mkdir(w, "dir"));
    while (bytes.left > 1) {
        struct wire_file file = wire_created(w, "lock", O_WRONLY);
        uint64_t nodes[] = {file.node, directory, FUSE_ROOT_ID};
        uint32_t which = fuzz_byte(&bytes);
        uint64_t node = nodes[which % G_N_ELEMENTS(nodes)];
        size_t length = fuzz_byte(&bytes);
        char *name = g_strconcat("user.lease.", names[which / G_N_ELEMENTS(nodes) % G_N_ELEMENTS(names)], NULL);
        length = MIN(length, bytes.left);
        wire_touch(w, file.node, &file);
        wire_turn(w);
        check(w, node, name, wire_result(w, set_value(w, node, name, bytes.data, length)));
        bytes.data += length;
        bytes.left -= length;
        wire_close(w, file);
        wire_unlink(w, "lock");
        wire_turn(w);
        g_free(name);
    }
    wire_free(w);
    return 0;
}

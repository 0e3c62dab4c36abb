/* fuzz_options: the input is a command line, one word a line; after a ! it is for mount.leasefs.  Accepted values are
 * within their bounds, and a refusal is one line. */
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

#include "fs/options/options.h"
#include "tests/fuzz/fuzz.h"

#define WORDS_MAX 32

static void check(const struct options *o)
{
    FUZZ_MUST(o->ttl >= LEASE_TTL_MIN && o->ttl <= LEASE_TTL_MAX);
    FUZZ_MUST((o->mode & ~(mode_t)07777) == 0 && (o->lock_mode & ~(mode_t)0777) == 0);
    FUZZ_MUST(!o->mountpoint || *o->mountpoint == '/');
    FUZZ_MUST(!o->directory || *o->directory == '/');
    FUZZ_MUST(!o->credentials || *o->credentials == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool helper = size > 0 && *data == '!';
    char *text = g_strndup((const char *)data + helper, size - helper), error[512] = "";
    char **words = g_strsplit(text, "\n", WORDS_MAX), *argv[WORDS_MAX + 2] = {helper ? "mount.leasefs" : "leasefs"};
    struct options options = {0};
    int argc = 1;
    for (char **word = words; *word; word++) {
        argv[argc++] = *word;
    }
    int result = options_parse(&options, argc, argv, error, sizeof error);
    if (result == 0 && !options.show_help && !options.show_version) {
        check(&options);
    } else if (result != 0) {
        FUZZ_MUST(result == -EINVAL && *error && !strchr(error, '\n'));
    }
    options_clear(&options);
    g_strfreev(words);
    g_free(text);
    return 0;
}

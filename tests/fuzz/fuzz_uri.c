/* fuzz_uri: the input is a URI, for each kind of store that has one.  An accepted one, as it is shown, is accepted
 * again with the same meaning. */
#include <glib.h>
#include <string.h>

#include "backend/redis/conn/uri.h"
#include "backend/redlock/redlock.h"
#include "backend/zookeeper/zookeeper.h"
#include "tests/fuzz/fuzz.h"

static void check_refused(const char *error)
{
    FUZZ_MUST(*error && !strchr(error, '\n'));
}

static void take_redis(const char *text)
{
    struct redis_uri uri, again;
    char error[256] = "";
    int result = redis_uri_parse(&uri, text, error, sizeof error);
    if (result == 0) {
        char *shown = redis_uri_show(&uri), *twice;
        FUZZ_MUST(!!uri.host + !!uri.path + !!uri.hosts == 1);
        FUZZ_MUST(!!uri.hosts == (uri.kind != REDIS_SERVER) && !!uri.name == (uri.kind == REDIS_SENTINEL));
        FUZZ_MUST(uri.database >= 0 && uri.database <= 65535);
        FUZZ_MUST(redis_uri_parse(&again, shown, error, sizeof error) == 0);
        twice = redis_uri_show(&again);
        FUZZ_MUST(strcmp(shown, twice) == 0);
        FUZZ_MUST(g_strcmp0(uri.host, again.host) == 0 && g_strcmp0(uri.path, again.path) == 0);
        FUZZ_MUST(uri.port == again.port && uri.database == again.database && uri.tls == again.tls);
        FUZZ_MUST(uri.kind == again.kind && g_strcmp0(uri.name, again.name) == 0);
        FUZZ_MUST(g_strcmp0(uri.prefix, again.prefix) == 0);
        for (size_t i = 0; uri.hosts && uri.hosts[i]; i++) {
            FUZZ_MUST(g_strcmp0(uri.hosts[i], again.hosts[i]) == 0 && uri.ports[i] == again.ports[i]);
        }
        g_free(shown);
        g_free(twice);
        redis_uri_clear(&again);
    } else {
        check_refused(error);
    }
    redis_uri_clear(&uri);
}

static void take_redlock(const char *text)
{
    struct redlock_uri uri;
    char error[512] = "";
    if (redlock_uri_parse(&uri, text, error, sizeof error) == 0) {
        FUZZ_MUST(uri.count >= 3 && uri.servers[uri.count - 1].host);
        redlock_uri_clear(&uri);
    } else {
        check_refused(error);
    }
}

static void take_zookeeper(const char *text)
{
    struct zookeeper_uri uri;
    char error[512] = "";
    if (zookeeper_uri_parse(&uri, text, error, sizeof error) == 0) {
        FUZZ_MUST(*uri.hosts && **uri.hosts && uri.ports[0] && uri.chroot);
        zookeeper_uri_clear(&uri);
    } else {
        check_refused(error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = g_strndup((const char *)data, size);
    take_redis(text);
    take_redlock(text);
    take_zookeeper(text);
    g_free(text);
    return 0;
}

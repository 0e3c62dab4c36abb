/* declared_keys: in a program that is linked with --wrap (see Makefile.am), each script of the Redis backend fails that
 * uses a key which is not among its KEYS; then the program's checks fail.  With LUA_LINES, which counts the lines of
 * scripts, scripts are sent unchanged.
 */
#include <glib.h>

#include "backend/redis/script.h"

static const char prelude[] =
    "local redis = (function(real)\n"
    "  local declared, without, all = {}, {TIME = 0, PUBLISH = 0, INFO = 0}, {DEL = 1, EXISTS = 1, MGET = 1}\n"
    "  for _, key in ipairs(KEYS) do declared[key] = true end\n"
    "  local function check(command, ...)\n"
    "    for i = 1, all[command] and select('#', ...) or without[command] or 1 do\n"
    "      local key = (select(i, ...))\n"
    "      if not declared[key] then error('undeclared key: ' .. command .. ' ' .. tostring(key)) end\n"
    "    end\n"
    "  end\n"
    "  local function call(...) check(...) return real.call(...) end\n"
    "  local function pcall(...) check(...) return real.pcall(...) end\n"
    "  return setmetatable({call = call, pcall = pcall}, {__index = real})\n"
    "end)(redis)\n";

static struct redis_script guarded[REDIS_SCRIPTS];

struct redis_conn *__real_redis_conn_new(const struct redis_conn_options *options, const struct redis_script *scripts,
                                         size_t count);
struct redis_conn *__wrap_redis_conn_new(const struct redis_conn_options *options, const struct redis_script *scripts,
                                         size_t count);
uint64_t __real_redis_conn_call(struct redis_conn *conn, const struct redis_script *script, size_t keys,
                                const struct redis_argument *arguments, size_t count, int64_t timeout,
                                redis_answered *answered, void *arg);
uint64_t __wrap_redis_conn_call(struct redis_conn *conn, const struct redis_script *script, size_t keys,
                                const struct redis_argument *arguments, size_t count, int64_t timeout,
                                redis_answered *answered, void *arg);

struct redis_conn *__wrap_redis_conn_new(const struct redis_conn_options *options, const struct redis_script *scripts,
                                         size_t count)
{
    struct redis_conn_options own = *options;
    const char *before = g_getenv("LUA_LINES") ? "" : prelude;
    for (size_t i = 0; i < count && !guarded[count - 1].text; i++) {
        guarded[i] = scripts[i];
        guarded[i].text = g_strconcat(before, scripts[i].text, NULL);
    }
    own.greet = guarded + (options->greet - scripts);
    return __real_redis_conn_new(&own, guarded, count);
}

uint64_t __wrap_redis_conn_call(struct redis_conn *conn, const struct redis_script *script, size_t keys,
                                const struct redis_argument *arguments, size_t count, int64_t timeout,
                                redis_answered *answered, void *arg)
{
    return __real_redis_conn_call(conn, guarded + (script - redis_scripts), keys, arguments, count, timeout, answered,
                                  arg);
}

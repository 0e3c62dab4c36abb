/* redis_model_lua: runs scripts on an embedded Lua 5.1. */
#include <fcntl.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/sim/redis_model_private.h"

#define FOREVER 200000000 /* instructions: no script of ours runs that long */
#define LINES_MAX 4096

struct model_lua {
    struct redis_model *m;
    lua_State *state;
    GHashTable *scripts;     /* hash -> reference of the function */
    GString *reply;          /* of the command that a script has called */
    GArray *words;           /* struct slice: of that command */
    struct model_call *call; /* that runs a script; NULL: none does */
    const char *hash;
    bool dirty; /* it has written */
    uint64_t calls;
    GHashTable *seen; /* hash -> char[LINES_MAX]: which lines of a script have run; NULL: nobody asks */
};

static struct model_lua *lua_of(lua_State *state)
{
    lua_getfield(state, LUA_REGISTRYINDEX, "model");
    struct model_lua *lua = lua_touserdata(state, -1);
    lua_pop(state, 1);
    return lua;
}

/* --- errors --- */

/* Leaves {err = text} on the stack; a text without a code, "-CODE text", gets ERR. */
static void push_error(lua_State *state, const char *text)
{
    const char *blank = *text == '-' ? strchr(text, ' ') : NULL;
    lua_newtable(state);
    if (blank) {
        lua_pushstring(state, text + 1);
    } else {
        lua_pushfstring(state, "ERR %s", *text == '-' ? text + 1 : text);
    }
    lua_setfield(state, -2, "err");
}

/* Adds where it happened, as a server does. */
static int note_place(lua_State *state)
{
    lua_Debug place;
    bool known = lua_getstack(state, 1, &place) && lua_getinfo(state, "Sl", &place);
    if (known && strcmp(place.what, "C") == 0) {
        known = lua_getstack(state, 2, &place) && lua_getinfo(state, "Sl", &place);
    }
    if (!lua_istable(state, 1)) {
        lua_getglobal(state, "tostring");
        lua_pushvalue(state, 1);
        lua_call(state, 1, 1);
        lua_newtable(state);
        lua_pushfstring(state, "ERR %s", lua_tostring(state, -2));
        lua_setfield(state, -2, "err");
        lua_replace(state, 1);
    }
    if (known) {
        lua_pushstring(state, place.source);
        lua_setfield(state, 1, "source");
        lua_pushinteger(state, place.currentline);
        lua_setfield(state, 1, "line");
    }
    lua_settop(state, 1);
    return 1;
}

/* An error is not caught by the script that dies of it. */
static void die(lua_State *state, lua_Debug *unused)
{
    (void)unused;
    push_error(state, "-ERR Script killed by user with SCRIPT KILL.");
    lua_error(state);
}

static void complain_of_length(lua_State *state, lua_Debug *unused)
{
    (void)state, (void)unused;
    g_error("a script has run for %d instructions", FOREVER);
}

/* LUA_LINES names a file that gets a row for each line that runs, of each script once; see lua_lines.py. */
static FILE *open_lines(void)
{
    static FILE *file;
    const char *name = g_getenv("LUA_LINES");
    if (!file && name) { /* the simulator has an open() of its own */
        file = fdopen((int)syscall(SYS_open, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), "a");
        setlinebuf(file); /* of several programs at once */
    }
    return file;
}

static void note_line(lua_State *state, lua_Debug *place)
{
    struct model_lua *lua = lua_of(state);
    if (place->event != LUA_HOOKLINE) {
        complain_of_length(state, place);
    }
    char *seen = g_hash_table_lookup(lua->seen, lua->hash);
    if (!seen) {
        seen = g_new0(char, LINES_MAX);
        g_hash_table_insert(lua->seen, g_strdup(lua->hash), seen);
    }
    if (!seen[place->currentline]) {
        seen[place->currentline] = 1;
        fprintf(open_lines(), "%s %d\n", lua->hash, place->currentline);
    }
}

/* --- replies, from the protocol to Lua's values --- */

static const char *push_reply(lua_State *state, const char *at)
{
    const char *end = strstr(at, "\r\n");
    long long number = strtoll(at + 1, NULL, 10);
    luaL_checkstack(state, 5, "a reply nested too deep");
    switch (*at) {
    case ':':
        lua_pushnumber(state, (lua_Number)number);
        return end + 2;
    case '+':
        lua_newtable(state);
        lua_pushlstring(state, at + 1, (size_t)(end - at) - 1);
        lua_setfield(state, -2, "ok");
        return end + 2;
    case '-':
        lua_newtable(state);
        lua_pushlstring(state, at + 1, (size_t)(end - at) - 1);
        lua_setfield(state, -2, "err");
        return end + 2;
    case '$':
        if (number < 0) {
            lua_pushboolean(state, false);
            return end + 2;
        }
        lua_pushlstring(state, end + 2, (size_t)number);
        return end + 2 + number + 2;
    default:
        lua_newtable(state);
        at = end + 2;
        for (long long i = 1; i <= number; i++) {
            at = push_reply(state, at);
            lua_rawseti(state, -2, (int)i);
        }
        return at;
    }
}

/* --- commands of scripts --- */

/* The words of a command, off the stack of its caller; false: an error is on it. */
static bool read_words(struct model_lua *lua, lua_State *state)
{
    int count = lua_gettop(state);
    g_array_set_size(lua->words, 0);
    if (count == 0) {
        push_error(state, "Please specify at least one argument for this redis lib call");
        return false;
    }
    for (int i = 1; i <= count; i++) {
        struct slice word;
        if (lua_type(state, i) == LUA_TNUMBER) {
            char text[64];
            g_snprintf(text, sizeof text, "%.17g", lua_tonumber(state, i));
            lua_pushstring(state, text);
            lua_replace(state, i);
        }
        if (lua_type(state, i) != LUA_TSTRING) {
            push_error(state, "Lua redis lib command arguments must be strings or integers");
            return false;
        }
        word.data = lua_tolstring(state, i, &word.length);
        g_array_append_val(lua->words, word);
    }
    return true;
}

/* Why a script may not do it now, or NULL. */
static const char *refusal(struct model_lua *lua, const struct model_command *command, size_t argc)
{
    const struct redis_model *m = lua->m;
    if (!command) {
        return "ERR Unknown Redis command called from script";
    }
    if (command->flags & MODEL_NOSCRIPT) {
        return "ERR This Redis command is not allowed from script";
    }
    if (!model_command_fits(command, argc)) {
        return "ERR Wrong number of args calling Redis command from script";
    }
    if (command->flags & MODEL_WRITE && !lua->dirty && model_write_refusal(m)) {
        return model_write_refusal(m);
    }
    if (command->flags & MODEL_DENYOOM && !lua->dirty && m->state[REDIS_MODEL_FULL]) {
        return MODEL_OOM;
    }
    return NULL;
}

static int call_command(lua_State *state, bool raise)
{
    struct model_lua *lua = lua_of(state);
    if (!read_words(lua, state)) {
        return raise ? lua_error(state) : 1;
    }
    struct model_call call = *lua->call;
    call.argv = (const struct slice *)(const void *)lua->words->data;
    call.argc = lua->words->len;
    call.command = model_command_find(lua->m, call.argv, call.argc);
    call.out = lua->reply;
    call.in_script = true;
    g_string_truncate(lua->reply, 0);
    const char *why = refusal(lua, call.command, call.argc);
    if (why) {
        model_say_error(&call, "%s", why);
    } else if (call.command->flags & MODEL_WRITE && !lua->dirty && lua->m->kills > 0) {
        lua->m->kills--;
        lua->m->counts.killed++;
        lua_sethook(state, die, LUA_MASKLINE | LUA_MASKCOUNT, 1);
        die(state, NULL);
    } else {
        lua->dirty = lua->dirty || call.command->flags & MODEL_WRITE;
        lua->calls++;
        model_run(&call);
    }
    lua_settop(state, 0);
    push_reply(state, lua->reply->str);
    return raise && *lua->reply->str == '-' ? lua_error(state) : 1;
}

static int redis_call(lua_State *state)
{
    return call_command(state, true);
}

static int redis_pcall(lua_State *state)
{
    return call_command(state, false);
}

/* --- the rest of the library redis --- */

static int error_reply(lua_State *state)
{
    const char *text = luaL_checkstring(state, 1);
    lua_pushfstring(state, *text == '-' ? "%s" : "-%s", text);
    push_error(state, lua_tostring(state, -1));
    return 1;
}

static int status_reply(lua_State *state)
{
    luaL_checkstring(state, 1);
    lua_newtable(state);
    lua_pushvalue(state, 1);
    lua_setfield(state, -2, "ok");
    return 1;
}

static int sha1hex(lua_State *state)
{
    size_t length = 0;
    const char *data = lua_tolstring(state, 1, &length); /* of what is none that of nothing, as a server has it */
    char *hash = g_compute_checksum_for_data(G_CHECKSUM_SHA1, (const guchar *)(data ? data : ""), data ? length : 0);
    lua_pushstring(state, hash);
    g_free(hash);
    return 1;
}

static int ignore(lua_State *state)
{
    (void)state;
    return 0;
}

/* There is one user, who may all; but as Redis 8.0.2 of Debian 13 it wants a whole command. */
static int acl_check_cmd(lua_State *state)
{
    struct model_lua *lua = lua_of(state);
    if (!read_words(lua, state)) {
        return lua_error(state);
    }
    const struct model_command *command =
        model_command_find(lua->m, (const struct slice *)(const void *)lua->words->data, lua->words->len);
    if (!command || !model_command_fits(command, lua->words->len)) {
        push_error(state, command ? "Wrong number of args for redis.acl_check_cmd()"
                                  : "Invalid command passed to redis.acl_check_cmd()");
        return lua_error(state);
    }
    lua_pushboolean(state, true);
    return 1;
}

static int no_such_global(lua_State *state)
{
    return luaL_error(state, "Script attempted to access nonexistent global variable '%s'", lua_tostring(state, 2));
}

static int no_new_global(lua_State *state)
{
    return luaL_error(state, "Attempt to modify a readonly table");
}

/* As Lua's own, but that what redis.call has raised is caught as a text. */
static int catch (lua_State *state)
{
    luaL_checkany(state, 1);
    int result = lua_pcall(state, lua_gettop(state) - 1, LUA_MULTRET, 0);
    if (result != 0 && lua_istable(state, -1)) {
        lua_getfield(state, -1, "err");
        if (lua_isstring(state, -1)) {
            lua_replace(state, -2);
        }
    }
    lua_pushboolean(state, result == 0);
    lua_insert(state, 1);
    return lua_gettop(state);
}

/* --- running one --- */

const char *model_lua_load(struct model_call *call, const struct slice *text)
{
    struct model_lua *lua = call->m->lua;
    char *hash = g_compute_checksum_for_data(G_CHECKSUM_SHA1, (const guchar *)text->data, text->length);
    gpointer known;
    if (g_hash_table_lookup_extended(lua->scripts, hash, &known, NULL)) {
        g_free(hash);
        return known;
    }
    if (luaL_loadbuffer(lua->state, text->data, text->length, "@user_script") != 0) {
        model_say_error(call, "ERR Error compiling script (new function): %s", lua_tostring(lua->state, -1));
        lua_pop(lua->state, 1);
        g_free(hash);
        return NULL;
    }
    g_hash_table_insert(lua->scripts, hash, GINT_TO_POINTER(luaL_ref(lua->state, LUA_REGISTRYINDEX)));
    return hash;
}

bool model_lua_knows(const struct model_lua *lua, const struct slice *hash)
{
    char *name = g_ascii_strdown(hash->data, (gssize)hash->length);
    bool known = g_hash_table_contains(lua->scripts, name);
    g_free(name);
    return known;
}

void model_forget_scripts(struct redis_model *m)
{
    GHashTableIter at;
    gpointer reference;
    g_hash_table_iter_init(&at, m->lua->scripts);
    while (g_hash_table_iter_next(&at, NULL, &reference)) {
        luaL_unref(m->lua->state, LUA_REGISTRYINDEX, GPOINTER_TO_INT(reference));
    }
    g_hash_table_remove_all(m->lua->scripts);
}

/* A field of the table on top, if it is of that type, on the stack. */
static bool has(lua_State *state, const char *name, int type)
{
    lua_pushstring(state, name);
    lua_rawget(state, -2);
    if (lua_type(state, -1) == type) {
        return true;
    }
    lua_pop(state, 1);
    return false;
}

/* What a script has returned, off the stack. */
static void say_value(struct model_call *call, lua_State *state)
{
    size_t length;
    const char *text;
    if (!lua_checkstack(state, 4)) {
        model_say_error(call, "ERR reached lua stack limit");
        lua_pop(state, 1);
        return;
    }
    switch (lua_type(state, -1)) {
    case LUA_TSTRING:
        text = lua_tolstring(state, -1, &length);
        model_say_bulk(call, text, length);
        break;
    case LUA_TNUMBER:
        model_say_number(call, (int64_t)lua_tonumber(state, -1));
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(state, -1)) {
            model_say_number(call, 1);
        } else {
            model_say_nil(call);
        }
        break;
    case LUA_TTABLE:
        if (has(state, "err", LUA_TSTRING)) {
            model_say_error(call, "%s", lua_tostring(state, -1));
            lua_pop(state, 1);
        } else if (has(state, "ok", LUA_TSTRING)) {
            g_string_append_printf(call->out, "+%s\r\n", lua_tostring(state, -1));
            lua_pop(state, 1);
        } else if (has(state, "double", LUA_TNUMBER)) {
            model_say_score(call, lua_tonumber(state, -1));
            lua_pop(state, 1);
        } else {
            gsize start = call->out->len;
            int count = 0;
            for (;; count++) {
                lua_rawgeti(state, -1, count + 1);
                if (lua_isnil(state, -1)) {
                    lua_pop(state, 1);
                    break;
                }
                say_value(call, state);
            }
            char head[32];
            g_snprintf(head, sizeof head, "*%d\r\n", count);
            g_string_insert(call->out, (gssize)start, head);
        }
        break;
    default:
        model_say_nil(call);
    }
    lua_pop(state, 1);
}

static void set_list(lua_State *state, const char *name, const struct slice *words, size_t count)
{
    lua_createtable(state, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushlstring(state, words[i].data, words[i].length);
        lua_rawseti(state, -2, (int)i + 1);
    }
    lua_pushstring(state, name);
    lua_insert(state, -2);
    lua_rawset(state, LUA_GLOBALSINDEX);
}

static void say_failure(struct model_call *call, const struct model_lua *lua, lua_State *state)
{
    lua_getfield(state, -1, "err");
    lua_getfield(state, -2, "source");
    lua_getfield(state, -3, "line");
    const char *text = lua_tostring(state, -3), *source = lua_tostring(state, -2), *line = lua_tostring(state, -1);
    if (source && line) {
        model_say_error(call, "%s script: %s, on %s:%s.", text ? text : "ERR unknown error", lua->hash, source, line);
    } else {
        model_say_error(call, "%s", text ? text : "ERR unknown error");
    }
    lua_settop(state, 0);
}

void model_lua_run(struct model_call *call, const char *hash, size_t keys, const struct slice *words, size_t count)
{
    struct model_lua *lua = call->m->lua;
    lua_State *state = lua->state;
    if (call->m->state[REDIS_MODEL_REPLICA] && call->m->state[REDIS_MODEL_STALE]) {
        model_say_error(call, "%s", MODEL_MASTERDOWN);
        return;
    }
    lua->call = call;
    lua->hash = hash;
    lua->dirty = false;
    lua->calls = 0;
    call->m->counts.scripts++;
    lua_settop(state, 0);
    set_list(state, "KEYS", words, keys);
    set_list(state, "ARGV", words + keys, count - keys);
    lua_pushcfunction(state, note_place);
    lua_rawgeti(state, LUA_REGISTRYINDEX, GPOINTER_TO_INT(g_hash_table_lookup(lua->scripts, hash)));
    lua_sethook(state, lua->seen ? note_line : complain_of_length, LUA_MASKCOUNT | (lua->seen ? LUA_MASKLINE : 0),
                FOREVER);
    int result = lua_pcall(state, 0, 1, 1);
    lua_sethook(state, NULL, 0, 0);
    if (result != 0) {
        say_failure(call, lua, state);
    } else {
        say_value(call, state);
    }
    lua->call = NULL;
    call->m->counts.calls += lua->calls;
    call->m->counts.longest = MAX(call->m->counts.longest, lua->calls);
}

/* --- beginning and end --- */

static void open_library(lua_State *state, const char *name, lua_CFunction open)
{
    lua_pushcfunction(state, open);
    lua_pushstring(state, name);
    lua_call(state, 1, 0);
}

/* Removes functions that a server does not have, or that would make runs differ. */
static void take_away(lua_State *state, const char *table, const char *const *names)
{
    for (; *names; names++) {
        lua_getglobal(state, table);
        lua_pushnil(state);
        lua_setfield(state, -2, *names);
        lua_pop(state, 1);
    }
}

static void open_redis(lua_State *state)
{
    static const luaL_Reg functions[] = {
        {"call", redis_call}, {"pcall", redis_pcall}, {"error_reply", error_reply},     {"status_reply", status_reply},
        {"sha1hex", sha1hex}, {"log", ignore},        {"acl_check_cmd", acl_check_cmd}, {"replicate_commands", ignore},
        {NULL, NULL},
    };
    static const char *const levels[] = {"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"};
    luaL_register(state, "redis", functions);
    for (size_t i = 0; i < G_N_ELEMENTS(levels); i++) {
        lua_pushnumber(state, (lua_Number)i);
        lua_setfield(state, -2, levels[i]);
    }
    lua_pop(state, 1);
}

static void protect_globals(lua_State *state)
{
    lua_newtable(state);
    lua_pushcfunction(state, no_such_global);
    lua_setfield(state, -2, "__index");
    lua_pushcfunction(state, no_new_global);
    lua_setfield(state, -2, "__newindex");
    lua_setmetatable(state, LUA_GLOBALSINDEX);
}

struct model_lua *model_lua_new(struct redis_model *m)
{
    static const char *const base[] = {"dofile", "loadfile", "print", "newproxy", "module", "require", NULL};
    static const char *const math[] = {"random", "randomseed", NULL};
    struct model_lua *lua = g_new0(struct model_lua, 1);
    lua->m = m;
    lua->scripts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    lua->reply = g_string_new(NULL);
    lua->words = g_array_new(FALSE, FALSE, sizeof(struct slice));
    lua->seen = open_lines() ? g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free) : NULL;
    lua->state = luaL_newstate();
    lua_pushlightuserdata(lua->state, lua);
    lua_setfield(lua->state, LUA_REGISTRYINDEX, "model");
    open_library(lua->state, "", luaopen_base);
    open_library(lua->state, LUA_TABLIBNAME, luaopen_table);
    open_library(lua->state, LUA_STRLIBNAME, luaopen_string);
    open_library(lua->state, LUA_MATHLIBNAME, luaopen_math);
    open_library(lua->state, "cmsgpack", model_pack_open);
    open_redis(lua->state);
    lua_register(lua->state, "pcall", catch);
    take_away(lua->state, "_G", base);
    take_away(lua->state, "math", math);
    protect_globals(lua->state);
    return lua;
}

void model_lua_free(struct model_lua *lua)
{
    lua_close(lua->state);
    g_hash_table_unref(lua->scripts);
    g_clear_pointer(&lua->seen, g_hash_table_unref);
    g_string_free(lua->reply, TRUE);
    g_array_unref(lua->words);
    g_free(lua);
}

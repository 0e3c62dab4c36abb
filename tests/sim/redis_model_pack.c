/* redis_model_pack: the library cmsgpack of scripts; its output has the same bytes as a server's, because it is stored.
 */
#include <lauxlib.h>
#include <lua.h>
#include <math.h>

#include "tests/sim/redis_model_private.h"

#define NESTING_MAX 16 /* deeper tables are packed as nil */

/* --- packing --- */

static void put_number(GString *out, uint64_t number, int bytes)
{
    while (bytes-- > 0) {
        g_string_append_c(out, (gchar)(number >> (8 * bytes)));
    }
}

static void put_head(GString *out, int code, uint64_t number, int bytes)
{
    g_string_append_c(out, (gchar)code);
    put_number(out, number, bytes);
}

static void pack_bytes(GString *out, const char *data, size_t length)
{
    if (length < 32) {
        put_head(out, 0xa0 | (int)length, 0, 0);
    } else if (length <= 0xff) {
        put_head(out, 0xd9, length, 1);
    } else if (length <= 0xffff) {
        put_head(out, 0xda, length, 2);
    } else {
        put_head(out, 0xdb, length, 4);
    }
    g_string_append_len(out, data, (gssize)length);
}

static void pack_whole(GString *out, int64_t n)
{
    uint64_t bits = (uint64_t)n;
    if (n >= -32 && n <= 127) {
        put_head(out, (int)(bits & 0xff), 0, 0);
    } else if (n >= 0) {
        int size = n <= 0xff ? 0 : n <= 0xffff ? 1 : n <= 0xffffffffLL ? 2 : 3;
        put_head(out, 0xcc + size, bits, 1 << size);
    } else {
        int size = n >= -128 ? 0 : n >= -32768 ? 1 : n >= -2147483648LL ? 2 : 3;
        put_head(out, 0xd0 + size, bits, 1 << size);
    }
}

static void pack_number(GString *out, double n)
{
    float single = (float)n;
    if (!isinf(n) && n >= -9223372036854775808.0 && n < 9223372036854775808.0 && (double)(int64_t)n == n) {
        pack_whole(out, (int64_t)n);
    } else if ((double)single == n) {
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        put_head(out, 0xca, bits, 4);
    } else {
        uint64_t bits;
        memcpy(&bits, &n, sizeof bits);
        put_head(out, 0xcb, bits, 8);
    }
}

static void pack_length(GString *out, size_t length, int fixed, int code)
{
    if (length <= 15) {
        put_head(out, fixed | (int)length, 0, 0);
    } else if (length <= 0xffff) {
        put_head(out, code, length, 2);
    } else {
        put_head(out, code + 1, length, 4);
    }
}

/* How many pairs the table on top has, and whether they are an array. */
static size_t count_pairs(lua_State *lua, bool *ret_array)
{
    size_t count = 0;
    double top = 0;
    bool array = true;
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
        lua_pop(lua, 1);
        double key = lua_type(lua, -1) == LUA_TNUMBER ? lua_tonumber(lua, -1) : 0;
        array = array && key > 0 && key <= G_MAXINT && floor(key) == key;
        top = MAX(top, key);
        count++;
    }
    *ret_array = array && top == (double)count;
    return count;
}

static void pack_value(lua_State *lua, GString *out, int level);

static void pack_table(lua_State *lua, GString *out, int level)
{
    bool array;
    size_t count = count_pairs(lua, &array);
    if (array) {
        pack_length(out, count, 0x90, 0xdc);
        for (size_t i = 1; i <= count; i++) {
            lua_pushnumber(lua, (lua_Number)i);
            lua_gettable(lua, -2);
            pack_value(lua, out, level + 1);
        }
        return;
    }
    pack_length(out, count, 0x80, 0xde);
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
        lua_pushvalue(lua, -2);
        pack_value(lua, out, level + 1);
        pack_value(lua, out, level + 1);
    }
}

/* Takes the value on top. */
static void pack_value(lua_State *lua, GString *out, int level)
{
    size_t length;
    const char *text;
    luaL_checkstack(lua, 5, "nested too deep");
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        text = lua_tolstring(lua, -1, &length);
        pack_bytes(out, text, length);
        break;
    case LUA_TNUMBER:
        pack_number(out, lua_tonumber(lua, -1));
        break;
    case LUA_TBOOLEAN:
        put_head(out, lua_toboolean(lua, -1) ? 0xc3 : 0xc2, 0, 0);
        break;
    case LUA_TTABLE:
        if (level < NESTING_MAX) {
            pack_table(lua, out, level);
            break;
        } /* fallthrough */
    default:
        put_head(out, 0xc0, 0, 0);
    }
    lua_pop(lua, 1);
}

/* A buffer that Lua frees, whatever becomes of the script. */
static GString **new_buffer(lua_State *lua)
{
    GString **out = lua_newuserdata(lua, sizeof *out);
    *out = NULL;
    luaL_getmetatable(lua, "buffer");
    lua_setmetatable(lua, -2);
    *out = g_string_new(NULL);
    return out;
}

static int free_buffer(lua_State *lua)
{
    GString **out = lua_touserdata(lua, 1);
    if (*out) {
        g_string_free(*out, TRUE);
        *out = NULL;
    }
    return 0;
}

static int pack(lua_State *lua)
{
    int count = lua_gettop(lua);
    if (count == 0) {
        return luaL_argerror(lua, 0, "MessagePack pack needs input.");
    }
    GString **out = new_buffer(lua);
    for (int i = 1; i <= count; i++) {
        lua_pushvalue(lua, i);
        pack_value(lua, *out, 0);
    }
    lua_pushlstring(lua, (*out)->str, (*out)->len);
    g_string_free(*out, TRUE);
    *out = NULL;
    return 1;
}

/* --- unpacking --- */

struct cursor {
    const unsigned char *at;
    size_t left;
};

static uint64_t take(lua_State *lua, struct cursor *c, size_t bytes)
{
    uint64_t number = 0;
    if (c->left < bytes) {
        luaL_error(lua, "Missing bytes in input.");
    }
    for (size_t i = 0; i < bytes; i++) {
        number = number << 8 | c->at[i];
    }
    c->at += bytes;
    c->left -= bytes;
    return number;
}

static void unpack_bytes(lua_State *lua, struct cursor *c, size_t length)
{
    if (c->left < length) {
        luaL_error(lua, "Missing bytes in input.");
    }
    lua_pushlstring(lua, (const char *)c->at, length);
    c->at += length;
    c->left -= length;
}

static void unpack_value(lua_State *lua, struct cursor *c);

static void unpack_array(lua_State *lua, struct cursor *c, size_t length)
{
    lua_newtable(lua);
    for (size_t i = 1; i <= length; i++) {
        lua_pushnumber(lua, (lua_Number)i);
        unpack_value(lua, c);
        lua_settable(lua, -3);
    }
}

static void unpack_map(lua_State *lua, struct cursor *c, size_t length)
{
    lua_newtable(lua);
    while (length-- > 0) {
        unpack_value(lua, c);
        unpack_value(lua, c);
        lua_settable(lua, -3);
    }
}

static void unpack_real(lua_State *lua, struct cursor *c, bool is_double)
{
    uint64_t bits = take(lua, c, is_double ? 8 : 4);
    uint32_t half = (uint32_t)bits;
    float single;
    double number;
    memcpy(&single, &half, sizeof single);
    memcpy(&number, &bits, sizeof number);
    lua_pushnumber(lua, is_double ? number : (double)single);
}

/* Those with a code of their own, from 0xc0 on. */
static void unpack_coded(lua_State *lua, struct cursor *c, unsigned code)
{
    switch (code) {
    case 0xc0:
        lua_pushnil(lua);
        break;
    case 0xc2:
    case 0xc3:
        lua_pushboolean(lua, code == 0xc3);
        break;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        unpack_bytes(lua, c, (size_t)take(lua, c, 1U << (code - 0xc4)));
        break;
    case 0xca:
    case 0xcb:
        unpack_real(lua, c, code == 0xcb);
        break;
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        lua_pushnumber(lua, (lua_Number)take(lua, c, 1U << (code - 0xcc)));
        break;
    case 0xd0:
        lua_pushnumber(lua, (int8_t)take(lua, c, 1));
        break;
    case 0xd1:
        lua_pushnumber(lua, (int16_t)take(lua, c, 2));
        break;
    case 0xd2:
        lua_pushnumber(lua, (int32_t)take(lua, c, 4));
        break;
    case 0xd3:
        lua_pushnumber(lua, (lua_Number)(int64_t)take(lua, c, 8));
        break;
    case 0xd9:
    case 0xda:
    case 0xdb:
        unpack_bytes(lua, c, (size_t)take(lua, c, 1U << (code - 0xd9)));
        break;
    case 0xdc:
    case 0xdd:
        unpack_array(lua, c, (size_t)take(lua, c, 2U << (code - 0xdc)));
        break;
    case 0xde:
    case 0xdf:
        unpack_map(lua, c, (size_t)take(lua, c, 2U << (code - 0xde)));
        break;
    default:
        luaL_error(lua, "Bad data format in input.");
    }
}

static void unpack_value(lua_State *lua, struct cursor *c)
{
    unsigned code = (unsigned)take(lua, c, 1);
    luaL_checkstack(lua, 5, "too many return values at once; use unpack_one or unpack_limit instead.");
    if (code < 0x80 || code >= 0xe0) {
        lua_pushnumber(lua, (int8_t)code);
    } else if (code < 0x90) {
        unpack_map(lua, c, code & 0xf);
    } else if (code < 0xa0) {
        unpack_array(lua, c, code & 0xf);
    } else if (code < 0xc0) {
        unpack_bytes(lua, c, code & 0x1f);
    } else {
        unpack_coded(lua, c, code);
    }
}

static int unpack(lua_State *lua)
{
    size_t length;
    const char *data = luaL_checklstring(lua, 1, &length);
    struct cursor c = {(const unsigned char *)data, length};
    int count = 0;
    for (; c.left > 0; count++) {
        unpack_value(lua, &c);
    }
    return count;
}

int model_pack_open(lua_State *lua)
{
    static const luaL_Reg functions[] = {{"pack", pack}, {"unpack", unpack}, {NULL, NULL}};
    luaL_newmetatable(lua, "buffer");
    lua_pushcfunction(lua, free_buffer);
    lua_setfield(lua, -2, "__gc");
    lua_pop(lua, 1);
    luaL_register(lua, "cmsgpack", functions);
    return 1;
}

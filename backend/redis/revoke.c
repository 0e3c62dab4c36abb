/* revoke: ends holders by name, of any mount; see revoke.lua for guards.
 *
 * Without a token it first reads the holders, and then ends exactly these: so a late call never ends a later holder.
 */
#include <string.h>

#include "backend/redis/private.h"

void redis_revoke_confirm(struct redis *r, const char *mount, const char *number)
{
    char *text = g_strconcat("h ", number, NULL);
    const struct redis_argument arguments[] = {
        {"PUBLISH", strlen("PUBLISH")}, {mount, strlen(mount)}, {text, strlen(text)}};
    if (strlen(mount) == strlen(r->mount) && g_str_has_prefix(mount, "lfs:")) {
        redis_conn_command(r->conn, arguments, G_N_ELEMENTS(arguments), 0, NULL, NULL);
    }
    g_free(text);
}

static void revoke_fill(struct redis_call *call, const struct remote_request *request)
{
    const struct backend_match *match = request->match;
    redis_call_lock(call, request->name, false, "otiwf");
    redis_call_key(call, 'e', request->name);
    redis_call_leaf(call, request->name, false);
    redis_call_unsigned(call, "fence", request->fence);
    redis_call_text(call, "mount", call->r->mount);
    redis_call_unsigned(call, "request", request->serial);
    redis_call_number(call, "keep", call->r->remote.timeout);
    redis_call_flag(call, "keeps", match);
    if (match && *match->text) {
        redis_call_number(call, "word", match->word);
        redis_call_text(call, "text", match->text);
    }
}

static void revoke_note_ends(struct remote_revocation *v, const redisReply *reply, size_t first)
{
    g_ptr_array_set_size(v->ends, 0);
    for (size_t i = first; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        remote_revocation_add(v, redis_text(reply, i));
    }
}

static void revoke_on_revoked(void *arg, const struct redis_answer *answer)
{
    struct remote_revocation *v = arg;
    enum backend_result result = redis_result(redis_of(v->request), answer);
    if (result == BACKEND_OK) {
        revoke_note_ends(v, answer->reply, 2);
        remote_revocation_wait(v, redis_number(answer->reply, 1));
    } else {
        remote_revocation_complete(v, result);
    }
}

static void revoke_on_found(void *arg, const struct redis_answer *answer)
{
    struct remote_revocation *v = arg;
    struct redis_call call = {.r = redis_of(v->request), .script = REDIS_REVOKE};
    enum backend_result result = redis_result(call.r, answer);
    if (result != BACKEND_OK) {
        remote_revocation_complete(v, result);
        return;
    }
    revoke_note_ends(v, answer->reply, 1);
    revoke_fill(&call, v->request);
    redis_call_texts(&call, "ends", v->ends);
    redis_call_send(&call, MAX(v->until - clock_now(), 1), revoke_on_revoked, v);
}

void redis_revoke(struct remote_request *request)
{
    struct redis_call call = {.r = redis_of(request), .script = REDIS_REVOKE};
    struct remote_revocation *v = remote_revocation_new(request);
    revoke_fill(&call, request);
    redis_call_flag(&call, "look", !request->fence);
    redis_call_send(&call, 0, request->fence ? revoke_on_revoked : revoke_on_found, v);
}

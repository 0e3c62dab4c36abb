/* servers: the addresses of the servers.
 *
 * The library would resolve names in the loop, which blocks.  So it gets numeric addresses.  While it is not connected,
 * each name is looked up again, in a thread: a server may have moved.  A name that cannot be resolved keeps the
 * addresses that it had. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>

#include "backend/zookeeper/private.h"

#define SERVERS_LOOK_UP_AFTER 1000 /* ms since the last look-up */

/* The addresses as the library wants them; NULL: it cannot use them. */
static char *servers_format(const GArray *addresses, uint16_t port)
{
    GString *list = g_string_new(NULL);
    for (guint i = 0; i < addresses->len; i++) {
        const struct remote_address *at = &g_array_index(addresses, struct remote_address, i);
        char host[NI_MAXHOST];
        if (getnameinfo((const struct sockaddr *)&at->address, at->length, host, sizeof host, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            g_string_append_printf(list, at->address.ss_family == AF_INET6 ? "%s[%s]:%u" : "%s%s:%u",
                                   list->len ? "," : "", host, port);
        }
    }
    return g_string_free(list, list->len == 0);
}

static void servers_take_addresses(struct zk_server *server, GArray *addresses)
{
    char *text = servers_format(addresses, server->port);
    if (text) {
        g_free(server->addresses);
        server->addresses = text;
    }
    g_array_unref(addresses);
}

/* Those of all servers; NULL: none is known. */
static char *servers_list(const struct zookeeper *z)
{
    GString *list = g_string_new(NULL);
    for (guint i = 0; i < z->server_count; i++) {
        if (z->servers[i].addresses) {
            g_string_append_printf(list, "%s%s", list->len ? "," : "", z->servers[i].addresses);
        }
    }
    return g_string_free(list, list->len == 0);
}

/* If it is connected by now, it needs no other addresses: the next look-up finds them again. */
static void servers_on_resolved(void *arg, GArray *addresses, const char *error)
{
    struct zk_server *server = arg;
    struct zookeeper *z = server->z;
    (void)error;
    server->resolve = NULL;
    if (!addresses) {
        return;
    }
    servers_take_addresses(server, addresses);
    char *hosts = servers_list(z);
    if (!z->connected && hosts && g_strcmp0(hosts, z->hosts) != 0) {
        g_free(z->hosts);
        z->hosts = g_steal_pointer(&hosts);
        if (z->handle) {
            zoo_set_servers(z->handle, z->hosts);
        }
    }
    g_free(hosts);
}

void servers_look_up(struct zookeeper *z)
{
    clock_ms now = clock_now();
    if (now - z->looked_up < SERVERS_LOOK_UP_AFTER) {
        return;
    }
    z->looked_up = now;
    for (guint i = 0; i < z->server_count; i++) {
        struct zk_server *server = &z->servers[i];
        if (!server->resolve && !server->numeric) {
            server->resolve = remote_resolve_start(z->remote.loop, server->host, server->port, AI_ADDRCONFIG,
                                                   servers_on_resolved, server);
        }
    }
}

int servers_init(struct zookeeper *z, const struct zookeeper_uri *uri, char *error, size_t error_size)
{
    z->server_count = g_strv_length(uri->hosts);
    z->servers = g_new0(struct zk_server, z->server_count);
    for (guint i = 0; i < z->server_count; i++) {
        struct zk_server *server = &z->servers[i];
        *server = (struct zk_server){.z = z, .host = g_strdup(uri->hosts[i]), .port = uri->ports[i]};
        const char *why = NULL;
        GArray *addresses = remote_resolve_numeric(server->host, server->port);
        server->numeric = addresses;
        addresses = addresses ? addresses : remote_resolve_now(server->host, server->port, AI_ADDRCONFIG, &why);
        if (addresses) {
            servers_take_addresses(server, addresses);
        } else {
            snprintf(error, error_size, "zookeeper server %s: %s", server->host, why);
        }
    }
    z->looked_up = clock_now();
    z->hosts = servers_list(z);
    return z->hosts ? 0 : -EHOSTUNREACH;
}

void servers_clear(struct zookeeper *z)
{
    for (guint i = 0; i < z->server_count; i++) {
        remote_resolve_cancel(z->servers[i].resolve);
        g_free(z->servers[i].host);
        g_free(z->servers[i].addresses);
    }
    g_free(z->servers);
    g_free(z->hosts);
}

/* tls: TLS below a connection to Redis, where hiredis has it (1.0 with
 * hiredis_ssl; then HAVE_HIREDIS_SSL is defined).  Without it redis_uri_parse
 * refuses rediss://.
 */
#ifndef BACKEND_REDIS_CONN_TLS_H
#define BACKEND_REDIS_CONN_TLS_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct ssl_st;     /* OpenSSL's SSL; belongs to the context */
struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

/* Whom the system trusts now, or SSL_CERT_FILE and SSL_CERT_DIR: read here, as later the sandbox does not let us. NULL:
 * no memory. */
struct ssl_ctx_st *redis_tls_trust_new(void);
/* Connections that have it keep it.  NULL is allowed. */
void redis_tls_trust_free(struct ssl_ctx_st *trust);

/* Puts TLS on a connection that was just made.  The server's certificate must be
 * for `name` (a host name or address) and signed by one of `trust`.  0 or -errno;
 * then the reason may be the context's errstr. */
int redis_tls_start(redisContext *context, struct ssl_ctx_st *trust, const char *name, struct ssl_st **ret_tls);

/* Output waits for input, as in a handshake: to wait for writing would spin. */
bool redis_tls_wants_input(struct ssl_st *tls);

/* Why there is no TLS on a connection that has failed; NULL: the handshake was done. */
const char *redis_tls_error(struct ssl_st *tls);

#endif

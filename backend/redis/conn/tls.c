/* tls: TLS below a connection to Redis.
 *
 * hiredis does the reading and writing.  What it is given is our own SSL object,
 * since its contexts do not check whom a certificate is for.
 */
#include "backend/redis/conn/tls.h"

#include <errno.h>

#ifdef HAVE_HIREDIS_SSL

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

static bool tls_expect_name(SSL *ssl, const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    }
    return SSL_set1_host(ssl, name) && SSL_set_tlsext_host_name(ssl, name);
}

int redis_tls_start(redisContext *context, const char *name, struct ssl_st **ret_tls)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx) {
        return -ENOMEM;
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_default_verify_paths(ctx);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL *ssl = SSL_new(ctx);
    SSL_CTX_free(ctx); /* `ssl` has a reference */
    if (!ssl) {
        return -ENOMEM;
    }
    if (!tls_expect_name(ssl, name) || redisInitiateSSL(context, ssl) != REDIS_OK) {
        SSL_free(ssl);
        return -EPROTO;
    }
    *ret_tls = ssl;
    return 0;
}

bool redis_tls_wants_input(struct ssl_st *tls)
{
    return SSL_want_read(tls);
}

const char *redis_tls_error(struct ssl_st *tls)
{
    long result = SSL_get_verify_result(tls);
    return result == X509_V_OK ? NULL : X509_verify_cert_error_string(result);
}

#else

int redis_tls_start(redisContext *context, const char *name, struct ssl_st **ret_tls)
{
    (void)context, (void)name, (void)ret_tls;
    return -EOPNOTSUPP;
}

bool redis_tls_wants_input(struct ssl_st *tls)
{
    (void)tls;
    return false;
}

const char *redis_tls_error(struct ssl_st *tls)
{
    (void)tls;
    return NULL;
}

#endif

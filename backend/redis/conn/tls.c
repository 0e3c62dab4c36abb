/* tls: TLS below a connection to Redis.
 *
 * hiredis does the reading and writing.  What it is given is our own SSL object,
 * since its contexts do not check whom a certificate is for.
 */
#include "backend/redis/conn/tls.h"

#include <errno.h>

#ifdef HAVE_HIREDIS_SSL

#include <arpa/inet.h>
#include <glib.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

static const char *tls_place(const char *variable, const char *usual)
{
    const char *given = secure_getenv(variable);
    return given ? given : usual;
}

/* As c_rehash(1) names what counts in a directory: XXXXXXXX.N. */
static bool tls_is_hash(const char *name)
{
    return strspn(name, "0123456789abcdef") == 8 && name[8] == '.';
}

static void tls_trust_directory(SSL_CTX *trust, const char *path)
{
    GDir *directory = g_dir_open(path, 0, NULL);
    const char *name;
    while (directory && (name = g_dir_read_name(directory))) {
        if (tls_is_hash(name)) {
            g_autofree char *file = g_build_filename(path, name, NULL);
            SSL_CTX_load_verify_locations(trust, file, NULL);
        }
    }
    if (directory) {
        g_dir_close(directory);
    }
}

SSL_CTX *redis_tls_trust_new(void)
{
    SSL_CTX *trust = SSL_CTX_new(TLS_client_method());
    if (!trust) {
        return NULL;
    }
    SSL_CTX_set_min_proto_version(trust, TLS1_2_VERSION);
    SSL_CTX_set_verify(trust, SSL_VERIFY_PEER, NULL);
    /* OpenSSL's own way is to look into the directory when a certificate comes, which the sandbox forbids. */
    SSL_CTX_load_verify_locations(trust, tls_place(X509_get_default_cert_file_env(), X509_get_default_cert_file()),
                                  NULL);
    g_auto(GStrv) directories =
        g_strsplit(tls_place(X509_get_default_cert_dir_env(), X509_get_default_cert_dir()), ":", -1);
    for (char **directory = directories; *directory; directory++) {
        tls_trust_directory(trust, *directory);
    }
    ERR_clear_error(); /* of what is not there */
    return trust;
}

void redis_tls_trust_free(SSL_CTX *trust)
{
    SSL_CTX_free(trust);
}

static bool tls_expect_name(SSL *ssl, const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    }
    return SSL_set1_host(ssl, name) && SSL_set_tlsext_host_name(ssl, name);
}

int redis_tls_start(redisContext *context, SSL_CTX *trust, const char *name, struct ssl_st **ret_tls)
{
    SSL *ssl = trust ? SSL_new(trust) : NULL;
    if (!ssl) {
        return -ENOMEM;
    }
    if (!tls_expect_name(ssl, name) || redisInitiateSSL(context, ssl) != REDIS_OK) {
        g_strlcpy(context->errstr, redis_tls_error(ssl), sizeof context->errstr);
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

/* OpenSSL 3 has an error for a connection that ends, OpenSSL 1.1 has none. */
static bool tls_is_end(unsigned long error)
{
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
    return ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
#else
    return error == 0;
#endif
}

const char *redis_tls_error(struct ssl_st *tls)
{
    long result = SSL_get_verify_result(tls);
    if (result != X509_V_OK) {
        return X509_verify_cert_error_string(result);
    }
    if (SSL_is_init_finished(tls)) {
        return NULL;
    }
    unsigned long error = ERR_peek_last_error(); /* the hiredis that is built against OpenSSL leaves it there */
    const char *reason = error && !tls_is_end(error) ? ERR_reason_error_string(error) : NULL;
    return reason ? reason : "the server ended the connection";
}

#else

struct ssl_ctx_st *redis_tls_trust_new(void)
{
    return NULL;
}

void redis_tls_trust_free(struct ssl_ctx_st *trust)
{
    (void)trust;
}

int redis_tls_start(redisContext *context, struct ssl_ctx_st *trust, const char *name, struct ssl_st **ret_tls)
{
    (void)context, (void)trust, (void)name, (void)ret_tls;
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

/* format: how a mount describes itself to a store; see format.h. */
#include "backend/format.h"

#include <glib.h>
#include <stdlib.h>
#include <unistd.h>

char *format_describe_mount(unsigned number)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !*host) {
        g_strlcpy(host, "?", sizeof host);
    }
    return g_strdup_printf("%u " PACKAGE_VERSION " %s", number, host);
}

unsigned format_read_number(const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    bool is = g_ascii_isdigit(*text) && (*end == ' ' || *end == '\0');
    return is ? (unsigned)MIN(number, UINT_MAX) : 0;
}

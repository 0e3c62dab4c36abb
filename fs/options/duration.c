/* duration: how times are written; see duration.h. */
#include "fs/options/duration.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool duration_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int duration_parse(const char *text, size_t length, int64_t *ret_ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    int64_t whole = 0, fraction = 0, scale = 1;
    size_t at = 0;

    for (; at < length && duration_is_digit(text[at]); at++) {
        if (whole <= DURATION_MAX) { /* else it is too much already */
            whole = whole * 10 + (text[at] - '0');
        }
    }
    if (at == 0 && !(length > 1 && text[0] == '.')) {
        return -EINVAL;
    }
    if (at < length && text[at] == '.') {
        size_t point = at++;
        for (; at < length && duration_is_digit(text[at]); at++) {
            if (scale < 1000000000) { /* finer than a millisecond of a day */
                fraction = fraction * 10 + (text[at] - '0');
                scale *= 10;
            }
        }
        if (at == point + 1) {
            return -EINVAL;
        }
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strlen(units[i].name) == length - at && memcmp(text + at, units[i].name, length - at) == 0) {
            int64_t ms = whole > DURATION_MAX / units[i].ms ? DURATION_MAX + 1
                                                            : whole * units[i].ms + fraction * units[i].ms / scale;
            if (ms > DURATION_MAX) {
                return -ERANGE;
            }
            *ret_ms = ms;
            return 0;
        }
    }
    return -EINVAL;
}

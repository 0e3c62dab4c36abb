/* text: see text.h. */
#include "fs/leaserun/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void leaserun_text_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned code;
        if (from[0] == '\\' && sscanf(from, "\\x%2x", &code) == 1) {
            *to = (char)code;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

void leaserun_text_put(FILE *file, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c > 0x7e || c == '\\') {
            fprintf(file, "\\x%02x", c);
        } else {
            fputc(c, file);
        }
    }
}

/* How many bytes a character of UTF-8 has here; 0: it is none. */
static size_t text_utf8(const unsigned char *text)
{
    size_t length = text[0] < 0x80   ? 1
                    : text[0] < 0xc2 ? 0
                    : text[0] < 0xe0 ? 2
                    : text[0] < 0xf0 ? 3
                    : text[0] < 0xf5 ? 4
                                     : 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool wrong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) || /* overlong, surrogate */
                 (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f);
    return wrong ? 0 : length;
}

void leaserun_text_put_json(FILE *file, const char *string)
{
    const unsigned char *text = (const unsigned char *)string;
    fputc('"', file);
    while (*text) {
        size_t length = text_utf8(text);
        if (length == 0) {
            fprintf(file, "\\udc%02x", *text++);
        } else if (*text < 0x20 || *text == 0x7f) {
            fprintf(file, "\\u%04x", *text++);
        } else {
            if (*text == '"' || *text == '\\') {
                fputc('\\', file);
            }
            fwrite(text, 1, length, file);
            text += length;
        }
    }
    fputc('"', file);
}

const char *leaserun_text_until(const char *seconds, char *text, size_t size)
{
    time_t end = time(NULL) + (time_t)(strtod(seconds, NULL) + 0.5);
    struct tm local;
    if (!localtime_r(&end, &local) || !strftime(text, size, "%H:%M:%S", &local)) {
        snprintf(text, size, "?");
    }
    return text;
}

const char *leaserun_text_duration(double seconds, char *text, size_t size)
{
    if (seconds < 0) {
        snprintf(text, size, "-");
    } else if (seconds < 100) {
        snprintf(text, size, "%.1fs", seconds);
    } else if (seconds < 6000) {
        snprintf(text, size, "%dm%02ds", (int)seconds / 60, (int)seconds % 60);
    } else if (seconds < 360000) {
        snprintf(text, size, "%dh%02dm", (int)seconds / 3600, (int)seconds % 3600 / 60);
    } else {
        snprintf(text, size, "%dd", (int)(seconds / 86400));
    }
    return text;
}

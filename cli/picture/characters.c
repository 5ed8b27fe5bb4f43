/* characters.c -- reads and writes UTF-8 characters that are safe in XML and in a terminal.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/picture/canvas.h"

unsigned pic_next(const char **s)
{
    const unsigned char *p = (const unsigned char *)*s;
    unsigned c = *p;
    const int more = c >= 0xf0 && c <= 0xf4 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xc2 && c < 0xe0 ? 1 : 0;
    if (more)
        c &= 0x3fu >> more;
    else if (c >= 0x80)
        c = 0;
    for (int k = 1; k <= more; k++) {
        if ((p[k] & 0xc0) != 0x80) {
            *s += k;
            return '?';
        }
        c = c << 6 | (p[k] & 0x3fu);
    }
    *s += more + 1;
    const bool bad = c < 0x20 || (c >= 0x7f && c < 0xa0) || (more == 2 && c < 0x800) || (more == 3 && c < 0x10000) ||
                     c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || (c & 0xfffe) == 0xfffe || c == 0x200b ||
                     c == 0x200e || c == 0x200f || (c >= 0x2028 && c < 0x202f) || (c >= 0x2066 && c < 0x206a) ||
                     c == 0xfeff;
    return bad ? '?' : c;
}

char *pic_put_char(char *to, unsigned c)
{
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[4] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(lead[more] | c >> 6 * more);
    for (int k = more - 1; k >= 0; k--)
        *to++ = (char)(0x80 | (c >> 6 * k & 0x3f));
    return to;
}

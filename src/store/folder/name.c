/* SPDX-License-Identifier: MIT
 *
 * name.c: what a file is called: who knows what its head says knows its name.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/folder/folder.h"

/* The folder's name is short enough for these (store.c). */
void pleat__folder_path(const pleat__folder *s, const pleat__store_key *key, char *out) {
    char name[PLEAT__STORE_KEY_DIGITS + 1];
    pleat__store_key_digits(key, name);
    (void)snprintf(out, PLEAT__FOLDER_PATH_CAP, "%s/%s.img", s->dir, name);
}

void pleat__folder_temp_path(const pleat__folder *s, const pleat__store_key *key, uint64_t serial, char *out) {
    char name[PLEAT__STORE_KEY_DIGITS + 1];
    pleat__store_key_digits(key, name);
    (void)snprintf(out, PLEAT__FOLDER_PATH_CAP, "%s/%s.%ld.%llu.tmp", s->dir, name, (long)getpid(),
                   (unsigned long long)serial);
}

bool pleat__folder_path_of(const pleat__folder *s, const char *name, char *out) {
    const int n = snprintf(out, PLEAT__FOLDER_PATH_CAP, "%s/%s", s->dir, name);
    return n > 0 && n < PLEAT__FOLDER_PATH_CAP;
}

static int digit_of(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

bool pleat__folder_key_of_name(const char *name, pleat__store_key *out) {
    if (strlen(name) != PLEAT__STORE_KEY_DIGITS + 4 || strcmp(name + PLEAT__STORE_KEY_DIGITS, ".img") != 0)
        return false;
    for (uint32_t i = 0; i < PLEAT__STORE_KEY_DIGITS; i += 2) {
        const int high = digit_of(name[i]), low = digit_of(name[i + 1]);
        if (high < 0 || low < 0) return false;
        out->bytes[i / 2] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool pleat__folder_is_temp(const char *name) {
    const size_t n = strlen(name);
    return n > PLEAT__STORE_KEY_DIGITS + 4 && strcmp(name + n - 4, ".tmp") == 0;
}

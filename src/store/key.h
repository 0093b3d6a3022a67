/* SPDX-License-Identifier: MIT
 *
 * key.h: a hash of all that an image's head says it is of.
 */
#ifndef PLEAT_STORE_KEY_H
#define PLEAT_STORE_KEY_H

#include "pleat/image.h"

#include "core/types.h"

typedef struct pleat__store_key {
    uint8_t bytes[16];
} pleat__store_key;

pleat__store_key pleat__store_key_of(const pleat_image_head *head);

/* It in hexadecimal digits, with a NUL. */
enum { PLEAT__STORE_KEY_DIGITS = 32 };
void pleat__store_key_digits(const pleat__store_key *key, char out[PLEAT__STORE_KEY_DIGITS + 1]);

#endif

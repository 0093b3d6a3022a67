/* SPDX-License-Identifier: MIT
 *
 * known.c: keys that this process has lately seen in the folder, so that who puts what is there copies nothing and asks no
 * disk.  A key has one cell, which the next key of that cell takes.  A key that is here and not in the folder keeps an image
 * from being written until it is looked for; one that is in the folder and not here costs a copy.
 */
#include <string.h>

#include "store/internal.h"

static pleat__store_key *cell(pleat_store *s, const pleat__store_key *key) {
    return &s->known[(key->bytes[0] | key->bytes[1] << 8) % PLEAT__STORE_KNOWN];
}

bool pleat__store_knows(pleat_store *s, const pleat__store_key *key) {
    (void)pthread_mutex_lock(&s->lock);
    const bool knows = memcmp(cell(s, key), key, sizeof *key) == 0;
    (void)pthread_mutex_unlock(&s->lock);
    return knows;
}

void pleat__store_learn(pleat_store *s, const pleat__store_key *key, bool is_there) {
    (void)pthread_mutex_lock(&s->lock);
    pleat__store_key *at = cell(s, key);
    if (is_there)
        *at = *key;
    else if (memcmp(at, key, sizeof *key) == 0)
        memset(at, 0, sizeof *at);
    (void)pthread_mutex_unlock(&s->lock);
}

/* SPDX-License-Identifier: MIT
 *
 * specs.c: the KV specs that are served, in words.
 */
#include <stdio.h>

#include "serve.h"

void server_list_specs(const server *s, char *out, size_t cap) {
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < s->n_served && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "", s->served[i].kv);
}

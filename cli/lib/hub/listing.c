/* SPDX-License-Identifier: MIT
 *
 * listing.c: see listing.h.
 */
#include "listing.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

int hub_commit_parse(const char *json, size_t n, char commit[41], hub_why why) {
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, NULL);
    const char *sha = json_string_value(json_object_get(root, "sha"));
    const int is_well = sha && hub_is_hex(sha, 40);
    if (is_well)
        memcpy(commit, sha, 41);
    else
        snprintf(why, HUB_WHY_CAP, "the hub's answer names no commit");
    json_decref(root);
    return is_well;
}

/* An entry of the list that is a GGUF file. */
static int read_file(const json_t *entry, const char *path, hub_file *out, hub_why why) {
    const json_t *lfs = json_object_get(entry, "lfs");
    const json_t *size = json_object_get(lfs ? lfs : entry, "size");
    const char *oid = json_string_value(json_object_get(lfs, "oid"));
    *out = (hub_file){.path = ""};
    if (!hub_is_path(path)) {
        snprintf(why, HUB_WHY_CAP, "the hub lists a file '%.200s', whose name leads elsewhere or is too long", path);
        return 0;
    }
    snprintf(out->path, sizeof out->path, "%s", path);
    if (!json_is_integer(size) || json_integer_value(size) < 0 || json_integer_value(size) > (json_int_t)HUB_SIZE_MAX) {
        snprintf(why, HUB_WHY_CAP, "the hub lists no size for %.200s, or none that can be", path);
        return 0;
    }
    out->size_bytes = (uint64_t)json_integer_value(size);
    if (oid && !hub_is_hex(oid, 64)) {
        snprintf(why, HUB_WHY_CAP, "the hub lists no SHA-256 for %.200s, but '%.80s'", path, oid);
        return 0;
    }
    if (oid) memcpy(out->sha256, oid, sizeof out->sha256);
    return 1;
}

int hub_listing_parse(const char *json, size_t n, hub_listing *list, hub_why why) {
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, NULL), *entry;
    size_t i;
    int is_well = json_is_array(root);
    if (!is_well) snprintf(why, HUB_WHY_CAP, "the hub's list of files is no list");
    json_array_foreach(root, i, entry) {
        const char *path = json_string_value(json_object_get(entry, "path"));
        const char *type = json_string_value(json_object_get(entry, "type"));
        hub_file file;
        if (!is_well || !path || !type || strcmp(type, "file") != 0 || !hub_is_gguf(path)) continue;
        is_well = read_file(entry, path, &file, why);
        if (is_well && !hub_listing_add(list, &file)) {
            snprintf(why, HUB_WHY_CAP, "it has more than %d GGUF files, or there is no memory", HUB_FILES_MAX);
            is_well = 0;
        }
    }
    json_decref(root);
    return is_well;
}

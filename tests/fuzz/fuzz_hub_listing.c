/* SPDX-License-Identifier: MIT
 *
 * fuzz_hub_listing.c: any bytes as a hub's list of files, and as its answer about a revision.
 *
 * What is taken has paths that stay below a folder, sizes and hashes that can be; whatever is picked of it is in it, or a
 * reason is given.
 */
#include "fuzz.h"

#include <string.h>

#include "cli/lib/hub/listing.h"

static void expect_file(const hub_file *f) {
    EXPECT(memchr(f->path, 0, sizeof f->path) && hub_is_path(f->path) && hub_is_gguf(f->path));
    EXPECT(f->path[0] != '/' && !strstr(f->path, "/../") && strncmp(f->path, "../", 3) != 0);
    EXPECT(f->size_bytes <= HUB_SIZE_MAX);
    EXPECT(!f->sha256[0] || hub_is_hex(f->sha256, 64));
}

static void expect_pick(const hub_listing *list, const char *quant, const char *path) {
    hub_name name = {.repo = "a/b"};
    hub_why why;
    memcpy(name.quant, quant, strlen(quant) + 1);
    const hub_file *file = hub_pick(list, &name, path, why);
    EXPECT(file ? file >= list->at && file < list->at + list->n : why[0] != 0);
    EXPECT(memchr(why, 0, sizeof why));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hub_listing list = {0};
    hub_why why = "";
    char commit[41];
    const int is_taken = hub_listing_parse((const char *)data, size, &list, why);
    EXPECT(is_taken || why[0]);
    for (uint32_t i = 0; i < list.n; i++) expect_file(&list.at[i]);
    expect_pick(&list, "", NULL);
    expect_pick(&list, "Q4_K_M", NULL);
    expect_pick(&list, "", "a.gguf");
    hub_listing_release(&list);
    if (hub_commit_parse((const char *)data, size, commit, why)) EXPECT(hub_is_hex(commit, 40));
    return 0;
}

/* SPDX-License-Identifier: MIT
 *
 * devices.c: see devices.h.
 *
 * json: {devices:[{device, name, compute_capability, multiprocessors, memory_bytes, free_bytes, l2_bytes}], reason}
 * where reason is null, or says why there are none.
 */
#include "devices.h"

#include "cli/lib/common.h"
#include "cli/lib/output.h"
#include "pleat/pleat.h"

enum { CAPABILITY_CAP = 16 };
static const char *capability_of(const pleat_device_info *info, char text[CAPABILITY_CAP]) {
    snprintf(text, CAPABILITY_CAP, "%u.%u", info->compute_capability / 10, info->compute_capability % 10);
    return text;
}

static json_t *device_json(uint32_t device, const pleat_device_info *info) {
    char capability[CAPABILITY_CAP];
    return json_pack("{s:i, s:o, s:s, s:i, s:I, s:I, s:I}", "device", (int)device, "name", json_text(info->name),
                     "compute_capability", capability_of(info, capability), "multiprocessors",
                     (int)info->n_multiprocessors, "memory_bytes", (json_int_t)info->memory_bytes, "free_bytes",
                     (json_int_t)info->free_bytes, "l2_bytes", (json_int_t)info->l2_bytes);
}

static void put_device(table *t, uint32_t device, const pleat_device_info *info) {
    char capability[CAPABILITY_CAP], bytes[BYTES_CAP];
    table_put(t, "%u", device);
    table_put_text(t, info->name);
    table_put(t, "%s", capability_of(info, capability));
    table_put(t, "%u", info->n_multiprocessors);
    table_put(t, "%s", print_bytes(bytes, info->memory_bytes));
    table_put(t, "%s", print_bytes(bytes, info->free_bytes));
    table_put(t, "%s", print_bytes(bytes, info->l2_bytes));
}

/* Rows of all devices; stops at the first that does not answer. */
static pleat_status list(table *t, json_t *rows, pleat_error *err) {
    uint32_t n;
    pleat_status status = pleat_device_count(&n, err);
    for (uint32_t i = 0; status == PLEAT_OK && i < n; i++) {
        pleat_device_info info;
        status = pleat_device_get_info(i, &info, err);
        if (status != PLEAT_OK) break;
        json_array_append_new(rows, device_json(i, &info));
        put_device(t, i, &info);
    }
    return status;
}

int devices_print(const common_options *common) {
    static const char *const titles[] = {"device", "name", "capability", "multiprocessors", "memory", "free", "L2"};
    pleat_error err = {0, PLEAT_NOWHERE, ""};
    output out;
    table t;
    int code = output_open(&out, common);
    if (code != CLI_OK) return code;
    table_init(&t, titles, sizeof titles / sizeof titles[0]);
    json_t *rows = json_array();
    const pleat_status status = list(&t, rows, &err);
    if (common->format == FORMAT_JSON)
        output_json(&out, json_pack("{s:O, s:o}", "devices", rows, "reason",
                                    status == PLEAT_OK ? json_null() : json_text(err.text)));
    else
        table_write(&t, &out);
    if (status != PLEAT_OK && !common->quiet) cli_note("%s", err.text);
    json_decref(rows);
    table_release(&t);
    return output_close(&out);
}

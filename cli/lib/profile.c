/* SPDX-License-Identifier: MIT
 *
 * profile.c: see profile.h.
 */
#include "profile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"

int profile_is_of(const profile *p, const char *path, const pleat_model *model, const char *model_name) {
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    if (pleat_model_fingerprint(model, fingerprint) != PLEAT_OK) return 0;
    if (strcmp(fingerprint, p->fingerprint) == 0) return 1;
    cli_error("profile %s was made for the model '%s' (fingerprint %s); this one is '%s' (%s); "
              "`pleat calibrate` makes one for it",
              path, p->model, p->fingerprint, model_name, fingerprint);
    return 0;
}

int profile_resolve(const pleat_model *model, const char *model_name, pleat_spec *spec) {
    if (!spec->profile[0]) return CLI_OK;
    const char *path = spec->profile;
    profile *p = cli_alloc(1, sizeof *p);
    int code = profile_read(path, p);
    if (code == CLI_OK && !profile_is_of(p, path, model, model_name)) code = CLI_FAILED;
    if (code == CLI_OK && !p->is_complete) {
        cli_error("profile %s is not complete: its calibration was interrupted; run the same `pleat calibrate` again",
                  path);
        code = CLI_FAILED;
    }
    if (code == CLI_OK) (void)pleat_spec_parse(p->kv, spec, NULL); /* profile_read() has parsed it */
    free(p);
    return code;
}

char *profile_path_beside(const char *model_path) { return cli_path_beside(model_path, ".leankv.json"); }

/* Why a profile that was read is not the model's, or NULL. */
static const char *why_not_of(const profile *p, const pleat_model *model) {
    char fingerprint[PLEAT_FINGERPRINT_CAP];
    if (pleat_model_fingerprint(model, fingerprint) != PLEAT_OK || strcmp(fingerprint, p->fingerprint) != 0)
        return "was made for another model";
    return p->is_complete ? NULL : "is not complete";
}

int profile_take_shipped(const char *path, const pleat_model *model, int is_quiet, pleat_spec *spec, int *code) {
    struct stat info;
    char defaults[PLEAT_SPEC_TEXT_CAP];
    if (stat(path, &info) != 0) return 0;
    profile *p = cli_alloc(1, sizeof *p);
    *code = profile_read(path, p);
    const char *fault = *code == CLI_OK ? why_not_of(p, model) : NULL;
    (void)pleat_spec_print(spec, defaults, sizeof defaults);
    if (fault && !is_quiet)
        cli_note("--kv leankv is %s: the profile %s %s", defaults, path, fault);
    else if (*code == CLI_OK && !fault && !is_quiet)
        cli_note("--kv leankv is %s here, from the model's profile %s; %s are the defaults", p->kv, path, defaults);
    const int is_taken = *code == CLI_OK && !fault;
    if (is_taken) (void)pleat_spec_parse(p->kv, spec, NULL); /* profile_read() has parsed it */
    free(p);
    return is_taken;
}
